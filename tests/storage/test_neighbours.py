"""The turns around an entry: in their order, at a cost that no length of a session adds to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from memtier_plugin.core.records import Message
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index import records
from memtier_plugin.storage.index.records import NeighbourReader

AT = datetime(2026, 3, 1, tzinfo=UTC)
REACH = 3
STEPS = 10  # of SQLite's machine, between two counts


def record_session(memory: MemTier, turns: int) -> list[int]:
    """Record a session, all of it with one time, as importers do; return the rows by turn."""
    messages = (Message(role="user", content=f"turn {number}") for number in range(turns))
    session = Session(
        session_id=f"s{turns}",
        observed_at=AT,
        turns=tuple(ImportedMessage(id=str(n), message=m) for n, m in enumerate(messages)),
    )
    entries = [entry for part in memory.record_sessions([session]) for entry in part]
    memory.catch_up()
    rows = memory.store.reader().rows_of([entry.id for entry in entries])
    return [rows[entry.id] for entry in entries]


def _count(counts: list[int]) -> bool:
    counts.append(1)
    return False  # go on


def test_neighbours_cost_the_same_in_a_session_of_any_length(tmp_path: Path) -> None:
    """The turns of one time are not passed over one by one: a long session costs no more."""
    steps: dict[int, int] = {}
    with MemTier.open(tmp_path, "p", "main") as memory:
        for turns in (20, 600):
            rows = record_session(memory, turns)
            reader = memory.store.reader()
            scopes = reader.scopes("main", None)
            counts: list[int] = []
            reader._db.set_progress_handler(partial(_count, counts), STEPS)
            middle = turns // 2
            before, after = reader.neighbours({rows[middle]: REACH}, scopes)[rows[middle]]
            reader._db.set_progress_handler(None)
            assert [row for row, _ in before] == rows[middle - 1 : middle - 1 - REACH : -1]
            assert [row for row, _ in after] == rows[middle + 1 : middle + 1 + REACH]
            steps[turns] = len(counts)
    assert 0 < steps[600] <= 1.5 * steps[20]


@pytest.mark.parametrize("gap", [0.0, 3600.0])
def test_reading_whole_sessions_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: float
) -> None:
    """Short sessions are read whole, long ones around each row: with the same turns, and gaps."""
    with MemTier.open(tmp_path, "p", "main") as memory:
        rows: list[int] = []
        for session in range(3):
            moments = [AT + timedelta(hours=hours) for hours in (0, 0, 0.5, 4, 4.9, 30, 30, 31)]
            turns = [
                ImportedMessage(
                    id=str(n), message=Message(role="user", content=f"{n}", observed_at=moment)
                )
                for n, moment in enumerate(moments)
            ]
            spoken = Session(session_id=f"s{session}", observed_at=AT, turns=tuple(turns))
            entries = [entry for part in memory.record_sessions([spoken]) for entry in part]
            rows += memory.store.reader().rows_of([entry.id for entry in entries]).values()
        reader = memory.store.reader()
        scopes = reader.scopes("main", None)
        reach = {row: 1 + index % 4 for index, row in enumerate(rows)}
        monkeypatch.setattr(records, "_WHOLE_SESSIONS", 0.0)
        by_row = reader.neighbours(reach, scopes, gap)
        monkeypatch.setattr(records, "_WHOLE_SESSIONS", 99.0)
        assert reader.neighbours(reach, scopes, gap) == by_row
        assert len(by_row) == len(rows)
        monkeypatch.setattr(NeighbourReader, "_neighbours_by_row", None)  # it was not needed
        assert reader.neighbours(reach, scopes, gap) == by_row
