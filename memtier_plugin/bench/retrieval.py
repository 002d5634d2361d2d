"""Running a data set through MemTier, or a baseline, and counting what is found.

Each conversation is recorded exchange by exchange into a project of its own, in a home that is
removed at the end, and every question is asked through the public API.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.bench.baselines import Baseline
from memtier_plugin.bench.datasets import Conversation, Dataset, load_dataset
from memtier_plugin.bench.metrics import Outcome, difference, latency, source_turns, summarise
from memtier_plugin.errors import Unsupported
from memtier_plugin.memory import MemTier
from memtier_plugin.records import FactDraft, Hit, Source
from memtier_plugin.settings import dotted

Progress = Callable[[str, int, int], None]  # what is being done, how many are, of how many

FACTS: Final = ("none", "dataset")


def run_retrieval(
    dataset: str,
    data: Path,
    profile: str | None = None,
    facts: str = "none",
    baseline: str | None = None,
    limit: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    ablate: bool = False,
) -> dict[str, Any]:
    """Ask every question of a data set and return what was found, ready for JSON.

    Args:
        dataset: `locomo`, `beam` or `longmemeval`.
        data: the file or folder of the data set.
        profile: the retrieval profile; None takes the configured one.
        facts: `none`, or `dataset` for the facts that the data set itself states.
        baseline: run this baseline instead of MemTier.
        limit: ask only the first so many questions.
        overrides: settings for the run, by dotted key.
        progress: told of each step.
        ablate: repeat the questions once for each weight of the profile, with that weight at 0.

    Raises:
        ImportFileError: the data set is unknown or not as published.
        Unsupported: no such baseline or facts, or the data set states none.
        SettingsError: an override is not a setting.
    """
    loaded = load_dataset(dataset, data)
    if facts not in FACTS:
        raise Unsupported(f"facts {facts!r}; one of: {', '.join(FACTS)}")
    if facts == "dataset" and not any(c.facts for c in loaded.conversations):
        raise Unsupported(f"{dataset} states no facts of its own; use facts 'none'")
    loaded = loaded if limit is None else _first(loaded, limit)
    run = _Run(progress=progress or (lambda what, done, total: None))
    if baseline:
        run.ask_baseline(baseline, loaded)
    else:
        chosen = {"retrieval.profile": profile} if profile else {}
        run.ask_memory(loaded, facts, {**(overrides or {}), **chosen}, ablate)
    summary = summarise(run.outcomes)
    report = {
        "dataset": dataset,
        "profile": baseline or run.settings["retrieval.profile"],
        "facts": facts,
        "questions": len(run.outcomes),
        "skipped": loaded.skipped,
        "unresolved": loaded.unresolved,
        **summary,
        "ingest": {"turns": run.turns, "seconds": round(run.seconds, 3)},
        "latency_ms": latency([outcome.seconds for outcome in run.outcomes]),
        "peak_rss_mb": peak_rss_mb(),
        "version": memtier_plugin.__version__,
        "settings": run.settings,
    }
    if run.variants:
        report["ablation"] = [
            {
                "without": weight,
                "was": run.settings[weight],
                **{key: without[key] for key in ("recall", "mrr", "injected_recall")},
                "difference": difference(without, summary),
            }
            for weight, outcomes in run.variants.items()
            for without in [summarise(outcomes)]
        ]
    return report


def peak_rss_mb() -> float:
    """Return the most memory that this process has had, in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


