"""Merge near-duplicates among hits, and put the newest of contradicting facts first.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.text.speech import without_receipts
from memtier_plugin.text.tokenizer import MAX_CHARS, normalise, plain_words

# -- Facts that contradict each other: the newest first, saying that an older one exists.  Pure
#
# Two facts contradict each other when they state different values of one subject and of a relation
# that has one value at a time (`facts.single_valued`).  Most conflicts end when the newer fact is
# written, which supersedes the older.  Facts of different agents both stand, and meet in a ranking.

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
    """Return the sort key that picks the hit to represent several: the newest, ties by id.

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


# -- Near-duplicates among hits: one stands for all, with a count.  Pure

Split = Callable[[str], Sequence[str]]

_NEGATIONS: Final = frozenset({"no", "not", "never", "none", "without", "cannot", "t"})  # "can't"
_MUCH_MORE: Final = 2  # times a fact's words, and
_A_FEW_WORDS: Final = 6  # up to which an entry stands for the fact
_TO_SPACES: Final = {code: " " for code in range(128) if not chr(code).isalnum()}
_NO_VALUES: Final[Mapping[str, StatedValue]] = {}


def collapse_duplicates(
    hits: Sequence[Hit], first: int, values: Mapping[str, StatedValue] = _NO_VALUES
) -> list[Hit]:
    """Collapse near-duplicates among the first hits: one stands for all, with a count.

    The newest stays, or the one of the time that the query names; it takes the best rank, and the
    sources of all.
    """
    groups = group_duplicates(hits[:first], values)
    merged = [group[0] if len(group) == 1 else merge_duplicates(group) for group in groups]
    return [*merged, *hits[first:]]


class _Group(Struct, frozen=True):
    """A group of near-duplicate hits, with the tier and words of the first."""

    hits: list[Hit]
    tier: str
    words: frozenset[str]
    size: int

    def takes(
        self, hit: Hit, tier: str, words: frozenset[str], values: Mapping[str, StatedValue]
    ) -> bool:
        """Return whether a hit says nearly the same as the first one."""
        if not _have_same_words(words, self.words):  # as most
            return _sum_up_the_same(hit, self.hits[0])
        related = tier == self.tier or _rests_on(hit, self.hits) or _rests_on(self.hits[0], [hit])
        if related and not _contradicts(values, hit, self.hits):
            return True
        return _sum_up_the_same(hit, self.hits[0])


