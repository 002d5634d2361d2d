"""Pages of the log as one viewer sees them: which hits stand on which, and their lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.hits import entry_hit
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.storage.index.pages import Page
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader


class PageReader:
    """The pages of one project that one viewer may see."""

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
