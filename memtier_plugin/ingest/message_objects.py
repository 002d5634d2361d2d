"""Convert agent frameworks' messages, by their shape, to OpenAI's chat format.

No framework is imported, and JSON dumps are read like objects. Supported are openai's own (chat
messages, items of the Responses API), OpenAI Agents, LangChain, pydantic-ai, Google ADK,
LlamaIndex, AutoGen and AG2; CrewAI's are OpenAI's chat messages.

Most frameworks mark every result as a success unless an error was reported: so only errors are
trusted, and other results are judged by their content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

Fields = Mapping[str, Any]

# Items of the Responses API and parts of pydantic-ai that are neither speech nor a tool's result.
_NO_WORDS: Final = frozenset(
    {
        *("reasoning", "item_reference", "compaction", "compaction_trigger", "additional_tools"),
        *("configuration_update", "mcp_list_tools", "mcp_approval_request"),
        *("mcp_approval_response", "tool_search_call", "tool_search_output"),
        *("program", "program_output", "remove"),
    }
)
_LANGCHAIN: Final = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}
_INPUTS: Final = ("arguments", "input", "code", "action", "operation", "queries")  # of a call
_RESULTS: Final = ("error", "output", "outputs", "results")  # of a call that the server ran itself
_AG2: Final = frozenset({"parts", "results", "tool_calls"})  # fields of its events with text
_AUTOGEN: Final = frozenset({"SystemMessage", "FunctionExecutionResultMessage"})  # nobody's
_NAMES_OF_USERS: Final = frozenset({"user", "user_proxy", "human"})  # AutoGen's
_DEEPEST: Final = 12  # levels of a message that are searched
_FAILED: Final = frozenset({"error", "failed", "retried", "interrupted", "denied", "incomplete"})


def chat_messages(message: object) -> Iterator[Any]:
    """Yield the text, calls and results in a message, each as a chat message.

    A message of unknown shape is yielded unchanged.
    """
    fields = _plain(message)
    if not isinstance(fields, Mapping):
        yield message
        return
    kind = fields.get("type")
    content = fields.get("content")
    if isinstance(fields.get("raw_item"), Mapping):  # a RunItem of OpenAI Agents
        yield from chat_messages(fields["raw_item"])
    elif "created_at" in fields and _AG2 & fields.keys():
        yield from _of_ag2(fields)
    elif isinstance(fields.get("parts"), list) and "kind" in fields:
        yield from _of_pydantic_ai(fields)
    elif isinstance(fields.get("parts"), list):
        yield from _of_gemini(fields, None)
    elif isinstance(content, Mapping) and isinstance(content.get("parts"), list):  # ADK's Event
        if not fields.get("partial"):
            yield from _of_gemini(content, fields)
    elif isinstance(fields.get("data"), Mapping) and kind in _LANGCHAIN:
        yield from chat_messages(fields["data"])  # messages_to_dict
    elif kind in _NO_WORDS or (content is None and "invocation_id" in fields):  # ADK: an error
        return
    elif "role" in fields:
        yield from _of_chat(fields, message)
    elif kind in _LANGCHAIN and "content" in fields and "source" not in fields:
        yield _of_langchain(fields)
    elif isinstance(kind, str) and kind.endswith(("_call", "_call_output")):
        yield from _of_responses(fields, kind)
    elif kind in _AUTOGEN or (isinstance(kind, str) and "source" in fields):
        yield from _of_autogen(fields, str(kind))
    elif isinstance(message, Mapping) or not _is_ag2_event(message):
        yield fields  # AG2's internal events without text


def _plain(value: Any, deep: int = _DEEPEST) -> Any:
    """Return an object as the mapping that it dumps to; lists and mappings recursively."""
    if isinstance(value, Enum):
        return value.value
    if deep == 0 or value is None or isinstance(value, str | bytes | int | float | type):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, deep - 1) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item, deep - 1) for key, item in value.items()}
    if callable(getattr(value, "model_dump", None)):
        return _plain(value.model_dump(warnings=False), deep)
    if _is_ag2_event(value):
        return _plain(value.to_dict(), deep)
    # Our own records are not dumped
    if is_dataclass(value) and not hasattr(value, "__struct_fields__"):
        return {name.name: _plain(getattr(value, name.name), deep - 1) for name in fields(value)}
    return value


def _is_ag2_event(value: object) -> bool:
    return callable(getattr(value, "to_dict", None)) and hasattr(value, "created_at")


def _of_chat(fields: Fields, message: object) -> Iterator[Fields]:
    """Yield a message with a role: OpenAI's, LlamaIndex' or AG2's."""
    if isinstance(fields.get("tool_responses"), list):  # AG2: several results in one message
        yield from (
            _result(each.get("tool_call_id"), each.get("content"))
            for each in fields["tool_responses"]
            if isinstance(each, Mapping)
        )
        return
    if isinstance(fields.get("blocks"), list):  # LlamaIndex
        more = fields.get("additional_kwargs") or {}
        blocks = fields["blocks"]
        calls = [
            {"id": b.get("tool_call_id"), "name": b.get("tool_name"), "args": b.get("tool_kwargs")}
            for b in blocks
            if b.get("block_type") == "tool_call"
        ]
        yield {
            "role": fields["role"],
            "content": [
                {**block, "type": block["block_type"]}
                for block in blocks
                if block.get("block_type") not in ("tool_call", "thinking")
            ],
            "tool_calls": calls or more.get("tool_calls"),
            "tool_call_id": more.get("tool_call_id"),
            "name": more.get("name"),
        }
        return
    content = fields.get("content")
    calls = (
        [p for p in content if _is_part(p) and p["type"] == "tool_use"]
        if isinstance(content, list)
        else []
    )
    if calls and not fields.get("tool_calls"):  # Anthropic
        fields = {**fields, "tool_calls": calls}
    if not isinstance(message, Mapping):  # an object has every field, correctly typed
        keys = ("role", "content", "name", "tool_calls", "tool_call_id")
        fields = {key: fields[key] for key in keys if fields.get(key) is not None}
    yield fields