@dataclass(slots=True, kw_only=True)
class _Run:
    """What a run measures; `variants` holds the outcomes without each weight."""

    progress: Progress
    settings: dict[str, Any] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    variants: dict[str, list[Outcome]] = field(default_factory=dict)
    turns: int = 0
    seconds: float = 0.0

    def ask_baseline(self, name: str, loaded: Dataset) -> None:
        """Rank the turns of each conversation by the baseline."""
        for conversation in loaded.conversations:
            started = time.perf_counter()
            baseline = Baseline(name, conversation)
            self.seconds += time.perf_counter() - started
            self.turns += len(conversation.turns)
            for question in conversation.questions:
                started = time.perf_counter()
                ranked = baseline.rank(question.text)
                seconds = time.perf_counter() - started
                self.outcomes.append(
                    Outcome(
                        category=question.category,
                        gold=question.gold,
                        ranked=ranked,
                        seconds=seconds,
                    )
                )
                self._asked(loaded)

    def ask_memory(
        self, loaded: Dataset, facts: str, overrides: Mapping[str, Any], ablate: bool
    ) -> None:
        """Record each conversation once, then ask its questions, once more for each weight."""
        with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
            home = Path(folder) / "home"
            for conversation in loaded.conversations:
                with MemTier.open(home, conversation.id, settings=overrides) as memory:
                    self.settings = dotted(memory.settings)
                    names = self._ingest(memory, conversation, facts, loaded)
                    for outcome in _ask(memory, conversation, names):
                        self.outcomes.append(outcome)
                        self._asked(loaded)
                for weight in _weights(self.settings) if ablate else ():
                    variant = {**overrides, weight: 0.0}
                    with MemTier.open(home, conversation.id, settings=variant) as memory:
                        outcomes = _ask(memory, conversation, names)
                        self.variants.setdefault(weight, []).extend(outcomes)
                    self.progress(f"without {weight}", len(self.outcomes), _total(loaded))

    def _ingest(
        self, memory: MemTier, conversation: Conversation, facts: str, loaded: Dataset
    ) -> dict[str, str]:
        """Record a conversation and return the turn that each entry came from."""
        names: dict[str, str] = {}
        sources: dict[str, Source] = {}
        total = sum(len(c.turns) for c in loaded.conversations)
        for session in conversation.sessions:
            for run in session.runs:
                started = time.perf_counter()
                entries = memory.record(
                    run.messages,
                    session_id=session.session_id,
                    run_id=run.run_id,
                    observed_at=session.observed_at,
                )
                self.seconds += time.perf_counter() - started
                for turn, entry in zip(run.turns, entries, strict=True):
                    names[entry.id] = turn.id
                    sources[turn.id] = Source(
                        agent=entry.agent_id, session=entry.session_id, entry=entry.id
                    )
                self.turns += len(entries)
                self.progress("ingest", self.turns, total)
        if facts == "dataset":
            started = time.perf_counter()
            memory.add_facts(
                FactDraft(
                    subject=fact.speaker,
                    relation="observed",
                    value=fact.text,
                    text=fact.text,
                    sources=tuple(sources[name] for name in fact.gold_ids),
                    extractor="dataset",
                    confidence=1.0,
                )
                for fact in conversation.facts
            )
            self.seconds += time.perf_counter() - started
        return names

    def _asked(self, loaded: Dataset) -> None:
        self.progress("ask", len(self.outcomes), _total(loaded))


def _ask(
    memory: MemTier, conversation: Conversation, names: Mapping[str, str]
) -> Iterator[Outcome]:
    def turns(hit: Hit) -> list[str]:
        return [names[source.entry] for source in hit.sources if source.entry in names]

    for question in conversation.questions:
        started = time.perf_counter()
        recall = memory.recall(question.text, purpose="search", at=question.at)
        seconds = time.perf_counter() - started
        yield Outcome(
            category=question.category,
            gold=question.gold,
            ranked=source_turns(map(turns, recall.hits)),
            injected=frozenset(source_turns(map(turns, recall.injected))),
            tokens=recall.tokens,
            seconds=seconds,
        )


def _weights(settings: Mapping[str, Any]) -> list[str]:
    """Return the keys of the profile's weights that are not 0 already."""
    section = "paper" if settings["retrieval.profile"] == "paper" else "retrieval"
    prefix = f"{section}.weights."
    return [key for key, value in settings.items() if key.startswith(prefix) and value]


def _total(loaded: Dataset) -> int:
    return sum(len(conversation.questions) for conversation in loaded.conversations)


def _first(loaded: Dataset, limit: int) -> Dataset:
    """Keep the first questions, and the conversations that they are about."""
    kept: list[Conversation] = []
    for conversation in loaded.conversations:
        questions = conversation.questions[:limit]
        limit -= len(questions)
        if questions:
            kept.append(replace(conversation, questions=questions))
    return replace(loaded, conversations=tuple(kept))
