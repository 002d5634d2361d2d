"""Parameters of JSON-RPC calls, checked by annotations, and results in a form that JSON has.

The options of a method may be a `TypedDict` (``**options: Unpack[RecallOptions]``): each of its
keys is a parameter then.  Times come as ISO 8601 text and reach the method as datetimes.
"""

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
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.core.times import from_iso, to_iso

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
