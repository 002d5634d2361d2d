"""Typed reading of JSON by msgspec: ledger lines, event fields, and arguments of public calls.

msgspec decodes the lines that MemTier writes straight into records. Lines that it refuses (lone
surrogates, other spellings of a time, the paper's own eight fields) are parsed by the standard
library and converted, with the same type checks.

The host's process has no third-party package: modules that it imports load this one inside of the
functions that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache, wraps
from inspect import isclass, isfunction, signature, unwrap
from itertools import chain
from math import isfinite
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from memtier_plugin.core import checksum
from memtier_plugin.core.bounds import Within
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.mutex import Mutex
from memtier_plugin.core.records import Entry, Fact, FactDraft, JournalEvent
from memtier_plugin.core.times import aware, from_iso

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_COMMON: Final = tuple(f.name for f in fields(JournalEvent) if f.name != "data")
_FIRST_SCHEMA: Final = 1  # of our own lines
_KEPT: Final = (datetime,)  # only JSON decoding turns a string into a time
_PLAIN: Final = (str, int, float, bool, datetime, type(None))
_SEVERAL: Final = (Collection, Iterable, Sequence)
_MOST: Final = 2**63 - 1  # SQLite holds no larger number
_building: Final = Mutex()


def convert(value: object, cls: type[T]) -> T:
    """Return JSON data as a typed object.

    Raises:
        KeyError: a field is missing.
        ValueError: a field has the wrong type; names it.
    """
    kind: Any = cls
    try:
        typed: T = msgspec.convert(value, _built(kind))
        return typed
    except msgspec.ValidationError as error:
        reason = _reason(error)
        _, lacks, name = reason.partition("missing required field ")
        raise (KeyError(name) if lacks else ValueError(reason)) from None


def check_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """Check a public method's arguments, by its annotations and their bounds, before it runs.

    Annotations that msgspec cannot check (callables, iterators, paths) are passed over. The method
    raises MessageError, which names the argument, what it may be and what it is.
    """

    @wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds = _kinds(method)
        for name, value in chain(zip(kinds, args, strict=False), kwargs.items()):
            if (kind := kinds.get(name)) is not None:
                _check(name, value, kind)
        try:
            return method(*args, **kwargs)
        except UnicodeEncodeError as error:
            raise MessageError(f"a text holds what UTF-8 cannot: {error}") from error
        except TypeError as error:
            try:
                signature(method).bind(*args, **kwargs)
            except TypeError:
                raise MessageError(str(error)) from None
            raise

    return checked


@cache
def _kinds(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a method, each with its type, or None where it is not checked."""
    annotations = {n: hint for n, hint in method.__annotations__.items() if n != "return"}
    parameters = SimpleNamespace(__annotations__=annotations)
    hints = get_type_hints(parameters, unwrap(method).__globals__, include_extras=True)
    kinds = {name: _checkable(hints.get(name)) for name in signature(method).parameters}
    options = [hint for hint in hints.values() if get_origin(hint) is Unpack]
    for [keywords] in map(get_args, options):
        options_of = get_type_hints(keywords, include_extras=True)
        kinds |= {name: _checkable(hint) for name, hint in options_of.items()}
    return kinds


def check_methods(cls: type[T]) -> type[T]:
    """Check the arguments of every public method of a class; see `check_arguments`."""
    for name, method in [*vars(cls).items()]:
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, check_arguments(method))
    return cls


def _checkable(kind: Any) -> Any:
    """Return a type with its bounds as msgspec reads them; None where it cannot be checked.

    What msgspec does not know becomes a predicate. An iterator can be read only once, so its items
    are left to the method.
    """
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    rest = [part for part in parts if part is not type(None)]
    if len(rest) == 1 and _is_predicate(rest[0]):
        return _Predicate.of(rest[0], optional=len(parts) > 1)
    fits = all(
        get_origin(part) is Annotated
        or is_dataclass(part)
        or part in _PLAIN
        or get_origin(part) is Literal
        for part in parts
    )
    if fits:
        return _built(Union[*map(_bounded, parts)])
    classes = [get_origin(part) or part for part in rest]
    return (
        _Predicate(tuple(classes), (), len(parts) > len(rest))
        if all(map(isclass, classes))
        else None
    )


def _is_predicate(kind: Any) -> bool:
    if get_origin(kind) in (Callable, *_SEVERAL):
        return True
    return isclass(kind) and kind not in _PLAIN and not is_dataclass(kind) and kind is not Any


