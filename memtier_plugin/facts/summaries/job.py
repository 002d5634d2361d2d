"""Summaries of what is over and timelines of what changed, written as facts: the job.

What is due is read off the index, so there is no cursor to lose: what has no summary of its lines
as they are now gets one, the newest first.  Facts are written before what they supersede, so that
a pass that was cut short is finished by the next one.  Source: seeds 4.4, 5.1; design 4.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from memtier_plugin.core.errors import CapReached, EndpointError, SettingsError
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Origin, Source, count_tokens
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.facts.summaries import selection, timelines
from memtier_plugin.facts.summaries.llm import PROMPT_TOKENS, ChatSummariser, CitedSentence
from memtier_plugin.facts.summaries.selection import SourceSentence
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.overviews import IndexOverviews, LineGroup, ShelvedFact
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.store import Store
from memtier_plugin.text.normalise import normalise

MAX_MODEL_SUMMARIES: Final = 10  # summaries of a pass that a model is asked for
MODEL_MAX_AGE: Final = timedelta(days=3)  # what is older is summed up without one
BATCH_SIZE: Final = 20  # summaries that are written, and settled, at once
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WEAKEST: Final[tuple[Origin, ...]] = ("assistant", "user")


@dataclass(frozen=True, slots=True)
class SummaryReport:
    """What a pass wrote, and how much it left for the next."""

    sessions: int = 0
    days: int = 0
    timelines: int = 0
    superseded: int = 0
    left: int = 0
    problem: str = ""  # why the model wrote no more

    @property
    def written(self) -> int:
        """How many items are new."""
        return self.sessions + self.days + self.timelines


@dataclass(slots=True)
class _Pass:
    """One pass at work: its id, what it may still write, and what it wrote."""

    run: str
    room: int
    stop: Callable[[], bool]
    counts: Counter[str] = field(default_factory=Counter)
    superseded: int = 0
    left: int = 0
    chat: ChatSummariser | None = None
    written: int = 0  # summaries that a model was asked for
    problem: str = ""

    def has_room(self) -> bool:
        """Tell whether one more that is due is written now; or else it is left."""
        if self.room > 0 and not self.stop():
            return True
        self.left += 1
        return False


@dataclass(frozen=True, slots=True)
class _DueItem:
    """A fact to be written, and the ids of those whose place it takes."""

    fact: Fact
    instead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _SummaryScope:
    """What one summary is of: the lines of a session, or of a day with its number."""

    kind: str
    group: LineGroup
    subject: str
    day: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return self.group.agent, self.group.sender, self.kind, self.subject

    @property
    def value(self) -> str:
        """Which lines it is of: another number of them, or a later last, is another summary."""
        return f"{self.group.lines} lines until {to_iso(_moment(self.group.last))}"


class Summariser:
    """Sums up one project, for every agent of it, in the name of one."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def run(self, limit: int = 200, stop: Callable[[], bool] = lambda: False) -> SummaryReport:
        """Write up to ``limit`` summaries and timelines that are due; ``left`` tells of more.

        Args:
            stop: asked between a few; what is written by then is whole.

        Raises:
            LedgerError: another process is at it, or nothing could be written.
            IndexProblem: what there is cannot be known.
        """
        if self._store.paused or not self._store.settings.summaries.enabled:
            return SummaryReport()
        lock = hold_lock(self._store.folder / ".summaries.lock", 0.0)
        with lock, self._store.session():
            self._store.catch_up_all()
            work = _Pass(new_id(), limit, stop)
            # Timelines first: they show what was true, and one that is late misleads.
            self._write(work, timelines.RELATION, self._due_timelines(work))
            self._write(work, selection.DAY_SUMMARY, self._due_days(work))
            self._write(work, selection.SESSION_SUMMARY, self._due_sessions(work))
            report = SummaryReport(
                sessions=work.counts[selection.SESSION_SUMMARY],
                days=work.counts[selection.DAY_SUMMARY],
                timelines=work.counts[timelines.RELATION],
                superseded=work.superseded,
                left=work.left,
                problem=work.problem,
            )
            if report.written:
                told = {name: getattr(report, name) for name in ("sessions", "days", "timelines")}
                event = self._event(
                    work, "summarise", **told, superseded=report.superseded, problem=report.problem
                )
                self._store.append_events([replace(event, id=work.run)], shared=True)
        return report

    def _write(self, work: _Pass, kind: str, due: Iterator[_DueItem | Sequence[str]]) -> None:
        """Write what is due a few at a time, each few whole.

        Args:
            due: a fact to be written; or ids of which the first supersedes the others.
        """
        batch: list[_DueItem] = []
        replaced: list[tuple[str, Sequence[str]]] = []
        for one in due:
            if isinstance(one, _DueItem):
                work.room -= 1
                batch.append(one)
            else:
                replaced.append((one[0], one[1:]))
            if len(batch) == BATCH_SIZE:
                self._write_batch(work, kind, batch, replaced)
                batch, replaced = [], []
        self._write_batch(work, kind, batch, replaced)

    def _write_batch(
        self,
        work: _Pass,
        kind: str,
        batch: Sequence[_DueItem],
        replaced: Sequence[tuple[str, Sequence[str]]],
    ) -> None:
        now = self._clock()
        self._store.append_facts([replace(o.fact, run=work.run, timestamp=now) for o in batch], now)
        pairs = [*replaced, *((one.fact.id, one.instead) for one in batch)]
        self._store.append_events(
            [
                self._event(work, "supersede", items=[*old], by=new, valid_to=to_iso(now))
                for new, old in pairs
                if old
            ],
            shared=True,
        )
        work.counts[kind] += len(batch)
        work.superseded += sum(len(old) for _, old in pairs)

    def _event(self, work: _Pass, kind: str, **data: Any) -> JournalEvent:
        return JournalEvent(
            id=new_id(), timestamp=self._clock(), kind=kind, agent_id=self._agent,
            run_id=work.run, data=data,
        )  # fmt: skip

    # -- sessions and days ---------------------------------------------------------------------

    def _due_sessions(self, work: _Pass) -> Iterator[_DueItem | Sequence[str]]:
        now, idle = self._clock(), timedelta(hours=self._store.settings.summaries.idle_hours)
        shelf = self._summaries()
        for group in self._overviews.session_groups(selection.MIN_LINES):
            last = _moment(group.last)
            if now - last >= idle or last.date() < now.date():
                of = _SummaryScope(selection.SESSION_SUMMARY, group, group.name)
                yield from self._due(work, of, shelf.get(of.key, ()))

    def _due_days(self, work: _Pass) -> Iterator[_DueItem | Sequence[str]]:
        today, shelf = (self._clock() - _EPOCH).days, self._summaries()
        for group in self._overviews.day_groups(selection.MIN_LINES):
            day = int(group.name)
            if day < today:
                name = f"{_EPOCH + timedelta(days=day):%Y-%m-%d}"
                of = _SummaryScope(selection.DAY_SUMMARY, group, name, day)
                yield from self._due(work, of, shelf.get(of.key, ()))

    def _due(
        self, work: _Pass, of: _SummaryScope, before: Sequence[ShelvedFact]
    ) -> Iterator[_DueItem | Sequence[str]]:
        """Yield the summary of a group, if it has none of its lines as they are now."""
        same = [one for one in before if one.value == of.value]
        if any(one.withdrawn for one in same):
            return  # somebody does not want it
        standing = [one.id for one in same if one.in_place and one.indexed][:1]
        others = tuple(one.id for one in before if one.in_place and one.id not in standing)
        if standing:
            if others:  # a pass was cut short before it said so
                yield [*standing, *others]
        elif work.has_room() and (fact := self._summary(work, of)):
            yield _DueItem(fact, others)

    def _summaries(self) -> dict[tuple[str, ...], list[ShelvedFact]]:
        """Return the summaries there are or were, by whose they are and what they are of."""
        found: dict[tuple[str, ...], list[ShelvedFact]] = {}
        for one in self._overviews.shelved_facts("summary"):
            found.setdefault((one.agent, one.sender, one.relation, one.subject), []).append(one)
        return found

    def _lines(self, of: _SummaryScope) -> list[Entry]:
        rows = self._overviews.group_rows(of.group, selection.MAX_LINES, of.day)
        stored = self._store.reader().items_by_row(rows)
        items = [stored[row].item for row in rows if row in stored]
        return [item for item in items if isinstance(item, Entry)]

    def _summary(self, work: _Pass, of: _SummaryScope) -> Fact | None:
        """Return the summary of a group; None where nothing in it says anything."""
        lines, group = self._lines(of), of.group
        if not lines:
            return None
        found = [*selection.find_sentences(lines)]
        words = self._store.tokenizer.words
        inside = {word for unit in found for word in words(unit.quote)}
        rarity = self._overviews.word_rarity(group.agent, group.sender, inside)
        heading = (
            selection.format_day_heading(lines)
            if of.kind == selection.DAY_SUMMARY
            else selection.format_session_heading(of.subject, lines)
        )
        room = selection.MAX_TOKENS - selection.HEADING_TOKENS
        quoted = selection.select_sentences(found, words, rarity, room)
        if not quoted:
            return None
        text, model = selection.format_summary(heading, quoted), None
        if chat := self._chat(work, lines):
            wide = selection.select_sentences(found, words, rarity, PROMPT_TOKENS, filled=True)
            if sentences := self._written(work, chat, wide, room):
                quoted = [unit for sentence in sentences for unit in sentence.units]
                text = f"{heading}: {' '.join(sentence.text for sentence in sentences)}"
                model = chat.model.name
        entries = {unit.entry.id: unit.entry for unit in quoted}
        origins = {entry.origin for entry in entries.values()}
        return Fact(
            id=new_id(),
            timestamp=self._clock(),
            project=self._store.project,
            subject=of.subject,
            relation=of.kind,
            value=of.value,
            text=text,
            sources=tuple(
                Source(agent=e.agent_id, session=e.session_id, entry=e.id) for e in entries.values()
            ),
            valid_from=min(line.observed_at for line in lines),
            quote=quoted[0].quote,
            span=(quoted[0].start, quoted[0].end),
            extractor="summary",
            model=model,
            prompt_hash=chat.prompt.hash if chat and model else None,
            origin=next(origin for origin in _WEAKEST if origin in origins),
            private_to=(group.agent, group.sender),
        )

    def _chat(self, work: _Pass, lines: Sequence[Entry]) -> ChatSummariser | None:
        """Return the model that writes a summary of these lines, if one is wanted and may be asked.

        Only of what is new, and a few at a time: what a model may cost in a day is for the facts
        as well, and a history that is imported has its summaries without one.
        """
        if (
            work.written >= MAX_MODEL_SUMMARIES
            or self._clock() - lines[-1].observed_at > MODEL_MAX_AGE
        ):
            return None
        if work.chat is None:
            try:
                model = ChatBudget(self._store, self._agent, self._clock).chat_model()
            except SettingsError as error:
                model, work.problem = None, str(error)
            if model is None:
                work.written = MAX_MODEL_SUMMARIES
                return None
            work.chat = ChatSummariser(model, self._store.tokenizer.words)
        return work.chat

    def _written(
        self, work: _Pass, chat: ChatSummariser, lines: Sequence[SourceSentence], room: int
    ) -> list[CitedSentence]:
        """Return a model's summary within so many tokens; nothing where there is none to be had."""
        work.written += 1
        try:
            sentences = chat.summarise(lines)
        except (CapReached, EndpointError) as error:
            work.written = MAX_MODEL_SUMMARIES  # the others are not to wait for it
            work.problem = str(error)
            return []
        found: list[CitedSentence] = []
        for sentence in sentences:
            if count_tokens(" ".join(one.text for one in (*found, sentence))) <= room:
                found.append(sentence)
        return found

    # -- timelines -----------------------------------------------------------------------------

    def _due_timelines(self, work: _Pass) -> Iterator[_DueItem | Sequence[str]]:
        reader = self._store.reader()
        rows = self._overviews.changed_facts()
        stored = reader.items_by_row(rows)
        facts = [one for row in rows if (one := stored.get(row)) and _is_presentable(one)]
        sources = self._overviews.remaining_sources(one.item.id for one in facts)
        known = {one.item.id: one for one in facts}
        pasts = [
            past
            for one in facts
            if one.item.id in sources and (past := _past_value(one, known)) is not None
        ]
        shelf: dict[str, list[ShelvedFact]] = {}
        for old in self._overviews.shelved_facts("timeline"):
            shelf.setdefault(normalise(old.subject)[0], []).append(old)
        for line in timelines.build_timelines(pasts, sources):
            subject, relation = line.about
            before = [
                one
                for one in shelf.get(subject, ())
                if timelines.is_about(normalise(one.value)[0], relation)
            ]
            same = [one for one in before if normalise(one.value) == normalise(line.value)]
            if any(one.withdrawn for one in same):
                continue
            standing = [one.id for one in same if one.in_place and one.indexed][:1]
            others = tuple(one.id for one in before if one.in_place and one.id not in standing)
            if standing:
                if others:
                    yield [*standing, *others]
                continue
            if not work.has_room():
                continue
            fact = Fact(
                id=new_id(),
                timestamp=self._clock(),
                project=self._store.project,
                subject=line.subject,
                relation=timelines.RELATION,
                value=line.value,
                text=line.text,
                sources=line.sources,
                valid_from=line.since,
                extractor="timeline",
                confidence=line.confidence,
            )
            yield _DueItem(fact, others)

    # -- small parts ---------------------------------------------------------------------------

    @property
    def _overviews(self) -> IndexOverviews:
        return IndexOverviews(self._store.index.connection())


def _moment(stamp: float) -> datetime:
    return _EPOCH + timedelta(seconds=stamp)


def _is_presentable(stored: Stored) -> bool:
    """Tell whether a fact holds, or held until another took its place."""
    item, state = stored.item, stored.state
    if not isinstance(item, Fact) or state.withdrawn:
        return False
    return item.status == "active" or state.reviewed == "accepted"


def _past_value(stored: Stored, known: dict[str, Stored]) -> timelines.PastValue | None:
    item, state = stored.item, stored.state
    assert isinstance(item, Fact)
    if state.superseded_by is None:
        return timelines.PastValue(item, None)
    if state.valid_to:
        return timelines.PastValue(item, from_iso(state.valid_to))
    by = known.get(state.superseded_by)
    since = by.item.valid_from if by and isinstance(by.item, Fact) else None
    return timelines.PastValue(item, since or item.timestamp)
