"""Reading pages: the lines of a page as they are shown, and which pages hits stand on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memtier_plugin.core.records import Entry, Fact, Source
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.block import format_line
from memtier_plugin.retrieval.search import Viewer
from memtier_plugin.storage.index.pages import Page
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.records import Stored


class PageReader:
    """The pages of one project that one asker may see."""

    def __init__(self, reader: IndexReader, asker: Viewer) -> None:
        self._reader = reader
        self._asker = asker
        self._pages = reader.pages
        self._scopes = reader.scopes(asker.agent, asker.sender, read_all=asker.read_all)

    def pages_of_entries(self, entries: Iterable[str]) -> dict[str, Page]:
        """Return, for each of these entry ids that is to be seen, the page it stands on."""
        rows = self._reader.rows_of(entries)
        found = self._pages.pages_of([*rows.values()], self._scopes)
        return {entry: found[row] for entry, row in rows.items() if row in found}

    def pages_of_hits(self, hits: Sequence[Hit]) -> list[Page]:
        """Return the pages that hits stand on or rest on, in the order of the hits."""
        entries = [source.entry for hit in hits for source in hit.sources]
        on = self.pages_of_entries(entries)
        return list({on[entry].id: on[entry] for entry in entries if entry in on}.values())

    def page(self, identity: str) -> Page | None:
        """Return a page by its id; None where the asker may see none of that id."""
        return self._pages.find_page(identity, self._scopes)

    def hits_on(self, page: Page) -> list[Hit]:
        """Return what can be shown of a page, in order, each with its ledger line."""
        stored = self._reader.items_by_row(page.rows)
        return [_as_hit(stored[row]) for row in page.rows if row in stored]

    def visible_entries(self, entries: Iterable[str]) -> dict[str, Hit]:
        """Return those of these entries that are there and that the asker may see."""
        rows = self._reader.rows_of(entries)
        seen = self._pages.visible_rows([*rows.values()], self._scopes)
        stored = self._reader.items_by_row([*seen])
        return {entry: _as_hit(stored[row]) for entry, row in rows.items() if row in stored}

    def visible_facts(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Return those of these facts that hold and that the asker may see, with their lines."""
        rows = self._reader.rows_of(ids)
        shown = {place.row for place in self._reader.candidates(rows.values())}
        stored = self._reader.items_by_row([row for row in rows.values() if row in shown])
        mine = (self._asker.agent, self._asker.sender or "")
        return {
            one.item.id: one
            for one in stored.values()
            if isinstance(one.item, Fact)
            and (self._asker.read_all or one.item.private_to in (None, mine))
        }

    def rendered(self, page: Page) -> list[str]:
        """Return the lines of a page: date, who, short id, and what was said."""
        return [format_line(hit, hit.text) for hit in self.hits_on(page)]


def _as_hit(stored: Stored) -> Hit:
    entry = stored.item
    assert isinstance(entry, Entry)  # only entries stand on pages
    source = Source(
        agent=entry.agent_id, session=entry.session_id, entry=entry.id,
        file=stored.file, line=stored.line,
    )  # fmt: skip
    weight = stored.state.weight
    return Hit(item=entry, score=0.0, signals={}, sources=(source,), weight=weight)
