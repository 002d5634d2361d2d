"""Fit the models by which a correction is known, and by which a task is like the corrected one.

What they learn from, none of it anybody's:

- ``scripts/corrections/turns.yaml``: what is said after an assistant's turn, and whether it holds;
- ``scripts/corrections/meanings.yaml``: the words by which the one is told from the other;
- ``scripts/corrections/kinds.yaml``: kinds of work, and what people ask for in each;
- the cases of ``bench/memtier_bench/corrections/work.yaml`` of even number;
- judgement sets (`--judged`, folders): `work.yaml`; the prompts of `silence.yaml` and the
  statements of `currency.yaml` correct nothing.  The prompts of others (`--silent`) are like no
  corrected request.

    python scripts/fit_corrections.py --judged FOLDER ...

prints what share of the turns is told right by models fitted without them, and writes
``rule_words.json`` and ``kinds_of_work.json`` in ``memtier_plugin/retrieval``.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from base64 import b85encode
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from memtier_bench.silence_prompts import load_generic_prompts
from memtier_plugin.core.records import CORRECTED, Fact, Source
from memtier_plugin.retrieval import corrections, intentions, kinds_of_work, rule_words, worth
from scripts.fit_worth import judged_sentences, newton, own_sentences, report

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "scripts" / "corrections"
OWN = ROOT / "bench" / "memtier_bench" / "corrections" / "work.yaml"
PENALTY, FOLDS = 0.003, 5
ELSEWHERE = 0.4  # weight of what was said where nothing was corrected
REQUESTS, REQUEST = 900, 0.15  # and how many requests, of what weight
LEAST = {"rules": 0.0, "withdrawals": 0.3, "intentions": 0.0, "closings": 0.0}  # log-odds
RULING = frozenset({"always", "never", "must", "only", "instead"})  # what may be a rule
STEPS, DECAY, MOMENTUM = 400, 2e-4, 0.9
SLIGHT = 0.02  # a weight that changes no score by much
LETTER = 0.6  # weight of a letter or a beginning, beside a word
STANDARD_PENALTY, STANDARD_LEAST, INTENTION_LEAST = 0.002, 1.6, 1.0
SAID_ON = date(2026, 9, 1)
Case = Mapping[str, Any]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def tuned(judged: Sequence[Path]) -> list[tuple[list[Case], list[str]]]:
    """Return the sets of cases to fit on, each with prompts that are like none of them."""
    own = read(OWN)
    sets = [(own["corrections"][::2], own["unlike"])]
    for folder in judged:
        if (folder / "work.yaml").exists():
            data = read(folder / "work.yaml")
            sets.append((data["corrections"], data["unlike"]))
    return sets


def intended(judged: Sequence[Path]) -> list[Case]:
    """Return the intentions to fit on."""
    files = [folder / "work.yaml" for folder in judged if (folder / "work.yaml").exists()]
    return [*read(OWN)["intentions"][::2], *(c for f in files for c in read(f)["intentions"])]


def prompts(judged: Sequence[Path]) -> list[str]:
    """Return the prompts of the judgement sets that need no memory."""
    groups = [g for f in judged for g in read(f / "silence.yaml")["silent"]]
    return [text for group in groups for text in group["say"]]


def generic_prompts() -> list[str]:
    """Return the prompts of `memtier bench silence` that need no memory."""
    return [prompt.text for prompt in load_generic_prompts()]


# -- what is a rule --------------------------------------------------------------------------------


def labelled(judged: Sequence[Path], silent: Sequence[Path]) -> Iterator[tuple[str, str, float]]:
    """Yield turns, each with its kind and weight."""
    for kind, lines in read(FOLDER / "turns.yaml").items():
        for line in lines.splitlines():
            yield line, kind, 1.0
    for case in read(OWN)["passing"][::2]:
        yield case["no"], "passing", 1.0
    for cases, _ in tuned(judged):
        for case in cases:
            yield case["no"], "rules", 1.0
            if "done" in case:
                yield case["done"], "withdrawals", 1.0
    for case in intended(judged):
        yield case["say"], "intentions", 1.0
        yield case["then"], "passing", ELSEWHERE
        if "done" in case:
            yield case["done"], "closings", 1.0
    for text in (*prompts([*judged, *silent]), *generic_prompts()):
        yield text, "passing", ELSEWHERE
    requests = [part for kind in read(FOLDER / "kinds.yaml").values() for part in kind.split("|")]
    for text in random.Random(1).sample(requests, REQUESTS):
        yield text.strip(), "passing", REQUEST
    yield from statements(judged)


def statements(judged: Sequence[Path]) -> Iterator[tuple[str, str, float]]:
    """Yield what is stated without a correction, with its kind and weight."""
    for sentence in (*own_sentences(), *(s for f in judged for s in judged_sentences(f))):
        if not RULING.intersection(rule_words.features(sentence.text)):
            yield sentence.text, "passing", ELSEWHERE


def fit_turns(judged: Sequence[Path], silent: Sequence[Path]) -> None:
    """Fit and write the model of what is a rule."""
    document: dict[str, Any] = {
        part: {name: " ".join(text.split()) for name, text in read(FOLDER / f"{part}.yaml").items()}
        for part in ("meanings", "triggers")
    }
    write(rule_words.MODEL, document)
    rule_words._model.cache_clear()
    rows = [*labelled(judged, silent)]
    read_rows = [rule_words.features(text) for text, _, _ in rows]
    counts = Counter(name for values in read_rows for name in values)
    names = sorted(name for name, count in counts.items() if count > 1)
    plain = [[values.get(name, 0.0) for name in names] for values in read_rows]
    table = np.hstack([np.array(plain), np.array([worth.vector(text) for text, _, _ in rows])])
    fold = np.random.default_rng(1).integers(0, FOLDS, len(rows))
    weight = np.array([each for _, _, each in rows])
    for kind, least in LEAST.items():
        is_kind = np.array([of == kind for _, of, _ in rows])
        scores = np.zeros(len(rows))
        for part in range(FOLDS):
            fitting = fit(table[fold != part], is_kind[fold != part], weight[fold != part])
            scores[fold == part] = table[fold == part] @ fitting[:-1] + fitting[-1]
        report(kind, (scores - least)[weight == 1], is_kind[weight == 1])
        report(f"{kind}, elsewhere", (scores - least)[weight < 1], is_kind[weight < 1])
        fitting = fit(table, is_kind, weight)
        weights = {n: round(float(w), 2) for n, w in zip(names, fitting, strict=False)}
        document[kind] = {
            "bias": round(float(fitting[-1]), 2),
            "least": least,
            "weights": {name: w for name, w in weights.items() if abs(w) >= SLIGHT},
            "vector": [round(float(w), 2) for w in fitting[len(names) : -1]],
        }
    write(rule_words.MODEL, document)
    rule_words._model.cache_clear()


def fit(table: np.ndarray, is_kind: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the coefficients, the constant last; both sides weigh the same."""
    weight = weight.copy()
    for side in (True, False):
        weight[is_kind == side] /= 2 * weight[is_kind == side].sum()
    return newton(table, is_kind, weight, np.full(table.shape[1], PENALTY))


