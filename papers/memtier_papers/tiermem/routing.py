"""Route a question to the facts alone, or to the raw log, without a model.  Pure.

The router of TierMem (TierMem, section 2.2) as features: how much of the question the facts cover,
whether they cover what was found in the log, what kind of question it is, and whether the facts can
be trusted.  Each is a doubt, weighted by `retrieval.router`; if their sum exceeds its limit, or
anything fails, the raw log is used.

The lines of a routed recall are chosen here too.  A line must bring a new source, and be in the
upper part of the scores; a fact replaces the entry it rests on if it is the shorter of the two.
The constants are the same for all data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memtier_papers.tiermem.settings import RouterDoubts
from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Action, Hit, Route
from memtier_plugin.retrieval.duplicates import StatedValue
from memtier_plugin.retrieval.query import SEVERAL_ANSWERS
from memtier_plugin.text.lexicon import lexicon

SCORE_RANGE: Final = 0.475  # part of the range of scores, from the top down, that earns a line
FACT_SCORE_RANGE: Final = 0.4  # ... if the facts alone answer
SUBSTITUTE_SHARE: Final = 0.8  # a fact's own score, relative to that of the entry it replaces
MIN_HITS: Final = 20  # with fewer hits, the lowest score is not representative
_HAND_SET: Final = RouterDoubts()
_WINDOW: Final = 60  # hits from which lines are chosen

_KINDS: Final[Mapping[str, regex.Pattern[str]]] = {
    **SEVERAL_ANSWERS,
    "the exact words are asked for": regex.compile(
        r"\b(exact(ly)?|verbatim|word for word|precise(ly)?|quote[ds]?|literally)\b|[\"\u201c]"
    ),
    "a reason is asked for": regex.compile(r"\b(why|reasons?|because|cause[ds]?|how come)\b"),
    "a guess is asked for": regex.compile(r"\b(would|might|could|likely|probably|perhaps)\b"),
    "an order is asked for": regex.compile(r"\b(order|sequence|chronological(ly)?|summar\w+)\b"),
}
_WHEN: Final = regex.compile(r"\b(when|what (date|day|year|month|time)|how long|since)\b")
_DATED: Final = regex.compile(rf"\d|\b({'|'.join(lexicon('english').month_names)})\b")


@dataclass(frozen=True, slots=True)
class RoutingInput:
    """A question and the hits found for it, best first.

    Attributes:
        terms: the weight (idf) of each word of the question.
        tokenize: the tokenizer that made the terms.
        values: by id, the values of facts with single-valued relations.
        english: whether the question can be classified.
        doubts: the weight of each doubt.
    """

    query: str
    hits: Sequence[Hit]
    terms: Mapping[str, float]
    tokenize: Callable[[str], Sequence[str]]
    values: Mapping[str, StatedValue]
    english: bool = True
    doubts: RouterDoubts = _HAND_SET


@dataclass(frozen=True, slots=True)
class RoutedHits:
    """The hits that a routed recall offers to the block; by id, why the others are omitted."""

    hits: tuple[Hit, ...]
    left_out: Mapping[str, str]


def route_hits(question: RoutingInput) -> tuple[Route, RoutedHits]:
    """Return the decision and its lines; if deciding fails, the log is used."""
    try:
        lines = select_from_log(question)
        route = decide_route(question, lines)
        return route, select_facts(question) if route.action == "S" else lines
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"the router failed: {type(error).__name__}"
        return Route(action="R", doubt=1.0, why=(why,)), RoutedHits(tuple(question.hits), {})


def decide_route(question: RoutingInput, lines: RoutedHits | None = None) -> Route:
    """Decide whether the facts among the hits answer, or the raw log is needed.

    Args:
        lines: those that the log would give, if known.
    """
    facts = [hit for hit in question.hits if isinstance(hit.item, Fact)]
    if not facts:
        return Route(action="R", doubt=1.0, why=("no fact was found",))
    log_lines = (lines or select_from_log(question)).hits
    fact_lines = select_facts(question).hits or tuple(facts[:1])
    covered = covered_share(question, fact_lines[0])
    carried = sum(isinstance(hit.item, Fact) for hit in log_lines) / max(1, len(log_lines))
    amounts = {"unsaid": 1 - covered, "uncarried": 1 - carried}
    reasons = {
        "unsaid": f"the best fact says {covered:.0%} of the question",
        "uncarried": f"facts carry {carried:.0%} of what was found",
    }
    best = next((hit for hit in question.hits if isinstance(hit.item, Entry)), None)
    if best is not None and not any(_rests_on(fact, best) for fact in facts):
        reasons["no_fact"] = "no fact rests on the best entry"
    if kinds := question_kinds(question, fact_lines[0]):
        reasons["kind"] = kinds[0]
    reasons |= _distrust(question, fact_lines)
    amounts = {name: amounts.get(name, 1.0) for name in reasons}
    sizes = {name: getattr(question.doubts, name) * value for name, value in amounts.items()}
    doubt = round(sum(sizes.values()), 9)
    action: Action = "S" if doubt <= question.doubts.limit else "R"
    most = sorted((name for name, size in sizes.items() if size > 0), key=lambda n: -sizes[n])
    why = tuple(reasons[name] for name in most)
    return Route(action=action, doubt=doubt, why=why, amounts=amounts)


def question_kinds(question: RoutingInput, best: Hit) -> list[str]:
    """Return the kinds of answer that a question asks for and facts may lack."""
    if not question.english:
        return ["the question's kind is told in English only"]
    query = question.query.casefold()
    kinds = [name for name, pattern in _KINDS.items() if pattern.search(query)]
    dated = isinstance(best.item, Fact) and (
        best.item.valid_from is not None or _DATED.search(best.text.casefold())
    )
    if _WHEN.search(query) and not dated:
        kinds.append("a time is asked for, and the best fact has none")
    return kinds[:1]  # one doubt, however many words indicate it


def covered_share(question: RoutingInput, *hits: Hit) -> float:
    """Return the share of the question's words, by weight, that these hits cover."""
    total = sum(question.terms.values())
    if not total:
        return 0.0
    covered = sorted(_words_of(question, hits).intersection(question.terms))
    return sum(question.terms[word] for word in covered) / total


