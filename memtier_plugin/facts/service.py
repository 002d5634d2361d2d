"""The facts of one project: look at them, search, review, add, consolidate, roll back.

Facts are shared within the project; one that is private to an agent is shown to that agent alone,
and so are the lines that a fact rests on.  `FactService.person` is the person at the machine, who
sees everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from memtier_plugin.core.errors import MessageError, NotFound, Paused
from memtier_plugin.core.events import ForgetEvent
from memtier_plugin.core.records import Fact, FactDraft, Run
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.core.times import aware
from memtier_plugin.facts import changes, dependents, views
from memtier_plugin.facts.changes import FactChange
from memtier_plugin.facts.consolidation import ConsolidationReport, Consolidator, Progress
from memtier_plugin.facts.dependents import Forgotten
from memtier_plugin.facts.recall_check import RecallGuard, Regression
from memtier_plugin.facts.review import FactReview, ReviewOutcome
from memtier_plugin.facts.rollback import Rollback, roll_back
from memtier_plugin.facts.views import ConsolidationInfo, FactView
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.ingest.messages import parse_messages
from memtier_plugin.ingest.recorder import Recorder
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.text.normalise import normalise
from memtier_plugin.text.tokenizer import plain_words

ID_LENGTH: Final = 26


@dataclass(frozen=True, slots=True)
class FactSearchResult:
    """The hits of a search, best first, and a label like that of a recall."""

    label: str
    hits: tuple[Hit, ...]


class FactService:
    """The facts of one project, as one agent or (``person``) everybody may see them."""

    def __init__(self, actor: Actor, recaller: Recaller, *, everybody: bool = False) -> None:
        self._actor = actor
        self._store = actor.store
        self._recaller = recaller
        self._viewer = None if everybody or recaller.reads_all else actor.agent

    @property
    def person(self) -> FactService:
        """The same service for the person at the machine, including every private fact."""
        return FactService(self._actor, self._recaller, everybody=True)

    # -- looking -------------------------------------------------------------------------------

    def facts(
        self,
        *,
        include_superseded: bool = False,
        subject: str | None = None,
        shelves: bool = True,
    ) -> list[FactView]:
        """Return the facts with their state, oldest first.

        Args:
            include_superseded: also those that do not hold: superseded, proposed, rolled back.
            subject: only those about this subject, in any case.
            shelves: also summaries and timelines.
        """
        with self._reading() as reader:
            facts = views.list_facts(
                reader, self._viewer, everything=include_superseded, shelves=shelves
            )
        if subject is None:
            return facts
        name = normalise(subject)
        return [view for view in facts if normalise(view.fact.subject) == name]

    def fact(self, fact_id: str) -> FactView:
        """Return a fact, its reviews, and the lines it rests on that may be seen.

        Raises:
            NotFound: there is no such fact.
        """
        with self._reading() as reader:
            return views.show_fact(reader, fact_id, self._viewer)

    def facts_by_id(self, ids: Iterable[str]) -> list[FactView]:
        """Return those of these ids that are facts and may be seen, oldest first."""
        with self._reading() as reader:
            stored = reader.items(ids).values()
            facts = views.view_facts(reader, stored, self._viewer)
        return sorted(facts, key=lambda view: view.fact.id)

    def search(self, query: str, limit: int = 10) -> FactSearchResult:
        """Return the facts that hold and match a query by words or meaning, best first.

        The search is not journalled.

        Raises:
            Paused: the project is switched off.
            IndexProblem: the index cannot be used.
        """
        if self._store.paused:
            raise Paused(f"project {self._store.project!r} is off; `memtier on` switches it on")
        now, plan, request = self._actor.clock(), self._recaller.plan, RecallRequest(depth="facts")
        # An agent without a name finds what all agents share.
        shared = plan(query, Viewer("", None, read_all=False, at=now), request)
        viewer = Viewer(self._actor.agent, None, read_all=self._viewer is None, at=now)
        own = plan(query, viewer, request)
        private = [hit for hit in own.hits if isinstance(hit.item, Fact) and hit.item.private_to]
        both = [*(hit for hit in shared.hits if isinstance(hit.item, Fact)), *private]
        both.sort(key=lambda hit: (-hit.score, hit.id))
        hits = tuple(_redact_hit(hit, self._viewer) for hit in both[:limit])
        why = dict.fromkeys([*shared.degradations, *own.degradations])
        vectors = shared.result.vectors
        label = "hybrid" if vectors else "lexical" if hits else "empty"
        return FactSearchResult(f"degraded: {', '.join(why)}" if why else label, hits)

    def timeline(self, subject: str) -> list[FactView]:
        """Return what holds or once held of a subject, by relation and start of validity.

        Raises:
            NotFound: nothing is known of it; the message suggests similar subjects.
        """
        with self._reading() as reader:
            return views.show_timeline(reader, subject, self._viewer)

    def diff(self, since: datetime, until: datetime | None = None) -> list[FactChange]:
        """Return the changes to facts since a time, oldest first."""
        end = aware(until) or self._actor.clock() + timedelta(days=1)  # clocks differ
        with self._reading(full=True) as reader:
            return changes.list_changes(reader, aware(since) or since, end, self._viewer)

    def runs(self, limit: int = 100) -> list[ConsolidationInfo]:
        """Return the newest consolidations, oldest first, and which of them were rolled back."""
        with self._reading(full=True) as reader:
            return views.list_consolidations(reader, limit)

    def full_id(self, end: str) -> str:
        """Return the id of the entry or fact that ends so; a full id is returned as it is.

        Raises:
            NotFound: none ends so, or more than one.
        """
        if len(end) >= ID_LENGTH:
            return end
        with self._reading(full=True) as reader:
            ids = reader.ids_ending(end.upper(), 2) if end else []
        if len(ids) != 1:
            count = "more than one entry or fact has" if ids else "no entry or fact has"
            raise NotFound(f"{count} an id that ends in {end!r}; `memtier log` shows them")
        return ids[0]

    # -- review and rollback -------------------------------------------------------------------

    def proposals(self) -> list[FactView]:
        """Return the facts that wait for review, oldest first; see `FactReview.proposals`."""
        return self._review.proposals()

    def accept(self, ids: Iterable[str]) -> list[ReviewOutcome]:
        """Let facts hold that wait, or that were rejected or rolled back; resolve them like new.

        Raises:
            NotFound: there is no such fact, or it is not to be accepted; none is.
            LedgerError: this one, and those after it, were not accepted.
        """
        return self._review.accept([self.fact(identity) for identity in dict.fromkeys(ids)])

    def reject(self, ids: Iterable[str], why: str = "") -> list[ReviewOutcome]:
        """Decide that facts that wait are not to hold.

        Raises:
            NotFound: there is no such fact, or it does not wait; none is rejected.
            LedgerError: this one, and those after it, were not rejected.
        """
        return self._review.reject([self.fact(identity) for identity in dict.fromkeys(ids)], why)

    @property
    def _review(self) -> FactReview:
        return FactReview(self._actor, self._viewer)

    def revert(
        self,
        run: str,
        *,
        dry_run: bool = False,
        why: str = "",
        regression: Regression | None = None,
    ) -> Rollback:
        """Roll back one consolidation and no later one; a second time changes nothing.

        Accepted facts stay, and so does, resting on its later sources, what later consolidations
        confirmed.

        Raises:
            NotFound: there is no such consolidation.
            LedgerError: it is not, or not completely, undone; repeat it.
        """
        return roll_back(self._actor, run, why=why, regression=regression, dry_run=dry_run)

    # -- writing -------------------------------------------------------------------------------

    def add(self, facts: Iterable[Fact | FactDraft]) -> list[Fact]:
        """Add facts and return those that are new; see `MemTier.add_facts`."""
        return self._consolidator.add_facts(facts).added

    def remember(
        self, recorder: Recorder, text: str, session: str, sender: str | None, by: str = "user"
    ) -> Fact:
        """Keep a text on request, as an entry and a fact; see `MemTier.remember`."""
        [message] = parse_messages([{"role": by, "content": text.strip() or None}])
        if not message.content:
            raise MessageError("there is no text to remember")
        content = recorder.prepare(message).content
        doubted = by == "assistant" and not self._consolidator.is_users_own_words(content, session)
        if doubted:
            message = replace(message, origin="external")  # its true origin is unknown
        # Named after the text: remembering the same words again adds nothing.
        name = f"remember:{'-'.join(plain_words(text))[:200]}"
        run = Run(agent=self._actor.agent, session=session, run=name, sender=sender)
        entries = recorder.record([(run, [message])])
        if not entries:
            self._store.refresh(self._actor.agent, wait_ms=500)
            earlier = views.read_entries(self._store, agent=self._actor.agent, session=session)
            entries = [e for e in earlier if (e.run_id, e.content) == (name, content)]
        if not entries:
            raise NotFound(f"{text[:40]!r} was forgotten once; write it differently to keep it")
        return self._consolidator.remember(entries[0], doubted=doubted)

    @cached_property
    def _consolidator(self) -> Consolidator:
        # Kept: its guard's probes serve one window after another.
        return Consolidator(self._actor, RecallGuard(self._store, self._actor.clock))

    def consolidate(
        self,
        limit: int,
        *,
        extractor: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> ConsolidationReport:
        """Turn unread entries into facts; see `Consolidator.run`."""
        return self._consolidator.run(
            limit, extractor=extractor, dry_run=dry_run, progress=progress, stop=stop
        )

    def forget(
        self, *, ids: Iterable[str] = (), session: str | None = None, dry_run: bool = False
    ) -> Forgotten:
        """Hide entries and facts everywhere; see `MemTier.forget`."""
        FactWriter(self._actor).recover()
        forgotten = dependents.find_with_dependents(
            self._store, self._actor.agent, ids, session, self._viewer
        )
        if (items := (*forgotten.ids, *forgotten.facts)) and not dry_run:
            event = self._actor.event(ForgetEvent(items=items, session=session))
            self._store.append_events([event], shared=True)
        return forgotten

    def _reading(self, *, full: bool = False) -> AbstractContextManager[IndexReader]:
        """Return a reader of what is written, as a context; ``full`` reads every ledger first."""
        if full:
            self._store.catch_up_all()
        else:
            self._store.refresh(self._actor.agent, wait_ms=500, read_all=self._viewer is None)
        return self._store.session()


def _redact_hit(hit: Hit, viewer: str | None) -> Hit:
    assert isinstance(hit.item, Fact)
    return replace(hit, item=views.redact_for(hit.item, viewer))