class _Predicate(NamedTuple):
    """A parameter that takes a function, an object of a class, or an iterable of certain items."""

    kind: Any
    items: tuple[type, ...]
    optional: bool

    @classmethod
    def of(cls, hint: Any, *, optional: bool) -> _Predicate:
        """Return the predicate of an annotation."""
        items = [part for item in get_args(hint) for part in get_args(item) or (item,)]
        kinds = [get_origin(item) or item for item in items]
        return cls(get_origin(hint) or hint, tuple(k for k in kinds if isclass(k)), optional)

    def problem(self, value: object) -> str:
        """Return what is wrong with a value; "" if nothing is."""
        if value is None and self.optional:
            return ""
        name = type(value).__name__
        if self.kind is Callable:
            return "" if callable(value) else f"expected a function, got {name}"
        if not isinstance(value, self.kind):
            kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
            return f"expected {' or '.join(kind.__name__ for kind in kinds)}, got {name}"
        if self.kind not in _SEVERAL:
            return ""
        if isinstance(value, str | bytes | Mapping):
            return f"expected several {self._item_names()}, got {name}"
        if not self.items or isinstance(value, Iterator):
            return ""
        wrong = [item for item in value if not isinstance(item, self.items)]
        return f"expected {self._item_names()}, got {type(wrong[0]).__name__}" if wrong else ""

    def _item_names(self) -> str:
        return " or ".join(item.__name__ for item in self.items)


def _bounded(kind: Any) -> Any:
    if get_origin(kind) is not Annotated:
        return kind
    number, *marks = get_args(kind)
    [(low, high)] = [mark for mark in marks if isinstance(mark, Within)]
    return Annotated[number, msgspec.Meta(ge=low, le=high)]


def check_fields(record: object) -> None:
    """Check the types of all fields of a dataclass that a caller has filled.

    Raises:
        MessageError: names the field, what it may be and what it is.
    """
    cls: Any = type(record)
    try:
        msgspec.convert(_plain(record), _built(cls), builtin_types=_KEPT)
    except (msgspec.ValidationError, TypeError) as error:
        raise MessageError(_reason(error)) from None
    except UnicodeEncodeError as error:  # of a text in the place of something else
        raise MessageError(f"{cls.__name__}: it holds what UTF-8 cannot: {error}") from None
    except RecursionError:
        raise MessageError(f"{cls.__name__}: nested too deeply") from None
    except OverflowError:
        raise MessageError(f"{cls.__name__}: a time outside of the years 1 to 9999 UTC") from None
    for name, kind in _bounded_fields(cls).items():
        _check(name, getattr(record, name), kind)


def check_fact(fact: Fact | FactDraft) -> None:
    """Check a fact that a caller gives: also that it rests on something, and is UTF-8.

    Raises:
        MessageError: as `check_fields`.
    """
    check_fields(fact)
    try:
        msgspec.json.encode(_plain(fact))
    except UnicodeEncodeError as error:
        raise MessageError(f"the fact holds what UTF-8 cannot: {error}") from None
    if not fact.sources:
        raise MessageError("sources: a fact rests on one source or more")
    if not isfinite(fact.confidence):
        raise MessageError(f"confidence: {fact.confidence} is no number")


@cache
def _bounded_fields(cls: type) -> dict[str, Any]:
    """Return the fields of a dataclass that have bounds, each with its type."""
    hints = get_type_hints(cls, include_extras=True).items()
    return {
        name: _checkable(hint)
        for name, hint in hints
        if any(get_origin(part) is Annotated for part in get_args(hint))
    }


def _check(name: str, value: object, kind: Any) -> None:
    if isinstance(kind, _Predicate):
        if problem := kind.problem(value):
            raise MessageError(f"{name}: {problem}")
        return
    if isinstance(value, Mapping):  # msgspec would build a dataclass of it
        raise MessageError(f"{name}: no mapping fits here, got {type(value).__name__}")
    try:
        record = msgspec.convert(value, kind, builtin_types=_KEPT)
        if is_dataclass(record) and not isinstance(value, type(record)):
            # msgspec would build one of any object, where all fields have defaults.
            expected, given = type(record).__name__, type(value).__name__
            raise MessageError(f"{name}: expected {expected}, got {given}")
        if isinstance(value, datetime):
            _in_utc(value)
    except msgspec.ValidationError as error:
        raise MessageError(f"{name}: {_reason(error)}") from None
    except UnicodeEncodeError as error:
        raise MessageError(f"{name}: it holds what UTF-8 cannot: {error}") from None
    except OverflowError:
        raise MessageError(f"{name}: {value} is outside of the years 1 to 9999 UTC") from None


