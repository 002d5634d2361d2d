"""Read JSON-RPC requests within limits, and check parameters against annotations."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import (
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit

# -- Check parameters of JSON-RPC calls against annotations, and convert results to JSON values
#
# A method's options may be a `TypedDict` (``**options: Unpack[RecallOptions]``): its keys are
# parameters too.  Times arrive as ISO 8601 text and are passed as datetimes.

T = TypeVar("T")
MAX_TEXT_CHARS: Final = 200_000  # of a query or statement; runs have their own limits
_OF_RUNS: Final = frozenset({"messages", "event"})

_JSON_NAMES: Final = {type(None): "null", datetime: "str"}  # of types named differently in JSON


class BadParams(Exception):
    """An invalid request; ``code`` is JSON-RPC's."""

    def __init__(self, message: str, code: int = -32602) -> None:
        super().__init__(message)
        self.code = code


def fill(kind: type[T], hook: str, values: Mapping[str, Any]) -> T:
    """Return a hook's record built from a client's values.

    Raises:
        BadParams: a name is unknown or missing.
    """
    try:
        return kind(**values)
    except MessageError as error:
        raise BadParams(f"the event or context of {hook} is wrong: {error}") from None


def check_arguments(function: Callable[..., Any], params: Any) -> dict[str, Any]:
    """Return a call's parameters, checked against the function's names and annotations.

    Raises:
        BadParams: names the parameter and what was expected.
    """
    if not isinstance(params, dict):
        raise BadParams("parameters must be an object, by name")
    try:
        inspect.signature(function).bind(**params)
    except TypeError as error:
        raise BadParams(str(error)) from None
    kinds = _parameter_kinds(function)
    if unexpected := params.keys() - kinds.keys():
        raise BadParams(f"got an unexpected keyword argument {min(unexpected)!r}")
    for name, value in params.items():
        if name not in _OF_RUNS and (size := _longest_text(value)) > MAX_TEXT_CHARS:
            raise BadParams(
                f"{name} has a text of {size} characters; {MAX_TEXT_CHARS} at most: record a "
                "document as a message of a run"
            )
    return {name: check_value(name, value, kinds[name]) for name, value in params.items()}


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


@cache
def _parameter_kinds(function: Callable[..., Any]) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for name, hint in get_type_hints(function).items():
        if get_origin(hint) is Unpack:
            kinds |= get_type_hints(get_args(hint)[0])
        else:
            kinds[name] = hint
    kinds.pop("return", None)
    return kinds


def check_fields(*records: object) -> None:
    """Check the fields of dataclasses against their annotations.

    Raises:
        BadParams: names the field and what was expected.
    """
    for record in records:
        for name, kind in get_type_hints(type(record)).items():
            value = getattr(record, name)
            if not (isinstance(value, datetime) and datetime in _alternatives(kind)):
                check_value(name, value, kind)


def check_value(name: str, value: Any, kind: Any) -> Any:
    """Return a value checked against an annotation; times are parsed.

    Raises:
        BadParams: names the parameter and what was expected.
    """
    kinds = _alternatives(kind)
    choices = [choice for k in kinds if get_origin(k) is Literal for choice in get_args(k)]
    if choices:
        if value in choices or (value is None and type(None) in kinds):
            return value
        raise BadParams(f"{name} is {value!r}, not {' or '.join(choices)}")
    plain = tuple(get_origin(k) or k for k in kinds)
    accepted = tuple(str if k is datetime else k for k in plain if k is not Any)
    if float in accepted:
        accepted += (int,)
    fits = Any in plain or isinstance(value, accepted)
    if not fits or (isinstance(value, bool) and bool not in plain):
        expected = " or ".join(_JSON_NAMES.get(k, k.__name__) for k in plain)
        raise BadParams(f"{name} is {type(value).__name__}, not {expected}")
    return parse_time(name, value) if datetime in plain else value


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def parse_time(name: str, text: str | None) -> datetime | None:
    """Parse a time in a request; None stays None.

    Raises:
        BadParams: names the parameter.
    """
    try:
        return None if text is None else from_iso(text)
    except ValueError as error:
        raise BadParams(f"{name} is not a time: {error}") from None


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
