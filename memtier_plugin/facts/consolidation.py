"""From episodes to shared facts: the pass over what is new, by rules and by a model.

Each has cursors of its own, so that an endpoint that is down or slow delays only its own pass.
What a pass finds is read without holding what a recall or a record needs; it is written together
(`charge`), the cursors last.  Source: MemTier (consolidation daemon), seeds 1.6; design 4.4.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from memtier_plugin.core import locks
from memtier_plugin.core.errors import (
    CapReached,
    EndpointError,
    LedgerError,
    NotFound,
    SettingsError,
)
from memtier_plugin.core.records import Entry, Fact, FactDraft, JournalEvent, Source
from memtier_plugin.facts.backlog import (
    MODEL,
    RULES,
    Window,
    count_unread,
    find_unread_files,
    read_window,
)
from memtier_plugin.facts.drafts import DraftBatch, DraftBuilder
from memtier_plugin.facts.writer import Events, FactWriter, WriteOutcome
from memtier_plugin.providers.chat import NO_MODEL
from memtier_plugin.storage.store import Store
from memtier_plugin.trust import echoes, origins

__all__ = [
    "ConsolidationReport",
    "Consolidator",
    "WriteOutcome",
    "count_unread",
    "find_unread_files",
    "list_extractors",
]

_PROMPTS: Final = 200  # of the journal, among which the session's are looked for
_RECENT: Final = 50  # consolidations among which an extractor's last one is looked for

Progress = Callable[[int, int], None]
Guard = Callable[[Callable[[], "ConsolidationReport"]], "ConsolidationReport"]


@dataclass(frozen=True, slots=True)
class ConsolidationReport:
    """What a call read and made, and what it rejected and why.

    ``left`` is about how many entries could be read next; ``problem`` why the model's pass ended
    early, and ``unread`` the entries of which it gave no answer that can be used.  ``runs`` are the
    ids of the consolidations that wrote something.  ``drafts`` are the facts, and ``replaced`` the
    ids of older ones with the fact in whose favour: written, or with ``dry_run`` what would be.
    """

    read: int = 0
    facts: int = 0
    promoted: int = 0
    superseded: int = 0
    updated: int = 0
    ignored: int = 0
    proposed: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    last_id: str | None = None
    tokens: int = 0
    cost: float = 0.0
    ms: float = 0.0
    left: int = 0
    unread: tuple[str, ...] = ()
    problem: str = ""
    held_back: str = ""
    runs: tuple[str, ...] = ()
    drafts: tuple[Fact, ...] = ()
    replaced: tuple[tuple[str, Fact], ...] = ()

    @property
    def run(self) -> str | None:
        """The id of the last consolidation, if one wrote something."""
        return self.runs[-1] if self.runs else None

    def __add__(self, other: ConsolidationReport) -> ConsolidationReport:
        """Return what both say together."""
        return ConsolidationReport(
            read=self.read + other.read,
            facts=self.facts + other.facts,
            promoted=self.promoted + other.promoted,
            superseded=self.superseded + other.superseded,
            updated=self.updated + other.updated,
            ignored=self.ignored + other.ignored,
            proposed=self.proposed + other.proposed,
            rejected=dict(Counter(self.rejected) + Counter(other.rejected)),
            last_id=other.last_id or self.last_id,
            tokens=self.tokens + other.tokens,
            cost=self.cost + other.cost,
            ms=self.ms + other.ms,
            left=self.left + other.left,
            unread=(*self.unread, *other.unread),
            problem="; ".join(filter(None, (self.problem, other.problem))),
            held_back=self.held_back or other.held_back,
            runs=(*self.runs, *other.runs),
            drafts=(*self.drafts, *other.drafts),
            replaced=(*self.replaced, *other.replaced),
        )


class Consolidator:
    """Makes facts for one project in the name of one agent."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._settler = FactWriter(store, agent, clock)
        self._drafter = DraftBuilder(store, agent, clock, self._settler)

    def add_facts(self, given: Iterable[Fact | FactDraft]) -> WriteOutcome:
        """Add facts that are new, and supersede what they replace (see `FactWriter.write`)."""
        return self._settler.write(given)

    def remember(self, entry: Entry, *, doubted: bool) -> Fact:
        """Make a fact of an entry that somebody asked to be kept.

        Args:
            doubted: a model keeps it and it is not what `is_users_own_words`: it waits for review.
        """
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
            origin=entry.origin,
            valid_from=entry.observed_at,
            status="proposed" if doubted else "active",
            reason=origins.REVIEW_REASONS["unsaid"] if doubted else "",
        )
        reader = self._store.reader()

        def finish(result: WriteOutcome) -> Events:
            kept = [*(fact.id for fact in result.added), *(twin for _, twin in result.restated)]
            return [] if reader.state(entry.id).promoted else [self._promotion(entry, kept, None)]

        result = self._settler.write([draft], finish=finish)
        if result.added:
            return result.added[0]
        rows = reader.rows_of(twin for _, twin in result.restated)
        for one in reader.items_by_row([*rows.values()]).values():
            if isinstance(one.item, Fact) and not one.state.forgotten:
                return one.item
        raise NotFound(f"{entry.content[:40]!r} was forgotten once; write it differently")

    def is_users_own_words(self, text: str, session: str) -> bool:
        """Tell whether a text says no more than the user's own prompts of a session did.

        What else a model wants to be kept, something that it read in the same run may have told it
        to, and nobody knows before the run ends.
        """
        if not self._store.settings.trust.defence:
            return True
        written = self._store.reader().events_of_kind("recall", _PROMPTS)
        prompts = [
            event.data["query"]
            for event in [*written, *self._store.unindexed_events(self._agent)]
            if event.kind == "recall"
            and event.agent_id == self._agent
            and event.data.get("session_id") == session
            and event.data["purpose"] == "inject"
        ]
        return echoes.is_stated_by(text, prompts, self._store.tokenizer.words)

    def run(
        self,
        limit: int,
        *,
        extractor: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Callable[[], bool] = lambda: False,
        guarded: Guard = lambda write: write(),
    ) -> ConsolidationReport:
        """Look at up to ``limit`` entries that no pass has seen, of every agent.

        Args:
            extractor: only this one's pass, ``candidate_rules`` or ``model``.
            dry_run: tell what would be written, and write nothing.
            progress: called with the entries read, of about how many there are.
            stop: asked between two steps whether to end here.
            guarded: is given the writing of each step, to look at what it does and undo it.

        Raises:
            LedgerError: another process is at it, or nothing could be written.
        """
        report = ConsolidationReport()
        for name in list_extractors(self._store) if extractor is None else (extractor,):
            with self._alone(name), self._store.session():
                self._settler.recover()
                self._store.catch_up_all()
                report += self._pass(name, limit, dry_run, progress, stop, guarded)
        return report

    # -- a pass --------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, extractor: str) -> Iterator[None]:
        """Hold the lock on an extractor's pass, without waiting for it."""
        held = locks.try_acquire_lock(self._store.folder / f".consolidate.{extractor}.lock")
        if held is None:
            raise LedgerError(
                f"project {self._store.project!r} is being consolidated ({extractor}): its lock is"
                " locked by another process; nothing is lost, try again later"
            )
        try:
            yield
        finally:
            locks.release_lock(held)

    def _pass(
        self,
        extractor: str,
        limit: int,
        dry_run: bool,
        progress: Progress | None,
        stop: Callable[[], bool],
        guarded: Guard,
    ) -> ConsolidationReport:
        report = ConsolidationReport()
        total = count_unread(self._store, extractor) if progress else 0
        while report.read < limit and not stop():
            tokens = self._store.settings.consolidation.batch_tokens
            window = read_window(
                self._store,
                extractor,
                limit - report.read,
                # A model reads so much at once: what was paid for is kept before more is asked.
                tokens=tokens if extractor == MODEL else math.inf,
                refuse=self._drafter.refusal_reason,
            )
            if not window.cursors:
                break
            try:
                report += self._consolidated(extractor, window, dry_run, guarded)
            except (EndpointError, CapReached, SettingsError) as error:
                # The cursors stay where they are: it is done again the next time.
                report = replace(report, problem=str(error))
            if report.problem:
                self._tell_problem(extractor, report.problem, dry_run)
                break
            if progress:
                progress(report.read, max(report.read, total))
            if dry_run:
                break
        left = 0 if report.problem else count_unread(self._store, extractor)
        return replace(report, left=max(0, left - report.read) if dry_run else left)

    def _consolidated(
        self, extractor: str, window: Window, dry_run: bool, guarded: Guard
    ) -> ConsolidationReport:
        started = time.perf_counter()
        found = self._drafter.build(extractor, window)
        found.rejected.update(window.skipped)
        number = self._store.reader().last_pass(extractor) + 1
        run = derive_run_id(extractor, number, window.starts)
        made: list[ConsolidationReport] = []

        def finish(result: WriteOutcome) -> Events:
            by_entry = _facts_by_entry(result, window.entries)
            report = _report(window, found, result, len(by_entry), run)
            made.append(replace(report, ms=round((time.perf_counter() - started) * 1000, 1)))
            return [
                *(self._promotion(entry, facts, run) for entry, facts in by_entry),
                *self._proposals(result, run),
                self._told(extractor, number, window, made[0]),
            ]

        if dry_run:
            result = self._settler.preview(found.drafts, run, found.contexts)
            finish(result)
            return replace(made[0], runs=())

        def write() -> ConsolidationReport:
            self._settler.write(
                found.drafts,
                run=run,
                contexts=found.contexts,
                judged=found.decisions,
                finish=finish,
            )
            return made[0]

        return guarded(write) if found.drafts else write()

    # -- what is told --------------------------------------------------------------------------

    def _promotion(self, entry: Entry, facts: Sequence[str], run: str | None) -> JournalEvent:
        return self._settler.event(
            "promote", run, items=[entry.id], facts=list(facts), agent=entry.agent_id,
            session=entry.session_id,
        )  # fmt: skip

    def _proposals(self, result: WriteOutcome, run: str) -> list[JournalEvent]:
        reasons: dict[str, list[str]] = {}
        for fact in result.proposed:
            reasons.setdefault(fact.reason, []).append(fact.id)
        return [
            self._settler.event("propose", run, items=items, reason=reason)
            for reason, items in reasons.items()
        ]

    def _tell_problem(self, extractor: str, problem: str, dry_run: bool) -> None:
        """Journal why a pass ended early, once for as long as it stays so."""
        recent = self._store.reader().events_of_kind("consolidate", _RECENT)
        last = next((one for one in recent if one.data.get("extractor") == extractor), None)
        if not dry_run and (last is None or last.data.get("problem") != problem):
            told = self._settler.event(
                "consolidate", None, extractor=extractor, read=0, problem=problem
            )
            self._store.append_events([told], shared=True)

    def _told(
        self, extractor: str, number: int, window: Window, report: ConsolidationReport
    ) -> JournalEvent:
        return self._settler.event(
            "consolidate", report.run, extractor=extractor, number=number, cursors=window.cursors,
            read=report.read, facts=report.facts, proposed=report.proposed,
            promoted=report.promoted, superseded=report.superseded, updated=report.updated,
            ignored=report.ignored, rejected=dict(report.rejected), tokens=report.tokens,
            cost=report.cost, ms=report.ms,
            **({"unread": list(report.unread)} if report.unread else {}),
            **({"problem": report.problem} if report.problem else {}),
        )  # fmt: skip


