"""Judge whether a model of pairs of lines tells better than today's what replaces what.

    python -m scripts.models.train_pairs ENCODER PAIRS.jsonl OUT [--changes FILE ...] [--blind FILE]

ENCODER is the folder of all-MiniLM-L6-v2, which stays as published.  PAIRS has rows ``{old, new,
label, lang, source, kind, attr}``, of which those in English are used that are our own text
("generated"); what is written by hand for `fit_replacement.py` is a source of its own, and each
file of changes another.  BLIND has a line ``label|old|new`` for each pair.  Every figure is of
attributes, or of sources, that were not trained on.  Needs scikit-learn and ONNX Runtime.  OUT gets
``figures.json``; the same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memtier_plugin.providers.embedding import conversion
from memtier_plugin.providers.embedding.encoder import open_onnx
from memtier_plugin.retrieval.replacement import fitted_model, replaces
from memtier_plugin.retrieval.statements import (
    Rarity,
    Statement,
    pair_features,
)
from scripts.fit_replacement import OWN, changes_source

Rows = NDArray[np.float64]
LABELS: Final = ("replaces", "adds", "unrelated")
FOLDS: Final = 5
MAX_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class Pair:
    """An older line, a newer one, and what the newer is to the older; "other" is not "replaces"."""

    old: str
    new: str
    label: str
    kind: str = ""
    attributes: tuple[str, ...] = ()


def read_pairs(path: Path) -> list[Pair]:
    """Return the generated pairs in English."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        Pair(row["old"], row["new"], row["label"], row["kind"], tuple(row["attr"].split("+")))
        for row in rows
        if row["lang"] == "en" and row["source"] == "generated"
    ]


def read_written() -> list[Pair]:
    """Return the pairs in English that were written by hand for today's model."""
    rows = map(json.loads, (OWN / "pairs.jsonl").read_text(encoding="utf-8").splitlines())
    return [
        Pair(row["old"], row["new"], "replaces" if row["label"] in (1, "replaces") else "other")
        for row in rows
        if row.get("lang", "en") == "en"
    ]


def read_changes(path: Path) -> list[Pair]:
    """Return the pairs of a file of changes."""
    return [
        Pair(each.old.text, each.new.text, "replaces" if each.changed else "other")
        for each in changes_source(path).pairs_told
        if each.old.text.isascii() and each.new.text.isascii()
    ]


def read_blind(path: Path) -> list[Pair]:
    """Return the pairs of a file of lines ``label|old|new``."""
    rows = (line.split("|") for line in path.read_text(encoding="utf-8").splitlines())
    return [Pair(old, new, label) for label, old, new in rows]


# -- features --------------------------------------------------------------------------------------


