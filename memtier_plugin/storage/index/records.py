"""Read records from the index with their current state, and the turns around an entry."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import (
    NO_CALLS,
    CallHistory,
    Entry,
    Fact,
    JournalEvent,
    decode_entry,
    decode_event,
    decode_fact,
)
from memtier_plugin.core.structs import parse_json, replace_fields
from memtier_plugin.storage.state import State, is_offer, settle_offers

if TYPE_CHECKING:
    import apsw


# -- Read records from the index as the ledgers hold them, each with its current state

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
                       superseded_by, valid_to, reviewed, reverted, private, states.words_only,
                       calls
                FROM items JOIN files ON files.id = file LEFT JOIN states ON item = items.id
                WHERE {condition} ORDER BY row""",  # noqa: S608
            (values,),
        ):
            item: Entry | Fact
            current = _state(state) if state[0] is not None else untouched
            if tier == "episodic":
                item = decode_kept(data, owner)
                if (item.promoted, item.cognitive_weight) != (current.promoted, current.weight):
                    item = replace_fields(
                        item, promoted=current.promoted, cognitive_weight=current.weight
                    )
            else:
                decode = _kept_fact if len(data) <= _KEPT_BYTES else decode_fact
                item = decode(data, tier=tier)
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


def decode_kept(line: bytes, owner: str | None) -> Entry:
    """Return an entry from its line; a short one is kept, as later prompts find the same lines."""
    decode = _kept_entry if len(line) <= _KEPT_BYTES else decode_entry
    return decode(line, owner=owner)


@lru_cache(1024)
def _kept_entry(line: bytes, *, owner: str | None) -> Entry:
    return decode_entry(line, owner=owner)


@lru_cache(1024)
def _kept_fact(line: bytes, *, tier: str) -> Fact:
    return decode_fact(line, tier=tier)


def join_conditions(
    conditions: Mapping[str, datetime | str | float | None], *fixed: str
) -> tuple[str, list[str | float]]:
    """Return the conditions that have a value as SQL, and the values."""
    used = {sql: value for sql, value in conditions.items() if value is not None}
    bound = [to_iso(value) if isinstance(value, datetime) else value for value in used.values()]
    values = [
        to_utf8(value) if isinstance(value, str) and not value.isascii() else value
        for value in bound
    ]
    return " AND ".join([*fixed, *used]) or "true", values


def read_states(connection: Any, ids: Collection[str]) -> dict[str, State]:
    """Return the folded state of each of these items."""
    keys = to_utf8_all(ids)
    rows = connection.execute(
        """SELECT item, weight, promoted, forgotten, superseded_by, valid_to, reviewed, reverted,
                  private, words_only, calls
           FROM states WHERE item IN (SELECT value FROM json_each(?))""",
        (json.dumps(keys),),
    )
    states = {str(item): _state(state) for item, *state in rows}
    return {identity: states.get(key, State()) for identity, key in zip(ids, keys, strict=True)}


def _state(row: Sequence[Any]) -> State:
    weight, promoted, forgotten, by, until, reviewed, reverted, private, words_only, calls = row
    return State(
        float(weight),
        bool(promoted),
        bool(forgotten),
        by,
        until,
        reviewed,
        bool(reverted),
        bool(private),
        bool(words_only),
        CallHistory.from_json(json.loads(calls)) if calls else NO_CALLS,
    )


def settle_events(connection: Any, events: Sequence[JournalEvent]) -> list[JournalEvent]:
    """Return events, the offers among them that a host acknowledged as injected.

    Args:
        events: may hold acknowledgements that the index has not read.
    """
    offers = [event.id for event in events if is_offer(event)]
    if not offers:
        return [*events]
    rows = connection.execute(
        """SELECT data FROM touches JOIN events ON events.id = event
           WHERE item IN (SELECT value FROM json_each(?)) AND kind = 'deliver'""",
        (json.dumps(offers),),
    )
    read = [decode_event(data) for (data,) in rows]
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


# -- Read the turns around an entry in its session
#
# The cost is bounded by the turns asked for, whatever the length of a session.

_WHOLE_SESSIONS: Final = 1.5  # times the turns wanted, up to which whole sessions are read
RowLengths = list[tuple[int, int]]  # row and length
Neighbours = dict[int, tuple[RowLengths, RowLengths]]  # by row: those before it and after it
_Turn = tuple[int, float, int, int]  # session, time, row and length


