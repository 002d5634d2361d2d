"""Undoing one consolidation: what goes, what is current again, and what later ones had made of it.

Nothing is edited: a `revert` hides the facts that the run made, and a `restore` takes back what it
did to everything else.  Later runs keep their say: a fact of the run that one of them confirmed
lives on as a new fact that rests on the later sources alone, and a value that is current again
gives way to the one that a later run put in the place of the run's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Origin, Source
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts.evolution import decide
from memtier_plugin.retrieval.contradictions import holds_since, may_replace
from memtier_plugin.storage.index.facts import Confirmation
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.state import CONSOLIDATION_KINDS, fold
from memtier_plugin.text.normalise import normalise

_AFTER: Final = timedelta(milliseconds=1)  # the finest time that the journal keeps
_WEAKEST: Final[Sequence[Origin]] = ("external", "tool", "system", "assistant", "user")

About = tuple[tuple[str, ...], tuple[str, str] | None]  # subject and relation, and whose


@dataclass(frozen=True, slots=True)
class Rollback:
    """What undoing a run does, or would do; all are ids.

    ``kept`` are facts that somebody accepted, ``superseded`` pairs of an older fact and the one
    in its place, ``lives_on`` pairs of a fact of the run and the one for its later sources.
    """

    run: str
    facts: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    superseded: tuple[tuple[str, str], ...] = ()
    lives_on: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What is to be written to undo a run: facts first, then these events in their order.

    What is undone is named last, so that whoever was killed in between begins anew.
    """

    reverted: Rollback
    facts: tuple[Fact, ...]
    events: tuple[JournalEvent, ...]


def plan_rollback(
    reader: IndexReader,
    run: str,
    *,
    agent: str,
    project: str,
    now: datetime,
    single_valued: Iterable[str] = (),
    note: Mapping[str, object] | None = None,
) -> RollbackPlan:
    """Return what undoing a consolidation takes; nothing, once it is undone.

    Args:
        note: what else the journal is to say of it.

    Raises:
        NotFound: no consolidation of this project left anything under this id.
    """
    return _RollbackPlanner(reader, run, agent, project, now, single_valued).plan(note or {})


