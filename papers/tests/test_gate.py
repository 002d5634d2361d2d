"""The encoding gate: what it says of a line, and what the index leaves out by its verdict."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.true_memory import gate
from memtier_papers.true_memory.gatekeeper import Gatekeeper
from memtier_papers.true_memory.verdicts import GateEvent
from memtier_plugin.daemon.jobs import JobRun, jobs_in_group, run_job
from memtier_plugin.memory import MemTier
from tests.builders import START, say, write_config
from tests.cases import each_case
from tests.proofs.checks import assert_equal_to_rebuild

GOLDEN = json.loads((Path(__file__).parent / "golden" / "true_memory.json").read_text("utf-8"))
LINES = (
    "I moved to Lisbon in March and work for Contoso now.",
    "ok",
    "The heron server has 8 cores and 64 GB of memory.",
    "Thanks, noted!",
    "are you there?",
)


@contextmanager
def opened(home: Path, mode: str, agent: str = "a") -> Iterator[MemTier]:
    """Open a project whose gate is in a mode."""
    with MemTier.open(home, "p", agent, {"gate.mode": mode}) as memory:
        yield memory


def verdicts(memory: MemTier) -> dict[str, str]:
    """Return the newest verdict on each line, by its words."""
    memory.catch_up()
    given = dict(memory.store.index.connection().execute("SELECT item, verdict FROM verdicts"))
    return {entry.content: given.get(entry.id, "") for entry in memory.entries(limit=100)}


def count_ngrams(memory: MemTier, identity: str) -> int:
    """Return how many n-grams the index has of an item."""
    sql = "SELECT count(*) FROM gram_postings JOIN items ON row = doc WHERE id = ?"
    [(count,)] = memory.store.index.connection().execute(sql, (identity,))
    return int(count)


def test_novelty_and_error_are_as_published() -> None:
    """Novelty and prediction error have the published values."""
    for example in GOLDEN:
        given, expected = example["inputs"], example["expected"]
        near = example["tolerance"]
        if example["id"] == "tm_novelty_empty_memory":
            assert gate.novelty([], given["message_utf8"]) == expected
        elif example["id"].startswith("tm_novelty"):
            value = gate.novelty([given["memory_utf8"]], given["message_utf8"])
            assert value == pytest.approx(expected["novelty"], abs=near)
        elif example["id"].startswith("tm_prediction_error"):
            cosine = given["fact_mem_cos"]
            value = gate.prediction_error(given["v_cross"], given["v_self"], cosine)
            assert value == pytest.approx(expected, abs=near)


@each_case(
    "example",
    [e for e in GOLDEN if e["id"].startswith("tm_gate") and "weights" in e["inputs"]],
    ids=lambda e: e["id"],
)
def test_decisions_are_as_published(example: dict[str, Any]) -> None:
    """Score, threshold, verdict and reason of the published examples.

    The threshold of an activity is the paper's .30 and not the .28 of the code: eq. 1 lowers it for
    corrections, decisions and relationships, and for "all others 0".
    """
    given, expected = example["inputs"], example["expected"]
    signals = (given[name] for name in ("novelty", "salience", "prediction_error"))
    decision = gate.decide(*signals, given["category"])
    assert decision.score == pytest.approx(expected["score"], abs=example["tolerance"])
    threshold = 0.30 if given["category"] == "activity" else expected["effective_threshold"]
    assert decision.threshold == pytest.approx(threshold)
    assert (decision.admit, decision.reason) == (expected["admit"], expected["reason"])


def test_the_score_is_normalised() -> None:
    """The weights are divided by their sum, as the published code does and its text does not."""
    [example] = [e for e in GOLDEN if e["id"] == "tm_gate_unnormalised_docstring"]
    given, expected = example["inputs"], example["expected"]["code_normalised"]
    decision = gate.decide(given["novelty"], given["salience"], given["prediction_error"])
    assert decision.score == pytest.approx(expected, abs=example["tolerance"])
    assert decision.admit


@pytest.mark.parametrize(
    "category, offset",
    [("correction", 0.06), ("decision", 0.04), ("relationship", 0.04), ("event", 0.0), ("", 0.0)],
)
def test_the_threshold_is_lower_for_three_categories(category: str, offset: float) -> None:
    """A line is admitted from tau = .30 less its category's offset on (eq. 1), and not below."""
    threshold = 0.30 - offset
    # Signals of one value have that value as their score, whatever the weights.
    at, below = (gate.decide(value, value, value, category) for value in (threshold, 0.23))
    assert at.threshold == pytest.approx(threshold) and at.score == pytest.approx(threshold)
    assert gate.decide(threshold + 0.001, threshold, threshold, category).admit
    assert below.admit == (category == "correction")


