"""A fake model server on this machine, for checking that a host's hooks work.

It implements the part of OpenAI's protocol that OpenClaw and Hermes use: models, and chat
completions with and without streaming.  A function of the request decides the answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Final, Self

MODEL: Final = "canary"
_numbers: Final = count()  # of calls: Hermes takes no second result for one id
_USAGE: Final = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReply:
    """The model's answer: a text, a tool call with its arguments, or an HTTP error.

    ``usage`` is what it took, as OpenAI's API has it.
    """

    text: str = ""
    tool: tuple[str, Mapping[str, Any]] | None = None
    status: int = 200
    usage: Mapping[str, Any] = field(default_factory=lambda: dict(_USAGE))


class CanaryModel:
    """The server, and the chat requests that it has received."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], CanaryReply], port: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer = answer
        self._server = _CanaryServer(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"


class _CanaryServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], model: CanaryModel) -> None:
        super().__init__(address, _CanaryHandler)
        self.model = model

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a killed host leaves broken connections."""


class _CanaryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _CanaryServer
    timeout = 30

    def log_message(self, format: str, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        if not self.path.endswith("/chat/completions"):
            self._json(404, {"error": {"message": f"no such path {self.path}"}})
            return
        model = self.server.model
        model.requests.append(body)
        reply = model.answer(body)
        if reply.status != 200:
            self._json(reply.status, {"error": {"message": "as asked for", "type": "canary"}})
        elif body.get("stream"):
            self._stream(reply)
        else:
            self._json(200, _full_response(reply))

    def _stream(self, reply: CanaryReply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        content: dict[str, Any] = {"content": reply.text}
        if reply.tool:
            content = {"tool_calls": [{"index": 0, **_tool_call(*reply.tool)}]}
        for delta, reason in (
            ({"role": "assistant", "content": ""}, None),
            (content, None),
            ({}, "tool_calls" if reply.tool else "stop"),
        ):
            self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        self._event({"choices": [], "usage": reply.usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, fields: Mapping[str, Any]) -> None:
        event = {**_RESPONSE_HEAD, "object": "chat.completion.chunk", **fields}
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, document: Mapping[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


_RESPONSE_HEAD: Final = {"id": "canary", "created": 0, "model": MODEL}


def _tool_call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{name}_{next(_numbers)}", "type": "function", "function": function}


def _full_response(reply: CanaryReply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool:
        message["tool_calls"] = [_tool_call(*reply.tool)]
    choice = {
        "index": 0,
        "finish_reason": "tool_calls" if reply.tool else "stop",
        "message": message,
    }
    return {
        **_RESPONSE_HEAD,
        "object": "chat.completion",
        "choices": [choice],
        "usage": reply.usage,
    }
