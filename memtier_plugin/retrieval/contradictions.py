"""Facts that contradict each other: the newest first, saying that an older one exists.  Pure.

Two facts contradict each other when they state different values of one subject and of a relation
that has one value at a time (`facts.single_valued`).  Most conflicts end when the newer fact is
written, which supersedes the older.  Facts of different agents both stand, and meet in a ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.text.normalise import normalise

DENIES: Final = "denies"  # the relation of words by which facts are taken back, and none is made
REPLACES_NOTE = "replaces an older one"
_LAST_DAY: Final = timedelta(days=1)
OF_THEN_NOTE = "of the time asked about; a newer one says otherwise"


class StatedValue(NamedTuple):
    """The subject and relation of a single-valued fact, normalised, and its value."""

    about: tuple[str, ...]
    value: str

    def contradicts(self, value: StatedValue | None) -> bool:
        """Return whether both state the same subject and relation, with different values."""
        return value is not None and self.about == value.about and self.value != value.value


def holds_since(fact: Fact) -> tuple[datetime, str]:
    """Return when a fact began to hold, as a sort key: ties go by id."""
    return fact.valid_from or fact.timestamp, fact.id


def may_replace(first: Fact, second: Fact) -> bool:
    """Return whether two facts come from one voice: the same agent's, or both the user's words."""
    by_one_agent = first.sources[0].agent == second.sources[0].agent
    return by_one_agent or first.origin == second.origin == "user"


def stated_values(hits: Iterable[Hit], single_valued: Iterable[str]) -> dict[str, StatedValue]:
    """Return, by id, the values that the hits state of single-valued relations."""
    single = set(normalise(*single_valued))
    facts = [hit.item for hit in hits if isinstance(hit.item, Fact)]
    parts = {fact.id: normalise(fact.subject, fact.relation, fact.value) for fact in facts}
    return {i: StatedValue((s, r), value) for i, (s, r, value) in parts.items() if r in single}


def hit_time(hit: Hit) -> datetime:
    """Return when an entry was said, or when a fact began to hold."""
    item = hit.item
    if isinstance(item, Fact):
        return item.valid_from or item.timestamp
    return item.observed_at


def preference_key(hit: Hit) -> tuple[float, datetime, str]:
    """Return the sort key by which one hit represents several: the newest, ties by id.

    For a question about a time, it is the hit of that time.
    """
    return hit.signals.get("time", 0.0), hit_time(hit), hit.id


def mark_ended(hits: Iterable[Hit], at: datetime) -> list[Hit]:
    """Add a note to each fact that did not hold at a given time, by its own words.

    A fact holds from its first day to the end of its last.
    """
    marked = []
    for hit in hits:
        if isinstance(hit.item, Fact):
            since, until = hit.item.valid_from, hit.item.valid_to
            if until is not None and until + _LAST_DAY <= at:
                hit = hit.with_note(f"held until {until:%Y-%m-%d}")
            elif since is not None and since > at:
                hit = hit.with_note(f"holds from {since:%Y-%m-%d}")
        marked.append(hit)
    return marked


def mark_namesakes(hits: Iterable[Hit]) -> list[Hit]:
    """Add a note to profiles of people who share a name, saying whose each is."""
    hits = list(hits)
    people: dict[str, tuple[str, str]] = {}  # by hit, the name and the sender
    for hit in hits:
        if isinstance(hit.item, Fact) and hit.item.shelf == "profile":
            _, sender = hit.item.private_to or ("", "")
            people[hit.id] = normalise(hit.item.subject)[0], sender
    if len(people) < 2:
        return hits
    everybody = {*people.values()}
    words = Counter(word for name, _ in everybody for word in {*name.split()})
    names = Counter(name for name, _ in everybody)
    marked = []
    for hit in hits:
        name, sender = people.get(hit.id, ("", ""))
        count = max((words[word] for word in name.split()), default=0)
        if count > 1:
            whose = f": of {sender or 'the user'}" if names[name] > 1 else ""
            hit = hit.with_note(f"one of {count} of that name{whose}")
        marked.append(hit)
    return marked


def rank_newest_first(
    hits: Sequence[Hit],
    first: int,
    values: Mapping[str, StatedValue],
    replacing: Collection[str] = (),
) -> list[Hit]:
    """Move the newest of contradicting facts to the best of their ranks, with a note.

    The others follow in their order on the ranks that are left to them; every other hit keeps its
    own.

    Args:
        first: how many hits are looked at.
        values: by id, what a fact of a single-valued relation states.
        replacing: ids of facts that superseded an older one, which is not among the hits.
    """
    ordered = list(hits)
    if not values:
        return ordered
    by_subject: dict[tuple[str, ...], list[int]] = {}
    for rank, hit in enumerate(hits[:first]):
        if hit.id in values:
            by_subject.setdefault(values[hit.id].about, []).append(rank)
            if hit.id in replacing:
                ordered[rank] = hit.with_note(REPLACES_NOTE)
    for ranks in by_subject.values():
        group = [ordered[rank] for rank in ranks]
        if len({values[hit.id].value for hit in group}) < 2:
            continue
        best = max(group, key=preference_key)
        newest = max(group, key=lambda hit: (hit_time(hit), hit.id))
        older = "the older says" if len(group) == 2 else "older ones say"
        notes = {newest.id: f"newest of {len(group)}; {older} otherwise"}
        notes.setdefault(best.id, OF_THEN_NOTE)
        best_first = [best, *(hit for hit in group if hit is not best)]
        for rank, hit in zip(ranks, best_first, strict=True):
            ordered[rank] = hit.with_note(notes[hit.id]) if hit.id in notes else hit
    return ordered