# -- which kind of work ----------------------------------------------------------------------------


def fit_kinds(judged: Sequence[Path]) -> None:
    """Fit and write the model of the kinds of work, without its standard."""
    parts = {
        kind: [*map(str.strip, line.split("|"))]
        for kind, line in read(FOLDER / "kinds.yaml").items()
    }
    parts[kinds_of_work.OTHER] += [*prompts(judged), *generic_prompts()]
    kinds, sizes = [*parts], {kind: len(texts) for kind, texts in parts.items()}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, texts in parts.items():
        for text in texts:
            for unit in kinds_of_work.units(text):
                counts[unit][kind] += 1
    words = {}
    for unit, of in counts.items():
        shares = np.array([of[kind] / math.sqrt(sizes[kind]) for kind in kinds])
        shares /= shares.sum()
        some = shares[shares > 0]
        telling = (1 + (some * np.log(some)).sum() / math.log(len(kinds))) ** 2
        often = sum(of.values()) / (sum(of.values()) + 1)
        telling *= often * (LETTER if is_part(unit) else 1)
        weights = np.rint(100 * shares * telling).astype(int)
        if flat := [int(n) for at in np.flatnonzero(weights) for n in (at, weights[at])]:
            words[unit] = flat
    table = fit_table(
        [(t, kinds.index(k)) for k, texts in parts.items() for t in texts], len(kinds)
    )
    scale = float(np.abs(table).max()) / 127
    document = {
        "kinds": kinds,
        "words": words,
        "table": b85encode(np.rint(table / scale).astype(np.int8).tobytes()).decode(),
        "scale": round(scale, 6),
        "standards": {},
    }
    write(kinds_of_work.MODEL, document)
    kinds_of_work.kind_model.cache_clear()


def is_part(unit: str) -> bool:
    return len(unit) == 1 or unit.endswith("*")


