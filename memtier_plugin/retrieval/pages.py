"""Reading pages: the lines of a page as they are shown, and which pages hits stand on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memtier_plugin.core.records import Entry, Fact, Source
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.block import line
from memtier_plugin.retrieval.search import Asker
from memtier_plugin.storage.index.pages import Page
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.records import Stored


class PageReader:
    """The pages of one project that one asker may see."""

    def __init__(self, reader: IndexReader, asker: Asker) -> None:
        self._reader = reader
        self._asker = asker
        self._pages = reader.pages
        self._scopes = reader.scopes(asker.agent, asker.sender, read_all=asker.read_all)

    def page_of(self, entries: Iterable[str]) -> dict[str, Page]:
        """Return, for each of these entry ids that is to be seen, the page it stands on."""
        rows = self._reader.rows_of(entries)
        found = self._pages.page_of([*rows.values()], self._scopes)
        return {entry: found[row] for entry, row in rows.items() if row in found}

    def of_hits(self, hits: Sequence[Hit]) -> list[Page]:
        """Return the pages that hits stand on or rest on, in the order of the hits."""
        entries = [source.entry for hit in hits for source in hit.sources]
        on = self.page_of(entries)
        return list({on[entry].id: on[entry] for entry in entries if entry in on}.values())

    def page(self, identity: str) -> Page | None:
        """Return a page by its id; None where the asker may see none of that id."""
        return self._pages.page(identity, self._scopes)

    def hits(self, page: Page) -> list[Hit]:
        """Return what can be shown of a page, in order, each with its ledger line."""
        stored = self._reader.stored(page.rows)
        return [_as_hit(stored[row]) for row in page.rows if row in stored]

    def visible(self, entries: Iterable[str]) -> dict[str, Hit]:
        """Return those of these entries that are there and that the asker may see."""
        rows = self._reader.rows_of(entries)
        seen = self._pages.visible([*rows.values()], self._scopes)
        stored = self._reader.stored([*seen])
        return {entry: _as_hit(stored[row]) for entry, row in rows.items() if row in stored}

    def facts(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Return those of these facts that hold and that the asker may see, with their lines."""
        rows = self._reader.rows_of(ids)
        shown = {place.row for place in self._reader.places(rows.values())}
        stored = self._reader.stored([row for row in rows.values() if row in shown])
        mine = (self._asker.agent, self._asker.sender or "")
        return {
            one.item.id: one
            for one in stored.values()
            if isinstance(one.item, Fact)
            and (self._asker.read_all or one.item.private_to in (None, mine))
        }

    def rendered(self, page: Page) -> list[str]:
        """Return the lines of a page: date, who, short id, and what was said."""
        return [line(hit, hit.text) for hit in self.hits(page)]


def _as_hit(stored: Stored) -> Hit:
    entry = stored.item
    assert isinstance(entry, Entry)  # only entries stand on pages
    source = Source(
        agent=entry.agent_id, session=entry.session_id, entry=entry.id,
        file=stored.file, line=stored.line,
    )  # fmt: skip
    weight = stored.state.weight
    return Hit(item=entry, score=0.0, signals={}, sources=(source,), weight=weight)
