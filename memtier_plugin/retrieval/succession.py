"""Judge whether a later statement replaces an older one, by what the two say.  Pure.

A mark is a claim, so it needs the same subject and the same attribute with another value.  Whether
two statements have these is judged by how their words fit together: which they share, how rare
these are and in how many lines, what stands before the first difference, whether one value takes
the place of another.  No word of change is needed, and none is enough.  The probability is that of
boosted trees over `pair_features` (``replacement.json``, fitted by ``scripts/fit_replacement.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from memtier_plugin.retrieval.statements import Statement, StatementWord, statements

LEAST_SHARED: Final = 0.25  # of the older statement's content words, for two to be a pair


class Rarity(Struct, frozen=True):
    """How rare words are among so many items, by how many of them have each."""

    frequencies: Mapping[str, int]
    items: int

    def of(self, words: Iterable[str]) -> dict[str, float]:
        """Return from 0 (in every item) to 1 (in no other), by word."""
        count, most = self.frequencies.get, math.log(self.items + 2)
        return {word: max(0.0, 1 - math.log(count(word, 0) + 1) / most) for word in words}


def pair_features(older: Statement, later: Statement, rarity: Rarity) -> dict[str, float]:
    """Return what speaks for a later statement's replacing an older one."""
    old, new, count = older.words, later.words, rarity.frequencies.get
    shared = older.content & later.content - _of_other_units(older, later)
    fresh = later.content - shared
    rare = rarity.of(older.content | later.content)
    weight = math.fsum(rare[word] for word in shared)
    prefix, suffix = _common_ends(old, new)
    middle_old, middle_new = old[prefix : len(old) - suffix], new[prefix : len(new) - suffix]
    kinds_old, kinds_new = ({w.kind for w in of} - {"function"} for of in (middle_old, middle_new))
    ends = [stem for stem, kind in old if kind != "function"]
    fresh_at = [at for at, (stem, kind) in enumerate(new) if kind != "function" and stem in fresh]
    return {
        "shared_of_old": weight / (math.fsum(rare[word] for word in older.content) or 1.0),
        "shared_of_new": weight / (math.fsum(rare[word] for word in later.content) or 1.0),
        "rarest_shared": max((rare[word] for word in shared), default=0.0),
        "lines": min((math.log1p(count(word, 0)) for word in shared), default=0.0),
        "overlap": len(shared) / max(1, len(older.content)),
        "new_number": float(bool(older.numbers) and bool(later.numbers - older.numbers)),
        "longer": math.log((1 + len(later.content)) / (1 + len(older.content))),
        "prefix_words": min(4, len(_contents(old[:prefix]))),
        "frame": (prefix + suffix) / max(1, min(len(old), len(new))),
        "middle_shared": min(3, len(_contents(middle_old) & _contents(middle_new))),
        "numbers_swapped": float("number" in kinds_old and "number" in kinds_new),
        "names_swapped": float("name" in kinds_old and "name" in kinds_new),
        "only_numbers_swapped": float(kinds_old == kinds_new == {"number"}),
        "swaps": min(3, len(_find_swaps(older, later))),
        "value_kept": float(bool(ends) and ends[-1] in shared),
        "fresh": min(8, len(fresh)),
        "before_first_fresh": min(4, len(_contents(new[: fresh_at[0]]))) if fresh_at else 5,
        "rarest_fresh": max((rare[word] for word in fresh), default=0.0),
        "changes": float("change" in later.cues),
        "ends": float("ending" in later.cues),
    }


def _of_other_units(older: Statement, later: Statement) -> frozenset[str]:
    """Return the numbers that count one thing in the older and another in the newer statement."""
    if older.numbers.isdisjoint(later.numbers):
        return older.numbers & later.numbers
    units = [
        {
            number.stem: unit.stem
            for number, unit in pairwise(words)
            if number.kind == "number" and unit.kind != "number"
        }
        for words in (older.words, later.words)
    ]
    both = units[0].keys() & units[1].keys()
    return frozenset([number for number in both if units[0][number] != units[1][number]])


def _contents(words: Sequence[StatementWord]) -> frozenset[str]:
    return frozenset([stem for stem, kind in words if kind != "function"])


def _common_ends(old: Sequence[StatementWord], new: Sequence[StatementWord]) -> tuple[int, int]:
    """Return how many words two statements have in common at their beginning, and at their end."""
    most = min(len(old), len(new))
    prefix = 0
    while prefix < most and old[prefix].stem == new[prefix].stem:
        prefix += 1
    suffix = 0
    while suffix < most - prefix and old[-1 - suffix].stem == new[-1 - suffix].stem:
        suffix += 1
    return prefix, suffix


