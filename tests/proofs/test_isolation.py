"""What one agent recalls does not depend on what another one wrote."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtier_bench.synthetic import SyntheticChat
from memtier_plugin.memory import MemTier
from tests.proofs.checks import ask, show, unequal

MINE, THEIRS, BATCH = 1_000, 50_000, 500
AT = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.slow
def test_fifty_thousand_entries_of_another_agent(home: Path) -> None:
    """Agent A's 100 recalls, and what they read, are the same beside 50,000 entries of B."""
    source = SyntheticChat(3)  # both speak the same words, so that shared statistics would show
    sessions = source.sessions()
    paper = {"retrieval.profile": "paper"}
    with (
        MemTier.open(home, "shared", "a") as mine,
        MemTier.open(home, "shared", "a", paper) as published,
        MemTier.open(home, "shared", "b") as theirs,
    ):
        texts: list[str] = []
        while len(texts) < MINE:
            session = next(sessions)
            mine.record(
                session.messages, session_id=session.session_id, observed_at=session.observed_at
            )
            texts += [message.content for message in session.messages]
        questions = [source.question(source.pick(texts)) for _ in range(100)]
        before = ask(mine, questions, AT)
        before_paper = ask(published, questions[:10], AT)

        started = time.perf_counter()
        written = 0
        while written < THEIRS:
            batch = [m for _ in range(BATCH // 20) for m in next(sessions).messages]
            written += len(theirs.record(batch, session_id=f"bulk {written}"))
        seconds = time.perf_counter() - started
        theirs.catch_up()

        after = ask(mine, questions, AT)
        after_paper = ask(published, questions[:10], AT)
        assert unequal(before, after) == []
        assert unequal(before_paper, after_paper) == []
        assert [recall.postings for recall in before] == [recall.postings for recall in after]
        assert all(hit.item.agent_id == "a" for recall in after for hit in recall.hits)
        assert any(hit.item.agent_id == "b" for hit in theirs.recall(questions[0], at=AT).hits)
    show(
        f"{MINE} entries of A, {written} of B",
        {
            "recalls of A equal": len(after),
            "in the paper profile": len(after_paper),
            "turns of B per second": round(written / seconds),
            "A's p50 ms without B": round(sorted(recall.ms for recall in before)[50], 1),
            "with B": round(sorted(recall.ms for recall in after)[50], 1),
        },
    )
