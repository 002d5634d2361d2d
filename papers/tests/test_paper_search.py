"""Variants of the `paper` profile: scoping, Stage 1 by words, vectors or both, scaled BM25."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.memtier import scorer as paper_scorer
from memtier_papers.memtier import search as paper_search
from memtier_plugin import MemTier
from memtier_plugin.core import hookspecs, plugins
from memtier_plugin.core.records import FactDraft, Source
from memtier_plugin.core.results import Recall

Day = Callable[..., datetime]
# A session each: what was said, and the fact that was made of it.  As many as BM25 needs for a
# word of one fact to count at all: rank-bm25's idf is 0 where half of the documents have it.
TALK = {
    "garden": ("We planted runner beans behind the shed.", "Ada grows vegetables at home."),
    "music": ("The violin lesson moved to Thursday.", "Ada studies a musical instrument."),
    "travel": ("The ferry to Skagen leaves at seven.", "Ada likes islands."),
    "work": ("Payroll is due on Thursday.", "Ada keeps the books of a bakery."),
    "sport": ("The pool closes for repairs.", "Ada swims before breakfast."),
}


@pytest.fixture
def talked(home: Path, day: Day) -> Path:
    """Return a home where the sessions were recorded, with vectors, and the facts added."""
    with MemTier.open(home, settings={"embedding.model": "default"}) as memory:
        for name, (message, text) in TALK.items():
            [entry] = memory.record(
                [{"role": "user", "content": message}], session_id=name, observed_at=day()
            )
            source = Source(agent=entry.agent_id, session=name, entry=entry.id)
            draft = FactDraft(
                subject="Ada", relation="does", value=text, text=text, sources=(source,)
            )
            memory.add_facts([draft])
    return home


def ask(home: Path, at: datetime, query: str, settings: Mapping[str, Any]) -> Recall:
    """Ask in the paper's profile, where Stage 1 chooses one session."""
    chosen = {"retrieval.profile": "paper", "retrieval.sessions": 1, **settings}
    with MemTier.open(home, settings={"embedding.model": "default", **chosen}) as memory:
        return memory.recall(query, at=at)


def sessions(recall: Recall) -> set[str]:
    """Return the sessions of the entries that were found."""
    return {hit.sources[0].session for hit in recall.hits if hit.tier == "episodic"}


def test_stage_one_is_a_wall_unless_it_is_off(talked: Path, day: Day) -> None:
    """Only the chosen session's entries are ranked; with `paper.scope: none` every entry is."""
    query = "Which musical instrument is in the shed?"
    assert sessions(ask(talked, day(), query, {})) == {"music"}
    assert sessions(ask(talked, day(), query, {"paper.scope": "none"})) == set(TALK)


@pytest.mark.parametrize("scope, signal", [("sessions", 1.0), ("none", math.exp(-0.05 * 60))])
def test_without_scoping_sessions_do_not_bypass_decay(
    talked: Path, day: Day, scope: str, signal: float
) -> None:
    """S_sem is empty when scoping is off, so that an old entry without a match has faded."""
    recall = ask(talked, day(60), "Which musical instrument?", {"paper.scope": scope})
    faded = [hit.signals["decay"] for hit in recall.hits if hit.tier == "episodic"]
    assert faded == pytest.approx([signal] * len(faded))
    assert faded


def test_stage_one_can_go_by_meaning(talked: Path, day: Day) -> None:
    """Vectors choose the session of a fact that shares no word with the question."""
    query = "playing cello"
    words = ask(talked, day(), query, {})
    assert (sessions(words), words.vectors) == (set(TALK), 0)  # no fact matches: unscoped
    for how in ("dense", "rrf"):
        recall = ask(talked, day(), query, {"paper.stage_one": how})
        assert sessions(recall) == {"music"}
        assert (recall.vectors, recall.label) == (len(TALK), "hybrid")


def test_fused_stage_one_hears_both(talked: Path, day: Day) -> None:
    """Of two sessions one comes first by words and one by meaning; fusion takes both."""
    query = "playing the cello in the bakery"
    both = {"paper.stage_one": "rrf", "retrieval.sessions": 2}
    assert sessions(ask(talked, day(), query, {})) == {"work"}
    assert sessions(ask(talked, day(), query, both)) >= {"work"}
    assert len(sessions(ask(talked, day(), query, both))) == 2


def test_stage_one_without_vectors_says_so(talked: Path, day: Day) -> None:
    """Asked to go by meaning without a model it goes by words, and its label tells."""
    settings = {"paper.stage_one": "rrf", "embedding.model": "none"}
    recall = ask(talked, day(), "Which musical instrument is in the shed?", settings)
    assert sessions(recall) == {"music"}
    assert recall.label == "degraded: no embedding model for Stage 1"


