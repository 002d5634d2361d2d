"""Retention: which entries a project's settings keep no longer (`retention`, off by default).

They are forgotten as a person forgets them: hidden everywhere, with the facts that rest on them
alone, and never back by re-delivery.  The ledger keeps their lines until they are purged, which
`retention.purge` has done at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from memtier_plugin.core.codecs import decode_entry
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.paths import iter_ledger_folders
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.settings.schema import Retention
from memtier_plugin.facts import views
from memtier_plugin.facts.service import FactService
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.quota import MB
from memtier_plugin.storage.store import Store

EVENT_KIND: Final = "retain"  # of the journal event
_TOGETHER: Final = 1000  # entries that one tombstone names


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What was hidden: the ids of entries, and of the facts that rested on them alone."""

    entries: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


def find_expired(store: Store, policy: Retention, now: datetime) -> list[str]:
    """Return the ids of the entries that go beyond what is kept, oldest first.

    Raises:
        IndexProblem, LedgerError: what there is cannot be known.
    """
    if not (policy.days or policy.entries or policy.mb):
        return []
    store.catch_up_all()
    with store.session() as reader:
        live = [one for one in _entry_lines(store) if not reader.state(one[1]).forgotten]
        kept = {
            source.entry
            for known in (
                views.list_facts(reader, None, shelves=False) if policy.keep_sources else ()
            )
            for source in reader.sources(known.fact.id)
        }
    live.sort()
    over_count = len(live) - policy.entries if policy.entries else 0
    over_size = sum(size for _, _, size in live) - policy.mb * MB if policy.mb else 0
    oldest = now - timedelta(days=policy.days) if policy.days else None
    found = []
    for written, identity, size in live:
        too_old = oldest is not None and written < oldest
        if not (too_old or over_count > 0 or over_size > 0):
            break
        if identity not in kept:
            found.append(identity)
            over_count -= 1
            over_size -= size
    return found


def _entry_lines(store: Store) -> Iterator[tuple[datetime, str, int]]:
    """Yield of every entry when it was written, its id, and the bytes of its line."""
    for kind, owner, folder in iter_ledger_folders(store.folder):
        if kind != "episodic":
            continue
        for path in jsonl.list_day_files(folder):
            for line in jsonl.read_lines(path)[0]:
                try:
                    entry = decode_entry(line.data, owner=owner)
                except (ValueError, TypeError, KeyError):
                    continue  # `doctor` names it
                yield entry.timestamp, entry.id, len(line.data)


def apply_retention(
    store: Store, knowledge: FactService, agent: str, clock: Callable[[], datetime]
) -> RetentionResult:
    """Forget what goes beyond the project's retention; returns what is hidden now.

    Raises:
        LedgerError, IndexProblem: not all of it was hidden; the rest goes the next time.
    """
    policy, entries, facts = store.settings.retention, list[str](), list[str]()
    ids = find_expired(store, policy, clock())
    for start in range(0, len(ids), _TOGETHER):
        gone = knowledge.person.forget(ids=ids[start : start + _TOGETHER])
        entries += gone.ids
        facts += gone.facts
    if entries:
        data = {"entries": len(entries), "facts": len(facts), "days": policy.days}
        event = JournalEvent(
            id=new_id(), timestamp=clock(), kind=EVENT_KIND, agent_id=agent,
            data={**data, "most": policy.entries, "mb": policy.mb},
        )  # fmt: skip
        store.append_events([event], shared=True)
    return RetentionResult(tuple(entries), tuple(facts))
