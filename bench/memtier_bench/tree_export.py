"""Write search trees, and the operations they credit, as rows for trainers.

`retrieval.jsonl`: a row per call, with the prompt that a model would see, the call, its advantage
and its log probability.  `construction.jsonl`: a row for each operation that wrote memory and
helped, as messages (Mem-T, section 3.3).  Both are rolled out by the untrained policy.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memtier_bench.datasets import Conversation
from memtier_bench.retrieval import RecordedConversation
from memtier_bench.tree_search import TREES, Call, CallTree, SearchableQuestion, grow_tree
from memtier_bench.tree_training import first_weights, tree_advantages
from memtier_papers.mem_t.formation import PROMPTS
from memtier_papers.mem_t.planning import ACTIONS, MAX_DEPTH
from memtier_papers.mem_t.tool_calls import FINISH, render_call
from memtier_papers.mem_t.tool_loop import call_request
from memtier_papers.mem_t.tree_credit import hindsight_score, select_operations
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.facts.extraction.llm import prompt_lines
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.prompting import fence_data, load_prompt

RETRIEVAL: Final = "retrieval.jsonl"
CONSTRUCTION: Final = "construction.jsonl"
_SEED: Final = 42

Row = dict[str, Any]


def export_trees(
    folder: Path,
    recorded: Sequence[tuple[MemTier, Conversation, RecordedConversation]],
    folds: Sequence[Sequence[SearchableQuestion]],
) -> dict[str, int]:
    """Write both files to a folder, each atomically; return the row count of each.

    Raises:
        LedgerWriteError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance, weights = random.Random(_SEED), first_weights()
    retrieval: list[Row] = []
    operations: list[tuple[str, float, Row]] = []
    for (memory, _, conversation), fold in zip(recorded, folds, strict=True):
        facts = memory.facts()
        scores: dict[str, list[float]] = {}
        for question in fold:
            trees = [grow_tree(question, weights, chance) for _ in range(TREES)]
            advantages = tree_advantages(trees)
            retrieval += _retrieval_rows(question, trees, advantages)
            for fact, score in _credit_facts(question, trees, advantages, facts):
                scores.setdefault(fact, []).append(score)
        operations += [
            (row["kind"], sum(values) / len(values), row)
            for fact in facts
            if (values := scores.get(fact.id)) and (row := _construction_row(fact, conversation))
        ]
    kept = select_operations(operations)
    construction = [
        {**row, "score": round(score, 6)} for rows in kept.values() for score, row in rows
    ]
    write_rows(folder / RETRIEVAL, retrieval)
    write_rows(folder / CONSTRUCTION, construction)
    return {RETRIEVAL: len(retrieval), CONSTRUCTION: len(construction)}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON Lines, atomically."""
    write_private_file(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def _retrieval_rows(
    question: SearchableQuestion, trees: Sequence[CallTree], advantages: Sequence[Sequence[float]]
) -> Iterable[Row]:
    system = load_prompt("retrieve").text
    for number, (tree, values) in enumerate(zip(trees, advantages, strict=True)):
        for node, (call, value) in enumerate(zip(tree.calls, values, strict=True)):
            before = call.path if ACTIONS[call.action].tool == FINISH else call.path[:-1]
            user = call_request(
                question.asked.text,
                question.search.viewer.at,
                question.transcript(before),
                MAX_DEPTH - len(before),
            )
            yield {
                "prompt": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": user},
                ],
                "completion": [{"role": "assistant", "content": _call_text(call)}],
                "advantage": round(value, 6),
                "old_logprob": round(call.log_probability, 6),
                "question": question.id,
                "tree": number,
                "node": node,
                "parent": tree.parents[node],
            }


def _call_text(call: Call) -> str:
    tool = ACTIONS[call.action].tool
    if tool == FINISH:
        return render_call(FINISH, {"answer": "-", "cites": [1]})
    return render_call(tool, {"query": call.before.queries[call.action]})


def _credit_facts(
    question: SearchableQuestion,
    trees: Sequence[CallTree],
    advantages: Sequence[Sequence[float]],
    facts: Sequence[Fact],
) -> Iterable[tuple[str, float]]:
    """Yield the hindsight score of each fact that rests on a gold turn, or was shown."""
    ends: dict[str, tuple[float, frozenset[str]]] = {}
    for number, (tree, values) in enumerate(zip(trees, advantages, strict=True)):
        for node, (call, value) in enumerate(zip(tree.calls, values, strict=True)):
            if call.is_last:
                ends[f"{number}:{node}"] = value, frozenset(call.after.shown)
    leaf_advantages = {leaf: value for leaf, (value, _) in ends.items()}
    for fact in facts:
        aligned = any(
            question.turn_of.get(source.entry) in question.gold for source in fact.sources
        )
        traced = {leaf for leaf, (_, shown) in ends.items() if fact.id in shown}
        if aligned or traced:
            yield fact.id, hindsight_score(leaf_advantages, aligned=aligned, traced=traced)


def _construction_row(fact: Fact, recorded: RecordedConversation) -> Row | None:
    """Return the call that makes a fact from its source lines; None if these are unavailable."""
    by_id = {hit.id: hit.item for hit in recorded.hits.values()}
    entries = [by_id[source.entry] for source in fact.sources if source.entry in by_id]
    lines = prompt_lines(entry for entry in entries if isinstance(entry, Entry))
    if not lines:
        return None
    text_name = "experience" if fact.tier == "procedural" else "fact"
    kind = f"create_{text_name}"
    arguments = {
        text_name: fact.text,
        "subject": fact.subject,
        "relation": fact.relation,
        "value": fact.value,
        "quote": fact.quote,
        "line": 1,
        "start_time": f"{fact.valid_from:%Y-%m-%d}" if fact.valid_from else None,
        "end_time": f"{fact.valid_to:%Y-%m-%d}" if fact.valid_to else None,
    }
    return {
        "messages": [
            {"role": "system", "content": load_prompt("form", PROMPTS).text},
            {"role": "user", "content": fence_data(lines)},
            {"role": "assistant", "content": render_call(kind, arguments)},
        ],
        "kind": kind,
    }
