"""The wire formats in which coding agents ask a model, beside OpenAI's chat completions.

Anthropic's Messages (Claude Code), OpenAI's Responses (Codex) and Gemini's `generateContent`.  A
request is brought into the form of chat completions, which the scripted model reads, and keeps what
came under "body"; the answer goes back in the format of the request, streamed if it was asked so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from memtier_plugin.hosts.canary import CanaryReply, _CanaryHandler

_numbers = count(1)
Request = dict[str, Any]
Events = Iterator[dict[str, Any]]


class WireHandler(_CanaryHandler):
    """Answers in whichever of the formats a path belongs to."""

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/chat/completions"):
            super().do_POST()
            return
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if path.endswith(("/count_tokens", ":countTokens")):
            tokens = len(json.dumps(body)) // 4
            self._json(200, {"input_tokens": tokens, "totalTokens": tokens})
        elif path.endswith("/messages"):
            self._answer(from_messages(body), messages_events, body.get("stream"))
        elif path.endswith("/responses"):
            self._answer(from_responses(body), responses_events, body.get("stream"))
        elif path.endswith((":generateContent", ":streamGenerateContent")):
            self._answer(from_gemini(body), gemini_events, ":stream" in path)
        else:
            self._json(404, {"error": {"message": f"no such path {self.path}"}})

    def _answer(self, request: Request, events: Any, stream: object) -> None:
        model = self.server.model
        model.requests.append(request)
        reply = model.answer(request)
        if reply.status != 200:
            self._json(reply.status, {"error": {"message": "as asked for", "type": "api_error"}})
        elif stream:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for event in events(reply):
                name = f"event: {event['type']}\n" if "type" in event else ""
                self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        else:
            self._json(200, _whole([*events(reply)]))


def _whole(events: list[dict[str, Any]]) -> Mapping[str, Any]:
    """Return what an answer that is not streamed holds."""
    if "candidates" in events[-1]:
        return events[-1]
    if events[-1]["type"] == "response.completed":
        return dict(events[-1]["response"])
    started = dict(events[0]["message"])
    block = {**events[1]["content_block"]}
    delta = events[2]["delta"]
    if block["type"] == "text":
        block["text"] = delta["text"]
    else:
        block["input"] = json.loads(delta["partial_json"])
    return {**started, "content": [block], "stop_reason": events[-2]["delta"]["stop_reason"]}


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _joined(content: Any) -> str:
    return "\n".join(str(part["text"]) for part in _parts(content) if part.get("text"))


def _tool(declared: Mapping[str, Any]) -> dict[str, Any]:
    return {"function": {"name": declared["name"], "description": declared.get("description")}}


# -- Anthropic's Messages -----------------------------------------------------------------------


def from_messages(body: Mapping[str, Any]) -> Request:
    """Return a request of the Messages API as one of chat completions."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": _joined(body.get("system"))}]
    for message in body["messages"]:
        parts = _parts(message["content"])
        results = [part for part in parts if part["type"] == "tool_result"]
        messages += [{"role": "tool", "content": _joined(part["content"])} for part in results]
        if words := _joined(parts):
            messages.append({"role": message["role"], "content": words})
    return {"messages": messages, "tools": [*map(_tool, body.get("tools") or ())], "body": body}


def messages_events(reply: CanaryReply) -> Events:
    """Yield the events of an answer of the Messages API."""
    number = next(_numbers)
    tokens = {"input_tokens": reply.usage.get("prompt_tokens", 1), "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "canary"}
    started = {**message, "content": [], "stop_reason": None, "usage": tokens}
    yield {"type": "message_start", "message": started}
    if reply.tool:
        name, arguments = reply.tool
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": reply.text}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": "tool_use" if reply.tool else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": tokens}
    yield {"type": "message_stop"}


# -- OpenAI's Responses -------------------------------------------------------------------------


def from_responses(body: Mapping[str, Any]) -> Request:
    """Return a request of the Responses API as one of chat completions."""
    messages = [{"role": "system", "content": body.get("instructions") or ""}]
    for item in body["input"]:
        if item["type"] == "message":
            messages.append({"role": item["role"], "content": _joined(item["content"])})
        elif item["type"].endswith("_output"):
            output = item["output"]
            if isinstance(output, Mapping):
                output = output.get("content")
            messages.append({"role": "tool", "content": _joined(output)})
    tools: list[dict[str, Any]] = []
    for tool in body.get("tools") or ():
        for inner in tool["tools"] if tool["type"] == "namespace" else [tool]:
            space = tool["name"] if tool["type"] == "namespace" else ""
            tools += [{**_tool(inner), "namespace": space}] if "name" in inner else []
    return {"messages": messages, "tools": tools, "body": body}


def responses_events(reply: CanaryReply) -> Events:
    """Yield the events of an answer of the Responses API."""
    number = next(_numbers)
    item: dict[str, Any]
    if reply.tool:
        name, arguments = reply.tool
        space, _, name = name.rpartition("/")
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": name, "arguments": json.dumps(arguments)}
        item |= {"namespace": space} if space else {}
    else:
        words = {"type": "output_text", "text": reply.text, "annotations": []}
        item = {"type": "message", "id": f"m_{number}", "role": "assistant", "content": [words]}
    prompt, total = (reply.usage.get(f"{name}_tokens", 1) for name in ("prompt", "total"))
    usage = {"input_tokens": prompt, "output_tokens": 1, "total_tokens": total}
    response = {"id": f"resp_{number}", "object": "response", "status": "completed"}
    yield {"type": "response.created", "response": {"id": f"resp_{number}"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    finished = {**response, "output": [item], "usage": usage}
    yield {"type": "response.completed", "response": finished}


# -- Gemini -------------------------------------------------------------------------------------


def from_gemini(body: Mapping[str, Any]) -> Request:
    """Return a request of Gemini's API as one of chat completions."""
    instructions = (body.get("systemInstruction") or {}).get("parts")
    messages = [{"role": "system", "content": _joined(instructions)}]
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                result = json.dumps(part["functionResponse"]["response"], ensure_ascii=False)
                messages.append({"role": "tool", "content": result})
        if words := _joined(content["parts"]):
            role = "assistant" if content.get("role") == "model" else "user"
            messages.append({"role": role, "content": words})
    declared = [f for tool in body.get("tools") or () for f in tool.get("functionDeclarations", ())]
    return {"messages": messages, "tools": [*map(_tool, declared)], "body": body}


def gemini_events(reply: CanaryReply) -> Events:
    """Yield the only event of an answer of Gemini's API."""
    part: dict[str, Any] = {"text": reply.text}
    if reply.tool:
        part = {"functionCall": {"name": reply.tool[0], "args": dict(reply.tool[1])}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    prompt = reply.usage.get("prompt_tokens", 1)
    usage = {"promptTokenCount": prompt, "candidatesTokenCount": 1, "totalTokenCount": prompt + 1}
    yield {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "canary"}
