"""What the journal tells of causes: outcomes, uplift, and the weights that follow it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memtier_papers.memtier.events import OutcomeEvent, UpliftEvent, Withholding
from memtier_papers.memtier.plugin import follow_causes
from memtier_plugin import MemTier
from memtier_plugin.core.events import (
    RankedItem,
    RecallEvent,
    UncreditEvent,
)
from memtier_plugin.core.formats import new_id
from memtier_plugin.core.records import EventPayload
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.daemon.jobs import jobs_in_group
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier as Memory
from tests.builders import say, say_each
from tests.credit.test_credit import QUESTION, run_of
from tests.proofs.checks import content

GOOD = run_of("red barn", "done", exit_code=0)
BAD = run_of("red barn", "gone", exit_code=1)
WITHHOLD = {"causes.withhold": 0.5}


def write(memory: Memory, events: Iterable[tuple[str, EventPayload]]) -> list[str]:
    """Journal what happened in these runs, and index it; return the ids of the events."""
    actor = memory.actor
    made = [actor.event(payload, run=run) for run, payload in events]
    memory.store.append_events(made)
    memory.catch_up()
    return [event.id for event in made]


def history(
    memory: Memory, lines: list[str], rewards: dict[str | None, list[float]], name: str = "h"
) -> None:
    """Journal runs with these lines in their prompts, by the line withheld, with their rewards."""
    events: list[tuple[str, EventPayload]] = []
    for item, of_item in rewards.items():
        for number, reward in enumerate(of_item):
            run, identity = f"{name}-{item}-{number}", new_id()
            shown = tuple(RankedItem(item=line) for line in lines if line != item)
            lottery = Withholding(p=0.5 / len(lines), item=item)
            recall = RecallEvent(purpose="inject", injected=shown, withheld=lottery.to_json())
            event = memory.actor.event(recall, run=run, event_id=identity)
            memory.store.append_events([event])
            outcome = OutcomeEvent(attempt=1, reward=reward, recalls=(identity,))
            events.append((run, outcome))
    write(memory, events)


@pytest.fixture
def memory(home: Path) -> Iterable[Memory]:
    """Return a memory whose runs go without a line, by chance."""
    with MemTier.open(home, settings=WITHHOLD) as opened:
        yield opened


def test_outcomes_are_journalled_where_a_line_might_have_been_withheld(
    memory: Memory, tmp_path: Path
) -> None:
    """Each run has its last outcome, whatever it earned; without withholding none is written."""
    say(memory, "the fox sleeps in the red barn")
    recall = memory.recall(QUESTION, purpose="inject", session_id="s2", run_id="r1")

    def end(messages: Any, into: Memory = memory, run: str = "r1") -> list[Any]:
        into.end_run(messages, session_id="s2", run_id=run)
        into.catch_up()
        return [(e.run_id, OutcomeEvent.of(e)) for e in into.events(kinds=["outcome"])]

    first = OutcomeEvent(attempt=1, reward=1.0, recalls=(recall.id,))
    assert end(GOOD) == [("r1", first)] == end(GOOD)  # delivered again, it is the same
    last = replace(first, attempt=2, reward=-0.5)
    assert end(BAD) == [("r1", first), ("r1", last)]
    report = memory.causes.uplift()
    assert (report.runs, report.unfinished) == (1, 0)
    with MemTier.open(tmp_path / "off") as off:
        say(off, "the fox sleeps in the red barn")
        off.recall(QUESTION, purpose="inject", session_id="s2", run_id="r1")
        assert end(GOOD, off) == []


def test_a_planted_line_is_loved_by_credit_and_not_by_uplift(memory: Memory) -> None:
    """An agent that always succeeds credits what it repeats; without the line it succeeds too."""
    planted = say(memory, "the fox sleeps in the red barn", run_id="planted")
    for number in range(8):
        memory.recall(QUESTION, purpose="inject", session_id=f"s{number}", run_id=f"r{number}")
        memory.end_run(GOOD, session_id=f"s{number}", run_id=f"r{number}")
    history(memory, [planted.id], {None: [1.0] * 60, planted.id: [1.0] * 30})
    weight = next(e.cognitive_weight for e in memory.entries() if e.id == planted.id)
    assert weight > 0.15  # up to the limit of the day
    [line] = [line for line in memory.causes.uplift().lines if line.id == planted.id]
    assert line.uplift.mean == 0.0 and line.uplift.verdict == "unclear"
    assert memory.retirement.candidates() == []


def test_lines_and_kinds_are_compared(memory: Memory) -> None:
    """A line without which runs fail helps, its neighbour is unclear; their kind has both."""
    barn, oak = (entry.id for entry in say_each(memory, "the barn is red", "the oak is tall"))
    mixed = [1.0, -0.5] * 15
    history(memory, [barn, oak], {None: [1.0] * 60, barn: [-0.5] * 30, oak: [1.0] * 30})
    report = memory.causes.uplift()
    assert [(line.id, line.uplift.verdict) for line in report.lines] == [
        (barn, "helps"),
        (oak, "unclear"),
    ]
    assert report.kinds and report.kinds["user"].withheld == 60
    assert (report.runs, report.withheld) == (120, 60)
    history(memory, [barn, oak], {oak: mixed}, "later")
    assert memory.causes.uplift().lines[1].uplift.withheld == 60


def test_undone_and_unfinished_runs_do_not_count(memory: Memory) -> None:
    """A run that was undone has no outcome any more; one that never ended is counted apart."""
    barn = say(memory, "the barn is red").id
    history(memory, [barn], {None: [1.0] * 3, barn: [1.0] * 2})
    write(memory, [("x", UncreditEvent(items=(barn,), run=f"h-{barn}-0", agent="main"))])
    lottery = Withholding(p=0.5, item=barn)
    write(memory, [("open", RecallEvent(purpose="inject", withheld=lottery.to_json()))])
    report = memory.causes.uplift()
    assert (report.runs, report.withheld) == (4, 1)
    assert (report.unfinished, report.unfinished_withheld) == (2, 2)


def test_only_the_first_lottery_of_a_run_counts(memory: Memory) -> None:
    """Later prompts of a run have no chance of their own, and its lines one observation."""
    barn, oak = (entry.id for entry in say_each(memory, "the barn is red", "the oak is tall"))
    recalls = [
        RecallEvent(
            purpose="inject",
            injected=(RankedItem(item=oak),),
            withheld=Withholding(p=0.25, item=barn).to_json(),
        ),
        RecallEvent(
            purpose="inject",
            injected=(RankedItem(item=oak),),
            withheld=Withholding(p=0.5).to_json(),
        ),
    ]
    ids = write(memory, [("r1", recall) for recall in recalls])
    write(memory, [("r1", OutcomeEvent(attempt=1, reward=1.0, recalls=tuple(ids)))])
    report = memory.causes.uplift()
    assert report.runs == 1
    assert {line.id: (line.uplift.shown, line.uplift.withheld) for line in report.lines} == {
        barn: (0, 1)
    }


def test_agents_are_told_apart(home: Path) -> None:
    """The runs of one agent say nothing of another's where one is asked for."""
    with (
        MemTier.open(home, settings=WITHHOLD) as mine,
        MemTier.open(home, agent_id="other", settings=WITHHOLD) as theirs,
    ):
        own, other = say(mine, "the barn is red").id, say(theirs, "the oak is tall").id
        history(mine, [own], {None: [1.0] * 2})
        history(theirs, [other], {None: [1.0] * 3})
        report = mine.causes.uplift("main")
        assert [line.id for line in report.lines] == [own] and report.runs == 2
        assert mine.causes.uplift().runs == 5
        # A run of the same name of another agent is another run.
        assert {line.id for line in mine.causes.uplift("other").lines} == {other}


