"""Fit what tells that a tool call is of the kind that a user's rule is about.

It learns from projects written for it (``scripts/call_reminders``): corrections with the calls that
they corrected, and later runs whose calls say which rules they are about and which they break.
``tune.jsonl`` is learned from; the authors of ``held.jsonl`` had seen neither it nor the model.

    python scripts/fit_call_reminders.py

records each project in a memory, prints what the reminders would have done, by weights fitted
without the project and then on ``held.jsonl``, and writes
``memtier_plugin/facts/call_reminders.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtier_plugin.facts.call_reminders import (
    FEATURES,
    MODEL,
    call_of,
    features,
    rarity_among,
    with_calls,
)
from memtier_plugin.ingest.messages import parse_messages
from memtier_plugin.ingest.user_acts import act_message, refusals
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.corrections import read_own_words, read_rules
from memtier_plugin.retrieval.visibility import view_of

FOLDER: Final = Path(__file__).parent / "call_reminders"
PENALTY: Final = 1.0
STEPS: Final = 40  # of Newton
REMINDERS: Final = 1 / 3  # a run, on the projects that are learned from

Weights = NDArray[np.float64]
Case = Mapping[str, Any]


class Pair(NamedTuple):
    """A call and a rule, whether the call is about it, and whether it breaks it."""

    project: str
    run: int
    call: int
    rule: str
    about: bool
    breaks: bool
    values: tuple[float, ...]


def read_projects(name: str) -> list[Case]:
    """Return the projects of a file, one a line."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]


def record(memory: MemTier, case: Case) -> None:
    """Record the sessions in which a project's rules were set."""
    for rule in case["rules"]:
        corrected = [{"role": "user", "content": rule["request"]}]
        for number, call in enumerate(rule["deed"]):
            made = {"id": str(number), "name": call["tool"], "arguments": _arguments(call)}
            corrected += [
                {"role": "assistant", "content": "", "tool_calls": [made]},
                {"role": "tool", "name": call["tool"], "tool_call_id": made["id"], "content": "ok"},
            ]
        last = rule["deed"][-1]
        words = rule["correction"] or "Thanks, next one."
        later = [
            {"role": "user", "content": words},
            {"role": "assistant", "content": "All right."},
        ]
        if rule.get("act") == "refused":
            corrected += [*refusals(last["tool"], last["input"], case["workspace"])]
        elif rule.get("act") == "undone":
            [refused] = refusals(last["tool"], last["input"], case["workspace"])
            edit = refused["content"].removeprefix("The user refused ").rstrip(".")
            later = [act_message(f"undid {edit.replace('would have', 'had')}"), *later]
        corrected.append({"role": "assistant", "content": rule["answer"]})
        for part, messages in enumerate((corrected, later)):
            run, session = f"{rule['id']}-{part}", rule["id"]
            memory.end_run(parse_messages(messages), session_id=session, run_id=run)
    memory.consolidate()


def _arguments(call: Case) -> str:
    return json.dumps(call["input"], ensure_ascii=False)


def read_pairs(case: Case) -> Iterator[Pair]:
    """Yield the calls of a project's runs, tools that only read apart, with each rule in force.

    The calls are judged as the product judges them, with what its rules' pass made of the sessions.
    """
    with TemporaryDirectory() as folder, MemTier.open(Path(folder), "p", "a") as memory:
        record(memory, case)
        with memory.store.session() as reader:
            viewer = view_of(memory.actor, memory.settings, None, memory.actor.clock())
            kept = read_rules(reader, read_own_words(reader, viewer))
        rules = [with_calls(rule, case["workspace"]) for rule in kept]
        rarity = rarity_among(rules)
        for number, run in enumerate(case["runs"]):
            for nth, made in enumerate(run["calls"]):
                call = call_of(made["tool"], _arguments(made), case["workspace"])
                for rule in rules if call and not call.only_reads else ():
                    name = rule.rule.deeds[0].session_id
                    values = features(call, run["prompt"], rule, rarity)
                    about, breaks = name in made["about"], name in made["breaks"]
                    yield Pair(case["name"], number, nth, name, about, breaks, values)


