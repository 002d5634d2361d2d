"""What the payloads of all journal events have in common: their JSON form, and how it is read."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.structs import Record, json_form


class EventRecord(Record, frozen=True):
    """A record in a line of the journal, which lacks the fields that are None but for `NULLS`."""

    NULLS = frozenset[str]()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, keys in the order of the fields."""
        nulls = self.NULLS
        return {
            name: json_form(value)
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None or name in nulls
        }


class EventPayload(EventRecord, frozen=True):
    """The fields that one kind of event adds to the common ones."""

    KIND: ClassVar[str]

    def to_data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.to_json()

    @classmethod
    def of(cls, event: JournalEvent) -> Self:
        """Read the fields of an event of this kind.

        Raises:
            KeyError: a field is missing.
            ValueError: a field has the wrong type; names it.
        """
        return cls.from_json(event.data)


class StateEvent(EventPayload, frozen=True, kw_only=True):
    """An event that changes the state of entries or facts."""

    items: tuple[str, ...]
