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
from memtier_plugin.retrieval.contradictions import holds_since
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.ledger import jsonl, transaction
from memtier_plugin.storage.store import LOCK_SECONDS, Store
from memtier_plugin.text.normalise import normalise
from memtier_plugin.trust import origins

_NEAREST: Final = 3

Events = Sequence[JournalEvent]


@dataclass(slots=True)
class WriteOutcome:
    """What came of adding facts.

    ``restated`` has those that add nothing, with the id of the one that says the same;
    ``superseded`` the ids of older ones, with the fact in whose favour.  ``updates`` are those of
    ``added`` that say more than the one they replace.
    """

    added: list[Fact] = field(default_factory=list)
    restated: list[tuple[Fact, str]] = field(default_factory=list)
    superseded: list[tuple[str, Fact]] = field(default_factory=list)
    updates: list[Fact] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def proposed(self) -> list[Fact]:
        """Those that wait for somebody to review them."""
        return [fact for fact in self.added if fact.status == "proposed"]


class FactWriter:
    """Adds facts to one project in the name of one agent."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def write(
        self,
        given: Iterable[Fact | FactDraft],
        *,
        run: str | None = None,
        contexts: Mapping[int, str] | None = None,
        judged: Mapping[int, Decision] | None = None,
        finish: Callable[[WriteOutcome], Events] = lambda added: (),
    ) -> WriteOutcome:
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
            result = self._resolve(given, now, run, contexts or {}, judged or {})
            events = [*self._supersede_events(result, run), *finish(result)]
            transaction.commit_transaction(self._store, result.added, events)
        return result

    def preview(
        self,
        given: Iterable[Fact | FactDraft],
        run: str | None = None,
        contexts: Mapping[int, str] | None = None,
    ) -> WriteOutcome:
        """Return what `write` would do now; nothing is written."""
        with self._store.session():
            return self._resolve(given, self._clock(), run, contexts or {}, {})

    def write_accepted(self, fact: Fact, events: Events = ()) -> WriteOutcome:
        """Settle a proposed fact as somebody accepts it: it may take others' place now.

        Where one that holds says the same, the accepted one gives way to it.

        Args:
            events: the acceptance, written together with what it causes.

        Raises:
            as `write`.
        """
        with self._locked():
            result = WriteOutcome()
            known = _KnownFacts(self._store)
            active = replace(fact, status="active")
            decision = self._decide(active, known, self._clock(), "", None)
            if decision.action == "ignore" and decision.target:
                result.superseded.append((fact.id, decision.target))
                result.restated.append((fact, decision.target.id))
            else:
                _apply_decision(active, decision, result, known)
            run = next((event.run_id for event in events if event.run_id), None)
            transaction.commit_transaction(
                self._store, [], [*events, *self._supersede_events(result, run)]
            )
        return result

    def recover(self) -> None:
        """Complete what a process that was killed has left half written.

        Raises:
            as `write`.
        """
        if (self._store.folder / transaction.TRANSACTION_FILE).exists():
            with self._locked():
                pass

    def find_related(self, given: Sequence[FactDraft]) -> dict[int, list[Fact]]:
        """Return, by place, the facts that one which the rules would add may have to do with."""
        now = self._clock()
        facts = [self._build_fact(one, now, None) for one in self._assess_trust(given)]
        known, found = _KnownFacts(self._store), {}
        known.embed(facts)
        for place, fact in enumerate(facts):
            nearest = known.find_nearest(fact, self._store.settings.facts.single_valued)
            if fact.status == "active" and self._decide(fact, known, now, "", None).action == "add":
                found[place] = evolution.find_related(fact, nearest)
        return {place: nearest for place, nearest in found.items() if nearest}

    # -- deciding ------------------------------------------------------------------------------

    def _resolve(
        self,
        given: Iterable[Fact | FactDraft],
        now: datetime,
        run: str | None,
        contexts: Mapping[int, str],
        judged: Mapping[int, Decision],
    ) -> WriteOutcome:
        """Decide, fact by fact, what is new and what it replaces; nothing is written yet."""
        facts = [
            (self._build_fact(one, now, run), contexts.get(place, ""), judged.get(place))
            for place, one in enumerate(self._assess_trust(given))
        ]
        facts.sort(key=lambda one: holds_since(one[0])[0])  # of the same moment in the order given
        result, known = WriteOutcome(), _KnownFacts(self._store)
        there = known.reader.rows_of(fact.id for fact, _, _ in facts)
        known.embed([fact for fact, _, _ in facts])
        for fact, context, judgement in facts:
            if fact.id in there:
                result.restated.append((fact, fact.id))
                continue
            if twin := known.find_former(fact):
                identity, reason = twin
                if reason:
                    result.refused[reason] += 1
                else:
                    result.restated.append((fact, identity))
                continue
            decision = self._decide(fact, known, now, context, judgement)
            if decision.action == "ignore" and decision.target:
                if fact.status == "active":  # what waits for review is no source of what holds
                    result.restated.append((fact, decision.target.id))
                else:
                    result.refused["known already"] += 1
                continue
            if decision.action == "update" and decision.target:
                fact = _merge_sources(fact, decision.target, known.sources_of(decision.target))
                result.updates.append(fact)
            result.added.append(fact)
            _apply_decision(fact, decision, result, known)
        return result

    def _decide(
        self,
        fact: Fact,
        known: _KnownFacts,
        now: datetime,
        context: str,
        judgement: Decision | None,
    ) -> Decision:
        single = self._store.settings.facts.single_valued
        nearest = known.find_nearest(fact, single)
        if judgement and evolution.is_permitted(judgement, fact, nearest):
            return judgement
        return evolution.decide(fact, nearest, single, now, context)

    def _assess_trust(self, given: Iterable[Fact | FactDraft]) -> list[Fact | FactDraft]:
        """Return facts with the origin and the status that the entries they rest on leave them."""
        given = [*given]
        if not self._store.settings.trust.defence:
            return given
        reader = self._store.reader()
        rows = reader.rows_of({source.entry for one in given for source in one.sources})
        stored = reader.items_by_row([*rows.values()]).values()
        entries = {one.item.id: one.item for one in stored if isinstance(one.item, Entry)}
        return [
            origins.apply_trust(one, [entries[s.entry] for s in one.sources if s.entry in entries])
            for one in given
        ]

    def _build_fact(self, given: Fact | FactDraft, now: datetime, run: str | None) -> Fact:
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
        with lock, self._store.session():
            transaction.complete_transaction(self._store)
            self._store.catch_up_all()
            yield

    def _supersede_events(self, result: WriteOutcome, run: str | None) -> list[JournalEvent]:
        return [
            self.event(
                "supersede", run, items=[old], by=new.id, valid_to=to_iso(holds_since(new)[0])
            )
            for old, new in result.superseded
        ]

    def event(self, kind: str, run: str | None, **data: Any) -> JournalEvent:
        """Return a new event in the agent's name."""
        return JournalEvent(
            id=new_id(), timestamp=self._clock(), kind=kind, agent_id=self._agent, run_id=run,
            data=data,
        )  # fmt: skip


