"""What people look at: the log as it was written, and the facts, with their current values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memtier_plugin import ledger
from memtier_plugin.errors import NotFound
from memtier_plugin.home import ledger_folders
from memtier_plugin.index_records import Stored
from memtier_plugin.records import Entry, Fact, from_iso
from memtier_plugin.store import Store


def entries(
    store: Store,
    *,
    agent: str | None = None,
    date: str | None = None,
    session: str | None = None,
    after_id: str | None = None,
) -> Iterator[Entry]:
    """Yield entries from the ledgers in the order written; see `MemTier.entries`."""
    reader = store.reader()
    for kind, owner, folder in ledger_folders(store.folder):
        if kind != "episodic" or (agent is not None and owner != agent):
            continue
        for path in ledger.day_files(folder):
            if date is not None and path.stem != date:
                continue
            for line in ledger.read(path)[0]:
                try:
                    entry = Entry.from_json(ledger.parse(line), owner=owner)
                except (ValueError, TypeError, KeyError):
                    continue  # `doctor` names it
                if (session is not None and entry.session_id != session) or (
                    after_id is not None and entry.id <= after_id
                ):
                    continue
                state = reader.state(entry.id)
                if not state.forgotten:
                    yield replace(entry, promoted=state.promoted, cognitive_weight=state.weight)


def facts(store: Store, *, include_superseded: bool = False) -> list[Fact]:
    """Return the facts, oldest first; a superseded one carries its ``valid_to``."""
    return [
        _current(one) for one in store.reader().all_facts(include_superseded=include_superseded)
    ]


def fact(store: Store, fact_id: str) -> tuple[Fact, list[Entry]]:
    """Return a fact and its source entries.

    Raises:
        NotFound: there is no such fact.
    """
    reader = store.reader()
    for one in reader.stored([*reader.rows_of([fact_id]).values()]).values():
        if isinstance(one.item, Fact) and not one.state.forgotten:
            rows = reader.rows_of(source.entry for source in reader.sources(fact_id))
            found = reader.stored([*rows.values()]).values()
            return _current(one), [
                s.item for s in found if isinstance(s.item, Entry) and not s.state.forgotten
            ]
    raise NotFound(f"there is no fact {fact_id!r}; `memtier facts list` shows them")


def _current(stored: Stored) -> Fact:
    item, until = stored.item, stored.state.valid_to
    assert isinstance(item, Fact)
    return replace(item, valid_to=from_iso(until)) if until else item
