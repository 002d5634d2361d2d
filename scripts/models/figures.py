"""Figures of a model that orders lines and tells when none fits.  Needs NumPy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from scripts.models.rows import Group

Scores = NDArray[np.float64]
FALSE_SILENCE: Final = 0.03
CONSIDERED: Final = 10  # of the best lines by the recall, of which the likeliest counts for silence
SAMPLES: Final = 2_000
DEPTHS: Final = (1, 5, 10)
WEIGHTS: Final = (0.0, 0.1, 0.4, 1.6, 6.4, 12.8, 25.6, 51.2, math.inf)


def recalls(group: Group, scores: Sequence[float] | Scores) -> tuple[float, ...]:
    """Return recall at each of `DEPTHS`, by distinct units, of the lines in the order of scores."""
    seen: set[int] = set()
    gains: list[set[int]] = []
    for number in np.argsort(-np.asarray(scores), kind="stable"):
        units = [unit for unit in group.units[number] if unit not in seen]
        seen.update(units)
        gains += [set(group.gold[number])] * len(units)
    return tuple(len(set().union(*gains[:depth])) / group.count for depth in DEPTHS)


def blend(group: Group, logits: Scores, weight: float) -> Scores:
    """Return a recall's scores with so much of the model's; the model's alone for infinity."""
    if math.isinf(weight):
        return logits
    return np.array(group.scores[: len(logits)]) + weight * logits


def interval(values: Scores, seed: int = 42) -> list[float]:
    """Return the bootstrap interval (95 %) of a mean."""
    drawn = np.random.default_rng(seed).integers(0, len(values), (SAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(1), (0.025, 0.975))
    return [round(float(low), 4), round(float(high), 4)]


def silence(own: Scores, foreign: Scores) -> dict[str, Any]:
    """Return how many foreign prompts lie below the bar under which so few own ones lie."""
    bar = float(np.quantile(own, FALSE_SILENCE))
    silent = (foreign < bar).astype(float)
    above = own[:, None] > foreign[None]
    area = float(above.mean() + (own[:, None] == foreign[None]).mean() / 2)
    return {
        "foreign": round(float(silent.mean()), 4),
        "interval": interval(silent),
        "auc": round(area, 4),
    }


def log_odds(group: Group) -> float:
    """Return those of the floor of today that a group's lines hold what is needed."""
    likely = group.probability
    likely = float(group.injected > 0) if likely is None else likely
    return math.log((likely + 1e-4) / (1 - likely + 1e-4))


def evidence(group: Group, logits: Scores) -> list[float]:
    """Return what speaks for a block: the floor's log-odds, and the model's best logit."""
    return [log_odds(group), float(logits[:CONSIDERED].max(initial=-20.0))]


def fit_logistic(parts: Sequence[tuple[Scores, Scores]]) -> Scores:
    """Return weights that tell own evidence from foreign; each part and side weighs the same.

    Args:
        parts: own and foreign rows, shapes (n, features).
    """
    rows = np.concatenate([side for part in parts for side in part])
    target = np.concatenate([np.full(len(s), 1.0 - k) for p in parts for k, s in enumerate(p)])
    share = np.concatenate([np.full(len(s), 1 / len(s)) for p in parts for s in p])
    share /= share.sum()
    rows = np.hstack([np.ones((len(rows), 1)), rows])
    weights, ridge = np.zeros(rows.shape[1]), np.diag([0.0] + [1e-3] * (rows.shape[1] - 1))
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (share * (p - target)) + ridge @ weights
        curve = (rows.T * (share * p * (1 - p))) @ rows + ridge + 1e-9 * np.eye(len(weights))
        weights -= np.linalg.solve(curve, slope)
    return weights


class Judged:
    """The prompts of a set with the logits of a model for their lines."""

    def __init__(self, groups: Sequence[Group], logits: Sequence[Scores]) -> None:
        both = [*zip(groups, logits, strict=True)]
        self.own = [item for item in both if item[0].kind == "own"]
        foreign = [item for item in both if item[0].kind == "foreign"]
        self.own_evidence = np.array([evidence(*item) for item in self.own])
        self.foreign_evidence = np.array([evidence(*item) for item in foreign]).reshape(-1, 2)
        self.default = self.recalls(0.0)

    def recalls(self, weight: float) -> Scores:
        """Return recall at each depth of each own prompt, shape (prompts, depths)."""
        return np.array(
            [recalls(group, blend(group, logits, weight)) for group, logits in self.own]
        )


def judge(sets: Mapping[str, Judged]) -> dict[str, Any]:
    """Return figures of each set; what a choice needs comes from sets of other families."""
    report: dict[str, Any] = {}
    changes = []
    for name, judged in sets.items():
        others = [part for other, part in sets.items() if family(other) != family(name)]
        weight = max(WEIGHTS, key=lambda w: np.mean([p.recalls(w).mean() for p in others]))
        alone, blended = (judged.recalls(w) - judged.default for w in (math.inf, weight))
        changes.append(blended)
        report[name] = {
            "own": len(judged.own),
            "weight": weight,
            "default": _means(judged.default),
            "alone": _changes(alone),
            "blended": _changes(blended),
        }
        if len(judged.foreign_evidence):
            report[name] |= _silence(judged, [p for p in others if len(p.foreign_evidence)])
    mean, spread = zip(*[(c.mean(0), c.var(0) / len(c)) for c in changes], strict=True)
    half = 1.96 * np.sqrt(np.sum(spread, 0)) / len(changes)
    report["mean over sets"] = {
        depth: [round(float(x), 4) for x in (m, m - h, m + h)]
        for depth, m, h in zip(DEPTHS, np.mean(mean, 0), half, strict=True)
    }
    return report


def _means(values: Scores) -> list[float]:
    return [round(float(value), 4) for value in values.mean(0)]


def _changes(values: Scores) -> list[list[float]]:
    return [[round(float(column.mean()), 4), *interval(column)] for column in values.T]


def _silence(judged: Judged, others: Sequence[Judged]) -> dict[str, Any]:
    weights = fit_logistic([(part.own_evidence, part.foreign_evidence) for part in others])
    figures = {
        title: silence(judged.own_evidence @ w, judged.foreign_evidence @ w)
        for title, w in (
            ("floor", np.array([1.0, 0.0])),
            ("model", np.array([0.0, 1.0])),
            ("both", weights[1:]),
        )
    }
    bar = np.mean([np.quantile(p.own_evidence @ weights[1:], FALSE_SILENCE) for p in others])
    sides = (judged.own_evidence, judged.foreign_evidence)
    moved = [round(float((side @ weights[1:] < bar).mean()), 4) for side in sides]
    return {"foreign": len(judged.foreign_evidence), "silence": figures, "bar of others": moved}


def family(name: str) -> str:
    """Return what a set is a version of: its name without the language."""
    return name.partition("-")[0]