class _KnownFacts:
    """The facts that hold while others are settled: those of the index, and the new ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reader: IndexReader = store.reader()
        self._new: dict[str, list[tuple[Fact, tuple[str, ...]]]] = {}  # by subject
        self._ended: set[str] = set()
        self._vectors: dict[str, bytes] = {}
        embedder = store.embedder
        self._embedder = embedder if isinstance(embedder, StaticEmbedder) else None

    def embed(self, facts: Sequence[Fact]) -> None:
        """Make the vectors by which facts are compared, all at once."""
        if self._embedder and facts:
            texts = {place: (fact.text,) for place, fact in enumerate(facts)}
            for place, vectors in embed_texts(self._embedder, texts).items():
                self._vectors[facts[place].id] = vectors[0]

    def add(self, fact: Fact) -> None:
        subject = normalise(fact.subject)[0]
        said = fact, evolution.content_words(fact.text)
        self._new.setdefault(subject, []).append(said)

    def mark_ended(self, identity: str) -> None:
        self._ended.add(identity)

    def find_nearest(self, fact: Fact, single: Iterable[str]) -> list[Fact]:
        """Return the facts of the same audience that a new one is held against."""
        subject, relation, value = normalise(fact.subject, fact.relation, fact.value)
        private = fact.private_to
        rival = relation in {normalise(one)[0] for one in single}
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
        facts = {one.id: one for one in _only_facts(found)}
        facts |= {one.id: one for one in self._nearest_new(fact, subject, relation, value, rival)}
        return [
            one
            for one in facts.values()
            if one.id not in self._ended and one.id != fact.id and one.tier == fact.tier
        ]

    def _nearest_new(
        self, fact: Fact, subject: str, relation: str, value: str, rival: bool
    ) -> list[Fact]:
        others = [
            (one, said)
            for one, said in self._new.get(subject, ())
            if one.private_to == fact.private_to
        ]
        about = [
            one
            for one, _ in others
            if normalise(one.relation)[0] == relation
            and (rival or normalise(one.value)[0] == value)
        ]
        mine = evolution.content_words(fact.text)
        others.sort(key=lambda other: -evolution.jaccard(mine, other[1]))
        return [*about, *(one for one, _ in others[:_NEAREST])]

    def find_former(self, fact: Fact) -> tuple[str, str] | None:
        """Return the id of a fact that says the same but holds no more, or waits, and why it bars.

        What was superseded or forgotten does not come back with the words it came from, and what
        was rejected or waits already is not proposed again.
        """
        about = normalise(fact.subject, fact.relation)
        value = normalise(fact.value)[0]
        past = self.reader.facts_about(
            *about, current=False, private_to=fact.private_to, value=value
        )
        mine = {source.entry for source in fact.sources}
        for one in past:
            if not isinstance(one.item, Fact):
                continue
            state = one.state
            if normalise(one.item.text) != normalise(fact.text) and fact.status == "proposed":
                continue
            waits = one.item.status == "proposed" and state.reviewed is None
            if waits and state.superseded_by is None and not state.forgotten:
                if fact.status == "proposed":
                    return one.item.id, "waits for review already"
                continue
            if state.reviewed == "rejected" and fact.status == "proposed":
                return one.item.id, "rejected before"
            if mine <= {source.entry for source in self.sources_of(one.item)}:
                return one.item.id, ""
        return None

    def sources_of(self, fact: Fact) -> list[Source]:
        """Return all that a fact rests on, what later passes added included."""
        known = [
            Source(agent=source.agent, session=source.session, entry=source.entry)
            for source in self.reader.sources(fact.id)
        ]
        return known or list(fact.sources)


def _apply_decision(
    fact: Fact, decision: Decision, result: WriteOutcome, known: _KnownFacts
) -> None:
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
            known.mark_ended(one.id)


def _merge_sources(fact: Fact, other: Fact, sources: Sequence[Source]) -> Fact:
    """Return a fact that rests also on what another does, and is as good as the weaker of them."""
    own = {source.entry for source in fact.sources}
    more = tuple(source for source in sources if source.entry not in own)
    origin = origins.weakest_origin([fact.origin, other.origin])
    return replace(fact, sources=(*fact.sources, *more), origin=origin)


def _only_facts(stored: Iterable[Stored]) -> list[Fact]:
    return [one.item for one in stored if isinstance(one.item, Fact)]
