"""Judge whether a later statement replaces an older one, by what the two say.  Pure.

A mark is a claim, so it needs the same subject and the same attribute with another value.  Whether
two statements have these is judged by how their words fit together: which they share and how rare
these are, what stands before the first difference, whether one value takes the place of another.
No word of change is needed, and none is enough.  The probability is that of boosted trees over
`pair_features` (``replacement.json``, fitted by ``scripts/fit_replacement.py``); `has_same_subject`
says what no probability makes up for.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from memtier_plugin.retrieval.statements import Statement, Word, statements

LEAST_SHARED: Final = 0.25  # of the older statement's content words, for two to be a pair
_LEAST_PROOF: Final = 0.34  # of its words, or by rarity, for the older to be said to be replaced
_TIMES: Final = frozenset({"day", "hour"})  # beside the value that is told of them
_OF_THING: Final = 2  # words that name one thing

Rarity = Callable[[str], float]  # of a word, from 0 (in every line) to 1 (in no other)


def rarity_among(frequencies: Mapping[str, int], items: int) -> Rarity:
    """Return how rare a word is among so many items, given how many have it."""
    scale = math.log(items + 2)
    return lambda word: max(0.0, 1 - math.log(frequencies.get(word, 0) + 1) / scale)


def pair_features(
    older: Statement,
    later: Statement,
    rarity: Rarity,
    *,
    adjacent: bool = False,
    by_assistant: bool = False,
    same_voice: bool = True,
) -> dict[str, float]:
    """Return what speaks for a later statement's replacing an older one.

    Args:
        adjacent: they were said in one conversation, one right after the other.
        by_assistant: the later is an assistant's.
        same_voice: both are one speaker's.
    """
    rare = {word: rarity(word) for word in older.content | later.content}
    return {
        **_shared_features(older, later, rare),
        **_frame_features(older, later, rare),
        **_place_features(older, later, rare),
        **_swap_features(older, later),
        **_sense_features(older, later),
        "adjacent": float(adjacent),
        "by_assistant": float(by_assistant),
        "same_voice": float(same_voice),
    }


def _shared_features(
    older: Statement, later: Statement, rare: Mapping[str, float]
) -> dict[str, float]:
    """Return how much two statements share, by count and by rarity, and of which kinds."""
    shared = older.content & later.content
    weight = math.fsum(rare[word] for word in shared)
    units = older.units & later.units
    return {
        "shared_of_old": weight / (math.fsum(rare[word] for word in older.content) or 1.0),
        "shared_of_new": weight / (math.fsum(rare[word] for word in later.content) or 1.0),
        "rarest_shared": max((rare[word] for word in shared), default=0.0),
        "shared": min(4, len(shared)),
        "overlap": len(shared) / max(1, len(older.content)),
        "both_numbers": float(bool(older.numbers) and bool(later.numbers)),
        "new_number": float(bool(older.numbers) and bool(later.numbers - older.numbers)),
        "same_numbers": float(bool(later.numbers) and later.numbers <= older.numbers),
        "number_lost": float(bool(older.numbers) and not later.numbers),
        "names_lost": min(3, len(older.names - later.content)),
        "names_new": min(3, len(later.names - older.content)),
        "names_shared": min(3, len(older.names & later.content)),
        "unit_shared": float(bool(units)),
        "unit_differs": float(bool(older.units) and bool(later.units) and not units),
        "unit_missing": float(
            bool(older.numbers and later.numbers)
            and bool(older.units - _TIMES) != bool(later.units - _TIMES)
        ),
        "old_words": math.log1p(len(older.content)),
        "new_words": math.log1p(len(later.content)),
        "longer": math.log((1 + len(later.content)) / (1 + len(older.content))),
    }


def _frame_features(
    older: Statement, later: Statement, rare: Mapping[str, float]
) -> dict[str, float]:
    """Return what two statements have in common at their ends, and what stands between these."""
    old, new = older.words, later.words
    prefix, suffix = _common_ends(old, new)
    middle_old, middle_new = old[prefix : len(old) - suffix], new[prefix : len(new) - suffix]
    gone, come, before = _contents(middle_old), _contents(middle_new), _contents(old[:prefix])
    kinds_old = {word.kind for word in middle_old} - {"function"}
    kinds_new = {word.kind for word in middle_new} - {"function"}
    return {
        "prefix_words": min(4, len(before)),
        "prefix_rarest": max((rare[word] for word in before), default=0.0),
        "suffix_words": min(4, len(_contents(old[len(old) - suffix :]))),
        "gone": min(6, len(gone)),
        "come": min(6, len(come)),
        "middle_shared": min(3, len(gone & come)),
        "frame": (prefix + suffix) / max(1, min(len(old), len(new))),
        "numbers_swapped": float("number" in kinds_old and "number" in kinds_new),
        "names_swapped": float("name" in kinds_old and "name" in kinds_new),
        "only_numbers_swapped": float(kinds_old == kinds_new == {"number"}),
        "rarest_gone": max((rare[word] for word in gone - come), default=0.0),
    }


def _place_features(
    older: Statement, later: Statement, rare: Mapping[str, float]
) -> dict[str, float]:
    """Return where the words stand that one of two statements has and the other has not."""
    old, new = older.words, later.words
    shared = older.content & later.content
    lost, fresh = older.content - shared, later.content - shared
    lost_kinds = {word.kind for word in old if word.stem in lost} - {"function"}
    fresh_kinds = {word.kind for word in new if word.stem in fresh} - {"function"}
    lost_at = [at for at, word in enumerate(old) if word.is_content and word.stem in lost]
    fresh_at = [at for at, word in enumerate(new) if word.is_content and word.stem in fresh]
    numbers_at = [at for at in fresh_at if new[at].kind == "number"]
    kept = _contents(old[: lost_at[-1]]) if lost_at else frozenset[str]()
    kept_weight = math.fsum(rare[word] for word in kept) or 1.0
    stems = [word.stem for word in old if word.is_content] or [""]
    opening = next((word.stem for word in new if word.is_content), "")
    return {
        "lost": min(6, len(lost)),
        "fresh": min(8, len(fresh)),
        "lost_mixed": float("number" in lost_kinds and len(lost_kinds) > 1),
        "fresh_mixed": float("number" in fresh_kinds and len(fresh_kinds) > 1),
        "lost_places": min(4, _count_places(lost_at)),
        "fresh_places": min(4, _count_places(fresh_at)),
        "figures": min(_count_figures(old, new), _count_figures(new, old)),
        "of_time": float(all(_is_time(new, at) for at in numbers_at)),
        "kept_before": math.fsum(rare[word] for word in kept & shared) / kept_weight
        if kept
        else (0.5 if lost_at else 1.0),
        "before_first_lost": min(5, len(_contents(old[: lost_at[0]]))) if lost_at else 5,
        "before_first_fresh": min(4, len(_contents(new[: fresh_at[0]]))) if fresh_at else 5,
        "ends_lost": float(stems[-1] in lost),
        "rarest_lost": max((rare[word] for word in lost), default=0.0),
        "rarest_fresh": max((rare[word] for word in fresh), default=0.0),
        "first_shared": float(stems[0] in later.content),
        "second_shared": float(len(stems) > 1 and stems[1] in later.content),
        "opening_shared": float(opening in older.content),
        "last_shared": float(stems[-1] in later.content),
    }


def _swap_features(older: Statement, later: Statement) -> dict[str, float]:
    """Return what two statements have instead of each other; see `has_same_subject`."""
    swaps = _find_swaps(older.words, later.words)
    things = [swap for swap in swaps if swap.is_thing]
    last, closing = (
        next((word.stem for word in reversed(words) if word.is_content), "")
        for words in (older.words, later.words)
    )
    value_kept = last == closing and later.numbers <= older.numbers
    cued = later.cues & {"change", "present", "ending"}
    return {
        "swaps": min(3, len(swaps)),
        "word_swaps": min(3, len(things)),
        "other_of_kind": float(any(swap.head and swap.kinds == {"word"} for swap in things)),
        "value_kept": float(value_kept and any(not swap.head for swap in things)),
        "may_add": float(not cued and any(swap.after_word and not swap.head for swap in things)),
    }


def _sense_features(older: Statement, later: Statement) -> dict[str, float]:
    """Return what two statements are: denials, of their speaker, plans, of the past, of change."""
    return {
        "denies": float(later.negated and not older.negated),
        "denied_before": float(older.negated and not later.negated),
        "own": float(older.own and later.own),
        "own_differs": float(older.own != later.own),
        "possessive": float(older.possessive and later.possessive),
        "of_another": float(older.own and later.possessive and not (later.own or older.possessive)),
        "pronoun": float(later.pronoun),
        "supposes": float(later.supposes),
        "requests": float(later.requests and not older.requests),
        "unsettled": float("unsettled" in later.cues),
        "was_unsettled": float("unsettled" in older.cues),
        "former": float("former" in later.cues),
        "changes": float("change" in later.cues),
        "ends": float("ending" in later.cues),
    }


def _contents(words: Sequence[Word]) -> frozenset[str]:
    return frozenset([word.stem for word in words if word.is_content])


def _common_ends(old: Sequence[Word], new: Sequence[Word]) -> tuple[int, int]:
    """Return how many words two statements have in common at their beginning, and at their end."""
    most = min(len(old), len(new))
    prefix = 0
    while prefix < most and old[prefix].stem == new[prefix].stem:
        prefix += 1
    suffix = 0
    while suffix < most - prefix and old[-1 - suffix].stem == new[-1 - suffix].stem:
        suffix += 1
    return prefix, suffix


class _Swap(NamedTuple):
    """What two statements have instead of each other: kinds, most words, what follows in both."""

    kinds: frozenset[str]
    words: float
    head: str
    after_word: bool = False  # after a verb or a noun: "likes tea", "likes jazz"

    @property
    def is_thing(self) -> bool:
        """True for a few words that are no numbers: one thing instead of another."""
        return "number" not in self.kinds and self.words <= _OF_THING


def _find_swaps(old: Sequence[Word], new: Sequence[Word]) -> list[_Swap]:
    """Return where two statements differ after the same word.

    A line on another subject differs in two places, in the subject and in the value; one on another
    thing of a kind in what stands before the kind ("the churn model", "the weather model").
    """
    both = {word.stem for word in old} & {word.stem for word in new}

    def after(words: Sequence[Word]) -> dict[str, _Swap]:
        anchor, follows, replaced = "", False, dict[str, _Swap]()
        for word in words:
            if word.stem in both:
                if anchor in replaced and not replaced[anchor].head:
                    head = word.stem if word.is_content else "-"
                    replaced[anchor] = replaced[anchor]._replace(head=head)
                anchor, follows = word.stem, word.kind == "word"
            elif word.is_content:
                kinds, count, *_ = replaced.get(anchor, _Swap(frozenset(), 0, ""))
                size = 0.5 if word.is_unspaced else 1.0
                replaced[anchor] = _Swap(kinds | {word.kind}, count + size, "", follows)
        return replaced

    olds, news = after(old), after(new)
    swaps = []
    for anchor, swap in olds.items():
        if other := news.get(anchor):
            head = swap.head if swap.head == other.head and swap.head != "-" else ""
            both_kinds, most = swap.kinds | other.kinds, max(swap.words, other.words)
            swaps.append(_Swap(both_kinds, most, head, swap.after_word))
    return swaps


def has_same_subject(features: Mapping[str, float]) -> bool:
    """Tell whether two statements may be of one subject and one attribute at all.

    They are not where hardly anything is shared (unless one was said right after the other), where
    two places differ and not both are times, where one has a number of something else, where one is
    of the speaker and the other of somebody of theirs, where a kind of thing is specified anew,
    where the value is the same and what is before it differs, or where one thing follows the verb
    instead of another without a word of change ("likes jazz").
    """
    little = max(features["overlap"], features["shared_of_old"]) <= _LEAST_PROOF
    if little and features["fresh"] and not features["adjacent"]:
        return False
    if features["supposes"] or features["requests"]:
        return False
    if not features["fresh"] and not (features["ends"] or features["changes"]):
        return bool(features["denies"])  # else it says the same, or less
    other_words = features["kept_before"] < 1 or features["fresh_mixed"]
    if features["unit_differs"] or (features["unit_missing"] and other_words):
        return False
    if features["changes"] and features["last_shared"]:
        return True  # "from Flutter to Kotlin": it names the value that it ends
    if features["swaps"] > 1 and (features["word_swaps"] or not features["of_time"]):
        return False
    if (features["figures"] > 1 and not features["of_time"]) or features["of_another"]:
        return False
    return not (features["other_of_kind"] or features["value_kept"] or features["may_add"])


def _count_figures(words: Sequence[Word], others: Sequence[Word]) -> int:
    """Return how many numbers of a statement another has not, or not as often."""
    own, theirs = (Counter(w.stem for w in of if w.kind == "number") for of in (words, others))
    return (own - theirs).total()


def _is_time(words: Sequence[Word], at: int) -> bool:
    """Tell whether a number is an hour, or of a day: by a month or a weekday within two words."""
    near = words[max(0, at - 2) : at + 3]
    return ":" in words[at].stem or any(w.kind == "number" and w.stem.isalpha() for w in near)


def _count_places(positions: Sequence[int]) -> int:
    """Return in how many places words stand that are not next to each other."""
    return sum(
        1 for at, before in zip(positions, [-9, *positions], strict=False) if at > before + 1
    )


class Tree(NamedTuple):
    """A regression tree in arrays: a leaf has no feature."""

    features: Sequence[str]
    thresholds: Sequence[float]
    below: Sequence[int]
    above: Sequence[int]
    values: Sequence[float]

    def value(self, features: Mapping[str, float]) -> float:
        """Return the value of the leaf that the features lead to."""
        node = 0
        while name := self.features[node]:
            node = (self.below if features[name] <= self.thresholds[node] else self.above)[node]
        return self.values[node]


@dataclass(frozen=True, slots=True)
class ReplacementModel:
    """Boosted trees (Friedman 2001), and the probabilities from which a pair counts.

    Attributes:
        mark: from here on the older line is said to be replaced.
        order: from here on the later line stands first.
    """

    start: float
    trees: Sequence[Tree]
    mark: float
    order: float

    def probability(self, features: Mapping[str, float]) -> float:
        """Return how likely a later statement replaces an older one."""
        total = self.start + math.fsum([tree.value(features) for tree in self.trees])
        return 1.0 / (1.0 + math.exp(-total))

    def judge(self, features: Mapping[str, float]) -> float:
        """Return the probability, below the mark where subject or attribute are not the same.

        What only says that its subject has ended is the end of it.
        """
        probability = self.probability(features)
        only_ends = features["ends"] and not features["fresh"] and features["first_shared"]
        if only_ends and not features["supposes"]:
            return max(probability, self.mark)
        return probability if has_same_subject(features) else min(probability, self.mark - 0.01)


@cache
def fitted_model() -> ReplacementModel:
    """Return the model that ``scripts/fit_replacement.py`` has fitted."""
    document = json.loads(Path(__file__).with_name("replacement.json").read_bytes())
    document["trees"] = [Tree(*tree) for tree in document["trees"]]
    return ReplacementModel(**document)


def replaces(
    older: str, later: str, rarity: Rarity, *, adjacent: bool = False, by_assistant: bool = False
) -> float:
    """Return how likely a later text replaces an older one, by the likeliest of its statements.

    Args:
        adjacent, by_assistant: as for `pair_features`.
    """
    model = fitted_model()
    return max(
        (
            model.judge(
                pair_features(old, new, rarity, adjacent=adjacent, by_assistant=by_assistant)
            )
            for old in statements(older)
            for new in statements(later)
            if adjacent or len(old.content & new.content) >= LEAST_SHARED * len(old.content)
        ),
        default=0.0,
    )
