"""A home that an earlier version wrote is read, written back and rebuilt as it was."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.ledger import jsonl
from tests.proofs.checks import assert_equal_to_rebuild
from tests.proofs.processes import PROJECT

OLD = Path(__file__).parents[1] / "golden" / "home_of_91fc2ae"
LEDGERS = sorted(OLD.rglob("*.jsonl"))
RECORDS: dict[str, Any] = {"episodic": Entry, "semantic": Fact, "journal": JournalEvent}
QUERIES = ["What is to be kept?", "tea", "crane", "Where does the user live?"]


@pytest.fixture
def old_home(home: Path) -> Path:
    """Return a copy of the home, with the modes that a home has."""
    shutil.copytree(OLD, home, dirs_exist_ok=True)
    for path in [home, *home.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    return home


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: str(path.relative_to(OLD)))
def test_its_lines_are_written_back(path: Path) -> None:
    """Every line becomes a record, and the record the same bytes again."""
    (kind,) = RECORDS.keys() & set(path.parts)
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        document = jsonl.parse_line(jsonl.LedgerLine(number, 0, line))
        if "purged" not in document:  # what a purge left of a line is not written again
            assert jsonl.to_line(RECORDS[kind].from_json(document).to_json()) == line


def test_its_memory_is_the_same(old_home: Path) -> None:
    """Facts, their ends, weights and promotions are those that the earlier version saw."""
    expected = json.loads((OLD / "expected.json").read_text("utf-8"))
    with MemTier.open(old_home, PROJECT, "agent-a") as memory:
        facts = memory.facts(include_superseded=True)
        entries = memory.entries(limit=1000)
    assert sorted([f.id, f.text, f.status, str(f.valid_to)] for f in facts) == expected["facts"]
    weights = sorted([e.id, round(e.cognitive_weight, 6), e.promoted] for e in entries)
    assert weights == expected["weights"]


def test_it_is_rebuilt(old_home: Path) -> None:
    """Its index made by reading on and one made anew hold the same rows and give the same hits."""
    at = datetime(2026, 12, 1, tzinfo=UTC)
    assert assert_equal_to_rebuild(old_home, PROJECT, ["agent-a"], QUERIES, at) == len(QUERIES)
