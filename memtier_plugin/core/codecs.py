"""Typed reading of JSON by msgspec: ledger lines, event fields, and arguments of public calls.

msgspec decodes the lines that MemTier writes straight into records. Lines that it refuses (lone
surrogates, other spellings of a time, the paper's own eight fields) are parsed by the standard
library and converted, with the same type checks.

The host's process has no third-party package: modules that it imports load this one inside of the
functions that need it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache, wraps
from inspect import signature
from itertools import chain
from types import UnionType
from typing import (
    Any,
    Final,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.records import SCHEMA, Entry, Fact, JournalEvent
from memtier_plugin.core.times import from_iso

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_COMMON: Final = tuple(f.name for f in fields(JournalEvent) if f.name != "data")
_MOST: Final = 2**63 - 1  # SQLite holds no larger number


def convert(value: object, cls: type[T]) -> T:
    """Return JSON data as a typed object.

    Raises:
        KeyError: a field is missing.
        ValueError: a field has the wrong type; names it.
    """
    try:
        return msgspec.convert(value, cls)
    except msgspec.ValidationError as error:
        reason = _reason(error)
        _, lacks, name = reason.partition("missing required field ")
        raise (KeyError(name) if lacks else ValueError(reason)) from None


def check_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """Check the types of a public method's arguments, by its annotations, before it runs.

    Annotations that msgspec cannot check (callables, iterators, paths) are passed over. The method
    raises MessageError, which names the argument, what it may be and what it is.
    """

    @wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds = _kinds(method)
        for name, value in chain(zip(kinds, args, strict=False), kwargs.items()):
            if (kind := kinds.get(name)) is None:
                continue
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                raise MessageError(f"{name}: {_reason(error)}") from None
        return method(*args, **kwargs)

    return checked


@cache
def _kinds(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a method, each with its type, or None where it is not checked."""
    hints = get_type_hints(method)
    kinds = {name: _checkable(hints.get(name)) for name in signature(method).parameters}
    options = [hint for hint in hints.values() if get_origin(hint) is Unpack]
    for [keywords] in map(get_args, options):
        kinds |= {name: _checkable(hint) for name, hint in get_type_hints(keywords).items()}
    return kinds


def _checkable(kind: Any) -> Any:
    plain = (str, int, float, bool, datetime, type(None))
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    fits = all(
        part in plain
        or get_origin(part) is Literal
        or (get_origin(part) is Collection and get_args(part) == (str,))
        for part in parts
    )
    return kind if fits else None


def check_fields(record: object) -> None:
    """Check the types of all fields of a dataclass that a caller has filled.

    Raises:
        MessageError: names the field, what it may be and what it is.
    """
    try:
        msgspec.convert(_plain(record), type(record))
    except (msgspec.ValidationError, TypeError) as error:
        raise MessageError(_reason(error)) from None


def parse_json(line: bytes) -> Any:
    """Parse a JSON document.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # lone surrogates, NaN, numbers beyond 64 bits
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode_entry(line: bytes, *, owner: str | None = None) -> Entry:
    """Read a line of an episodic ledger; see `Entry.from_json`."""
    try:
        entry = _entries().decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return entry_from(_object(line), owner=owner)
    zones = {entry.timestamp.tzinfo, entry.observed_at.tzinfo}
    if entry.schema < SCHEMA or zones != {UTC}:
        return entry_from(_object(line), owner=owner)
    return _in_range(entry)


def entry_from(record: Mapping[str, Any], *, owner: str | None = None) -> Entry:
    """Read the JSON form of an entry; see `Entry.from_json`."""
    document = {**_mapping(record, Entry)}
    if document.get("schema", 0) < SCHEMA:
        document = {
            "agent_id": owner or "main",
            "run_id": document["id"],
            "turn": 0,
            "role": "user",
            "origin": "user",
            "key": f"id:{document['id']}",
            **document,
            "schema": SCHEMA,
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
    except (msgspec.MsgspecError, UnicodeDecodeError):
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
    return convert({**common, "data": data}, JournalEvent)


@cache
def _entries() -> msgspec.json.Decoder[Entry]:
    return msgspec.json.Decoder(Entry)


@cache
def _facts() -> msgspec.json.Decoder[Fact]:
    return msgspec.json.Decoder(Fact)


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
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _reason(error: Exception) -> str:
    """Return msgspec's message with the field first."""
    text = str(error).replace("| null", "or None").replace("`null`", "None")
    text = text.replace("`", "").replace("Expected", "expected")
    message, at, field = text.partition(" - at $")
    return f"{field.lstrip('.')}: {message}" if at and field else message
