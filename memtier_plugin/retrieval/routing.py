"""Whether the facts are enough for a question, without asking a model.  Pure.

The router of TierMem (section 2.2) as features: how much of the question the facts say, and whether
they say what was found in the log; what kind of a question it is; whether the facts can be trusted.
Each is a doubt; when they come to more than `MAX_DOUBT`, or anything goes wrong, the raw log is
asked.

What a routed recall shows is chosen here too.  A line must bring a source that no line before it
brought, and stand in the upper part of the scores; a fact stands for the entry it rests on where it
is the shorter of the two.  All of it is one setting for all data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import regex

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Action, Depth, Hit, Route
from memtier_plugin.retrieval.contradictions import StatedValue
from memtier_plugin.text.lexicon import lexicon

MAX_DOUBT: Final = 0.2  # doubt up to which the facts alone answer
SCORE_RANGE: Final = 0.475  # part of the range of scores, from the best down, that is worth a line
FACT_SCORE_RANGE: Final = 0.4  # ... where the facts alone answer
SUBSTITUTE_SHARE: Final = 0.8  # a fact's own score, as a share of the entry's that it stands for
MIN_HITS: Final = 20  # hits below which the lowest score says nothing about what is far off
_LOOKED_AT: Final = 60  # hits from which lines are chosen

# What the doubts count.  The two shares come to 1 where the facts say nothing of the question.
_UNSAID: Final = 0.5
_UNCARRIED: Final = 0.5
_NO_FACT: Final = 0.3  # no fact rests on the best line
_KIND: Final = 0.3
_DISAGREE: Final = 0.3
_UNTRUSTED: Final = 0.5

_KINDS: Final[Mapping[str, regex.Pattern[str]]] = {
    "a number is asked for": regex.compile(
        r"\bhow (many|much|often|frequently)\b|\bnumber of\b|\bin total\b|\bhow old\b"
    ),
    "a list is asked for": regex.compile(
        r"\b(list|name all|all (of )?(the|my|our|his|her|their)|every|each|both|other than)\b"
        r"|\b(what|which|who) (all )?(are|were)\b|\bwhat (kinds?|types?|sorts?) of\b"
        r"|\b(what|which)( \w+){0,2} (?!(is|was|does|has|his|this)\b)\w*[^\Ws]s( \w+){0,2}"
        r" (has|have|had|did|does|do|are|were|can|will)\b"
    ),
    "the exact words are asked for": regex.compile(
        r"\b(exact(ly)?|verbatim|word for word|precise(ly)?|quote[ds]?|literally)\b|[\"\u201c]"
    ),
    "a reason is asked for": regex.compile(r"\b(why|reasons?|because|cause[ds]?|how come)\b"),
    "a guess is asked for": regex.compile(r"\b(would|might|could|likely|probably|perhaps)\b"),
    "an order is asked for": regex.compile(r"\b(order|sequence|chronological(ly)?|summar\w+)\b"),
}
# Kinds whose answer may lie in places that the question's own words do not lead to.
SEVERAL_ANSWERS: Final = frozenset({"a number is asked for", "a list is asked for"})
_WHEN: Final = regex.compile(r"\b(when|what (date|day|year|month|time)|how long|since)\b")
_DATED: Final = regex.compile(rf"\d|\b({'|'.join(lexicon('english').month_names)})\b")


@dataclass(frozen=True, slots=True)
class RoutingInput:
    """What a router sees: the question and what was found for it, best first.

    ``terms`` has what each word of the question counts (its idf), ``values`` what facts of
    single-valued relations state; ``tokenize`` is the tokenizer that made the terms.
    """

    query: str
    hits: Sequence[Hit]
    terms: Mapping[str, float]
    tokenize: Callable[[str], Sequence[str]]
    values: Mapping[str, StatedValue]
    english: bool = True


@dataclass(frozen=True, slots=True)
class RoutedHits:
    """What a routed recall offers to the block, and why the other hits are not among it."""

    hits: tuple[Hit, ...]
    left_out: Mapping[str, str]


def filter_depth(depth: Depth, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that a depth has: the facts, the entries, or all of them."""
    if depth in ("mixed", "auto"):
        return list(hits)
    return [hit for hit in hits if isinstance(hit.item, Fact) == (depth == "facts")]


def route_hits(found: RoutingInput) -> tuple[Route, RoutedHits]:
    """Return the decision, and the lines that go with it; what cannot be decided is escalated."""
    try:
        lines = select_from_log(found)
        route = decide_route(found, lines)
        return route, select_facts(found) if route.action == "S" else lines
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"the router failed: {type(error).__name__}"
        return Route(action="R", doubt=1.0, why=(why,)), RoutedHits(tuple(found.hits), {})


def decide_route(found: RoutingInput, lines: RoutedHits | None = None) -> Route:
    """Return whether the facts among the hits answer, or the raw log has to be asked.

    Args:
        lines: those that the log would give, if they are known.
    """
    facts = [hit for hit in found.hits if isinstance(hit.item, Fact)]
    if not facts:
        return Route(action="R", doubt=1.0, why=("no fact was found",))
    shown = (lines or select_from_log(found)).hits
    from_facts = select_facts(found).hits or tuple(facts[:1])
    said = covered_share(found, from_facts[0])
    carried = sum(isinstance(hit.item, Fact) for hit in shown) / max(1, len(shown))
    doubts = {
        f"the best fact says {said:.0%} of the question": _UNSAID * (1 - said),
        f"facts carry {carried:.0%} of what was found": _UNCARRIED * (1 - carried),
    }
    best = next((hit for hit in found.hits if isinstance(hit.item, Entry)), None)
    if best is not None and not any(_rests_on(fact, best) for fact in facts):
        doubts["no fact rests on the best entry"] = _NO_FACT
    doubts |= dict.fromkeys(question_kinds(found, from_facts[0]), _KIND)
    doubts |= _distrust(found, from_facts)
    doubt = round(sum(doubts.values()), 9)
    action: Action = "S" if doubt <= MAX_DOUBT else "R"
    why = sorted((name for name, count in doubts.items() if count > 0), key=lambda n: -doubts[n])
    return Route(action=action, doubt=doubt, why=tuple(why))