class _RollbackPlanner:
    """The undoing of one run, as the index has it."""

    def __init__(
        self,
        reader: IndexReader,
        run: str,
        agent: str,
        project: str,
        now: datetime,
        single_valued: Iterable[str],
    ) -> None:
        self._reader = reader
        self._run = run
        self._agent = agent
        self._project = project
        self._single = {normalise(relation)[0] for relation in single_valued}
        self._run_events = reader.events_in_run(run, CONSOLIDATION_KINDS)
        made = reader.facts_of_run(run)
        if not made and not self._run_events:
            raise NotFound(f"no consolidation {run!r}; `memtier facts runs` shows them")
        # Who accepts a fact makes it theirs: it no longer depends on the run.
        self._kept = [_fact(one) for one in made if one.state.reviewed == "accepted"]
        self._removed = {
            one.item.id: one for one in made if one.state.reviewed != "accepted"
        }  # also those that are gone already, for who begins anew
        # Later than all that it undoes, also after a clock was set back.
        self._superseded = reader.superseded_by(self._removed)
        seen = [
            event
            for item in (*self._removed, *self._superseded)
            for event in reader.events_of_item(item)
        ]
        self._now = max(now, *(e.timestamp + _AFTER for e in (*self._run_events, *seen)), now)
        self._reissued: dict[str, tuple[Fact, str, str | None]] = {}  # new facts, and via what
        self._replacements: dict[str, str] = {}

    def plan(self, note: Mapping[str, object]) -> RollbackPlan:
        fresh = [i for i, one in self._removed.items() if not one.state.reverted]
        touched, undone = self._touched(), self._undone()
        restore = [i for i in touched if i not in undone]
        restored = self._event("restore", self._run, items=restore, facts=[*self._removed])
        changed = self._changed(touched, restored)
        facts, extra = self._confirmed(changed)
        pairs = [*self._conflicts(changed), *self._in_the_place_of_gone(changed)]
        events = [
            self._event("supersede", by_run, items=[old.id], by=new.id, valid_to=_valid_from(new))
            for old, new, by_run in pairs
        ]
        events += extra
        if restore:
            events.append(restored)
        if fresh:
            events.append(self._event("revert", self._run, items=fresh, **note))
        done = Rollback(
            run=self._run,
            facts=tuple(fresh),
            kept=tuple(fact.id for fact in self._kept),
            restored=tuple(item for item in restore if item not in self._removed),
            superseded=tuple((old.id, new.id) for old, new, _ in pairs),
            lives_on=tuple(self._replacements.items()),
        )
        return RollbackPlan(done, tuple(facts), tuple(events))

    # -- what the run did to others ------------------------------------------------------------

    def _touched(self) -> list[str]:
        """Return what the run promoted or superseded, and what its facts superseded since."""
        accepted = {source.entry for fact in self._kept for source in fact.sources}
        items = {str(item): None for event in self._run_events for item in event.data["items"]}
        items |= dict.fromkeys(self._superseded)
        return [item for item in items if item not in accepted]

    def _undone(self) -> set[str]:
        """Return what was restored before, after all that the run did to it."""
        reader = self._reader
        restores = reader.events_in_run(self._run, ["restore"])
        done = {str(item) for event in restores for item in event.data["items"]}
        return {
            item
            for item in done
            if reader.state(item).superseded_by not in self._removed
            and not any(
                event.run_id == self._run and event.kind in CONSOLIDATION_KINDS
                for event in _after(restores, item, reader.events_of_item(item))
            )
        }

    def _changed(self, touched: Sequence[str], restored: JournalEvent) -> dict[str, Stored]:
        """Return the facts that the run, or one of its facts, superseded, as they then are."""
        reader = self._reader
        again = replace(restored, data={**restored.data, "items": list(touched)})
        found = {}
        for one in reader.items_by_row([*reader.rows_of(touched).values()]).values():
            if isinstance(one.item, Fact) and one.item.id not in self._removed:
                state = fold([*reader.events_of_item(one.item.id), again])
                found[one.item.id] = replace(one, state=state)
        return dict(sorted(found.items()))

    # -- what later runs confirmed -------------------------------------------------------------

    def _confirmed(self, changed: Mapping[str, Stored]) -> tuple[list[Fact], list[JournalEvent]]:
        """Return new facts for those that later runs confirmed, and promotions to others."""
        facts, events = [], []
        for identity, one in self._removed.items():
            if one.state.forgotten or one.state.reviewed == "rejected":
                continue
            later = [c for c in self._reader.confirmations(identity) if c.run != self._run]
            entries = self._entries(c.source.entry for c in later)
            later = [c for c in later if c.source.entry in entries]
            if not later:
                continue
            heir, has = self._find_equivalent(_fact(one), changed, entries)
            if heir is None:
                first = [c for c in later if c.run == later[0].run]
                heir = self._reissue(_fact(one), first, entries)
                has = {source.entry for source in heir.sources}
                self._reissued[identity] = heir, first[0].event, first[0].run
                facts.append(heir)
            more = [c for c in later if c.source.entry not in has]
            if heir.id in {fact.id for fact in facts} or more:
                self._replacements[identity] = heir.id
            events += [
                self._event(
                    "promote", c.run, items=[c.source.entry], facts=[heir.id],
                    agent=c.source.agent, session=c.source.session,
                )
                for c in more
            ]  # fmt: skip
        return facts, events

    def _entries(self, ids: Iterable[str]) -> dict[str, Entry]:
        stored = self._reader.items_by_row([*self._reader.rows_of(ids).values()]).values()
        return {
            one.item.id: one.item
            for one in stored
            if isinstance(one.item, Entry) and not one.state.forgotten
        }

    def _find_equivalent(
        self, fact: Fact, changed: Mapping[str, Stored], entries: Collection[str]
    ) -> tuple[Fact | None, set[str]]:
        """Return a fact that says the same without the run, and the entries it rests on.

        It holds, or will again; or it rests on the later sources, and gave way to another since.
        """
        about, value = normalise(fact.subject, fact.relation), normalise(fact.value)[0]
        for current in (True, False):
            for one in self._reader.facts_about(
                *about, current=current, private_to=fact.private_to, value=value
            ):
                other, state = _fact(one), changed.get(one.item.id, one).state
                rests_on = {source.entry for source in self._reader.sources(other.id)}
                if other.id in self._removed or state.withdrawn or other.status != fact.status:
                    continue
                if state.is_retrievable(other.status == "active") or rests_on.intersection(entries):
                    return other, rests_on
        return None, set()

    def _reissue(
        self, fact: Fact, later: Sequence[Confirmation], entries: Mapping[str, Entry]
    ) -> Fact:
        """Return a fact that says the same, as of its later sources and resting on them alone."""
        said = [entries[one.source.entry] for one in later]
        origins: list[Origin] = ["external" if e.tainted else e.origin for e in said]
        mine = self._entries([fact.sources[0].entry]).get(fact.sources[0].entry)
        begins = fact.valid_from
        if begins is None or mine is None or begins == mine.observed_at:
            begins = said[0].observed_at  # else it says itself since when it holds
        quote, span = find_quote(fact, said[0].content)
        return replace(
            fact,
            id=new_id(),
            timestamp=self._now,
            project=self._project,
            sources=tuple(dict.fromkeys(_strip_location(one.source) for one in later)),
            valid_from=begins,
            quote=quote,
            span=span,
            origin=min(origins, key=_WEAKEST.index),
            run=later[0].run,
        )

    # -- which value holds then ----------------------------------------------------------------

    def _conflicts(self, changed: Mapping[str, Stored]) -> list[tuple[Fact, Fact, str | None]]:
        """Settle the relations of one value anew, in the order in which their facts were learned.

        Returns pairs of the older and the newer fact, and the run that would have seen it.
        """
        groups: dict[About, None] = {}
        for one in (*self._removed.values(), *changed.values()):
            about = _about(_fact(one))
            if about[0][1] in self._single:
                groups[about] = None
        pairs = []
        for about in groups:
            pairs += self._resolve_slot(about, changed)
        return pairs

    def _resolve_slot(
        self, about: About, changed: Mapping[str, Stored]
    ) -> list[tuple[Fact, Fact, str | None]]:
        (subject, relation), private_to = about
        learned: dict[str, tuple[str, Fact, str | None]] = {}
        for one in self._reader.facts_about(subject, relation, private_to=private_to):
            if one.item.id not in self._removed:
                learned[one.item.id] = one.item.id, _fact(one), self._run_of(one)
        for one in changed.values():
            fact = _fact(one)
            if _about(fact) == about and one.state.is_retrievable(fact.status == "active"):
                learned[fact.id] = fact.id, fact, self._run_of(one)
        new = {*changed}
        for heir, event, run in self._reissued.values():
            if _about(heir) == about and heir.status == "active":
                learned[heir.id] = event, heir, run
                new.add(heir.id)
        # Of one run the facts were settled by the time since when they hold.
        first: dict[str | None, str] = {}
        for when, _, run in learned.values():
            first[run] = min(first.get(run, when), when)
        order = sorted(
            learned.values(),
            key=lambda one: (first[one[2]] if one[2] else one[0], holds_since(one[1])),
        )
        pairs, current = [], list[Fact]()
        for _, fact, run in order:
            decision = decide(fact, current, self._single, self._now)
            gives_way = False
            if decision.action == "supersede" and decision.target:
                older = [decision.target, *decision.others]
                if decision.late and (fact.id in new or decision.target.id in new):
                    pairs.append((fact, decision.target, run))
                    older, gives_way = [*decision.others], True
                for other in older:
                    if not gives_way and fact.id not in new and other.id not in new:
                        continue
                    pairs.append((other, fact, run))
                    current = [one for one in current if one.id != other.id]
            if not gives_way:
                current.append(fact)
        return pairs

    def _run_of(self, one: Stored) -> str | None:
        # What somebody accepted of this run stands for itself, and so does what it supersedes.
        return None if _fact(one).run == self._run else _fact(one).run

    def _in_the_place_of_gone(
        self, changed: Mapping[str, Stored]
    ) -> list[tuple[Fact, Fact, str | None]]:
        """Return, of the other relations, what gives way to what took the place of a gone fact."""
        pairs = []
        waiting: list[tuple[Fact, str]] = []  # a fact, and the gone one that was in its place
        for one in changed.values():
            fact = _fact(one)
            if normalise(fact.relation)[0] in self._single or not one.state.is_retrievable(
                fact.status == "active"
            ):
                continue
            by = [
                str(event.data["by"])
                for event in self._reader.events_of_item(fact.id)
                if event.kind == "supersede" and event.data["by"] in self._removed
            ]
            waiting += [(fact, by[-1])] if by else []
        for identity, (heir, _, _) in self._reissued.items():
            if normalise(heir.relation)[0] not in self._single:
                state = self._removed[identity].state
                if state.superseded_by and not self._reader.state(heir.id).superseded_by:
                    waiting.append((heir, identity))
        for fact, gone in waiting:
            found = self._successor(fact, gone)
            if found and found[0].id != fact.id and holds_since(fact) <= holds_since(found[0]):
                pairs.append((fact, *found))
        return pairs

    def _successor(self, fact: Fact, gone: str) -> tuple[Fact, str | None] | None:
        """Return what stands in the place of a gone fact, and the run that put it there."""
        seen: set[str] = set()
        while gone in self._removed and gone not in seen:
            seen.add(gone)
            heir = self._reissued.get(gone)
            if heir and heir[0].id != fact.id:
                return heir[0], heir[2]
            by = self._removed[gone].state.superseded_by
            if by is None:
                return None
            if by not in self._removed:
                events = self._reader.events_of_item(gone)
                run = next(e.run_id for e in reversed(events) if e.data.get("by") == by)
                rows = self._reader.rows_of([by]).values()
                for one in self._reader.items_by_row([*rows]).values():
                    if not one.state.reverted and may_replace(_fact(one), fact):
                        return _fact(one), run
                return None
            gone = by
        return None

    def _event(self, kind: str, run: str | None, **data: object) -> JournalEvent:
        if kind in ("revert", "restore"):
            data["run"] = run
        return JournalEvent(
            id=new_id(),
            timestamp=self._now,
            kind=kind,
            agent_id=self._agent,
            run_id=run,
            data=data,
        )


