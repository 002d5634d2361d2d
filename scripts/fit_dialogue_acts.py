"""Fit the model that tells what a user's turn does.

It learns from turns written for it, none of them anybody's (``scripts/dialogue_acts``):

- ``turns.jsonl``, ``software.jsonl``, ``everyday.jsonl``, ``trades.jsonl``: what is said after an
  assistant's turn, with the request and the deed that it answers, and prompts for which it matters
  (``then``);
- ``sessions.jsonl``: corrections with the request and with later tasks, and what else is said in
  the middle of a session;
- ``prompts.jsonl``: prompts that ask for work of one's own, and that do not;
- ``questions.jsonl``: questions that ask for work ("could you ...?"), and those that do not;
- ``again.jsonl``: corrections that say that they were made before, and that only look like it;
- ``later.jsonl``: prompts that ask what there is to be done, and that look like it; wishes for the
  next session, and for an event or a day, and requests and statements that look like these;
- the cases of ``bench/memtier_bench/corrections/work.yaml`` of even number;
- judgement sets (`--judged`, folders with `work.yaml`, `silence.yaml` and the like).

    python scripts/fit_dialogue_acts.py --judged FOLDER ...

prints what share of each file is told right by models fitted without these lines, then by models
fitted without this file, and writes ``memtier_plugin/retrieval/dialogue_acts.json``.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import numpy as np
import yaml
from numpy.typing import NDArray

from memtier_bench.silence_prompts import load_generic_prompts
from memtier_plugin.retrieval import dialogue_acts, worth
from memtier_plugin.retrieval.dialogue_acts import Act
from scripts.fit_worth import judged_sentences, own_sentences

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "scripts" / "dialogue_acts"
OWN: Final = ROOT / "bench" / "memtier_bench" / "corrections" / "work.yaml"
FILES: Final = ("turns", "software", "everyday", "trades", "prompts")
ACTS: Final[tuple[Act, ...]] = get_args(Act)
# Acts that are learned from a file of their own, too; it changes no other act.
MORE: Final[Mapping[str, tuple[Act, ...]]] = {
    "later": ("intention", "due", "session"),
    "again": ("again",),
    "sessions": ("rule", "withdrawal", "closing", "work"),
    "questions": ("asked",),
}
PENALTIES: Final = {"work": 0.01}  # of any other act
PENALTY: Final = 0.001
ELSEWHERE: Final = 0.3  # weight of what was said where nothing was corrected
# Weights, for work, of tasks written with corrections, of what needs no memory, and of statements.
WORK: Final = {"work prompt": 0.05, "other prompt": ELSEWHERE, "statement": 0.05}
FOLDS: Final = 5
# An intention and what is due interrupt, a withdrawal and a closing end something; of any other
# act 1.
FALSE_COSTS: Final = {"intention": 5.0, "withdrawal": 3.0, "closing": 2.0, "due": 2.0}
STEPS: Final = 15
CONJUGATE: Final = 80
SELDOM: Final = 3  # texts that a feature must be in
SLIGHT: Final = 0.04  # a weight that changes no score by much
Case = Mapping[str, Any]
Table = NDArray[np.float64]  # shape (rows, acts)
Vector = NDArray[np.float64]


class Row(NamedTuple):
    """A text with its act; one of "request" and "other" is not any of the acts of a turn."""

    text: str
    act: str
    file: str


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def read_lines(name: str) -> list[Case]:
    lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def own_cases(judged: Sequence[Path]) -> list[tuple[str, Mapping[str, Sequence[Case]]]]:
    """Return the sets of cases to fit on: our own of even number, and those of the folders."""
    own = {kind: cases[::2] for kind, cases in read(OWN).items()}
    files = [(folder.name, folder / "work.yaml") for folder in judged]
    return [("own", own), *((name, read(path)) for name, path in files if path.exists())]


def labelled(judged: Sequence[Path]) -> Iterator[Row]:
    """Yield what is fitted on."""
    for name in FILES:
        for case in read_lines(name):
            is_prompt = name == "prompts"
            yield Row(case["text"], case["act"] if not is_prompt else f"{case['act']} prompt", name)
            yield from tasks_of(case, name)
    for name, cases in own_cases(judged):
        for case in cases["corrections"]:
            yield Row(case["no"], "rule", name)
            yield Row(case["task"], "work prompt", name)
            yield Row(case["then"], "work prompt", name)
            if "done" in case:
                yield Row(case["done"], "withdrawal", name)
        for case in cases["intentions"]:
            yield Row(case["say"], "intention", name)
            if "done" in case:
                yield Row(case["done"], "closing", name)
        for case in cases.get("passing", ()):
            yield Row(case["no"], "other", name)
        for text in cases["unlike"]:
            yield Row(text, "other prompt", name)
    for text in (*silent(judged), *(prompt.text for prompt in load_generic_prompts())):
        yield Row(text, "other prompt", "silent")
    for sentence in (*own_sentences(), *(s for f in judged for s in judged_sentences(f))):
        yield Row(sentence.text, "statement", "statements")
    for file, case in ((more, case) for more in MORE for case in read_lines(more)):
        is_prompt = file == "questions" or (
            file == "later" and case["act"] in ("due", "other", "request")
        )
        yield Row(case["text"], f"{case['act']} prompt" if is_prompt else case["act"], file)
        yield from tasks_of(case, file)


def tasks_of(case: Case, file: str) -> Iterator[Row]:
    """Yield the tasks that a correction is written with."""
    for request in (case.get("request"), *case.get("then", ()), *case.get("unlike", ())):
        if request and case["act"] == "rule":
            yield Row(request, "work prompt", file)


def silent(judged: Sequence[Path]) -> list[str]:
    """Return the prompts of the judgement sets that need no memory."""
    files = [folder / "silence.yaml" for folder in judged]
    return [text for f in files if f.exists() for g in read(f)["silent"] for text in g["say"]]


def weights_of(rows: Sequence[Row]) -> Table:
    """Return how much each row weighs for each act, shape (rows, acts).

    An assistant's turn is most often followed by the next task, which is none of the acts of a
    correction.  An intention may be in any sentence.  Work is learned above all from prompts
    written in pairs of like topics and lengths: other prompts tell the sets apart, not the acts.
    What is due is asked in prompts, and only an intention waits for a session.
    """
    weights = np.zeros((len(rows), len(ACTS)))
    names: tuple[Act, ...] = ("work", "intention", "due", "session", "again", "asked")
    work, intention, due, session, again, asked = map(ACTS.index, names)
    acts: tuple[Act, ...] = ("rule", "withdrawal", "closing")
    after = [ACTS.index(act) for act in acts]
    for number, row in enumerate(rows):
        if row.act.endswith("prompt"):
            weights[number, intention] = 1.0 if row.file == "later" else ELSEWHERE
            weights[number, after] = ELSEWHERE * (
                row.act == "work prompt" and row.file != "prompts"
            )
            written = 1.0 if row.file == "prompts" else 0.0
            weights[number, work] = written or WORK.get(row.act, 0.0)
            looks_due = row.file == "later" and row.act != "request prompt"
            weights[number, due] = 1.0 if looks_due else ELSEWHERE
            weights[number, asked] = float(row.file == "questions")
        elif row.act == "statement":
            weights[number, intention] = ELSEWHERE / 3
            weights[number, work] = WORK[row.act]
        else:
            weights[number] = float(row.file not in MORE or row.file == "sessions")
            weights[number, [work, due, asked]] = 0.0
            weights[number, intention] = float(row.file != "again")
            weights[number, session] = float(row.act in ("intention", "session"))
            weights[number, again] = 1.0 if row.file == "again" else ELSEWHERE
    return weights


def targets_of(rows: Sequence[Row]) -> Table:
    """Return whether each row is each act, shape (rows, acts); some wait for the next session."""
    names = [row.act.removesuffix(" prompt") for row in rows]
    acts = [{name, "intention"} if name == "session" else {name} for name in names]
    return np.array([[act in each for act in ACTS] for each in acts], np.float64)


class Design(NamedTuple):
    """Rows of features: words and pairs of words are few in each, all others are dense."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    width: int
    dense: Table  # shape (rows, features), a constant last

    def __matmul__(self, weights: Vector) -> Vector:  # type: ignore[override]
        sparse = np.bincount(self.row, weights[self.column], len(self.dense))
        return sparse + self.dense @ weights[self.width :]

    def back(self, values: Vector) -> Vector:
        """Return the product of the transposed table and a value for each row."""
        sparse = np.bincount(self.column, values[self.row], self.width)
        return np.concatenate([sparse, self.dense.T @ values])

    def of(self, chosen: NDArray[np.bool_]) -> Design:
        """Return some of the rows."""
        position, kept = np.cumsum(chosen) - 1, chosen[self.row]
        return self._replace(
            row=position[self.row[kept]], column=self.column[kept], dense=self.dense[chosen]
        )