def fit_table(texts: Sequence[tuple[str, int]], kinds: int) -> np.ndarray:
    """Return the weights of a vector and a constant, last, for each kind, all of one weight."""
    vectors = np.array(kinds_of_work._embedder().encode([text for text, _ in texts]), float)
    known = vectors.any(axis=1)
    rows = np.hstack([vectors[known] * kinds_of_work.SCALE, np.ones((known.sum(), 1))])
    target = np.eye(kinds)[[kind for _, kind in texts]][known]
    weight = (target / target.sum(axis=0)).sum(axis=1, keepdims=True) / kinds
    table = np.zeros((rows.shape[1], kinds))
    step = np.zeros_like(table)
    for _ in range(STEPS):
        slope = rows.T @ ((kinds_of_work.spread(rows @ table) - target) * weight)
        step = MOMENTUM * step + slope + DECAY * table
        table -= step
    return table


def fit_standards(judged: Sequence[Path], silent: Sequence[Path]) -> None:
    """Fit and write how like a prompt must be to what a rule corrected, or to an event."""
    document = json.loads(kinds_of_work.MODEL.read_bytes())
    pairs = [*rules_before(judged, silent)]
    document["standards"] = {"rules": fit_standard(pairs, STANDARD_LEAST)}
    pairs = [*intentions_before(judged, silent)]
    document["standards"]["intentions"] = fit_standard(pairs, INTENTION_LEAST)
    write(kinds_of_work.MODEL, document)
    kinds_of_work.kind_model.cache_clear()


def fit_standard(pairs: Sequence[tuple[Mapping[str, float], bool]], least: float) -> Any:
    """Return the weights of what speaks for a line, from pairs with whether it is wanted."""
    names = [*pairs[0][0]]
    table = np.array([[values[name] for name in names] for values, _ in pairs])
    is_like = np.array([like for _, like in pairs])
    weight = np.where(is_like, 0.5 / is_like.sum(), 0.5 / (~is_like).sum())
    fitting = newton(table, is_like, weight, np.full(len(names), STANDARD_PENALTY))
    likely = table @ fitting[:-1] + fitting[-1] > least
    right, wrong = likely[is_like].mean(), likely[~is_like].mean()
    print(f"wanted {right:.3f} of {is_like.sum()}, not {wrong:.4f}")
    weights = {name: round(float(w), 3) for name, w in zip(names, fitting, strict=False)}
    return {**weights, "bias": round(float(fitting[-1]), 3), "least": least}


def rules_before(
    judged: Sequence[Path], silent: Sequence[Path]
) -> Iterator[tuple[Mapping[str, float], bool]]:
    """Yield what speaks for each rule before each prompt, and whether it holds there."""
    for cases, unlike in tuned(judged):
        rules = [corrections.Rule(0, fact(c["no"]), 1, c["task"], c["did"]) for c in cases]
        asked = [*(case["then"] for case in cases), *unlike, *prompts(silent)]
        for number, prompt in enumerate(asked):
            for other, rule in enumerate(rules):
                yield corrections.likeness(prompt, rule), number == other


def intentions_before(
    judged: Sequence[Path], silent: Sequence[Path]
) -> Iterator[tuple[Mapping[str, float], bool]]:
    """Yield what speaks for each intention with an event before each prompt, and whether it is."""
    cases = intended(judged)
    known = [
        intentions.Intention(0, fact(c["say"]), intentions.read_trigger(c["say"], SAID_ON))
        for c in cases
    ]
    others = [prompt for _, unlike in tuned(judged) for prompt in unlike]
    tasks = [case["then"] for cases, _ in tuned(judged) for case in cases]
    asked = [*(case["then"] for case in cases), *others, *tasks, *prompts(silent)]
    for number, prompt in enumerate(asked):
        for other, intention in enumerate(known):
            if intention.trigger.event:
                yield intentions.nearness(prompt, intention), number == other


def fact(words: str) -> Fact:
    """Return a fact of a user's words, as a recall reads it."""
    source = Source(agent="a", session="s", entry="e")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    parts = {"subject": "user", "relation": CORRECTED, "value": words, "text": words}
    return Fact(id="f", timestamp=at, project="p", sources=(source,), **parts)


def write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=Path, nargs="*", default=())
    parser.add_argument("--silent", type=Path, nargs="*", default=())
    options = parser.parse_args()
    fit_turns(options.judged, options.silent)
    fit_kinds(options.judged)
    fit_standards(options.judged, options.silent)


if __name__ == "__main__":
    main()
