"""One pass over the entries of one agent and sender: rate, compare, rank into tiers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from memtier_papers.hmo import formula
from memtier_papers.hmo.events import (
    Header,
    ImportanceEvent,
    PersonaEvent,
    PrioritiseEvent,
)
from memtier_papers.hmo.formula import DEFAULT_IMPORTANCE
from memtier_papers.hmo.headers import priority_of
from memtier_papers.hmo.importance import rate_by_rules
from memtier_papers.hmo.persona import OwnWords, Persona, build_persona, persona_of
from memtier_papers.hmo.rater import ChatRater
from memtier_papers.hmo.settings import Priority
from memtier_papers.hmo.tables import PriorityReader, ScoredEntry
from memtier_plugin.core.errors import (
    CapReached,
    EmbeddingUnavailable,
    EndpointError,
    SettingsError,
)
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Entry, EventPayload, Fact, JournalEvent, person_audience
from memtier_plugin.providers.embedding.load import encode_query, quantise
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.store import Actor

MAX_BY_MODEL: Final = 50  # entries per pass
MODEL_MAX_AGE: Final = timedelta(days=3)  # older entries are rated by rules
RULES: Final = "rules"
_INSTRUCTIONS: Final = 32  # newest standing instructions that are read
_DIGITS: Final = 4  # decimal places of an alignment

Uses = Mapping[str, tuple[int, datetime]]  # per entry, the number of new uses and the last time


@dataclass(slots=True)
class PriorityReport:
    """The result of a pass, accumulated as it runs.

    Attributes:
        rated: entries that were rated, ``by_model`` of them by a model, whose answer had no
            number for ``defaulted`` of these.
        personas: changed personas; ``rescored`` counts alignments recomputed because of drift.
        moved: headers written.
        left: whether there is work for another pass.
        problem: why the model rated no more.
    """

    rated: int = 0
    by_model: int = 0
    defaulted: int = 0
    personas: int = 0
    rescored: int = 0
    moved: int = 0
    left: bool = False
    problem: str = ""


@dataclass(slots=True)
class Pass:
    """The state of a pass over a project: its report, and the model that it may ask."""

    run: str
    now: datetime
    own_words: OwnWords
    number: int = 0
    rater: ChatRater | None = None
    asks: bool = True
    report: PriorityReport = field(default_factory=PriorityReport)


@dataclass(slots=True)
class Due:
    """One agent's pending work for one sender: rows to rate, and uses of the agent's entries."""

    unrated: Sequence[int] = ()
    uses: Uses = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownPersona:
    """The journalled personas of one sender, by their sources: the last one, and the anchor.

    ``number`` is the pass that wrote the last one.
    """

    last: Sequence[str] = ()
    anchor: Sequence[str] | None = None
    number: int = 0


class AudiencePass:
    """Updates one agent's memory of one sender."""

    def __init__(self, actor: Actor, sender: str, work: Pass, known: KnownPersona) -> None:
        self._actor = actor
        self._store = actor.store
        self._sender = sender
        self._work = work
        self._known = known
        self._settings = actor.store.settings.of(Priority)

    def run(self, due: Due) -> list[JournalEvent]:
        """Return the events of what changed."""
        persona = self._persona()
        payloads: list[EventPayload] = []
        drifted = False
        if list(persona.items) != list(self._known.last):
            changed = self._compare_with_anchor(persona)
            drifted = changed.anchor
            payloads.append(changed)
            self._work.report.personas += 1
        active = {entry.id: entry for entry in self._reader.active(self._actor.agent, self._sender)}
        rated = self._rate(due.unrated, persona)
        payloads += rated
        before = dict(active)
        fresh = {id_: entry for event in rated for id_, entry in self._new_entries(event)}
        used = self._used(due.uses, active, fresh)
        if not (payloads or used or fresh):
            return []
        compared = {**fresh, **used, **(active if drifted else {})}
        active |= fresh | used
        active |= self._aligned(compared, persona)
        self._work.report.rescored += len(before) if drifted else 0
        headers = self._changed_headers(before, active)
        if headers:
            rescored = len(before) if drifted else 0
            payloads.append(
                PrioritiseEvent(
                    number=self._work.number,
                    sender=self._sender,
                    headers=headers,
                    rescored=rescored,
                )
            )
            self._work.report.moved += len(headers)
        return [self._actor.event(payload, run=self._work.run) for payload in payloads]

    @property
    def _reader(self) -> PriorityReader:
        return self._store.reader().plugin_tables(PriorityReader)

    # -- persona -------------------------------------------------------------------------------

    def _persona(self) -> Persona:
        """Return the persona from what is known today, never from another sender's."""
        reader = self._store.reader()
        stored = reader.facts(standing="current", audience=person_audience(self._sender))
        facts = [fact.item for fact in stored if isinstance(fact.item, Fact)]
        rows = reader.standing_rows(self._scopes(), _INSTRUCTIONS)
        items = reader.items_by_row(rows)
        instructions = [items[row].item for row in rows if row in items and _is_open(items[row])]
        entries = [entry for entry in instructions if isinstance(entry, Entry)]
        return build_persona(facts, entries, self._work.own_words)

    def _scopes(self) -> list[int]:
        return self._store.reader().scopes(self._actor.agent, self._sender)

    def _compare_with_anchor(self, persona: Persona) -> PersonaEvent:
        """Return the event of a changed persona, which becomes the anchor if it has drifted."""
        vector = self._vector(persona.text)
        drift = 1.0
        if self._known.anchor is not None and vector is not None:
            stored = self._store.reader().items(self._known.anchor)
            items = {item.item.id: item for item in stored.values() if _is_open(item)}
            remaining = [items[id_].item for id_ in self._known.anchor if id_ in items]
            anchor = self._vector(persona_of(remaining, self._work.own_words).text)
            drift = formula.drift(array("b", vector), array("b", anchor or bytes(len(vector))))
        return PersonaEvent(
            number=self._work.number,
            sender=self._sender,
            items=persona.items,
            anchor=drift > self._settings.drift,
            drift=None if self._known.anchor is None else round(drift, _DIGITS),
        )

    def _vector(self, text: str) -> bytes | None:
        """Return the vector of a persona; None if it is empty or no model is available."""
        embedder = self._store.embedder
        if embedder is None or not text:
            return None
        try:
            [vector] = quantise([encode_query(embedder, text, None)])
        except EmbeddingUnavailable:
            return None
        return vector if any(vector) else None

    # -- importance ----------------------------------------------------------------------------

    def _rate(self, rows: Sequence[int], persona: Persona) -> list[ImportanceEvent]:
        """Rate new entries; return one event per rater."""
        reader = self._store.reader()
        stored = reader.items_by_row(rows)
        relations = self._reader.relations_of(rows)
        scores: dict[str, dict[str, int]] = {}
        defaulted = 0
        for row in rows:
            entry = stored[row].item if row in stored else None
            if not isinstance(entry, Entry):
                continue
            score, by = self._ask_model(entry, persona.text)
            if by == RULES:
                score = rate_by_rules(entry, relations.get(row, ()))
            elif score is None:
                score, defaulted = DEFAULT_IMPORTANCE, defaulted + 1
            scores.setdefault(by, {})[entry.id] = score if score is not None else DEFAULT_IMPORTANCE
        self._work.report.rated += sum(map(len, scores.values()))
        self._work.report.defaulted += defaulted
        return [
            ImportanceEvent(
                sender=self._sender, by=by, scores=rated, defaulted=0 if by == RULES else defaulted
            )
            for by, rated in scores.items()
        ]

    def _ask_model(self, entry: Entry, persona: str) -> tuple[int | None, str]:
        """Return a model's rating and its name, or `RULES` if none is asked."""
        work = self._work
        old = work.now - entry.observed_at > MODEL_MAX_AGE
        if not work.asks or work.report.by_model >= MAX_BY_MODEL or old:
            return None, RULES
        try:
            if work.rater is None:
                budget = ChatBudget(self._store, self._actor.agent, self._actor.clock)
                model = budget.chat_model(self._settings.model, key="priority.model")
                if model is None:
                    work.asks = False
                    return None, RULES
                work.rater = ChatRater(model)
            score = work.rater.rate(entry, persona)
        except (CapReached, EndpointError, SettingsError) as error:
            work.asks, work.report.problem = False, str(error)  # other agents must not wait for it
            return None, RULES
        work.report.by_model += 1
        return score, work.rater.model.name

    # -- priorities ----------------------------------------------------------------------------

    def _new_entries(self, rated: ImportanceEvent) -> Iterator[tuple[str, ScoredEntry]]:
        stored = self._store.reader().items(rated.scores)
        for item in stored.values():
            if isinstance(item.item, Entry):
                observed = item.item.observed_at.timestamp()
                id_ = item.item.id
                yield id_, ScoredEntry(id_, item.row, observed, rated.scores[id_])

    def _used(
        self, uses: Uses, active: Mapping[str, ScoredEntry], fresh: Mapping[str, ScoredEntry]
    ) -> dict[str, ScoredEntry]:
        """Return the used entries with their new use count and time of last use."""
        missing = [id_ for id_ in uses if id_ not in active and id_ not in fresh]
        scored = self._reader.scored(missing, self._actor.agent, self._sender) if missing else ()
        known = {**active, **fresh, **{entry.id: entry for entry in scored}}
        return {
            id_: known[id_]._replace(
                uses=known[id_].uses + count, used=to_iso(min(last, self._work.now))
            )
            for id_, (count, last) in uses.items()
            if id_ in known
        }

    def _aligned(
        self, entries: Mapping[str, ScoredEntry], persona: Persona
    ) -> dict[str, ScoredEntry]:
        """Return entries with their alignment to today's persona."""
        embedder, vector = self._store.embedder, self._vector(persona.text)
        near: Mapping[int, float] = {}
        if vector is not None and embedder is not None and entries:
            rows = [entry.row for entry in entries.values()]
            near = self._store.reader().vectors.similarity(embedder.name, vector, rows)
        return {
            id_: entry._replace(alignment=round(max(0.0, near.get(entry.row, 0.0)), _DIGITS))
            for id_, entry in entries.items()
        }

    def _changed_headers(
        self, before: Mapping[str, ScoredEntry], entries: Mapping[str, ScoredEntry]
    ) -> tuple[Header, ...]:
        """Rank entries into tiers; return the changed headers."""
        settings = self._settings
        rows = self._reader.recent_rows(self._scopes(), settings.sessions, formula.MAX_RECENT)
        recent_rows = set(rows)
        recent = {id_ for id_, entry in entries.items() if entry.row in recent_rows}
        share = settings.importance_share
        priorities = {
            id_: priority_of(entry, self._work.now, share) for id_, entry in entries.items()
        }
        tiers = formula.assign_tiers(priorities, recent, settings.cache, settings.buffer)
        changed = []
        for id_, entry in entries.items():
            now = entry._replace(tier=tiers[id_])
            known = before.get(id_) or ScoredEntry(id_, entry.row, entry.observed, entry.importance)
            if now != known and (now.tier < formula.ARCHIVE or now.uses or id_ in before):
                changed.append(
                    Header(
                        item=id_,
                        tier=now.tier,
                        alignment=now.alignment,
                        uses=now.uses,
                        used=now.used,
                    )
                )
        return tuple(changed)


def _is_open(stored: Stored) -> bool:
    """Return whether an item may contribute to a persona: neither withdrawn nor confidential."""
    item, state = stored.item, stored.state
    return not (state.withdrawn or state.private or (isinstance(item, Entry) and item.private))
