"""Merging the n-grams' segments: rarely, and without a change of what is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.storage import store
from memtier_plugin.storage.index import writer
from memtier_plugin.text.tokenizer import ngrams


def test_catching_up_merges_what_grew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where much was added a sweep leaves one segment, which finds the same; else it leaves all."""
    monkeypatch.setattr(writer, "_MANY_ENTRIES", 3)
    with MemTier.open(home) as memory:
        for number in range(3):
            memory.record([{"role": "user", "content": f"heron {number}"}], session_id="s")
        reader = memory.store.reader()
        scopes = reader.scopes(memory.agent_id, None)

        def segments() -> int:
            [(count,)] = reader._db.execute("SELECT count(DISTINCT segid) FROM grams_idx")
            return int(count)

        assert segments() == 3
        with MemTier.open(home) as other, other.store.session() as reading:
            reading._db.execute("BEGIN IMMEDIATE")  # another writer: it is left for the next time
            monkeypatch.setattr(store, "LOCK_SECONDS", 0.1)
            memory.catch_up()
            reading._db.execute("ROLLBACK")
        assert segments() == 3
        before = reader.match_ngrams(scopes, ngrams("herons"), 1000)
        assert before[1]
        memory.catch_up()
        assert segments() == 1
        assert reader.match_ngrams(scopes, ngrams("herons"), 1000) == before
        memory.record([{"role": "user", "content": "a crane"}], session_id="s")
        memory.catch_up()
        assert segments() == 2


def test_every_ngram_is_looked_up_safely(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What FTS5 would take for syntax or a separator is no error, and matches what it did."""
    text = 'it\'s a "quoted" AND* NEAR(fox) c++ naïve 東京 x\x00y o’clock -heron ^start {brace}'
    with MemTier.open(home) as memory:
        memory.record([{"role": "user", "content": text}], session_id="s")
        reader = memory.store.reader()
        [scope] = reader.scopes(memory.agent_id, None)
        parts = ngrams(text) | {"n't", 'a"b', "a b", "c+*", "", "\x00"}
        terms = [(term,) for term in {f"{scope}.{part}" for part in parts}]
        listed = "SELECT doc FROM gram_postings WHERE term = ?"
        expected = reader._db.executemany(listed, terms).fetchall()
        monkeypatch.setattr(reader, "_frequencies", lambda *_: {part: {scope: 1} for part in parts})
        scores, read = reader.match_ngrams([scope], parts, 10_000)
        assert len(scores) == 1
        assert read == len(expected) > 20