def test_without_vectors_the_gate_does_not_open() -> None:
    """Where there are no vectors the other signals share the weight, and the floor holds."""
    assert not gate.decide(0.05, 0.02, None).admit
    assert gate.decide(0.6, 0.3, None).score == pytest.approx((0.15 + 0.06) / 0.45)


@given(st.text(max_size=80), st.lists(st.text(max_size=80), max_size=3))
def test_any_line_is_judged(text: str, memory: list[str]) -> None:
    """The novelty of any text lies in .05 to 1."""
    assert 0.05 <= gate.novelty(memory, text) <= 1.0


def test_tags_change_nothing_but_the_journal(home: Path) -> None:
    """In mode `tag` each line is judged once, and recalls are what they were."""
    with opened(home, "off") as memory:
        for line in LINES:
            say(memory, line)
        before = memory.recall("Lisbon heron ok", at=START)
        assert Gatekeeper(memory.actor).run().judged == 0
    with opened(home, "tag") as memory:
        assert Gatekeeper(memory.actor).run().judged == len(LINES)
        assert Gatekeeper(memory.actor).run().judged == 0
        shown = verdicts(memory)
        assert shown[LINES[0]] == "admitted"
        assert {shown[line] for line in (LINES[1], LINES[3])} == {"rejected"}
        assert memory.recall("Lisbon heron ok", at=START).injected == before.injected
        [event, *_] = memory.events(kinds=[GateEvent.KIND])
        assert len(GateEvent.of(event).signals[0]) == 3


def test_rejected_lines_are_found_by_words_alone(home: Path) -> None:
    """In mode `index` a rejected line has neither vectors nor n-grams, a rebuilt index likewise."""
    with opened(home, "index") as memory:
        entries = {line: say(memory, line) for line in LINES}
        assert Gatekeeper(memory.actor).run().rejected >= 2
        memory.catch_up()
        noted = entries[LINES[3]].id
        reader = memory.store.reader()
        assert not count_ngrams(memory, noted)
        assert noted in {hit.id for hit in memory.recall("noted").hits}
        assert not reader.coverage.coverage(memory.store.embedder.name).missing  # type: ignore[union-attr]
        more = say(memory, "Zelda keeps bees in Porto.")
        Gatekeeper(memory.actor).run(limit=1)
        memory.forget(ids=[noted])
        assert all(hit.id != noted for hit in memory.recall("noted").hits)
        memory.unforget(ids=[noted])
        assert more.id in {hit.id for hit in memory.recall("bees").hits}
    write_config(home, {"gate": {"mode": "index"}})
    assert_equal_to_rebuild(home, "p", ["a"], ["noted", "Lisbon", "ok heron"], START)
    with opened(home, "tag") as memory:
        Gatekeeper(memory.actor).run()
        assert set(verdicts(memory).values()) <= {"admitted", "rejected"}
        assert count_ngrams(memory, noted)


def test_the_background_job_judges(home: Path) -> None:
    """The job of the background process is due where the gate is on, and judges what there is."""
    with opened(home, "tag") as memory:
        say(memory, LINES[0])
        assert "gate" in jobs_in_group("local", memory.settings)
        assert run_job("gate", memory, JobRun(Event()))
        assert verdicts(memory) == {LINES[0]: "admitted"}
    with opened(home, "off") as memory:
        assert "gate" not in jobs_in_group("local", memory.settings)


def test_verdicts_are_each_agents_own(home: Path) -> None:
    """Lines of another agent or sender are never compared: each line is new there."""
    with opened(home, "tag") as memory:
        for sender in ("ann", "ben"):
            say(memory, LINES[0], sender=sender, session_id=sender)
        Gatekeeper(memory.actor).run()
    with opened(home, "tag", "b") as memory:
        say(memory, LINES[0])
        Gatekeeper(memory.actor).run()
        events = [GateEvent.of(event) for event in memory.events(kinds=[GateEvent.KIND])]
        assert [s[0] for event in events for s in event.signals] == [1.0, 1.0, 1.0]


def test_compression_is_that_of_the_paper() -> None:
    """Sizes are those of gzip at level 6, and the line follows its neighbours byte by byte."""
    memory, line = b"a quiet harbour at dawn", b"z" * 30 + b"q" * 20
    sizes = [len(gzip.compress(data, 6, mtime=0)) for data in (memory + line, memory, line)]
    value = gate.novelty([memory.decode()], line.decode())
    assert value == pytest.approx((sizes[0] - sizes[1]) / sizes[2])
