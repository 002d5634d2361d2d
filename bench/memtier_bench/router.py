"""Measure the savings and costs of routing: facts only, the raw log, and routed, at equal k.

Every question is recalled once at each depth, with the same k and token budget.  Always raw is
`depth="raw"`: entries only, ranked as usual and packed into the budget.  Three more arms compare:
routed without the links from facts to their source lines (TierMem, Table 4); the entries of always
raw truncated as in a routed recall, to separate the effect of routing from that of truncation; and
the first five whole pages of the entries, as TierMem reads them.  Further epochs ask again, after
the findings of the previous one were written back (`replay`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import structs

import memtier_plugin
from memtier_bench.datasets import Conversation, DatasetQuestion
from memtier_bench.metrics import latency_percentiles, mean
from memtier_bench.probe import peak_rss_mb
from memtier_bench.progress import Progress, no_progress
from memtier_bench.replay import summarise_epoch, write_back
from memtier_bench.retrieval import (
    BenchRun,
    RecordedConversation,
    dataset_fingerprint,
    prepare_dataset,
)
from memtier_papers.tiermem.routing import RoutingInput, select_from_log
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.formats import utc_now
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.results import Depth, Hit, Recall, RecallRequest
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.block import format_line
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.retrieval.visibility import Viewer
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust.redaction import Redactor

_UNLINKED: Final = "routed, no links"
ARMS: Final = ("facts", "raw", "routed", _UNLINKED, "mixed", "raw cut", "pages")
_DEPTHS: Final[Mapping[str, Depth]] = {
    "facts": "facts",
    "raw": "raw",
    "routed": "auto",
    _UNLINKED: "auto",
    "mixed": "mixed",
}
PAGES: Final = 5  # pages that TierMem's raw path reads
GOAL: Final = {"injected_recall": 0.97, "tokens": 0.6}  # relative to always raw


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm's result for a question: its recall, tokens and time."""

    recall: float
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCase:
    """One question at every depth."""

    id: str
    category: str
    gold: int
    action: str
    doubt: float
    why: tuple[str, ...]
    arms: Mapping[str, ArmResult]
    omitted: bool  # answered from facts although only the raw arm shows a gold turn
    findings: tuple[Hit, ...] = ()  # the gold lines that an escalation showed

    def is_right(self, arm: str) -> bool:
        """Return whether an arm shows every gold turn."""
        return self.arms[arm].recall == 1


