"""Where facts are written: what each becomes beside those that are known, and the writes as one.

Source: seeds 1.6, 5.1; design 4.4; issue 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final

from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Entry, Fact, FactDraft, JournalEvent, Source
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts import evolution
from memtier_plugin.facts.evolution import Decision
from memtier_plugin.providers.embedding.static import StaticEmbedder
from memtier_plugin.retrieval.contradictions import since
from memtier_plugin.storage.index.items import vectors_of
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.ledger import jsonl, transaction
from memtier_plugin.storage.store import LOCK_SECONDS, Store
from memtier_plugin.text.normalise import normal
from memtier_plugin.trust import origins

_NEAREST: Final = 3

Events = Sequence[JournalEvent]


@dataclass(slots=True)
class Added:
    """What came of adding facts.

    ``same`` has those that add nothing, with the id of the one that says the same; ``superseded``
    the ids of older ones, with the fact in whose favour.  ``updates`` are those of ``added`` that
    say more than the one they replace.
    """

    added: list[Fact] = field(default_factory=list)
    same: list[tuple[Fact, str]] = field(default_factory=list)
    superseded: list[tuple[str, Fact]] = field(default_factory=list)
    updates: list[Fact] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def proposed(self) -> list[Fact]:
        """Those that wait for somebody to review them."""
        return [fact for fact in self.added if fact.status == "proposed"]


class Settler:
    """Adds facts to one project in the name of one agent."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def add(
        self,
        given: Iterable[Fact | FactDraft],
        *,
        run: str | None = None,
        contexts: Mapping[int, str] | None = None,
        judged: Mapping[int, Decision] | None = None,
        finish: Callable[[Added], Events] = lambda added: (),
    ) -> Added:
        """Add facts that are new, and supersede what they replace.

        Args:
            run: the consolidation that makes them.
            contexts: by place, the words around what a fact quotes.
            judged: by place, what a model says is to be done with it.
            finish: what else is to be journalled, given what came of them.

        Raises:
            LedgerError: nothing was written, or what was begun is completed by whoever comes next.
            IndexProblem: what is there already cannot be known.
        """
        with self._locked():
            now = self._clock()
            result = self._settle(given, now, run, contexts or {}, judged or {})
            events = [*self._supersessions(result, run), *finish(result)]
            transaction.write(self._store, result.added, events)
        return result

    def preview(
        self,
        given: Iterable[Fact | FactDraft],
        run: str | None = None,
        contexts: Mapping[int, str] | None = None,
    ) -> Added:
        """Return what `add` would do now; nothing is written."""
        with self._store.reading():
            return self._settle(given, self._clock(), run, contexts or {}, {})

    def settle_accepted(self, fact: Fact, events: Events = ()) -> Added:
        """Settle a proposed fact as somebody accepts it: it may take others' place now.

        Where one that holds says the same, the accepted one gives way to it.

        Args:
            events: the acceptance, written together with what it causes.

        Raises:
            as `add`.
        """
        with self._locked():
            result = Added()
            known = _Known(self._store)
            active = replace(fact, status="active")
            decision = self._decided(active, known, self._clock(), "", None)
            if decision.action == "ignore" and decision.target:
                result.superseded.append((fact.id, decision.target))
                result.same.append((fact, decision.target.id))
            else:
                _superseded(active, decision, result, known)
            run = next((event.run_id for event in events if event.run_id), None)
            transaction.write(self._store, [], [*events, *self._supersessions(result, run)])
        return result

    def recover(self) -> None:
        """Complete what a process that was killed has left half written.

        Raises:
            as `add`.
        """
        if (self._store.folder / transaction.AHEAD).exists():
            with self._locked():
                pass

    def doubts(self, given: Sequence[FactDraft]) -> dict[int, list[Fact]]:
        """Return, by place, the facts that one which the rules would add may have to do with."""
        now = self._clock()
        facts = [self._fact(one, now, None) for one in self._weighed(given)]
        known, found = _Known(self._store), {}
        known.embed(facts)
        for place, fact in enumerate(facts):
            nearest = known.nearest(fact, self._store.settings.facts.single_valued)
            if (
                fact.status == "active"
                and self._decided(fact, known, now, "", None).action == "add"
            ):
                found[place] = evolution.doubtful(fact, nearest)
        return {place: nearest for place, nearest in found.items() if nearest}

    # -- deciding ------------------------------------------------------------------------------

    def _settle(
        self,
        given: Iterable[Fact | FactDraft],
        now: datetime,
        run: str | None,
        contexts: Mapping[int, str],
        judged: Mapping[int, Decision],
    ) -> Added:
        """Decide, fact by fact, what is new and what it replaces; nothing is written yet."""
        facts = [
            (self._fact(one, now, run), contexts.get(place, ""), judged.get(place))
            for place, one in enumerate(self._weighed(given))
        ]
        facts.sort(key=lambda one: since(one[0])[0])  # of the same moment in the order given
        result, known = Added(), _Known(self._store)
        there = known.reader.rows_of(fact.id for fact, _, _ in facts)
        known.embed([fact for fact, _, _ in facts])
        for fact, context, judgement in facts:
            if fact.id in there:
                result.same.append((fact, fact.id))
                continue
            if twin := known.gone(fact):
                identity, reason = twin
                if reason:
                    result.refused[reason] += 1
                else:
                    result.same.append((fact, identity))
                continue
            decision = self._decided(fact, known, now, context, judgement)
            if decision.action == "ignore" and decision.target:
                if fact.status == "active":  # what waits for review is no source of what holds
                    result.same.append((fact, decision.target.id))
                else:
                    result.refused["known already"] += 1
                continue
            if decision.action == "update" and decision.target:
                fact = _united(fact, decision.target, known.sources(decision.target))
                result.updates.append(fact)
            result.added.append(fact)
            _superseded(fact, decision, result, known)
        return result

    def _decided(
        self, fact: Fact, known: _Known, now: datetime, context: str, judgement: Decision | None
    ) -> Decision:
        single = self._store.settings.facts.single_valued
        nearest = known.nearest(fact, single)
        if judgement and evolution.allowed(judgement, fact, nearest):
            return judgement
        return evolution.decide(fact, nearest, single, now, context)

    def _weighed(self, given: Iterable[Fact | FactDraft]) -> list[Fact | FactDraft]:
        """Return facts with the origin and the status that the entries they rest on leave them."""
        given = [*given]
        if not self._store.settings.trust.defence:
            return given
        reader = self._store.reader()
        rows = reader.rows_of({source.entry for one in given for source in one.sources})
        stored = reader.stored([*rows.values()]).values()
        entries = {one.item.id: one.item for one in stored if isinstance(one.item, Entry)}
        return [
            origins.weighed(one, [entries[s.entry] for s in one.sources if s.entry in entries])
            for one in given
        ]

    def _fact(self, given: Fact | FactDraft, now: datetime, run: str | None) -> Fact:
        if isinstance(given, Fact):
            return given
        values = {f.name: getattr(given, f.name) for f in fields(FactDraft)}
        values["valid_from"] = given.valid_from or now
        return Fact(id=new_id(), timestamp=now, project=self._store.project, run=run, **values)

    # -- writing -------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock on the project's facts, with what was left half written completed."""
        lock = jsonl.locked(self._store.folder / ".facts.lock", LOCK_SECONDS)
        with lock, self._store.reading():
            transaction.complete(self._store)
            self._store.sweep()
            yield

    def _supersessions(self, result: Added, run: str | None) -> list[JournalEvent]:
        return [
            self.event("supersede", run, items=[old], by=new.id, valid_to=to_iso(since(new)[0]))
            for old, new in result.superseded
        ]

    def event(self, kind: str, run: str | None, **data: Any) -> JournalEvent:
        """Return a new event in the agent's name."""
        return JournalEvent(
            id=new_id(), timestamp=self._clock(), kind=kind, agent_id=self._agent, run_id=run,
            data=data,
        )  # fmt: skip