def test_what_is_forgotten_or_purged_is_not_told_of(memory: Memory) -> None:
    """A forgotten line has no row, and a purge leaves none of its words anywhere."""
    barn, oak = (
        say(memory, text, run_id=run).id
        for run, text in (("r1", "the barn is red"), ("r2", "a quercus robur grows"))
    )
    history(memory, [barn, oak], {None: [1.0] * 30, barn: [-0.5] * 25, oak: [-0.5] * 25})
    assert len(memory.causes.uplift().lines) == 2
    memory.forget(ids=[barn])
    assert [line.id for line in memory.causes.uplift().lines] == [oak]
    memory.purge(Selection(ids=(oak,)))
    assert memory.causes.uplift().lines == []
    written = b"".join(path.read_bytes() for path in memory.folder.rglob("*.jsonl"))
    assert b"quercus" not in written


def test_weights_follow_an_interval_that_excludes_zero(home: Path) -> None:
    """Where it is switched on, credit gives way to uplift; off again, the credit counts again."""
    with MemTier.open(home, settings=WITHHOLD | {"causes.weigh": True}) as memory:
        barn, oak, elm = (
            entry.id for entry in say_each(memory, "a red barn", "a tall oak", "an old elm")
        )
        rewards: dict[str | None, list[float]] = {
            None: [1.0] * 60, barn: [-0.5] * 30, oak: [1.0] * 10, elm: [1.0] * 30,
        }  # fmt: skip
        history(memory, [barn, oak, elm], rewards)
        follow_causes(memory)
        memory.catch_up()
        weights = {entry.id: entry.cognitive_weight for entry in memory.entries()}
        [event] = memory.events(kinds=["uplift"])
        bound = UpliftEvent.of(event)
        assert bound.items == (barn,) and 0 < weights[barn] <= bound.low < bound.mean
        assert weights[oak] == weights[elm] == 0.0
        assert memory.causes.bound_weights() == 0  # nothing is new
        before = content(memory)
        memory.reindex()
        assert content(memory)["states"] == before["states"]
    with MemTier.open(home) as memory:
        follow_causes(memory)
        memory.catch_up()
        assert {entry.cognitive_weight for entry in memory.entries()} == {0.0}


def test_nothing_follows_by_default(memory: Memory) -> None:
    """Weights keep to the credits, and nothing is proposed, unless the settings say so."""
    barn = say(memory, "the barn is red").id
    history(memory, [barn], {None: [1.0] * 30, barn: [-0.5] * 30})
    follow_causes(memory)
    memory.catch_up()
    assert memory.events(kinds=["uplift", "propose_forget"]) == []
    assert jobs_in_group("daily", Settings()) == ["sweep"]
    assert jobs_in_group("daily", memory.settings) == ["causes", "sweep"]
