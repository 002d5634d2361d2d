"""Build hits from ranked rows, and read the pages of the log that they stand on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from memtier_plugin.core.records import Entry, Fact, Source
from memtier_plugin.core.results import Evidence, Hit
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.search import RankedRow
from memtier_plugin.retrieval.visibility import redact_for
from memtier_plugin.storage.index.overviews import Page
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader

# -- Build hits from ranked rows: items with their sources, limited to the viewer's rights


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
    hits = []
    for row, score, signals in ranked:
        item = stored[row].item if row in stored else None
        if isinstance(item, Entry):
            hits.append(entry_hit(stored[row], score, signals, evidence.get(row)))
        elif item is not None and viewer.may_see(item):
            hit = _fact_hit(reader, stored[row], item, viewer)
            hits.append(replace(hit, score=score, signals=signals, evidence=evidence.get(row)))
    return hits


def _fact_hit(reader: Reader, stored: Stored, item: Fact, viewer: Viewer) -> Hit:
    sources = reader.sources(item.id)
    if not viewer.read_all:
        # That another agent's private line exists is shown; its words, file and line are not.
        item = redact_for(item, viewer.asker)
        sources = [
            source if source.agent == viewer.agent else replace(source, file=None, line=None)
            for source in sources
        ]
    return Hit(item=item, score=0.0, signals={}, sources=tuple(sources), weight=stored.state.weight)


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


def with_added(hits: tuple[Hit, ...], added: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits, and those of others that are not among them."""
    if not added:
        return hits
    ids = {hit.id for hit in hits}
    return (*hits, *(hit for hit in added if hit.id not in ids))


# -- Pages of the log as one viewer sees them: which hits stand on which, and their lines


class PageReader:
    """The pages of one project that a viewer may see."""

    def __init__(self, reader: Reader, viewer: Viewer) -> None:
        self._reader = reader
        self._viewer = viewer
        self._pages = reader.pages
        self._scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)

    def pages_of_entries(self, entries: Iterable[str]) -> dict[str, Page]:
        """Return, by entry id, the page that a visible entry stands on."""
        rows = self._reader.rows_of(entries)
        pages = self._pages.pages_of([*rows.values()], self._scopes)
        return {entry: pages[row] for entry, row in rows.items() if row in pages}

    def pages_of_hits(self, hits: Sequence[Hit]) -> list[Page]:
        """Return the pages that hits stand on or rest on, in the order of the hits."""
        entries = [source.entry for hit in hits for source in hit.sources]
        pages = self.pages_of_entries(entries)
        return list({pages[e].id: pages[e] for e in entries if e in pages}.values())

    def page(self, page_id: str) -> Page | None:
        """Return a page by its id; None where the viewer may see none of that id."""
        return self._pages.find_page(page_id, self._scopes)

    def hits_on(self, page: Page) -> list[Hit]:
        """Return what can be shown of a page, in order, each with its ledger line."""
        stored = self._reader.items_by_row(page.rows)
        return [entry_hit(stored[row], 0.0, {}) for row in page.rows if row in stored]

    def visible_entries(self, entries: Iterable[str]) -> dict[str, Hit]:
        """Return, by id, those of these entries that exist and that the viewer may see."""
        rows = self._reader.rows_of(entries)
        visible = self._pages.visible_rows([*rows.values()], self._scopes)
        stored = self._reader.items_by_row([*visible])
        return {
            entry: entry_hit(stored[row], 0.0, {}) for entry, row in rows.items() if row in stored
        }

    def visible_facts(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Return, by id, those of these facts that hold and that the viewer may see."""
        rows = self._reader.rows_of(ids)
        current = {candidate.row for candidate in self._reader.candidates(rows.values())}
        stored = self._reader.items_by_row([row for row in rows.values() if row in current])
        return {
            fact.item.id: fact
            for fact in stored.values()
            if isinstance(fact.item, Fact) and self._viewer.may_see(fact.item)
        }