def parse_json(line: bytes | str) -> Any:
    """Parse a JSON document.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # lone surrogates, NaN, numbers beyond 64 bits
    return parse_json_text(line)


def decode_entry(line: bytes, *, owner: str | None = None) -> Entry:
    """Read a line of an episodic ledger; see `Entry.from_json`."""
    try:
        entry = _entries().decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return entry_from(_object(line), owner=owner)
    zones = {entry.timestamp.tzinfo, entry.observed_at.tzinfo}
    if entry.schema < _FIRST_SCHEMA or zones != {UTC}:
        return entry_from(_object(line), owner=owner)
    return _in_range(entry)


def entry_from(record: Mapping[str, Any], *, owner: str | None = None) -> Entry:
    """Read the JSON form of an entry; see `Entry.from_json`."""
    document = {**_mapping(record, Entry)}
    if document.get("schema", 0) < _FIRST_SCHEMA:
        document = {
            "agent_id": owner or "main",
            "run_id": document["id"],
            "turn": 0,
            "role": "user",
            "origin": "user",
            "key": f"id:{document['id']}",
            **document,
            "schema": _FIRST_SCHEMA,
        }
    document["timestamp"] = _time(document["timestamp"])
    document["observed_at"] = _time(document.get("observed_at") or record["timestamp"])
    document["tool"] = document.get("tool") or None
    return _in_range(convert(document, Entry))


def decode_fact(line: bytes, *, tier: str = "semantic") -> Fact:
    """Read a line of a semantic or procedural ledger; see `Fact.from_json`.

    Args:
        tier: the ledger's, for a line that does not name one.
    """
    try:
        fact = _facts().decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return fact_from({"tier": tier, **_object(line)})
    moments = (fact.timestamp, fact.valid_from, fact.valid_to)
    utc = all(moment is None or moment.tzinfo is UTC for moment in moments)
    named = fact.tier == tier or b'"tier"' in line
    return fact if fact.sources and utc and named else fact_from({"tier": tier, **_object(line)})


def fact_from(record: Mapping[str, Any]) -> Fact:
    """Read the JSON form of a fact; see `Fact.from_json`."""
    document = {**_mapping(record, Fact)}
    document["timestamp"] = _time(document["timestamp"])
    for name in ("valid_from", "valid_to"):
        document[name] = _time(document[name]) if document.get(name) else None
    for name in ("span", "private_to"):
        document[name] = document.get(name) or None
    fact = convert(document, Fact)
    if not fact.sources:
        raise ValueError("a fact without a source")
    return fact


def decode_event(line: bytes) -> JournalEvent:
    """Read a line of a journal; see `JournalEvent.from_json`."""
    return event_from(_object(line))


def event_from(record: Mapping[str, Any]) -> JournalEvent:
    """Read the JSON form of an event; see `JournalEvent.from_json`."""
    data = {**_mapping(record, JournalEvent)}
    common = {name: data.pop(name) for name in _COMMON if name in data}
    common["timestamp"] = _time(common["timestamp"])
    data.pop(checksum.FIELD, None)
    return convert({**common, "data": data}, JournalEvent)


@cache
def _built(kind: Any) -> Any:
    """Return a type, of which msgspec has built in one thread what it keeps about it.

    Of a class that it is still building for another thread it reads what is not there yet, and the
    process ends by SIGSEGV (0.22).
    """
    with _building:
        msgspec.json.Decoder(kind)
    return kind


@cache
def _entries() -> msgspec.json.Decoder[Entry]:
    return msgspec.json.Decoder(_built(Entry))


@cache
def _facts() -> msgspec.json.Decoder[Fact]:
    return msgspec.json.Decoder(_built(Fact))


def _in_range(entry: Entry) -> Entry:
    for number in (entry.turn, entry.tokens):
        if abs(number) > _MOST:
            raise ValueError(f"a number is out of range: {number}")
    return entry


def _object(line: bytes) -> dict[str, Any]:
    record = parse_json(line)
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__}, not an object")
    return record


def _mapping(record: object, cls: type) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise TypeError(f"a {type(record).__name__} in the place of a {cls.__name__}")
    return record


def _time(text: object) -> datetime:
    if not isinstance(text, str):
        raise TypeError(f"a {type(text).__name__} in the place of a time")
    return from_iso(text)


def _plain(value: object) -> object:
    """Return dataclasses as dictionaries, whose fields msgspec checks; it trusts instances."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in _field_names(type(value))}
    if isinstance(value, int) and abs(value) > _MOST:
        raise MessageError("a number is out of range: beyond 64 bits")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _in_utc(value) if isinstance(value, datetime) else value


def _in_utc(moment: datetime) -> datetime:
    return (aware(moment) or moment).astimezone(UTC)


@cache
def _field_names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


def _reason(error: Exception) -> str:
    """Return msgspec's message with the field first."""
    text = str(error).replace("| null", "or None").replace("`null`", "None")
    text = text.replace("`", "").replace("Expected", "expected")
    message, at, field = text.partition(" - at $")
    return f"{field.lstrip('.')}: {message}" if at and field else message
