"""Measure what speaks for a candidate in absolute terms, beside the scaled signals.  Pure.

A signal (`signals`) is scaled so that the best candidate of a query has 1: it orders candidates,
but the best of nothing looks like the best.  Evidence is not scaled.  It says how much of the query
a line covers and how near it is in meaning, so that it compares across queries and stores, and
`floor` can tell whether any line is worth showing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from memtier_plugin.core.results import Evidence
from memtier_plugin.retrieval.prompt_kind import NO_KINDS, PromptKinds
from memtier_plugin.retrieval.query import questions_among
from memtier_plugin.retrieval.signals import Pool, asked_time
from memtier_plugin.retrieval.time_questions import asks_own_past
from memtier_plugin.storage.index.bm25 import idf
from memtier_plugin.text.dates.spans import TimeSpan

_NO_TERMS: Final[Set[str]] = frozenset()
_NUMBER: Final = 4  # digits, from which a number is a name (a year, a ticket) and no amount
_WHOLE: Final = 5.0  # of the rarest words: a line with so many covers a query of any length


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryEvidence:
    """What is known of a query as a whole.

    Attributes:
        items: how many entries and facts its viewer may see.
        known: the share of its words, by idf, that any of those items has.
        kinds: what kinds of prompt it is; none of a search.
        has_question: whether it asks a question among other things.
        model: the embedder whose vectors were compared, None where none were.
        by_time: whether it asks for what was said in a time, and for hardly anything else.
        about_asker: whether it is about its asker, and so are the best lines, in their own words.
    """

    items: int = 0
    known: float = 0.0
    kinds: PromptKinds = NO_KINDS
    has_question: bool = False
    model: str | None = None
    by_time: bool = False
    about_asker: bool = False


def gather_evidence(
    pool: Pool, rows: Sequence[int], model: str | None = None
) -> tuple[QueryEvidence, dict[int, Evidence]]:
    """Return the evidence of a query, and of each of these rows of its pool.

    Args:
        model: the embedder whose vectors the pool compares.
    """
    # An English model's vectors tell nothing of another language but that it is another.
    similarity = (pool.similarity if pool.query.language == "english" else None) or {}
    weights, known = _term_weights(pool)
    items = pool.match.documents + pool.fact_match.documents
    parts = _parts(pool, weights, math.log(2 + items))
    query = QueryEvidence(
        items=items,
        known=_coverage(parts, weights, known)[1],
        has_question=len(parts) > 1,
        model=model if similarity else None,
        by_time=pool.query.by_time,
    )
    index = {c.row: i for i, c in enumerate(pool.candidates)}
    index = {row: index[row] for row in rows}
    near = {row for at in index.values() for row in pool.adjacent[at]}
    terms = _own_terms(pool, weights, index, near)
    times = asked_time(pool) if pool.query.spans else [0.0] * len(pool.candidates)
    named: dict[str, bool] = {}
    evidence: dict[int, Evidence] = {}
    coverages: dict[Set[str], tuple[float, float]] = {}  # many lines have the same few words
    for row, position in index.items():
        speaker = pool.candidates[position].speaker or ""
        if speaker not in named:
            named[speaker] = bool(speaker) and pool.query.names(speaker)
        alone = together = terms.get(row, _NO_TERMS)
        for neighbour in pool.adjacent[position]:
            if neighbour in terms:
                together = together | terms[neighbour]
        for words in (alone, together):
            if words not in coverages:
                coverages[words] = _coverage(parts, weights, words)
        matched, share = coverages[together]
        evidence[row] = Evidence(
            coverage=share,
            own_coverage=coverages[alone][1],
            matched=matched,
            cosine=similarity.get(row, 0.0),
            time=times[position],
            speaker=named[speaker],
        )
    if query.by_time and weights and not asks_own_past(pool.query.text):
        # "When does my train leave on the 3rd?" asks of a day of which something was said before.
        worded = [line.time == 1 for line in evidence.values() if line.own_coverage]
        query = replace(query, by_time=any(worded) or not worded)
    return query, evidence


def _was_used(span: TimeSpan, pool: Pool) -> bool:
    """Return whether any candidate was said in a time."""
    start, end = span.start.timestamp(), span.end.timestamp()
    return any(start <= candidate.observed <= end for candidate in pool.candidates)


def _parts(pool: Pool, weights: Mapping[str, float], rarest: float) -> list[tuple[Set[str], float]]:
    """Return the parts of a query that a line may cover: all of it, and each question in it.

    A prompt may ask for one thing and want another: "Where is my bag? Write a haiku about rain."
    A part is its words and the weight that counts as full coverage, which is that of a rare word at
    least: "how strange" is not covered by a strange noise. Questions made of common words alone,
    such as "Can you help me?", are no parts.

    Args:
        rarest: the weight of a word that hardly any item has.
    """
    words = pool.query.tokenizer.words
    parts: list[tuple[Set[str], float]] = [(weights.keys(), math.fsum(weights.values()))]
    for text in questions_among(pool.query.text):
        terms = weights.keys() & {*words(text)}
        weight = math.fsum(weights[term] for term in terms if pool.query.terms[term] >= 1)
        if weight >= rarest / 2:
            parts.append((terms, math.fsum(weights[term] for term in terms)))
    return [(terms, max(rarest, min(weight, _WHOLE * rarest))) for terms, weight in parts]


def _coverage(
    parts: Sequence[tuple[Set[str], float]], weights: Mapping[str, float], terms: Set[str]
) -> tuple[float, float]:
    """Return the weight of these words, and the share of the part that they cover best.

    Args:
        parts: first the query as a whole, then its questions; see `_parts`.
        terms: some of the weighed words.
    """
    (_, covering), *questions = parts
    matched = math.fsum([weights[term] for term in terms])
    shares = [math.fsum([weights[t] for t in terms & part]) / full for part, full in questions]
    return matched, min(1.0, max([matched / covering, *shares]))


def _own_terms(
    pool: Pool, weights: Mapping[str, float], rows: Collection[int], near: Collection[int]
) -> dict[int, Set[str]]:
    """Return which of the weighed words each of these rows has, and of the turns near them."""
    terms: dict[int, Mapping[str, int]] = {**pool.terms, **pool.fact_match.terms_of(rows)}
    return {
        row: frozenset(weights.keys() & terms[row].keys())
        for row in dict.fromkeys((*rows, *near))
        if row in terms
    }


def _term_weights(pool: Pool) -> tuple[dict[str, float], set[str]]:
    """Return what each word of the query counts, by idf, and which words any item has.

    The names of speakers are left out: they say who, not what.  So are function words, amounts
    ("30 minutes" is said of anything), and words of a time in which a candidate was said:
    "yesterday" is in no line of that day.
    """
    speakers = {c.speaker for c in pool.candidates if c.speaker and c.tier == "episodic"}
    names = {word for name in speakers for word in pool.query.tokenizer.words(name)}
    items = max(1, pool.match.documents + pool.fact_match.documents)
    named = (span for span in pool.query.spans if not span.may_recur and _was_used(span, pool))
    times = {*pool.query.tokenizer.words(" ".join(span.words for span in named))}
    weights: dict[str, float] = {}
    known: set[str] = set()
    for term, count in pool.query.terms.items():
        if term in names or term not in pool.query.topic_terms or _is_amount(term):
            continue
        rarity = pool.match.idfs.get(term) or pool.fact_match.idfs.get(term)
        if rarity is not None:
            known.add(term)
        elif term in times:
            continue
        weights[term] = rarity if rarity is not None else count * idf(items, 0)
    return weights, known


def _is_amount(term: str) -> bool:
    return term.isdecimal() and len(term) < _NUMBER
