"""The floor: whether what was found is worth showing at all, and which of its lines are.  Pure.

Two calibrated probabilities are compared with the level that `retrieval.floor` chooses: that the
best hits hold what the query needs (of the block as a whole), and that one hit is part of it (of
each line).  Both are logistic in the evidence (`evidence`).  Their coefficients and the levels lie
in ``floor.json``, fitted by ``scripts/fit_floor.py`` over several public data sets at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Final

from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Evidence, FloorLevel, Hit
from memtier_plugin.retrieval.evidence import QueryEvidence
from memtier_plugin.retrieval.model_weights import model_title

_SHIPPED_TITLE: Final = "memtier-minilm"  # of the shipped embedder, whose model is "vectors"
CONSIDERED: Final = 16  # of the best hits, by which a block is judged
NEAREST_NOTE: Final = "merely nearest"  # of a hit below the floor, in a search
_FIRST: Final = 3  # of the considered, the very best
_SEVERAL: Final = 5  # of the nearest, whose mean is taken
_COVERED: Final = 0.8  # of a query's words, in a line of the first: what is meant is no riddle
_OWN_SHARE: Final = 0.6  # of a level, from which what an asker said of themselves is shown
_MAX_MATCHED: Final = 3.0  # of the matched idf over ln N, beyond which more says nothing

BLOCK_FEATURES: Final[Mapping[str, Callable[[QueryEvidence, Sequence[Evidence]], float]]] = {
    "one": lambda query, lines: 1.0,
    "coverage": lambda query, lines: max(line.coverage for line in lines),
    "own_coverage": lambda query, lines: max(line.own_coverage for line in lines),
    "first_coverage": lambda query, lines: max(line.coverage for line in lines[:_FIRST]),
    "cosine": lambda query, lines: max(line.cosine for line in lines),
    "first_cosine": lambda query, lines: max(line.cosine for line in lines[:_FIRST]),
    "mean_cosine": lambda query, lines: fmean(
        sorted((line.cosine for line in lines), reverse=True)[:_SEVERAL]
    ),
    "matched": lambda query, lines: min(
        _MAX_MATCHED, max(line.matched for line in lines) / math.log(2 + query.items)
    ),
    "items": lambda query, lines: math.log10(1 + query.items),
    "known": lambda query, lines: query.known,
    "imperative": lambda query, lines: query.kinds.task / (1 + query.asks),
    "general": lambda query, lines: query.kinds.general,
    "follow_up": lambda query, lines: query.kinds.follow_up,
    "pasted": lambda query, lines: query.kinds.log,
}
LINE_FEATURES: Final[Mapping[str, Callable[[Evidence, int], float]]] = {
    "one": lambda line, rank: 1.0,
    "coverage": lambda line, rank: line.coverage,
    "own_coverage": lambda line, rank: line.own_coverage,
    "cosine": lambda line, rank: line.cosine,
    "rank": lambda line, rank: rank / CONSIDERED,
    "time": lambda line, rank: line.time,
    "speaker": lambda line, rank: float(line.speaker),
}


@dataclass(frozen=True, slots=True)
class FloorModel:
    """Coefficients by feature, and the levels of the floor.

    A level has the least probability of a ``block``, and that of a ``line`` as a share of the best
    line's: a block shrinks to the lines that stand out where some do.
    """

    block: Mapping[str, float]
    line: Mapping[str, float]
    levels: Mapping[str, Mapping[str, float]]

    def block_probability(self, query: QueryEvidence, lines: Sequence[Evidence]) -> float:
        """Return how likely these lines hold what the query needs; 0 without any."""
        if not lines:
            return 0.0
        return _logistic(
            weight * BLOCK_FEATURES[name](query, lines) for name, weight in self.block.items()
        )

    def line_probability(self, line: Evidence, rank: int) -> float:
        """Return how likely one line, the ``rank``-th from 0, is part of what the query needs."""
        return _logistic(
            [weight * LINE_FEATURES[name](line, rank) for name, weight in self.line.items()]
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """The hits above the floor, and why the others are not.

    Attributes:
        probability: that the best hits hold what the query needs; None where nothing was judged.
        left_out: by id, why a hit gets no line.
        silent: why no hit gets one although there are some; "" otherwise.
        added: hits that were not among those judged.
    """

    hits: tuple[Hit, ...]
    probability: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    silent: str = ""
    added: tuple[Hit, ...] = ()

    def led_by(self, first: Sequence[Hit]) -> Judged:
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
    *,
    bar: float = 0.0,
    asker: str = "",
) -> Judged:
    """Return the hits that are worth showing.

    Args:
        bar: how likely the block must be at least, whatever the level.
        asker: the sender, if the prompt is about themselves, else "".  What they said about
            themselves answers it even in other words: "What's my job?".

    A hit without evidence (a plugin's, or one that the index has not read yet) is not judged, and
    shown; so is a summary or a timeline that the query asks for.
    """
    judged = [h.evidence for h in hits[:CONSIDERED] if h.evidence is not None and not _is_asked(h)]
    if level == "off" or not judged:
        return Judged(tuple(hits))
    model = _floor_model(query.model)
    least = {**model.levels[level]}
    least["block"] = max(bar, least["block"])
    if asker and any(_is_own(hit, asker) for hit in hits[:_FIRST]):
        least["block"] = max(bar, _OWN_SHARE * least["block"])
    probability = model.block_probability(query, judged)
    if probability < least["block"]:
        shown = tuple(hit for hit in hits if hit.evidence is None or _is_asked(hit))
        silent = "" if shown else f"nothing found fits: {probability:.2f} < {least['block']:.2f}"
        return Judged(shown, probability, dict.fromkeys((hit.id for hit in hits), "floor"), silent)
    covering = [line.cosine for line in judged[:_FIRST] if line.own_coverage >= _COVERED]
    weak = {hit.id: "weak" for hit in hits if covering and _is_elsewhere(hit, max(covering))}
    of_lines = [_probability(model, hit, rank) for rank, hit in enumerate(hits)]
    lines = [(hit, line) for hit, line in zip(hits, of_lines, strict=True) if hit.id not in weak]
    bar = least["line"] * max(line or 0.0 for _, line in lines)
    weak |= {hit.id: "weak" for hit, line in lines if line is not None and line < bar}
    shown = tuple(
        hit if line is None else hit.with_probability(line)
        for hit, line in lines
        if hit.id not in weak
    )
    return Judged(shown, probability, weak)


def block_probability(query: QueryEvidence, lines: Sequence[Evidence]) -> float:
    """Return how likely lines, best first, hold what a query needs."""
    return _floor_model(query.model).block_probability(query, lines[:CONSIDERED])


def block_bar(level: FloorLevel, query: QueryEvidence) -> float:
    """Return how likely a block must hold what a query needs, at a level."""
    return _floor_model(query.model).levels[level]["block"]


def mark_nearest(judged: Judged, hits: Sequence[Hit]) -> Judged:
    """Return what a search shows: the hits above the floor, then the others with a note."""
    above = {hit.id for hit in judged.hits}
    nearest = (hit.with_note(NEAREST_NOTE) for hit in hits if hit.id not in above)
    return Judged((*judged.hits, *nearest), judged.probability)


def _is_own(hit: Hit, asker: str) -> bool:
    """Tell whether a hit is what its asker said of themselves, or a line that a fact rests on."""
    if isinstance(hit.item, Fact):
        return hit.item.personal and hit.item.person == asker
    return hit.item.promoted and hit.item.sender == asker


def _is_elsewhere(hit: Hit, nearest: float) -> bool:
    """Tell whether a hit has nothing of a query beside a line that has the query's words.

    Neither it nor its neighbours have a topic word or a time of the query, and it is no nearer to
    it in meaning than that line.  Of 162 such lines in nine data sets none was evidence.

    Args:
        nearest: the cosine of the line with the words.
    """
    line = hit.evidence
    return line is not None and not (line.coverage or line.time) and line.cosine <= nearest


def _is_asked(hit: Hit) -> bool:
    """Tell whether a hit is a summary or a timeline, which only a query that asks for one finds."""
    return isinstance(hit.item, Fact) and bool(hit.item.shelf)


def _probability(model: FloorModel, hit: Hit, rank: int) -> float | None:
    """Return how likely a hit is part of what the query needs; None for one not judged."""
    if hit.evidence is None or _is_asked(hit):
        return None
    return model.line_probability(hit.evidence, rank)


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


def _logistic(terms: Iterable[float]) -> float:
    return 1.0 / (1.0 + math.exp(-math.fsum(terms)))
