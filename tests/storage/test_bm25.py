"""The fast path's BM25 against rank-bm25, on a real index."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from memtier_plugin import MemTier
from memtier_plugin.core.records import Entry
from memtier_plugin.storage.index import postings
from memtier_plugin.storage.index.candidate_reader import MAX_TERMS
from memtier_plugin.storage.readers import Reader

VOCABULARY = ["alder", "birch", "cedar", "dogwood", "elm", "fir", "ginkgo", "hazel", "iris"]
DOCUMENTS = st.lists(
    st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=12), min_size=1, max_size=10
)
QUERY = st.lists(st.sampled_from([*VOCABULARY, "unknown"]), min_size=1, max_size=8)
ALL = 10**9  # a cap that nothing reaches


class Indexed(NamedTuple):
    """Documents in an index: their words as it has them, and the id and the row of each."""

    reader: Reader
    sender: str
    scopes: list[int]
    words: list[list[str]]
    ids: list[str]
    rows: list[int]


@pytest.fixture
def memory(home: Path) -> Iterator[MemTier]:
    """Return an empty memory; every example records for a sender of its own."""
    with MemTier.open(home) as memory:
        yield memory


def index(memory: MemTier, documents: list[list[str]]) -> Indexed:
    """Record documents for a new sender, whose statistics are then its own."""
    sender = f"sender {len(list(memory.entries()))}"
    messages = [{"role": "user", "content": " ".join(document)} for document in documents]
    entries = memory.record(messages, session_id="s", sender=sender)
    reader = memory.store.reader()
    rows = reader.rows_of(entry.id for entry in entries)
    return Indexed(
        reader,
        sender,
        reader.scopes(memory.agent_id, sender),
        [words(memory, entry) for entry in entries],
        [entry.id for entry in entries],
        [rows[entry.id] for entry in entries],
    )


def words(memory: MemTier, entry: Entry) -> list[str]:
    """Return what an entry is indexed by: its words and its date."""
    tokenizer = memory.store.tokenizer
    return [*tokenizer.words(entry.content), *tokenizer.date_words(entry.observed_at)]


def oracle(documents: list[list[str]], query: list[str]) -> list[float]:
    """Score with rank-bm25, its idf replaced by the one that is never negative."""
    package = BM25Okapi(documents, k1=postings.K1, b=postings.B)
    df = Counter(word for document in documents for word in set(document))
    package.idf = {word: postings.idf(len(documents), count) for word, count in df.items()}
    return [float(score) for score in package.get_scores(query)]


@given(documents=DOCUMENTS, query=QUERY)
def test_fast_path_equals_rank_bm25(
    memory: MemTier, documents: list[list[str]], query: list[str]
) -> None:
    """Below the cap the index gives every document rank-bm25's score, repeated words included."""
    indexed = index(memory, documents)
    words = memory.store.tokenizer.words(" ".join(query))
    match = indexed.reader.match_words(indexed.scopes, Counter(words), ALL)
    scores = match.scores()
    assert not match.left_out
    assert set(scores) <= set(indexed.rows)
    for row, expected in zip(indexed.rows, oracle(indexed.words, words), strict=True):
        assert scores.get(row, 0.0) == pytest.approx(expected, abs=1e-12)


@given(documents=DOCUMENTS, query=QUERY)
def test_recalls_score_words_as_rank_bm25(
    memory: MemTier, documents: list[list[str]], query: list[str]
) -> None:
    """What a recall counts for the words of a hit is rank-bm25's score, the best one's being 1."""
    indexed = index(memory, documents)
    words = memory.store.tokenizer.words(" ".join(query))
    expected = dict(zip(indexed.ids, oracle(indexed.words, words), strict=True))
    most = max(expected.values())
    recall = memory.recall(" ".join(query), sender=indexed.sender)
    assert recall.hits or not most
    for hit in recall.hits:
        assert hit.signals["words"] * most == pytest.approx(expected[hit.id], abs=1e-9)


