"""Fit the coefficients by which an older line counts as replaced by a later one.

Pairs are made by rule from several sources, each weighing the same:

- ``tests/retrieval/replacements.yaml``, one source for each language: the older and the later line
  of a change, and as unchanged pairs all other lines of the language that share a word;
- a set of changes in the shape of the judgement sets (`currency.yaml`, optional);
- conversations in which hardly anything changes (`--locomo`, `--beam`, `--sets`): of the lines that
  each question finds, all pairs count as unchanged.

The coefficients minimise the weighted logistic loss with a small penalty, by Newton's method.

    python scripts/fit_replacement.py --changes currency.yaml --locomo locomo.json --sets FOLDER

prints for each source, with coefficients fitted without it, how many changes are recognised and how
many unchanged pairs are not, and writes ``memtier_plugin/retrieval/replacement.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from memtier_plugin.bench.datasets import Dataset, load_dataset, load_sets
from memtier_plugin.bench.retrieval import BenchRun
from memtier_plugin.core.records import Entry, Role, count_tokens
from memtier_plugin.core.results import Hit
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval import replacement
from memtier_plugin.retrieval.replacement import Pair, find_pairs
from memtier_plugin.text.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent
CASES = ROOT / "tests" / "retrieval" / "replacements.yaml"
MODEL = Path(replacement.__file__).with_name("replacement.json")
FIRST_DAY = datetime(2026, 1, 5, 9, tzinfo=UTC)
PENALTY, STEPS = 0.06, 40
QUESTIONS, PAIRS = 200, 20  # of each conversation set; of each question


@dataclass(slots=True)
class Source:
    """The pairs of one source: features, and whether the later line replaces the older."""

    name: str
    rows: list[Mapping[str, float]] = field(default_factory=list)
    labels: list[bool] = field(default_factory=list)
    # Unchanged pairs that sound like a change weigh as much as all others.
    hard: list[bool] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    # Changes that made no pair at all, and can never be recognised.
    missing: int = 0

    def add(self, pair: Pair, *, changed: bool, hard: bool = False) -> None:
        """Add a pair."""
        self.hard.append(hard)
        self.rows.append(pair.features)
        self.labels.append(changed)
        self.texts.append((pair.old.text, pair.new.text))


def entry_hit(text: str, day: int, role: Role = "user", speaker: str | None = None) -> Hit:
    """Return a line as a hit."""
    name = f"{day:04d}{abs(hash(text)) % 10**8:08d}"
    entry = Entry(
        id=name,
        timestamp=FIRST_DAY + timedelta(days=day),
        session_id=f"s{day}",
        project="p",
        content=text,
        tokens=count_tokens(text),
        agent_id="main",
        run_id=name,
        turn=1,
        role=role,
        origin="assistant" if role == "assistant" else "user",
        observed_at=FIRST_DAY + timedelta(days=day),
        speaker=speaker,
        key=name,
    )
    return Hit(item=entry, score=1.0, signals={}, sources=(entry.source,))


def spoken_hit(line: str, day: int) -> Hit:
    """Return a line of the cases as a hit: "ann: ..." is ann's."""
    who, colon, text = line.partition(": ")
    if not colon or not (who.isalpha() and who.islower()):
        return entry_hit(line, day)
    return (
        entry_hit(text, day, "assistant")
        if who == "assistant"
        else entry_hit(text, day, "user", who)
    )


def query_weights(query: str, hits: Sequence[Hit], tokenizer: Tokenizer) -> dict[str, float]:
    """Return the index words of a query with their idf among the lines."""
    counts = Counter(term for hit in hits for term in set(tokenizer.words(hit.text)))
    lines = len(hits)
    return {
        term: math.log(1 + (lines - counts[term] + 0.5) / (counts[term] + 0.5))
        for term in set(tokenizer.words(query))
        if counts[term]
    }


