"""Requests as they come in: lines of JSON within limits, and what is refused at the door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.stream import FOREVER
from memtier_plugin.server.access import Access
from memtier_plugin.server.parameters import is_deeper

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_TCP_LINE_BYTES: Final = 4 * 1024 * 1024  # while one is parsed, nobody else has the interpreter
MAX_AT_ONCE: Final = 65_536  # bytes of a line that is read before its client's turn
MAX_DEPTH: Final = 100  # of a client's JSON
MAX_VALUES: Final = 100_000  # objects and lists in a line over TCP, by their brackets
# Nobody misses their work where the answer cannot be sent.
_READING: Final = frozenset(
    {"recall", "ask", "explain", "facts", "fact", "status", "ping", "offers", "complete"}
)

_Json = dict[str, Any]


def refuse(request: Any, access: Access) -> _Json | None:
    """Return the answer after which a client's connection ends, or None for a fit request."""
    key = request.get("id") if isinstance(request, dict) else None
    key = key if isinstance(key, str | int) else None
    if not access.holds(access.grant):
        return error_answer(key, -32001, "the token was revoked or has expired", "NotGranted")
    if isinstance(request, list):
        return error_answer(None, -32600, "no batches over TCP: send a request a line")
    if is_deeper(request, MAX_DEPTH):
        return error_answer(key, -32600, f"the request is nested more than {MAX_DEPTH} deep")
    return None


def only_reads(request: Any) -> bool:
    """Tell whether nobody misses the work on a request where its answer cannot be sent."""
    return isinstance(request, dict) and request.get("method") in _READING


def deadline_of(request: Any, at: float) -> float:
    """Return until when a client waits, by `time.monotonic`; the request may say for how long."""
    seconds = request.get("seconds") if isinstance(request, dict) else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return FOREVER
    return at + seconds


def read_requests(
    readline: Callable[[int], bytes], send: Callable[[_Json], None], shared: bool
) -> Iterator[Any]:
    """Yield the JSON of each line; answer a line that is none with an error.

    Args:
        shared: with others, for whose sake a long line is not parsed yet, but yielded as it is.
    """
    most = MAX_TCP_LINE_BYTES if shared else MAX_LINE_BYTES
    for line in _lines(readline, most):
        if line is None:
            send(error_answer(None, -32600, f"a line is longer than {most} bytes"))
            continue
        if shared and line.count(b"{") + line.count(b"[") > MAX_VALUES:
            send(
                error_answer(None, -32600, f"a request has more than {MAX_VALUES} objects or lists")
            )
            continue
        if shared and len(line) > MAX_AT_ONCE:
            yield line
        elif (request := parse_line(line, send)) is not None:
            yield request


def parse_line(line: bytes, send: Callable[[_Json], None]) -> Any:
    """Return the JSON of a line; None, once it is answered, if it is none."""
    try:
        request = parse_json_text(line)
    except ValueError as error:
        send(error_answer(None, -32700, f"not JSON: {error}"))
        return None
    return [] if request is None else request  # null is no request, and answered like an empty one


def _lines(readline: Callable[[int], bytes], most: int) -> Iterator[bytes | None]:
    """Yield the lines that are not blank, and None for one that is too long."""
    while line := readline(most + 1):
        if len(line) > most:
            while line and not line.endswith(b"\n"):
                line = readline(most)
            yield None
        elif line.strip():
            yield line


def error_answer(key: Any, code: int, message: str, kind: str | None = None) -> _Json:
    """Return the answer to a request that fails."""
    error: _Json = {"code": code, "message": message}
    if kind:
        error["data"] = {"error": kind}
    return {"jsonrpc": "2.0", "id": key, "error": error}
