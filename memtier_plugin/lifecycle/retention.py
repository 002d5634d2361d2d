"""Apply a project's retention settings: forget the entries beyond them (off by default).

Like entries forgotten by a person, they are hidden everywhere, with the facts that rest on them
alone, and not restored by re-delivery.  The ledger keeps their lines until a purge, which
`retention.purge` runs at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from memtier_plugin.core.events import RetainEvent
from memtier_plugin.core.settings.schema import Retention
from memtier_plugin.facts import views
from memtier_plugin.facts.service import FactService
from memtier_plugin.storage.protocol import MB
from memtier_plugin.storage.store import Actor, Store

_BATCH: Final = 1000  # entries per tombstone


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """The ids of the hidden entries, and of the facts that rested on them alone.

    With `retention.purge`, ``left`` has entries beyond the policy that were hidden before but still
    have their text: the process that was to purge them may have died.
    """

    entries: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def find_expired(store: Store, policy: Retention, now: datetime) -> tuple[list[str], list[str]]:
    """Return the ids of entries beyond a retention policy, oldest first; and of hidden ones.

    Raises:
        IndexProblem, LedgerError: the entries cannot be read.
    """
    if not (policy.days or policy.entries or policy.mb):
        return [], []
    store.catch_up_all()
    with store.session() as reader:
        lines = [(*line, reader.state(line[1]).forgotten) for line in _entry_lines(store)]
        facts = views.list_facts(reader, None, shelves=False) if policy.keep_sources else ()
        spared = {source.entry for view in facts for source in reader.sources(view.fact.id)}
    sizes = [size for _, _, size, _, hidden in lines if not hidden]
    over_count = len(sizes) - policy.entries if policy.entries else 0
    over_size = sum(sizes) - policy.mb * MB if policy.mb else 0
    oldest = now - timedelta(days=policy.days) if policy.days else None
    expired, left = list[str](), list[str]()
    for written, identity, size, has_words, hidden in sorted(lines):
        too_old = oldest is not None and written < oldest
        if not (too_old or over_count > 0 or over_size > 0):
            break
        if hidden:
            left += [identity] * (policy.purge and has_words)
        elif identity not in spared:
            expired.append(identity)
            over_count -= 1
            over_size -= size
    return expired, left


def _entry_lines(store: Store) -> Iterator[tuple[datetime, str, int, bool]]:
    """Yield each entry's time of writing, id, line size, and whether it still has text."""
    for logged in store.log.entries():
        if logged.entry:
            entry = logged.entry
            yield entry.timestamp, entry.id, logged.size, bool(entry.content)


def apply_retention(actor: Actor, knowledge: FactService) -> RetentionResult:
    """Forget what is beyond the project's retention settings, and return it.

    Raises:
        LedgerError, IndexProblem: not all of it was hidden; the next call hides the rest.
    """
    store, entries, facts = actor.store, list[str](), list[str]()
    policy = store.settings.retention
    if not (policy.days or policy.entries or policy.mb):
        return RetentionResult()
    # If another process holds it, that one does the work
    with store.try_exclusive("retention") as exclusive:
        ids, left = find_expired(store, policy, actor.clock()) if exclusive else ([], [])
        for start in range(0, len(ids), _BATCH):
            forgotten = knowledge.person.forget(ids=ids[start : start + _BATCH])
            entries += forgotten.ids
            facts += forgotten.facts
        if entries:
            event = RetainEvent(
                entries=len(entries),
                facts=len(facts),
                days=policy.days,
                most=policy.entries,
                mb=policy.mb,
            )
            store.append_events([actor.event(event)], shared=True)
    return RetentionResult(tuple(entries), tuple(facts), tuple(left))
