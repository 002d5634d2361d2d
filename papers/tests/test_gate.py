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
    """Novelty (joined by a space) and prediction error have the published values."""
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


@each_case("example", [e for e in GOLDEN if "category" in e["inputs"]], ids=lambda e: e["id"])
def test_decisions_are_as_published(example: dict[str, Any]) -> None:
    """Score, threshold, verdict and reason of the published examples."""
    given, expected = example["inputs"], example["expected"]
    signals = (given[name] for name in ("novelty", "salience", "prediction_error"))
    decision = gate.decide(*signals, given["category"])
    assert decision.score == pytest.approx(expected["score"], abs=example["tolerance"])
    assert decision.threshold == pytest.approx(expected["effective_threshold"])
    assert (decision.admit, decision.reason) == (expected["admit"], expected["reason"])


def test_the_score_is_normalised() -> None:
    """The weights are divided by their sum, as the published code does and its text does not."""
    [example] = [e for e in GOLDEN if e["id"] == "tm_gate_unnormalised_docstring"]
    given, expected = example["inputs"], example["expected"]["code_normalised"]
    decision = gate.decide(given["novelty"], given["salience"], given["prediction_error"])
    assert decision.score == pytest.approx(expected, abs=example["tolerance"])
    assert decision.admit


# Ours: punctuation does not make an acknowledgement worth more, "highway" does not begin with a
# greeting, greetings and laughter count as acknowledgements, a question needs its mark, and a
# correction or what happens to another person has no rank of its own.
OWN_SALIENCE = {
    "ok!", "what a day", "she's pregnant", "actually it is not blue", "hey there",
    "haha nice one", "history lesson", "highway repair works are scheduled",
}  # fmt: skip


def test_speech_acts_are_as_published() -> None:
    """Seven of the fifteen published lines have the published rank, the others one of ours."""
    [example] = [e for e in GOLDEN if e["id"] == "tm_speech_act_table"]
    ranks = dict(zip(example["inputs"]["texts"], example["expected"], strict=True))
    differing = {text for text, rank in ranks.items() if gate.salience(text) != rank}
    assert differing == OWN_SALIENCE


def test_without_vectors_the_gate_does_not_open() -> None:
    """Where there are no vectors the other signals share the weight, and the floor holds."""
    assert not gate.decide(0.05, 0.02, None).admit
    assert gate.decide(0.6, 0.3, None).score == pytest.approx((0.15 + 0.06) / 0.45)


def test_salience() -> None:
    """The speech acts of short lines; a long statement is no less than a short one."""
    table = {
        "ok": 0.02, "ok!": 0.02, "hey there": 0.02, "are you coming?": 0.2, "blue car": 0.25,
        "I bought a house": 0.8, "I no longer eat meat": 0.6, "history lesson": 0.25,
        "the cat likes warm milk": 0.5, "highway repair works are scheduled": 0.5,
    }  # fmt: skip
    assert {text: gate.salience(text) for text in table} == table
    long = "the cat likes warm milk and sleeps on the blue chair by the old stove all day"
    assert gate.salience(long) == 0.5


@given(st.text(max_size=80), st.lists(st.text(max_size=80), max_size=3))
def test_any_line_is_judged(text: str, memory: list[str]) -> None:
    """Signals of any text lie in 0 to 1."""
    assert 0.05 <= gate.novelty(memory, text) <= 1.0
    assert 0.0 <= gate.salience(text) <= 1.0
    gate.category(text)


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
    """Sizes are those of gzip at level 6, without a time."""
    assert gate.novelty(["a" * 50], "b" * 50) == pytest.approx(
        (len(gzip.compress(b"a" * 50 + b" " + b"b" * 50, 6)) - len(gzip.compress(b"a" * 50, 6)))
        / len(gzip.compress(b"b" * 50, 6))
    )
