"""Fit the default weights of `recall_first` jointly on several data sets.

Every question is asked through the public API with every candidate returned; each hit carries its
signals.  The weights are fitted by `memtier_papers.memtier.fit`, and scaled so that words count 1.
Weights of signals that the data cannot teach (`KEPT`) stay as configured.

    python scripts/fit_weights.py --locomo locomo.json --beam beam/

prints recall@10 with the configured and the fitted weights, and again for each conversation with
weights fitted without it.

    python scripts/fit_weights.py --locomo locomo.json --beam beam/ --sets sets/ --model minilm

does so with another embedding model, starting from its own weights (`model_weights.json`), on more
sets, and leaves out whole families of sets (`NAME-LANGUAGE`).  ``--pull`` keeps the weights near
those they start from: families that were not seen lose without it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from memtier_bench.datasets import Dataset, load_dataset, load_sets
from memtier_bench.metrics import recall_at, source_turns
from memtier_bench.retrieval import BenchRun
from memtier_papers.memtier.fit import fit
from memtier_papers.memtier.weight_job import KEPT
from memtier_plugin.core.settings.schema import Weights
from memtier_plugin.providers.embedding.load import load_embedder
from memtier_plugin.retrieval.signals import ranking_weights


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: its hits' signals (n, s) and turns, and which hits bring a gold turn."""

    group: str  # what is left out together
    signals: np.ndarray
    turns: list[list[str]]
    gold: frozenset[str]

    @property
    def target(self) -> np.ndarray:
        """The share of hits with gold turns, in [0, 1]."""
        brings = np.array([float(any(t in self.gold for t in turns)) for turns in self.turns])
        return brings / max(1.0, brings.sum())


def ask_all(
    loaded: Dataset, facts: str, names: Sequence[str], model: str, family: str = ""
) -> Iterator[Asked]:
    """Record each conversation and ask its questions.

    Args:
        family: what the questions are left out with; their conversation when empty.
    """
    everything = {
        "retrieval.candidates": 10_000,
        "retrieval.floor": "off",
        "embedding.model": model,
    }
    bench = BenchRun(loaded=loaded, facts=facts, progress=lambda what, done, total: None)
    for memory, conversation, recorded in bench.recorded_conversations(everything):
        for question in conversation.questions:
            hits = memory.recall(question.text, at=question.at).hits
            yield Asked(
                family or conversation.id,
                np.array([[h.signals.get(n, 0.0) for n in names] for h in hits]).reshape(
                    -1, len(names)
                ),
                [[*recorded.turns([hit])] for hit in hits],
                question.gold,
            )


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
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--model", default="default")
    parser.add_argument("--pull", type=float, default=0.0)
    given = parser.parse_args()
    embedder = load_embedder(given.model)
    configured = asdict(ranking_weights(Weights(), embedder.name if embedder else None))
    names = list(configured)
    now = np.array([configured[name] for name in names])
    free = np.array([name not in KEPT for name in names])
    locomo, beam = load_dataset("locomo", given.locomo), load_dataset("beam", given.beam)
    more = load_sets(given.sets) if given.sets else ()
    first, second = ("locomo", "beam") if more else ("", "")
    sets = {
        "LoCoMo": list(ask_all(locomo, "none", names, given.model, first)),
        "LoCoMo with facts": list(ask_all(locomo, "dataset", names, given.model, first)),
        "BEAM": list(ask_all(beam, "none", names, given.model, second)),
    }
    for loaded in more:
        family = loaded.name.partition("-")[0]
        sets[loaded.name] = list(ask_all(loaded, "none", names, given.model, family))
    fitted = _scaled(fit([*sets.values()], now, free, given.pull), now, names)
    print("recall@1/@10".ljust(24), "configured".ljust(16), "fitted")
    for title, asked in sets.items():
        print(title.ljust(24), *(_shown(asked, weights).ljust(16) for weights in (now, fitted)))
    weights = dict(zip(names, fitted.round(3).tolist(), strict=True))
    print(json.dumps(weights, indent=1))
    print("\nfitted without it".ljust(25), "configured".ljust(16), "refitted")
    changes = []
    for title, asked in sets.items():
        for left_out in dict.fromkeys(question.group for question in asked):
            rest = [
                [question for question in s if question.group != left_out] for s in sets.values()
            ]
            refitted = _scaled(fit(rest, now, free, given.pull), now, names)
            mine = [question for question in asked if question.group == left_out]
            shown = (_shown(mine, weights).ljust(16) for weights in (now, refitted))
            print(f"{title}, {left_out}".ljust(24), *shown, flush=True)
            changes.append(recall(mine, refitted, 10) - recall(mine, now, 10))
    print(f"change of recall@10: least {min(changes):+.4f}, most {max(changes):+.4f}")


def _scaled(weights: np.ndarray, now: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Scale the weights so that words count 1; restore those that are not fitted."""
    scaled = weights / weights[names.index("words")]
    return np.array([now[i] if name in KEPT else scaled[i] for i, name in enumerate(names)])


def _shown(asked: Sequence[Asked], weights: np.ndarray) -> str:
    return f"{recall(asked, weights, 1):.4f}/{recall(asked, weights, 10):.4f}"


if __name__ == "__main__":
    main()
