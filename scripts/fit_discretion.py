"""Fit the models by which a text is a confidence, and by which it is sensitive.

The statements, none of them anybody's:

- ``scripts/discretion``, a file for each language: confidences and what only sounds so, what is
  sensitive and what only sounds so, with places for people and for what is told;
- ``tests/trust/test_confidences.py`` and ``tests/facts/test_discretion.py``, their tables;
- ``tests/facts/sentences.yaml`` and ``scripts/replacement/pairs.jsonl``, which hardly ever are.

The models minimise the logistic loss of the most telling sentence of each statement, by AdaGrad.

A file of statements and one of pairs (`--statements`, `--pairs`) give more ordinary ones. The
models that are shipped had 23,000 lines of real chats and of manuals among them: without these,
one message of ten in a chat was held that asks for nothing.

    python scripts/fit_discretion.py --check    # what is missed of statements that were not fitted
    python scripts/fit_discretion.py            # writes memtier_plugin/trust/data/discretion.json
"""

from __future__ import annotations

import argparse
import json
import random
from base64 import b85encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from memtier_plugin.trust import confidences
from tests.facts.test_discretion import KINDS, SENSITIVE_TEXTS
from tests.trust.test_confidences import CONFIDED, OPEN, REACH

ROOT = Path(__file__).parent.parent
STATEMENTS = ROOT / "scripts" / "discretion"
SENTENCES = ROOT / "tests" / "facts" / "sentences.yaml"
PAIRS = ROOT / "scripts" / "replacement" / "pairs.jsonl"
TIMES = 6  # that a statement with places is filled
SURE = 12  # that a statement of the tests is given
SAMPLE = 1300  # of each kind of a large source
MISLABELLED = 1.0
SLIGHT = 4  # of 127: a weight that changes no score by much
COSTS = 1.5  # times as much to miss one of the kind as to take another for one
PASSES, RATE, LEAST = 6, 0.15, 5  # LEAST: statements that have a feature
ENDS = tuple(".!?:。！？：")
# What makes a statement one of a kind, and what is compared with it.
KINDS_OF = {
    "confided": (("confided", "before", "after", "whole"), ("open", "sensitive", "plain", "own")),
    "sensitive": (("sensitive",), ("plain", "open", "confided", "before", "after", "whole", "own")),
    "before": (("before",), ("confided", "after", "whole", "open")),
    "after": (("after",), ("confided", "before", "whole", "open")),
    "whole": (("whole",), ("confided", "before", "after", "open")),
}


class Statement(NamedTuple):
    """A statement, of what it was made, and whether it is of the kind."""

    text: str
    source: str
    positive: bool


class Writer:
    """Fills the places of statements."""

    def __init__(self, large: Sequence[str]) -> None:
        self._chooser = random.Random(7)
        self._large = [*large]
        self._own = {
            language: [*sides["keep"].splitlines(), *sides["leave"].splitlines()]
            for language, sides in yaml.safe_load(SENTENCES.read_text()).items()
        }
        self._written = {
            path.stem: yaml.safe_load(path.read_text()) for path in sorted(STATEMENTS.iterdir())
        }

    def statements(self, kind: str) -> Iterator[Statement]:
        for positive, sections in zip((True, False), KINDS_OF[kind], strict=True):
            for section in sections:
                full = kind != "sensitive" and not (kind in confidences.POINTING and positive)
                for text, source in self._section(section, full=full):
                    yield Statement(text, source, positive)
        if kind == "confided":
            yield from SURE * [Statement(text, text, True) for text in CONFIDED]
            yield from SURE * [Statement(text, text, True) for text, _ in REACH]
            yield from SURE * [Statement(text, text, False) for text in OPEN]
        if kind in confidences.POINTING:
            yield from SURE * [Statement(text, text, getattr(at, kind)) for text, at in REACH]
        if kind == "sensitive":
            yield from SURE * [Statement(text, text, sensitive) for text, sensitive in KINDS]
            yield from SURE * [Statement(text, text, True) for text in SENSITIVE_TEXTS]

    def _section(self, section: str, *, full: bool) -> Iterator[tuple[str, str]]:
        if section == "own":
            ordinary = [line.strip() for lines in self._own.values() for line in lines]
            for pair in map(json.loads, PAIRS.open()):
                ordinary += [pair["old"], pair["new"]]
            yield from ((line, line) for line in dict.fromkeys(ordinary + self._large))
            return
        for language, written in self._written.items():
            for line in written.get(section, "").splitlines():
                if not full:
                    line = line.replace("{c}", "").strip()
                for _ in range(TIMES if "{" in line else 1):
                    yield self._filled(line, language), f"{language}: {line}"

    def _filled(self, line: str, language: str) -> str:
        """Fill the places of a statement; what is told, at its end, is left out now and then."""
        choose, written = self._chooser.choice, self._written[language]
        before, mark, after = line.partition("{c}")
        if mark:
            saying = self._told(language)
            if before.strip() and not before.rstrip().endswith(ENDS) and language != "german":
                saying = saying[:1].lower() + saying[1:]
            line = before + saying + after
            if self._chooser.random() < 0.15 and (not before or before.rstrip().endswith(ENDS)):
                line = (before + after).strip()
        line = line.replace("{w}", choose(written["audience"].split(", ")))
        line = line.replace("{p}", choose(written["people"].split(", ")))
        return line[:1].upper() + line[1:]

    def _told(self, language: str) -> str:
        written = self._written[language]
        plain, sensitive = written["plain"].splitlines(), written["sensitive"].splitlines()
        own, look_alikes = self._own.get(language, plain), written["open"].splitlines()
        (lines,) = self._chooser.choices((plain, sensitive, own, look_alikes), (3, 3, 3, 2))
        line = self._chooser.choice(lines).replace("{c}", "").strip()
        line = line.replace("{w}", self._chooser.choice(written["audience"].split(", ")))
        return str(line).replace("{p}", self._chooser.choice(written["people"].split(", ")))


