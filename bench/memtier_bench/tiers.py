"""Reproduce HMO's ablations on a conversation data set: tiers, strategies and the drift gate.

A conversation is recorded session by session, each at its own time and followed by the priority
job, as for a live agent; in a large store the older sessions are recorded at once.  It is measured
in a store of its own, together with all others, or in stores of given sizes.  The accuracy of the
published tables needs a reader, and is omitted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import memtier_plugin
from memtier_bench.datasets import Conversation, Dataset
from memtier_bench.metrics import ndcg_at, percentile, recall_at
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import (
    BenchRun,
    RecordedConversation,
    dataset_fingerprint,
    prepare_dataset,
)
from memtier_bench.silence_prompts import build_store
from memtier_papers.hmo.plugin import prioritiser_of
from memtier_papers.hmo.tables import PriorityReader
from memtier_papers.hmo.tiers import TIERS
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.results import Step
from memtier_plugin.credit.verdict import paired_difference
from memtier_plugin.ingest.messages import Session
from memtier_plugin.memory import MemTier

TABLES: Final[Mapping[str, str]] = {
    "hmo-3": "search with and without the tiers",
    "hmo-4": "priority by importance, by alignment, by both",
    "hmo-drift": "rescoring at every change of the persona, or past the drift gate",
}
_CUT: Final = 5
_LIVE: Final = 200  # final sessions recorded one by one; earlier ones are recorded at once
_NO_CACHE: Final = {"priority.cache": 0, "priority.sessions": 0}
_FLAT: Final = "flat"
_TIERED: Final = "tiers"
# For each table, each arm's name, prioritisation and search; the last is the base.
_Arm = tuple[str, Mapping[str, Any], str]
_ARMS: Final[Mapping[str, Sequence[_Arm]]] = {
    "hmo-3": (
        ("with tiers 1 and 2", {}, _TIERED),
        ("without tier 1", _NO_CACHE, _TIERED),
        ("without tiers 1 and 2 (flat)", {}, _FLAT),
    ),
    "hmo-4": (
        ("by importance", {"priority.importance_share": 1.0}, _TIERED),
        ("by alignment", {"priority.importance_share": 0.0}, _TIERED),
        ("by both", {}, _TIERED),
        ("flat", {}, _FLAT),
    ),
}
_GATES: Final = ("always", "gate")


@dataclass(slots=True)
class _Clock:
    """The time of the conversation being recorded."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.now


@dataclass(frozen=True, slots=True)
class _Asked:
    """The outcome of one question."""

    all_gold: float
    recall: float
    ndcg: float
    ms: float
    read: int
    steps: tuple[Step, ...]


def run_hmo_table(
    table: str,
    data: Path,
    dataset: str | None = None,
    facts: str = "extracted",
    sample: int | None = None,
    progress: Progress | None = None,
    entries: Sequence[int] = (),
) -> dict[str, Any]:
    """Measure one of `TABLES`; return a JSON report.

    Args:
        dataset: the format of the file [LoCoMo].
        facts: the facts of personas and ratings, as for `run_retrieval`.
        sample: how many questions [all].
        entries: measure `hmo-3` in stores of so many entries in place of the two: the conversations
            one after the other, with recombined sentences of theirs before.

    Raises:
        Unsupported: there is no such table, or it is not measured at sizes.
        ImportFileError: the data set is not as published, or without evidence.
    """
    if entries and table != "hmo-3":
        raise Unsupported(f"table {table!r} is not measured at sizes; hmo-3 is")
    if table not in TABLES:
        raise Unsupported(f"no table {table!r} of HMO; one of: {', '.join(TABLES)}")
    loaded = prepare_dataset(dataset or "locomo", data, facts, None, sample)
    stores = {"a conversation a store": loaded, "all in one store": _together(loaded)}
    if entries:
        stores = {f"{size:,} entries": _of_size(loaded, size) for size in entries}
    # Without tier 1, a second store of each size would have to be recorded.
    arms = [arm for arm in _ARMS.get(table, ()) if not (entries and arm[1])]
    parts = []
    for name, store in stores.items():
        run = BenchRun(loaded=store, facts=facts, progress=progress or no_progress)
        lines = round(fmean(len(c.turns) for c in store.conversations))
        figures = _measure_gate(run) if table == "hmo-drift" else _measure_arms(run, arms)
        parts.append({"name": name, "entries": lines, **figures})
    return {
        "kind": "hmo",
        "dataset": loaded.name,
        "table": table,
        "title": TABLES[table],
        "facts": facts,
        "questions": sum(len(c.questions) for c in loaded.conversations),
        "parts": parts,
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }


