"""Tell which facts a user's words end: what they deny, take back, or tell to be done.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Final

from memtier_plugin.core.records import CORRECTED, INTENDED, Fact
from memtier_plugin.facts.evolution import content_words, denies
from memtier_plugin.retrieval.duplicates import may_replace
from memtier_plugin.text.lexicon import words_of

ENDED_BY: Final = {"correction": CORRECTED, "intention": INTENDED}  # by the denial's extractor
_CLOSED: Final = (
    *("stop_words", "function_words", "definite", "copulas"),
    *("first_person", "second_person", "third_person"),
)
_TELLING: Final = 2  # words that say which intention is done, or half of few words


def find_ended(denial: Fact, nearest: Sequence[Fact]) -> list[Fact]:
    """Return the facts that a denial (`duplicates.DENIES`) ends.

    Words that take back a rule, or close an intention, end that alone, with what else it states.
    """
    relation = ENDED_BY.get(denial.extractor)
    ended = _withdrawn(denial, nearest, relation) if relation else None
    lines = {source.entry for source in ended.sources} if ended else set[str]()

    def is_of_it(other: Fact) -> bool:
        quotes = ended is not None and (other.quote in ended.quote or ended.quote in other.quote)
        return quotes and lines.issuperset(source.entry for source in other.sources)

    return [each for each in nearest if (is_of_it(each) if relation else denies(denial, each))]


def _withdrawn(denial: Fact, nearest: Sequence[Fact], relation: str) -> Fact | None:
    """Return the rule, or the intention, that a user's words end: the one with most of them."""
    words = {*content_words(denial.text)} - _closed_words()
    line = denial.sources[0].entry
    shared = {
        known.id: len(words.intersection(content_words(known.text)))
        for known in nearest
        if known.relation == relation
        and may_replace(denial, known)
        and line not in {source.entry for source in known.sources}
    }
    most = max(shared.values(), default=0)
    if relation == INTENDED and most < min(_TELLING, len(words) / 2):
        return None
    best = [known for known in nearest if most and shared.get(known.id) == most]
    return best[0] if len(best) == 1 else None


@cache
def _closed_words() -> frozenset[str]:
    return frozenset(content_words(" ".join(chain.from_iterable(map(words_of, _CLOSED)))))