def fit(pairs: Sequence[Pair]) -> Weights:
    """Return the weights of the values and a bias: a ridged logistic regression of ``about``."""
    values = np.array([pair.values for pair in pairs])
    mean, spread = values.mean(axis=0), values.std(axis=0) + 1e-9
    x = np.column_stack([(values - mean) / spread, np.ones(len(pairs))])
    y = np.array([pair.about for pair in pairs], dtype=float)
    ridge = np.diag([PENALTY] * len(mean) + [1e-6])
    weights = np.zeros(x.shape[1])
    for _ in range(STEPS):
        likely = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (likely - y) + ridge @ weights
        curve = (x * (likely * (1 - likely))[:, None]).T @ x + ridge
        weights -= np.linalg.solve(curve, slope)
    of_values = weights[:-1] / spread
    return np.append(of_values, weights[-1] - of_values @ mean)


def odds_of(pairs: Sequence[Pair], weights: Weights) -> Weights:
    """Return the odds, as a logarithm, that each call is about its rule."""
    return np.array([pair.values for pair in pairs]) @ weights[:-1] + weights[-1]


def count(
    cases: Sequence[Case], pairs: Sequence[Pair], odds: Weights, least: float
) -> dict[str, int]:
    """Return what reminders above some odds do: at a call the likeliest rule, once a run."""
    calls: dict[tuple[str, int], dict[int, list[tuple[float, Pair]]]] = {}
    for pair, likely in zip(pairs, odds, strict=True):
        of_run = calls.setdefault((pair.project, pair.run), {})
        of_run.setdefault(pair.call, []).append((float(likely), pair))
    reminders: list[Pair] = []
    for of_run in calls.values():
        known: set[str] = set()
        for judged in of_run.values():
            likely, best = max(judged, key=lambda each: (each[0], each[1].rule))
            if likely > least and best.rule not in known:
                known.add(best.rule)
                reminders.append(best)
    runs = [(case["name"], n, run["calls"]) for case in cases for n, run in enumerate(case["runs"])]
    quiet = {(name, n) for name, n, made in runs if not any(call["about"] for call in made)}
    return {
        "runs": len(runs),
        "reminders": len(reminders),
        "about the call": sum(pair.about for pair in reminders),
        "calls that break a rule": sum(bool(c["breaks"]) for *_, made in runs for c in made),
        "reminded of it": sum(pair.breaks for pair in reminders),
        "runs that no rule is about": len(quiet),
        "disturbed": len(quiet & {(pair.project, pair.run) for pair in reminders}),
    }


def main() -> None:
    cases, held = read_projects("tune"), read_projects("held")
    pairs = [pair for case in cases for pair in read_pairs(case)]
    odds = np.zeros(len(pairs))
    for name in sorted({pair.project for pair in pairs}):
        is_own = np.array([pair.project == name for pair in pairs])
        rest = [pair for pair in pairs if pair.project != name]
        odds[is_own] = odds_of([pair for pair in pairs if pair.project == name], fit(rest))
    most = REMINDERS * sum(len(case["runs"]) for case in cases)
    least = min(t for t in odds if count(cases, pairs, odds, t)["reminders"] <= most)
    print("without the project", json.dumps(count(cases, pairs, odds, least)))
    weights = fit(pairs)
    unseen = [pair for case in held for pair in read_pairs(case)]
    print("held", json.dumps(count(held, unseen, odds_of(unseen, weights), least)))
    model = {
        "weights": {name: round(float(w), 4) for name, w in zip(FEATURES, weights, strict=False)},
        "bias": round(float(weights[-1]), 4),
        "least": round(float(least), 4),
    }
    MODEL.write_text(json.dumps(model, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