def _together(loaded: Dataset) -> Dataset:
    """Return a data set with all conversations merged, in chronological order."""
    sessions = [
        replace(
            session,
            session_id=f"{c.id}:{session.session_id}",
            turns=tuple(replace(turn, id=f"{c.id}:{turn.id}") for turn in session.turns),
        )
        for c in loaded.conversations
        for session in c.sessions
    ]
    questions = tuple(
        replace(q, gold=frozenset(f"{c.id}:{turn}" for turn in q.gold), at=None, after=None)
        for c in loaded.conversations
        for q in c.questions
    )
    sessions.sort(key=_time_of)
    together = Conversation(id="together", sessions=tuple(sessions), questions=questions)
    return replace(loaded, conversations=(together,))


def _of_size(loaded: Dataset, size: int) -> Dataset:
    """Return a data set of one conversation with this many lines, and the questions about it.

    Raises:
        Unsupported: no question's evidence is among so few lines.
    """
    store, _ = build_store(loaded.conversations, size)
    if not store.questions:
        raise Unsupported(f"{size} entries: no question's evidence is among so few; take more")
    return replace(loaded, conversations=(store,))


def _time_of(session: Session) -> datetime:
    return session.observed_at or datetime.now(UTC)


def _record(
    run: BenchRun, home: Path, conversation: Conversation, overrides: Mapping[str, Any]
) -> Iterator[tuple[MemTier, RecordedConversation, int, int]]:
    """Record a conversation; after each session, yield the rescored entries and how often."""
    clock, recorded = _Clock(), RecordedConversation()
    settings = {"priority.enabled": True, "consolidation.probes": 0, **overrides}
    with MemTier.open(home, conversation.id, settings=settings, clock=clock) as memory:
        old, live = conversation.sessions[:-_LIVE], conversation.sessions[-_LIVE:]
        for sessions in ([old] if old else []) + [(session,) for session in live]:
            clock.now = _time_of(sessions[-1]) + timedelta(hours=1)
            part = replace(conversation, sessions=sessions, facts=(), questions=())
            run.record(memory, part, recorded)
            rescored = times = 0
            while True:
                report = prioritiser_of(memory).run()
                rescored, times = rescored + report.rescored, times + bool(report.rescored)
                if not report.left:
                    break
            yield memory, recorded, rescored, times


# -- tiers -----------------------------------------------------------------------------------------


def _measure_arms(run: BenchRun, arms: Sequence[_Arm]) -> dict[str, Any]:
    stores: dict[str, Mapping[str, Any]] = {repr(made): made for _, made, _ in arms}
    run.recordings, run.repeats = len(stores), len(arms)
    outcomes: dict[str, list[_Asked]] = {name: [] for name, _, _ in arms}
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
        for conversation in run.loaded.conversations:
            homes = {key: Path(folder) / f"home-{n}" for n, key in enumerate(stores)}
            for key, made in stores.items():
                *_, (_, recorded, _, _) = _record(run, homes[key], conversation, made)
                for name, other, search in arms:
                    if repr(other) == key:
                        settings = {**made, "retrieval.search": search, "priority.enabled": True}
                        outcomes[name] += _ask(run, homes[key], conversation, recorded, settings)
    base = outcomes[arms[-1][0]]
    return {
        "arms": [{"name": name, **_figures(results, base)} for name, results in outcomes.items()]
    }