def read_features(rows: Sequence[Row]) -> tuple[list[str], Design]:
    """Return the names of all features but those of the vector, and the design."""
    texts = [dialogue_acts.features(row.text) for row in rows]
    counts = Counter(name for values in texts for name in values)
    common = sorted(name for name, count in counts.items() if count >= SELDOM)
    grams = [name for name in common if is_gram(name)]
    others = [name for name in common if not is_gram(name)]
    index = {name: at for at, name in enumerate(grams)}
    cells = [(n, index[name]) for n, values in enumerate(texts) for name in values if name in index]
    row, column = np.array(cells, np.int64).T
    dense = [
        [*(values.get(name, 0.0) for name in others), *worth.vector(of.text), 1.0]
        for values, of in zip(texts, rows, strict=True)
    ]
    return [*grams, *others], Design(row, column, len(grams), np.array(dense))


def is_gram(name: str) -> bool:
    return name.startswith(("= ", "^ ", "words "))


def fit(design: Design, targets: Table, weights: Table) -> Table:
    """Return the coefficients of each act, shape (features, acts)."""
    columns = zip(ACTS, targets.T, weights.T, strict=True)
    return np.array(
        [
            fit_act(design.of(weight > 0), target[weight > 0], weight[weight > 0], penalty)
            for act, target, weight in columns
            for penalty in [PENALTIES.get(act, PENALTY)]
        ]
    ).T


