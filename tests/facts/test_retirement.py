"""Forgets that evidence proposes: of which facts, decided by a person, and undone again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.cause_events import Withholding
from memtier_plugin.core.events import CreditEvent, RankedItem, RecallEvent
from memtier_plugin.core.records import Fact
from memtier_plugin.daemon.jobs import follow_causes
from memtier_plugin.memory import MemTier as Memory
from tests.learning.test_causes import history, write
from tests.proofs.checks import content

RUNS = 12
SETTINGS = {"causes.retire_after": RUNS, "causes.withhold": 0.5}


@pytest.fixture
def memory(home: Path) -> Iterator[Memory]:
    """Return a memory that proposes to forget what 12 runs did not use."""
    with MemTier.open(home, settings=SETTINGS) as opened:
        yield opened


def remembered(memory: Memory) -> tuple[Fact, Fact]:
    """Return two facts."""
    return memory.remember("The barn is red."), memory.remember("The oak by the gate is tall.")


def shown(memory: Memory, runs: int, used: Fact, *others: Fact, name: str = "r") -> None:
    """Journal runs that were given these facts, and used the first of them."""
    for number in range(runs):
        items = tuple(RankedItem(item=fact.id) for fact in (used, *others))
        credit = CreditEvent(item=used.id, attempt=1, reward=1.0, share=1.0, delta=0.01)
        recall = RecallEvent(purpose="inject", injected=items)
        write(memory, [(f"{name}{number}", recall), (f"{name}{number}", credit)])


def test_what_no_run_used_is_proposed_and_a_person_decides(memory: Memory) -> None:
    """A fact that many runs saw and none used waits in the review; accepted, it can come back."""
    barn, oak = remembered(memory)
    shown(memory, RUNS - 1, barn, oak)
    assert memory.retirement.candidates() == []
    shown(memory, 1, barn, oak, name="last")
    assert memory.retirement.propose() == (oak.id,) == memory.retirement.propose()
    person = memory.knowledge.person
    [item] = person.review_queue()
    assert (item.kind, item.fact.fact.id) == ("forget", oak.id) and f"{RUNS} runs" in item.why
    assert {fact.id for fact in memory.facts()} == {barn.id, oak.id}  # until it is decided
    [outcome] = person.accept([item.id])
    assert outcome.now == "forgotten" and {f.id for f in memory.facts()} == {barn.id}
    before = content(memory)
    memory.reindex()
    assert content(memory) == before
    memory.unforget([oak.id])
    assert {fact.id for fact in memory.facts()} == {barn.id, oak.id}


def test_what_a_person_keeps_is_not_proposed_again(memory: Memory) -> None:
    """A rejected proposal is the last word on it."""
    barn, oak = remembered(memory)
    shown(memory, RUNS, barn, oak)
    memory.retirement.propose()
    [item] = memory.knowledge.person.review_queue()
    memory.knowledge.person.reject([item.id], "it is a landmark")
    shown(memory, RUNS, barn, oak, name="later")
    assert memory.retirement.propose() == ()
    assert memory.knowledge.person.review_queue() == []


def test_what_harms_is_proposed(memory: Memory) -> None:
    """A fact without which runs fare better is proposed, though runs use it."""
    barn, oak = remembered(memory)
    rewards: dict[str | None, list[float]] = {
        None: [-0.5] * 30, barn.id: [1.0] * 25, oak.id: [-0.5] * 25,
    }  # fmt: skip
    history(memory, [barn.id, oak.id], rewards)
    shown(memory, 2, barn, oak)
    assert memory.retirement.propose() == (barn.id,)
    [item] = memory.knowledge.person.review_queue()
    assert "fared better" in item.why


def test_what_must_not_be_lost_is_not_proposed_for_want_of_use(memory: Memory) -> None:
    """An allergy or a rule may be the reason why no answer needs its words."""
    barn, _ = remembered(memory)
    allergy = memory.remember("Ines is allergic to nuts.")
    shown(memory, RUNS, barn, allergy)
    assert memory.retirement.candidates() == []


def test_runs_that_tell_nothing_do_not_count(memory: Memory) -> None:
    """Searches, and runs in which nothing was credited, say nothing of what was used."""
    barn, oak = remembered(memory)
    items = (RankedItem(item=oak.id),)
    lottery = Withholding(p=0.5)
    for number in range(RUNS + 1):
        search = RecallEvent(purpose="search", injected=items)
        silent = RecallEvent(purpose="inject", injected=items, withheld=lottery)
        write(memory, [(f"r{number}", search), (f"s{number}", silent)])
    shown(memory, RUNS, barn)
    assert memory.retirement.candidates() == []


@pytest.mark.parametrize("on", [False, True])
def test_the_daily_job_proposes_only_where_it_is_switched_on(home: Path, on: bool) -> None:
    """By default nothing is proposed by itself, and nothing is ever forgotten by itself."""
    with MemTier.open(home, settings=SETTINGS | {"causes.propose": on}) as memory:
        barn, oak = remembered(memory)
        shown(memory, RUNS, barn, oak)
        follow_causes(memory)
        assert len(memory.knowledge.person.review_queue()) == on
        assert {fact.id for fact in memory.facts()} == {barn.id, oak.id}
