"""Build hits from ranked rows: items with their sources, limited to the viewer's rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from memtier_plugin.core.records import Entry, Fact, Source
from memtier_plugin.core.results import Evidence, Hit
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.search import RankedRow
from memtier_plugin.retrieval.visibility import redact_for
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader


def read_hits(
    reader: Reader,
    ranked: Iterable[RankedRow],
    viewer: Viewer,
    evidence: Mapping[int, Evidence],
) -> list[Hit]:
    """Return the hits of ranked rows, without those that the index holds no more.

    Nor with facts that the viewer may not see: whoever reads all entries has in scope the facts
    that rest on another agent's confidences.

    Args:
        evidence: by row, where it was gathered.
    """
    ranked = list(ranked)
    stored = reader.items_by_row([row for row, _, _ in ranked])
    return [
        _hit(reader, stored[row], viewer, score, signals, evidence.get(row))
        for row, score, signals in ranked
        if row in stored and _may_see(viewer, stored[row].item)
    ]


def _may_see(viewer: Viewer, item: Entry | Fact) -> bool:
    return isinstance(item, Entry) or viewer.may_see(item)


def _hit(
    reader: Reader,
    stored: Stored,
    viewer: Viewer,
    score: float,
    signals: Mapping[str, float],
    evidence: Evidence | None,
) -> Hit:
    item = stored.item
    if isinstance(item, Entry):
        return entry_hit(stored, score, signals, evidence)
    sources = reader.sources(item.id)
    if not viewer.read_all:
        # That another agent's private line exists is shown; its words, file and line are not.
        item = redact_for(item, viewer.asker)
        sources = [
            source if source.agent == viewer.agent else replace(source, file=None, line=None)
            for source in sources
        ]
    return Hit(
        item=item,
        score=score,
        signals=signals,
        sources=tuple(sources),
        weight=stored.state.weight,
        evidence=evidence,
    )


def entry_hit(
    stored: Stored, score: float, signals: Mapping[str, float], evidence: Evidence | None = None
) -> Hit:
    """Return an entry as a hit, its own source with its ledger line."""
    entry = stored.item
    assert isinstance(entry, Entry)
    source = Source(
        agent=entry.agent_id,
        session=entry.session_id,
        entry=entry.id,
        file=stored.file,
        line=stored.line,
    )
    return Hit(
        item=entry,
        score=score,
        signals=signals,
        sources=(source,),
        weight=stored.state.weight,
        evidence=evidence,
    )


def with_added(hits: tuple[Hit, ...], added: Iterable[Hit]) -> tuple[Hit, ...]:
    """Return hits, and those of others that are not among them."""
    ids = {hit.id for hit in hits}
    return (*hits, *(hit for hit in added if hit.id not in ids))