def large_lines(statements: Path | None, pairs: Path | None) -> Iterator[str]:
    """Yield a sample of each kind of the large sources."""
    chooser, kinds = random.Random(5), defaultdict(list)
    for row in map(json.loads, statements.open()) if statements else ():
        if row["source"] != "qmsum":
            kinds[row["source"], row["label"], row["lang"]].append(row["text"])
    for row in map(json.loads, pairs.open()) if pairs else ():
        if row["source"] == "generated":
            kinds["generated", row["lang"]] += [row["old"], row["new"]]
    for _, texts in sorted(kinds.items()):
        yield from chooser.sample(texts, min(SAMPLE, len(texts)))


class Model:
    """A logistic model of the features that enough statements have."""

    def __init__(self, kind: str, statements: Sequence[Statement]) -> None:
        self._kind = kind
        having = defaultdict(set)
        for statement in statements:
            for sentence in confidences.parts(kind, statement.text):
                for feature in confidences.features(sentence):
                    having[feature].add(statement.source)
        kept = sorted(feature for feature, sources in having.items() if len(sources) >= LEAST)
        self.numbers = {feature: number for number, feature in enumerate(kept)}
        self.weights, self.bias = np.zeros(len(kept)), -1.0
        self._fit(statements)

    def rows(self, text: str) -> list[tuple[np.ndarray, float]]:
        """Return the features of each sentence, and what their sum is divided by."""
        features = [
            confidences.features(sentence) for sentence in confidences.parts(self._kind, text)
        ]
        return [
            (
                np.array([self.numbers[f] for f in names if f in self.numbers], int),
                max(len(names), confidences.LEAST_NORM) ** 0.5,
            )
            for names in features
        ]

    def score(self, text: str) -> float:
        scores = [self.weights[row].sum() / norm for row, norm in self.rows(text)]
        return float(max(scores, default=0.0) + self.bias)

    def _fit(self, statements: Sequence[Statement]) -> None:
        rows = [self.rows(statement.text) for statement in statements]
        chooser, slopes = np.random.default_rng(0), np.full(len(self.weights), 1e-2)
        later = []
        for number in range(PASSES):
            for at in chooser.permutation(len(rows)):
                scores = [self.weights[row].sum() / norm + self.bias for row, norm in rows[at]]
                if not scores:
                    continue
                positive = statements[at].positive
                # Of what is a confidence one sentence is; of what is none, none.
                for which in [int(np.argmax(scores))] if positive else range(len(scores)):
                    row, norm = rows[at][which]
                    error = 1 / (1 + np.exp(-scores[which])) - positive
                    error *= COSTS if positive else 1
                    if abs(error) > 0.02:
                        slope = error / norm + 1e-4 * self.weights[row]
                        slopes[row] += slope * slope
                        self.weights[row] -= RATE * slope / np.sqrt(slopes[row])
                        self.bias -= 0.01 * error
            if number >= PASSES // 2:
                later.append((self.weights.copy(), self.bias))
        self.weights = np.mean([weights for weights, _ in later], axis=0)
        self.bias = float(np.mean([bias for _, bias in later]))

    def to_json(self) -> dict[str, object]:
        scale = float(np.abs(self.weights).max() / 127)
        weights = np.round(self.weights / scale).astype(np.int8)
        kept = [(f, weights[n]) for f, n in self.numbers.items() if abs(int(weights[n])) > SLIGHT]
        return {
            "bias": round(self.bias, 3),
            "scale": round(scale, 6),
            "features": b85encode(b"".join(f.to_bytes(3, "big") for f, _ in kept)).decode(),
            "weights": b85encode(np.array([w for _, w in kept], np.int8).tobytes()).decode(),
        }


def fitted(kind: str, statements: Sequence[Statement]) -> Model:
    """Return a model that was fitted without what an earlier one is sure of that it is mislabelled.

    Among thousands of lines that somebody said, some are of the kind.
    """
    first = Model(kind, statements)
    return Model(kind, [s for s in statements if s.positive or first.score(s.text) < MISLABELLED])


def check(statements: Sequence[Statement], kind: str) -> None:
    """Print what is missed, and what is held, of statements whose sources were not fitted."""
    sources = sorted({statement.source for statement in statements})
    random.Random(1).shuffle(sources)
    scores: dict[bool, list[float]] = {True: [], False: []}
    for part in range(4):
        left = set(sources[part::4])
        model = Model(kind, [s for s in statements if s.source not in left])
        shown = {s.source: s for s in statements if s.source in left}
        for statement in shown.values():
            scores[statement.positive].append(model.score(statement.text))
    for least in (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5):
        missed = np.mean(np.array(scores[True]) < least)
        held = np.mean(np.array(scores[False]) >= least)
        print(f"{kind} from {least}: missed {missed:.3f}, held {held:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fit three quarters, test the fourth")
    parser.add_argument("kinds", nargs="*", default=[*KINDS_OF])
    parser.add_argument("--statements", type=Path)
    parser.add_argument("--pairs", type=Path)
    options = parser.parse_args()
    large = [*large_lines(options.statements, options.pairs)]
    written = json.loads(confidences.MODEL.read_bytes()) if confidences.MODEL.exists() else {}
    for kind in options.kinds:
        statements = [*Writer(large).statements(kind)]
        if options.check:
            check(statements, kind)
        else:
            written[kind] = fitted(kind, statements).to_json()
    if not options.check:
        confidences.MODEL.write_text(json.dumps(written, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
