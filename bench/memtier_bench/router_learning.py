"""Train the router on what facts and log each achieve, and compare on held-out conversations.

`memtier bench table tiermem-3`, `tiermem-13` and `tiermem-14`: counterparts of TierMem's tables on
training and on escalated questions.  A route is right if it shows every gold turn; no model reads,
so the router costs no tokens.  `memtier learn router` applies the better policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.datasets import Conversation
from memtier_bench.metrics import mean
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import (
    BenchRun,
    RecordedConversation,
    dataset_fingerprint,
    prepare_dataset,
)
from memtier_bench.router_policy import (
    HARD_TIMES,
    RoutedCase,
    train_by_labels,
    train_by_rewards,
)
from memtier_bench.tree_export import Row, write_rows
from memtier_papers.tiermem.router_reward import repair_and_regress, route_label
from memtier_papers.tiermem.settings import RouterDoubts
from memtier_plugin.answering.llm import route_request
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.results import Route
from memtier_plugin.credit.verdict import paired_difference
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.prompting import load_prompt

TABLES: Final[Mapping[str, str]] = {
    "tiermem-3": "training strategies of the router",
    "tiermem-13": "both ways, of what the hand-set router escalates",
    "tiermem-14": "both ways, of what the trained router escalates",
}
HAND, SFT, GRPO = "hand-set", "SFT", "SFT + GRPO"
_ALWAYS: Final = 100.0  # a limit that no sum of doubts exceeds
_SEED: Final = 42
_ROUNDED: Final = 1e-4  # rounding of an average

_Exported = tuple[RoutedCase, list[dict[str, str]], Route]


def run_router_learning(
    table: str,
    data: Path,
    dataset: str | None = None,
    facts: str = "dataset",
    sample: int | None = None,
    progress: Progress | None = None,
    limit: int | None = None,
    export: Path | None = None,
) -> dict[str, Any]:
    """Train on all conversations but one, in turn, and judge on that one; return a JSON report.

    Args:
        table: one of `TABLES`: the part of the report to show.
        export: also write `sft.jsonl` and `grpo.jsonl` to this folder.
        data, dataset, facts, sample, limit, progress: as for `run_retrieval`.

    Raises:
        Unsupported: there is only one conversation, there are no facts, or all labels are equal.
        ImportFileError: as by `run_retrieval`.
    """
    source = dataset or "locomo"
    if facts == "none":
        raise Unsupported("a router decides between facts and the log: it needs facts")
    loaded = prepare_dataset(source, data, facts, limit, sample)
    run = BenchRun(loaded=loaded, facts=facts, progress=progress or no_progress)
    rows: list[_Exported] = []
    for memory, conversation, recorded in run.recorded_conversations({}):
        rows += label_questions(memory, conversation, recorded, run.count_asked)
    cases = [case for case, _, _ in rows]
    policies = train_by_folds(cases)
    report = {
        "kind": "router_learning",
        "dataset": source,
        "table": table,
        "title": TABLES[table],
        "facts": facts,
        "facts_stored": run.facts_stored,
        "questions": len(cases),
        "conversations": len({case.conversation for case in cases}),
        **compare_policies(cases, policies),
        "trained": asdict(train_doubts(cases)),
        "exported": export_router(export, rows) if export else {},
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }
    return report


def train_doubts(cases: Sequence[RoutedCase]) -> RouterDoubts:
    """Return the doubts trained by labels, then by rewards."""
    return train_by_rewards(cases, train_by_labels(cases), _SEED)


_Policies = Mapping[str, Mapping[str, RouterDoubts]]  # by name, by the conversation held out


def train_by_folds(cases: Sequence[RoutedCase]) -> _Policies:
    """Return each policy for each conversation, trained on the others.

    Raises:
        Unsupported: there is only one conversation, or its labels are all equal.
    """
    names = list(dict.fromkeys(case.conversation for case in cases))
    if len(names) < 2:
        raise Unsupported(
            "these questions are about one conversation; a router is measured on conversations "
            "that it was not trained on"
        )
    policies: dict[str, dict[str, RouterDoubts]] = {HAND: {}, SFT: {}, GRPO: {}}
    for name in names:
        rest = [case for case in cases if case.conversation != name]
        first = train_by_labels(rest)
        policies[HAND][name] = RouterDoubts()
        policies[SFT][name] = first
        policies[GRPO][name] = train_by_rewards(rest, first, _SEED)
    return policies


def compare_policies(cases: Sequence[RoutedCase], policies: _Policies) -> dict[str, Any]:
    """Return each policy's decisions and rewards on its held-out conversations."""
    hand = [case.reward(case.action(policies[HAND][case.conversation])) for case in cases]
    actions: dict[str, list[str]] = {
        "always facts": ["S" if case.amounts else "R" for case in cases],
        "always the log": ["R"] * len(cases),
        **{
            name: [case.action(by_fold[case.conversation]) for case in cases]
            for name, by_fold in policies.items()
        },
    }
    least = mean([case.recall[action] for case, action in zip(cases, actions[HAND], strict=True)])
    strategies = {}
    for name, chosen in actions.items():
        row = judge_actions(cases, chosen)
        earned = [case.reward(action) for case, action in zip(cases, chosen, strict=True)]
        gain = paired_difference(earned, hand)
        row["against_hand"] = {
            "difference": round(gain.mean, 4),
            "low": round(gain.low, 4),
            "high": round(gain.high, 4),
        }
        if name in policies:
            row["tokens_at_equal_recall"] = tokens_at_recall(cases, policies[name], least)
        strategies[name] = row
    return {"strategies": strategies, "equal_recall": least}


