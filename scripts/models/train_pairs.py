"""Train the head of a pair model on encoded rows, and judge it on others.

    python scripts/models/train_pairs.py FOLDER OUT --train public realmem ... --judge locomo ...

A group is a query and lines: those that answer it shall come first (softmax over the group), and
no line of a group without an answer, nor a wrong one, shall look like an answer (a logit each).  A
tenth of the groups is kept aside.  The weight of the model's score beside MemTier's own is chosen
on the sets trained on.  A family that is trained on is never judged, and what is licensed for
measuring only is never trained on.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pair_model import PairHead, pad
from torch import Tensor
from torch.nn import functional

WEIGHED: Final = 80  # questions of each set, for the weight
MEASURED_ONLY: Final = frozenset({"locomo"})  # CC BY-NC
TRAINED_TOKENS: Final = 40  # of a line
DRAWN: Final = 6  # wrong lines of a group, of its first `FROM`
FROM: Final = 20
RIGHT: Final = 2
CONSIDERED: Final = 10  # lines that a silence is judged by
FALSE_SILENCE: Final = 0.03
SAMPLES: Final = 2_000
WEIGHTS: Final = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, math.inf)


Group = dict[str, Any]


class Rows(NamedTuple):
    """A file of `encode_rows.py`."""

    groups: list[Group]
    states: list[Tensor]


def load_rows(path: Path) -> Rows:
    """Return the groups of a file and the token vectors of their texts."""
    document = torch.load(path, weights_only=True)
    return Rows(document["groups"], document["states"])


class Example(NamedTuple):
    """A group to train on: token vectors, and which lines are right."""

    query: Tensor
    lines: list[Tensor]
    right: list[bool]


def draw_example(group: Group, states: Sequence[Tensor], chance: random.Random) -> Example:
    """Return a group with some of its lines."""
    right = [n for n, gold in enumerate(group["gold"]) if gold]
    wrong = [n for n, gold in enumerate(group["gold"]) if not gold]
    wrong = wrong[: CONSIDERED if not right else FROM]
    right = chance.sample(right, min(RIGHT, len(right)))
    wrong = chance.sample(wrong, min(DRAWN, len(wrong)))
    lines = [states[group["lines"][number]][:TRAINED_TOKENS] for number in (*right, *wrong)]
    return Example(states[group["query"]], lines, [True] * len(right) + [False] * len(wrong))


def score_batch(head: PairHead, batch: Sequence[Example]) -> Tensor:
    """Return the logits of all lines of a batch: (lines)."""
    first, kept = pad([example.query for example in batch])
    second, seen = pad([line for example in batch for line in example.lines])
    owners = torch.tensor([n for n, example in enumerate(batch) for _ in example.lines])
    logits: Tensor = head(first[owners].float(), kept[owners], second.float(), seen)
    return logits[:, 0]


def batch_loss(logits: Tensor, batch: Sequence[Example]) -> Tensor:
    """Return the loss: the order within groups, and each line by itself."""
    losses, start = [], 0
    for example in batch:
        scores = logits[start : start + len(example.lines)]
        right = torch.tensor(example.right)
        start += len(example.lines)
        each = functional.binary_cross_entropy_with_logits(scores, right.float(), reduction="none")
        loss = each[~right].mean()
        if right.any():
            order = scores.logsumexp(0) - scores[right].logsumexp(0)
            loss = loss + each[right].mean() + order
        losses.append(loss)
    return torch.stack(losses).mean()


def train(
    head: PairHead, data: Sequence[tuple[Group, Sequence[Tensor]]], options: Any, dev: Any
) -> Iterator[dict[str, Any]]:
    """Train on groups; yield figures at each quarter."""
    chance = random.Random(options.seed)
    optimiser = torch.optim.AdamW(head.parameters(), options.rate, weight_decay=0.01)
    per_epoch = -(-len(data) // options.batch)
    steps = per_epoch * options.epochs
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm, 1 - 0.95 * step / steps)
    )
    quarters = {round(steps * part / 4) for part in (1, 2, 3, 4)}
    step, losses = 0, []
    for _ in range(options.epochs):
        order = chance.sample(range(len(data)), len(data))
        for start in range(0, len(order), options.batch):
            chosen = [data[number] for number in order[start : start + options.batch]]
            batch = [draw_example(group, states, chance) for group, states in chosen]
            batch = [example for example in batch if example.lines and not all(example.right)]
            head.train()
            loss = batch_loss(score_batch(head, batch), batch)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
            step += 1
            if step in quarters:
                yield {"step": step, "loss": round(float(np.mean(losses)), 4), **dev(head)}
                losses = []


@torch.inference_mode()
def judge_dev(head: PairHead, data: Sequence[tuple[Group, Sequence[Tensor]]]) -> dict[str, float]:
    """Return how often a right line is first, and how well the best tells answers from none."""
    head.eval()
    first, best = [], {True: [], False: []}
    chance = random.Random(1)
    for start in range(0, len(data), 64):
        batch = [draw_example(*item, chance) for item in data[start : start + 64]]
        batch = [example for example in batch if example.lines and not all(example.right)]
        logits, at = score_batch(head, batch), 0
        for example in batch:
            scores = logits[at : at + len(example.lines)]
            at += len(example.lines)
            if any(example.right):
                first.append(float(example.right[int(scores.argmax())]))
            best[any(example.right)].append(float(scores.max()))
    pairs = [float(a > b) for a in best[True] for b in best[False]]
    return {"first": round(float(np.mean(first)), 4), "auc": round(float(np.mean(pairs or 0)), 4)}


@torch.inference_mode()
def score_groups(head: PairHead, rows: Rows) -> list[NDArray[np.float64]]:
    """Return the logits of each group's lines."""
    head.eval()
    result = []
    for group in rows.groups:
        lines = [rows.states[number] for number in group["lines"]]
        example = Example(rows.states[group["query"]], lines, [])
        result.append(score_batch(head, [example]).double().numpy() if lines else np.zeros(0))
    return result