def made_up_sources(tokenizer: Tokenizer) -> Iterator[Source]:
    """Yield the pairs of the made-up cases, a source for each language."""
    for language, block in yaml.safe_load(CASES.read_text(encoding="utf-8")).items():
        source = Source(language)
        cases = [(*case, True) for case in block["changed"]]
        cases += [(*case, False) for case in block["unchanged"]]
        for number, (older, later, ask, changed) in enumerate(cases):
            rest = [case for case in cases if case[2] != ask]
            random.Random(number).shuffle(rest)
            hits = [spoken_hit(older, 10), spoken_hit(later, 40)]
            others = [spoken_hit(case[0], 9) for case in rest[:10]]
            others += [spoken_hit(case[1], 39) for case in rest[10:20]]
            hits += others
            own, nothing = {(hits[0].id, hits[1].id)}, set[tuple[str, str]]()
            changes, hard = (own, nothing) if changed else (nothing, own)
            add_pairs(source, hits, ask, tokenizer, changes, hard=hard)
        yield source


def changes_source(path: Path, tokenizer: Tokenizer) -> Source:
    """Return the pairs of a file of changes."""
    source = Source("changes")
    cases = yaml.safe_load(path.read_text(encoding="utf-8"))["cases"]

    def has(text: str, values: Iterable[str]) -> bool:
        return any(part.casefold() in text.casefold() for v in values for part in v.split("|"))

    for number, case in enumerate(cases):
        hits: list[Hit] = []
        values: dict[str, int] = {}
        for session, (_, *turns) in enumerate(case["history"]):
            for turn in turns:
                who, words = next(iter(turn.items()))
                if who == "tool":
                    continue
                role: Role = "assistant" if who == "assistant" else "user"
                speaker = None if who in ("user", "assistant") else who
                hits.append(entry_hit(words, 20 * session, role, speaker))
                if has(words, case["now"]):
                    values[hits[-1].id] = len(case["old"])
                else:
                    old = [n for n, value in enumerate(case["old"]) if has(words, [value])]
                    values |= {hits[-1].id: old[-1]} if old else {}
        other = cases[(number + 7) % len(cases)], cases[(number + 15) % len(cases)]
        for case_of in other:
            for session, (_, *turns) in enumerate(case_of["history"]):
                hits += [entry_hit(next(iter(t.values())), 20 * session + 1) for t in turns]
        changed = {(a, b) for a, was in values.items() for b, now in values.items() if was < now}
        latest = {(a, b) for a, b in changed if values[b] == len(case["old"])}
        add_pairs(source, hits, case["ask"], tokenizer, changed, latest)
    return source


def add_pairs(
    source: Source,
    hits: Sequence[Hit],
    ask: str,
    tokenizer: Tokenizer,
    changed: set[tuple[str, str]],
    needed: set[tuple[str, str]] | None = None,
    hard: set[tuple[str, str]] | None = None,
) -> None:
    """Add the pairs of lines; of a changed one only its likeliest statements."""
    seen = set()
    for pair in find_pairs(hits, query_weights(ask, hits, tokenizer), tokenizer):
        key = pair.older.id, pair.later.id
        source.add(pair, changed=key in changed, hard=key in (hard or ()))
        seen.add(key)
    source.missing += len((needed if needed is not None else changed) - seen)