def judge_actions(cases: Sequence[RoutedCase], actions: Sequence[str]) -> dict[str, Any]:
    """Return the figures of TierMem's Table 3, and the counts of its Tables 13 and 14."""
    pairs = [*zip(cases, actions, strict=True)]
    hard = [action for case, action in pairs if route_label(case.s_right, case.r_right) == "R"]
    escalated = [case for case, action in pairs if action == "R"]
    caught = hard.count("R")
    precision = caught / len(escalated) if escalated else 0.0
    recall = caught / len(hard) if hard else 0.0
    counts = {
        f"{'S' if s else 's'}{'R' if r else 'r'}": sum(
            case.s_right == s and case.r_right == r for case in escalated
        )
        for s in (True, False)
        for r in (True, False)
    }
    repair, regress = repair_and_regress(counts)
    return {
        "escalated": mean([action == "R" for action in actions]),
        "hard_recall": round(recall, 4),
        "f1": round(2 * precision * recall / (precision + recall), 4) if caught else 0.0,
        "right": mean([case.recall[action] == 1 for case, action in pairs]),
        "reward": round(sum(case.reward(action) for case, action in pairs) / len(pairs), 4),
        "injected_recall": mean([case.recall[action] for case, action in pairs]),
        "tokens": mean([case.tokens[action] for case, action in pairs]),
        "counts": counts,
        "repair_rate": round(repair, 4),
        "regress_rate": round(regress, 4),
    }


def tokens_at_recall(
    cases: Sequence[RoutedCase], by_fold: Mapping[str, RouterDoubts], least: float
) -> float | None:
    """Return the fewest mean tokens at which a shifted limit still reaches that injected recall."""
    order = sorted(cases, key=lambda case: -case.score(by_fold[case.conversation]))
    recall = sum(case.recall["S" if case.amounts else "R"] for case in order)
    tokens = sum(case.tokens["S" if case.amounts else "R"] for case in order)
    best: float | None = None
    for case in [None, *order]:
        if case is not None and case.amounts:
            recall += case.recall["R"] - case.recall["S"]
            tokens += case.tokens["R"] - case.tokens["S"]
        if recall / len(order) >= least - _ROUNDED:
            best = min(tokens / len(order), best if best is not None else tokens)
    return None if best is None else round(best, 1)


def label_questions(
    memory: MemTier,
    conversation: Conversation,
    recorded: RecordedConversation,
    count: Callable[[], None],
) -> list[_Exported]:
    """Ask each question twice: always trusting the facts, and never."""
    system = {"role": "system", "content": load_prompt("route").text}
    rows = []
    with _open_with_limit(memory, _ALWAYS) as trusting, _open_with_limit(memory, -_ALWAYS) as wary:
        for question in filter(lambda asked: asked.gold, conversation.questions):
            recall, tokens = {}, {}
            for action, opened in (("S", trusting), ("R", wary)):
                routed = opened.recall(question.text, at=question.at, depth="auto")
                shown = set(recorded.turns(routed.injected)) & question.gold
                recall[action] = len(shown) / len(question.gold)
                tokens[action] = routed.tokens
            route = routed.route
            assert route is not None
            facts = memory.recall(question.text, at=question.at, depth="facts").injected
            user = {"role": "user", "content": route_request(question.text, facts)}
            case = RoutedCase(question.id, conversation.id, route.amounts, recall, tokens)
            rows.append((case, [system, user], route))
            count()
    return rows


def _open_with_limit(memory: MemTier, limit: float) -> MemTier:
    settings = memory.settings.having(replace(memory.settings.of(RouterDoubts), limit=limit))
    return MemTier.open(memory.home, memory.project, memory.agent_id, settings)


def export_router(folder: Path, rows: Sequence[_Exported]) -> dict[str, int]:
    """Write `sft.jsonl` and `grpo.jsonl` in trl's format; return the row count of each.

    SFT has the questions whose label the hand-set router, the teacher, agrees with; its reasons are
    the thinking.  GRPO has those that the log answers, the hard ones several times.

    Raises:
        LedgerWriteError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sft: list[Row] = []
    grpo: list[Row] = []
    hand = RouterDoubts()
    for case, prompt, route in rows:
        label = route_label(case.s_right, case.r_right)
        if label and label == case.action(hand):
            reply = json.dumps({"thinking": "; ".join(route.why), "action": label})
            sft.append({"prompt": prompt, "completion": [{"role": "assistant", "content": reply}]})
        if case.r_right:
            row: Row = {"prompt": prompt, "s_right": case.s_right, "r_right": True}
            grpo += [row] * (1 if case.s_right else HARD_TIMES)
    write_rows(folder / "sft.jsonl", sft)
    write_rows(folder / "grpo.jsonl", grpo)
    return {"sft.jsonl": len(sft), "grpo.jsonl": len(grpo)}
