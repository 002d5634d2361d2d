"""Fit the coefficients by which a sentence counts as worth keeping.

The sentences, each source with a weight of its own so that a large one does not outvote the rest:

- ``tests/facts/sentences.yaml``, the project's own, in five languages;
- ``tests/facts/test_statements.py``, what its tables keep and leave;
- judgement sets (`--judged`, folders): `keep.yaml`, what `discretion.yaml` has open, the statements
  of `currency.yaml`, the prompts of `silence.yaml` that need no memory;
- a file of labelled statements and one of generated pairs (`--statements`, `--pairs`).

The coefficients minimise the weighted logistic loss with a small penalty, by Newton's method.

    python scripts/fit_worth.py --judged FOLDER ... --statements FILE --pairs FILE --test FOLDER

prints for each source, with coefficients fitted without it, what share is kept and left, the same
for `--test` sets, which are never fitted, and writes
``memtier_plugin/retrieval/worth.json``.  With `--chats FILE` only the coefficients for sentences of
longer messages are fitted: JSON Lines of sentences of real chats, judged by hand, each with `text`,
`others` (sentences around it), `keep`, `weight` and `chat`.  The project's own sentences count a
little as well, as if they stood in short messages.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from memtier_plugin.facts.extraction.sentences import read_words
from memtier_plugin.retrieval import worth
from tests.facts.test_statements import KEPT, LEFT

ROOT = Path(__file__).parent.parent
OWN = ROOT / "tests" / "facts" / "sentences.yaml"
MODEL = Path(worth.__file__).with_suffix(".json")
PENALTY, VECTOR_PENALTY, STEPS = 0.001, 0.002, 25
SAMPLE = 600  # of each kind of a large source
SHORT = 0.15  # weight of a sentence as if it stood in a short message
AMID_PENALTY, AMID_VECTOR_PENALTY = 4.0, 8.0  # of some hundred sentences
WEIGHTS = {"statements": 0.15, "pairs": 0.2}
AS_TYPED = 0.3  # weight of a sentence once more in lower case, without its full stop


class Sentence(NamedTuple):
    """A sentence, whether it is worth keeping, its source, and its weight."""

    text: str
    keep: bool
    source: str
    weight: float = 1.0


def own_sentences() -> Iterator[Sentence]:
    for language, sides in yaml.safe_load(OWN.read_text()).items():
        for side, lines in sides.items():
            for line in lines.splitlines():
                yield Sentence(line.strip(), side == "keep", f"own {language}")
    for words, *_ in KEPT:
        yield Sentence(words, True, "tests")
    for text in LEFT:
        yield Sentence(text, False, "tests")


def judged_sentences(folder: Path) -> Iterator[Sentence]:
    """Yield the sentences of a judgement set, as far as its files are there."""
    source = f"judged {folder.name}"
    data = {
        name: yaml.safe_load(path.read_text())
        for name in ("keep", "discretion", "currency", "silence")
        if (path := folder / f"{name}.yaml").exists()
    }
    for side, keep in (("keep", True), ("none", False)):
        for case in data["keep"][side]:
            yield Sentence(case["say"], keep, source)
    for case in data["discretion"]["open"]:
        yield Sentence(case["say"], True, source)
    for kind in data["silence"]["silent"]:
        for prompt in kind["say"]:
            yield Sentence(prompt, False, f"{source} prompts")
    for case in data["currency"]["cases"]:
        for _, *turns in case["history"]:
            for turn in turns:
                for who, words in turn.items():
                    if who not in ("assistant", "tool"):
                        yield Sentence(words, True, f"{source} histories")


def large_sentences(statements: Path | None, pairs: Path | None) -> Iterator[Sentence]:
    """Yield a sample of each kind of the large sources."""
    chooser, kinds = random.Random(5), defaultdict(list)
    for row in map(json.loads, statements.open()) if statements else ():
        if row["source"] != "qmsum" and row["label"] != "keep_weak":  # hardly better than chance
            kinds[row["source"], row["label"], row["lang"]].append(row["text"])
    for (source, label, _), texts in sorted(kinds.items()):
        for text in chooser.sample(texts, min(SAMPLE, len(texts))):
            yield Sentence(text, label.startswith("keep"), source, WEIGHTS["statements"])
    rows = [row for row in map(json.loads, pairs.open()) if pairs] if pairs else []
    rows = [row for row in rows if row["source"] == "generated" and row["kind"] != "not_decided"]
    for row in chooser.sample(rows, min(SAMPLE, len(rows))):
        yield Sentence(row["new"], True, "generated", WEIGHTS["pairs"])


def as_typed(sentences: Iterable[Sentence]) -> Iterator[Sentence]:
    """Yield sentences, and after each those as people type them in haste."""
    for sentence in sentences:
        yield sentence
        if sentence.weight == 1.0:
            bare = sentence.text.rstrip(".。!！")
            for text in (bare[:1].lower() + bare[1:], bare.lower()):
                yield sentence._replace(text=text, weight=AS_TYPED)


def rows_of(sentences: Sequence[Sentence]) -> tuple[np.ndarray, list[str]]:
    """Return a row of features for each sentence, and the features' names."""
    read = [read_words(sentence.text) for sentence in sentences]
    plain = [worth.features(words) for words in read]
    names = list(plain[0])
    rows = [
        [*fitting.values(), *worth.vector(words.text)]
        for words, fitting in zip(read, plain, strict=True)
    ]
    return np.array(rows), names