def _find_swaps(older: Statement, later: Statement) -> list[set[str]]:
    """Return the kinds of words at each place where two statements diverge after the same word."""
    both = older.stems & later.stems

    def places(words: Sequence[StatementWord]) -> dict[str, set[str]]:
        anchors, anchor = dict[str, set[str]](), ""
        for stem, kind in words:
            if stem in both:
                anchor = stem
            elif kind != "function":
                anchors.setdefault(anchor, set()).add(kind)
        return anchors

    first, second = places(older.words), places(later.words)
    return [first[anchor] | second[anchor] for anchor in first if anchor in second]


def is_of_another(older: Statement, later: Statement) -> bool:
    """Return whether two statements give the same attribute of two different subjects.

    Either the older is about its speaker and the later about somebody close to them ("I have a
    dog", "my brother has no dog"), or only the subject and the value differ, with the other words
    in the same order: "my mother's birthday is on 5 June", "my father's birthday is on 9 July".
    """
    if older.own and later.possessive and not (later.own or older.possessive):
        return True
    if later.is_unspaced:
        return False  # pairs of letters are no words
    both = older.stems & later.stems
    old, new = ([stem for stem, _ in of.words if stem in both] for of in (older, later))
    if old != new:
        return False
    swaps = _find_swaps(older, later)
    return len(swaps) > 1 and any(swap != {"number"} for swap in swaps)


# A node of a regression tree: a feature, a threshold, and what is up to it and above it, nodes or,
# on the last level, values.
Tree = tuple[str, float, Any, Any]
_LEVELS: Final = 3


def _planted(arrays: Sequence[Sequence[Any]], node: int = 0, level: int = _LEVELS) -> Any:
    """Return a tree that is given in arrays: features, thresholds, below, above, values."""
    feature, threshold, *branches, value = (array[node] for array in arrays)
    if not level:
        return value
    # A leaf above the last level is a node with twice the same below it.
    branches = branches if feature else [node, node]
    rest = [_planted(arrays, branch, level - 1) for branch in branches]
    return (feature or arrays[0][0], threshold, *rest)


class ReplacementModel(Struct, frozen=True):
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
        values = [self.start]
        for name, least, below, above in self.trees:
            name, least, below, above = below if features[name] <= least else above
            name, least, below, above = below if features[name] <= least else above
            values.append(below if features[name] <= least else above)
        return 1.0 / (1.0 + math.exp(-math.fsum(values)))


@cache
def fitted_model() -> ReplacementModel:
    """Return the model that ``scripts/fit_replacement.py`` has fitted."""
    document = json.loads(Path(__file__).with_name("replacement.json").read_bytes())
    document["trees"] = [_planted(tree) for tree in document["trees"]]
    return ReplacementModel(**document)


def probability(older: Statement, later: Statement, rarity: Rarity) -> float:
    """Return how likely a later statement replaces an older one.

    A statement that only says that its subject is over ("the picnic is cancelled") ends it.  Any
    other that merely repeats the older one, or part of it, ends nothing.
    """
    if later.content <= older.content:
        first = next((word.stem for word in older.words if word.kind != "function"), "")
        if "ending" in later.cues and first in later.content:
            return 1.0
        if later.negated == older.negated:
            return 0.0
    model = fitted_model()
    likely = model.probability(pair_features(older, later, rarity))
    may_differ = likely > model.order and _may_differ_in_subject(older, later)
    return model.order if may_differ else likely


def _may_differ_in_subject(older: Statement, later: Statement) -> bool:
    """Return whether all that differs stands before words that both end with, and is no number.

    "Okafor supplies the boiler" and "Okafor supplies the pump" may both hold, as may "the boiler's
    parts come from Okafor" and "the pump's parts come from Okafor": an order, but no claim.
    """
    prefix, suffix = _common_ends(older.words, later.words)
    rest = [of.words[prefix : len(of.words) - suffix] for of in (older, later)]
    differing = [{word.stem for word in words if word.kind != "function"} for words in rest]
    kinds = {word.kind for words in rest for word in words}
    if not all(differing) or "number" in kinds or not differing[0].isdisjoint(differing[1]):
        return False
    return bool(_contents(older.words[len(older.words) - suffix :]))


def replaces(older: str, later: str, rarity: Rarity, *, adjacent: bool = False) -> float:
    """Return how likely a later text replaces an older one, by the likeliest of its statements.

    Args:
        adjacent: they were said in one conversation, one right after the other.
    """
    return max(
        (
            probability(old, new, rarity)
            for old in statements(older)
            for new in statements(later)
            if not new.is_open and not is_of_another(old, new)
            if adjacent or len(old.content & new.content) >= LEAST_SHARED * len(old.content)
        ),
        default=0.0,
    )
