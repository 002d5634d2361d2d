"""Read JSON-RPC requests and their parameters within limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, Final

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import parse_json_text, to_iso
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.core.structs import read_arguments

# -- Check parameters of JSON-RPC calls, and convert results to JSON values

MAX_TEXT_CHARS: Final = 200_000  # of a query or statement; runs have their own limits
_OF_RUNS: Final = frozenset({"messages", "event"})


class BadParams(Exception):
    """An invalid request; ``code`` is JSON-RPC's."""

    def __init__(self, message: str, code: int = -32602) -> None:
        super().__init__(message)
        self.code = code


def check_arguments(function: Callable[..., Any], params: Any) -> dict[str, Any]:
    """Return a call's parameters, checked against the function's names and annotations.

    Raises:
        BadParams: names the parameter and what was expected.
    """
    if not isinstance(params, dict):
        raise BadParams("parameters must be an object, by name")
    for name, value in params.items():
        if name not in _OF_RUNS and (size := _longest_text(value)) > MAX_TEXT_CHARS:
            raise BadParams(
                f"{name} has a text of {size} characters; {MAX_TEXT_CHARS} at most: record a "
                "document as a message of a run"
            )
    try:
        return read_arguments(function, params)
    except MessageError as error:
        raise BadParams(str(error)) from None


def _longest_text(value: Any) -> int:
    """Return the length of the longest text in a JSON value."""
    longest, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            longest = max(longest, len(item))
        elif isinstance(item, dict):
            left += [*item, *item.values()]
        elif isinstance(item, list):
            left += item
    return longest


def is_deeper(value: Any, most: int) -> bool:
    """Return whether a JSON value is nested deeper than a limit."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def to_jsonable(value: Any) -> Any:
    """Return records and containers as JSON values."""
    if isinstance(value, Hit):
        derived = {name: getattr(value, name) for name in ("id", "tier", "text", "score")}
        return to_jsonable({**derived, **{f.name: getattr(value, f.name) for f in fields(value)}})
    if isinstance(value, Entry | Fact):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_jsonable(item) for item in value]
    if isinstance(value, datetime):
        return to_iso(value)
    return value


# -- Incoming requests: JSON within limits

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_BODY_BYTES: Final = 4 * 1024 * 1024  # over HTTP; parsing holds the interpreter
MAX_AT_ONCE: Final = 65_536  # bytes of an HTTP request that is parsed before its turn
MAX_DEPTH: Final = 100  # of the JSON over HTTP
MAX_VALUES: Final = 100_000  # objects and lists in an HTTP request, counted by brackets
FOREVER: Final = float("inf")
# Methods without effects: skipped if the answer cannot be sent.
_READING: Final = frozenset(
    {"recall", "ask", "explain", "facts", "fact", "status", "ping", "offers", "complete"}
)

Json = dict[str, Any]


class RefusedRequest(Exception):
    """A request rejected before its method is looked up."""

    def __init__(self, code: int, message: str, key: Any = None) -> None:
        super().__init__(message)
        self.answer = error_answer(key, code, message)


class LongRequest(RefusedRequest):
    """An HTTP request that is too long."""


def parse_request(data: bytes) -> Any:
    """Return the JSON of a request.

    Raises:
        RefusedRequest: it is not valid JSON.
    """
    try:
        request = parse_json_text(data)
    except ValueError as error:
        raise RefusedRequest(-32700, f"not JSON: {error}") from None
    return [] if request is None else request  # null is answered like an empty request


def parse_body(data: bytes) -> Any:
    """Return the JSON of an HTTP request, within limits that protect other clients.

    Raises:
        RefusedRequest: it is not JSON, is a batch, or is too deep.
    """
    request = parse_request(data)
    key = request.get("id") if isinstance(request, dict) else None
    if isinstance(request, list):
        raise RefusedRequest(
            -32600, "batches are not supported over HTTP: send one request at a time"
        )
    if is_deeper(request, MAX_DEPTH):
        message = f"the request is nested more than {MAX_DEPTH} levels deep"
        raise RefusedRequest(-32600, message, key if isinstance(key, str | int) else None)
    return request


def check_body_size(data: bytes | bytearray) -> None:
    """Check that a body is cheap to parse.

    Raises:
        RefusedRequest: it has too many objects or lists.
    """
    if data.count(b"{") + data.count(b"[") > MAX_VALUES:
        raise RefusedRequest(-32600, f"a request has more than {MAX_VALUES} objects or lists")


def only_reads(request: Any) -> bool:
    """Return whether a request has no effects, so that it can be dropped."""
    return isinstance(request, dict) and request.get("method") in _READING


def deadline_of(request: Any, at: float) -> float:
    """Return a client's deadline by `time.monotonic`; the request may set its timeout."""
    seconds = request.get("seconds") if isinstance(request, dict) else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return FOREVER
    return at + seconds


def error_answer(key: Any, code: int, message: str, kind: str | None = None) -> Json:
    """Return the answer to a failed request."""
    error: Json = {"code": code, "message": message}
    if kind:
        error["data"] = {"error": kind}
    return {"jsonrpc": "2.0", "id": key, "error": error}
