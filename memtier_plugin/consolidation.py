"""From episodes to shared facts: adding, superseding, and the pass over what is new.

The order of writes makes a crash harmless: facts first, then what they supersede, then which
entries they came from, and the cursors last.  A pass that is repeated finds its facts there.
Source: MemTier (consolidation daemon), seeds 1.6; design 4.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memtier_plugin import ledger
from memtier_plugin.conflicts import normal
from memtier_plugin.errors import NotFound
from memtier_plugin.extraction import extract
from memtier_plugin.index_records import Stored
from memtier_plugin.index_write import LedgerFile, ledger_files
from memtier_plugin.records import (
    Entry,
    Fact,
    FactDraft,
    JournalEvent,
    Source,
    new_id,
    to_iso,
)
from memtier_plugin.store import LOCK_SECONDS, Store


@dataclass(frozen=True, slots=True)
class ConsolidationReport:
    """What a pass read and made, and what it rejected and why."""

    read: int = 0
    facts: int = 0
    promoted: int = 0
    superseded: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    last_id: str | None = None


@dataclass(slots=True)
class Added:
    """What came of adding facts: the new ones, those there already, and who supersedes whom."""

    added: list[Fact] = field(default_factory=list)
    same: list[tuple[Fact, str]] = field(default_factory=list)  # given, and the id of its twin
    superseded: list[tuple[str, Fact]] = field(default_factory=list)


class Consolidator:
    """Adds facts to one project in the name of one agent."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def add(self, given: Iterable[Fact | FactDraft]) -> Added:
        """Add facts that are new, and supersede what they replace."""
        now = self._clock()
        facts = [self._fact(one, now) for one in given]
        lock = ledger.locked(self._store.folder / ".facts.lock", LOCK_SECONDS)
        with lock, self._store.reading():
            self._store.sweep()
            result = self._settle(sorted(facts, key=_since))
            self._store.add_facts(result.added, now)
            self._store.journal(
                [
                    self._event(
                        "supersede", items=[old], by=new.id, valid_to=to_iso(_since(new)[0])
                    )
                    for old, new in result.superseded
                ],
                shared=True,
            )
        return result

    def _settle(self, facts: Sequence[Fact]) -> Added:
        """Decide, fact by fact, what is new and what it replaces; nothing is written yet."""
        result, reader = Added(), self._store.reader()
        current: dict[tuple[str, ...], list[Fact]] = {}
        past: dict[tuple[str, ...], list[Fact]] = {}
        single = {normal(relation)[0] for relation in self._store.settings.facts.single_valued}
        known = reader.rows_of(fact.id for fact in facts)
        for fact in facts:
            about = normal(fact.subject, fact.relation)
            if about not in current:
                current[about] = _facts(reader.facts_about(*about))
                past[about] = _facts(reader.facts_about(*about, current=False))
            value = normal(fact.value)
            same = [other for other in current[about] if normal(other.value) == value]
            # What was superseded or forgotten does not come back with the words it came from.
            same = same or [
                other
                for other in past[about]
                if normal(other.value) == value and _entries(fact) <= _entries(other)
            ]
            if fact.id in known:
                result.same.append((fact, fact.id))
                continue
            if same:
                result.same.append((fact, same[0].id))
                continue
            result.added.append(fact)
            if about[1] in single:
                rivals = [other for other in current[about] if _may_replace(fact, other)]
                for rival in rivals:
                    # An old value that is learned late does not replace a newer one.
                    older, newer = sorted((rival, fact), key=_since)
                    result.superseded.append((older.id, newer))
                    current[about] = [o for o in current[about] if o.id != older.id]
                if all(newer.id == fact.id for _, newer in result.superseded[-len(rivals) :]):
                    current[about].append(fact)
            else:
                current[about].append(fact)
        return result

    def remember(self, entry: Entry) -> Fact:
        """Make a fact of an entry that somebody asked to be kept."""
        source = Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id)
        draft = FactDraft(
            subject="user",
            relation="remember",
            value=entry.content,
            text=entry.content,
            sources=(source,),
            quote=entry.content,
            span=(0, len(entry.content)),
            extractor="remember",
            confidence=1.0,
            valid_from=entry.observed_at,
        )
        result = self.add([draft])
        kept = [*(fact.id for fact in result.added), *(twin for _, twin in result.same)]
        reader = self._store.reader()
        if not reader.state(entry.id).promoted:
            self._store.journal([self._promotion([entry], kept)], shared=True)
        if result.added:
            return result.added[0]
        stored = reader.stored([*reader.rows_of(kept).values()]).values()
        for fact in _facts(one for one in stored if not one.state.forgotten):
            return fact
        raise NotFound(f"{entry.content[:40]!r} was forgotten once; write it differently")

    def run(self, limit: int) -> ConsolidationReport:
        """Look at up to ``limit`` entries that no pass has seen, of every agent.

        Raises:
            LedgerError: another process is at it.
        """
        lock = ledger.locked(self._store.folder / ".consolidate.lock", 0.0)
        with lock, self._store.reading():
            self._store.sweep()
            entries, cursors = self._unseen(limit)
            if not cursors:
                return ConsolidationReport()
            drafts, rejected = self._extracted(entries)
            result = self.add(drafts)
            by_entry = self._facts_by_entry(result, entries)
            self._store.journal(
                [self._promotion([entry], facts) for entry, facts in by_entry], shared=True
            )
            report = ConsolidationReport(
                read=len(entries),
                facts=len(result.added),
                promoted=len(by_entry),
                superseded=len(result.superseded),
                rejected=rejected + Counter({"known already": len(result.same)}),
                last_id=entries[-1].id if entries else None,
            )
            self._store.journal(
                [
                    self._event(
                        "consolidate", cursors=cursors, read=report.read, facts=report.facts,
                        promoted=report.promoted, superseded=report.superseded,
                        rejected=dict(report.rejected),
                    )
                ],
                shared=True,
            )  # fmt: skip
        return report

    def _unseen(self, limit: int) -> tuple[list[Entry], dict[str, int]]:
        """Return entries past the cursors, and where the cursors then stand."""
        reader = self._store.reader()
        seen = reader.cursors()
        entries: list[Entry] = []
        cursors: dict[str, int] = {}
        for file in backlog(self._store):
            start = seen.get(file.name, 0)
            lines, _ = ledger.read(file.path)
            for line in lines:
                if line.start < start:
                    continue
                if len(entries) >= limit:
                    return entries, cursors
                cursors[file.name] = line.start + len(line.data)
                try:
                    entry = Entry.from_json(ledger.parse(line), owner=file.owner)
                except (ValueError, TypeError, KeyError):
                    continue  # `doctor` names it
                state = reader.state(entry.id)
                if not state.promoted and not state.forgotten:
                    entries.append(entry)
        return entries, cursors

    def _extracted(self, entries: Sequence[Entry]) -> tuple[list[FactDraft], Counter[str]]:
        from memtier_plugin import plugins

        own = extract(entries, self._store.settings.facts.single_valued)
        drafts = [*own.drafts, *plugins.extract(entries)]
        kept = [draft for draft in drafts if draft.sources and draft.value.strip()]
        rejected = Counter(own.rejected)
        rejected["no source or value"] += len(drafts) - len(kept)
        return kept, +rejected

    def _facts_by_entry(
        self, result: Added, entries: Sequence[Entry]
    ) -> list[tuple[Entry, list[str]]]:
        facts: dict[str, list[str]] = {}
        found = [*((fact, fact.id) for fact in result.added), *result.same]
        for fact, identity in found:
            for source in fact.sources:
                facts.setdefault(source.entry, []).append(identity)
        return [(entry, facts[entry.id]) for entry in entries if entry.id in facts]

    def _fact(self, given: Fact | FactDraft, now: datetime) -> Fact:
        if isinstance(given, Fact):
            return given
        return Fact(
            id=new_id(),
            timestamp=now,
            project=self._store.project,
            subject=given.subject,
            relation=given.relation,
            value=given.value,
            text=given.text,
            sources=given.sources,
            valid_from=given.valid_from or now,
            quote=given.quote,
            span=given.span,
            extractor=given.extractor,
            confidence=given.confidence,
            origin=given.origin,
            tier=given.tier,
        )

    def _promotion(self, entries: Sequence[Entry], facts: Sequence[str]) -> JournalEvent:
        return self._event(
            "promote",
            items=[entry.id for entry in entries],
            facts=list(facts),
            agent=entries[0].agent_id,
            session=entries[0].session_id,
        )

    def _event(self, kind: str, **data: Any) -> JournalEvent:
        return JournalEvent(
            id=new_id(), timestamp=self._clock(), kind=kind, agent_id=self._agent, data=data
        )


def backlog(store: Store) -> dict[LedgerFile, int]:
    """Return the episodic ledger files with whole lines no pass has read, and how many bytes.

    Oldest first, so that facts come in the order in which they were said.
    """
    reader = store.reader()
    seen, known = reader.cursors(), reader.offsets()
    files = [file for file in ledger_files(store.folder) if file.ledger == "episodic"]
    files.sort(key=lambda file: (file.path.name, file.name))
    waiting = {f: known.get(f.name, 0) - seen.get(f.name, 0) for f in files}
    return {file: size for file, size in waiting.items() if size > 0}


def _facts(stored: Iterable[Stored]) -> list[Fact]:
    return [one.item for one in stored if isinstance(one.item, Fact)]


def _entries(fact: Fact) -> set[str]:
    return {source.entry for source in fact.sources}


def _since(fact: Fact) -> tuple[datetime, str]:
    return fact.valid_from or fact.timestamp, fact.id


def _may_replace(fact: Fact, other: Fact) -> bool:
    """Tell whether two facts speak for the same: the same agent's, or both the user's words."""
    return fact.sources[0].agent == other.sources[0].agent or fact.origin == other.origin == "user"
