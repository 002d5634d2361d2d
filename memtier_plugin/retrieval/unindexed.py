"""Read ledger lines that are not indexed yet, for a recall that cannot wait for the index."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.events import ForgetEvent, WithdrawEvent, payload_of
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import Evidence, Hit
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.storage.store import Store

_log = logging.getLogger("memtier")


@dataclass(frozen=True, slots=True)
class Unindexed:
    """The viewer's entries that the index lacks, and the ids of what was forgotten meanwhile."""

    entries: Sequence[Entry] = ()
    forgotten: frozenset[str] = frozenset()


def read_unindexed(store: Store, agent: str, viewer: Viewer) -> Unindexed:
    """Read what the index could not take in yet: an agent's own entries, and what was forgotten."""
    try:
        events = store.unindexed_events(PROJECT_JOURNAL)
        entries = store.unindexed_entries(agent)
    except LedgerError as error:  # the label says that the index is behind
        _log.warning("%s: %s", agent, error)
        return Unindexed()
    return Unindexed(
        [
            entry
            for entry in entries
            if entry.retrievable
            and (viewer.read_all or (entry.sender or "") == (viewer.sender or ""))
        ],
        frozenset(
            item
            for event in events
            if isinstance(payload := payload_of(event), ForgetEvent | WithdrawEvent)
            for item in payload.items
        ),
    )


def add_unindexed(store: Store, query: str, unindexed: Unindexed, hits: Sequence[Hit]) -> list[Hit]:
    """Add the entries that share words with a query to the hits; drop what was forgotten."""
    reader, words = store.reader(), store.tokenizer.words
    merged = [hit for hit in hits if hit.id not in unindexed.forgotten]
    seen = {*unindexed.forgotten, *(hit.id for hit in merged)}
    terms = set(words(query))
    for entry in unindexed.entries:
        shared = terms.intersection(words(entry.content))
        if shared and entry.id not in seen and not reader.state(entry.id).forgotten:
            share = len(shared) / len(terms)
            signals, sources = {"words": share}, (entry.source,)
            evidence = Evidence(coverage=share, own_coverage=share)
            merged.append(
                Hit(item=entry, score=share, signals=signals, sources=sources, evidence=evidence)
            )
    return sorted(merged, key=lambda hit: (-hit.score, hit.id))