def fit(rows: np.ndarray, keep: np.ndarray, weight: np.ndarray, plain: int) -> np.ndarray:
    """Return the coefficients, the constant last; both sides weigh the same."""
    weight = weight.copy()
    for side in (True, False):
        weight[keep == side] /= 2 * weight[keep == side].sum()
    penalty = np.full(rows.shape[1], VECTOR_PENALTY)
    penalty[:plain] = PENALTY
    return newton(rows, keep, weight, penalty)


def newton(
    rows: np.ndarray, keep: np.ndarray, weight: np.ndarray, penalty: np.ndarray
) -> np.ndarray:
    """Return the coefficients of least penalised loss, the constant last."""
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    penalty = np.append(penalty, 1e-6)
    fitting = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-rows @ fitting))
        slope = rows.T @ (weight * (chance - keep)) + penalty * fitting
        curve = (rows * (weight * chance * (1 - chance))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        fitting -= step
        if np.abs(step).max() < 1e-4:
            break
    return fitting


def report(name: str, scores: np.ndarray, keep: np.ndarray) -> None:
    parts = [
        f"{verdict} {np.mean((scores[keep == side] > 0) == side):.3f} of {np.sum(keep == side)}"
        for side, verdict in ((True, "kept"), (False, "left"))
        if np.any(keep == side)
    ]
    print(f"{name:28} {', '.join(parts)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=Path, nargs="*", default=())
    parser.add_argument("--test", type=Path, nargs="*", default=())
    parser.add_argument("--statements", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--chats", type=Path)
    options = parser.parse_args()
    if options.chats:
        chats = [row for row in map(json.loads, options.chats.open()) if row["others"]]
        judged = [s for folder in options.judged for s in judged_sentences(folder)]
        for index, sentence in enumerate([*own_sentences(), *judged]):
            row = {"text": sentence.text, "others": 1 + index % 4, "keep": sentence.keep}
            chats.append({**row, "weight": SHORT, "chat": "short messages"})
        write("amid", *fit_amid(chats))
        return
    fitted = [
        *as_typed([*own_sentences(), *(s for f in options.judged for s in judged_sentences(f))]),
        *large_sentences(options.statements, options.pairs),
    ]
    rows, names = rows_of(fitted)
    keep = np.array([sentence.keep for sentence in fitted])
    weight = np.array([sentence.weight for sentence in fitted])
    named = [" ".join(sentence.source.split()[:2]) for sentence in fitted]
    for source in dict.fromkeys(named):
        inside = np.array([name == source for name in named])
        fitting = fit(rows[~inside], keep[~inside], weight[~inside], len(names))
        shown = inside & (weight != AS_TYPED)
        report(source, rows[shown] @ fitting[:-1] + fitting[-1], keep[shown])
    fitting = fit(rows, keep, weight, len(names))
    for folder in options.test:
        tested = [
            sentence
            for sentence in judged_sentences(folder)
            if sentence.source == f"judged {folder.name}"
        ]
        test_rows, _ = rows_of(tested)
        report(
            f"test {folder.name}",
            test_rows @ fitting[:-1] + fitting[-1],
            np.array([sentence.keep for sentence in tested]),
        )
    write("alone", fitting, names)


def fit_amid(rows: Sequence[dict[str, Any]]) -> tuple[np.ndarray, list[str]]:
    """Return the coefficients for sentences of longer messages, and their features' names."""
    read = [read_words(row["text"]) for row in rows]
    plain = [worth.features_amid(w, row["others"]) for w, row in zip(read, rows, strict=True)]
    table = np.array(
        [
            [*values.values(), *worth.vector(worth.opening(words))]
            for words, values in zip(read, plain, strict=True)
        ]
    )
    penalty = np.full(table.shape[1], AMID_VECTOR_PENALTY)
    penalty[: len(plain[0])] = AMID_PENALTY
    weight, keep = (np.array([row[name] for row in rows], float) for name in ("weight", "keep"))
    chat = np.array([row["chat"] for row in rows])
    for name in dict.fromkeys(chat):
        other = chat != name
        fitting = newton(table[other], keep[other], weight[other], penalty)
        scores = table[~other] @ fitting[:-1] + fitting[-1]
        report(f"amid {name}", scores, keep[~other] > 0)
    fitting = newton(table, keep, weight, penalty)
    return fitting, [*plain[0]]


def write(model: str, fitting: np.ndarray, names: Sequence[str]) -> None:
    """Write the coefficients of one of the models."""
    models = json.loads(MODEL.read_bytes())
    count = len(names)
    models[model] = {
        "bias": round(float(fitting[-1]), 3),
        "weights": {n: round(float(w), 3) for n, w in zip(names, fitting[:count], strict=True)},
        "vector": [round(float(w), 3) for w in fitting[count:-1]],
    }
    MODEL.write_text(json.dumps(models, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
