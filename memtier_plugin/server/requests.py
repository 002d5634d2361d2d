"""Requests as they come in: JSON within limits, and what is refused at the door."""

from __future__ import annotations

from typing import Any, Final

from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.server.parameters import is_deeper

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_BODY_BYTES: Final = 4 * 1024 * 1024  # over HTTP; nobody else has the interpreter meanwhile
MAX_AT_ONCE: Final = 65_536  # bytes of a request over HTTP that is parsed before its turn
MAX_DEPTH: Final = 100  # of the JSON over HTTP
MAX_VALUES: Final = 100_000  # objects and lists in a request over HTTP, by their brackets
FOREVER: Final = float("inf")
# Nobody misses their work where the answer cannot be sent.
_READING: Final = frozenset(
    {"recall", "ask", "explain", "facts", "fact", "status", "ping", "offers", "complete"}
)

Json = dict[str, Any]


class RefusedRequest(Exception):
    """A request that is answered before any method is looked at."""

    def __init__(self, code: int, message: str, key: Any = None) -> None:
        super().__init__(message)
        self.answer = error_answer(key, code, message)


class LongRequest(RefusedRequest):
    """A request over HTTP that is longer than it may be."""


def parse_request(data: bytes) -> Any:
    """Return the JSON of a request.

    Raises:
        RefusedRequest: it is none.
    """
    try:
        request = parse_json_text(data)
    except ValueError as error:
        raise RefusedRequest(-32700, f"not JSON: {error}") from None
    return [] if request is None else request  # null is no request, and answered like an empty one


def parse_body(data: bytes) -> Any:
    """Return the JSON of a request over HTTP, where limits protect other clients.

    Raises:
        RefusedRequest: it is none, a batch, or too deep.
    """
    request = parse_request(data)
    key = request.get("id") if isinstance(request, dict) else None
    if isinstance(request, list):
        raise RefusedRequest(-32600, "no batches over HTTP: send one request at a time")
    if is_deeper(request, MAX_DEPTH):
        message = f"the request is nested more than {MAX_DEPTH} deep"
        raise RefusedRequest(-32600, message, key if isinstance(key, str | int) else None)
    return request


def check_body_size(data: bytes | bytearray) -> None:
    """Check that a body is no burden to parse.

    Raises:
        RefusedRequest: it has too many objects or lists.
    """
    if data.count(b"{") + data.count(b"[") > MAX_VALUES:
        raise RefusedRequest(-32600, f"a request has more than {MAX_VALUES} objects or lists")


def only_reads(request: Any) -> bool:
    """Tell whether nobody misses the work on a request where its answer cannot be sent."""
    return isinstance(request, dict) and request.get("method") in _READING


def deadline_of(request: Any, at: float) -> float:
    """Return until when a client waits, by `time.monotonic`; the request may say for how long."""
    seconds = request.get("seconds") if isinstance(request, dict) else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return FOREVER
    return at + seconds


def error_answer(key: Any, code: int, message: str, kind: str | None = None) -> Json:
    """Return the answer to a request that fails."""
    error: Json = {"code": code, "message": message}
    if kind:
        error["data"] = {"error": kind}
    return {"jsonrpc": "2.0", "id": key, "error": error}
