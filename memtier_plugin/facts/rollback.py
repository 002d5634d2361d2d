"""Roll back one consolidation: plan what stays, what is restored and what is rewritten."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import (
    PromoteEvent,
    RestoreEvent,
    RevertEvent,
    SupersedeEvent,
    payload_of,
)
from memtier_plugin.core.formats import new_id, to_iso
from memtier_plugin.core.records import (
    Entry,
    EventPayload,
    Fact,
    JournalEvent,
    Origin,
    Source,
    StateEvent,
)
from memtier_plugin.credit.questions import Regression
from memtier_plugin.facts.evolution import decide
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.retrieval.duplicates import holds_since, may_replace
from memtier_plugin.storage.index.item_reader import Confirmation
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.state import CONSOLIDATION_KINDS, fold
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.tokenizer import normalise

# Nothing is edited: a `revert` hides the facts that the run made, and a `restore` reverses its
# effects on everything else.  Later runs keep their effect: a fact of the run that one of them
# confirmed is reissued as a new fact that rests on the later sources alone, and a value that is
# current again is superseded by the one with which a later run replaced the run's.

_RESOLUTION: Final = timedelta(milliseconds=1)  # of the times that the journal keeps
_WEAKEST: Final[Sequence[Origin]] = ("external", "tool", "system", "assistant", "user")


class _Slot(NamedTuple):
    """The key shared by competing values: normalised subject and relation, and audience."""

    subject: str
    relation: str
    audience: tuple[str, str]


class _Reissue(NamedTuple):
    """A new fact for a removed one, with the event and the run that confirmed it first."""

    fact: Fact
    event: str
    run: str | None


class _Supersession(NamedTuple):
    """An older fact, its replacement, and the run that would have noticed."""

    old: Fact
    new: Fact
    run: str | None


@dataclass(frozen=True, slots=True)
class Rollback:
    """The effects of rolling back a run, actual or planned; all fields hold ids.

    ``kept`` are facts that somebody accepted, ``superseded`` pairs of an older fact and its
    replacement, ``lives_on`` pairs of a fact of the run and the one reissued for its later sources.
    """

    run: str
    facts: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    superseded: tuple[tuple[str, str], ...] = ()
    lives_on: tuple[tuple[str, str], ...] = ()


def time_after(now: datetime, events: Iterable[JournalEvent]) -> datetime:
    """Return a time after all of these events, even if the clock was set back; usually now."""
    return max([now, *(event.timestamp + _RESOLUTION for event in events)])


def roll_back(
    actor: Actor,
    run: str,
    *,
    why: str = "",
    regression: Regression | None = None,
    dry_run: bool = False,
) -> Rollback:
    """Undo one consolidation but no later one; repeating it changes nothing.

    Args:
        why: the reason that the journal keeps.
        regression: the drop of recall that is the reason, if it is.

    Raises:
        NotFound: no consolidation has this id.
        LedgerError: it was not, or not completely, undone; repeat it.
    """
    store = actor.store
    with FactWriter(actor).exclusive():
        now = actor.clock()
        rollback, facts, events = RollbackPlanner(actor, run, now).plan(why, regression)
        if not dry_run:
            store.append_facts(facts, now)
            store.append_events(events, shared=True)
            store.catch_up_all()
    return rollback


class RollbackPlanner:
    """Plans the rollback of one run from the index.

    Raises:
        NotFound: no consolidation of this project has this id.
    """

    def __init__(self, actor: Actor, run: str, now: datetime) -> None:
        store = actor.store
        self._actor = actor
        self._reader = reader = store.reader()
        self._run = run
        self._project = store.project
        single_valued = store.settings.facts.single_valued
        self._single = {normalise(relation)[0] for relation in single_valued}
        self._run_events = reader.events(run=run, kinds=CONSOLIDATION_KINDS)
        facts = reader.facts(run=run)
        if not facts and not self._run_events:
            raise NotFound(f"no consolidation {run!r}; `memtier facts runs` shows them")
        # An accepted fact belongs to its reviewer and no longer depends on the run.
        self._kept = [_fact(stored) for stored in facts if stored.state.reviewed == "accepted"]
        self._removed = {
            stored.item.id: stored for stored in facts if stored.state.reviewed != "accepted"
        }  # including those already removed, for a rollback that is repeated
        self._superseded = reader.superseded_by(self._removed)
        touched = (*self._removed, *self._superseded)
        history = [event for item in touched for event in reader.events(item=item)]
        self._now = time_after(now, [*self._run_events, *history])
        self._reissued: dict[str, _Reissue] = {}
        self._replacements: dict[str, str] = {}

    def plan(
        self, why: str, regression: Regression | None
    ) -> tuple[Rollback, list[Fact], list[JournalEvent]]:
        """Return the effects of rolling back the run, and its writes: the facts before the events.

        The event that marks the run as undone comes last, so that a killed rollback is repeated.
        """
        removed = [i for i, stored in self._removed.items() if not stored.state.reverted]
        touched, already_restored = self._touched(), self._already_restored()
        restore = [item for item in touched if item not in already_restored]
        restored = RestoreEvent(items=tuple(restore), facts=tuple(self._removed), run=self._run)
        restoring = self._event(restored, self._run)
        current = self._states_after(restoring, touched)
        facts, promotions = self._reissue_confirmed(current)
        pairs = [*self._resolve_single_valued(current), *self._resolve_others(current)]
        events = [
            self._event(
                SupersedeEvent(items=(old.id,), by=new.id, valid_to=to_iso(holds_since(new)[0])),
                run,
            )
            for old, new, run in pairs
        ]
        events += promotions
        if restore:
            events.append(restoring)
        if removed:
            revert = RevertEvent(
                items=tuple(removed),
                why=why,
                probes=regression.probes if regression else None,
                before=regression.before if regression else None,
                after=regression.after if regression else None,
                run=self._run,
            )
            events.append(self._event(revert, self._run))
        rollback = Rollback(
            run=self._run,
            facts=tuple(removed),
            kept=tuple(fact.id for fact in self._kept),
            restored=tuple(item for item in restore if item not in self._removed),
            superseded=tuple((old.id, new.id) for old, new, _ in pairs),
            lives_on=tuple(self._replacements.items()),
        )
        return rollback, facts, events

    # -- the run's effects on others -----------------------------------------------------------

    def _touched(self) -> list[str]:
        """Return what the run promoted or superseded, and what its facts have superseded since."""
        accepted = {source.entry for fact in self._kept for source in fact.sources}
        payloads = map(payload_of, self._run_events)
        changes = [payload for payload in payloads if isinstance(payload, StateEvent)]
        items = dict.fromkeys(item for change in changes for item in change.items)
        items |= dict.fromkeys(self._superseded)
        return [item for item in items if item not in accepted]

    def _already_restored(self) -> set[str]:
        """Return what was restored after the run's last effect on it."""
        reader = self._reader
        restores = reader.events(run=self._run, kinds=["restore"])
        restored = {item for event in restores for item in RestoreEvent.of(event).items}
        return {
            item
            for item in restored
            if reader.state(item).superseded_by not in self._removed
            and not any(
                event.run_id == self._run and event.kind in CONSOLIDATION_KINDS
                for event in _events_after(restores, item, reader.events(item=item))
            )
        }

    def _states_after(self, restored: JournalEvent, touched: Sequence[str]) -> dict[str, Stored]:
        """Return the other facts that the run touched, in their state after the rollback."""
        reader = self._reader
        restored = replace(restored, data={**restored.data, "items": list(touched)})
        current = {}
        for stored in reader.items(touched).values():
            if isinstance(stored.item, Fact) and stored.item.id not in self._removed:
                state = fold([*reader.events(item=stored.item.id), restored])
                current[stored.item.id] = replace(stored, state=state)
        return dict(sorted(current.items()))

    # -- what later runs confirmed -------------------------------------------------------------

    def _reissue_confirmed(
        self, current: Mapping[str, Stored]
    ) -> tuple[list[Fact], list[JournalEvent]]:
        """Return new facts for those that later runs confirmed, and promotions to others."""
        facts: list[Fact] = []
        promotions: list[JournalEvent] = []
        for identity, stored in self._removed.items():
            if stored.state.forgotten or stored.state.reviewed == "rejected":
                continue
            later = [c for c in self._reader.confirmations(identity) if c.run != self._run]
            entries = self._entries(c.source.entry for c in later)
            later = [c for c in later if c.source.entry in entries]
            if not later:
                continue
            heir, sources = self._find_equivalent(_fact(stored), current, entries)
            if heir is None:
                first = [c for c in later if c.run == later[0].run]
                heir = self._reissue(_fact(stored), first, entries)
                sources = {source.entry for source in heir.sources}
                self._reissued[identity] = _Reissue(heir, first[0].event, first[0].run)
                facts.append(heir)
            more = [c for c in later if c.source.entry not in sources]
            if heir.id in {fact.id for fact in facts} or more:
                self._replacements[identity] = heir.id
            promotions += [
                self._event(
                    PromoteEvent(
                        items=(c.source.entry,),
                        facts=(heir.id,),
                        agent=c.source.agent,
                        session=c.source.session,
                    ),
                    c.run,
                )
                for c in more
            ]
        return facts, promotions

    def _entries(self, ids: Iterable[str]) -> dict[str, Entry]:
        """Return the entries of these ids that are not forgotten."""
        stored = self._reader.items(ids).values()
        return {
            entry.item.id: entry.item
            for entry in stored
            if isinstance(entry.item, Entry) and not entry.state.forgotten
        }

    def _find_equivalent(
        self, fact: Fact, current: Mapping[str, Stored], entries: Collection[str]
    ) -> tuple[Fact | None, set[str]]:
        """Return a fact that says the same without the run, and the entries it rests on.

        It holds, or will again; or it rests on the later sources, and was superseded since.
        """
        subject, relation, value = normalise(fact.subject, fact.relation, fact.value)
        for holds in (True, False):
            for stored in self._reader.facts(
                subject=subject,
                relation=relation,
                value=value,
                standing="current" if holds else "past",
                audience=fact.audience,
            ):
                other, state = _fact(stored), current.get(stored.item.id, stored).state
                sources = {source.entry for source in self._reader.sources(other.id)}
                if other.id in self._removed or state.withdrawn or other.status != fact.status:
                    continue
                if state.is_retrievable(other.status == "active") or sources.intersection(entries):
                    return other, sources
        return None, set()

    def _reissue(
        self, fact: Fact, later: Sequence[Confirmation], entries: Mapping[str, Entry]
    ) -> Fact:
        """Return a fact that says the same, dated by and resting on its later sources."""
        confirming = [entries[c.source.entry] for c in later]
        origins: list[Origin] = ["external" if e.tainted else e.origin for e in confirming]
        first = fact.sources[0].entry
        original = self._entries([first]).get(first)
        valid_from = fact.valid_from
        if valid_from is None or original is None or valid_from == original.observed_at:
            valid_from = confirming[0].observed_at  # otherwise the fact itself states it
        quote, span = find_quote(fact, confirming[0].content)
        return replace(
            fact,
            id=new_id(),
            timestamp=self._now,
            project=self._project,
            sources=tuple(dict.fromkeys(_strip_location(c.source) for c in later)),
            valid_from=valid_from,
            quote=quote,
            span=span,
            origin=min(origins, key=_WEAKEST.index),
            run=later[0].run,
        )

    # -- which value then holds ----------------------------------------------------------------

    def _resolve_single_valued(self, current: Mapping[str, Stored]) -> list[_Supersession]:
        """Decide again which value of each single-valued relation holds."""
        slots: dict[_Slot, None] = {}
        for stored in (*self._removed.values(), *current.values()):
            slot = _slot(_fact(stored))
            if slot.relation in self._single:
                slots[slot] = None
        return [pair for slot in slots for pair in self._resolve_slot(slot, current)]

    def _resolve_slot(self, slot: _Slot, current: Mapping[str, Stored]) -> list[_Supersession]:
        """Decide on the facts of a slot again, in the order in which they were learned."""
        pairs: list[_Supersession] = []
        holding: list[Fact] = []
        new = {*current, *(reissue.fact.id for reissue in self._reissued.values())}
        for fact, run in self._learned(slot, current):
            decision = decide(fact, holding, self._single, self._now)
            gives_way = False
            if decision.action == "supersede" and decision.target:
                older = [decision.target, *decision.others]
                if decision.late and (fact.id in new or decision.target.id in new):
                    pairs.append(_Supersession(fact, decision.target, run))
                    older, gives_way = [*decision.others], True
                for other in older:
                    if not gives_way and fact.id not in new and other.id not in new:
                        continue
                    pairs.append(_Supersession(other, fact, run))
                    holding = [held for held in holding if held.id != other.id]
            if not gives_way:
                holding.append(fact)
        return pairs

    def _learned(self, slot: _Slot, current: Mapping[str, Stored]) -> list[tuple[Fact, str | None]]:
        """Return the facts of a slot and the runs that made them, in the order learned.

        The facts of one run were decided on in the order of their validity, then of their lines.
        """
        learned: dict[str, tuple[str, Fact, str | None]] = {}
        for stored in self._reader.facts(
            subject=slot.subject,
            relation=slot.relation,
            standing="current",
            audience=slot.audience,
        ):
            if stored.item.id not in self._removed:
                learned[stored.item.id] = stored.item.id, _fact(stored), self._run_of(stored)
        for stored in current.values():
            fact = _fact(stored)
            if _slot(fact) == slot and stored.state.is_retrievable(fact.status == "active"):
                learned[fact.id] = fact.id, fact, self._run_of(stored)
        for fact, event, run in self._reissued.values():
            if _slot(fact) == slot and fact.status == "active":
                learned[fact.id] = event, fact, run
        first: dict[str | None, str] = {}
        for when, _, run in learned.values():
            first[run] = min(first.get(run, when), when)
        order = sorted(
            learned.values(),
            key=lambda item: (
                first[item[2]] if item[2] else item[0],
                holds_since(item[1])[0],
                item[1].sources[0].entry,
            ),
        )
        return [(fact, run) for _, fact, run in order]

    def _run_of(self, stored: Stored) -> str | None:
        # An accepted fact of this run stands on its own, and so does what it supersedes.
        return None if _fact(stored).run == self._run else _fact(stored).run

    def _resolve_others(self, current: Mapping[str, Stored]) -> list[_Supersession]:
        """Return the facts of other relations that a removed fact's successor supersedes."""
        waiting: list[tuple[Fact, str]] = []  # a fact, and the removed one that had replaced it
        for stored in current.values():
            fact = _fact(stored)
            if normalise(fact.relation)[0] in self._single or not stored.state.is_retrievable(
                fact.status == "active"
            ):
                continue
            superseding = [
                SupersedeEvent.of(event).by
                for event in self._reader.events(item=fact.id)
                if event.kind == SupersedeEvent.KIND
            ]
            by = [fact_id for fact_id in superseding if fact_id in self._removed]
            waiting += [(fact, by[-1])] if by else []
        for identity, (heir, _, _) in self._reissued.items():
            if normalise(heir.relation)[0] not in self._single:
                state = self._removed[identity].state
                if state.superseded_by and not self._reader.state(heir.id).superseded_by:
                    waiting.append((heir, identity))
        pairs = []
        for fact, removed in waiting:
            successor = self._successor(fact, removed)
            if (
                successor
                and successor[0].id != fact.id
                and holds_since(fact) <= holds_since(successor[0])
            ):
                pairs.append(_Supersession(fact, *successor))
        return pairs

    def _successor(self, fact: Fact, removed: str) -> tuple[Fact, str | None] | None:
        """Return the fact that replaced a removed one, and the run that wrote it."""
        seen: set[str] = set()
        while removed in self._removed and removed not in seen:
            seen.add(removed)
            heir = self._reissued.get(removed)
            if heir and heir.fact.id != fact.id:
                return heir.fact, heir.run
            by = self._removed[removed].state.superseded_by
            if by is None:
                return None
            if by not in self._removed:
                events = self._reader.events(item=removed)
                run = next(
                    event.run_id
                    for event in reversed(events)
                    if event.kind == SupersedeEvent.KIND and SupersedeEvent.of(event).by == by
                )
                for stored in self._reader.items([by]).values():
                    if not stored.state.reverted and may_replace(_fact(stored), fact):
                        return _fact(stored), run
                return None
            removed = by
        return None

    def _event(self, payload: EventPayload, run: str | None) -> JournalEvent:
        return self._actor.event(payload, run=run, at=self._now)


