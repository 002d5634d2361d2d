"""The past: what a recall found then, what changed since, and runs that are taken back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.records import FactDraft, Source
from memtier_plugin.core.results import Recall
from memtier_plugin.facts.forgetting import Forgotten
from memtier_plugin.memory import MemTier
from tests.builders import MOMENT, Clock, costly_examples, say
from tests.processes import run_memtier

Day = Callable[..., datetime]


@pytest.fixture
def clock(day: Day) -> Clock:
    """Return a clock at the first day."""
    return Clock(day(0), MOMENT)


@pytest.fixture
def memory(home: Path, clock: Clock) -> Iterator[MemTier]:
    """Return the memory of one agent, on that clock."""
    with MemTier.open(home, "harbor", "one", clock=clock) as opened:
        yield opened


def seen(recall: Recall) -> list[tuple[str, float, float]]:
    """Return what a recall found: ids, scores and weights."""
    return [(hit.id, round(hit.score, 9), hit.weight) for hit in recall.hits]


def outcome(memory: MemTier, query: str, run: str, code: int) -> None:
    """Recall for a run that then works with a tool, well or badly."""
    recall = memory.recall(query, session_id="s", run_id=run, purpose="inject")
    memory.end_run(
        [
            {"role": "user", "content": query},
            {"role": "tool", "content": "done", "name": "shell", "exit_code": code},
            {"role": "assistant", "content": " ".join(hit.text for hit in recall.injected)},
        ],
        session_id="s",
        run_id=run,
    )


def test_as_of_is_what_was_seen_then(memory: MemTier, clock: Clock, day: Day) -> None:
    """A recall as of a moment gives the ids, scores and weights of the recall made then."""
    say(memory, "To restart the tide service, drain it with pierctl.", run_id="r1")
    memory.remember("The staging host is called pelican.")
    outcome(memory, "restart the tide service", "r2", 0)
    clock.now = day(3)
    then = clock.now + timedelta(milliseconds=50)
    clock.now = then
    before = memory.recall("restart the tide service on the staging host", at=then)
    clock.now = day(5)
    say(memory, "The tide service is restarted with tidectl now.", run_id="r3")
    outcome(memory, "restart the tide service", "r4", 1)
    memory.remember("The staging host is called heron.")
    events = len(memory.events(kinds=["recall"]))
    past = memory.history.recall("restart the tide service on the staging host", then)
    assert seen(past) == seen(before) and past.label.startswith("as of 2026-01-08T09:00")
    assert len(memory.events(kinds=["recall"])) == events  # it is none that a run asked
    assert seen(memory.recall("restart the tide service on the staging host")) != seen(before)
    assert not list(memory.folder.glob("as-of-*"))


def test_forgetting_holds_for_the_past_too(memory: MemTier, clock: Clock, day: Day) -> None:
    """What was forgotten later is not found as of an earlier moment."""
    entry_id = say(memory, "My locker is number 77.", run_id="r1").id
    then = clock()
    assert entry_id in {hit.id for hit in memory.history.recall("locker", then).hits}
    clock.now = day(2)
    memory.forget(ids=[entry_id])
    assert not memory.history.recall("locker", then).hits
    assert not memory.history.recall("locker", day(-1)).hits  # nothing was there yet


def test_what_was_forgotten_comes_back(memory: MemTier, clock: Clock, day: Day) -> None:
    """`unforget` brings back an item and the facts hidden with it, for the past too."""
    entry_id = say(memory, "My locker is number 77.", run_id="r1").id
    source = Source(agent="one", session="s", entry=entry_id)
    draft = FactDraft(
        subject="locker", relation="number", value="77", text="The locker is 77.", sources=(source,)
    )
    [fact] = memory.add_facts([draft])
    then = clock()
    clock.now = day(2)
    with pytest.raises(NotFound, match="not forgotten"):
        memory.unforget([entry_id])
    hidden = memory.forget(ids=[entry_id])
    assert hidden == Forgotten((entry_id,), (fact.id,)) and not memory.recall("locker").hits
    clock.now = day(3)
    assert memory.unforget([entry_id], dry_run=True) == hidden and not memory.facts()
    assert memory.unforget([entry_id]) == hidden
    assert {hit.id for hit in memory.recall("locker").hits} == {entry_id, fact.id}
    assert entry_id in {hit.id for hit in memory.history.recall("locker", then).hits}
    assert memory.history.diff(then).to_json()["forgotten"] == []
    memory.forget(ids=[entry_id])
    assert not memory.recall("locker").hits
    with pytest.raises(NotFound, match="no item"):
        memory.unforget(["0" * 26])


def test_difference(memory: MemTier, clock: Clock, day: Day) -> None:
    """Between two moments: new entries, facts learned and superseded, forgotten, weighed anew."""
    advice = say(memory, "To restart the tide service, drain it with pierctl.", run_id="r1").id
    start = clock()
    clock.now = day(2)
    outcome(memory, "restart the tide service", "r2", 0)
    lost = say(memory, "My locker is number 77.", run_id="r3").id
    fact = memory.remember("The staging host is called pelican.")
    memory.forget(ids=[lost])
    report = memory.history.diff(start).to_json()
    assert report["said"] == {"one": 5} and report["forgotten"] == [lost]
    assert [(c["what"], c["id"]) for c in report["facts"]] == [("added", fact.id)]
    [weight] = [change for change in report["weights"] if change["id"] == advice]
    assert weight["before"] == 0.0 and weight["after"] > 0
    assert report["counts"]["re-weighted"] == len(report["weights"])
    end = clock()
    clock.now = day(3)
    say(memory, "More.", run_id="r9")
    assert memory.history.diff(start, end).to_json()["said"] == {"one": 5}
    assert memory.history.diff(end).said == {"one": 1}


def test_a_run_is_taken_back(memory: MemTier) -> None:
    """Entries of the run, facts on them alone and its credits go; undone, all of it is back."""
    advice = say(memory, "To restart the tide service, drain it with pierctl.", run_id="r1").id
    outcome(memory, "restart the tide service", "bad", 1)
    outcome(memory, "restart the tide service", "good", 0)
    say(memory, "My locker is number 77.", run_id="bad")
    memory.consolidate(extractor="rules")
    before = {hit.id: hit.weight for hit in memory.recall("tide service locker").hits}
    reader = memory.store.reader
    low = reader().state(advice).weight
    plan = memory.history.revert("bad", dry_run=True)
    assert reader().state(advice).weight == low and plan.entries
    done = memory.history.revert("bad")
    assert set(done.entries) == set(plan.entries) and advice in done.credited
    assert reader().state(advice).weight > low  # the blame is gone, the later credit is kept
    now = {hit.id for hit in memory.recall("tide service locker").hits}
    assert not now & set(done.entries) and not now & set(done.facts)
    assert not any(entry.id in done.entries for entry in memory.entries())
    assert not memory.history.revert("bad").entries  # once more changes nothing
    before_index = reader().state(advice)
    memory.reindex()
    assert reader().state(advice) == before_index
    memory.history.revert("bad", undo=True)
    assert reader().state(advice).weight == low
    after = {hit.id: hit.weight for hit in memory.recall("tide service locker").hits}
    assert after == before
    assert not memory.history.revert("bad", undo=True).entries


def test_a_run_that_is_taken_back_stays_out(memory: MemTier) -> None:
    """Delivered again it adds nothing, and its credits count no more."""
    advice = say(memory, "To restart the tide service, drain it with pierctl.", run_id="r1").id
    outcome(memory, "restart the tide service", "bad", 1)
    memory.history.revert("bad")
    assert memory.store.reader().state(advice).weight == 0.0
    outcome(memory, "restart the tide service", "bad", 0)
    assert memory.store.reader().state(advice).weight == 0.0
    assert say_again(memory) == []


def say_again(memory: MemTier) -> list[str]:
    """Deliver the first message of the run once more; return what that added."""
    message = {"role": "user", "content": "restart the tide service"}
    return [entry.id for entry in memory.record([message], session_id="s", run_id="bad")]


def test_what_a_run_had_superseded_holds_again(memory: MemTier) -> None:
    """The value before it is current again, unless a later run has replaced that."""
    say(memory, "I live in Porto.", run_id="r1")
    memory.consolidate(extractor="rules")
    say(memory, "I live in Bergen.", run_id="r2")
    memory.consolidate(extractor="rules")
    assert [fact.value for fact in memory.facts()] == ["Bergen"]
    done = memory.history.revert("r2")
    assert len(done.restored) == 1
    assert [fact.value for fact in memory.facts()] == ["Porto"]
    memory.history.revert("r2", undo=True)
    assert [fact.value for fact in memory.facts()] == ["Bergen"]
    say(memory, "I live in Graz.", run_id="r3")
    memory.consolidate(extractor="rules")
    memory.history.revert("r2")
    assert [fact.value for fact in memory.facts()] == ["Graz"]


def test_one_way_for_both_kinds(memory: MemTier) -> None:
    """A consolidation is taken back, and brought back, by the same command."""
    say(memory, "I live in Porto.", run_id="r1")
    [run] = memory.consolidate(extractor="rules").runs
    assert memory.history.revert(run).facts and memory.facts() == []
    assert memory.history.revert(run, undo=True).restored
    assert [fact.value for fact in memory.facts()] == ["Porto"]
    with pytest.raises(NotFound, match="no run of that id"):
        memory.history.revert("nothing")
    with MemTier.open(memory.home, "harbor", "two") as other:
        say(other, "Hello from two.", run_id="r1")
        with pytest.raises(NotFound, match="--agent"):
            memory.history.revert("r1")
        assert memory.history.revert("r1", agent="two").agent == "two"


def test_commands(memory: MemTier, home: Path) -> None:
    """`recall --as-of`, `diff` and `revert --run` answer a person and a script."""
    say(memory, "My locker is number 77.", run_id="r1")

    def run(*args: str, code: int = 0) -> Any:
        base = ["--home", str(home), "--project", "harbor", "--agent", "one"]
        result = run_memtier(*base, *args, code=code)
        return result.stdout

    report = json.loads(run("--json", "recall", "locker", "--as-of", "2027-01-01"))
    assert report["label"].startswith("as of 2027-01-01") and report["hits"]
    assert "as of" in run("recall", "locker", "--as-of", "2020-01-01")
    assert json.loads(run("--json", "diff", "2020-01-01", "2027-01-01"))["said"] == {"one": 1}
    assert "one 1" in run("diff", "2020-01-01")
    assert "No changes" in run("diff", "2019-01-01", "2020-01-01")
    run("diff", "2027-01-01", "2020-01-01", code=1)
    assert "would be taken back" in run("revert", "--run", "r1", "--dry-run")
    assert json.loads(run("--json", "revert", "--run", "r1"))["reverted"]
    assert "nothing left to do" in run("revert", "--run", "r1", "--yes")
    assert "restored" in run("revert", "--run", "r1", "--undo", "--yes")
    assert "run taken back r1" in run("diff", "2020-01-01", "2030-01-01")


@settings(max_examples=costly_examples())
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=8), st.data())
def test_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    day: Day,
    steps: list[tuple[int, bool]],
    data: st.DataObject,
) -> None:
    """Whatever happens after a moment, a recall as of it gives what it gave; undo restores all."""
    clock = Clock(day(0), MOMENT)
    with MemTier.open(tmp_path_factory.mktemp("home"), "p", "one", clock=clock) as memory:
        for number in range(3):
            say(memory, f"The pump number {number} runs on diesel.", run_id=f"r{number}")
        moment = data.draw(st.integers(0, len(steps) - 1))
        then, before = clock(), []
        for step, (pump, well) in enumerate(steps):
            outcome(memory, f"pump number {pump} diesel", f"x{step}", 0 if well else 1)
            if step == moment:
                then = clock()
                before = seen(memory.recall("which pump runs on diesel", at=then))
        assert seen(memory.history.recall("which pump runs on diesel", then)) == before
        now = seen(memory.recall("which pump runs on diesel", at=day(9)))
        memory.history.revert(f"x{moment}")
        memory.history.revert(f"x{moment}", undo=True)
        assert seen(memory.recall("which pump runs on diesel", at=day(9))) == now