def run_router(
    dataset: str,
    data: Path,
    facts: str = "dataset",
    k: int | None = None,
    limit: int | None = None,
    sample: int | None = None,
    epochs: int = 1,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Ask every question of a data set at each depth; return a JSON report.

    Args:
        facts: `dataset` or `extracted`.
        k: how many lines a block may have [the configured number].
        epochs: how often the questions are asked, with a write-back in between (TierMem, Table 5).
        dataset, data, limit, sample, overrides, progress: as for `run_retrieval`.

    Raises:
        Unsupported: the facts are `none`, or the data set states none.
        ImportFileError: the data set is unknown, not as published, or without evidence.
        SettingsError: an override is not a setting.
    """
    if facts == "none":
        raise Unsupported("a router decides between facts and the log: it needs facts")
    loaded = prepare_dataset(dataset, data, facts, limit, sample)
    loaded = replace(
        loaded,
        conversations=tuple(
            replace(c, questions=tuple(q for q in c.questions if q.gold))
            for c in loaded.conversations
        ),
    )
    progress = progress or no_progress
    run = BenchRun(loaded=loaded, facts=facts, progress=progress, repeats=epochs)
    chosen = {**(overrides or {}), **({"retrieval.k": k} if k else {})}
    settings, replays, added = _ask_all(run, chosen, epochs)
    cases = replays[0]
    return {
        "kind": "router",
        "dataset": dataset,
        "facts": facts,
        "facts_stored": run.facts_stored,
        "k": settings["retrieval.k"],
        "token_budget": settings["retrieval.token_budget"],
        **summarise_cases(cases),
        "epochs": [
            summarise_epoch(number + 1, [_outcome(case) for case in asked], added[number])
            for number, asked in enumerate(replays)
        ],
        "peak_rss_mb": peak_rss_mb(),
        "version": memtier_plugin.__version__,
        "settings": settings,
        "fingerprint": dataset_fingerprint(loaded),
        "per_question": [_case_row(case) for case in cases],
    }


def _ask_all(
    run: BenchRun, overrides: Mapping[str, Any], epochs: int
) -> tuple[dict[str, Any], list[list[RouterCase]], list[int]]:
    """Record each conversation and ask its questions in each epoch.

    Returns the settings and, for each epoch, its cases and how many facts were written after it.
    """
    replays: list[list[RouterCase]] = [[] for _ in range(epochs)]
    added = [0] * epochs
    settings: dict[str, Any] = {}
    for memory, conversation, recorded in run.recorded_conversations(overrides):
        settings = flatten_settings(memory.settings)
        for epoch, cases in enumerate(replays):
            findings = []
            for case in _ask_arms(memory, conversation, recorded):
                cases.append(case)
                findings.append(case.findings)
                run.count_asked()
            if epoch < epochs - 1:
                added[epoch] += write_back(memory, findings)
    return settings, replays, added


def _outcome(case: RouterCase) -> tuple[bool, bool, int, float]:
    """Return an epoch's counts for a question; see `summarise_epoch`."""
    routed = case.arms["routed"]
    return case.action == "S", case.is_right("routed"), routed.tokens, routed.seconds


def open_without_links(memory: MemTier) -> MemTier:
    """Reopen a memory so that facts no longer boost their source lines."""
    retrieval = memory.settings.retrieval
    weights = replace(retrieval.weights, source=0.0, session=0.0)
    settings = replace(memory.settings, retrieval=replace(retrieval, weights=weights))
    return MemTier.open(memory.home, memory.project, memory.agent_id, settings)


def _ask_arms(
    memory: MemTier, conversation: Conversation, recorded: RecordedConversation
) -> Iterator[RouterCase]:
    with open_without_links(memory) as unlinked:
        yield from _ask_each(memory, unlinked, conversation, recorded)


def _ask_each(
    memory: MemTier,
    unlinked: MemTier,
    conversation: Conversation,
    recorded: RecordedConversation,
) -> Iterator[RouterCase]:
    for question in conversation.questions:
        recalls: dict[str, Recall] = {}
        arms: dict[str, ArmResult] = {}
        for name, depth in _DEPTHS.items():
            started = time.perf_counter()
            queried = unlinked if name == _UNLINKED else memory
            recall = queried.recall(question.text, at=question.at, depth=depth)
            seconds = time.perf_counter() - started
            recalls[name] = recall
            arms[name] = _arm_result(question, recorded, recall.injected, recall.tokens, seconds)
        arms["raw cut"] = _raw_cut_arm(memory, question, recorded)
        arms["pages"] = _pages_arm(memory, question, recorded, recalls["raw"], arms["raw"].seconds)
        route = recalls["routed"].route
        assert route is not None
        routed = recalls["routed"].injected
        missed = question.gold - _gold_candidates(recorded, routed)
        findings = [hit for hit in routed if recorded.names.get(hit.id) in question.gold]
        yield RouterCase(
            id=question.id,
            category=question.category,
            gold=len(question.gold),
            action=route.action,
            doubt=route.doubt,
            why=route.why,
            arms=arms,
            findings=tuple(findings) if route.action == "R" else (),
            omitted=route.action == "S"
            and bool(missed & _gold_candidates(recorded, recalls["raw"].injected)),
        )


def _gold_candidates(recorded: RecordedConversation, hits: Sequence[Hit]) -> set[str]:
    names = recorded.names
    return {names[s.entry] for hit in hits for s in hit.sources if s.entry in names}


def _arm_result(
    question: DatasetQuestion,
    recorded: RecordedConversation,
    hits: Sequence[Hit],
    tokens: int,
    seconds: float,
) -> ArmResult:
    shown_gold = _gold_candidates(recorded, hits) & question.gold
    return ArmResult(recall=len(shown_gold) / len(question.gold), tokens=tokens, seconds=seconds)


def _raw_cut_arm(
    memory: MemTier, question: DatasetQuestion, recorded: RecordedConversation
) -> ArmResult:
    """Measure always raw, truncated like a routed recall."""
    started = time.perf_counter()
    recaller = Recaller(Actor(memory.store, memory.agent_id, utc_now, Redactor()))
    asker = Viewer(memory.agent_id, None, False, question.at or datetime.now(UTC))
    offer = recaller.plan(question.text, asker, RecallRequest(depth="raw")).block
    routing = RoutingInput(question.text, offer.hits, {}, lambda text: (), {})
    hits, block = structs.replace(offer, hits=select_from_log(routing).hits).fill("0" * 26)
    seconds = time.perf_counter() - started
    return _arm_result(question, recorded, hits, count_tokens(block), seconds)


def _pages_arm(
    memory: MemTier,
    question: DatasetQuestion,
    recorded: RecordedConversation,
    recall: Recall,
    seconds: float,
) -> ArmResult:
    """Measure reading the first pages of the recalled entries in full."""
    started = time.perf_counter()
    with memory.store.session() as reader:
        scopes = reader.scopes(memory.agent_id, None)
        rows = reader.rows_of(hit.id for hit in recall.hits)
        order = [rows[hit.id] for hit in recall.hits if hit.id in rows]
        on = reader.pages.pages_of(order, scopes)
        pages = list({on[row].id: on[row] for row in order if row in on}.values())[:PAGES]
        stored = reader.items_by_row([row for page in pages for row in page.rows])
    shown = [
        recorded.hits[recorded.names[item.item.id]]
        for item in stored.values()
        if item.item.id in recorded.names
    ]
    tokens = sum(count_tokens(f"{format_line(hit, hit.text)}\n") for hit in shown)
    seconds += time.perf_counter() - started
    return _arm_result(question, recorded, shown, tokens, seconds)


def summarise_cases(cases: Sequence[RouterCase]) -> dict[str, Any]:
    """Summarise the cases: arms and routes, overall and by category."""
    by_category: dict[str, list[RouterCase]] = {}
    for case in cases:
        by_category.setdefault(case.category, []).append(case)
    arms = {arm: _summarise_arm(cases, arm) for arm in ARMS}
    raw = arms["raw"]
    return {
        "questions": len(cases),
        "arms": arms,
        "routes": _summarise_routes(cases),
        "against_raw": {
            arm: {
                "injected_recall": _ratio(row["injected_recall"], raw["injected_recall"]),
                "tokens": _ratio(row["tokens"], raw["tokens"]),
            }
            for arm, row in arms.items()
        },
        "goal": GOAL,
        "by_category": {
            name: {
                "questions": len(group),
                "routes": _summarise_routes(group),
                "arms": {arm: _summarise_arm(group, arm) for arm in ARMS},
            }
            for name, group in sorted(by_category.items())
        },
    }


def _summarise_arm(cases: Sequence[RouterCase], arm: str) -> dict[str, Any]:
    served = [case.arms[arm] for case in cases]
    return {
        "injected_recall": mean([result.recall for result in served]),
        "tokens": mean([result.tokens for result in served]),
        "router_tokens": 0.0,  # the feature-based router uses no model
        "latency_ms": latency_percentiles([result.seconds for result in served]),
    }


def _summarise_routes(cases: Sequence[RouterCase]) -> dict[str, Any]:
    """Return the share escalated, the omissions, and the table of S right x R right x route.

    Unverifiable omissions are counted over all questions (UOR, TierMem, section 4.1.2), and over
    those that were answered from facts.
    An arm is right if it shows every gold turn.  An escalation repairs a question that facts alone
    get wrong and the log right, and regresses one in the opposite case.
    """
    table = {
        route: {
            f"{'S' if s else 's'}{'R' if r else 'r'}": sum(
                case.action == route and case.is_right("facts") == s and case.is_right("raw") == r
                for case in cases
            )
            for s in (True, False)
            for r in (True, False)
        }
        for route in ("S", "R")
    }
    from_facts = [case for case in cases if case.action == "S"]
    wrong = table["R"]["sR"] + table["R"]["sr"]
    right = table["R"]["SR"] + table["R"]["Sr"]
    return {
        "escalated": mean([case.action == "R" for case in cases]),
        "unverifiable_omission": mean([case.omitted for case in cases]),
        "omission_from_facts": mean([case.omitted for case in from_facts]),
        "table": table,
        "repair_rate": _ratio(table["R"]["sR"], wrong),
        "regress_rate": _ratio(table["R"]["Sr"], right),
    }


def _case_row(case: RouterCase) -> dict[str, Any]:
    return {
        "id": case.id,
        "category": case.category,
        "route": case.action,
        "doubt": case.doubt,
        "why": list(case.why),
        "omitted": case.omitted,
        "injected_recall": {arm: round(result.recall, 6) for arm, result in case.arms.items()},
        "tokens": {arm: result.tokens for arm, result in case.arms.items()},
    }


def _ratio(part: float, total: float) -> float:
    return round(part / total, 4) if total else 0.0
