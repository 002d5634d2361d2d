"""The facts of one project: list, search, review, add, consolidate, roll back.

Facts are shared within the project; one that is private to an agent is shown only to that agent, a
person's only when that person asks, and the source lines of a fact only to their own agent.
`FactService.person` serves the person at the machine, who sees everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Final

from memtier_plugin.core.errors import MessageError, NotFound, Paused
from memtier_plugin.core.events import ForgetEvent, UnforgetEvent
from memtier_plugin.core.formats import ID_LENGTH, MIN_ID_END, aware, new_id
from memtier_plugin.core.records import Extractor, Fact, FactDraft, Run, check_fact
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.core.structs import check_methods
from memtier_plugin.credit.questions import Regression
from memtier_plugin.facts import forgetting, own_words, views
from memtier_plugin.facts.consolidation import ConsolidationReport, Consolidator, Progress
from memtier_plugin.facts.forgetting import (
    Audience,
    ForgetProposal,
    Forgotten,
    decide_forget,
    propose_forget,
)
from memtier_plugin.facts.review import FactReview, ReviewItem, ReviewOutcome, waiting_forgets
from memtier_plugin.facts.rollback import Rollback, roll_back
from memtier_plugin.facts.views import ConsolidationInfo, FactChange, FactView
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.ingest.messages import parse_messages
from memtier_plugin.ingest.recorder import Recorder
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.retrieval.visibility import Asker, redact_for
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.sessions import from_new_index
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.tokenizer import normalise, plain_words

EDITED_SESSION: Final = "reviewed"  # of a reviewer's wordings


@dataclass(frozen=True, slots=True)
class FactSearchResult:
    """The hits of a search, best first, and a label like that of a recall."""

    label: str
    hits: tuple[Hit, ...]


@check_methods
class FactService:
    """The facts of one project, as one agent may see them for a sender, or (``person``) all.

    Args:
        get_recaller: returns the agent's recaller, which a consolidation does not need.
    """

    def __init__(
        self,
        actor: Actor,
        get_recaller: Callable[[], Recaller],
        *,
        everybody: bool = False,
        sender: str | None = None,
    ) -> None:
        self._actor = actor
        self._store = actor.store
        self._get_recaller = get_recaller
        self._everybody = everybody
        self._sender = sender

    @property
    def _sees_all(self) -> bool:
        return self._everybody or self._get_recaller().reads_all

    @property
    def _viewer(self) -> Asker | None:
        """The asker whose view limits what is shown; None for the person at the machine."""
        if self._sees_all:
            return None
        with self._store.session():
            return self._get_recaller().viewer(self._sender, self._actor.clock()).asker

    @property
    def person(self) -> FactService:
        """The same service for the person at the machine, including every private fact."""
        return FactService(self._actor, self._get_recaller, everybody=True)

    def of_sender(self, sender: str | None) -> FactService:
        """Return the same service for one sender, who sees no other's personal facts."""
        sender = self._actor.mask_name(sender)
        return FactService(self._actor, self._get_recaller, sender=sender)

    # -- reading -------------------------------------------------------------------------------

    @from_new_index
    def facts(
        self,
        *,
        include_superseded: bool = False,
        subject: str | None = None,
        shelves: bool = True,
    ) -> list[FactView]:
        """Return the facts with their state, oldest first.

        Args:
            include_superseded: include facts that do not hold: superseded, proposed, rolled back.
            subject: only those about this subject, ignoring case.
            shelves: include summaries and timelines.
        """
        with self._reading() as reader:
            facts = views.list_facts(
                reader, self._viewer, everything=include_superseded, shelves=shelves
            )
        if subject is None:
            return facts
        name = normalise(subject)
        return [view for view in facts if normalise(view.fact.subject) == name]

    @from_new_index
    def rules(self) -> list[own_words.RuleView]:
        """Return the rules in force that corrections set, newest first."""
        with self._reading() as reader:
            return own_words.list_rules(reader, self._viewer)

    @from_new_index
    def todo(self) -> list[own_words.TodoView]:
        """Return the intentions that nobody closed: the first due, then the newest."""
        with self._reading() as reader:
            return own_words.list_todo(reader, self._viewer)

    def close(self, fact_id: str, why: own_words.Closing = "done") -> FactView:
        """Close an intention, so that it is not brought up again; returns what it was.

        Raises:
            NotFound, NotGranted, LedgerError: it was not closed.
        """
        own_words.close(self._actor, (view := self._own_fact(fact_id)).fact, why)
        return view

    @from_new_index
    def fact(self, fact_id: str) -> FactView:
        """Return a fact, its reviews, and its visible source lines.

        Raises:
            NotFound: there is no such fact.
        """
        with self._reading() as reader:
            return views.show_fact(reader, fact_id, self._viewer)

    def _own_fact(self, fact_id: str) -> FactView:
        """Return a fact on which the asker may decide.

        Raises:
            NotFound, NotGranted: there is none.
        """
        view, viewer = self.fact(fact_id), self._viewer
        with self._store.session() as reader:
            forgetting.require_own(reader, viewer, [view.fact])
        return view

    @from_new_index
    def facts_by_id(self, ids: Iterable[str]) -> list[FactView]:
        """Return the visible facts among these ids, oldest first."""
        with self._reading() as reader:
            stored = reader.items(ids).values()
            facts = views.view_facts(reader, stored, self._viewer)
        return sorted(facts, key=lambda view: view.fact.id)

    @from_new_index
    def search(self, query: str, limit: int = 10) -> FactSearchResult:
        """Return the current facts that match a query by words or meaning, best first.

        The search is not journalled.

        Raises:
            Paused: the project is switched off.
            IndexProblem: the index cannot be used.
        """
        if self._store.paused:
            raise Paused(f"project {self._store.project!r} is off; `memtier on` switches it on")
        recaller, request = self._get_recaller(), RecallRequest(depth="facts")
        plan, viewer = recaller.plan, recaller.viewer(self._sender, self._actor.clock())
        viewer = replace(viewer, read_all=self._sees_all)
        # An agent without a name finds the facts that all agents share, and a person's.
        shared = plan(
            query,
            replace(
                viewer,
                agent="",
                read_all=False,
                read_people=True if self._sees_all else viewer.read_people,
            ),
            request,
        )
        private_plan = plan(query, viewer, request)
        private = [
            hit for hit in private_plan.hits if isinstance(hit.item, Fact) and hit.item.private_to
        ]
        both = [*(hit for hit in shared.hits if isinstance(hit.item, Fact)), *private]
        both.sort(key=lambda hit: (-hit.score, hit.id))
        asker = self._viewer
        hits = tuple(_redact_hit(hit, asker) for hit in both[:limit])
        why = dict.fromkeys([*shared.degradations, *private_plan.degradations])
        vectors = shared.result.vectors
        label = "hybrid" if vectors else "lexical" if hits else "empty"
        return FactSearchResult(f"degraded: {', '.join(why)}" if why else label, hits)

    @from_new_index
    def timeline(self, subject: str) -> list[FactView]:
        """Return what holds or once held about a subject, by relation and start of validity.

        Raises:
            NotFound: nothing is known about it; the message suggests similar subjects.
        """
        with self._reading() as reader:
            return views.show_timeline(reader, subject, self._viewer)

    @from_new_index
    def diff(
        self, since: datetime, until: datetime | None = None, *, written: bool = False
    ) -> list[FactChange]:
        """Return the changes to facts since a time, oldest first; see `list_changes`."""
        end = aware(until) or self._actor.clock() + timedelta(days=1)  # clocks differ
        with self._reading(full=True) as reader:
            start = aware(since) or since
            return views.list_changes(reader, start, end, self._viewer, written=written)

    @from_new_index
    def runs(self, limit: int = 100) -> list[ConsolidationInfo]:
        """Return the newest consolidations, oldest first, and which of them were rolled back."""
        with self._reading(full=True) as reader:
            return views.list_consolidations(reader, limit)

    def review_id(self, end: str) -> str:
        """Return the id of the pending item that ends so, or else of any entry or fact."""
        ids = {item.id for item in self.review_queue() if item.id.endswith(end.upper())}
        return ids.pop() if len(ids) == 1 and len(end) >= MIN_ID_END else self.full_id(end)

    def full_id(self, end: str, *, forgotten: bool = False) -> str:
        """Return the id of the entry or fact that ends so; a full id is returned unchanged.

        Args:
            forgotten: search hidden items instead.

        Raises:
            NotFound: no id, or more than one, ends so.
        """
        if len(end) >= ID_LENGTH:
            return end
        if len(end) < MIN_ID_END:
            raise NotFound(f"{end!r} is too short: give the last {MIN_ID_END} characters or more")
        with self._reading(full=True) as reader:
            matches = reader.ids_ending(end.upper(), 2, forgotten=forgotten)
        if len(matches) != 1:
            count = "more than one entry or fact has" if matches else "no entry or fact has"
            raise NotFound(f"{count} an id that ends in {end!r}; `memtier log` shows them")
        return matches[0]

    # -- review and rollback -------------------------------------------------------------------

    def proposals(self) -> list[FactView]:
        """Return the facts pending review, oldest first; see `FactReview.proposals`."""
        return self._review.proposals()

    def review_queue(self, audience: Audience | None = None) -> list[ReviewItem]:
        """Return everything that awaits a decision, similar items together.

        Args:
            audience: only what rests on the lines of this agent and sender; a sender who asks sees
                no more than that.
        """
        if self._sender is not None and not self._sees_all:
            audience = Audience(self._actor.agent, self._sender)
        return self._review.queue(audience)

    def accept(self, ids: Iterable[str]) -> list[ReviewOutcome]:
        """Accept proposed, rejected or rolled back facts, and pending forgets.

        Raises:
            NotFound: there is no such fact, or it cannot be accepted; none is.
            NotGranted: it is another person's to decide; none is accepted.
            LedgerError: this one, and those after it, were not accepted.
        """
        forgets, facts = self._split_forgets(ids)
        outcomes = self._review.accept([self._own_fact(identity) for identity in facts])
        for proposal in forgets:
            self.forget(ids=[proposal.item])
            decide_forget(self._actor, proposal, accepted=True)
            outcomes.append(ReviewOutcome(proposal.id, "forgotten"))
        return outcomes

    def reject(self, ids: Iterable[str], why: str = "") -> list[ReviewOutcome]:
        """Reject pending facts, or pending forgets, whose items then stay.

        Raises:
            NotFound: there is no such fact, or it is not pending; none is rejected.
            NotGranted: it is another person's to decide; none is rejected.
            LedgerError: this one, and those after it, were not rejected.
        """
        forgets, facts = self._split_forgets(ids)
        outcomes = self._review.reject([self._own_fact(identity) for identity in facts], why)
        for proposal in forgets:
            decide_forget(self._actor, proposal, accepted=False, why=why)
            outcomes.append(ReviewOutcome(proposal.id, "kept"))
        return outcomes

    def _split_forgets(self, ids: Iterable[str]) -> tuple[list[ForgetProposal], list[str]]:
        """Return the pending forgets of visible items among these ids, and the other ids."""
        viewer = self._viewer
        unique = [*dict.fromkeys(ids)]
        with self._reading(full=True) as reader:
            waiting = {item.id: item.proposal for item in waiting_forgets(reader, viewer)}
            named = [proposal.item for each in unique if (proposal := waiting.get(each))]
            stored = reader.items(named).values()
            forgetting.require_own(reader, viewer, (each.item for each in stored))
        forgets = [proposal for each in unique if (proposal := waiting.get(each))]
        return forgets, [identity for identity in unique if identity not in waiting]

    def user_asks_to_forget(self, session: str | None) -> bool:
        """Return whether the latest prompts of a session ask to forget something."""
        session = self._actor.mask_name(session)
        return session is not None and self._consolidator.user_asks_to_forget(session)

    def propose_forget(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Ask a person to forget facts; return the pending ones, see `forgetting`.

        Raises:
            NotFound: there is no such fact; none is proposed.
            LedgerError: none was proposed.
        """
        facts = [self.fact(identity).fact.id for identity in ids]
        return propose_forget(self._actor, facts)

    def edit(self, fact_id: str, text: str) -> ReviewOutcome:
        """Reword a pending fact; see `MemTier.edit_fact`."""
        view = self._own_fact(fact_id)
        self._review.refuse_decided(view)
        return self._reword(view, text)

    def reword(self, fact_id: str, text: str) -> ReviewOutcome:
        """Reword a current or pending fact.

        The wording is recorded as an entry of the user, on which the new fact rests.

        Raises:
            NotFound: there is no such fact, it does not hold, or the wording was forgotten before.
            MessageError: there is no text.
            LedgerError, IndexProblem: it was not written.
        """
        view = self._own_fact(fact_id)
        if view.state != "active":
            self._review.refuse_decided(view)
        return self._reword(view, text)

    def _reword(self, view: FactView, text: str) -> ReviewOutcome:
        [message] = parse_messages([{"role": "user", "content": text.strip() or None}])
        if not message.content:
            raise MessageError("there is no text to put in its place")
        # On behalf of the fact's own agent and sender: what is private to them stays so, and a new
        # wording of a confidence is a confidence.
        first = next((line.entry for line in view.lines if line.entry), None)
        agent, sender = view.fact.private_to or (view.fact.sources[0].agent, first and first.sender)
        name = f"review:{view.fact.id}:{new_id()}"
        with self._store.session() as reader:
            stored = reader.items(source.entry for source in view.fact.sources).values()
        private = any(line.is_confided_to_another("") for line in stored)
        run = Run(
            agent=agent, session=EDITED_SESSION, run=name, sender=sender or None, private=private
        )
        [entry] = Recorder(replace(self._actor, agent=agent)).record([(run, [message])])
        return self._review.replace_wording(view, entry)

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
        """Roll back one consolidation but no later one; repeating it changes nothing.

        Accepted facts stay, and so do facts confirmed by later consolidations, resting on their
        later sources.

        Raises:
            NotFound: there is no such consolidation.
            LedgerError: it was not, or not completely, undone; repeat it.
        """
        return roll_back(self._actor, run, why=why, regression=regression, dry_run=dry_run)

    # -- writing -------------------------------------------------------------------------------

    def add(self, facts: Iterable[Fact | FactDraft]) -> list[Fact]:
        """Add facts and return those that are new; see `MemTier.add_facts`."""
        facts = [*facts]
        for fact in facts:
            check_fact(fact)
        return self._consolidator.add_facts(facts).added

    def remember(
        self,
        recorder: Recorder,
        text: str,
        session: str,
        sender: str | None,
        by: str = "user",
        *,
        private: bool = False,
    ) -> Fact:
        """Store a text on request, as an entry and a fact; see `MemTier.remember`."""
        [message] = parse_messages([{"role": by, "content": text.strip() or None}])
        if not message.content:
            raise MessageError("there is no text to remember")
        content = recorder.prepare(message).content
        session = self._actor.redactor.redact_name(session)
        doubted = by == "assistant" and not self._consolidator.is_users_own_words(content, session)
        if doubted:
            message = replace(message, origin="external")  # its true origin is unknown
        # By a hash of the words: remembering the same again adds nothing, and a name never reveals
        # them.
        words = "\0".join([sender or "", *plain_words(content)]).encode("utf-8", "surrogatepass")
        name = f"remember:{blake2b(words, digest_size=16).hexdigest()}"
        private = private or self._consolidator.repeats_confidence(content, session)
        run = Run(
            agent=self._actor.agent, session=session, run=name, sender=sender, private=private
        )
        entries = recorder.record([(run, [message])])
        if not entries:
            self._store.refresh(self._actor.agent, wait_ms=500)
            earlier = views.read_entries(self._store, agent=self._actor.agent)
            entries = [e for e in earlier if (e.run_id, e.content) == (name, content)]
        if not entries:
            raise NotFound(f"{text[:40]!r} was forgotten once; write it differently to keep it")
        return self._consolidator.remember(entries[0], by=by, doubted=doubted)

    @cached_property
    def _consolidator(self) -> Consolidator:
        return Consolidator(self._actor)

    def consolidate(
        self,
        limit: int,
        *,
        extractor: Extractor | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> ConsolidationReport:
        """Consolidate unread entries into facts; see `Consolidator.run`."""
        return self._consolidator.run(
            limit, extractor=extractor, dry_run=dry_run, progress=progress, stop=stop
        )

    def forget(
        self, *, ids: Iterable[str] = (), session: str | None = None, dry_run: bool = False
    ) -> Forgotten:
        """Hide entries and facts everywhere; see `MemTier.forget`."""
        FactWriter(self._actor).recover()
        forgotten = forgetting.find_with_dependents(
            self._store, self._actor.agent, ids, session, self._viewer
        )
        if (items := (*forgotten.ids, *forgotten.facts)) and not dry_run:
            event = self._actor.event(ForgetEvent(items=items, session=session))
            self._store.append_events([event], shared=True)
        return forgotten

    def unforget(self, ids: Iterable[str], *, dry_run: bool = False) -> Forgotten:
        """Restore hidden entries and facts; see `MemTier.unforget`."""
        brought_back = forgetting.find_forgotten(self._store, ids, self._viewer)
        if not dry_run:
            items = (*brought_back.ids, *brought_back.facts)
            self._store.append_events([self._actor.event(UnforgetEvent(items=items))], shared=True)
        return brought_back

    def _reading(self, *, full: bool = False) -> AbstractContextManager[Reader]:
        """Return a context with a reader of what is written; ``full`` first reads every ledger."""
        if full:
            self._store.catch_up_all()
        else:
            self._store.refresh(self._actor.agent, wait_ms=500, read_all=self._sees_all)
        return self._store.session()


def _redact_hit(hit: Hit, viewer: Asker | None) -> Hit:
    assert isinstance(hit.item, Fact)
    return replace(hit, item=redact_for(hit.item, viewer))
