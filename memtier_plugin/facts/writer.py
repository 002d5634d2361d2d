"""Write facts: decide how each relates to existing ones, and commit the result atomically."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Final

from memtier_plugin.core.events import RetractEvent, SupersedeEvent
from memtier_plugin.core.formats import new_id, to_iso
from memtier_plugin.core.records import (
    SHARED,
    Entry,
    Fact,
    FactDraft,
    JournalEvent,
    Source,
    person_audience,
)
from memtier_plugin.facts import evolution, persons
from memtier_plugin.facts.endings import find_ended
from memtier_plugin.facts.evolution import Decision
from memtier_plugin.facts.persons import assign_person, comparable_subject, subject_for
from memtier_plugin.providers.embedding.static import StaticEmbedder
from memtier_plugin.retrieval.duplicates import DENIES, holds_since
from memtier_plugin.retrieval.statements import Rarity, statements
from memtier_plugin.retrieval.visibility import linked_people
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor, Store
from memtier_plugin.text.tokenizer import normalise
from memtier_plugin.trust import origins

_NEAREST: Final = 12  # similar facts that a new one is compared with


@dataclass(slots=True)
class WriteOutcome:
    """The facts that a write adds and supersedes, or would.

    ``restated`` has the drafts that add nothing, each with the id of the fact that says the same;
    ``superseded`` the ids of older facts, each with the fact that replaces it.  ``updates`` are the
    facts in ``added`` that extend the fact they replace, ``retracted`` the ids of retracted facts,
    each with the denial.  ``former`` are the ids of pending or rejected facts, because of which
    ``refused`` drafts are not proposed again.
    """

    added: list[Fact] = field(default_factory=list)
    restated: list[tuple[Fact, str]] = field(default_factory=list)
    superseded: list[tuple[str, Fact]] = field(default_factory=list)
    updates: list[Fact] = field(default_factory=list)
    retracted: list[tuple[str, Fact]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    former: list[str] = field(default_factory=list)

    @property
    def proposed(self) -> list[Fact]:
        """The added facts that await review."""
        return [fact for fact in self.added if fact.status == "proposed"]


class FactWriter:
    """Writes the facts of a project on behalf of an agent."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def write(
        self,
        drafts: Iterable[Fact | FactDraft],
        *,
        run: str | None = None,
        decisions: Mapping[int, Decision] | None = None,
    ) -> WriteOutcome:
        """Add the new facts, and supersede what they replace.

        Args:
            run: the consolidation that makes them.
            decisions: a model's decisions on drafts, by the draft's index.

        Raises:
            LedgerError: nothing was written, or the next writer completes the write.
            IndexProblem: the existing facts cannot be read.
        """
        with self.exclusive():
            outcome = self.resolve(drafts, run=run, decisions=decisions)
            self.commit(outcome.added, self.supersede_events(outcome, run))
        return outcome

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock on the project's facts, after completing any interrupted write.

        Raises:
            LedgerError: another process holds the lock, or the write cannot be completed.
        """
        with self._store.exclusive("facts"), self._store.session():
            self._store.complete_commit()
            self._store.catch_up_all()
            yield

    def resolve(
        self,
        drafts: Iterable[Fact | FactDraft],
        *,
        run: str | None = None,
        contexts: Mapping[int, str] | None = None,
        decisions: Mapping[int, Decision] | None = None,
        ended: Iterable[str] = (),
    ) -> WriteOutcome:
        """Decide, draft by draft, what is new and what it replaces, without writing.

        Hold `exclusive` around this and `commit`; without it the outcome is a preview.

        Args:
            contexts: the words around a draft's quote, by the draft's index.
            ended: ids of facts that the drafts replace in any case, without a comparison.
        """
        now, contexts, decisions = self._actor.clock(), contexts or {}, decisions or {}
        facts = [
            (self._build_fact(draft, now, run), contexts.get(index, ""), decisions.get(index))
            for index, draft in enumerate(self._assess(drafts))
        ]
        facts.sort(key=lambda item: holds_since(item[0])[0])  # ties keep the given order
        outcome, current = WriteOutcome(), _CurrentFacts(self._store)
        existing = current.reader.items(fact.id for fact, _, _ in facts)
        for identity in ended:
            current.mark_ended(identity)
        current.embed([fact for fact, _, _ in facts])
        for fact, context, judgement in facts:
            if fact.relation == DENIES:
                _retract(fact, outcome, current)
            elif fact.id in existing:
                outcome.restated.append((fact, fact.id))
            elif former := current.find_former(fact):
                identity, reason = former
                if reason:
                    outcome.refused[reason] += 1
                    outcome.former.append(identity)
                else:
                    outcome.restated.append((fact, identity))
            else:
                decision = self._decide(fact, current, now, context, judgement)
                _apply_decision(fact, decision, outcome, current)
        return outcome

    def commit(self, facts: Sequence[Fact], events: Sequence[JournalEvent]) -> None:
        """Write facts and events atomically, while `exclusive` is held.

        Raises:
            LedgerError: nothing was written, or the next writer completes the write.
        """
        self._store.commit(facts, events)

    def write_accepted(self, fact: Fact, acceptance: JournalEvent) -> WriteOutcome:
        """Activate a proposed fact, which may now supersede others.

        An accepted fact that restates a current one gives way to it.

        Args:
            acceptance: the event, journalled together with its effects.

        Raises:
            LedgerError: nothing was written, or the next writer completes the write.
            IndexProblem: the existing facts cannot be read.
        """
        with self.exclusive():
            outcome, current = WriteOutcome(), _CurrentFacts(self._store)
            active = replace(fact, status="active")
            decision = self._decide(active, current, self._actor.clock())
            if decision.action == "ignore" and decision.target:
                outcome.superseded.append((fact.id, decision.target))
                outcome.restated.append((fact, decision.target.id))
            else:
                _supersede(active, decision, outcome, current)
            self.commit([], [acceptance, *self.supersede_events(outcome, acceptance.run_id)])
        return outcome

    def recover(self) -> None:
        """Complete a write that a killed process left unfinished.

        Raises:
            LedgerError, IndexProblem: it cannot be completed now; the next writer tries again.
        """
        if self._store.pending_commit():
            with self.exclusive():
                pass

    def find_related(self, drafts: Sequence[FactDraft]) -> dict[int, list[Fact]]:
        """Return the existing facts that a draft may concern, by the draft's index.

        Only for drafts that the rules would add.
        """
        now = self._actor.clock()
        facts = [self._build_fact(draft, now, None) for draft in self._assess(drafts)]
        current, related = _CurrentFacts(self._store), dict[int, list[Fact]]()
        current.embed(facts)
        for index, fact in enumerate(facts):
            if fact.status == "active" and self._decide(fact, current, now).action == "add":
                nearest = current.find_nearest(fact)
                related[index] = evolution.find_related(fact, nearest)
        return {index: nearest for index, nearest in related.items() if nearest}

    def supersede_events(self, outcome: WriteOutcome, run: str | None) -> list[JournalEvent]:
        """Return the journal events that supersede what an outcome replaces."""
        return [
            self._actor.event(
                SupersedeEvent(items=(old,), by=new.id, valid_to=to_iso(holds_since(new)[0])),
                run=run,
            )
            for old, new in outcome.superseded
        ]

    def retract_events(self, outcome: WriteOutcome, run: str | None) -> list[JournalEvent]:
        """Return the journal events that retract what an outcome retracts."""
        return [
            self._actor.event(
                RetractEvent(
                    items=(old,),
                    entry=denial.sources[0].entry,
                    agent=denial.sources[0].agent,
                    session=denial.sources[0].session,
                    valid_to=to_iso(holds_since(denial)[0]),
                ),
                run=run,
            )
            for old, denial in outcome.retracted
        ]

    # -- deciding ------------------------------------------------------------------------------

    def _decide(
        self,
        fact: Fact,
        current: _CurrentFacts,
        now: datetime,
        context: str = "",
        judgement: Decision | None = None,
    ) -> Decision:
        single = self._store.settings.facts.single_valued
        nearest = current.find_nearest(fact)
        if judgement and evolution.is_permitted(judgement, fact, nearest):
            return judgement
        return evolution.decide(
            fact, nearest, single, now, context, current.rarity([fact, *nearest])
        )

    def _assess(self, drafts: Iterable[Fact | FactDraft]) -> list[Fact | FactDraft]:
        """Return drafts with the audience, origin and status that their sources permit."""
        drafts = [*drafts]
        reader = self._store.reader()
        stored = reader.items({source.entry for draft in drafts for source in draft.sources})
        entries = {id: item.item for id, item in stored.items() if isinstance(item.item, Entry)}
        private = {id for id, entry in entries.items() if entry.private or stored[id].state.private}
        if private:
            drafts = [_keep_private(draft, entries, private) for draft in drafts]
        sources = [
            [entries[s.entry] for s in draft.sources if s.entry in entries] for draft in drafts
        ]
        if self._store.settings.trust.defence:
            drafts = [*map(origins.apply_trust, drafts, sources)]
        names = dict[str, str]()
        if any(entry.sender for entries_behind in sources for entry in entries_behind):
            names = persons.stated_names(reader) | persons.names_in(drafts, sources)
        return [
            assign_person(draft, entries_behind, names) if isinstance(draft, FactDraft) else draft
            for draft, entries_behind in zip(drafts, sources, strict=True)
        ]

    def _build_fact(self, draft: Fact | FactDraft, now: datetime, run: str | None) -> Fact:
        if isinstance(draft, Fact):
            return draft
        values = {f.name: getattr(draft, f.name) for f in fields(FactDraft)}
        values["valid_from"] = draft.valid_from or now
        return Fact(id=new_id(), timestamp=now, project=self._store.project, run=run, **values)


def _retract(denial: Fact, outcome: WriteOutcome, current: _CurrentFacts) -> None:
    """Record which facts a denial retracts; a denial that would wait for review retracts none."""
    if denial.status != "active":
        return
    nearest = [
        other
        for other in current.find_nearest(denial)
        if holds_since(other)[0] <= holds_since(denial)[0]
    ]
    for other in find_ended(denial, nearest):
        outcome.retracted.append((other.id, denial))
        current.mark_ended(other.id)


class _CurrentFacts:
    """The current facts during a write: those in the index, and those just decided on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reader: Reader = store.reader()
        self._scopes = self.reader.scopes("", None, read_all=True)
        self._items = self.reader.counts()["entries"]
        self._new: dict[str, list[tuple[Fact, tuple[str, ...]]]] = {}  # by subject, with words
        self._ended: set[str] = set()
        self._single_valued = set(normalise(*store.settings.facts.single_valued))
        self._vectors: dict[str, bytes] = {}
        embedder = store.embedder
        self._embedder = embedder if isinstance(embedder, StaticEmbedder) else None

    def embed(self, facts: Sequence[Fact]) -> None:
        """Embed the facts that will be compared, in one batch."""
        if self._embedder and facts:
            texts = {index: (fact.text,) for index, fact in enumerate(facts)}
            for index, vectors in embed_texts(self._embedder, texts).items():
                self._vectors[facts[index].id] = vectors[0]

    def add(self, fact: Fact) -> None:
        subject = comparable_subject(fact)
        self._new.setdefault(subject, []).append((fact, evolution.content_words(fact.text)))

    def mark_ended(self, identity: str) -> None:
        self._ended.add(identity)

    def find_nearest(self, fact: Fact) -> list[Fact]:
        """Return the facts of the same audience, or person, to compare a new one with."""
        relation, value = normalise(fact.relation, fact.value)
        subject, audiences = comparable_subject(fact), self._rival_audiences(fact)
        is_rival = relation in self._single_valued
        vector, stored = self._vectors.get(fact.id), list[Stored]()
        for audience, person in audiences.items():
            stored += self.reader.facts(
                subject=subject_for(subject, person),
                relation=relation,
                value=None if is_rival else value,
                standing="current",
                audience=audience,
            )
            stored += self.reader.similar_facts(
                self._store.tokenizer.words(fact.text),
                private_to=audience,
                vector=(self._embedder.name, vector) if self._embedder and vector else None,
                limit=_NEAREST,
            )
        facts = {other.id: other for other in _only_facts(stored)}
        facts |= {
            other.id: other
            for other in self._nearest_new(fact, audiences, None if is_rival else value)
        }
        return [
            other
            for other in facts.values()
            if other.id not in self._ended and other.id != fact.id and other.tier == fact.tier
        ]

    def _rival_audiences(self, fact: Fact) -> dict[tuple[str, str], str]:
        """Return the audiences whose facts a new one may replace, each with its person.

        They include all linked senders of a person; if no sender is named, the user's words also
        replace what is stored about the user for everybody.
        """
        if not fact.personal:
            users = fact.audience == SHARED and fact.person is None
            return {fact.audience: ""} | ({person_audience(""): ""} if users else {})
        people = linked_people(self.reader, fact.person or "")
        audiences = {person_audience(person): person for person in sorted(people)}
        return audiences | ({} if fact.person else {SHARED: ""})

    def _nearest_new(
        self, fact: Fact, audiences: Collection[tuple[str, str]], value: str | None
    ) -> list[Fact]:
        """Return the facts of this write with the relation (and value), and the most similar."""
        others = [
            (other, words)
            for facts in self._new.values()
            for other, words in facts
            if other.audience in audiences
        ]
        if not others:
            return []
        slot = comparable_subject(fact), *normalise(fact.relation)
        about = [
            other
            for other, _ in others
            if (comparable_subject(other), *normalise(other.relation)) == slot
            and (value is None or normalise(other.value) == (value,))
        ]
        words = evolution.content_words(fact.text)
        others.sort(key=lambda other: -evolution.jaccard(words, other[1]))
        return [*about, *(other for other, _ in others[:_NEAREST])]

    def rarity(self, facts: Iterable[Fact]) -> Rarity:
        """Return how rare the words of facts are among all entries of the project."""
        stated = (statement for fact in facts for statement in statements(fact.quote or fact.text))
        words = frozenset[str]().union(*(statement.content for statement in stated))
        return Rarity(self.reader.word_frequencies(self._scopes, words), self._items)

    def find_former(self, fact: Fact) -> tuple[str, str] | None:
        """Return the id of an ended or pending fact that bars a new one, and the reason if any.

        Superseded or forgotten facts are not recreated from their old sources, and rejected or
        pending ones are not proposed again.
        """
        subject, relation, value = normalise(fact.subject, fact.relation, fact.value)
        former = self.reader.facts(
            subject=subject,
            relation=relation,
            value=value,
            standing="past",
            audience=fact.audience,
        )
        entries = {source.entry for source in fact.sources}
        proposed = fact.status == "proposed"
        for stored in former:
            other, state = stored.item, stored.state
            if not isinstance(other, Fact):
                continue
            if proposed and normalise(other.text) != normalise(fact.text):
                continue
            waits = other.status == "proposed" and state.reviewed is None
            if waits and state.superseded_by is None and not state.forgotten:
                if proposed:
                    return other.id, "waits for review already"
                continue
            if state.reviewed == "rejected" and proposed:
                return other.id, "rejected before"
            if entries <= {source.entry for source in self.sources_of(other)}:
                return other.id, ""
        return None

    def sources_of(self, fact: Fact) -> list[Source]:
        """Return the sources of a fact, including those that later passes added."""
        indexed = self.reader.sources(fact.id)
        return [replace(source, file=None, line=None) for source in indexed or fact.sources]


