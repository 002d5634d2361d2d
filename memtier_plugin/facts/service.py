"""What a person or a host does with a project's facts: look, search, review, undo, forget.

Facts are shared within the project; one that is private to an agent is shown to that agent alone,
and so are the lines that a fact rests on.  `FactService.person` is the person at the machine, who
sees everything.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from memtier_plugin.core.errors import MessageError, NotFound, Paused
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Fact, FactDraft, JournalEvent, Run
from memtier_plugin.core.results import Hit
from memtier_plugin.core.times import aware, to_iso
from memtier_plugin.facts import changes, dependents, recall_check, rollback, views
from memtier_plugin.facts.changes import FactChange
from memtier_plugin.facts.consolidation import ConsolidationReport, Consolidator, Progress
from memtier_plugin.facts.dependents import Forgotten
from memtier_plugin.facts.rollback import Rollback
from memtier_plugin.facts.views import FactView
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.ingest.messages import parse_messages
from memtier_plugin.ingest.recorder import Recorder
from memtier_plugin.retrieval import visibility
from memtier_plugin.retrieval.contradictions import holds_since
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.retrieval.search import Viewer
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.store import LOCK_SECONDS, Store
from memtier_plugin.text.normalise import normalise
from memtier_plugin.text.tokenizer import plain_words

ID_LENGTH: Final = 26
_WAITS: Final = ("proposed", "held back")
_MAY_ACCEPT: Final = (*_WAITS, "rejected", "reverted")
_AFTER: Final = timedelta(milliseconds=1)  # the finest time that the journal keeps
_SUGGESTED: Final = 5
_PROBES_SECONDS: Final = 60  # how long probes serve for one window after another
_UNPROBED: Final = (-math.inf, datetime.min, list[recall_check.Probe](), 0)

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class FactSearchResult:
    """What a search found, best first, and how: a label as of a recall."""

    label: str
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """What came of a review of one fact: ``now`` is how it stands, and what gave way to it."""

    id: str
    now: str
    superseded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsolidationInfo:
    """One consolidation, as the journal has it; ``why`` it was undone, if it was."""

    run: str | None
    at: datetime
    agent: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    reverted: datetime | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, the figures beside the rest."""
        undone = to_iso(self.reverted) if self.reverted else None
        head = {"run": self.run, "at": to_iso(self.at), "agent": self.agent}
        return {**head, **self.figures, "reverted": undone, "why": self.why}


