"""Consolidate episodes into shared facts: one pass by rules and one by a model.

Each pass has its own cursors, so that a slow or unreachable endpoint delays only its own pass.
A pass extracts without holding the locks that a recall or a record needs; it writes facts, events
and cursors in one transaction, the cursors last.  Source: MemTier, the consolidation daemon.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import (
    CapReached,
    EndpointError,
    HostAway,
    LedgerError,
    NotFound,
    SettingsError,
)
from memtier_plugin.core.events import (
    ConsolidateEvent,
    CreditEvent,
    PromoteEvent,
    ProposeEvent,
    RecallEvent,
)
from memtier_plugin.core.records import INJECTING, Entry, Extractor, Fact, FactDraft, JournalEvent
from memtier_plugin.credit.questions import RecallGuard, Regression
from memtier_plugin.facts import persons
from memtier_plugin.facts.backlog import MODEL, RULES, Window, count_unread, read_window
from memtier_plugin.facts.rollback import roll_back
from memtier_plugin.facts.writer import FactWriter, WriteOutcome
from memtier_plugin.providers.chat import NO_MODEL
from memtier_plugin.storage.store import Actor, Store
from memtier_plugin.text.tokenizer import normalise
from memtier_plugin.trust import external_text, origins
from memtier_plugin.trust.confidences import asks_to_forget, may_be_confided

# Importing the extractors takes a fifth of a process's start-up, and few processes need them.
if TYPE_CHECKING:
    from memtier_plugin.facts.drafts import DraftBatch, DraftBuilder

_ASKED_IN: Final = 3  # newest prompts of a session in which a user may ask to forget
_PROMPTS: Final = 200  # newest recalls among which the session's prompts are looked up
_FAILED_AGAIN: Final = 0.1  # of an experience's weight, for each run that its last step ended
_RECENT: Final = 50  # newest consolidations among which an extractor's last one is looked up

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ConsolidationReport:
    """The result of a consolidation: counts read and written, and reasons of rejections.

    ``facts`` are in force; of a consolidation that was held back all facts are ``proposed``.
    ``left`` estimates how many entries remain unread; ``problem`` is why the model's pass ended
    early, or ``waits`` if it waits for a host; ``unread`` are the entries without a usable answer.
    ``runs`` are the ids of the consolidations that wrote something.
    ``drafts`` are the facts, and ``replaced`` the ids of older ones with the fact that replaces
    them: written, or with ``dry_run`` to be written.
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
    waits: str = ""
    held_back: str = ""
    runs: tuple[str, ...] = ()
    drafts: tuple[Fact, ...] = ()
    replaced: tuple[tuple[str, Fact], ...] = ()

    @property
    def run(self) -> str | None:
        """The id of the last consolidation that wrote something, if any."""
        return self.runs[-1] if self.runs else None

    def __add__(self, other: ConsolidationReport) -> ConsolidationReport:
        """Return the sum of two reports."""
        added = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name not in ("rejected", "last_id", "problem", "waits", "held_back")
        }
        return ConsolidationReport(
            **added,
            rejected=dict(Counter(self.rejected) + Counter(other.rejected)),
            last_id=other.last_id or self.last_id,
            problem="; ".join(filter(None, (self.problem, other.problem))),
            waits=self.waits or other.waits,
            held_back=self.held_back or other.held_back,
        )