def list_extractors(store: Store) -> tuple[str, ...]:
    """Return the passes that a project has."""
    return (RULES,) if store.settings.consolidation.model == NO_MODEL else (RULES, MODEL)


def derive_run_id(extractor: str, number: int, starts: Mapping[str, int]) -> str:
    """Return a consolidation's id: the same for a pass that is done again after a crash."""
    begun = json.dumps([extractor, number, sorted(starts.items())])
    return f"{extractor}-{number}-{hashlib.blake2b(begun.encode(), digest_size=4).hexdigest()}"


def _facts_by_entry(
    result: WriteOutcome, entries: Sequence[Entry]
) -> list[tuple[Entry, list[str]]]:
    """Return the entries that facts rest on, in order, each with those that hold."""
    facts: dict[str, list[str]] = {}
    active = [(fact, fact.id) for fact in result.added if fact.status == "active"]
    for fact, identity in [*active, *result.restated]:
        for source in fact.sources:
            facts.setdefault(source.entry, []).append(identity)
    return [(entry, facts[entry.id]) for entry in entries if entry.id in facts]


def _report(
    window: Window, found: DraftBatch, result: WriteOutcome, promoted: int, run: str
) -> ConsolidationReport:
    return ConsolidationReport(
        read=len(window.entries),
        facts=len(result.added) - len(result.proposed),
        promoted=promoted,
        superseded=len(result.superseded),
        updated=len(result.updates),
        ignored=len(result.restated),
        proposed=len(result.proposed),
        rejected=dict(
            +(found.rejected + result.refused + Counter({"known already": len(result.restated)}))
        ),
        last_id=window.entries[-1].id if window.entries else None,
        tokens=found.tokens,
        cost=found.cost,
        unread=found.unread,
        problem=found.problem,
        runs=(run,),
        drafts=tuple(result.added),
        replaced=tuple(result.superseded),
    )
