"""The `rrf` profile: ranks by words and by vectors, fused as True Memory was published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.memtier.scorer import fuse_ranks
from memtier_papers.true_memory.fused_search import LISTED, WEIGHTS, score_lists
from memtier_plugin import MemTier
from memtier_plugin.retrieval.query import parse_query
from memtier_plugin.storage.index.candidate_reader import Candidate
from memtier_plugin.text.tokenizer import Tokenizer
from tests.builders import say

Day = Callable[..., datetime]
FILE = Path(__file__).parent / "golden" / "true_memory.json"
GOLDEN = [g for g in json.loads(FILE.read_text("utf-8")) if g["id"].startswith("rrf_")]
SETTINGS = {"retrieval.profile": "rrf", "embedding.model": "default"}
TOKENS = Tokenizer("english")
NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def memory(home: Path) -> Iterator[MemTier]:
    """Return a memory whose profile is `rrf`."""
    with MemTier.open(home, settings=SETTINGS) as opened:
        yield opened


def candidate(row: int, observed: datetime = NOW) -> Candidate:
    """Return an entry's properties, as far as the fusion uses them."""
    return Candidate(
        row, f"e{row}", "episodic", 1, row, "user", "Ann", False, observed.timestamp(), 5, 0.0, 1.0
    )


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["id"])
def test_ranks_are_fused_as_published(golden: Mapping[str, Any]) -> None:
    """The score of eq. 2 and 3 comes out of the shipped code, by value and by order."""
    given_ = golden["inputs"]
    fused = fuse_ranks(given_["lists"], given_["k"], given_["weights"])
    assert fused == pytest.approx(golden["expected"], abs=golden["tolerance"])
    assert [*fused] == [*golden["expected"]]


lists = st.lists(st.permutations(range(8)).map(lambda rows: rows[:5]), min_size=1, max_size=3)


@given(lists)
def test_a_score_is_the_sum_of_what_each_list_adds(ranked: Sequence[Sequence[int]]) -> None:
    """Weight times signal, over the lists that have a row, is its score; each signal is in 0..1."""
    by_row = {row: candidate(row) for row in range(8)}
    query = parse_query("the shed", NOW, TOKENS)
    scored = score_lists(query, by_row, dict(zip(WEIGHTS, ranked, strict=False)))
    assert {row for row, _, _ in scored} == {row for rows in ranked for row in rows}
    assert [score for _, score, _ in scored] == sorted((s for _, s, _ in scored), reverse=True)
    for _, score, signals in scored:
        assert score == pytest.approx(sum(WEIGHTS[name] * v for name, v in signals.items()))
        assert all(0 <= value <= 1 for value in signals.values())


def test_the_time_that_is_named_counts_for_more() -> None:
    """What was said in the window of the query is multiplied by 1.3, and nothing else."""
    march = datetime(2026, 3, 10, tzinfo=UTC)
    by_row = {1: candidate(1), 2: candidate(2, march)}
    query = parse_query("What happened in March 2026?", NOW, TOKENS)
    scored = {row: score for row, score, _ in score_lists(query, by_row, {"words": [1, 2]})}
    assert scored == {1: pytest.approx(1.0), 2: pytest.approx(1.3 * 61 / 62)}
    plain = parse_query("What happened?", NOW, TOKENS)
    scored = {row: score for row, score, _ in score_lists(plain, by_row, {"words": [1, 2]})}
    assert scored == {1: pytest.approx(1.0), 2: pytest.approx(61 / 62)}


def test_recall_fuses_words_and_meaning(memory: MemTier) -> None:
    """What both lists have comes first, and the explanation says what each of them added."""
    say(memory, "The violin lesson moved to Thursday.")
    say(memory, "We planted runner beans behind the shed.")
    say(memory, "The ferry to Skagen leaves at seven.")
    recall = memory.recall("When is the violin lesson?", purpose="inject", session_id="s")
    assert recall.hits[0].text.startswith("The violin")
    assert recall.hits[0].signals == {"words": 1.0, "dense": 1.0}
    assert recall.hits[0].score == pytest.approx(2.0)
    assert recall.label == "hybrid"
    explained = memory.explain(recall.id)
    assert explained["profile"] == "rrf"
    assert explained["injected"][0]["contributions"] == {"words": 1.0, "dense": 1.0}


@pytest.mark.parametrize("speakers, expected", [(5, False), (6, True)])
def test_who_speaks_counts_where_many_do(memory: MemTier, speakers: int, expected: bool) -> None:
    """The separation list joins in where there are more than five speakers."""
    for number in range(speakers):
        message = {"role": "user", "content": f"My ferry leaves at {number}.", "name": f"P{number}"}
        memory.record([message], session_id="s")
    hits = memory.recall("When does the ferry leave?").hits
    assert len(hits) == speakers
    assert all(("separation" in hit.signals) == expected for hit in hits)


@pytest.mark.parametrize(
    "settings, query, expected",
    [
        ({}, "thanks Bob, noted?", True),
        ({}, "Was it noted, thanks?", False),
        ({"rrf.guard": False}, "Was it noted, thanks?", True),
        ({}, "Give me an overview of what we noted, thanks", True),
    ],
)
def test_guard_drops_what_only_acknowledges(
    home: Path, settings: Mapping[str, Any], query: str, expected: bool
) -> None:
    """An acknowledgement is no hit, unless its speaker is named or an overview is asked for."""
    with MemTier.open(home, settings={**SETTINGS, **settings}) as memory:
        lines = {"Bob": "Thanks, noted!", "Eve": "The invoice was noted in the book."}
        for who, text in lines.items():
            memory.record([{"role": "user", "content": text, "name": who}], session_id="s")
        shown = {hit.text for hit in memory.recall(query).hits}
    assert "The invoice was noted in the book." in shown
    assert ("Thanks, noted!" in shown) == expected


def test_size_is_its_own(memory: MemTier) -> None:
    """At most ten lines are injected, of what `rrf` lists, each text once."""
    for number in range(14):
        say(memory, f"The ferry leaves pier {number}.")
    say(memory, "The ferry leaves pier 3.")
    recall = memory.recall("ferry pier", purpose="inject", session_id="s")
    assert len(recall.injected) == 10
    assert len({hit.text for hit in recall.hits}) == len(recall.hits) == 14
    assert LISTED == 200


def test_rebuilt_index_ranks_the_same(home: Path, day: Day) -> None:
    """Hits, scores and signals are those of an index that is made again."""
    with MemTier.open(home, settings=SETTINGS) as memory:
        for number in range(30):
            say(memory, f"The ferry leaves pier {number % 7} at {number}.")
        before = memory.recall("Which pier does the ferry leave?", at=day(3)).hits
        memory.reindex()
        after = memory.recall("Which pier does the ferry leave?", at=day(3)).hits
    assert [(h.id, h.score, h.signals) for h in before] == [
        (h.id, h.score, h.signals) for h in after
    ]