def _of_langchain(fields: Fields) -> Fields:
    return {
        "role": _LANGCHAIN[fields["type"]],
        "content": fields["content"],
        "name": fields.get("name"),
        "tool_calls": fields.get("tool_calls"),
        "tool_call_id": fields.get("tool_call_id"),
        **_failure(fields.get("status")),
    }


def _of_responses(item: Fields, kind: str) -> Iterator[Fields]:
    """Yield a call of the Responses API, or its result; both for one that the server ran itself."""
    call_id = item.get("call_id") or item.get("id")
    failure = _failure(item.get("status"))
    if kind.endswith("_output"):
        output = item.get("output")
        codes = [
            each["outcome"].get("exit_code")
            for each in (output if isinstance(output, list) else ())
            if isinstance(each, Mapping) and isinstance(each.get("outcome"), Mapping)
        ]
        yield {**_result(call_id, output), **failure, **({"exit_code": codes[-1]} if codes else {})}
        return
    name = item.get("name") or kind.removesuffix("_call")
    arguments = next((item[key] for key in _INPUTS if item.get(key) is not None), "")
    yield _calls([{"id": call_id, "name": name, "arguments": arguments}])
    result = next((item[key] for key in _RESULTS if item.get(key) is not None), None)
    if result is not None:
        failure |= _failure("error" if item.get("error") else None)
        yield {**_result(call_id, result), **failure, "name": name}


def _of_pydantic_ai(message: Fields) -> Iterator[Fields]:
    """Yield a request, which contains several messages, or a response with its calls."""
    texts, calls, results = [], [], []
    when = message.get("timestamp")
    for part in message["parts"]:
        kind = part.get("part_kind")
        content = part.get("content")
        if kind in ("tool-return", "builtin-tool-return"):
            outcome = _failure(part.get("outcome"))
            results.append({**_result(part.get("tool_call_id"), content), **outcome})
            results[-1]["name"] = part.get("tool_name")
        elif kind == "retry-prompt" and part.get("tool_name"):
            result = _result(part.get("tool_call_id"), content)
            results.append({**result, "name": part["tool_name"], "is_error": True})
        elif kind in ("tool-call", "builtin-tool-call"):
            called = {"id": part.get("tool_call_id"), "name": part.get("tool_name")}
            calls.append({**called, "args": part.get("args")})
        elif kind == "user-prompt":
            parts = content if isinstance(content, str) else [_typed(each) for each in content]
            when = part.get("timestamp") or when
            yield {"role": "user", "content": parts, "observed_at": when}
        elif kind in ("system-prompt", "retry-prompt"):
            yield {"role": "system", "content": _as_text(content)}
        elif kind in ("text", "speech") and message["kind"] == "response":
            texts.append(str(content or part.get("transcript") or ""))
    if texts or calls:
        yield {**_calls(calls), "content": "\n".join(texts), "observed_at": when}
    yield from results


