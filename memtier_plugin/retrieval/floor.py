"""The floor: absolute evidence for each hit, and whether any is worth showing.  Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Evidence, FloorLevel, Hit
from memtier_plugin.retrieval.prompt_kind import NO_KINDS, PromptKinds, asks_own_past
from memtier_plugin.retrieval.query import questions_among
from memtier_plugin.retrieval.signals import Pool, asked_time, model_title
from memtier_plugin.storage.index.postings import idf
from memtier_plugin.text.dates.spans import TimeSpan

# -- Measure what speaks for a candidate in absolute terms, beside the scaled signals.  Pure
#
# A signal (`signals`) is scaled so that the best candidate of a query has 1: it orders candidates,
# but the best of nothing looks like the best.  Evidence is not scaled.  It says how much of the
# query a line covers and how near it is in meaning, so that it compares across queries and stores,
# and `floor` can tell whether any line is worth showing.

_NO_TERMS: Final[Set[str]] = frozenset()
_NUMBER: Final = 4  # digits, from which a number is a name (a year, a ticket) and no amount
_WHOLE: Final = 5.0  # of the rarest words: a line with so many covers a query of any length


class QueryEvidence(Struct, frozen=True, kw_only=True):
    """Evidence about a query as a whole.

    Attributes:
        items: how many entries and facts its viewer may see.
        known: the share of its words, by idf, that any of those items has.
        kinds: what kinds of prompt it is; none of a search.
        has_question: whether it asks a question among other things.
        model: the embedder whose vectors were compared, None where none were.
        by_time: whether it asks for what was said in a time, and for hardly anything else.
        is_served: whether something among the hits worked for a request like it.
        about_asker: whether it is about its asker, and so are the best lines, in their own words.
    """

    items: int = 0
    known: float = 0.0
    kinds: PromptKinds = NO_KINDS
    has_question: bool = False
    model: str | None = None
    by_time: bool = False
    about_asker: bool = False
    is_served: bool = False


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
    items = pool.documents
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
    terms: dict[int, Mapping[str, int]] = {**pool.words.terms, **pool.words.facts.terms_of(rows)}
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
    items = max(1, pool.documents)
    named = (span for span in pool.query.spans if not span.may_recur and _was_used(span, pool))
    times = {*pool.query.tokenizer.words(" ".join(span.words for span in named))}
    weights: dict[str, float] = {}
    known: set[str] = set()
    for term, count in pool.query.terms.items():
        is_amount = term.isdecimal() and len(term) < _NUMBER
        if is_amount or term in names or term not in pool.query.topic_terms:
            continue
        rarity = pool.words.entries.idfs.get(term) or pool.words.facts.idfs.get(term)
        if rarity is not None:
            known.add(term)
        elif term in times:
            continue
        weights[term] = rarity if rarity is not None else count * idf(items, 0)
    return weights, known


# -- The floor: whether the hits are worth showing at all, and which of them.  Pure
#
# Two calibrated probabilities are compared with the level that `retrieval.floor` chooses: that the
# best hits hold what the query needs (of the block as a whole), and that one hit is part of it (of
# each line).  Both are logistic in the evidence (`evidence`).  Their coefficients and the levels
# lie in ``floor.json``, fitted by ``scripts/fit_floor.py`` over several public data sets at once.

_SHIPPED_TITLE: Final = "memtier-minilm"  # of the shipped embedder, whose model is "vectors"
CONSIDERED: Final = 16  # of the best hits, by which a block is judged
NEAREST_NOTE: Final = "merely nearest"  # of a hit below the floor, in a search
_FIRST: Final = 3  # of the considered, the very best
_SEVERAL: Final = 5  # of the nearest, whose mean is taken
_STATED: Final = 0.6  # least share of the best line's probability, for what is told and not asked
_SERVED: Final = 0.3  # of the bar for a block, where something worked for a like request
LONG: Final = 24  # words, above which a prompt tells or asks in passing: less covers it
_FEW: Final = 4  # items, up to about which a store is so small that any of them may be meant
_MAX_MATCHED: Final = 3.0  # of the matched idf over ln N, beyond which more says nothing


def block_features(query: QueryEvidence, lines: Sequence[Evidence]) -> dict[str, float]:
    """Return what tells whether lines, best first, hold what a query needs."""
    kinds, few = query.kinds, 1 / (1 + query.items / _FEW)  # far from anything to choose among
    coverages, cosines = [line.coverage for line in lines], [line.cosine for line in lines]
    matched = max(line.matched for line in lines) / math.log(2 + query.items)
    return {
        "one": 1.0,
        "coverage": max(coverages),
        "own_coverage": max(line.own_coverage for line in lines),
        "first_coverage": max(coverages[:_FIRST]),
        "cosine": max(cosines),
        "first_cosine": max(cosines[:_FIRST]),
        "mean_cosine": fmean(sorted(cosines, reverse=True)[:_SEVERAL]),
        "matched": min(_MAX_MATCHED, matched),
        # What is told of "today" is near everything said today.
        "time": (1 - kinds.states) * max(line.time for line in lines),
        "items": math.log10(1 + query.items),
        "known": query.known,
        "imperative": kinds.task / (1 + query.has_question),
        "general": kinds.general,
        "follow_up": kinds.follow_up,
        "pasted": kinds.log,
        "states": kinds.states,
        "own": float(query.about_asker),
        "few": few,
        "own_few": query.about_asker * few,
    }


def line_features(line: Evidence, rank: int, best: Evidence) -> dict[str, float]:
    """Return what tells whether one line, the ``rank``-th from 0, is part of what a query needs.

    Args:
        best: the most that any line has of each kind of evidence (`Evidence.best_of`).
    """
    return {
        "one": 1.0,
        "coverage": line.coverage,
        "own_coverage": line.own_coverage,
        "cosine": line.cosine,
        "rank": rank / CONSIDERED,
        "time": line.time,
        "less_coverage": best.coverage - line.coverage,
        "less_own_coverage": best.own_coverage - line.own_coverage,
        "less_cosine": best.cosine - line.cosine,
    }


class FloorModel(Struct, frozen=True):
    """Coefficients by feature, and the levels of the floor.

    A level has the least probability of a ``block``, where fitted another for a prompt of more than
    `LONG` words (``long``), and that of a ``line`` as a share of the best line's: a block shrinks
    to the lines that stand out where some do.
    """

    block: Mapping[str, float]
    line: Mapping[str, float]
    levels: Mapping[str, Mapping[str, float]]

    def bar(self, level: FloorLevel, query: QueryEvidence) -> float:
        """Return how likely a block must hold what a query needs, at a level."""
        least = self.levels[level]
        return least.get("long", least["block"]) if query.kinds.words > LONG else least["block"]

    def line_probability(self, line: Evidence, rank: int, best: Evidence) -> float:
        """Return how likely a line is part of what the query needs; see `line_features`."""
        return _logistic(self.line, line_features(line, rank, best))

    def block_probability(self, query: QueryEvidence, lines: Sequence[Evidence]) -> float:
        """Return how likely these lines hold what the query needs; 0 without any."""
        if not lines:
            return 0.0
        return _logistic(self.block, block_features(query, lines))


class Judged(Struct, frozen=True):
    """The hits above the floor, and why the others are not.

    Attributes:
        probability: that the best hits hold what the query needs; None where nothing was judged.
        left_out: by id, why a hit gets no line.
        silent: why no hit gets one although there are some; "" otherwise.
        added: hits that were not among those judged.
        bars: by id of a hit below the floor, how likely it is, and how likely it must be.
    """

    hits: tuple[Hit, ...]
    probability: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    silent: str = ""
    added: tuple[Hit, ...] = ()
    bars: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def preceded_by(self, first: Sequence[Hit]) -> Judged:
        """Return the same after these hits, which are shown whatever the floor says."""
        if not first:
            return self
        ids = {hit.id for hit in first}
        rest = tuple(hit for hit in self.hits if hit.id not in ids)
        left_out = {key: why for key, why in self.left_out.items() if key not in ids}
        return replace(
            self, hits=(*first, *rest), left_out=left_out, silent="", added=(*self.added, *first)
        )


def refuse_all(hits: Sequence[Hit], reason: str, why: str) -> Judged:
    """Return no hit, for a reason and in words."""
    return Judged((), None, dict.fromkeys((hit.id for hit in hits), reason), why)


def apply_floor(
    level: FloorLevel,
    query: QueryEvidence,
    hits: Sequence[Hit],
    bar: float = 0.0,
    in_sight: Sequence[Hit] = (),
    leaning: float = 0.0,
) -> Judged:
    """Return the hits that are worth showing.

    Args:
        bar: how likely the block must be at least, whatever the level.
        in_sight: what was found and stands in the conversation already: other lines are worth
            showing only beside it.
        leaning: how much the prompt means what stands in the conversation: it needs less of others.

    A hit without evidence (a plugin's) is not judged, and shown; so is a summary or a timeline that
    the query asks for.
    """
    known = [_judged_evidence(hit) for hit in hits]
    judged = [line for line in known[:CONSIDERED] if line is not None]
    if level == "off" or not judged:
        return Judged(tuple(hits))
    if query.by_time:  # the time is what it asks by, and all of these were said then
        worded = tuple(hit for hit in hits if hit.evidence and hit.evidence.own_coverage)
        left_out = {hit.id: "weak" for hit in hits if worded and hit not in worded}
        return Judged(worded or tuple(hits), None, left_out)
    model = _floor_model(query.model)
    probability = (1 - leaning) * model.block_probability(query, judged)
    # What worked for some other request lowers nothing: in time that is most of a store.
    bar = max(bar, model.bar(level, query)) * (_SERVED if query.is_served else 1.0)
    if probability < bar:
        shown = tuple(hit for hit, line in zip(hits, known, strict=True) if line is None)
        silent = "" if shown else f"nothing found fits: {probability:.2f} < {bar:.2f}"
        ids = [hit.id for hit in hits]
        bars = dict.fromkeys(ids, (probability, bar))
        return Judged(shown, probability, dict.fromkeys(ids, "floor"), silent, bars=bars)
    best = Evidence.best_of([*judged, *(hit.evidence for hit in in_sight if hit.evidence)])
    ranks = [n + sum(seen.score > hit.score for seen in in_sight) for n, hit in enumerate(hits)]
    lines = [
        None if line is None else model.line_probability(line, rank, best)
        for line, rank in zip(known, ranks, strict=True)
    ]
    sighted = enumerate(map(_judged_evidence, in_sight))
    seen = [model.line_probability(line, rank, best) for rank, line in sighted if line is not None]
    # What is only told gets at most what it is about, not all that was said that day.
    share = max(model.levels[level]["line"], _STATED * query.kinds.states)
    bar = share * max(line or 0.0 for line in (*seen, *lines))
    kept, weak = list[Hit](), dict[str, tuple[float, float]]()
    for hit, line in zip(hits, lines, strict=True):
        if line is None:
            kept.append(hit)
        elif line < bar:
            weak[hit.id] = line, bar
        else:
            kept.append(hit.with_probability(line))
    silent = "" if kept else "what fits stands in sight"
    return Judged(tuple(kept), probability, dict.fromkeys(weak, "weak"), silent, bars=weak)


def block_probability(query: QueryEvidence, lines: Sequence[Evidence]) -> float:
    """Return how likely lines, best first, hold what a query needs."""
    return _floor_model(query.model).block_probability(query, lines[:CONSIDERED])


def block_bar(level: FloorLevel, query: QueryEvidence) -> float:
    """Return how likely a block must hold what a query needs, at a level."""
    return _floor_model(query.model).bar(level, query)


def mark_nearest(judged: Judged, hits: Sequence[Hit]) -> Judged:
    """Return what a search shows: the hits above the floor, then the others with a note."""
    above = {hit.id for hit in judged.hits}
    nearest = (hit.with_note(NEAREST_NOTE) for hit in hits if hit.id not in above)
    return Judged((*judged.hits, *nearest), judged.probability)


def _judged_evidence(hit: Hit) -> Evidence | None:
    """Return the evidence for judging a hit.

    A summary or a timeline is not: only a query that asks for one finds it.
    """
    return None if isinstance(hit.item, Fact) and hit.item.shelf else hit.evidence


def _floor_model(embedder: str | None) -> FloorModel:
    """Return the model fitted with an embedder's cosines.

    Those of another embedder are spread in another way: without a fit of its own it goes by words.
    """
    models = _models()
    title = model_title(embedder) if embedder else ""
    return models.get("vectors" if title == _SHIPPED_TITLE else title, models["words"])


@cache
def _models() -> Mapping[str, FloorModel]:
    """Return the fitted models: by words alone, with the shipped embedder, and others by title."""
    document = json.loads(Path(__file__).with_name("floor.json").read_bytes())
    return {name: FloorModel(**model) for name, model in document["models"].items()}


def _logistic(weights: Mapping[str, float], features: Mapping[str, float]) -> float:
    logit = math.fsum([weight * features[name] for name, weight in weights.items()])
    return 1.0 / (1.0 + math.exp(-logit))
