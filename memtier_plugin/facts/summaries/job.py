"""The job that writes summaries, timelines of changed facts, and plugins' overviews as facts.

What is due is read from the index, so there is no cursor to lose: a group whose lines have no
current summary gets one, newest first.  Facts are written before what they supersede, so that the
next pass completes an interrupted one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from memtier_plugin.core import plugins
from memtier_plugin.core.events import SummariseEvent, SupersedeEvent
from memtier_plugin.core.formats import from_iso, new_id, to_iso
from memtier_plugin.core.hookspecs import Overview, OverviewKind
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.facts.persons import USER
from memtier_plugin.facts.summaries import selection
from memtier_plugin.facts.summaries.selection import PastValue, Timeline
from memtier_plugin.facts.summaries.working import PROMPT_TOKENS, PassModel, quote_lines
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.overviews import LineGroup, OverviewReader, ShelvedFact
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.tokenizer import normalise

MODEL_MAX_AGE: Final = timedelta(days=3)  # older lines are summarised without a model
BATCH_SIZE: Final = 20  # summaries written at once
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ALWAYS: Final = (-1e300, 1e300)


@dataclass(frozen=True, slots=True)
class SummaryReport:
    """The result of a pass: the items written, and how many are left for the next."""

    sessions: int = 0
    days: int = 0
    timelines: int = 0
    months: int = 0
    people: int = 0
    others: int = 0  # from plugins
    superseded: int = 0
    left: int = 0
    problem: str = ""  # why the model wrote no more

    @property
    def written(self) -> int:
        """The number of new items."""
        longer = self.months + self.people + self.others
        return self.sessions + self.days + self.timelines + longer


@dataclass(slots=True)
class _Pass:
    """The state of a pass: its id, its remaining room, and what it wrote."""

    run: str
    room: int
    stop: Callable[[], bool]
    model: PassModel
    counts: Counter[str] = field(default_factory=Counter)
    superseded: int = 0
    left: int = 0

    def has_room(self) -> bool:
        """Return whether this pass has room for another due item; if not, count it as left."""
        if self.room > 0 and not self.stop():
            return True
        self.left += 1
        return False


@dataclass(frozen=True, slots=True)
class _DueItem:
    """A fact to write (None if it exists already, as ``standing``), and what it supersedes."""

    standing: str
    superseded: tuple[str, ...]
    fact: Fact | None = None


@dataclass(frozen=True, slots=True)
class _SummaryScope:
    """What a summary covers: a session, a span of time or a speaker, of one agent and sender."""

    kind: str
    group: LineGroup
    subject: str
    heading: Callable[[Sequence[Entry]], str]
    span: tuple[float, float] = _ALWAYS
    speaker: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return self.group.agent, self.group.sender, self.kind, self.subject

    @property
    def value(self) -> str:
        """The lines covered, as part of the key: a later last line triggers another summary."""
        # A growing group is rounded, or each line would trigger a new summary
        if self.speaker is not None:
            return f"{selection.step_of(self.group.lines)} lines"
        return f"{self.group.lines} lines until {to_iso(_time_of(self.group.last))}"


class Summariser:
    """Summarises a project for all of its agents, in one agent's name."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def run(self, limit: int = 200, stop: Callable[[], bool] = lambda: False) -> SummaryReport:
        """Write up to ``limit`` due summaries and timelines; ``left`` counts the rest.

        Args:
            stop: polled between batches; what was written by then is complete.

        Raises:
            LedgerError: another process summarises the project, or nothing could be written.
            IndexProblem: the index cannot be read.
        """
        if self._store.paused or not self._store.settings.summaries.enabled:
            return SummaryReport()
        with self._store.exclusive("summaries", 0.0), self._store.session():
            self._store.catch_up_all()
            budget = ChatBudget(self._store, self._actor.agent, self._actor.clock)
            model = PassModel(budget, self._store.tokenizer.words)
            work = _Pass(new_id(), limit, stop, model)
            # Timelines first: an outdated one misleads.
            self._write(work, selection.RELATION, self._due_timelines(work))
            kinds = plugins.find_overviews(self._store.settings)
            for kind in kinds:
                self._write(work, kind.relation, self._due_by_plugin(work, kind))
            if self._store.settings.summaries.long:
                self._write(work, selection.PERSON_SUMMARY, self._due_people(work))
                self._write(work, selection.MONTH_SUMMARY, self._due_months(work))
            self._write(work, selection.DAY_SUMMARY, self._due_days(work))
            self._write(work, selection.SESSION_SUMMARY, self._due_sessions(work))
            report = SummaryReport(
                sessions=work.counts[selection.SESSION_SUMMARY],
                days=work.counts[selection.DAY_SUMMARY],
                timelines=work.counts[selection.RELATION],
                months=work.counts[selection.MONTH_SUMMARY],
                people=work.counts[selection.PERSON_SUMMARY],
                others=sum(work.counts[kind.relation] for kind in kinds),
                superseded=work.superseded,
                left=work.left,
                problem=work.model.problem,
            )
            if report.written:
                summarised = SummariseEvent(
                    sessions=report.sessions,
                    days=report.days,
                    timelines=report.timelines,
                    months=report.months or None,
                    people=report.people or None,
                    profiles=report.others or None,
                    superseded=report.superseded,
                    problem=report.problem,
                )
                event = self._actor.event(summarised, run=work.run, event_id=work.run)
                self._store.append_events([event], shared=True)
        return report

    def _write(self, work: _Pass, kind: str, due: Iterator[_DueItem]) -> None:
        """Write due items in batches, each complete."""
        batch: list[_DueItem] = []
        new = 0
        for item in due:
            batch.append(item)
            if item.fact:
                work.room -= 1
                new += 1
            if new == BATCH_SIZE:
                self._write_batch(work, kind, batch)
                batch, new = [], 0
        self._write_batch(work, kind, batch)

    def _write_batch(self, work: _Pass, kind: str, batch: Sequence[_DueItem]) -> None:
        now = self._actor.clock()
        facts = [replace(item.fact, run=work.run, timestamp=now) for item in batch if item.fact]
        self._store.append_facts(facts, now)
        events = [
            self._actor.event(
                SupersedeEvent(items=item.superseded, by=item.standing, valid_to=to_iso(now)),
                run=work.run,
            )
            for item in sorted(batch, key=lambda item: item.fact is not None)
            if item.superseded
        ]
        self._store.append_events(events, shared=True)
        work.counts[kind] += len(facts)
        work.superseded += sum(len(item.superseded) for item in batch)

    def _due(
        self,
        work: _Pass,
        existing: Sequence[ShelvedFact],
        same: Sequence[ShelvedFact],
        make: Callable[[], Fact | None],
    ) -> Iterator[_DueItem]:
        """Yield a new fact, unless one with the same value exists; and what it supersedes.

        Args:
            existing: earlier facts about the same, with any value.
            same: those with today's value.
            make: makes the fact; None if there is nothing to say.
        """
        if any(fact.withdrawn for fact in same):
            return  # a person rejected it
        standing = [fact.id for fact in same if fact.in_place and fact.indexed][:1]
        others = tuple(f.id for f in existing if f.in_place and f.id not in standing)
        if standing:
            if others:  # left by an interrupted pass
                yield _DueItem(standing[0], others)
        elif work.has_room() and (fact := make()):
            yield _DueItem(fact.id, others, fact)

    # -- sessions and days ---------------------------------------------------------------------

    def _due_sessions(self, work: _Pass) -> Iterator[_DueItem]:
        now = self._actor.clock()
        idle = timedelta(hours=self._store.settings.summaries.idle_hours)
        written = self._summaries()
        for group in self._overviews.session_groups(selection.MIN_LINES):
            last = _time_of(group.last)
            if now - last >= idle or last.date() < now.date():
                heading = partial(selection.format_session_heading, group.name)
                scope = _SummaryScope(selection.SESSION_SUMMARY, group, group.name, heading)
                yield from self._due_summary(work, scope, written)

    def _due_days(self, work: _Pass) -> Iterator[_DueItem]:
        today, written = (self._actor.clock() - _EPOCH).days, self._summaries()
        for group in self._overviews.line_groups("day", selection.MIN_LINES):
            day = int(group.name)
            if day < today:
                name = f"{_EPOCH + timedelta(days=day):%Y-%m-%d}"
                span = (day * 86_400.0, (day + 1) * 86_400.0)
                heading = selection.format_day_heading
                scope = _SummaryScope(selection.DAY_SUMMARY, group, name, heading, span)
                yield from self._due_summary(work, scope, written)

    def _due_months(self, work: _Pass) -> Iterator[_DueItem]:
        this_month, written = f"{self._actor.clock():%Y-%m}", self._summaries()
        for group in self._overviews.line_groups("month", selection.MIN_MONTH_LINES):
            if group.name < this_month:
                heading = partial(selection.format_heading, group.name)
                span = _span_of_month(group.name)
                scope = _SummaryScope(selection.MONTH_SUMMARY, group, group.name, heading, span)
                yield from self._due_summary(work, scope, written)

    def _due_people(self, work: _Pass) -> Iterator[_DueItem]:
        written = self._summaries()
        for group in self._overviews.line_groups("speaker", selection.MIN_PERSON_LINES):
            yield from self._due_summary(work, _scope_of_person(group), written)

    def _due_summary(
        self,
        work: _Pass,
        scope: _SummaryScope,
        written: Mapping[tuple[str, ...], Sequence[ShelvedFact]],
    ) -> Iterator[_DueItem]:
        existing = written.get(scope.key, ())
        same = [fact for fact in existing if fact.value == scope.value]
        return self._due(work, existing, same, lambda: self._summarise(work, scope))

    def _summaries(self) -> dict[tuple[str, ...], list[ShelvedFact]]:
        """Return the existing summaries by `_SummaryScope.key`."""
        written: dict[tuple[str, ...], list[ShelvedFact]] = {}
        for fact in self._overviews.shelved_facts("summary"):
            key = fact.agent, fact.sender, fact.relation, fact.subject
            written.setdefault(key, []).append(fact)
        return written

    def _lines(self, scope: _SummaryScope) -> list[Entry]:
        rows = self._overviews.group_rows(
            scope.group, selection.MAX_LINES, scope.span, scope.speaker
        )
        stored = self._store.reader().items_by_row(rows)
        items = [stored[row].item for row in rows if row in stored]
        return [item for item in items if isinstance(item, Entry)]

    def _summarise(self, work: _Pass, scope: _SummaryScope) -> Fact | None:
        """Return the summary of a group; None if no line is worth quoting."""
        lines, group = self._lines(scope), scope.group
        if not lines:
            return None
        sentences = [*selection.find_sentences(lines)]
        tokenize = self._store.tokenizer.words
        words = {word for sentence in sentences for word in tokenize(sentence.quote)}
        rarity = self._overviews.word_rarity(group.agent, group.sender, words)
        heading = scope.heading(lines)
        room = selection.MAX_TOKENS - selection.HEADING_TOKENS
        quoted = selection.select_sentences(sentences, tokenize, rarity, room)
        if not quoted:
            return None
        wide = partial(
            selection.select_sentences, sentences, tokenize, rarity, PROMPT_TOKENS, filled=True
        )
        # An imported history is summarised without a model.
        old = self._actor.clock() - lines[-1].observed_at > MODEL_MAX_AGE
        worded = None if old else work.model.word(heading, wide, room)
        return (worded or quote_lines(heading, quoted)).to_fact(
            self._actor,
            group,
            lines,
            subject=scope.subject,
            relation=scope.kind,
            value=scope.value,
            extractor="summary",
        )

    # -- plugins' overviews --------------------------------------------------------------------

    def _due_by_plugin(self, work: _Pass, kind: OverviewKind) -> Iterator[_DueItem]:
        written: dict[tuple[str, ...], list[ShelvedFact]] = {}
        for fact in self._overviews.shelved_facts(kind.relation):
            written.setdefault((fact.agent, fact.sender, fact.subject), []).append(fact)
        for overview in kind.list_due(self._store):
            scope = overview.agent, overview.sender
            existing = written.get((*scope, overview.subject), ())
            same = [fact for fact in existing if fact.value == overview.value]
            make = partial(self._overview_fact, kind, overview)
            yield from self._due(work, existing, same, make)

    def _overview_fact(self, kind: OverviewKind, overview: Overview) -> Fact | None:
        text = overview.write()
        if text is None:
            return None
        return Fact(
            id=new_id(),
            timestamp=self._actor.clock(),
            project=self._store.project,
            subject=overview.subject,
            relation=kind.relation,
            value=overview.value,
            text=text.text,
            sources=text.sources,
            valid_from=overview.at,
            extractor=kind.relation,
            origin=text.origin,
            private_to=(overview.agent, overview.sender),
        )

    # -- timelines -----------------------------------------------------------------------------

    def _due_timelines(self, work: _Pass) -> Iterator[_DueItem]:
        written: dict[tuple[str, ...], list[ShelvedFact]] = {}
        for fact in self._overviews.shelved_facts("timeline"):
            key = normalise(fact.subject)[0], fact.agent, fact.sender
            written.setdefault(key, []).append(fact)
        for timeline in self._timelines():
            subject, relation = timeline.about
            existing = [
                fact
                for fact in written.get((subject, *timeline.audience), ())
                if selection.is_about(normalise(fact.value)[0], relation)
            ]
            value = normalise(timeline.value)
            same = [fact for fact in existing if normalise(fact.value) == value]
            yield from self._due(work, existing, same, partial(self._timeline_fact, timeline))

    def _timelines(self) -> list[Timeline]:
        """Return the timelines of all subjects and relations whose facts changed."""
        rows = self._overviews.changed_facts()
        stored = self._store.reader().items_by_row(rows)
        facts = [fact for row in rows if (fact := stored.get(row)) and _is_presentable(fact)]
        sources = self._overviews.remaining_sources(fact.item.id for fact in facts)
        by_id = {fact.item.id: fact for fact in facts}
        values = [_past_value(fact, by_id) for fact in facts if fact.item.id in sources]
        return selection.build_timelines(values, sources)

    def _timeline_fact(self, timeline: Timeline) -> Fact:
        return Fact(
            id=new_id(),
            timestamp=self._actor.clock(),
            project=self._store.project,
            subject=timeline.subject,
            relation=selection.RELATION,
            value=timeline.value,
            text=timeline.text,
            sources=timeline.sources,
            valid_from=timeline.since,
            extractor="timeline",
            confidence=timeline.confidence,
            person=timeline.person,
            personal=timeline.personal,
        )

    @property
    def _overviews(self) -> OverviewReader:
        return self._store.reader().overviews