def recalls(group: Group, scores: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return recall at 1, 5 and 10, by distinct units."""
    seen: set[int] = set()
    gains: list[set[int]] = []
    for number in np.argsort(-scores, kind="stable"):
        units = [unit for unit in group["units"][number] if unit not in seen]
        seen.update(units)
        gains += [set(group["gold"][number])] * len(units)
    count = group["count"]
    at1, at5, at10 = (len(set().union(*gains[:k])) / count for k in (1, 5, 10))
    return at1, at5, at10


def blend(group: Group, logits: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """Return MemTier's score with so much of the model's; the model's alone for infinity."""
    return logits if math.isinf(weight) else np.array(group["scores"]) + weight * logits


def choose_weight(parts: Sequence[tuple[list[Group], list[NDArray[np.float64]]]]) -> float:
    """Return the weight with the best mean of recall at 1, 5 and 10 over sets."""

    def quality(weight: float) -> float:
        return float(
            np.mean(
                [
                    np.mean([recalls(g, blend(g, s, weight)) for g, s in zip(*part, strict=True)])
                    for part in parts
                    if part[0]
                ]
            )
        )

    return max(WEIGHTS, key=quality)


def interval(values: NDArray[np.float64], seed: int = 42) -> list[float]:
    """Return the bootstrap interval (95 %) of a mean."""
    drawn = np.random.default_rng(seed).integers(0, len(values), (SAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(1), (0.025, 0.975))
    return [round(float(low), 4), round(float(high), 4)]


def judge_set(
    groups: list[Group], logits: list[NDArray[np.float64]], weight: float
) -> dict[str, Any]:
    """Return recall and silence with the model and without, on a set."""
    own = [(g, s) for g, s in zip(groups, logits, strict=True) if g["kind"] == "own" and g["count"]]
    report: dict[str, Any] = {"questions": len(own), "weight": weight}
    base = np.array([recalls(g, -np.arange(len(s), dtype=float)) for g, s in own])
    report["default"] = [round(float(x), 4) for x in base.mean(0)]
    for name, used in (("alone", math.inf), ("blended", weight)):
        ours = np.array([recalls(g, blend(g, s, used)) for g, s in own])
        report[name] = [round(float(x), 4) for x in ours.mean(0)]
        report[f"{name}_than_default"] = [
            {"mean": round(float(d.mean()), 4), "interval": interval(d)} for d in (ours - base).T
        ]
    report["ceiling"] = round(
        float(np.mean([len(set().union(*map(set, g["gold"]))) / g["count"] for g, _ in own])), 4
    )
    foreign = [(g, s) for g, s in zip(groups, logits, strict=True) if g["kind"] == "foreign"]
    report["foreign"] = len(foreign)
    report["default_silent"] = {
        "own": round(float(np.mean([not g["injected"] for g, _ in own])), 4),
        "foreign": round(float(np.mean([not g["injected"] for g, _ in foreign])), 4)
        if foreign
        else None,
    }
    if foreign:
        for name, value in EVIDENCE.items():
            report[f"silence_{name}"] = silence(
                [value(*x) for x in own], [value(*x) for x in foreign]
            )
    return report


def _best(group: Group, scores: NDArray[np.float64]) -> float:
    return float(scores[:CONSIDERED].max(initial=-20.0))


def _floor(group: Group, scores: NDArray[np.float64]) -> float:
    likely = group["probability"]
    if likely is None:
        likely = float(group["injected"] > 0)
    return float(np.log((likely + 1e-4) / (1 - likely + 1e-4)))


EVIDENCE: Final = {
    "model": _best,
    "floor": _floor,
    "both": lambda g, s: _best(g, s) + _floor(g, s),
}


def silence(own: Sequence[float], foreign: Sequence[float]) -> dict[str, Any]:
    """Return how many foreign prompts are silent where so few own ones are."""
    ours, theirs = np.array(own), np.array(foreign)
    bar = float(np.quantile(ours, FALSE_SILENCE))
    silent = (theirs < bar).astype(float)
    area = float((ours[:, None] > theirs[None]).mean() + (ours[:, None] == theirs[None]).mean() / 2)
    return {
        "foreign": round(float(silent.mean()), 4),
        "interval": interval(silent),
        "auc": round(area, 4),
        "bar": round(bar, 3),
    }


def family(name: str) -> str:
    """Return what a set is a version of: its name without the language."""
    return name.partition("-")[0]


def parse_options() -> argparse.Namespace:
    """Return the options.

    Raises:
        SystemExit: a set would be trained on that must not be.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--judge", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--layers", type=int, default=0, help="of attention over both texts")
    options = parser.parse_args()
    families = {family(name) for name in options.train}
    if wrong := families & ({family(name) for name in options.judge} | MEASURED_ONLY):
        parser.error(f"not to be trained on: {', '.join(sorted(wrong))}")
    return options


def main() -> None:
    options = parse_options()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    options.out.mkdir(parents=True, exist_ok=True)
    parts = {name: load_rows(options.folder / f"{name}.pt") for name in options.train}
    data = [(group, rows.states) for rows in parts.values() for group in rows.groups]
    random.Random(options.seed).shuffle(data)
    size = len(data) // 10
    head = PairHead(layers=options.layers)
    curve = [{"step": 0, **judge_dev(head, data[:size])}]
    for quarter in train(head, data[size:], options, lambda h: judge_dev(h, data[:size])):
        curve.append(quarter)
        print(quarter, flush=True)
    torch.save(head.state_dict(), options.out / "head.pt")
    weight = choose_weight([_scored(head, rows) for rows in parts.values()])
    seconds = round(time.process_time(), 1)
    figures: dict[str, Any] = {"curve": curve, "cpu_seconds": seconds, "sets": {}}
    for name in options.judge:
        rows = load_rows(options.folder / f"{name}.pt")
        figures["sets"][name] = judge_set(rows.groups, score_groups(head, rows), weight)
        print(name, json.dumps(figures["sets"][name]), flush=True)
    (options.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")


def _scored(head: PairHead, rows: Rows) -> tuple[list[Group], list[NDArray[np.float64]]]:
    """Return a set's first questions that have MemTier's scores, with the model's."""
    groups = [g for g in rows.groups if g["kind"] == "own" and g["count"] and "scores" in g]
    groups = groups[:WEIGHED]
    return groups, score_groups(head, Rows(groups, rows.states))


if __name__ == "__main__":
    main()
