"""Read JSON-RPC requests within limits, and check their parameters by annotations."""

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

# -- Parameters of JSON-RPC calls, checked by annotations, and results in a form that JSON has
#
# The options of a method may be a `TypedDict` (``**options: Unpack[RecallOptions]``): each of its
# keys is a parameter then.  Times come as ISO 8601 text and reach the method as datetimes.

T = TypeVar("T")
MAX_TEXT_CHARS: Final = 200_000  # of a text that is asked or stated; runs have limits of their own
_OF_RUNS: Final = frozenset({"messages", "event"})

_JSON_NAMES: Final = {type(None): "null", datetime: "str"}  # of types that JSON writes otherwise


class BadParams(Exception):
    """A request that cannot be carried out as it is; ``code`` is JSON-RPC's."""

    def __init__(self, message: str, code: int = -32602) -> None:
        super().__init__(message)
        self.code = code


def fill(kind: type[T], hook: str, values: Mapping[str, Any]) -> T:
    """Return a record of a hook filled with what a client gave.

    Raises:
        BadParams: a name is unknown or missing.
    """
    try:
        return kind(**values)
    except MessageError as error:
        raise BadParams(f"the event or context of {hook} is wrong: {error}") from None


def check_arguments(function: Callable[..., Any], params: Any) -> dict[str, Any]:
    """Return the parameters of a call once they fit the function's names and annotations.

    Raises:
        BadParams: names the parameter and what was expected.
    """
    if not isinstance(params, dict):
        raise BadParams("parameters are given by name, in an object")
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
    """Return the characters of the longest text in a JSON value."""
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
    """Check the fields of dataclasses by their annotations.

    Raises:
        BadParams: names the field and what was expected.
    """
    for record in records:
        for name, kind in get_type_hints(type(record)).items():
            value = getattr(record, name)
            if not (isinstance(value, datetime) and datetime in _alternatives(kind)):
                check_value(name, value, kind)


def check_value(name: str, value: Any, kind: Any) -> Any:
    """Return a value once it fits an annotation; a time is parsed.

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
    """Parse a time of a request; None is none.

    Raises:
        BadParams: names the parameter.
    """
    try:
        return None if text is None else from_iso(text)
    except ValueError as error:
        raise BadParams(f"{name} is not a time: {error}") from None


def is_deeper(value: Any, most: int) -> bool:
    """Return whether a JSON value is nested deeper than that."""
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
    """Return records and what holds them in a form that JSON has."""
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


# -- Requests as they come in: JSON within limits, and what is refused at the door

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
    """Return whether nobody misses the work on a request where its answer cannot be sent."""
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