def _time_of(stamp: float) -> datetime:
    return _EPOCH + timedelta(seconds=stamp)


def _span_of_month(name: str) -> tuple[float, float]:
    first = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
    following = (first + timedelta(days=32)).replace(day=1)
    return first.timestamp(), following.timestamp()


def _scope_of_person(group: LineGroup) -> _SummaryScope:
    name = group.name or USER
    heading = partial(selection.format_heading, name)
    return _SummaryScope(selection.PERSON_SUMMARY, group, name, heading, speaker=group.name)


def _is_presentable(stored: Stored) -> bool:
    """Return whether a fact holds, or held until another superseded it."""
    fact, state = stored.item, stored.state
    if not isinstance(fact, Fact) or state.withdrawn:
        return False
    return fact.status == "active" or state.reviewed == "accepted"


def _past_value(stored: Stored, facts: Mapping[str, Stored]) -> PastValue:
    """Return a fact and the end of its validity, else its successor's start."""
    fact, state = stored.item, stored.state
    assert isinstance(fact, Fact)
    if state.superseded_by is None:
        return PastValue(fact, None)
    if state.valid_to:
        return PastValue(fact, from_iso(state.valid_to))
    successor = facts.get(state.superseded_by)
    until = successor.item.valid_from if successor and isinstance(successor.item, Fact) else None
    return PastValue(fact, until or fact.timestamp)