class FactService:
    """The facts of one project, as one agent or (``person``) everybody may see them."""

    def __init__(
        self, store: Store, recaller: Recaller, agent: str, clock: Clock, *, everybody: bool = False
    ) -> None:
        self._store = store
        self._recaller = recaller
        self._agent = agent
        self._clock = clock
        self._viewer = None if everybody or recaller.reads_all else agent
        self._probed: tuple[float, datetime, list[recall_check.Probe], int] | None = None

    @property
    def person(self) -> FactService:
        """The same as the person at the machine sees it: what is private to any agent too."""
        return FactService(self._store, self._recaller, self._agent, self._clock, everybody=True)

    # -- looking -------------------------------------------------------------------------------

    def facts(
        self,
        *,
        include_superseded: bool = False,
        subject: str | None = None,
        shelves: bool = True,
    ) -> list[FactView]:
        """Return the facts, oldest first, each with how it stands.

        Args:
            include_superseded: those too that do not hold: superseded, proposed, undone.
            subject: only about this one, in whatever case.
            shelves: summaries and timelines too.
        """
        with self._reading() as reader:
            found = views.list_facts(
                reader, self._viewer, everything=include_superseded, shelves=shelves
            )
        if subject is None:
            return found
        wanted = normalise(subject)
        return [one for one in found if normalise(one.fact.subject) == wanted]

    def fact(self, fact_id: str) -> FactView:
        """Return a fact, who decided on it, and the lines it rests on that may be seen.

        Raises:
            NotFound: there is no such fact.
        """
        with self._reading() as reader:
            return views.show_fact(reader, fact_id, self._viewer)

    def facts_by_id(self, ids: Iterable[str]) -> list[FactView]:
        """Return those of these ids that are facts and may be seen, oldest first."""
        with self._reading() as reader:
            stored = reader.items_by_row([*reader.rows_of(ids).values()]).values()
            found = views.view_facts(reader, stored, self._viewer)
        return sorted(found, key=lambda one: one.fact.id)

    def search(self, query: str, limit: int = 10) -> FactSearchResult:
        """Return the facts that hold and match a query by words or meaning, best first.

        Nothing of it is journalled.

        Raises:
            Paused: the project is switched off.
            IndexProblem: the index cannot be used.
        """
        if self._store.paused:
            raise Paused(f"project {self._store.project!r} is off; `memtier on` switches it on")
        now, ask = self._clock(), self._recaller.plan
        # Nobody has entries: what an agent without a name finds is what all of them share.
        shared = ask(query, Viewer("", None, read_all=False, at=now), depth="facts")
        asker = Viewer(self._agent, None, read_all=self._viewer is None, at=now)
        mine = ask(query, asker, depth="facts")
        private = [hit for hit in mine.hits if isinstance(hit.item, Fact) and hit.item.private_to]
        both = [*(hit for hit in shared.hits if isinstance(hit.item, Fact)), *private]
        both.sort(key=lambda hit: (-hit.score, hit.id))
        hits = tuple(_redact_hit(hit, self._viewer) for hit in both[:limit])
        why = dict.fromkeys([*shared.degradations, *mine.degradations])
        vectors = shared.search is not None and shared.search.result.vectors
        label = "hybrid" if vectors else "lexical" if hits else "empty"
        return FactSearchResult(f"degraded: {', '.join(why)}" if why else label, hits)

    def timeline(self, subject: str) -> list[FactView]:
        """Return what holds or once held of a subject, by relation and by since when.

        Raises:
            NotFound: nothing is known of it; the message has subjects that are like it.
        """
        [wanted] = normalise(subject)
        with self._reading() as reader:
            about = views.view_facts(reader, reader.facts_of_subject(wanted), self._viewer)
            found = [one for one in about if one.state in ("active", "superseded")]
            like = [] if found else self._similar_subjects(reader, wanted)
        if not found:
            known = f"; there are {', '.join(map(repr, like))}" if like else ""
            raise NotFound(f"nothing is known about {subject!r}{known}")
        found = [one for one in found if not one.fact.shelf] or found
        return sorted(found, key=lambda one: (normalise(one.fact.relation), holds_since(one.fact)))

    def _similar_subjects(self, reader: IndexReader, wanted: str) -> list[str]:
        """Return subjects that hold one of the words, of facts that may be seen."""
        like: dict[str, None] = {}
        for word in wanted.split() or [""]:
            for subject in reader.subjects_like(word, _SUGGESTED):
                if views.view_facts(reader, reader.facts_of_subject(subject), self._viewer):
                    like[subject] = None
        return list(like)[:_SUGGESTED]

    def diff(self, since: datetime, until: datetime | None = None) -> list[FactChange]:
        """Return what happened to the facts since a moment, oldest first."""
        end = aware(until) or self._clock() + timedelta(days=1)  # clocks differ
        with self._reading(whole=True) as reader:
            return changes.list_changes(reader, aware(since) or since, end, self._viewer)

    def runs(self, limit: int = 100) -> list[ConsolidationInfo]:
        """Return the newest consolidations, oldest first, and which of them were undone."""
        with self._reading(whole=True) as reader:
            told = reader.events_of_kind("consolidate", limit)
            undone = {
                event.data["run"]: event
                for event in reversed(reader.events_of_kind("revert", limit))
            }
        found = []
        for event in reversed(told):
            revert = undone.get(event.run_id)
            figures = {k: v for k, v in event.data.items() if k not in ("cursors", "number")}
            found.append(
                ConsolidationInfo(
                    event.run_id, event.timestamp, event.agent_id, figures,
                    revert.timestamp if revert else None,
                    str(revert.data.get("why", "")) if revert else "",
                )
            )  # fmt: skip
        return found

    def full_id(self, end: str) -> str:
        """Return the one id of an entry or fact that ends so; a whole id is returned as it is.

        Raises:
            NotFound: none ends so, or more than one.
        """
        if len(end) >= ID_LENGTH:
            return end
        with self._reading(whole=True) as reader:
            found = reader.ids_ending(end.upper(), 2) if end else []
        if len(found) != 1:
            count = "more than one entry or fact has" if found else "no entry or fact has"
            raise NotFound(f"{count} an id that ends in {end!r}; `memtier log` shows them")
        return found[0]

    # -- review --------------------------------------------------------------------------------

    def proposals(self) -> list[FactView]:
        """Return the facts that wait for somebody to decide on them, oldest first.

        They are proposed, or of a consolidation that was held back since recall fell.
        """
        with self._reading(whole=True) as reader:
            stored = [*reader.waiting_facts(), *reader.reverted_facts()]
            found = views.view_facts(
                reader, (one for one in stored if one.state.reviewed is None), self._viewer
            )
        return sorted((one for one in found if one.state in _WAITS), key=lambda one: one.fact.id)

    def accept(self, ids: Iterable[str]) -> list[ReviewOutcome]:
        """Let facts hold that wait, or that were rejected or undone; they are settled like new.

        Each keeps its origin; the journal says who accepted it and when.

        Raises:
            NotFound: there is no such fact, or it is not one to be accepted; no more is accepted.
            LedgerError: this one, and those after it, were not accepted.
        """
        done = []
        for one in self._reviewable(ids, _MAY_ACCEPT):
            if one.state not in _MAY_ACCEPT:
                done.append(ReviewOutcome(one.fact.id, one.state))
                continue
            settler = FactWriter(self._store, self._agent, self._clock_after(one.fact.id))
            event = settler.event("accept", None, items=[one.fact.id])
            added = settler.write_accepted(self._load_fact(one.fact.id), [event])
            gone = tuple(old for old, _ in added.superseded)
            state = "superseded" if one.fact.id in gone else "active"
            gone = tuple(old for old in gone if old != one.fact.id)
            done.append(ReviewOutcome(one.fact.id, state, gone))
        return done

    def reject(self, ids: Iterable[str], why: str = "") -> list[ReviewOutcome]:
        """Decide that facts that wait are not to hold.

        Raises:
            as `accept`.
        """
        done = []
        for one in self._reviewable(ids, _WAITS):
            if one.state in _WAITS:
                now = self._clock_after(one.fact.id)()
                event = self._event("reject", now, items=[one.fact.id], why=why)
                self._store.append_events([event], shared=True)
            done.append(ReviewOutcome(one.fact.id, "rejected"))
        return done

    def _reviewable(self, ids: Iterable[str], states: Sequence[str]) -> list[FactView]:
        """Return these facts once all of them may be decided on, or were so already."""
        found = [self.fact(one) for one in dict.fromkeys(ids)]
        decided = ("rejected",) if states is _WAITS else ("active", "superseded")
        for one in found:
            waited = one.fact.status == "proposed" or one.reviews
            if one.state not in states and not (one.state in decided and waited):
                raise NotFound(
                    f"the fact {one.fact.id} is {one.state} and does not wait for review; "
                    "`memtier facts review` shows those that do, `memtier forget` hides one"
                )
        return found

    def _load_fact(self, fact_id: str) -> Fact:
        with self._store.session() as reader:
            [one] = reader.items_by_row([*reader.rows_of([fact_id]).values()]).values()
        assert isinstance(one.item, Fact)
        return one.item

    def _clock_after(self, item: str) -> Clock:
        """Return a clock that is past what the journal has of an item, if ours was set back."""
        with self._store.session() as reader:
            last = max((e.timestamp for e in reader.events_of_item(item)), default=None)
        return lambda: max(self._clock(), last + _AFTER) if last else self._clock()

    # -- undoing -------------------------------------------------------------------------------

    def revert(
        self, run: str, *, dry_run: bool = False, why: str = "", **figures: object
    ) -> Rollback:
        """Undo one consolidation and no later one; once more changes nothing.

        Facts that somebody accepted stay, and so does, resting on its later sources, what later
        consolidations confirmed.

        Raises:
            NotFound: there is no such consolidation.
            LedgerError: it is not, or not wholly, undone; do it again.
        """
        FactWriter(self._store, self._agent, self._clock).recover()
        lock = jsonl.locked(self._store.folder / ".facts.lock", LOCK_SECONDS)
        with lock, self._store.session():
            self._store.catch_up_all()
            now = self._clock()
            plan = rollback.plan_rollback(
                self._store.reader(),
                run,
                agent=self._agent,
                project=self._store.project,
                now=now,
                single_valued=self._store.settings.facts.single_valued,
                note={"why": why, **figures},
            )
            if not dry_run:
                self._store.append_facts(plan.facts, now)
                self._store.append_events(plan.events, shared=True)
                self._store.catch_up_all()
        return plan.reverted

    # -- writing -------------------------------------------------------------------------------

    def add(self, facts: Iterable[Fact | FactDraft]) -> list[Fact]:
        """Add facts and return those that are new; see `MemTier.add_facts`."""
        return self._consolidator.add_facts(facts).added

    def remember(
        self, recorder: Recorder, text: str, session: str, sender: str | None, by: str = "user"
    ) -> Fact:
        """Keep what somebody asked to be kept; see `MemTier.remember`."""
        [message] = parse_messages([{"role": by, "content": text.strip() or None}])
        if not message.content:
            raise MessageError("there is no text to remember")
        written = recorder.prepare(message).content
        doubted = by == "assistant" and not self._consolidator.is_users_own_words(written, session)
        if doubted:
            message = replace(message, origin="external")  # for all that is known of it
        # The run is the text's own: remembering the same words again adds nothing.
        named = f"remember:{'-'.join(plain_words(text))[:200]}"
        run = Run(agent=self._agent, session=session, run=named, sender=sender)
        entries = recorder.record([(run, [message])])
        if not entries:
            self._store.refresh(self._agent, wait_ms=500)
            before = views.read_entries(self._store, agent=self._agent, session=session)
            entries = [e for e in before if (e.run_id, e.content) == (named, written)]
        if not entries:
            raise NotFound(f"{text[:40]!r} was forgotten once; write it differently to keep it")
        return self._consolidator.remember(entries[0], doubted=doubted)

    @property
    def _consolidator(self) -> Consolidator:
        return Consolidator(self._store, self._agent, self._clock)

    def consolidate(
        self,
        limit: int,
        *,
        extractor: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> ConsolidationReport:
        """Turn entries not looked at yet into facts; see `MemTier.consolidate`.

        What lowers recall on the project's own history is undone and reported as held back.
        """
        return self._consolidator.run(
            limit, extractor=extractor, dry_run=dry_run, progress=progress, stop=stop,
            guarded=self._guarded,
        )  # fmt: skip

    def _guarded(self, write: Callable[[], ConsolidationReport]) -> ConsolidationReport:
        """Let a consolidation write, unless the project then finds less of its own past."""
        made, at, probes, before = self._probed or _UNPROBED
        if time.monotonic() - made > _PROBES_SECONDS:
            made, at = time.monotonic(), self._clock()
            probes = recall_check.make_probes(
                self._store, self._store.settings.consolidation.probes, at
            )
            before = len(probes)
            self._probed = made, at, probes, before
        report = write()
        if not (probes and report.runs and (report.facts or report.superseded or report.updated)):
            return report
        after = recall_check.count_recalled(self._store, probes, at)
        fell = recall_check.has_regressed(before, after, len(probes))
        # The next window of a long backlog begins where this one ends.
        self._probed = None if fell else (made, at, probes, after)
        if not fell:
            return report
        why = (
            f"recall on the project's own history fell: of {before} past entries that were found "
            f"before, {after} were found after it"
        )
        for run in reversed(report.runs):
            self.revert(run, why=why, probes=len(probes), before=before, after=after)
        return replace(report, held_back=why)

    def forget(
        self, *, ids: Iterable[str] = (), session: str | None = None, dry_run: bool = False
    ) -> Forgotten:
        """Hide entries and facts everywhere; see `MemTier.forget`."""
        FactWriter(self._store, self._agent, self._clock).recover()
        found = dependents.find_with_dependents(
            self._store, self._agent, ids, session, self._viewer
        )
        hidden = [*found.ids, *found.facts]
        if hidden and not dry_run:
            event = self._event("forget", self._clock(), items=hidden, session=session)
            self._store.append_events([event], shared=True)
        return found

    # -- small parts ---------------------------------------------------------------------------

    def _reading(self, *, whole: bool = False) -> AbstractContextManager[IndexReader]:
        """Return a reader of what is written, as a context; ``whole`` reads every ledger."""
        if whole:
            self._store.catch_up_all()
        else:
            self._store.refresh(self._agent, wait_ms=500, read_all=self._viewer is None)
        return self._store.session()

    def _event(self, kind: str, at: datetime, **data: Any) -> JournalEvent:
        return JournalEvent(id=new_id(), timestamp=at, kind=kind, agent_id=self._agent, data=data)


def _redact_hit(hit: Hit, viewer: str | None) -> Hit:
    assert isinstance(hit.item, Fact)
    return replace(hit, item=visibility.redact_for(hit.item, viewer))
