"""The view models: what they show is what the journal and the ledgers have."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import CreditEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.facts.views import FactView
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.state import fold
from memtier_plugin.views.history import (
    bar,
    fact_timeline,
    signed_sparkline,
    span,
    sparkline,
    weight_points,
)
from memtier_plugin.views.journal import summarise
from memtier_plugin.views.reading import (
    find_newest_day,
    read_line_history,
    read_log_lines,
    read_recall,
    read_timeline,
)
from tests.builders import START, make_draft, make_fact, say, user_message

Day = Callable[..., datetime]


def run_with(memory: MemTier, query: str, run: str, *, ok: bool) -> str:
    """Recall for a prompt, and end the run with a tool that fared so; return the recall's id."""
    recall = memory.recall(query, session_id=run, run_id=run, purpose="inject")
    call = {"id": "c", "type": "function", "function": {"name": "probe", "arguments": "{}"}}
    memory.end_run(
        [
            user_message(query),
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "name": "probe", "content": "x", "ok": ok},
            {"role": "assistant", "content": "Pier nine."},
        ],
        session_id=run,
        run_id=run,
    )
    return recall.id


def test_a_line_has_its_recalls_credits_and_weights(home: Path) -> None:
    """The curve ends at the weight of now; each recall and credit of the line is there, in order.

    What another line was credited for is not.
    """
    with MemTier.open(home) as memory:
        line = say(memory, "The ferry to Skagen leaves from pier nine.", session_id="old")
        other = say(memory, "Bread rises for two hours.", session_id="bread")
        recalls = [
            run_with(memory, "Which pier does the ferry to Skagen leave from?", f"r{n}", ok=n < 2)
            for n in range(3)
        ]
        history = read_line_history(memory, line.id[-8:])
        assert [recall.id for recall in history.recalls if recall.injected] == recalls
        assert [credit.run for credit in history.credits] == ["r0", "r1", "r2"]
        assert [credit.delta > 0 for credit in history.credits] == [True, True, False]
        assert history.curve[0] == 0 and history.weights[0].at == to_iso(line.timestamp)
        assert history.curve[-1] == pytest.approx(history.weight, abs=1e-6) != 0
        assert (history.text, history.tier, history.state) == (line.content, "episodic", "active")
        assert history.file and history.line == 1
        assert not read_line_history(memory, other.id).credits


def test_a_forgotten_line_has_no_text(home: Path) -> None:
    """The history of what was forgotten shows that, and not its words; of what is not known, none.

    A purged line is not known.
    """
    with MemTier.open(home) as memory:
        line = say(memory, "The safe opens with four turns.")
        memory.forget(ids=[line.id])
        history = read_line_history(memory, line.id)
        assert history.text is None and history.state == "forgotten"
        assert [change.what for change in history.changes] == ["forget"]
        with pytest.raises(NotFound):
            read_line_history(memory, "ZZZZZZZZ")


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.floats(-1, 1), st.integers(0, 9)),
        max_size=12,
    )
)
def test_the_curve_is_the_fold_of_what_was_known(
    credits: list[tuple[str, int, float, int]],
) -> None:
    """After each event the curve has what the fold makes of the events until then."""
    events = [
        JournalEvent(
            id=f"e{n:02}",
            kind=CreditEvent.KIND,
            timestamp=START + timedelta(minutes=minutes),
            agent_id="a",
            run_id=run,
            data=CreditEvent(item="x", attempt=attempt, delta=delta).to_data(),
        )
        for n, (run, attempt, delta, minutes) in enumerate(credits)
    ]
    ordered = sorted(events, key=lambda event: (event.timestamp, event.id))
    points = weight_points(to_iso(START), ordered)
    assert [point.weight for point in points[1:]] == [
        round(fold(ordered[:n]).weight, 6) for n in range(1, len(ordered) + 1)
    ]


def test_a_recall_is_shown_with_its_bars_and_its_block(home: Path) -> None:
    """The bars of a line add up to its score, the largest fills its bar, and the block is exact."""
    with MemTier.open(home) as memory:
        for number in range(12):
            say(memory, f"The ferry number {number} to Skagen leaves from pier {number}.")
        made = memory.recall("Which pier does the ferry number 3 to Skagen leave from?", k=2)
        view = read_recall(memory, made.id)
        assert [row.id for row in view.injected] == [hit.id for hit in made.injected]
        assert view.silence == ""
        for row in view.injected:
            assert sum(bar.added for bar in row.bars) == pytest.approx(row.score, abs=0.2)
        rows = [*view.injected, *view.near_misses]
        assert max(bar.share for row in rows for bar in row.bars) == 1.0
        assert all(row.behind is not None for row in view.near_misses)
        assert view.block == {"text": made.text, "tokens": made.tokens, "exact": True}
        memory.forget(ids=[made.injected[0].id])
        after = read_recall(memory, made.id)
        assert after.injected[0].text is None
        assert after.block and not after.block["exact"]
        assert made.injected[0].text not in after.block["text"]


