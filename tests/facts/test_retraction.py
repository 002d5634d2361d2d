"""Facts that are taken back with nothing in their place: retracted, by evidence, revertible."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_plugin.core.events import RetractEvent
from memtier_plugin.memory import MemTier
from tests.builders import turns, user_message

SAID = datetime(2026, 3, 18, 9, tzinfo=UTC)

# What is said, and what takes it back.
TAKEN_BACK = [
    ("I have a dog called Rex.", "I no longer have a dog."),
    ("The staging port is 7443.", "Strike that, the staging port is not 7443."),
    ("I'm allergic to peanuts.", "It turned out that I'm not allergic to peanuts."),
    ("I work at Siemens.", "I don't work at Siemens any more."),
    ("I like jazz.", "I don't like jazz anymore."),
    ("I'm learning Dutch.", "I gave up learning Dutch."),
    ("I am vegetarian.", "I'm not vegetarian."),
    ("We use Jenkins.", "We don't use Jenkins."),
]

# What takes nothing back.
LEFT_ALONE = [
    ("I have a dog called Rex.", "I don't have a dog with me today."),
    ("I have a dog called Rex.", "If I no longer have a dog, who barks?"),
    ("I have a dog called Rex.", "Don't I have a dog?"),
    ("I have a dog called Rex.", "My brother no longer has a dog."),
    ("I have a dog called Rex.", "I no longer have a cat."),
    ("I have a dog called Rex.", 'She wrote: "I no longer have a dog."'),
    ("The staging port is 7443.", "The staging port is not 7444."),
    ("I'm allergic to peanuts.", "I'm not sure whether I'm allergic to peanuts."),
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemTier]:
    """Open a project."""
    with MemTier.open(tmp_path / "home") as opened:
        yield opened


def say(memory: MemTier, *texts: str, sender: str | None = None, day: int = -60) -> None:
    """Record each text, a day after the one before, and consolidate."""
    for number, text in enumerate(texts):
        memory.record(
            [user_message(text)],
            session_id=f"{text}-{sender}",
            sender=sender,
            observed_at=SAID + timedelta(days=day + number),
        )
    memory.consolidate()


@pytest.mark.parametrize(("before", "after"), TAKEN_BACK)
def test_what_is_denied_holds_no_longer(memory: MemTier, before: str, after: str) -> None:
    """The fact is gone from what holds; that it is not so any more may be a fact of its own."""
    say(memory, before)
    [fact] = memory.facts()
    say(memory, after, day=-50)
    assert fact.id not in {other.id for other in memory.facts()}


@pytest.mark.parametrize(("before", "after"), LEFT_ALONE)
def test_what_denies_something_else_takes_nothing_back(
    memory: MemTier, before: str, after: str
) -> None:
    """A doubt, a question, a quotation, another person or thing, a day: the fact holds."""
    say(memory, before, after)
    assert before.rstrip(".").split()[-1] in " ".join(fact.text for fact in memory.facts())


def test_it_has_its_evidence_and_can_be_reverted(memory: MemTier) -> None:
    """The event names the entry and when it was said; rolled back, the fact holds again."""
    say(memory, "I have a dog called Rex.")
    [fact] = memory.facts()
    say(memory, "I no longer have a dog.", day=-50)
    [event] = memory.events(kinds=[RetractEvent.KIND])
    denial = next(entry for entry in memory.entries() if entry.id == event.data["entry"])
    assert denial.content == "I no longer have a dog."
    assert event.data["items"] == [fact.id]
    views = memory.knowledge.person.facts(include_superseded=True)
    [view] = [view for view in views if view.fact.id == fact.id]
    assert (view.fact.id, view.superseded_by) == (fact.id, denial.id)
    memory.reindex()
    assert fact.id not in {other.id for other in memory.facts()}
    assert event.run_id is not None
    memory.history.revert(event.run_id)
    assert fact.id in {other.id for other in memory.facts()}


def test_as_of_a_day_before_the_denial_the_fact_holds(memory: MemTier) -> None:
    """A retraction counts from when it was said."""
    say(memory, "I have a dog called Rex.", "I no longer have a dog.")
    held = [
        any(
            "Rex" in hit.text
            for hit in memory.history.recall(
                "dog Rex", SAID + timedelta(days=days), depth="facts"
            ).hits
        )
        for days in (-59.5, 1)
    ]
    assert held == [True, False]


def test_nobody_takes_back_what_another_person_said(memory: MemTier) -> None:
    """A denial concerns the speaker's own facts alone."""
    say(memory, "I have a dog called Rex.", sender="ann")
    say(memory, "I no longer have a dog.", sender="bob")
    assert len(memory.facts(sender="ann")) == 1


def test_an_assistants_denial_takes_nothing_back(memory: MemTier) -> None:
    """Only the user's own words do."""
    say(memory, "I have a dog called Rex.")
    memory.record(turns("Tell me.", "You said that I no longer have a dog."), session_id="x")
    memory.consolidate()
    assert len(memory.facts()) == 1
