"""Fit the default weights of `recall_first` jointly on several data sets.

Every question is asked through the public API with every candidate returned; each hit carries its
signals.  The weights w >= 0 minimise, over the questions of all sets (each set counting the same),

    - sum over gold hits of 1/|gold| * log softmax(w . signals)     (ListNet, Cao et al. 2007)

which is convex, so that neither a start nor a search order matters.  They are scaled so that words
count 1.  Weights of signals that the data cannot teach (`KEPT`) stay as configured.

    python scripts/fit_weights.py --locomo locomo.json --beam beam/

prints recall@10 with the configured and the fitted weights, and again for each conversation with
weights fitted without it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from memtier_plugin.bench.datasets import load_dataset
from memtier_plugin.bench.metrics import recall_at, source_turns
from memtier_plugin.bench.retrieval import BenchRun
from memtier_plugin.core.settings.schema import Weights
from memtier_plugin.memory import MemTier

KEPT = ("decay", "weight", "overview")  # none is credited or asked for, all asked on one day
STEPS, RATE, PENALTY = 300, 0.1, 1e-3


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: its hits' signals (n, s) and turns, and which hits bring a gold turn."""

    conversation: str
    signals: np.ndarray
    turns: list[list[str]]
    gold: frozenset[str]

    @property
    def target(self) -> np.ndarray:
        """The hits that bring gold, as shares of 1."""
        brings = np.array([float(any(t in self.gold for t in turns)) for turns in self.turns])
        return brings / max(1.0, brings.sum())


def ask_all(name: str, path: Path, facts: str, names: Sequence[str]) -> Iterator[Asked]:
    """Record each conversation and ask its questions."""
    everything = {"retrieval.candidates": 10_000}
    loaded = load_dataset(name, path)
    bench = BenchRun(loaded=loaded, facts=facts, progress=lambda what, done, total: None)
    with tempfile.TemporaryDirectory() as home:
        for conversation in loaded.conversations:
            with MemTier.open(Path(home), conversation.id, settings=everything) as memory:
                turn_of = bench.record(memory, conversation).names
                for question in conversation.questions:
                    hits = memory.recall(question.text, at=question.at).hits
                    yield Asked(
                        conversation.id,
                        np.array([[h.signals.get(n, 0.0) for n in names] for h in hits]),
                        [[turn_of[s.entry] for s in h.sources if s.entry in turn_of] for h in hits],
                        question.gold,
                    )


def fit(sets: Sequence[Sequence[Asked]], start: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the weights that minimise the loss; only the free ones move."""
    packed = [_pack(asked) for asked in sets if asked]
    weights = start.copy() * 1.5  # about the temperature that the softmax ends at
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        slope = 2 * PENALTY * weights
        for signals, target, there in packed:
            scores = np.where(there, signals @ weights.astype(np.float32), -1e9)
            scores -= scores.max(axis=1, keepdims=True)
            chance = np.exp(scores)
            chance /= chance.sum(axis=1, keepdims=True)
            excess = chance * target.sum(axis=1, keepdims=True) - target
            slope += np.einsum("qn,qns->s", excess, signals) / len(signals) / len(packed)
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        change = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        weights = np.where(free, np.maximum(0.0, weights - RATE * change), weights)
    return weights


def _pack(asked: Sequence[Asked]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    longest = max(len(question.turns) for question in asked)
    width = asked[0].signals.shape[1]
    signals = np.zeros((len(asked), longest, width), np.float32)
    target, there = np.zeros((len(asked), longest)), np.zeros((len(asked), longest), bool)
    for row, question in enumerate(asked):
        n = len(question.turns)
        signals[row, :n], target[row, :n], there[row, :n] = question.signals, question.target, True
    return signals, target, there


def recall(asked: Sequence[Asked], weights: np.ndarray, k: int) -> float:
    """Return the mean recall@k of a ranking by these weights."""
    recalls = []
    for question in asked:
        order = np.argsort(-(question.signals @ weights), kind="stable")
        recalls.append(recall_at(source_turns(question.turns[i] for i in order), question.gold, k))
    return float(np.mean(recalls))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--locomo", type=Path, required=True)
    parser.add_argument("--beam", type=Path, required=True)
    given = parser.parse_args()
    configured = asdict(Weights())
    names = list(configured)
    now = np.array([configured[name] for name in names])
    free = np.array([name not in KEPT for name in names])
    sets = {
        "LoCoMo": list(ask_all("locomo", given.locomo, "none", names)),
        "LoCoMo with facts": list(ask_all("locomo", given.locomo, "dataset", names)),
        "BEAM": list(ask_all("beam", given.beam, "none", names)),
    }
    fitted = _scaled(fit([*sets.values()], now, free), now, names)
    print("recall@1/@10".ljust(24), "configured".ljust(16), "fitted")
    for title, asked in sets.items():
        print(title.ljust(24), *(_shown(asked, weights).ljust(16) for weights in (now, fitted)))
    weights = dict(zip(names, fitted.round(3).tolist(), strict=True))
    print(json.dumps(weights, indent=1))
    print("\nfitted without it".ljust(25), "configured".ljust(16), "refitted")
    changes = []
    for title, asked in sets.items():
        for left_out in dict.fromkeys(question.conversation for question in asked):
            rest = [
                [question for question in s if question.conversation != left_out]
                for s in sets.values()
            ]
            refitted = _scaled(fit(rest, now, free), now, names)
            mine = [question for question in asked if question.conversation == left_out]
            shown = (_shown(mine, weights).ljust(16) for weights in (now, refitted))
            print(f"{title}, {left_out}".ljust(24), *shown, flush=True)
            changes.append(recall(mine, refitted, 10) - recall(mine, now, 10))
    print(f"change of recall@10: least {min(changes):+.4f}, most {max(changes):+.4f}")


def _scaled(weights: np.ndarray, now: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Let words count 1, and what is kept what it did."""
    scaled = weights / weights[names.index("words")]
    return np.array([now[i] if name in KEPT else scaled[i] for i, name in enumerate(names)])


def _shown(asked: Sequence[Asked], weights: np.ndarray) -> str:
    return f"{recall(asked, weights, 1):.4f}/{recall(asked, weights, 10):.4f}"


if __name__ == "__main__":
    main()