def question_kinds(found: RoutingInput, best: Hit) -> list[str]:
    """Return what a question asks for that facts may not give in full."""
    if not found.english:
        return ["the question's kind is told in English only"]
    query = found.query.casefold()
    asked = [name for name, pattern in _KINDS.items() if pattern.search(query)]
    dated = isinstance(best.item, Fact) and (
        best.item.valid_from is not None or _DATED.search(best.text.casefold())
    )
    if _WHEN.search(query) and not dated:
        asked.append("a time is asked for, and the best fact has none")
    return asked[:1]  # one doubt, however many words give it away


def covered_share(found: RoutingInput, *hits: Hit) -> float:
    """Return the share of the question's words, by what each counts, that these hits say."""
    total = sum(found.terms.values())
    if not total:
        return 0.0
    said: set[str] = set()
    for hit in hits:
        said.update(found.tokenize(f"{_who(hit)} {hit.text}"))
    return sum(found.terms[word] for word in sorted(said.intersection(found.terms))) / total


def uncovered_terms(found: RoutingInput, hits: Sequence[Hit]) -> list[str]:
    """Return the question's words that none of these hits says, the rarest first."""
    said: set[str] = set()
    for hit in hits:
        said.update(found.tokenize(f"{_who(hit)} {hit.text}"))
    left = {word: count for word, count in found.terms.items() if count > 0 and word not in said}
    return sorted(left, key=lambda word: (-left[word], word))


def bringing_new_sources(shown: Sequence[Hit], hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that stand for something which no line shown stands for."""
    brought = {entry for hit in shown for entry in _brings(hit)}
    return [hit for hit in hits if not _brings(hit) <= brought]


def _distrust(found: RoutingInput, facts: Sequence[Hit]) -> dict[str, float]:
    """Return why facts that are about to be shown may be wrong."""
    doubts: dict[str, float] = {}
    stated = [found.values[hit.id] for hit in facts if hit.id in found.values]
    if any(one.contradicts(other) for one in stated for other in stated):
        doubts["facts disagree"] = _DISAGREE
    first = facts[0].item
    if isinstance(first, Fact):
        if first.valid_to is not None:
            doubts["the best fact no longer holds"] = _DISAGREE
        if first.origin in ("tool", "external"):
            doubts["the best fact rests on foreign text"] = _UNTRUSTED
    if facts[0].weight < 0:
        doubts["the best fact was blamed before"] = _DISAGREE
    return doubts


def select_facts(found: RoutingInput) -> RoutedHits:
    """Return the facts that are worth a line, each with something new."""
    facts = [hit for hit in found.hits if isinstance(hit.item, Fact)]
    left_out = {hit.id: "entry" for hit in found.hits if isinstance(hit.item, Entry)}
    return _chosen(facts, found.hits, FACT_SCORE_RANGE, left_out)


def select_from_log(found: RoutingInput) -> RoutedHits:
    """Return the entries and facts that are worth a line, in their order.

    A fact takes the place of the entry it rests on where it is the shorter and ranks as well.
    """
    shorter: dict[str, list[Hit]] = {}
    for hit in found.hits[:_LOOKED_AT]:
        if isinstance(hit.item, Fact) and not hit.item.shelf:
            for source in hit.sources:
                shorter.setdefault(source.entry, []).append(hit)
    placed: list[Hit] = []
    for hit in found.hits:
        instead = [
            fact
            for fact in shorter.get(hit.id, ())
            if fact.score >= SUBSTITUTE_SHARE * hit.score and len(fact.text) < len(hit.text)
        ]
        if instead:
            # Its own line comes later, and finds that nothing in it is new.
            placed.append(replace(instead[0], score=hit.score))
        placed.append(hit)
    return _chosen(placed, found.hits, SCORE_RANGE, {})


def _chosen(
    placed: Sequence[Hit], hits: Sequence[Hit], part: float, left_out: dict[str, str]
) -> RoutedHits:
    floor = _floor([hit.score for hit in hits], part)
    brought: set[str] = set()
    chosen: dict[str, Hit] = {}
    for place, hit in enumerate(placed):
        if hit.id in chosen:
            continue
        sources = _brings(hit)
        if sources <= brought:
            left_out[hit.id] = "said"
        elif chosen and (hit.score < floor or place >= 2 * _LOOKED_AT):
            left_out[hit.id] = "far"
        else:
            chosen[hit.id] = hit
            brought |= sources
            left_out.pop(hit.id, None)
    return RoutedHits(tuple(chosen.values()), left_out)


def _floor(scores: Sequence[float], part: float) -> float:
    """Return the score below which a hit is nearer to the last one than to the best."""
    if len(scores) < MIN_HITS:
        return float("-inf")
    best, last = max(scores), min(scores)
    return best - part * (best - last)


def _brings(hit: Hit) -> set[str]:
    """Return the entries that a line stands for; a summary of many stands for itself."""
    if isinstance(hit.item, Fact) and hit.item.shelf:
        return {hit.id}
    return {source.entry for source in hit.sources} or {hit.id}


def _who(hit: Hit) -> str:
    return hit.item.subject if isinstance(hit.item, Fact) else hit.item.speaker or ""


def _rests_on(fact: Hit, entry: Hit) -> bool:
    return any(source.entry == entry.id for source in fact.sources)