@given(documents=DOCUMENTS)
def test_idf_alone_differs_from_rank_bm25(documents: list[list[str]]) -> None:
    """Where rank-bm25's idf is ln(r), this one is ln(1 + r); its negative ones are replaced there.

    k1, b, the saturation and the mean length are rank-bm25's, as the two tests above say.
    """
    package = BM25Okapi(documents, k1=postings.K1, b=postings.B)
    df = Counter(word for document in documents for word in set(document))
    for word, count in df.items():
        own = postings.idf(len(documents), count)
        if package.idf[word] > 0 and 2 * count < len(documents):
            assert math.expm1(own) == pytest.approx(math.exp(package.idf[word]))
        assert own > 0


@given(documents=DOCUMENTS, query=QUERY, cap=st.integers(1, 30))
def test_cap_reads_the_rarest_first_and_fill_completes(
    memory: MemTier, documents: list[list[str]], query: list[str], cap: int
) -> None:
    """At most `cap` postings are read, rarest words first; `fill` makes chosen rows exact."""
    indexed = index(memory, documents)
    terms = Counter(memory.store.tokenizer.words(" ".join(query)))
    df = {term: sum(term in words for words in indexed.words) for term in terms}
    order = sorted((term for term in terms if df[term]), key=lambda term: (df[term], term))
    complete = indexed.reader.match_words(indexed.scopes, terms, ALL)
    match = indexed.reader.match_words(indexed.scopes, terms, cap)
    assert match.postings == min(cap, sum(df.values())) == sum(map(len, match.rows.values()))
    assert match.idfs == complete.idfs

    read = 0
    for term in order:
        newest = sorted(complete.rows[term], reverse=True)
        assert sorted(match.rows[term], reverse=True) == newest[: max(0, cap - read)]
        assert (term in match.left_out) == (read + df[term] > cap)
        read += df[term]

    chosen = indexed.rows[::2]
    filled = indexed.reader.complete_match(match, indexed.scopes, chosen)
    assert match.postings == sum(map(len, match.rows.values())) == min(cap, read) + filled
    exact, scores = complete.scores(), match.scores()
    for row in chosen:
        assert scores.get(row, 0.0) == pytest.approx(exact.get(row, 0.0), abs=1e-12)


def test_nothing_to_match(memory: MemTier) -> None:
    """No words, unknown words, no scope and an empty index match nothing and read nothing."""
    reader = memory.store.reader()
    assert not reader.match_words([], Counter(["elm"]), ALL).scores()
    indexed = index(memory, [["elm"]])
    assert not indexed.reader.match_words(indexed.scopes, Counter(), ALL).scores()
    unknown = indexed.reader.match_words(indexed.scopes, Counter(["unknown"]), ALL)
    assert (unknown.postings, unknown.scores()) == (0, {})


def test_long_queries_are_bounded(memory: MemTier) -> None:
    """Of a query with very many words the rarest are looked up, and no more than MAX_TERMS."""
    many = [f"word{n}" for n in range(3 * MAX_TERMS)]
    indexed = index(memory, [many, many[: len(many) // 2]])
    match = indexed.reader.match_words(indexed.scopes, Counter(many), ALL)
    assert len(match.idfs) == match.postings == MAX_TERMS
    assert set(match.idfs) <= set(many[len(many) // 2 :])


@given(st.integers(1, 10**6), st.data())
def test_idf(documents: int, data: st.DataObject) -> None:
    """A rarer word weighs more, and each weighs something."""
    df = data.draw(st.integers(1, documents))
    assert postings.idf(documents, df) > 0
    assert postings.idf(documents, df) <= postings.idf(documents, df - 1)


@given(st.integers(1, 1000), st.integers(1, 1000), st.floats(1, 1000))
def test_saturation(tf: int, more: int, average: float) -> None:
    """More occurrences earn more, never more than k1 + 1; a longer document earns less."""
    length = tf + more
    assert postings.saturation(0, length, average) == 0
    assert postings.saturation(tf, length, average) < postings.saturation(length, length, average)
    assert postings.saturation(length, length, average) < postings.K1 + 1
    assert postings.saturation(tf, length + more, average) < postings.saturation(
        tf, length, average
    )
    assert postings.saturation(1, average, average) == pytest.approx(1)
