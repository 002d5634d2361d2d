"""An embedder that a plugin brings, in the path that a recall takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.memory import MemTier

DIMENSIONS = 16


class Hashed:
    """Embeds a text as the sum of a vector for each of its letters pairs: likeness of spelling."""

    name = "hashed-16"
    dimensions = DIMENSIONS

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text."""
        return [self._one(text.casefold()) for text in texts]

    def _one(self, text: str) -> list[float]:
        vector = [0.001] * DIMENSIONS
        for pair in pairwise(text):
            bucket = hashlib.blake2b("".join(pair).encode(), digest_size=1).digest()[0]
            vector[bucket % DIMENSIONS] += 1.0
        return vector

    @hookimpl
    def memtier_embedder(self) -> Hashed:
        """Bring this embedder."""
        return self


@pytest.fixture
def memory(home: Path) -> Iterator[MemTier]:
    """Give a memory with three lines while the plugin is there."""
    plugin = Hashed()
    plugins.manager().register(plugin, "hashed")
    try:
        with MemTier.open(home, "p") as opened:
            lines = ("the kitchen is green", "a boat left the harbor", "kitchens want windows")
            messages = [{"role": "user", "content": line} for line in lines]
            opened.record(messages, session_id="s", run_id="r")
            yield opened
    finally:
        plugins.manager().unregister(plugin)


def test_vectors_take_part_in_a_recall(memory: MemTier) -> None:
    """With an embedder a recall is hybrid, reads vectors and gives the signal with each hit."""
    recall = memory.recall("the kitchen")
    assert recall.label == "hybrid"
    assert recall.vectors == 3  # few enough to be compared exactly, once each
    assert recall.hits[0].signals["dense"] > recall.hits[-1].signals["dense"] >= 0


def test_the_index_names_the_model_of_each_vector(memory: MemTier) -> None:
    """Vectors are kept by model, so that those of another model are never compared."""
    memory.recall("the kitchen")
    rows = memory.store.index.connection().execute("SELECT DISTINCT model FROM vectors").fetchall()
    assert rows == [("hashed-16",)]


def test_a_rebuilt_index_ranks_the_same(memory: MemTier) -> None:
    """Vectors are derived like the rest: after a reindex the hits are the same (promise 1)."""
    at = memory.recall("green kitchen").hits[0].item.timestamp
    before = memory.recall("green kitchen", at=at)
    memory.reindex()
    memory.catch_up()
    after = memory.recall("green kitchen", at=at)
    assert [(h.id, h.score, h.signals) for h in after.hits] == [
        (h.id, h.score, h.signals) for h in before.hits
    ]


def test_what_is_forgotten_has_no_vector(memory: MemTier) -> None:
    """A tombstone takes the vector out of the index too."""
    first = memory.recall("green kitchen").hits[0].id
    memory.forget(ids=[first])
    assert first not in [hit.id for hit in memory.recall("green kitchen").hits]
    count = memory.store.index.connection().execute("SELECT count(*) FROM vectors").fetchall()
    assert count == [(2,)]


def test_the_shipped_model_finds_likeness_of_meaning(home: Path) -> None:
    """With `embedding.model: default` what is written is embedded at once, and meaning counts."""
    with MemTier.open(home, "q", settings={"embedding.model": "default"}) as memory:
        lines = ("My kitten sleeps all day.", "The invoice was paid.", "We all sleep badly here.")
        messages = [{"role": "user", "content": line} for line in lines]
        memory.record(messages, session_id="s", run_id="r")
        recall = memory.recall("how does the cat sleep?")
        assert (recall.label, recall.vectors) == ("hybrid", 3)
        dense = {hit.text: hit.signals["dense"] for hit in recall.hits}
        assert dense[lines[0]] > dense[lines[1]]


def test_a_changed_model_is_caught_up_with(home: Path) -> None:
    """What was written under another model is embedded later, and never compared before."""
    with MemTier.open(home, "q", settings={"embedding.model": "none"}) as memory:
        memory.record([{"role": "user", "content": "a kitten"}], session_id="s", run_id="r")
        assert memory.recall("kitten").label == "lexical"
    with MemTier.open(home, "q", settings={"embedding.model": "default"}) as memory:
        recall = memory.recall("kitten")
        assert (recall.label, recall.vectors) == ("hybrid", 1)


def test_a_text_that_the_model_does_not_know(home: Path) -> None:
    """What has no vector is marked as seen: it is not tried again, and compares with nothing."""
    with MemTier.open(home, "q", settings={"embedding.model": "default"}) as memory:
        memory.record([{"role": "user", "content": "fox"}], session_id="s", run_id="r")
        memory.catch_up()
        assert memory.recall("\U0001f98a fox").hits
        assert memory.recall("\U0001f98a").label in ("empty", "lexical", "hybrid")
