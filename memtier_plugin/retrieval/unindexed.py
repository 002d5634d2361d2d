"""What stands in the ledgers but not yet in the index, for a recall that cannot wait for it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.records import Entry, Source
from memtier_plugin.core.results import Hit
from memtier_plugin.storage.store import Store

_log = logging.getLogger("memtier")


def read_unindexed(
    store: Store, agent: str, sender: str | None, *, read_all: bool
) -> tuple[list[Entry], set[str]]:
    """Return what the index could not take yet: own entries, and what was forgotten."""
    try:
        events = store.unindexed_events(PROJECT_JOURNAL)
        entries = store.unindexed_entries(agent)
    except LedgerError as error:  # the label says that the index is behind
        _log.warning("%s: %s", agent, error)
        return [], set()
    visible = [
        entry
        for entry in entries
        if entry.retrievable and (read_all or (entry.sender or "") == (sender or ""))
    ]
    return visible, {
        item
        for event in events
        if event.kind in ("forget", "withdraw")
        for item in event.data["items"]
    }


def add_unindexed(
    store: Store,
    query: str,
    entries: Sequence[Entry],
    forgotten: Collection[str],
    hits: Sequence[Hit],
) -> list[Hit]:
    """Add to the hits the entries that share words with a query; leave out what was forgotten."""
    reader, words = store.reader(), store.tokenizer.words
    found = [hit for hit in hits if hit.id not in forgotten]
    out = {*forgotten, *(hit.id for hit in found)}
    terms = set(words(query))
    for entry in entries:
        shared = terms.intersection(words(entry.content))
        if shared and entry.id not in out and not reader.state(entry.id).forgotten:
            part = len(shared) / len(terms)
            source = Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id)
            found.append(Hit(item=entry, score=part, signals={"words": part}, sources=(source,)))
    return sorted(found, key=lambda hit: (-hit.score, hit.id))
