"""Near-duplicates among hits: one stands for all, with a count.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.contradictions import StatedValue, preference_key
from memtier_plugin.text.tokenizer import plain_words

_NEGATIONS: Final = frozenset({"no", "not", "never", "none", "without", "cannot", "t"})  # "can't"
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
    """Hits that say nearly the same, and the tier and words of the first of them."""

    hits: list[Hit]
    tier: str
    words: set[str]

    def takes(
        self, hit: Hit, tier: str, words: set[str], values: Mapping[str, StatedValue]
    ) -> bool:
        """Tell whether a hit says nearly the same as the first one."""
        if _sum_up_the_same(hit, self.hits[0]):
            return True
        size, own_size = len(words), len(self.words)
        if 10 * abs(size - own_size) > max(size, own_size):
            return False  # most pairs, at once
        return (
            tier == self.tier
            and _have_same_words(words, self.words)
            and not _contradicts(values, hit, self.hits)
        )


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
        for group in groups:
            if group.takes(hit, tier, words, values):
                group.hits.append(hit)
                break
        else:
            groups.append(_Group([hit], tier, words))
    return [group.hits for group in groups]


def merge_duplicates(group: Sequence[Hit]) -> Hit:
    """Return the hit that stands for a group of near-duplicates."""
    if len(group) == 1:
        return group[0]
    newest = max(group, key=preference_key)
    # An assistant that repeats what it was told, or shown, is no further witness.
    witnesses = [hit for hit in group if hit is newest or not _is_assistants(hit)]
    alone = _is_assistants(newest) and len(witnesses) == 1
    count = len(group) if alone else len(witnesses)
    sources = dict.fromkeys(source for hit in [newest, *group] for source in hit.sources)
    return replace(
        newest,
        score=group[0].score,
        sources=tuple(sources),
        note=f"one of {count} like it" if count > 1 else newest.note,
    )


def _sum_up_the_same(hit: Hit, other: Hit) -> bool:
    """Tell whether both sum up the same lines: a day's summary and its only session's."""
    fact, first = hit.item, other.item
    if not (isinstance(fact, Fact) and isinstance(first, Fact)):
        return False
    if not fact.shelf == first.shelf != "":
        return False
    return {source.entry for source in fact.sources} == {source.entry for source in first.sources}


def _contradicts(values: Mapping[str, StatedValue], hit: Hit, group: Sequence[Hit]) -> bool:
    value = values.get(hit.id)
    return value is not None and any(value.contradicts(values.get(other.id)) for other in group)


def _words(text: str) -> set[str]:
    if text.isascii():  # most texts, in a tenth of the time
        return set(text.lower().translate(_TO_SPACES).split())
    return set(plain_words(text))


def _have_same_words(words: set[str], others: set[str]) -> bool:
    different = words ^ others
    if len(different) > len(words | others) / 10:
        return False
    return not any(word in _NEGATIONS or any(map(str.isdigit, word)) for word in different)


def _is_assistants(hit: Hit) -> bool:
    return isinstance(hit.item, Entry) and hit.item.role == "assistant"
