"""Near-duplicates among hits: one stands for all, with a count.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.contradictions import StatedValue, preference_key
from memtier_plugin.text.speech import without_receipts
from memtier_plugin.text.tokenizer import MAX_CHARS, plain_words

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
    return [*map(merge_duplicates, group_duplicates(hits[:first], values)), *hits[first:]]


@dataclass(frozen=True, slots=True)
class _Group:
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
        tier, words = hit.tier, _words(hit.text)
        size, shelved = len(words), isinstance(hit.item, Fact) and hit.item.shelf != ""
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
    if len(group) == 1:
        return group[0]
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
