"""Hits: the items of ranked rows, with their sources, as far as the viewer may see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from memtier_plugin.core.records import Entry, Source
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.search import RankedRow
from memtier_plugin.retrieval.visibility import redact_for
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.records import Stored


def read_hits(reader: IndexReader, ranked: Iterable[RankedRow], viewer: Viewer) -> list[Hit]:
    """Return the hits of ranked rows, without those that the index holds no more."""
    ranked = list(ranked)
    stored = reader.items_by_row([row for row, _, _ in ranked])
    return [
        _hit(reader, stored[row], viewer, score, signals)
        for row, score, signals in ranked
        if row in stored
    ]


def _hit(
    reader: IndexReader,
    stored: Stored,
    viewer: Viewer,
    score: float,
    signals: Mapping[str, float],
) -> Hit:
    item, weight = stored.item, stored.state.weight
    if isinstance(item, Entry):
        return Hit(
            item=item, score=score, signals=signals, sources=(source_of(stored),), weight=weight
        )
    sources = reader.sources(item.id)
    if not viewer.read_all:
        # That another agent's private line exists is shown; its words, file and line are not.
        item = redact_for(item, viewer.agent)
        sources = [
            source if source.agent == viewer.agent else replace(source, file=None, line=None)
            for source in sources
        ]
    return Hit(item=item, score=score, signals=signals, sources=tuple(sources), weight=weight)


def source_of(stored: Stored) -> Source:
    """Return an entry as a source, with its ledger line."""
    entry = stored.item
    assert isinstance(entry, Entry)
    return Source(
        agent=entry.agent_id,
        session=entry.session_id,
        entry=entry.id,
        file=stored.file,
        line=stored.line,
    )
