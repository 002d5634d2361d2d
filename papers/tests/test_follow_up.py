"""Searching on: what waits is read before the end, and nothing is read or asked twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.tiermem.follow_up import LINES_PER_ROUND, follow_up
from memtier_papers.tiermem.routing import RoutingInput
from memtier_plugin import MemTier
from memtier_plugin.answering.llm import FollowUp, FollowUpBudget
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.visibility import PageReader, Viewer
from memtier_plugin.text.tokenizer import Tokenizer

TOKENS = Tokenizer("english")


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), max_size=6), st.integers(1, 3))
def test_pages_are_read_once_and_none_is_lost(offers: list[list[str]], at_once: int) -> None:
    """Whatever is offered when, each page is taken exactly once, a round's number at a time."""
    research = FollowUpBudget(at_once)
    read: list[str] = []
    for offered in offers:
        research.add_pages(offered)
        now = research.take_pages()
        assert len(now) <= at_once
        read += now
    while now := research.take_pages():
        read += now
    assert len(read) == len(set(read))
    assert set(read) == {page for offered in offers for page in offered}


def test_no_search_is_made_twice() -> None:
    """Keywords count as a set, meanings as their words, neither by case; nothing is no search."""
    research = FollowUpBudget(5)
    first = [
        FollowUp("keyword", "Oslo Rex"),
        FollowUp("keyword", "rex OSLO"),
        FollowUp("semantic", "Oslo Rex"),
        FollowUp("keyword", "  "),
    ]
    assert research.claim_new(first) == [first[0], first[2]]
    assert research.claim_new(
        [FollowUp("semantic", "oslo  rex"), FollowUp("semantic", "Rex Oslo")]
    ) == [FollowUp("semantic", "Rex Oslo")]


def test_rounds_look_for_what_is_unsaid(home: Path, day: Callable[..., datetime]) -> None:
    """Lines that leave half of a question unsaid are added to from their page, a few at most."""
    with MemTier.open(home) as memory:
        memory.record(
            [
                {"role": "user", "content": text}
                for text in (
                    "We talked about the garden",
                    "The plumber comes on Friday",
                    "Bring the ladder",
                )
            ],
            session_id="s",
        )
        with memory.store.session() as reader:
            pages = PageReader(reader, Viewer("main", None, False, day(9)))
            hits = pages.visible_entries([entry.id for entry in memory.entries()])
            garden = next(hit for hit in hits.values() if "garden" in hit.text)
            query = "When does the plumber come to repair pipes?"
            searches: list[FollowUp] = []

            def search(command: FollowUp) -> list[Hit]:
                searches.append(command)
                return []

            terms = dict.fromkeys(TOKENS.words(query), 1.0)
            routing = RoutingInput(query, (garden,), terms, TOKENS.words, {})
            lines, steps = follow_up(routing, [garden], pages, search)
            assert [hit.text for hit in lines][1:] == ["The plumber comes on Friday"]
            assert len(lines) <= 1 + LINES_PER_ROUND
            assert steps[0].name == "linked pages"
            assert len(steps) <= 4
            stated = RoutingInput("garden talk", (garden,), {"garden": 1.0}, TOKENS.words, {})
            assert follow_up(stated, [garden], pages, search) == ([garden], [])
            assert follow_up(routing, [], pages, search) == ([], [])
