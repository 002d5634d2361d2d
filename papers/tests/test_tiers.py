"""Search in cache, buffer and archive, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memtier_papers.hmo.plugin import prioritiser_of
from memtier_papers.hmo.tables import PriorityReader
from memtier_papers.hmo.tiers import TIERS, TierName
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.results import RecallRequest
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.recall import Recaller
from tests.builders import MOMENT, START, Clock, say
from tests.loopback import Loopback
from tests.proofs.checks import assert_equal_to_rebuild, differences

SMALL = {"priority.enabled": True, "priority.sessions": 1, "priority.cache": 2,
         "priority.buffer": 4, "consolidation.probes": 0}  # fmt: skip
PLANTED = "The lighthouse keeper of Farol paints herons in violet ink."
QUESTION = "What does the lighthouse keeper of Farol paint in violet ink?"


@contextmanager
def opened(home: Path, search: str = "tiers", **settings: Any) -> Iterator[MemTier]:
    """Open a project that is searched so."""
    chosen = {**SMALL, "retrieval.search": search, **settings}
    with MemTier.open(home, "p", "a", chosen, clock=Clock(START, MOMENT)) as memory:
        yield memory


def fill(memory: MemTier, planted: int) -> str:
    """Record twelve sessions, the planted line in one of them; return its id."""
    ids = {}
    for number in range(12):
        text = PLANTED if number == planted else f"The barge {number} carries {number} crates."
        ids[number] = say(memory, text, session_id=f"s{number}").id
        prioritiser_of(memory).run()
    return ids[planted]


def recall_to(
    memory: MemTier, reach: TierName, query: str = QUESTION, sender: str | None = None
) -> Any:
    """Recall from a tier and those before it."""
    recaller = Recaller(memory.actor)
    recaller.stage = reach
    return recaller.recall(query, RecallRequest(sender=sender, at=START))


def test_each_tier_holds_those_before_it(home: Path) -> None:
    """A tier's hits are entries of it or one before; the archive's are those of a flat search."""
    with opened(home) as memory:
        fill(memory, 0)
        by_tier = {tier: {hit.id for hit in recall_to(memory, tier).hits} for tier in TIERS}
        assert by_tier["cache"] <= by_tier["buffer"] <= by_tier["archive"]
        active = memory.store.reader().plugin_tables(PriorityReader).active("a", "")
        scopes = memory.store.reader().scopes("a", None)
        recent = memory.store.reader().plugin_tables(PriorityReader).recent_rows(scopes, 1, 100)
        assert len(recent) == 1
        in_cache = {entry.id for entry in active if entry.tier == 1 or entry.row in recent}
        assert by_tier["cache"] <= in_cache
        archive = recall_to(memory, "archive")
    with opened(home, "flat") as memory:
        flat = memory.recall(QUESTION, at=START)
        assert not differences(archive, flat)


@pytest.mark.parametrize("planted", [0, 11])
def test_what_is_asked_for_is_found_in_any_tier(home: Path, planted: int) -> None:
    """The line that answers is found whether it is in the cache or must be dug for."""
    with opened(home) as memory:
        wanted = fill(memory, planted)
        recall = memory.recall(QUESTION, at=START)
        assert recall.hits[0].id == wanted
        names = [step.name for step in recall.steps if step.name in TIERS]
        assert names == [*TIERS[: len(names)]]
        memory.catch_up()
        event = memory.store.reader().event(recall.id)
        assert event is not None
        steps = [step["name"] for step in RecallEvent.of(event).steps]
        assert [name for name in steps if name in TIERS] == names


def test_senders_have_tiers_of_their_own(home: Path) -> None:
    """No tier of one sender holds a line of another, and none of another agent."""
    with opened(home) as memory:
        for number in range(6):
            say(memory, PLANTED, sender="ann", session_id=f"a{number}")
            say(memory, "The barge is full.", sender="bob", session_id=f"b{number}")
        prioritiser_of(memory).run()
        for tier in TIERS:
            recall = recall_to(memory, tier, sender="bob")
            assert all(hit.item.sender == "bob" for hit in recall.hits)


def test_what_is_forgotten_is_in_no_tier(home: Path) -> None:
    """A pointer at a forgotten entry leads nowhere."""
    with opened(home) as memory:
        wanted = fill(memory, 0)
        memory.forget(ids=[wanted])
        assert all(wanted not in {h.id for h in recall_to(memory, tier).hits} for tier in TIERS)


def test_a_buffer_reads_nothing_that_the_cache_did(home: Path) -> None:
    """It adds what it has beyond the cache."""
    query = "Which violin was on the barge to Porto?"
    with opened(home) as memory:
        fill(memory, 11)
        recall = memory.recall(query, at=START)
        read = {step.name: step.read for step in recall.steps if step.name in TIERS}
        assert [*read] == [*TIERS]
        [buffer] = [s for s in recall_to(memory, "buffer", query).steps if s.name == "buffer"]
        assert read["cache"] + read["buffer"] == buffer.read


@pytest.mark.parametrize("cap", [1_000, 50_000])
def test_a_search_that_no_tier_ends_is_the_flat_one(home: Path, cap: int) -> None:
    """What cache and buffer read changes nothing, also where the cap cuts common words."""
    query = "Which violin was on the barge with crates to Porto?"
    limits = {"retrieval.postings_cap": cap, "priority.sessions": 3}
    with opened(home, **limits) as memory:
        for session in range(12):
            lines = [f"Barge {n}: {'crates' if n % 3 else 'waits'} in Porto." for n in range(50)]
            messages = [{"role": "user", "content": f"{session} {line}"} for line in lines]
            memory.record(messages, session_id=f"s{session}", observed_at=START)
        prioritiser_of(memory).run()
        recall = memory.recall(query, at=START)
        assert [step.name for step in recall.steps if step.name in TIERS] == [*TIERS]
    with opened(home, "flat", **limits) as memory:
        assert not differences(recall, memory.recall(query, at=START))


def test_without_priorities_the_latest_sessions_are_the_cache(home: Path) -> None:
    """Where nothing was rated yet, the search begins with the latest sessions and ends with all."""
    with opened(home) as memory:
        wanted = say(memory, PLANTED).id
        assert memory.recall(QUESTION, at=START).hits[0].id == wanted


def test_equal_to_a_rebuild(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiered recalls are the same from an index made anew."""
    monkeypatch.setenv("MEMTIER_RETRIEVAL__SEARCH", "tiers")
    with opened(home) as memory:
        fill(memory, 3)
    queries = [QUESTION, "Which barge carries 7 crates?", "barge 4"]
    assert assert_equal_to_rebuild(home, "p", ["a"], queries, START) == 3


@pytest.mark.parametrize(("answers", "asked"), [(["ENOUGH"], 1), (["<NEED_MORE>"] * 2, 2),
                                                (["ENOUGH <NEED_MORE>", "hm"], 2)])  # fmt: skip
def test_a_model_says_whether_it_needs_more(
    home: Path, server: Loopback, answers: list[str], asked: int
) -> None:
    """`ask` goes on to the next tier unless its model says that a tier is enough."""
    server.answers(*answers, {"findings": [], "missing": ""}, {"decision": "DONE", "searches": []})
    settings = {
        "endpoints": {"loop": {"base_url": server.base_url}},
        "ask.model": "endpoint:loop/m",
    }
    with opened(home, **settings) as memory:
        fill(memory, 11)
        answer = memory.ask(QUESTION, at=START)
        names = [step.name for step in answer.steps]
        assert names.count("suffice") == asked
        assert names.count("recall raw") >= min(3, asked + 1 if answers[-1] != "ENOUGH" else 1)