def _ask(
    run: BenchRun,
    home: Path,
    conversation: Conversation,
    recorded: RecordedConversation,
    settings: Mapping[str, Any],
) -> Iterator[_Asked]:
    last = max(map(_time_of, conversation.sessions)) + timedelta(days=1)
    with MemTier.open(home, conversation.id, settings=settings) as memory:
        memory.recall("warm up", at=last)
        for question in conversation.questions:
            if not question.gold:
                continue
            recall = memory.recall(question.text, purpose="search", at=question.at or last)
            ranked = recorded.turns(recall.hits)
            share = recall_at(ranked, question.gold, _CUT)
            yield _Asked(
                float(share == 1.0),
                share,
                ndcg_at(ranked, question.gold, _CUT),
                recall.ms,
                recall.postings + recall.vectors,
                tuple(step for step in recall.steps if step.name in TIERS),
            )
            run.count_asked()


def _figures(results: Sequence[_Asked], base: Sequence[_Asked]) -> dict[str, Any]:
    """Return the means of an arm, its tiers, and its difference from the base."""
    difference = paired_difference([a.all_gold for a in results], [b.all_gold for b in base])
    tiers = {}
    for tier in TIERS:
        steps = [step for a in results for step in a.steps if step.name == tier]
        ended = [a for a in results if a.steps and a.steps[-1].name == tier]
        if steps:
            tiers[tier] = {
                "answered": len(ended) / len(results),
                "rec_all@5": fmean(a.all_gold for a in ended) if ended else None,
                "read": fmean(step.read for step in steps),
                "p50_ms": percentile([step.ms for step in steps], 0.5),
            }
    return {
        "rec_all@5": fmean(a.all_gold for a in results),
        "difference": [difference.mean, difference.low, difference.high],
        "recall@5": fmean(a.recall for a in results),
        "ndcg@5": fmean(a.ndcg for a in results),
        "p50_ms": percentile([a.ms for a in results], 0.5),
        "read": fmean(a.read for a in results),
        "tiers": tiers,
    }


# -- the drift gate --------------------------------------------------------------------------------


def _measure_gate(run: BenchRun) -> dict[str, Any]:
    """Compare tiers, after each session, with those from rescoring at every change."""
    run.recordings = 2
    rescored = dict.fromkeys(_GATES, 0)
    times = dict.fromkeys(_GATES, 0)
    likeness: dict[str, list[float]] = {"cache": [], "buffer": []}
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
        for conversation in run.loaded.conversations:
            always = _record(run, Path(folder) / "always", conversation, {"priority.drift": 0.0})
            gated = _record(run, Path(folder) / "gate", conversation, {})
            for both in zip(always, gated, strict=True):
                sets = []
                for name, (memory, recorded, entries, rounds) in zip(_GATES, both, strict=True):
                    rescored[name] += entries
                    times[name] += rounds
                    sets.append(_tier_sets(memory, recorded))
                for tier, sizes in likeness.items():
                    first, other = (each[tier] for each in sets)
                    if first or other:
                        sizes.append(len(first & other) / len(first | other))
    return {
        "rescored": rescored,
        "rescorings": times,
        "saved": 1 - rescored["gate"] / rescored["always"] if rescored["always"] else None,
        "jaccard": {tier: fmean(values) for tier, values in likeness.items() if values},
        "lowest": {tier: min(values) for tier, values in likeness.items() if values},
    }


def _tier_sets(memory: MemTier, recorded: RecordedConversation) -> dict[str, set[str]]:
    entries = memory.store.reader().plugin_tables(PriorityReader).active(memory.agent_id, "")
    return {
        name: {recorded.names[entry.id] for entry in entries if entry.tier == tier}
        for tier, name in enumerate(TIERS[:2], 1)
    }