@pytest.mark.parametrize("how", ["log1p", "minmax", "zscore"])
def test_scaled_bm25_takes_the_place_of_the_raw_one(talked: Path, day: Day, how: str) -> None:
    """The signal is the scaled score among all candidates, facts and entries together."""
    query = "When is the violin lesson, and where the musical instrument of the bakery?"
    raw, scaled = (
        {
            hit.id: hit.signals["bm25"]
            for hit in ask(talked, day(), query, {"paper.scope": "none", **more}).hits
        }
        for more in ({}, {"paper.normalise": how})
    )
    assert len(set(raw.values())) > 2
    expected = dict(zip(raw, paper_scorer.normalise_scores([*raw.values()], how), strict=True))
    assert scaled == pytest.approx(expected)


@given(
    st.lists(st.floats(0, 50), min_size=1, max_size=12),
    st.sampled_from(["log1p", "minmax", "zscore"]),
)
def test_normalising_does_not_reorder(scores: list[float], how: str) -> None:
    """Every scale is monotonic (appendix E): what was higher is not lower afterwards."""
    scaled = paper_scorer.normalise_scores(scores, how)
    for score, after in zip(scores, scaled, strict=True):
        for other, later in zip(scores, scaled, strict=True):
            assert not (score > other and after < later)


RANKINGS = st.lists(st.lists(st.sampled_from("abcdef"), unique=True), max_size=4)


@given(RANKINGS)
def test_fusion_keeps_what_all_agree_on(lists: list[list[str]]) -> None:
    """Best first, everything named once, and a name that is before another everywhere stays so."""
    fused = paper_scorer.fuse_ranks(lists)
    names = list(fused)
    assert sorted(names) == sorted({name for ranking in lists for name in ranking})
    assert list(fused.values()) == sorted(fused.values(), reverse=True)
    complete = [ranking for ranking in lists if set(ranking) == set(names)]
    if complete == lists:
        for name in names:
            for other in names:
                if lists and all(r.index(name) < r.index(other) for r in lists):
                    assert names.index(name) < names.index(other)


def test_the_semantic_signal_acts_when_it_has_a_weight(talked: Path, day: Day) -> None:
    """With a weight a line without the question's words comes first by its meaning."""
    query, unscoped = "playing the cello", {"paper.scope": "none"}
    without = ask(talked, day(), query, unscoped)
    assert {hit.signals["semantic"] for hit in without.hits} == {0.0}
    recall = ask(talked, day(), query, {**unscoped, "paper.weights.semantic": 5.0})
    first = next(hit for hit in recall.hits if hit.tier == "episodic")
    assert first.text == TALK["music"][0]
    assert first.signals["semantic"] == max(
        hit.signals["semantic"] for hit in recall.hits if hit.tier == "episodic"
    )


def test_a_semantic_weight_without_vectors_is_told(talked: Path, day: Day) -> None:
    """The label says that the signal is missing, instead of ranking as if it were 0."""
    settings = {"paper.weights.semantic": 1.0, "embedding.model": "none"}
    recall = ask(talked, day(), "Which musical instrument?", settings)
    assert recall.label == "degraded: no embedding model for the semantic signal"


def test_the_whole_store_is_ranked(home: Path, day: Day, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest line is found behind any number of newer ones, however many a batch has."""
    monkeypatch.setattr(paper_search, "_BATCH", 7)
    with MemTier.open(home, settings={"retrieval.profile": "paper"}) as memory:
        lines = ["The pelican nests on the chimney.", *(f"Note {n} on tiles." for n in range(40))]
        for line in lines:
            memory.record([{"role": "user", "content": line}], session_id="s", observed_at=day())
        assert memory.recall("Where does the pelican nest?", at=day()).hits[0].text == lines[0]


class Upside:
    """A plugin that turns every ranking upside down."""

    @hookspecs.hookimpl
    def memtier_rerank(self, query: str, hits: list[Any]) -> list[Any]:
        """Return the hits, the last one first."""
        return hits[::-1]


def test_plugins_do_not_rerank_what_is_published(talked: Path, day: Day) -> None:
    """The profile ranks as published, whatever reranker is installed."""
    before = [hit.id for hit in ask(talked, day(), "musical instrument lesson", {}).hits]
    manager = plugins.manager()
    name = manager.register(Upside())
    try:
        after = [hit.id for hit in ask(talked, day(), "musical instrument lesson", {}).hits]
    finally:
        manager.unregister(name=name)
    assert len(before) > 1 and after == before