class _Known:
    """The facts that hold while others are settled: those of the index, and the new ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reader: IndexReader = store.reader()
        self._fresh: dict[str, list[tuple[Fact, tuple[str, ...]]]] = {}  # by subject
        self._ended: set[str] = set()
        self._vectors: dict[str, bytes] = {}
        embedder = store.embedder
        self._embedder = embedder if isinstance(embedder, StaticEmbedder) else None

    def embed(self, facts: Sequence[Fact]) -> None:
        """Make the vectors by which facts are compared, all at once."""
        if self._embedder and facts:
            texts = {place: (fact.text,) for place, fact in enumerate(facts)}
            for place, vectors in vectors_of(self._embedder, texts).items():
                self._vectors[facts[place].id] = vectors[0]

    def add(self, fact: Fact) -> None:
        subject = normal(fact.subject)[0]
        said = fact, evolution.words(fact.text)
        self._fresh.setdefault(subject, []).append(said)

    def end(self, identity: str) -> None:
        self._ended.add(identity)

    def nearest(self, fact: Fact, single: Iterable[str]) -> list[Fact]:
        """Return the facts of the same audience that a new one is held against."""
        subject, relation, value = normal(fact.subject, fact.relation, fact.value)
        private = fact.private_to
        rival = relation in {normal(one)[0] for one in single}
        found = self.reader.facts_about(
            subject, relation, private_to=private, value=None if rival else value
        )
        vector = self._vectors.get(fact.id)
        found += self.reader.similar_facts(
            self._store.tokenizer.words(fact.text),
            private_to=private,
            vector=(self._embedder.name, vector) if self._embedder and vector else None,
            limit=_NEAREST,
        )
        facts = {one.id: one for one in _facts(found)}
        facts |= {one.id: one for one in self._near_fresh(fact, subject, relation, value, rival)}
        return [
            one
            for one in facts.values()
            if one.id not in self._ended and one.id != fact.id and one.tier == fact.tier
        ]

    def _near_fresh(
        self, fact: Fact, subject: str, relation: str, value: str, rival: bool
    ) -> list[Fact]:
        others = [
            (one, said)
            for one, said in self._fresh.get(subject, ())
            if one.private_to == fact.private_to
        ]
        about = [
            one
            for one, _ in others
            if normal(one.relation)[0] == relation and (rival or normal(one.value)[0] == value)
        ]
        mine = evolution.words(fact.text)
        others.sort(key=lambda other: -evolution.likeness(mine, other[1]))
        return [*about, *(one for one, _ in others[:_NEAREST])]

    def gone(self, fact: Fact) -> tuple[str, str] | None:
        """Return the id of a fact that says the same but holds no more, or waits, and why it bars.

        What was superseded or forgotten does not come back with the words it came from, and what
        was rejected or waits already is not proposed again.
        """
        about = normal(fact.subject, fact.relation)
        value = normal(fact.value)[0]
        past = self.reader.facts_about(
            *about, current=False, private_to=fact.private_to, value=value
        )
        mine = {source.entry for source in fact.sources}
        for one in past:
            if not isinstance(one.item, Fact):
                continue
            state = one.state
            if normal(one.item.text) != normal(fact.text) and fact.status == "proposed":
                continue
            waits = one.item.status == "proposed" and state.reviewed is None
            if waits and state.superseded_by is None and not state.forgotten:
                if fact.status == "proposed":
                    return one.item.id, "waits for review already"
                continue
            if state.reviewed == "rejected" and fact.status == "proposed":
                return one.item.id, "rejected before"
            if mine <= {source.entry for source in self.sources(one.item)}:
                return one.item.id, ""
        return None

    def sources(self, fact: Fact) -> list[Source]:
        """Return all that a fact rests on, what later passes added included."""
        known = [
            Source(agent=source.agent, session=source.session, entry=source.entry)
            for source in self.reader.sources(fact.id)
        ]
        return known or list(fact.sources)


def _superseded(fact: Fact, decision: Decision, result: Added, known: _Known) -> None:
    """Note whose place a fact takes, or who takes its own."""
    if decision.action == "supersede" and decision.late and decision.target:
        result.superseded.append((fact.id, decision.target))
        older = decision.others
    else:
        older = tuple(filter(None, (decision.target, *decision.others)))
        if fact.status == "active":
            known.add(fact)
    if decision.action in ("supersede", "update"):
        for one in older:
            result.superseded.append((one.id, fact))
            known.end(one.id)


def _united(fact: Fact, other: Fact, sources: Sequence[Source]) -> Fact:
    """Return a fact that rests also on what another does, and is as good as the weaker of them."""
    own = {source.entry for source in fact.sources}
    more = tuple(source for source in sources if source.entry not in own)
    origin = origins.weakest([fact.origin, other.origin])
    return replace(fact, sources=(*fact.sources, *more), origin=origin)


def _facts(stored: Iterable[Stored]) -> list[Fact]:
    return [one.item for one in stored if isinstance(one.item, Fact)]
