"""Lines that are left out of prompts by chance: which, how often, and that a replay repeats it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier_papers.memtier.events import Withholding
from memtier_papers.memtier.withholding import draw
from memtier_plugin import MemTier
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.results import Recall
from tests.builders import say_each

QUESTION = "Where do the fox and the owl sleep?"
LINES = ("the fox sleeps in the red barn", "the owl sleeps in the tall oak tree")
RULE = "From now on always answer questions on the fox and the owl in French."
DRAWN = [f"run {n}" for n in range(40) if (d := draw(f"main\nrun {n}", ["x"], 0.5)) and d.item]


def opened(home: Path, share: float = 0.5, **settings: Any) -> MemTier:
    """Return a memory that withholds a line in a share of the runs."""
    return MemTier.open(home, settings={"causes.withhold": share, **settings})


def ask(memory: MemTier, run: str | None, question: str = QUESTION, **more: Any) -> Recall:
    """Recall what a prompt of a run needs."""
    options = {"purpose": "inject", "session_id": f"of {run}", "run_id": run} | more
    return memory.recall(question, **options)


def test_a_line_is_left_out_and_nothing_takes_its_place(home: Path) -> None:
    """A drawn run lacks one line of the block of the others, and its recall says which."""
    with opened(home) as memory:
        lines = {entry.id for entry in say_each(memory, *LINES)}
        recalls = [ask(memory, f"run {n}") for n in range(16)]
        lotteries = [recall.withheld for recall in recalls]
        assert {lottery and lottery.p for lottery in lotteries} == {0.25}
        for recall, lottery in zip(recalls, lotteries, strict=True):
            assert lottery is not None
            shown = {hit.id for hit in recall.injected}
            assert shown == lines - {lottery.item}
            assert all(hit.text in recall.text for hit in recall.injected)
        drawn = [lottery.item for lottery in lotteries if lottery and lottery.item]
        # Which line a run goes without hangs on the lines' ids; whether it does, on the run alone.
        assert len(drawn) == sum(f"run {n}" in DRAWN for n in range(16)) and lines.issuperset(drawn)
        memory.catch_up()
        events = map(RecallEvent.of, memory.events(kinds=["recall"]))
        journalled = [Withholding.of(event) for event in events]
        assert Counter(map(str, journalled)) == Counter(map(str, lotteries))


def test_it_costs_nothing_where_it_is_off(home: Path, tmp_path: Path) -> None:
    """By default no run is drawn, nothing of it is journalled, and the block is as ever."""
    with MemTier.open(home) as memory, opened(tmp_path / "b", 0.5) as other:
        for each in (memory, other):
            say_each(each, *LINES)
        assert ask(memory, "run 1").withheld is None
        memory.catch_up()
        [event] = memory.events(kinds=["recall"])
        assert "withheld" not in event.data
        for purpose in ("search", "preview", "ask"):  # nor where no prompt is built
            assert ask(other, DRAWN[0], purpose=purpose).withheld is None
        assert ask(other, None).withheld is None  # nor where no run could be credited


def test_a_replay_gives_the_same(home: Path, tmp_path: Path) -> None:
    """The same run lacks the same line in another process, and in a copy of the project."""
    texts: list[list[str]] = []
    for folder in (home, tmp_path / "copy"):
        with opened(folder) as memory:
            say_each(memory, *LINES)
            recalls = [ask(memory, run) for run in DRAWN[:4]]
            texts.append([" ".join(sorted(hit.text for hit in r.injected)) for r in recalls])
    # Ids differ between the two, and so may the line that is drawn; whether one is does not.
    assert all(text in LINES for copy in texts for text in copy)
    with opened(home) as again:
        repeated = [ask(again, run, session_id=f"later {run}") for run in DRAWN[:4]]
    assert [" ".join(sorted(hit.text for hit in r.injected)) for r in repeated] == texts[0]


def test_a_run_lacks_one_line_in_all_of_its_prompts(home: Path) -> None:
    """A second prompt of a drawn run lacks the same line, and no other, also after a restart."""
    run = DRAWN[0]
    with opened(home) as memory:
        say_each(memory, *LINES, "the crow sleeps in the old mill", "the wren sleeps in the hedge")
        first = ask(memory, run)
        assert first.withheld and first.withheld.item
        second = ask(memory, run, session_id="another")
    with opened(home) as memory:
        third = ask(memory, run, session_id="a third")
        other = ask(memory, run, "Where does the wren sleep, and the crow?", session_id="fourth")
    for recall in (second, third, other):
        missing = recall.withheld.item if recall.withheld else None
        assert missing in (None, first.withheld.item)
        assert first.withheld.item not in {hit.id for hit in recall.injected}
    assert third.withheld and third.withheld.p == first.withheld.p


def test_what_must_be_shown_takes_no_part(home: Path) -> None:
    """A standing instruction is never withheld, nor a line on what is, or no longer is, current."""
    with opened(home) as memory:
        [rule] = say_each(memory, RULE)
        [old] = say_each(memory, "My favourite colour is blue.")
        [new] = say_each(memory, "I changed my mind, my favourite colour is green now.")
        for run in DRAWN[:6]:
            recall = ask(memory, run, "What is my favourite colour?")
            assert {old.id, new.id} <= {hit.id for hit in recall.injected}
            assert recall.withheld is None or not recall.withheld.item
        recall = ask(memory, DRAWN[0], QUESTION, session_id="rule")
        assert rule.id in {hit.id for hit in recall.injected}


def test_explain_and_status_tell_of_it(home: Path) -> None:
    """`explain` names the line and why it is not there; `status` counts; the block says nothing."""
    with opened(home) as memory:
        say_each(memory, *LINES)
        recall = ask(memory, DRAWN[0])
        assert recall.withheld and recall.withheld.item
        item = recall.withheld.item
        explained = memory.explain(recall.id)
        assert explained["withheld"]["item"] == item
        assert explained["withheld"]["text"] in LINES
        why = memory.explain(recall.id, why=item)["why"]
        assert why["reason"] == "withheld" and "causes.withhold" in why["said"]
        assert "withh" not in recall.text
        status = memory.status()["causes"]
        assert status.items() >= {"withhold": 0.5, "recalls": 1, "withheld": 1}.items()
        memory.forget(ids=[item])
        assert memory.explain(recall.id)["withheld"]["text"] == ""


@settings(max_examples=40)
@given(
    st.lists(st.text(min_size=1), min_size=1, max_size=6, unique=True),
    st.floats(0.01, 0.5),
    st.text(),
)
def test_draws_are_functions_of_the_run(lines: list[str], share: float, seed: str) -> None:
    """A draw is one of the lines or none, the same again, whatever the order of the lines."""
    lottery = draw(seed, lines, share)
    assert lottery is not None
    assert lottery.item is None or lottery.item in lines
    assert lottery == draw(seed, lines[::-1], share) and lottery.p == share / len(lines)
    assert draw(seed, [], share) is None


@pytest.mark.parametrize("size", [1, 3, 8])
def test_each_line_is_as_likely_as_any_other(size: int) -> None:
    """Of 20,000 runs a share p lacks a line, and each of m lines is missing in p / m of them."""
    lines, share, runs = [f"line {n}" for n in range(size)], 0.2, 20_000
    drawn = (draw(f"main\n{n}", lines, share) for n in islice(range(runs), runs))
    counts = Counter(lottery.item for lottery in drawn if lottery and lottery.item)
    assert isinstance(draw("main\n1", lines, share), Withholding)
    expected = runs * share / size
    for line in lines:
        assert abs(counts[line] - expected) < 4 * expected**0.5