def _typed(part: Any) -> Any:
    """Return a part of pydantic-ai's user content with its type where OpenAI has it."""
    if not isinstance(part, Mapping):
        return part
    kind = str(part.get("kind") or "text").removesuffix("-url")
    return {"type": kind, "text": part["content"]} if "content" in part else {"type": kind}


def _of_gemini(content: Fields, event: Fields | None) -> Iterator[Fields]:
    """Yield a Content of Google's SDK, or of an ADK event."""
    texts, calls = [], []
    for part in content["parts"]:
        if call := part.get("function_call"):
            calls.append({"id": call.get("id"), "name": call["name"], "args": call.get("args")})
        elif answer := part.get("function_response"):
            name, response = answer["name"], answer.get("response") or {}
            plain = response.get("result") if [*response] == ["result"] else response
            yield {**_result(answer.get("id"), plain), "name": name}
        elif code := part.get("executable_code"):
            calls.append({"name": "code_execution", "arguments": code.get("code") or ""})
        elif done := part.get("code_execution_result"):
            ok = done.get("outcome") == "OUTCOME_OK"
            result = _result(None, done.get("output") or "")
            yield {**result, "name": "code_execution", "ok": ok}
        elif isinstance(part.get("text"), str) and not part.get("thought"):
            texts.append(part["text"])
        elif data := part.get("inline_data") or part.get("file_data"):
            texts.append(f"[{str(data.get('mime_type') or 'file').partition('/')[0]}]")
    author = str((event or {}).get("author") or "")
    if texts or calls:
        yield {
            "role": "assistant" if content.get("role") == "model" else "user",
            "content": "\n".join(texts),
            "tool_calls": calls,
            "name": author if author not in ("user", "model") else None,
            "observed_at": (event or {}).get("timestamp"),
        }


def _of_ag2(event: Fields) -> Iterator[Fields]:
    """Yield an AG2 event: a request, a response with its calls, or the results of calls."""
    for result in event.get("results") or ():
        parts = (result["result"].get("data") or result["result"]).get("parts") or ()
        failure = _failure("error" if result.get("error") else None)
        texts = [_as_text(part.get("content", part.get("data"))) or "" for part in parts]
        answer = _result(result.get("parent_id"), "\n".join(texts))
        yield {**answer, **failure, "name": result.get("name")}
    if "tool_calls" in event:
        content = (event.get("message") or {}).get("content") or ""
        yield {**_calls((event["tool_calls"] or {}).get("calls") or []), "content": content}
    elif "parts" in event:
        parts = [part for part in event["parts"] if isinstance(part.get("content"), str)]
        yield {"role": "user", "content": "\n".join(part["content"] for part in parts)}


def _of_autogen(message: Fields, kind: str) -> Iterator[Fields]:
    """Yield a message of AutoGen, between its agents or in a model's context."""
    content, source = message.get("content"), message.get("source")
    items = content if isinstance(content, list) else []
    if items and all(isinstance(item, Mapping) and "call_id" in item for item in items):
        for item in items:
            failure = _failure("error" if item.get("is_error") else None)
            yield {**_result(item["call_id"], item.get("content")), **failure}
    elif items and all(isinstance(item, Mapping) and "arguments" in item for item in items):
        yield _calls(items)
    elif kind.endswith("Event"):
        return  # internal: thoughts, stream chunks, speaker selection
    elif kind == "SystemMessage":
        yield {"role": "system", "content": content}
    else:
        by_user = kind == "UserMessage" or str(source).casefold() in _NAMES_OF_USERS
        name = source if source not in (*_NAMES_OF_USERS, "assistant") else None
        parts = [part if isinstance(part, str) else {"type": "image"} for part in items]
        role = "user" if by_user else "assistant"
        yield {"role": role, "content": parts or content, "name": name}


def _calls(calls: list[Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _result(call_id: object, content: object) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": _as_text(content)}


def _failure(status: object) -> dict[str, bool]:
    return {"is_error": True} if str(status) in _FAILED else {}


def _as_text(content: Any) -> Any:
    """Return a tool's result as text or parts; anything else as JSON."""
    if content is None or isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    if parts and all(isinstance(part, str) or _is_part(part) for part in parts):
        return content
    return json.dumps(content, ensure_ascii=False, default=str)


def _is_part(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("type"), str)