def _keep_private(
    draft: Fact | FactDraft, entries: Mapping[str, Entry], private: Collection[str]
) -> Fact | FactDraft:
    """Return a draft for only the agent and sender on whose confidence it rests."""
    confided = next((source.entry for source in draft.sources if source.entry in private), None)
    if confided is None:
        return draft
    entry = entries[confided]
    return replace(draft, private_to=(entry.agent_id, entry.sender or ""))


def _apply_decision(
    fact: Fact, decision: Decision, outcome: WriteOutcome, current: _CurrentFacts
) -> None:
    """Record the effect of a decision on a new fact in the outcome."""
    if decision.action == "ignore" and decision.target:
        if fact.status == "active":  # a proposal is no source of a current fact
            outcome.restated.append((fact, decision.target.id))
        else:
            outcome.refused["known already"] += 1
        return
    if decision.action == "update" and decision.target:
        fact = _merge_sources(fact, decision.target, current.sources_of(decision.target))
        outcome.updates.append(fact)
    outcome.added.append(fact)
    _supersede(fact, decision, outcome, current)


def _supersede(
    fact: Fact, decision: Decision, outcome: WriteOutcome, current: _CurrentFacts
) -> None:
    """Record which facts a new one supersedes, or which one supersedes it."""
    if decision.action == "supersede" and decision.late and decision.target:
        outcome.superseded.append((fact.id, decision.target))
        older = decision.others
    else:
        older = tuple(filter(None, (decision.target, *decision.others)))
        if fact.status == "active":
            current.add(fact)
    if decision.action in ("supersede", "update"):
        for other in older:
            outcome.superseded.append((other.id, fact))
            current.mark_ended(other.id)


def _merge_sources(fact: Fact, other: Fact, sources: Sequence[Source]) -> Fact:
    """Return a fact that also rests on another's sources, with the weaker origin of the two."""
    named = {source.entry for source in fact.sources}
    more = tuple(source for source in sources if source.entry not in named)
    origin = origins.weakest_origin([fact.origin, other.origin])
    return replace(fact, sources=(*fact.sources, *more), origin=origin)


def _only_facts(stored: Iterable[Stored]) -> list[Fact]:
    return [item.item for item in stored if isinstance(item.item, Fact)]
