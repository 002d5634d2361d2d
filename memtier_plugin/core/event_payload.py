"""What the payloads of all journal events have in common: their JSON form, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Self

from memtier_plugin.core.records import JournalEvent


def optional() -> Any:
    """Declare a field that is left out of a line where it is None."""
    return field(default=None, metadata={"optional": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPayload:
    """The fields that one kind of event adds to the common ones."""

    KIND: ClassVar[str]

    def to_data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return fields_of(self)

    @classmethod
    def of(cls, event: JournalEvent) -> Self:
        """Read the fields of an event of this kind.

        Raises:
            KeyError: a field is missing.
            ValueError: a field has the wrong type; names it.
        """
        return cls.from_data(event.data)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields from their JSON form; raises as `of` does."""
        from memtier_plugin.core.codecs import convert  # here: hosts import events without msgspec

        return convert(data, cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEvent(EventPayload):
    """An event that changes the state of entries or facts."""

    items: tuple[str, ...]


def fields_of(record: Any) -> dict[str, Any]:
    """Return the JSON form of a record: its fields, those that it leaves out left out."""
    kind: type = type(record)
    return {
        name: _plain(value)
        for name, optional in _declared(kind)
        if (value := getattr(record, name)) is not None or not optional
    }


def _plain(value: object) -> object:
    if isinstance(value, str | float | int):  # as most
        return value
    if is_dataclass(value):
        return fields_of(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


@cache
def _declared(cls: type) -> list[tuple[str, bool]]:
    return [(f.name, "optional" in f.metadata) for f in fields(cls)]


@cache
def plugin_payload(kind: str) -> type[EventPayload] | None:
    """Return the payload of a kind of event that an installed plugin writes."""
    from memtier_plugin.core import plugins  # here: few journals have such events

    return plugins.find_event_kinds().get(kind)