def find_quote(fact: Fact, content: str) -> tuple[str, tuple[int, int]]:
    """Return the words of an entry that a fact rests on, and where they stand in it.

    Its own quote if that is there, else the line that has its value, else the whole.
    """
    if fact.quote and (at := content.find(fact.quote)) >= 0:
        return fact.quote, (at, at + len(fact.quote))
    at = 0
    for line in content.splitlines(keepends=True):
        if fact.value.casefold() in line.casefold():
            start = at + len(line) - len(line.lstrip())
            return line.strip(), (start, start + len(line.strip()))
        at += len(line)
    return content, (0, len(content))


def _after(
    restores: Sequence[JournalEvent], item: str, events: Sequence[JournalEvent]
) -> list[JournalEvent]:
    last = [e for e in restores if item in e.data["items"]][-1]
    return [e for e in events if (e.timestamp, e.id) > (last.timestamp, last.id)]


def _about(fact: Fact) -> About:
    return normalise(fact.subject, fact.relation), fact.private_to


def _fact(stored: Stored) -> Fact:
    assert isinstance(stored.item, Fact)
    return stored.item


def _strip_location(source: Source) -> Source:
    return Source(agent=source.agent, session=source.session, entry=source.entry)


def _valid_from(fact: Fact) -> str:
    return to_iso(holds_since(fact)[0])