class Tokens:
    """The unit vectors of a text's tokens by the encoder, made once a text."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file

        builder = conversion._Builder(
            load_file(folder / "model.safetensors"), conversion._read_config(folder)
        )
        state = builder._embed()
        for layer in range(builder._config.layers):
            state = builder._layer(f"encoder.layer.{layer}", state)
        model = builder._graph.to_bytes(
            "input_ids", [1, "n"], state, [1, "n", builder._config.hidden]
        )
        self._session, self._tokenizer = open_onnx(model, folder / "tokenizer.json", MAX_TOKENS)
        self._made: dict[str, Rows] = {}

    def of(self, text: str) -> Rows:
        """Return the unit vectors of a text, shape (tokens, d)."""
        if text not in self._made:
            ids = np.array([self._tokenizer.encode(text).ids], np.int64)
            states = self._session.run(None, {"input_ids": ids})[0].reshape(ids.shape[1], -1)
            inner = states[1:-1] if len(states) > 2 else states
            self._made[text] = inner / np.linalg.norm(inner, axis=1, keepdims=True)
        return self._made[text]


def _unit(values: Rows) -> Rows:
    return np.asarray(values / (np.linalg.norm(values) + 1e-9))


def nearness(old: Rows, new: Rows) -> list[float]:
    """Return how near two texts are: as a whole, and by each token's best match in the other."""
    match = old @ new.T
    values = [float(_unit(old.mean(0)) @ _unit(new.mean(0)))]
    for best in (match.max(1), match.max(0)):
        best = np.sort(best)
        values += [float(best.mean()), float(best[: max(1, len(best) // 3)].mean())]
    return values


class Features:
    """The features of pairs, by what they are made of."""

    def __init__(self, tokens: Tokens, pairs: Sequence[Pair]) -> None:
        lines = {text for pair in pairs for text in (pair.old, pair.new)}
        counts = Counter(word for text in lines for word in Statement(text).content)
        rarity = Rarity(counts, len(lines))
        self.today = np.array([replaces(p.old, p.new, rarity) for p in pairs])
        old, new = ([tokens.of(getattr(p, side)) for p in pairs] for side in ("old", "new"))
        near = np.array([nearness(a, b) for a, b in zip(old, new, strict=True)])
        words = np.array(
            [[*pair_features(Statement(p.old), Statement(p.new), rarity).values()] for p in pairs]
        )
        a, b = (np.array([_unit(rows.mean(0)) for rows in side]) for side in (old, new))
        self.kinds: Mapping[str, Rows] = {
            "newer line alone": b,
            "words": words,
            "nearness": near,
            "words and nearness": np.hstack([words, near]),
            "vectors": np.hstack([np.abs(a - b), a * b, near]),
            "all": np.hstack([words, near, np.abs(a - b), a * b]),
        }


# -- heads -----------------------------------------------------------------------------------------


def fit(rows: Rows, labels: Sequence[str], seed: int) -> Any:
    """Return a head: trees over few features, a linear one over many."""
    from sklearn.ensemble import GradientBoostingClassifier  # type: ignore[import-not-found]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-not-found]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-not-found]
    from sklearn.preprocessing import StandardScaler  # type: ignore[import-not-found]

    if rows.shape[1] < 100:
        head = GradientBoostingClassifier(
            n_estimators=120, max_depth=3, subsample=0.7, min_samples_leaf=20, random_state=seed
        )
    else:
        head = make_pipeline(StandardScaler(), LogisticRegression(C=0.003, max_iter=500))
    return head.fit(rows, np.array(labels))


def likely(head: Any, rows: Rows) -> Rows:
    """Return how likely each newer line replaces the older."""
    return np.asarray(head.predict_proba(rows)[:, [*head.classes_].index("replaces")])


def area(values: Rows, positive: Rows) -> float:
    """Return how often a changed pair has more than an unchanged one."""
    above = values[positive][:, None] - values[~positive][None]
    return round(float((above > 0).mean() + (above == 0).mean() / 2), 3)


def at_mark(values: Rows, positive: Rows, mark: float) -> dict[str, float]:
    """Return how many changes are recognised, and how many others are taken for one."""
    return {
        "recognised": round(float((values[positive] >= mark).mean()), 3),
        "wrong": round(float((values[~positive] >= mark).mean()), 3),
        "area": area(values, positive),
    }


def is_change(pairs: Sequence[Pair]) -> Rows:
    """Return of each pair whether the newer line replaces the older."""
    return np.array([pair.label == "replaces" for pair in pairs])


def folds_of(pairs: Sequence[Pair], seed: int) -> list[frozenset[str]]:
    """Return the attributes in so many parts."""
    names = sorted({name for pair in pairs for name in pair.attributes})
    random.Random(seed).shuffle(names)
    return [frozenset(names[start::FOLDS]) for start in range(FOLDS)]


def across_attributes(pairs: Sequence[Pair], features: Features, seed: int) -> dict[str, Any]:
    """Return figures of generated pairs whose attributes were held out."""
    truth = np.array([pair.label for pair in pairs])
    guesses = {kind: np.full(len(pairs), "", object) for kind in features.kinds}
    for held_out in folds_of(pairs, seed):
        test = np.array([not held_out.isdisjoint(pair.attributes) for pair in pairs])
        judged = np.array([held_out.issuperset(pair.attributes) for pair in pairs])
        for kind, rows in features.kinds.items():
            head = fit(rows[~test], truth[~test], seed)
            guesses[kind][judged] = head.predict(rows[judged])
    report: dict[str, Any] = {}
    for kind, guessed in guesses.items():
        used = guessed != ""
        right = guessed == truth
        change = truth[used] == "replaces"
        by_kind: dict[str, list[bool]] = defaultdict(list)
        for pair, fine, is_used in zip(pairs, right, used, strict=True):
            if is_used:
                by_kind[pair.kind].append(bool(fine))
        report[kind] = {
            "pairs": int(used.sum()),
            "right": round(float(right[used].mean()), 3),
            "recognised": round(float((guessed[used] == "replaces")[change].mean()), 3),
            "wrong": round(float((guessed[used] == "replaces")[~change].mean()), 3),
            "by kind": {name: round(float(np.mean(v)), 2) for name, v in sorted(by_kind.items())},
        }
    report["majority"] = round(float(np.mean(truth == Counter(truth).most_common(1)[0][0])), 3)
    report["today"] = at_mark(features.today, is_change(pairs), fitted_model().mark)
    return report


def across_sources(
    sources: Mapping[str, tuple[Sequence[Pair], Features]], seed: int
) -> dict[str, Any]:
    """Return figures of each source with heads trained on the others, and of the present model."""
    report: dict[str, Any] = {}
    for name, (pairs, features) in sources.items():
        changed = is_change(pairs)
        rows: dict[str, Any] = {
            "pairs": len(pairs),
            "changes": int(changed.sum()),
            "today": at_mark(features.today, changed, fitted_model().mark),
        }
        for kind in features.kinds:
            others = [sources[other] for other in sources if other != name and other != "blind"]
            labels = [
                "replaces" if change else "other" for o, _ in others for change in is_change(o)
            ]
            head = fit(np.vstack([f.kinds[kind] for _, f in others]), labels, seed)
            rows[kind] = at_mark(likely(head, features.kinds[kind]), changed, 0.5)
        report[name] = rows
        print(name, json.dumps(rows), flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("encoder", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--changes", type=Path, nargs="*", default=[])
    parser.add_argument("--blind", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.process_time()
    tokens = Tokens(options.encoder)
    read: dict[str, Callable[[], list[Pair]]] = {
        "generated": lambda: read_pairs(options.pairs),
        "written": read_written,
    }
    named = {name: make() for name, make in read.items()}
    named |= {f"{path.parent.name}/{path.name}": read_changes(path) for path in options.changes}
    if options.blind:
        named["blind"] = read_blind(options.blind)
    sources = {name: (pairs, Features(tokens, pairs)) for name, pairs in named.items()}
    print("features", round(time.process_time() - start), flush=True)
    figures = {"attributes": across_attributes(*sources["generated"], options.seed)}
    print(json.dumps(figures, indent=1), flush=True)
    figures["sources"] = across_sources(sources, options.seed)
    print("all", round(time.process_time() - start), flush=True)
    text = json.dumps(figures, indent=1) + "\n"
    (options.out / "figures.json").write_text(text)
    print(sha256(text.encode()).hexdigest())


if __name__ == "__main__":
    main()
