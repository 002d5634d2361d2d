"""The `rrf` profile: ranks by words and by vectors, fused as True Memory was published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.memtier.scorer import fuse_ranks
from memtier_papers.true_memory.fused_search import (
    LISTED,
    WEIGHTS,
    Scored,
    boost,
    inject_prior,
    score_lists,
)
from memtier_papers.true_memory.style import StyleVector
from memtier_papers.true_memory.surprise import line_surprise
from memtier_plugin import MemTier
from memtier_plugin.retrieval.query import parse_query
from memtier_plugin.storage.index.candidate_reader import Candidate
from memtier_plugin.text.tokenizer import Tokenizer
from tests.builders import say

Day = Callable[..., datetime]
FILE = Path(__file__).parent / "golden" / "true_memory.json"
EXAMPLES = json.loads(FILE.read_text("utf-8"))
GOLDEN = [g for g in EXAMPLES if g["id"].startswith("rrf_")]
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
    assert {hit.row for hit in scored} == {row for rows in ranked for row in rows}
    assert [hit.score for hit in scored] == sorted((hit.score for hit in scored), reverse=True)
    for _, score, signals, _ in scored:
        assert score == pytest.approx(sum(WEIGHTS[name] * v for name, v in signals.items()))
        assert all(0 <= value <= 1 for value in signals.values())


def test_the_time_that_is_named_counts_for_more() -> None:
    """What was said in the window of the query is multiplied by 1.3, and nothing else."""
    march = datetime(2026, 3, 10, tzinfo=UTC)
    by_row = {1: candidate(1), 2: candidate(2, march)}
    query = parse_query("What happened in March 2026?", NOW, TOKENS)
    scored = {hit.row: hit.score for hit in score_lists(query, by_row, {"words": [1, 2]})}
    assert scored == {1: pytest.approx(1.0), 2: pytest.approx(1.3 * 61 / 62)}
    plain = parse_query("What happened?", NOW, TOKENS)
    scored = {hit.row: hit.score for hit in score_lists(plain, by_row, {"words": [1, 2]})}
    assert scored == {1: pytest.approx(1.0), 2: pytest.approx(61 / 62)}


def test_surprise_multiplies_as_published() -> None:
    """A score is multiplied by 1 + alpha sigma, and by 1 where nothing surprises (stage 9)."""
    [example] = [g for g in EXAMPLES if g["id"] == "tm_surprise_boost"]
    inputs = example["inputs"]
    boosted = boost(inputs["score"], inputs["sigma"], inputs["alpha"])
    assert boosted == pytest.approx(example["expected"], abs=example["tolerance"])
    assert boost(inputs["score"], 0.0, inputs["alpha"]) == inputs["score"]


def test_the_prior_gets_its_share_of_the_best_score() -> None:
    """Profiles get .8 and the best styled line .9 of the best score (f_L0 in eq. 4); none loses."""
    scored = [Scored(1, 2.0, {"words": 1.0}), Scored(2, 1.9, {}), Scored(3, 0.5, {})]
    injected = inject_prior(scored, {"profile": {4: 1.0}, "style": {3: 1.0, 2: 0.5, 5: 0.25}})
    least = {hit.row: max(hit.score, hit.prior) for hit in injected}
    assert least == pytest.approx({1: 2.0, 2: 1.9, 3: 1.8, 4: 1.6, 5: 0.45})
    assert {hit.row: hit.score for hit in injected} == {1: 2.0, 2: 1.9, 3: 0.5, 4: 0.0, 5: 0.0}
    assert inject_prior([], {"profile": {4: 1.0}})[0].prior == pytest.approx(0.8)


LATER = "Did I say that Zelda joined Contoso in Oslo?"


@pytest.mark.parametrize("alpha", [0.2, 0.0])
def test_what_is_new_ranks_higher(home: Path, alpha: float) -> None:
    """Each hit has its fused score times 1 + alpha sigma, and the list is in that order."""
    lines = ("Zelda joined Contoso in Oslo.", LATER, "Contoso paid 300 euros on 3 May 2026.")
    with MemTier.open(home, settings={**SETTINGS, "rrf.surprise": alpha}) as memory:
        for line in lines:
            say(memory, line)
        hits = memory.recall("Zelda Contoso Oslo").hits
    assert {hit.text for hit in hits} == {*lines}
    for hit in hits:
        fused = sum(WEIGHTS[name] * v for name, v in hit.signals.items() if name in WEIGHTS)
        assert hit.score == pytest.approx(fused * (1 + alpha * hit.signals.get("surprise", 0.0)))
        assert ("surprise" in hit.signals) == bool(alpha)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    news = {hit.text: hit.signals.get("surprise") for hit in hits}
    if alpha:
        assert news[lines[0]] == line_surprise(lines[0], lambda mark: True)
        assert news[LATER] == line_surprise(LATER, lambda mark: False)


def test_order_does_not_depend_on_what_is_read_together(memory: MemTier) -> None:
    """A line beyond the first hundred rises by its surprise as far as it would if all were read."""
    kinds = ("old", "new", "long", "short", "slow", "fast", "red", "blue", "big", "small")
    for ferry, pier in product(kinds, kinds):
        say(memory, f"the {ferry} ferry and the {pier} pier")
    say(memory, f"Anna Berg of Oslo paid $40 and $50 on 3 May 2026 {'again ' * 12}for the ferry")
    with MemTier.open(memory.home, settings={**SETTINGS, "retrieval.candidates": 1000}) as wide:
        every = wide.recall("ferry pier").hits
    fused = {hit.id: hit.score / (1 + 0.2 * hit.signals["surprise"]) for hit in every}
    [anna] = [hit for hit in every if hit.text.startswith("Anna")]
    assert sum(score > fused[anna.id] for score in fused.values()) >= 100 > every.index(anna)
    assert [hit.score for hit in every] == sorted((hit.score for hit in every), reverse=True)
    assert [hit.id for hit in memory.recall("ferry pier").hits] == [hit.id for hit in every[:100]]


ANN = tuple(
    f"Oh dear me, I simply adore {colour} {flower}, my lovelies, don't you?!"
    for colour in ("white", "yellow", "crimson", "violet", "pale")
    for flower in ("poppies", "lilacs")
)
BEN = tuple(
    f"I repaired engine {number} in the garage, and rotated its keys." for number in range(10)
)


@pytest.mark.parametrize("profiles", [True, False])
def test_questions_about_somebody_bring_in_who_they_are(home: Path, profiles: bool) -> None:
    """The profile of a person who is asked about gets .8 of the best score, their style .9."""
    with MemTier.open(home, settings={**SETTINGS, "people.profiles": profiles}) as memory:
        for name, lines in (("Ann", ANN), ("Ben", BEN)):
            for number, line in enumerate(lines):
                message = {"role": "user", "content": line, "name": name}
                memory.record([message], session_id=name, run_id=f"{name}{number}")
        memory.summariser.run()
        hits = memory.recall("What kind of person is Ann?").hits
        other = memory.recall("When did Ann talk of poppies?").hits
        memory.reindex()
        again = memory.recall("What kind of person is Ann?").hits
    assert [(hit.id, hit.score) for hit in again] == [(hit.id, hit.score) for hit in hits]
    assert not any({"profile", "style"} & {*hit.signals} for hit in other)
    prior = {hit.text: hit for hit in hits if {"profile", "style"} & {*hit.signals}}
    if not profiles:
        assert not prior
        return
    fused = (sum(WEIGHTS[n] * v for n, v in h.signals.items() if n in WEIGHTS) for h in hits)
    best = max(fused)
    [profile] = [hit for hit in prior.values() if "profile" in hit.signals]
    assert profile.text.startswith("Ann:") and profile.score == pytest.approx(0.8 * best)
    styled = {text for text, hit in prior.items() if "style" in hit.signals}
    assert styled == {*ANN}
    style = StyleVector.of(ANN)
    most = max(map(style.likeness, ANN))
    for text in styled:
        hit = prior[text]
        assert hit.signals["style"] == pytest.approx(style.likeness(text) / most)
        assert hit.score >= 0.9 * best * hit.signals["style"] - 1e-9


def test_style_is_private_to_its_scope(home: Path) -> None:
    """Lines in somebody's style come from the asker's own scope, also of a namesake elsewhere."""
    with MemTier.open(home, settings={**SETTINGS, "people.profiles": True}) as memory:
        for sender, lines in (("one", ANN), ("two", BEN)):
            for number, line in enumerate(lines):
                message = {"role": "user", "content": line, "name": "Ann"}
                run = f"{sender}{number}"
                memory.record([message], session_id=sender, run_id=run, sender=sender)
        memory.summariser.run()
        for sender, lines in (("one", ANN), ("two", BEN), ("three", ())):
            hits = memory.recall("What kind of person is Ann?", sender=sender).hits
            assert {hit.text for hit in hits if "style" in hit.signals} == {*lines}


def test_recall_fuses_words_and_meaning(memory: MemTier) -> None:
    """What both lists have comes first, and the explanation says what each of them added."""
    say(memory, "The violin lesson moved to Thursday.")
    say(memory, "We planted runner beans behind the shed.")
    say(memory, "The ferry to Skagen leaves at seven.")
    recall = memory.recall("When is the violin lesson?", purpose="inject", session_id="s")
    assert recall.hits[0].text.startswith("The violin")
    new = line_surprise("The violin lesson moved to Thursday.", lambda mark: True)
    assert recall.hits[0].signals == {"words": 1.0, "dense": 1.0, "surprise": new}
    assert recall.hits[0].score == pytest.approx(2.0 * (1 + 0.2 * new))
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
