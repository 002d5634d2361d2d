"""Recalls in the journal are packed: small, and with what `explain` and credit need."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin import MemTier
from memtier_plugin.core.event_lines import MISS_CHARS, STEPS, unpack
from memtier_plugin.core.events import RankedItem, RecallEvent, new_event, payload_of
from memtier_plugin.core.records import decode_event
from memtier_plugin.storage.ledger import jsonl
from tests.builders import say

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
MOST_BYTES = 1500
IDS = st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=26, max_size=26)
NAMES = st.sampled_from(["words", "grams", "raw score", "a;b: c=d", "tier"])
VALUES = st.floats(0, 1) | st.floats(-50, 500)
ITEMS = st.builds(
    RankedItem,
    item=IDS,
    rank=st.integers(1, 90),
    tier=st.sampled_from(["episodic", "semantic", "procedural"]),
    score=st.floats(-20, 500),
    weight=st.floats(-1, 1),
    signals=st.dictionaries(NAMES, VALUES),
    note=st.none() | st.text(max_size=20),
)
RECALLS = st.builds(
    RecallEvent,
    query=st.text(max_size=40),
    weights=st.dictionaries(st.sampled_from(["words", "grams", "tier"]), st.floats(0.1, 100)),
    sender=st.none() | st.text(max_size=5),
    injected=st.lists(ITEMS, max_size=16).map(tuple),
    near_misses=st.lists(ITEMS, max_size=8).map(tuple),
    repeats=st.lists(IDS, max_size=3).map(tuple),
    vectors=st.integers(0, 9),
)


@given(RECALLS)
def test_packed_recall_keeps_what_counts(recall: RecallEvent) -> None:
    """Ids, ranks, tiers, weights and notes come back; scores and signals to what is written."""
    event = new_event(recall, agent="main", at=NOON)
    read = payload_of(decode_event(jsonl.to_line(event.to_json())))
    assert isinstance(read, RecallEvent)
    for then, now in zip(recall.injected, read.injected, strict=True):
        assert (now.item, now.rank, now.tier) == (then.item, then.rank, then.tier)
        assert now.score == pytest.approx(then.score, abs=0.006)
        assert now.weight == pytest.approx(then.weight, abs=1e-4)
        assert now.note == (then.note or None)
    for then, now in zip(recall.near_misses, read.near_misses, strict=True):
        assert (now.item, now.rank) == (then.item[-MISS_CHARS:], then.rank)
        assert now.signals == {}
    for then, now in zip(recall.injected, read.injected, strict=True):
        for name in ("words", "grams", "tier"):
            value = then.signals.get(name, 0.0)
            off = max(0.5 / STEPS, 0.006 * abs(value)) + 1e-9
            assert now.signals.get(name, 0.0) == pytest.approx(value, abs=off)
    assert (read.query, read.sender, read.repeats) == (recall.query, recall.sender, recall.repeats)
    again = new_event(read, agent="main", at=NOON).data
    assert RecallEvent.of(new_event(read, agent="main", at=NOON)).to_data() == again


@given(
    st.dictionaries(
        st.sampled_from(
            ["injected", "near_misses", "scores", "signals", "ranks", "tiers", "learned", "notes"]
        ),
        st.none() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=3),
    )
)
def test_bad_line_is_refused_by_name(fields: dict[str, Any]) -> None:
    """A packed recall that somebody changed raises what every bad line does, and nothing else."""
    event = new_event(RecallEvent(), agent="main", at=NOON)
    line = {**event.to_json(), "scores": "1.0", **fields}
    try:
        RecallEvent.of(decode_event(jsonl.to_line(line)))
    except (KeyError, ValueError) as error:
        assert str(error)


def test_recall_takes_little_of_the_journal(home: Path) -> None:
    """A recall with a full block takes less than 1.5 kB of the journal, and is explained."""
    with MemTier.open(home) as memory:
        for n in range(60):
            say(memory, f"The ferry {n} leaves pier {n % 7} at {n % 24}:15.", run_id=f"r{n}")
        recall = memory.recall("When does the ferry leave pier 3?", purpose="inject", run_id="r")
        assert len(recall.injected) >= 10
        [path] = (memory.folder / "journal").rglob("*.jsonl")
        [line] = [line for line in path.read_bytes().splitlines() if b'"recall"' in line]
        assert len(line) <= MOST_BYTES
        explanation = memory.explain(recall.id)
        ids = [hit.id for hit in recall.hits]
        assert [hit["id"] for hit in explanation["injected"]] == [h.id for h in recall.injected]
        assert {hit["signals_from"] for hit in explanation["injected"]} == {"journal"}
        missed = explanation["near_misses"]
        assert len(missed) == 8 and all(hit["id"] in ids for hit in missed)
        assert {hit["signals_from"] for hit in missed} == {"recomputed"}
        for hit, line_of in zip(recall.injected, explanation["injected"], strict=True):
            for name, value in line_of["signals"].items():
                assert value == pytest.approx(hit.signals[name], abs=0.6 / STEPS)


def test_full_lines_pass_unchanged() -> None:
    """What an earlier version wrote in full is no packed line."""
    data = {"query": "x", "injected": [{"item": "a"}], "near_misses": []}
    assert unpack(data) is data
    assert json.dumps(unpack(data)) == json.dumps(data)