def conversation_source(loaded: Dataset) -> Source:
    """Return the pairs among what questions on conversations find: all count as unchanged."""
    source = Source(loaded.name)
    bench = BenchRun(loaded=loaded, facts="none", progress=lambda what, done, total: None)
    draw = random.Random(0)
    each = max(2, QUESTIONS // max(1, len(loaded.conversations)))
    with tempfile.TemporaryDirectory() as home:
        for conversation in loaded.conversations:
            with MemTier.open(Path(home), conversation.id) as memory:
                bench.record(memory, conversation)
                questions = [*conversation.questions]
                for question in draw.sample(questions, min(each, len(questions))):
                    hits = memory.recall(question.text, at=question.at).hits[:20]
                    tokenizer = Tokenizer()
                    weights = query_weights(question.text, hits, tokenizer)
                    pairs = [*find_pairs(hits, weights, tokenizer)]
                    for pair in draw.sample(pairs, min(PAIRS, len(pairs))):
                        source.add(pair, changed=False)
    return source


def fit(sources: Sequence[Source], names: Sequence[str]) -> np.ndarray:
    """Return the coefficients; each source's changes and unchanged pairs weigh the same."""
    rows, labels, weights = [], [], []
    for source in sources:
        values = np.array([[row[name] for name in names] for row in source.rows])
        label = np.array(source.labels, dtype=float)
        hard = np.array(source.hard)
        for mask, weight in ((label == 1, 1.0), (hard, 0.5), ((label == 0) & ~hard, 0.7)):
            if mask.any():
                rows.append(values[mask])
                labels.append(label[mask])
                weights.append(np.full(int(mask.sum()), weight / mask.sum()))
    x, y, w = np.vstack(rows), np.concatenate(labels), np.concatenate(weights)
    w /= w.sum()
    beta = np.zeros(len(names))
    ridge = np.full(len(names), PENALTY / 20)
    ridge[names.index("one")] = 0.0
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ beta, -30, 30)))
        gradient = x.T @ (w * (p - y)) + ridge * beta
        curve = (x * (w * p * (1 - p))[:, None]).T @ x + np.diag(ridge + 1e-9)
        beta -= np.linalg.solve(curve, gradient)
    return beta


def report(source: Source, names: Sequence[str], beta: np.ndarray, least: float) -> dict[str, Any]:
    """Return how many changes are recognised, and how many unchanged pairs are not."""
    x = np.array([[row[name] for name in names] for row in source.rows])
    p = 1 / (1 + np.exp(-(x @ beta)))
    label = np.array(source.labels)
    changed = int(label.sum()) + source.missing
    return {
        "changes": changed,
        "recognised": round(float((p[label] >= least).sum()) / changed, 3) if changed else None,
        "unchanged": int((~label).sum()),
        "wrong": round(float((p[~label] >= least).mean()), 4) if (~label).any() else None,
        "hard": sum(source.hard),
        "hard_wrong": int((p[np.array(source.hard)] >= least).sum()),
    }


def main() -> None:
    """Fit, report, and write the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=Path)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--beam", type=Path)
    parser.add_argument("--sets", type=Path, nargs="*", default=[])
    parser.add_argument("--mark", type=float, default=0.5)
    parser.add_argument("--verbose", action="store_true", help="list what goes wrong")
    given = parser.parse_args()
    tokenizer = Tokenizer()
    sources = [*made_up_sources(tokenizer)]
    if given.changes:
        sources.append(changes_source(given.changes, tokenizer))
    paths = {name: getattr(given, name) for name in ("locomo", "beam")}
    sources += [conversation_source(load_dataset(name, p)) for name, p in paths.items() if p]
    for path in given.sets:
        sources += [conversation_source(loaded) for loaded in load_sets(path)]
    names = [*sources[0].rows[0]]
    for source in sources:
        beta = fit([other for other in sources if other is not source], names)
        print(f"{source.name:14}", json.dumps(report(source, names, beta, given.mark)))
        if given.verbose:
            _list_errors(source, names, beta, given.mark)
    beta = fit(sources, names)
    weights = {name: round(float(value), 3) for name, value in zip(names, beta, strict=True)}
    document = {"weights": weights, "mark": given.mark}
    MODEL.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(weights))


def _list_errors(source: Source, names: Sequence[str], beta: np.ndarray, least: float) -> None:
    for row, changed, texts in zip(source.rows, source.labels, source.texts, strict=True):
        p = 1 / (1 + math.exp(-sum(row[n] * b for n, b in zip(names, beta, strict=True))))
        if (p >= least) != changed:
            print(
                "   ",
                "missed" if changed else "WRONG ",
                round(p, 2),
                *(t[:90] for t in texts),
                sep=" | ",
            )


if __name__ == "__main__":
    main()