@pytest.mark.parametrize("query", ["thanks!", "What is the capital of Peru?"])
def test_a_silent_recall_has_its_reason(home: Path, query: str) -> None:
    """A recall that injects nothing has the reason that was journalled then, and no block."""
    with MemTier.open(home) as memory:
        say(memory, "The ferry to Skagen leaves from pier nine.")
        made = memory.recall(query, session_id="t", purpose="inject")
        view = read_recall(memory, made.id)
        assert not view.injected and view.silence
        assert made.silent in view.silence
        assert view.block == {"text": "", "tokens": 0, "exact": True}


def test_a_timeline_has_each_value_on_one_line_of_time(home: Path) -> None:
    """What was superseded ends where the next one starts; what holds reaches to now."""
    with MemTier.open(home) as memory:
        line = say(memory, "The fox works at Acme, and later at Bolt.")
        day = [datetime(2026, 1, n, tzinfo=UTC) for n in (1, 5)]
        [old] = memory.add_facts([make_draft(line, "Acme", valid_from=day[0])])
        [new] = memory.add_facts([make_draft(line, "Bolt", valid_from=day[1])])
        timeline = read_timeline(memory, "The Fox")
        [relation] = timeline.relations
        first, second = relation.facts
        assert (first.id, second.id, first.by) == (old.id, new.id, new.id)
        assert (first.state, second.state, second.until) == ("superseded", "active", None)
        assert 0 == first.start < first.end == second.start < second.end == 1
        with pytest.raises(NotFound):
            read_timeline(memory, "the owl")


@given(
    st.lists(st.tuples(st.integers(0, 900), st.one_of(st.none(), st.integers(0, 1900))), max_size=8)
)
def test_a_timeline_stays_within_its_line(spans: list[tuple[int, int | None]]) -> None:
    """Whatever the dates, each fact is a stretch between 0 and 1, and one column wide at least."""
    views = [
        FactView(
            make_fact(
                "x",
                id=f"f{n}",
                valid_from=START + timedelta(days=since),
                valid_to=None if until is None else START + timedelta(days=until),
            ),
            "active",
        )
        for n, (since, until) in enumerate(spans)
    ]
    timeline = fact_timeline("Ann", views, START + timedelta(days=300))
    for relation in timeline.relations:
        for held in relation.facts:
            assert 0 <= held.start <= held.end <= 1
            drawn = span(held.start, held.end, 20)
            assert len(drawn) == 20 and "━" in drawn


def test_a_day_is_counted(home: Path) -> None:
    """The summary counts the entries of each hour, and the recalls that were silent."""
    with MemTier.open(home) as memory:
        for number, hour in enumerate((7, 7, 15)):
            at = datetime(2026, 3, 14, hour, tzinfo=UTC)
            say(memory, f"At {hour}, line {number}.", run_id=f"r{number}", observed_at=at)
        memory.recall("thanks!", session_id="t", purpose="inject")
        day = find_newest_day(memory, None)
        assert day == "2026-03-14"
        summary = summarise(read_log_lines(memory, date=None))
        assert (summary.entries, summary.recalls, summary.silent) == (3, 1, 1)
        assert {hour: count for hour, count in enumerate(summary.hours) if count} == {7: 2, 15: 1}


@given(st.lists(st.floats(-1, 1), max_size=60), st.floats(0, 1), st.integers(1, 40))
def test_drawings_have_the_width_asked_for(values: list[float], share: float, columns: int) -> None:
    """A sparkline has a character for each of the newest values, a bar no more than its columns."""
    assert len(sparkline(values, columns=columns)) == min(len(values), columns)
    assert len(bar(share, columns)) <= columns
    assert bar(1, columns) == "█" * columns and bar(0, columns) == ""
    assert len(signed_sparkline(values, columns)) == min(len(values), columns)
    assert signed_sparkline([0, 0.1, -0.1]) == "▅█▁" and signed_sparkline([0, 0]) == "▅▅"
    assert sparkline([0, 0.5, 1], 0, 1) == "▁▅█" and sparkline([2, 2]) == "▁▁"