class NeighbourReader(RecordReader):
    """Reads the turns around entries, within the scopes that their viewer may see."""

    def neighbours(
        self, distances: Mapping[int, int], scopes: Sequence[int], gap: float = 0.0
    ) -> Neighbours:
        """Return the turns before and after each row in its session, nearest first.

        With a gap, in seconds, they end where so much time passed between two turns.

        Args:
            distances: by row, how many turns to return on either side.
        """
        # "+", so that SQLite looks for a session's turns by the session, not by scope and time.
        rows, only = json.dumps([*distances]), f"+scope IN ({', '.join(map(str, scopes))})"
        most = int(2 * _WHOLE_SESSIONS * sum(distances.values()))
        turns = self._whole_sessions(rows, only, most)
        around = _around_in(turns, distances, gap)
        by_distance: dict[int, list[int]] = {}
        for row in distances.keys() - around.keys():
            by_distance.setdefault(distances[row], []).append(row)
        for many, some in by_distance.items():
            around |= self._neighbours_by_row(some, only, many, gap)
        return around

    def _whole_sessions(self, rows: str, only: str, most: int) -> list[_Turn]:
        """Return all turns of the sessions of these rows (JSON); none if they may exceed a limit.

        Reading a session once takes a third of looking around each of many rows in it.
        """
        sessions = "SELECT session FROM items WHERE row IN (SELECT value FROM json_each(?))"
        count = self._count(
            f"""SELECT coalesce(sum((SELECT max(turn) FROM items WHERE session = here.session)), 0)
                FROM (SELECT DISTINCT session FROM ({sessions})) AS here""",  # noqa: S608
            (rows,),
        )
        if count > most:
            return []
        turns = self._db.execute(
            f"""SELECT session, observed, row, length FROM items
                WHERE session IN ({sessions}) AND indexed AND {only}
                ORDER BY session, observed, turn, id LIMIT ?""",  # noqa: S608
            (rows, most + 1),
        ).fetchall()
        return turns if len(turns) <= most else []  # not all hosts number their turns

    def _neighbours_by_row(
        self, rows: Collection[int], only: str, distance: int, gap: float
    ) -> Neighbours:
        before, after = (
            f"""(SELECT json_group_array(json_array(row, length, observed)) FROM (
                 SELECT row, length, observed FROM items
                 WHERE session = here.session AND indexed AND {only}
                   AND (observed, turn, id) {sign} (+here.observed, +here.turn, +here.id)
                 ORDER BY observed {order}, turn {order}, id {order} LIMIT {int(distance)}))"""  # noqa: S608
            for sign, order in (("<", "DESC"), (">", "ASC"))
        )
        # One statement for all rows: a thousand small ones cost more than the reads themselves.
        # "+" takes a column's affinity away, with which SQLite seeks by `observed` alone and passes
        # over every turn of a session that was recorded with one time.
        sides_of_rows = self._db.execute(
            f"""SELECT '[' || row || ',' || observed || ',' || {before} || ',' || {after} || ']'
                FROM items AS here
                WHERE row IN (SELECT value FROM json_each(?))""",  # noqa: S608
            (json.dumps(list(rows)),),
        )
        sides = parse_json(f"[{','.join(text for (text,) in sides_of_rows)}]")
        return {
            row: (_until_gap(preceding, observed, gap), _until_gap(following, observed, gap))
            for row, observed, preceding, following in sides
        }


def _around_in(turns: Sequence[_Turn], distances: Mapping[int, int], gap: float) -> Neighbours:
    """Return the neighbours of the rows that are among these turns, which are in order."""
    line = [(row, length) for _, _, row, length in turns]
    around: Neighbours = {}
    begin = 0  # of the turns that no other session and no gap is between
    while begin < len(turns):
        end = begin + 1
        session, observed, *_ = turns[begin]
        while end < len(turns) and turns[end][0] == session:
            if gap and turns[end][1] - observed > gap:
                break
            observed = turns[end][1]
            end += 1
        for index in range(begin, end):
            many = distances.get(line[index][0])
            if many is not None:
                before = line[max(begin, index - many) : index]
                around[line[index][0]] = before[::-1], line[index + 1 : min(end, index + 1 + many)]
        begin = end
    return around


def _until_gap(turns: Sequence[tuple[int, int, float]], observed: float, gap: float) -> RowLengths:
    """Return the rows and lengths of turns, up to the first that is a gap away from the last."""
    near: RowLengths = []
    for row, length, moment in turns:
        if gap and abs(moment - observed) > gap:
            break
        near.append((row, length))
        observed = moment
    return near