def fit_act(design: Design, target: Vector, weight: Vector, strength: float) -> Vector:
    """Return coefficients of least penalised loss, by Newton's steps of conjugate gradients."""
    size = design.width + design.dense.shape[1]
    penalty, fitted = np.full(size, strength), np.zeros(size)
    if not weight.any():  # learned from other files alone
        return fitted
    weight = weight / weight.sum()
    penalty[-1] = 1e-6
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-(design @ fitted)))
        slope = design.back(weight * (chance - target)) + penalty * fitted
        curve = weight * chance * (1 - chance)
        step, rest = np.zeros(size), slope.copy()
        ahead, left = rest.copy(), float(rest @ rest)
        for _ in range(CONJUGATE):
            bent = design.back(curve * (design @ ahead)) + penalty * ahead
            far = left / float(ahead @ bent)
            step += far * ahead
            rest -= far * bent
            left, before = float(rest @ rest), left
            if left < 1e-14:
                break
            ahead = rest + left / before * ahead
        fitted -= step
        if np.abs(step).max() < 1e-3:
            break
    return fitted


def standards(scores: Table, targets: Table, weights: Table) -> list[float]:
    """Return the log-odds of each act above which most is told right on both sides."""
    least = []
    for act in range(len(ACTS)):
        is_act, weight = targets[:, act] > 0, weights[:, act] == 1.0
        sides = [(side & weight) / max(1, np.sum(side & weight)) for side in (is_act, ~is_act)]
        steps = np.arange(-3, 1.5, 0.1)
        cost = FALSE_COSTS.get(ACTS[act], 1.0)
        right = [
            sides[0] @ (scores[:, act] > x) + cost * sides[1] @ (scores[:, act] <= x) for x in steps
        ]
        least.append(float(steps[int(np.argmax(right))]))
    return least


def fit_turns(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the fitted model of each act; print how it does on files that it did not see."""
    names, design = read_features(rows)
    targets, weights = targets_of(rows), weights_of(rows)
    files = np.array([row.file for row in rows])
    folds = np.random.default_rng(1).integers(0, FOLDS, len(rows))
    scores = score_unseen(design, targets, weights, folds)
    least = standards(scores, targets, weights)
    least[ACTS.index("session")] = 0.0  # even odds: its lines are too few to choose by
    for file in dict.fromkeys(files):
        report(file, *(part[files == file] for part in (scores - least, targets, weights)))
    for file in ("software", "everyday"):
        unseen = np.where(files == file, 0, -1)
        left_out = score_unseen(design, targets, weights, unseen) - least
        parts = (part[files == file] for part in (left_out, targets, weights))
        report(f"{file} alone", *parts)
    fitted = fit(design, targets, weights)
    document: dict[str, Any] = {}
    for number, act in enumerate(ACTS):
        column = [round(float(x), 2) for x in fitted[:, number]]
        named = {name: x for name, x in zip(names, column, strict=False) if abs(x) >= SLIGHT}
        document[act] = {
            "bias": column[-1],
            "least": round(least[number], 2),
            "weights": named,
            "vector": column[len(names) : -1],
        }
    return document


def score_unseen(design: Design, targets: Table, weights: Table, folds: NDArray[np.int64]) -> Table:
    """Return the log-odds of each fold's rows by a model of all others; -1 is no fold."""
    scores = np.zeros_like(targets)
    for number in range(folds.max() + 1):
        unseen = folds == number
        fitted = fit(design.of(~unseen), targets[~unseen], weights[~unseen])
        scores[unseen] = np.array([design.of(unseen) @ column for column in fitted.T]).T
    return scores


def report(name: str, scores: Table, targets: Table, weights: Table) -> None:
    """Print what share of an act's texts, and of all others, is told right."""
    for number, act in enumerate(ACTS):
        counts = weights[:, number] == 1.0
        shares = []
        for is_act in (True, False):
            side = counts & ((targets[:, number] > 0) == is_act)
            right = (scores[side, number] > 0) == is_act
            shares.append(f"{right.mean():.2f} of {side.sum()}" if side.any() else "none")
        if "none" not in shares:
            print(f"{name:15} {act:11} known {shares[0]}, others left {shares[1]}", flush=True)


def write(document: Mapping[str, Any]) -> None:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    dialogue_acts.MODEL.write_text(text + "\n")
    dialogue_acts._model.cache_clear()
    dialogue_acts.odds.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=Path, nargs="*", default=())
    options = parser.parse_args()
    rows = [*labelled(options.judged)]
    document = fit_turns([row for row in rows if row.file not in MORE])
    for name, acts in MORE.items():
        fitted = fit_turns([row for row in rows if row.file == name or row.file not in MORE])
        document |= {act: fitted[act] for act in acts}
    write(document)


if __name__ == "__main__":
    main()