class Consolidator:
    """Consolidates a project's entries into facts on behalf of an agent."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store
        self._writer = FactWriter(actor)

    @cached_property
    def _builder(self) -> DraftBuilder:
        from memtier_plugin.facts.drafts import DraftBuilder

        return DraftBuilder(self._actor, self._writer)

    def add_facts(self, drafts: Iterable[Fact | FactDraft]) -> WriteOutcome:
        """Add new facts, and supersede what they replace (see `FactWriter.write`)."""
        mode = self._store.settings.facts.mode
        return self._writer.write(persons.hold_given(draft, mode) for draft in drafts)

    def remember(self, entry: Entry, *, by: str, doubted: bool) -> Fact:
        """Make a fact of an entry that a person or a model asked to keep.

        Args:
            by: the role of whoever keeps it; `facts.mode: explicit` lets only a person decide.
            doubted: kept by a model, and not in the user's own words: it waits for review.

        Raises:
            NotFound: it was forgotten before.
            LedgerError, IndexProblem: it was not written.
        """
        from memtier_plugin.facts.extraction.rules import draft_kept

        draft = draft_kept(entry)
        if doubted:
            draft = replace(draft, status="proposed", reason=origins.REVIEW_REASONS["unsaid"])
        if by != "user":
            draft = persons.hold_kept(draft, self._store.settings.facts)
        reader, writer = self._store.reader(), self._writer
        with writer.exclusive():
            outcome = writer.resolve([draft])
            events = writer.supersede_events(outcome, None)
            ids = [*(fact.id for fact in outcome.added), *(twin for _, twin in outcome.restated)]
            if not reader.state(entry.id).promoted:
                events.append(self._promotion(entry, ids, None))
            writer.commit(outcome.added, events)
        if outcome.added:
            return outcome.added[0]
        twins = [*(twin for _, twin in outcome.restated), *outcome.former]
        for stored in reader.items(twins).values():
            item, state = stored.item, stored.state
            if isinstance(item, Fact) and not state.forgotten and state.reviewed != "rejected":
                return item
        raise NotFound(f"{entry.content[:40]!r} was forgotten once; write it differently")

    def is_users_own_words(self, text: str, session: str) -> bool:
        """Return whether a text adds nothing to the user's own prompts of a session.

        Anything else that a model wants to keep may have been dictated by text that it read in
        the same run, which cannot be known before the run ends.
        """
        if not self._store.settings.trust.defence:
            return True
        return external_text.is_stated_by(text, self._prompts(session), self._store.tokenizer.words)

    def user_asks_to_forget(self, session: str) -> bool:
        """Return whether the user asked to forget in one of the last prompts of a session."""
        if not self._store.settings.trust.defence:
            return True
        return any(map(asks_to_forget, self._prompts(session)[-_ASKED_IN:]))

    def repeats_confidence(self, text: str, session: str) -> bool:
        """Return whether a text repeats, or answers, a confidence of a session."""
        prompts = self._prompts(session)
        confided = [prompt for prompt in prompts if may_be_confided(prompt)]
        if confided and confided[-1] == prompts[-1]:
            return True
        return external_text.is_restatement(text, confided, self._store.tokenizer.words)

    def _prompts(self, session: str) -> list[str]:
        """Return this agent's newest prompts in a session, the latest last."""
        events = self._store.reader().events(kinds=[RecallEvent.KIND], newest=_PROMPTS)
        events += self._store.unindexed_events(self._actor.agent)
        recalls = [
            RecallEvent.of(event)
            for event in sorted(events, key=lambda event: (event.timestamp, event.id))
            if event.kind == RecallEvent.KIND and event.agent_id == self._actor.agent
        ]
        return [
            recall.query
            for recall in recalls
            if recall.session_id == session and recall.purpose in INJECTING
        ]

    def run(
        self,
        limit: int,
        *,
        extractor: Extractor | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> ConsolidationReport:
        """Consolidate up to ``limit`` entries that no pass has read, of every agent.

        A consolidation that lowers recall on the project's own history is rolled back and reported
        as held back.

        Args:
            extractor: run only this pass, ``rules`` or ``model``.
            dry_run: report what would be written, without writing.
            progress: called with the number of entries read and the estimated total.
            stop: polled between two windows; ends the pass.

        Raises:
            LedgerError: another process consolidates the project, or nothing could be written.
        """
        report = ConsolidationReport()
        for name in list_extractors(self._store) if extractor is None else (extractor,):
            with self._exclusive(name), self._store.session():
                self._writer.recover()
                self._store.catch_up_all()
                report += self._run_pass(name, limit, dry_run, progress, stop)
        return report

    # -- a pass --------------------------------------------------------------------------------

    @contextmanager
    def _exclusive(self, extractor: str) -> Iterator[None]:
        """Hold the lock on an extractor's pass, without waiting for it."""
        with self._store.try_exclusive(f"consolidate.{extractor}") as held:
            if not held:
                raise LedgerError(
                    f"project {self._store.project!r} is being consolidated ({extractor}):"
                    " it is locked by another process; nothing is lost, try again later"
                )
            yield

    def _run_pass(
        self,
        extractor: str,
        limit: int,
        dry_run: bool,
        progress: Progress | None,
        stop: Callable[[], bool],
    ) -> ConsolidationReport:
        report = ConsolidationReport()
        total = count_unread(self._store, extractor) if progress else 0
        # The model's answers are paid for: write them before asking for more.
        tokens = self._store.settings.consolidation.batch_tokens if extractor == MODEL else math.inf
        while report.read < limit and not stop():
            window = read_window(
                self._store,
                extractor,
                limit - report.read,
                tokens=tokens,
                refuse=self._builder.refusal_reason,
            )
            if not window.cursors:
                break
            try:
                report += self._consolidate(extractor, window, dry_run)
            except HostAway as error:
                report = replace(report, waits=str(error))
            except (EndpointError, CapReached, SettingsError) as error:
                # The cursors stay where they are: the next pass tries again.
                report = replace(report, problem=str(error))
            if report.problem:
                self._journal_problem(extractor, report.problem, dry_run)
            if report.problem or report.waits:
                break
            if progress:
                progress(report.read, max(report.read, total))
            if dry_run:
                break
        left = 0 if report.problem or report.waits else count_unread(self._store, extractor)
        return replace(report, left=max(0, left - report.read) if dry_run else left)

    def _consolidate(self, extractor: str, window: Window, dry_run: bool) -> ConsolidationReport:
        """Extract, verify and filter the drafts of a window, write them, and check recall."""
        started = time.perf_counter()
        batch = self._builder.build(extractor, window)
        batch.rejected.update(window.skipped)
        number = self._store.reader().last_pass(extractor) + 1
        run = derive_run_id(extractor, number, window.starts)
        if dry_run:
            outcome = self._writer.resolve(batch.drafts, run=run, contexts=batch.contexts)
            promoted = len(_facts_by_entry(outcome, window.entries))
            return _report(window, batch, outcome, promoted, started)
        # Facts found by our rules rest on the words that they quote, so they push no entry out.
        guard = None
        if batch.drafts and batch.claimed:
            guard = RecallGuard(self._store, max(entry.observed_at for entry in window.entries))
        regression = None
        with self._writer.exclusive():
            # Under the lock, so that nobody else's facts come between the two measurements.
            before = guard.measure() if guard else []
            outcome = self._writer.resolve(
                batch.drafts, run=run, contexts=batch.contexts, decisions=batch.decisions
            )
            promotions = _facts_by_entry(outcome, window.entries)
            report = _report(window, batch, outcome, len(promotions), started, run)
            events = [
                *self._writer.supersede_events(outcome, run),
                *self._writer.retract_events(outcome, run),
                *(self._promotion(entry, facts, run) for entry, facts in promotions),
                *self._proposals(outcome, run),
                *self._weaken_experiences(outcome, run),
                self._consolidation(extractor, number, window, report),
            ]
            self._writer.commit(outcome.added, events)
            if guard and (report.facts or report.superseded or report.updated):
                regression = guard.compare(before, guard.measure())
        return self._hold_back(report, regression) if regression else report

    def _hold_back(
        self, report: ConsolidationReport, regression: Regression
    ) -> ConsolidationReport:
        """Roll back the consolidations of a report because recall fell."""
        for run in reversed(report.runs):
            roll_back(self._actor, run, why=regression.describe(), regression=regression)
        return replace(
            report,
            facts=0,
            promoted=0,
            superseded=0,
            updated=0,
            proposed=report.proposed + report.facts,
            replaced=(),
            held_back=regression.describe(),
        )

    # -- journal events ------------------------------------------------------------------------

    def _promotion(self, entry: Entry, facts: Sequence[str], run: str | None) -> JournalEvent:
        event = PromoteEvent(
            items=(entry.id,), facts=tuple(facts), agent=entry.agent_id, session=entry.session_id
        )
        return self._actor.event(event, run=run)

    def _proposals(self, outcome: WriteOutcome, run: str) -> list[JournalEvent]:
        by_reason: dict[str, list[str]] = {}
        for fact in outcome.proposed:
            by_reason.setdefault(fact.reason, []).append(fact.id)
        return [
            self._actor.event(ProposeEvent(items=tuple(items), reason=reason), run=run)
            for reason, items in by_reason.items()
        ]

    def _weaken_experiences(self, outcome: WriteOutcome, run: str) -> list[JournalEvent]:
        """Lower the weight of experiences whose last step failed and ended a later run."""
        from memtier_plugin.facts.extraction.experiences import HOW_TO, WHAT_FAILED

        reader, lowered = self._store.reader(), dict[str, Fact]()
        for failure in outcome.added:
            if failure.relation != WHAT_FAILED or failure.status != "active":
                continue
            [subject] = normalise(failure.subject)
            for stored in reader.facts(subject=subject):
                fact = stored.item
                if not isinstance(fact, Fact) or fact.relation != HOW_TO:
                    continue
                if fact.value.rpartition(" > ")[2] == failure.value:
                    lowered[fact.id] = fact
        return [
            self._actor.event(
                CreditEvent(item=item, attempt=1, reward=-1.0, delta=-_FAILED_AGAIN), run=run
            )
            for item in lowered
        ]

    def _consolidation(
        self, extractor: str, number: int, window: Window, report: ConsolidationReport
    ) -> JournalEvent:
        event = ConsolidateEvent(
            extractor=extractor,
            number=number,
            cursors=window.cursors,
            read=report.read,
            facts=report.facts,
            proposed=report.proposed,
            promoted=report.promoted,
            superseded=report.superseded,
            updated=report.updated,
            ignored=report.ignored,
            rejected=report.rejected,
            tokens=report.tokens,
            cost=report.cost,
            ms=report.ms,
            unread=report.unread or None,
            problem=report.problem or None,
        )
        return self._actor.event(event, run=report.run)

    def _journal_problem(self, extractor: str, problem: str, dry_run: bool) -> None:
        """Journal why a pass ended early, once for as long as the problem persists."""
        recent = self._store.reader().events(kinds=[ConsolidateEvent.KIND], newest=_RECENT)
        passes = map(ConsolidateEvent.of, recent)
        last = next((event for event in passes if event.extractor == extractor), None)
        if not dry_run and (last is None or last.problem != problem):
            event = ConsolidateEvent(extractor=extractor, problem=problem)
            self._store.append_events([self._actor.event(event)], shared=True)


def list_extractors(store: Store) -> tuple[Extractor, ...]:
    """Return the extractors that a project's settings enable."""
    return (RULES,) if store.settings.consolidation.model == NO_MODEL else (RULES, MODEL)


def derive_run_id(extractor: str, number: int, starts: Mapping[str, int]) -> str:
    """Return a consolidation's id, which is the same when a pass is repeated after a crash."""
    identity = json.dumps([extractor, number, sorted(starts.items())])
    return f"{extractor}-{number}-{hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()}"


def _facts_by_entry(
    outcome: WriteOutcome, entries: Sequence[Entry]
) -> list[tuple[Entry, list[str]]]:
    """Return the entries that facts rest on, in order, each with the facts that hold."""
    facts: dict[str, list[str]] = {}
    active = [(fact, fact.id) for fact in outcome.added if fact.status == "active"]
    for fact, identity in [*active, *outcome.restated]:
        for source in fact.sources:
            facts.setdefault(source.entry, []).append(identity)
    return [(entry, facts[entry.id]) for entry in entries if entry.id in facts]


def _report(
    window: Window,
    batch: DraftBatch,
    outcome: WriteOutcome,
    promoted: int,
    started: float,
    run: str | None = None,
) -> ConsolidationReport:
    restated = Counter({"known already": len(outcome.restated)})
    return ConsolidationReport(
        read=len(window.entries),
        facts=len(outcome.added) - len(outcome.proposed),
        promoted=promoted,
        superseded=len(outcome.superseded) + len(outcome.retracted),
        updated=len(outcome.updates),
        ignored=len(outcome.restated),
        proposed=len(outcome.proposed),
        rejected=dict(+(batch.rejected + outcome.refused + restated)),
        last_id=window.entries[-1].id if window.entries else None,
        tokens=batch.tokens,
        cost=batch.cost,
        ms=round((time.perf_counter() - started) * 1000, 1),
        unread=batch.unread,
        problem=batch.problem,
        waits=batch.waits,
        runs=(run,) if run else (),
        drafts=tuple(outcome.added),
        replaced=(*outcome.superseded, *outcome.retracted),
    )
