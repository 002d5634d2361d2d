"""Facts that contradict each other: the newest first, saying that an older one exists.  Pure.

Two facts contradict each other when they state different values of one subject and of a relation
that has one value at a time (`facts.single_valued`).  Most are settled when they are written: the
newer supersedes the older.  Those of different agents both stand, and meet in a ranking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.text.normalise import normalise

REPLACES_NOTE = "replaces an older one"
OF_THEN_NOTE = "of the time asked about; a newer one says otherwise"


class StatedValue(NamedTuple):
    """What a fact of a single-valued relation says: about what (normalised), and its value."""

    about: tuple[str, ...]
    value: str

    def contradicts(self, other: StatedValue | None) -> bool:
        """Tell whether both speak of the same thing and differ."""
        return other is not None and self.about == other.about and self.value != other.value


def holds_since(fact: Fact) -> tuple[datetime, str]:
    """Return since when a fact holds, in a form that has an order: ties go by id."""
    return fact.valid_from or fact.timestamp, fact.id


def may_replace(fact: Fact, other: Fact) -> bool:
    """Tell whether two facts speak for the same: the same agent's, or both the user's words."""
    return fact.sources[0].agent == other.sources[0].agent or fact.origin == other.origin == "user"


def stated_values(hits: Iterable[Hit], single_valued: Iterable[str]) -> dict[str, StatedValue]:
    """Return by id what those of the hits say that are facts of a single-valued relation."""
    single = {normalise(relation)[0] for relation in single_valued}
    facts = [hit.item for hit in hits if isinstance(hit.item, Fact)]
    said = {fact.id: normalise(fact.subject, fact.relation, fact.value) for fact in facts}
    return {i: StatedValue((s, r), value) for i, (s, r, value) in said.items() if r in single}


def hit_time(hit: Hit) -> datetime:
    """Return when something was said, or since when a fact holds."""
    item = hit.item
    if isinstance(item, Fact):
        return item.valid_from or item.timestamp
    return item.observed_at


def preference_key(hit: Hit) -> tuple[float, datetime, str]:
    """Return what decides which of several stands for all: the newest, ties by id.

    A question about a time wants what was said then, not what was said last.
    """
    return hit.signals.get("time", 0.0), hit_time(hit), hit.id


def rank_newest_first(
    hits: Sequence[Hit],
    first: int,
    values: Mapping[str, StatedValue],
    replacing: Collection[str] = (),
) -> list[Hit]:
    """Give the newest of contradicting facts the best of their ranks, with a note.

    The others follow in their order on the ranks that are left to them; every other hit keeps its
    own.

    Args:
        first: how many hits are looked at.
        values: by id, what a fact of a single-valued relation states.
        replacing: ids of facts that superseded an older one, which is not among the hits.
    """
    found = list(hits)
    together: dict[tuple[str, ...], list[int]] = {}
    for place, hit in enumerate(hits[:first]):
        if hit.id in values:
            together.setdefault(values[hit.id].about, []).append(place)
            if hit.id in replacing:
                found[place] = _noted(hit, REPLACES_NOTE)
    for places in together.values():
        group = [found[place] for place in places]
        if len({values[hit.id].value for hit in group}) < 2:
            continue
        best = max(group, key=preference_key)
        newest = max(group, key=lambda hit: (hit_time(hit), hit.id))
        older = "the older says" if len(group) == 2 else "older ones say"
        notes = {newest.id: f"newest of {len(group)}; {older} otherwise"}
        notes.setdefault(best.id, OF_THEN_NOTE)
        ordered = [best, *(hit for hit in group if hit is not best)]
        for place, hit in zip(places, ordered, strict=True):
            found[place] = _noted(hit, notes[hit.id]) if hit.id in notes else hit
    return found


def _noted(hit: Hit, note: str) -> Hit:
    return replace(hit, note=f"{hit.note}; {note}" if hit.note else note)