def group_duplicates(
    hits: Sequence[Hit], values: Mapping[str, StatedValue] = _NO_VALUES
) -> list[list[Hit]]:
    """Return the hits in groups of near-duplicates, by the rank of the first of each.

    Two texts are near-duplicates when nine of ten words agree and those that do not are neither
    numbers nor negations; facts that contradict each other never are.

    Args:
        values: by id, what a fact of a single-valued relation states.
    """
    groups: list[_Group] = []
    for hit in hits:
        tier, shelved = "", False
        if isinstance(hit.item, Fact):
            tier, shelved = hit.item.tier, hit.item.shelf != ""
        words = _words(hit.item.text)
        size = len(words)
        # Most pairs differ in length by more than a tenth, and are told apart at once.
        least, most = -(-9 * size // 10), 10 * size // 9
        for group in groups:
            near = shelved or least <= group.size <= most
            if near and group.takes(hit, tier, words, values):
                group.hits.append(hit)
                break
        else:
            groups.append(_Group([hit], tier, words, size))
    return [group.hits for group in groups]


def find_copies(
    hits: Sequence[Hit], shown: Collection[str], values: Mapping[str, StatedValue] = _NO_VALUES
) -> set[str]:
    """Return the ids of the hits that say nearly the same as one that is shown, theirs included.

    Args:
        shown: ids.
        values: as for `group_duplicates`.
    """
    shown_first = sorted(hits, key=lambda hit: hit.id not in shown)
    groups = group_duplicates(shown_first, values)
    return {hit.id for group in groups if group[0].id in shown for hit in group}


def find_restated(hits: Sequence[Hit], words: Split) -> dict[str, str]:
    """Return the hits that another hit makes needless, by id, with the id of that hit.

    These are a fact and its entry, where one adds nothing to the other, and what an assistant
    repeats of the user's words.  A hit with a note says more than its text, and stays.

    Args:
        words: splits a text into words, without function words.
    """
    entries = {hit.id: hit for hit in hits if isinstance(hit.item, Entry)}
    restated: dict[str, str] = {}
    for hit in hits:
        item = hit.item
        if hit.note:
            continue
        if isinstance(item, Fact):
            for entry in (entries[s.entry] for s in hit.sources if s.entry in entries):
                if not entry.note and (needless := _needless(hit, entry, item.subject, words)):
                    kept = entry if needless is hit else hit
                    restated.setdefault(needless.id, kept.id)
        elif item.role == "assistant":
            earlier = (e for e in entries.values() if _follows(item, e.item))
            words_said = {*words(without_receipts(item.content))}
            for entry in earlier if words_said else ():
                if words_said <= {*words(entry.text)} and _agree(hit.text, entry.text):
                    restated.setdefault(hit.id, entry.id)
    return {item: kept for item, kept in restated.items() if kept not in restated}


def _needless(fact: Hit, entry: Hit, subject: str, words: Split) -> Hit | None:
    """Return the one of a fact and its entry that adds nothing to the other, if any."""
    who = {*words(subject), *words(_speaker(entry))}
    fact_words, entry_words = (
        {*words(fact.text)} - who,
        {*words(without_receipts(entry.text))} - who,
    )
    if not fact_words or not entry_words or not _agree(fact.text, entry.text):
        return None
    if entry_words <= fact_words:
        return entry
    short = len(entry_words) <= _MUCH_MORE * len(fact_words) + _A_FEW_WORDS
    return fact if fact_words <= entry_words and short else None


def _speaker(hit: Hit) -> str:
    return hit.item.speaker or hit.item.role if isinstance(hit.item, Entry) else ""


def _follows(answer: Entry, item: Entry | Fact) -> bool:
    """Return whether an answer comes after an item that a user said in the same session."""
    return (
        isinstance(item, Entry)
        and item.role == "user"
        and item.session_id == answer.session_id
        and item.observed_at <= answer.observed_at
    )


def _agree(first: str, second: str) -> bool:
    """Return whether two texts have the same negations."""
    return _words(first) & _NEGATIONS == _words(second) & _NEGATIONS


def merge_duplicates(group: Sequence[Hit]) -> Hit:
    """Return the hit that represents a group of near-duplicates."""
    newest = max(group, key=preference_key)
    # An assistant that repeats what it was told, or shown, is no further witness.
    witnesses = [hit for hit in group if hit is newest or not _is_assistants(hit)]
    # Nor is a fact one that rests on an entry among them.
    entries = [hit for hit in witnesses if isinstance(hit.item, Entry)]
    witnesses = [hit for hit in witnesses if not _rests_on(hit, entries)]
    alone = _is_assistants(newest) and len(witnesses) == 1
    count = len(group) if alone else len(witnesses)
    sources = dict.fromkeys(source for hit in [newest, *group] for source in hit.sources)
    return replace(
        newest,
        score=group[0].score,
        sources=tuple(sources),
        note=f"one of {count} like it" if count > 1 else newest.note,
    )


def _sum_up_the_same(hit: Hit, first: Hit) -> bool:
    """Return whether two summaries cover the same lines: a day's and its only session's."""
    new, old = hit.item, first.item
    if not (isinstance(new, Fact) and isinstance(old, Fact) and new.shelf == old.shelf != ""):
        return False
    return {source.entry for source in new.sources} == {source.entry for source in old.sources}


def _rests_on(fact: Hit, hits: Iterable[Hit]) -> bool:
    """Return whether a hit is a fact that rests on one of these entries."""
    sources = {source.entry for source in fact.sources} if isinstance(fact.item, Fact) else ()
    return any(hit.id in sources for hit in hits)


def _contradicts(values: Mapping[str, StatedValue], hit: Hit, group: Sequence[Hit]) -> bool:
    value = values.get(hit.id)
    return value is not None and any(value.contradicts(values.get(each.id)) for each in group)


@lru_cache(2048)  # prompts that follow each other find the same lines
def _words(text: str) -> frozenset[str]:
    if len(text) > 2 * MAX_CHARS:
        text = f"{text[:MAX_CHARS]} {text[-MAX_CHARS:]}"
    if text.isascii():  # most texts, in a tenth of the time
        return frozenset(text.lower().translate(_TO_SPACES).split())
    return frozenset(plain_words(" ".join({*text.split()})))


def _have_same_words(first: frozenset[str], second: frozenset[str]) -> bool:
    same, both = len(first & second), len(first) + len(second)
    if both - 2 * same > (both - same) / 10:
        return False
    different = first ^ second
    return not any(word in _NEGATIONS or any(map(str.isdigit, word)) for word in different)


def _is_assistants(hit: Hit) -> bool:
    return isinstance(hit.item, Entry) and hit.item.role == "assistant"