def uncovered_terms(question: RoutingInput, hits: Sequence[Hit]) -> list[str]:
    """Return the question's words that none of these hits covers, rarest first."""
    words, terms = _words_of(question, hits), question.terms
    uncovered = [word for word, weight in terms.items() if weight > 0 and word not in words]
    return sorted(uncovered, key=lambda word: (-terms[word], word))


def _words_of(question: RoutingInput, hits: Sequence[Hit]) -> set[str]:
    return {word for hit in hits for word in question.tokenize(f"{_who(hit)} {hit.text}")}


def bringing_new_sources(lines: Sequence[Hit], hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits with an entry that no line covers."""
    brought = {entry for line in lines for entry in _entries_of(line)}
    return [hit for hit in hits if not _entries_of(hit) <= brought]


def _distrust(question: RoutingInput, facts: Sequence[Hit]) -> dict[str, str]:
    """Return, by doubt, why the facts about to be shown may be wrong."""
    doubts: dict[str, str] = {}
    values = [question.values[hit.id] for hit in facts if hit.id in question.values]
    if any(value.contradicts(other) for value in values for other in values):
        doubts["disagree"] = "facts disagree"
    first = facts[0].item
    if isinstance(first, Fact):
        if first.valid_to is not None:
            doubts["ended"] = "the best fact no longer holds"
        if first.origin in ("tool", "external"):
            doubts["foreign"] = "the best fact rests on foreign text"
    if facts[0].weight < 0:
        doubts["blamed"] = "the best fact was blamed before"
    return doubts


def select_facts(question: RoutingInput) -> RoutedHits:
    """Return the facts that earn a line, each with something new."""
    facts = [hit for hit in question.hits if isinstance(hit.item, Fact)]
    left_out = {hit.id: "entry" for hit in question.hits if isinstance(hit.item, Entry)}
    return _select_lines(facts, question.hits, FACT_SCORE_RANGE, left_out)


def select_from_log(question: RoutingInput) -> RoutedHits:
    """Return the entries and facts that earn a line, in order.

    A fact replaces the entry it rests on if it is shorter and ranks as well.
    """
    by_entry: dict[str, list[Hit]] = {}
    for hit in question.hits[:_WINDOW]:
        if isinstance(hit.item, Fact) and not hit.item.shelf:
            for source in hit.sources:
                by_entry.setdefault(source.entry, []).append(hit)
    ordered: list[Hit] = []
    for hit in question.hits:
        shorter = (
            fact
            for fact in by_entry.get(hit.id, ())
            if fact.score >= SUBSTITUTE_SHARE * hit.score and len(fact.text) < len(hit.text)
        )
        if fact := next(shorter, None):
            # The entry's own line comes after it, and then brings nothing new.
            ordered.append(replace(fact, score=hit.score))
        ordered.append(hit)
    return _select_lines(ordered, question.hits, SCORE_RANGE, {})


def _select_lines(
    ordered: Sequence[Hit], hits: Sequence[Hit], score_range: float, left_out: dict[str, str]
) -> RoutedHits:
    floor = _score_floor([hit.score for hit in hits], score_range)
    brought: set[str] = set()
    lines: dict[str, Hit] = {}
    for index, hit in enumerate(ordered):
        if hit.id in lines:
            continue
        entries = _entries_of(hit)
        if entries <= brought:
            left_out[hit.id] = "said"
        elif lines and (hit.score < floor or index >= 2 * _WINDOW):
            left_out[hit.id] = "far"
        else:
            lines[hit.id] = hit
            brought |= entries
            left_out.pop(hit.id, None)
    return RoutedHits(tuple(lines.values()), left_out)


def _score_floor(scores: Sequence[float], score_range: float) -> float:
    """Return the score below which a hit is closer to the last one than to the best."""
    if len(scores) < MIN_HITS:
        return float("-inf")
    best, last = max(scores), min(scores)
    return best - score_range * (best - last)


def _entries_of(hit: Hit) -> set[str]:
    """Return the entries that a line represents; a summary of many represents itself."""
    if isinstance(hit.item, Fact) and hit.item.shelf:
        return {hit.id}
    return {source.entry for source in hit.sources} or {hit.id}


def _who(hit: Hit) -> str:
    return hit.item.subject if isinstance(hit.item, Fact) else hit.item.speaker or ""


def _rests_on(fact: Hit, entry: Hit) -> bool:
    return any(source.entry == entry.id for source in fact.sources)
