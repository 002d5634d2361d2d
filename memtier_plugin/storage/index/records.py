"""Read records from the index as the ledgers hold them, each with its current state."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.records import (
    Entry,
    Fact,
    JournalEvent,
    decode_entry,
    decode_event,
    decode_fact,
)
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.state import State, is_offer, settle_offers

if TYPE_CHECKING:
    import apsw


_KEPT_BYTES: Final = 4096  # of the longest line that is kept decoded


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored item with its ledger line and its current state."""

    item: Entry | Fact
    row: int
    file: str
    line: int
    state: State

    def is_confided_to_another(self, agent: str) -> bool:
        """Return whether it is an entry that was confided to another agent."""
        item = self.item
        if not isinstance(item, Entry) or not (item.private or self.state.private):
            return False
        return item.agent_id != agent


class RecordReader:
    """Records of one project's index, on one thread's connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    def items_by_row(self, rows: Sequence[int]) -> dict[int, Stored]:
        """Return the records of these rows."""
        if not rows:
            return {}
        return self._items("row IN (SELECT value FROM json_each(?))", json.dumps(list(rows)))

    def _items(self, condition: str, values: str) -> dict[int, Stored]:
        stored, untouched = {}, State()
        for row, tier, data, owner, path, line, *state in self._db.execute(
            f"""SELECT row, tier, data, files.owner, path, line, weight, promoted, forgotten,
                       superseded_by, valid_to, reviewed, reverted, private, gate
                FROM items JOIN files ON files.id = file LEFT JOIN states ON item = items.id
                WHERE {condition} ORDER BY row""",  # noqa: S608
            (values,),
        ):
            item: Entry | Fact
            current = _state(state) if state[0] is not None else untouched
            if tier == "episodic":
                decode = _kept_entry if len(data) <= _KEPT_BYTES else decode_entry
                item = decode(data, owner=owner)
                if (item.promoted, item.cognitive_weight) != (current.promoted, current.weight):
                    item = replace(item, promoted=current.promoted, cognitive_weight=current.weight)
            else:
                item = decode_fact(data, tier=tier)
            stored[int(row)] = Stored(item, int(row), str(path), int(line), current)
        return stored

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of the ids that the index knows."""
        return {
            str(identity): int(row)
            for identity, row in self._db.execute(
                "SELECT id, row FROM items WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(to_utf8_all(ids)),),
            )
        }

    def _count(self, sql: str, values: tuple[Any, ...] = ()) -> int:
        for (number,) in self._db.execute(sql, values):
            return int(number)
        return 0


@lru_cache(1024)  # prompts that follow each other find the same lines
def _kept_entry(line: bytes, *, owner: str | None) -> Entry:
    return decode_entry(line, owner=owner)


def join_conditions(
    conditions: Mapping[str, datetime | str | float | None], *fixed: str
) -> tuple[str, list[str | float]]:
    """Return the conditions that have a value as SQL, and the values."""
    used = {sql: value for sql, value in conditions.items() if value is not None}
    return " AND ".join([*fixed, *used]) or "true", [*map(_bound, used.values())]


def _bound(value: datetime | str | float) -> str | float:
    """Convert a value to its form in the index."""
    if isinstance(value, datetime):
        return to_iso(value)
    return to_utf8(value) if isinstance(value, str) else value


def read_states(connection: Any, ids: Collection[str]) -> dict[str, State]:
    """Return the folded state of each of these items."""
    keys = to_utf8_all(ids)
    rows = connection.execute(
        """SELECT item, weight, promoted, forgotten, superseded_by, valid_to, reviewed, reverted,
                  private, gate
           FROM states WHERE item IN (SELECT value FROM json_each(?))""",
        (json.dumps(keys),),
    )
    states = {str(item): _state(state) for item, *state in rows}
    return {identity: states.get(key, State()) for identity, key in zip(ids, keys, strict=True)}


def _state(row: Sequence[Any]) -> State:
    weight, promoted, forgotten, by, until, reviewed, reverted, private, gate = row
    return State(
        float(weight),
        bool(promoted),
        bool(forgotten),
        by,
        until,
        reviewed,
        bool(reverted),
        bool(private),
        gate,
    )


def parse_event(data: Any) -> JournalEvent:
    """Decode the event of a row."""
    return decode_event(data)


def settle_events(connection: Any, events: Sequence[JournalEvent]) -> list[JournalEvent]:
    """Return events, the offers among them that a host acknowledged as injected.

    Args:
        events: may hold acknowledgements that the index has not read.
    """
    offers = json.dumps([event.id for event in events if is_offer(event)])
    rows = connection.execute(
        """SELECT data FROM touches JOIN events ON events.id = event
           WHERE item IN (SELECT value FROM json_each(?)) AND kind = 'deliver'""",
        (offers,),
    )
    read = [parse_event(data) for (data,) in rows] if offers != "[]" else []
    return settle_offers(events, (*read, *events))


def to_utf8(text: str) -> str:
    """Replace the lone surrogates that JSON allows and SQLite rejects."""
    return text.encode("utf-8", "replace").decode("utf-8")


def from_blob(text: bytes) -> str:
    """Return a text that SQLite took out of a record, lone surrogates included."""
    return text.decode("utf-8", "surrogatepass")


def to_utf8_all(texts: Iterable[str]) -> list[str]:
    """Apply `to_utf8` to each text."""
    return [text if text.isascii() else to_utf8(text) for text in texts]  # most are
