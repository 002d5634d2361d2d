"""A home that an earlier commit wrote opens, keeps all it held, and goes on.

`scripts/write_home.py` wrote `tests/homes`, by the code of the commit that names each folder: the
first with a ledger, then where lines, events or the index changed.  91fc2ae has more agents and
kinds of lines, from the proof of many writers.
"""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index import sqlite
from memtier_plugin.storage.ledger import jsonl
from tests.builders import user_message
from tests.proofs.checks import assert_equal_to_rebuild

HOMES = Path(__file__).parents[1] / "homes"
WRITTEN = sorted(path.name for path in HOMES.iterdir())
SHOPS = [name for name in WRITTEN if name != "91fc2ae"]  # by write_home.py
SAME = ("91fc2ae", "9e044f2a")  # whose lines this version would write to the byte
LEDGERS = [path for name in SAME for path in sorted((HOMES / name).rglob("*.jsonl"))]
RECORDS: dict[str, Any] = {"episodic": Entry, "semantic": Fact, "journal": JournalEvent}
QUERIES = ["What is to be kept?", "tea", "crane", "Where does the user live?", "port", "tide"]
AT = datetime(2026, 12, 1, tzinfo=UTC)


@dataclass
class OldHome:
    """A copy of an old home, and what the code that wrote it read of it."""

    commit: str
    path: Path
    expected: dict[str, Any]

    @property
    def project(self) -> str:
        return str(self.expected["project"])

    def open(self, agent: str = "") -> MemTier:
        return MemTier.open(self.path, self.project, agent or self.expected["agent"])


@pytest.fixture
def old(request: pytest.FixtureRequest, home: Path) -> Iterator[OldHome]:
    """Return a copy of a home, its index included; afterwards hold that no line of it changed."""
    source = HOMES / request.param
    shutil.copytree(source / "home", home)
    for packed in home.rglob("*.xz"):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()
    for path in [home, *home.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    before = {path: path.read_bytes() for path in home.rglob("*.jsonl")}
    assert len(before) >= 4
    yield OldHome(request.param, home, json.loads((source / "expected.json").read_text("utf-8")))
    for path, content in before.items():
        assert path.read_bytes().startswith(content), path


every_home = pytest.mark.parametrize("old", WRITTEN, indirect=True)
every_shop = pytest.mark.parametrize("old", SHOPS, indirect=True)


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: str(path.relative_to(HOMES)))
def test_lines_are_written_back(path: Path) -> None:
    """Every line becomes a record, and the record the same bytes again."""
    (kind,) = RECORDS.keys() & set(path.parts)
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        document = jsonl.parse_line(jsonl.LedgerLine(number, 0, line))
        if "purged" not in document:  # what a purge left of a line is not written again
            assert jsonl.to_line(RECORDS[kind].from_json(document).to_json()) == line


@every_home
def test_the_memory_is_the_same(old: OldHome) -> None:
    """Facts, their ends, weights and promotions are those that the earlier version saw."""
    with old.open() as memory:
        facts = memory.facts(include_superseded=True)
        entries = memory.entries(limit=1000)
        assert not [finding for finding in memory.doctor() if finding.level == "error"]
    assert sorted([f.id, f.text, f.status, str(f.valid_to)] for f in facts) == old.expected["facts"]
    weights = sorted([e.id, round(e.cognitive_weight, 6), e.promoted] for e in entries)
    assert weights == old.expected["weights"]


@every_home
def test_its_index_is_the_one_of_a_rebuild(old: OldHome) -> None:
    """The index is migrated and read on; it holds the rows of a new one, and gives the same hits.

    The first commit's is not what later migrations expect: it is set aside and made anew.
    """
    agent = old.expected["agent"]
    assert assert_equal_to_rebuild(old.path, old.project, [agent], QUERIES, AT) == len(QUERIES)
    with old.open() as memory:
        aside = sqlite.broken_indexes(memory.store.index.path)
    assert len(aside) == (old.commit == "34cf4f67")


@every_shop
def test_what_it_learned_is_recalled(old: OldHome) -> None:
    """What helped comes before what misled, a new value first; what was forgotten stays so."""
    with old.open() as memory:
        lines = [hit.text for hit in memory.recall("How do I restart the tide service?").hits]
        assert not any("spare key" in hit.text for hit in memory.recall("the spare key").hits)
        assert memory.recall("Wann läuft die Prüfung?").hits[0].text.startswith("Die Prüfung läuft")
    works = [line for line in lines if "dockctl" in line]
    misled = [line for line in lines if "pierctl" in line]
    assert works and misled and lines.index(works[0]) < lines.index(misled[0])
    with old.open(old.expected["other"]) as memory:
        texts = [hit.text for hit in memory.recall("Which port does the health check use?").hits]
        assert texts[0] == "The health check listens on port 9100."
        assert "Releases are cut on Thursdays." in memory.recall("releases").hits[0].text


@every_shop
def test_it_goes_on(old: OldHome) -> None:
    """A run is recorded, recalled and consolidated; a rebuild finds the same."""
    with old.open() as memory:
        fresh = [user_message("The mirror is called heron.")]
        assert memory.record(fresh, session_id="monday", run_id="new-1")
        assert not memory.record(fresh, session_id="monday", run_id="new-1")
        assert memory.consolidate().facts
        query = "What is the mirror called?"
        before = [hit.id for hit in memory.recall(query, at=AT).hits]
        assert before
        memory.reindex()
        assert [hit.id for hit in memory.recall(query, at=AT).hits] == before
