"""Forgets that evidence proposes: of what, decided by a person, and undone again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtier_papers.memtier.events import Withholding
from memtier_papers.memtier.plugin import follow_causes
from memtier_plugin import MemTier
from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import CreditEvent, RankedItem, RecallEvent
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.facts.forgetting import Audience
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier as Memory
from papers.tests.test_causes import history, write
from tests.builders import say
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


def shown(
    memory: Memory, runs: int, used: Fact | Entry, *others: Fact | Entry, name: str = "r"
) -> None:
    """Journal runs that were given these items, and used the first of them."""
    for number in range(runs):
        items = tuple(RankedItem(item=each.id) for each in (used, *others))
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
    lottery = Withholding(p=0.5).to_json()
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


def said(memory: Memory) -> tuple[Entry, Entry]:
    """Return two lines of the log."""
    barn = say(memory, "The barn by the mill is red.", run_id="a", sender="ines")
    return barn, say(memory, "We saw the tall oak at noon.", run_id="b", sender="ines")


def test_a_line_that_no_run_used_is_proposed_and_a_person_decides(memory: Memory) -> None:
    """A line of the log waits in the review like a fact, with itself as its source."""
    barn, oak = said(memory)
    shown(memory, RUNS, barn, oak)
    assert memory.retirement.propose() == (oak.id,) == memory.retirement.propose()
    person = memory.knowledge.person
    [item] = person.review_queue()
    assert (item.kind, item.text, item.fact) == ("forget", oak.content, None)
    assert item.to_json()["sources"][0]["line_of"]["id"] == oak.id
    assert {each.id for each in memory.entries()} == {barn.id, oak.id}  # until it is decided
    [outcome] = person.accept([item.id])
    assert outcome.now == "forgotten" and person.review_queue() == []
    assert {each.id for each in memory.entries()} == {barn.id}
    before = content(memory)
    memory.reindex()
    assert content(memory) == before
    recall = memory.recall("the tall oak", purpose="inject", sender="ines")
    why = memory.explain(recall.id, oak.id)["why"]
    assert why["reason"] == "forgotten" and "none used it" in why["said"]
    memory.unforget([oak.id])
    assert {each.id for each in memory.entries()} == {barn.id, oak.id}


def test_a_line_that_harms_is_proposed_and_what_a_person_keeps_is_not_again(
    memory: Memory,
) -> None:
    """Uplift speaks against lines of the log, too; a person has the last word."""
    barn, oak = said(memory)
    rewards: dict[str | None, list[float]] = {
        None: [-0.5] * 30, barn.id: [1.0] * 25, oak.id: [-0.5] * 25,
    }  # fmt: skip
    history(memory, [barn.id, oak.id], rewards)
    assert memory.retirement.propose() == (barn.id,)
    person = memory.knowledge.person
    [item] = person.review_queue()
    assert "fared better" in item.why
    person.reject([item.id])
    assert memory.retirement.propose() == () == tuple(person.review_queue())


@pytest.mark.parametrize(
    "text", ["Always answer in French.", "From now on, sign as Ines.", "I am allergic to nuts."]
)
def test_standing_instructions_and_essentials_are_never_proposed(memory: Memory, text: str) -> None:
    """A rule may be the reason why no answer needs its words, whatever the runs say."""
    barn, _ = said(memory)
    rule = say(memory, text, run_id="rule", sender="ines")
    shown(memory, RUNS, barn, rule)
    assert memory.retirement.candidates() == []


def test_a_standing_instruction_is_not_proposed_where_runs_fared_better_without(
    memory: Memory,
) -> None:
    """What a user wants of every answer is not for the outcome of runs to judge."""
    barn, rule = said(memory)[0], say(memory, "Always answer in French.", run_id="rule")
    rewards: dict[str | None, list[float]] = {
        None: [-0.5] * 30, rule.id: [1.0] * 25, barn.id: [-0.5] * 25,
    }  # fmt: skip
    history(memory, [barn.id, rule.id], rewards)
    assert [line.id for line in memory.causes.uplift().lines if line.uplift.verdict == "harms"]
    assert memory.retirement.candidates() == []


def test_a_line_that_a_fact_rests_on_is_not_proposed(memory: Memory) -> None:
    """It would take the fact along, which has evidence of its own."""
    barn, oak = remembered(memory)
    source = next(each for each in memory.entries() if each.id == oak.sources[0].entry)
    shown(memory, RUNS, barn, source)
    assert memory.retirement.candidates() == []


def test_only_who_may_see_a_line_is_asked_about_it(memory: Memory, home: Path) -> None:
    """Another agent, and another person, neither see the proposal nor can decide it."""
    barn, oak = said(memory)
    shown(memory, RUNS, barn, oak)
    memory.retirement.propose()
    [item] = memory.knowledge.person.review_queue()
    assert [i.id for i in memory.knowledge.person.review_queue(Audience("main", "ines"))] == [
        item.id
    ]
    assert memory.knowledge.person.review_queue(Audience("main", "otto")) == []
    assert memory.knowledge.of_sender("otto").review_queue() == []
    with MemTier.open(home, agent_id="other", settings=SETTINGS) as other:
        assert other.knowledge.review_queue() == []
        with pytest.raises(NotFound):
            other.knowledge.accept([item.id])
        with pytest.raises(NotFound):
            other.knowledge.reject([item.id])
    [same] = memory.knowledge.person.review_queue()
    assert same == item


def test_a_purged_line_waits_no_longer(memory: Memory) -> None:
    """What was purged is gone from the review, before and after the index is made anew."""
    barn, oak = said(memory)
    shown(memory, RUNS, barn, oak)
    memory.retirement.propose()
    memory.purge(Selection(ids=(oak.id,)))
    assert memory.knowledge.person.review_queue() == []
    memory.reindex()
    assert memory.knowledge.person.review_queue() == []
    assert oak.content not in "".join(
        path.read_text("utf-8") for path in memory.folder.rglob("*.jsonl")
    )
    assert memory.retirement.candidates() == []