def find_quote(fact: Fact, content: str) -> tuple[str, tuple[int, int]]:
    """Return the words of an entry that support a fact, and their span.

    The fact's own quote if it occurs, else the line with its value, else the whole text.
    """
    if fact.quote and (start := content.find(fact.quote)) >= 0:
        return fact.quote, (start, start + len(fact.quote))
    position = 0
    for line in content.splitlines(keepends=True):
        if fact.value.casefold() in line.casefold():
            start = position + len(line) - len(line.lstrip())
            return line.strip(), (start, start + len(line.strip()))
        position += len(line)
    return content, (0, len(content))


def _events_after(
    restores: Sequence[JournalEvent], item: str, events: Sequence[JournalEvent]
) -> list[JournalEvent]:
    """Return the events of an item after its last restore."""
    last = [e for e in restores if item in RestoreEvent.of(e).items][-1]
    return [e for e in events if (e.timestamp, e.id) > (last.timestamp, last.id)]


def _slot(fact: Fact) -> _Slot:
    subject, relation = normalise(fact.subject, fact.relation)
    return _Slot(subject, relation, fact.audience)


def _fact(stored: Stored) -> Fact:
    assert isinstance(stored.item, Fact)
    return stored.item


def _strip_location(source: Source) -> Source:
    return Source(agent=source.agent, session=source.session, entry=source.entry)
