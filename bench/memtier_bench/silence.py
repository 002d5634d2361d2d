"""`memtier bench silence`: when a memory speaks, and when it stays silent.

Three kinds of prompts are asked in each conversation's store: its own questions, which the store
answers; foreign ones, the questions about another conversation with its speakers' names replaced by
the store's; and generic prompts, which need no memory.  Each is asked with every value of
`retrieval.floor`, which gives an operating curve.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any, Final, get_args

import memtier_plugin
from memtier_bench.datasets import (
    Conversation,
    Dataset,
    DatasetQuestion,
    load_dataset,
    load_sets,
)
from memtier_bench.intervals import wilson_interval
from memtier_bench.metrics import latency_percentiles, recall_at
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import BenchRun, RecordedConversation, select_questions
from memtier_bench.silence_prompts import (
    AskedPrompt,
    GenericPrompt,
    build_store,
    exchange_names,
    foreign_questions,
    list_prompts,
    load_generic_prompts,
)
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.core.settings.yaml_file import all_keys
from memtier_plugin.memory import MemTier

KINDS: Final = ("own", "foreign", "generic")
OFF: Final = "off"  # the floor that every other is compared with
AS_CONFIGURED: Final = "as configured"

_FLOOR: Final = ("retrieval", "floor")
_GENERIC_STORES: Final = 10  # the most stores in which each generic prompt is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceOutcome:
    """The result of one prompt with one floor; ``group`` is a category, or language and kind."""

    id: str
    kind: str
    group: tuple[str, ...]
    floor: str
    lines: int
    tokens: int
    seconds: float
    gold: frozenset[str] = frozenset()
    injected: frozenset[str] = frozenset()

    @property
    def answered(self) -> bool:
        """Whether the block contains a line that answers it."""
        return bool(self.gold & self.injected)


def floors() -> tuple[str, ...]:
    """Return the values of `retrieval.floor`; none if there is no such setting."""
    key = all_keys().get(_FLOOR)
    return get_args(key.kind) if key else ()


def run_silence(
    dataset: str,
    data: Path,
    profile: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
    floor: Sequence[str] = (),
    sizes: Sequence[int] = (),
    languages: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Ask own, foreign and generic prompts; return a JSON report.

    Args:
        dataset: `locomo`, `beam`, `longmemeval` or `sets`.
        data: the file or folder of the data set.
        profile, limit, sample, overrides, progress: as for `run_retrieval`.
        floor: the values of `retrieval.floor` to compare [all].
        sizes: also measure stores of so many lines, filled up with recombined sentences.
        languages: generic prompts in these languages only.

    Raises:
        ImportFileError: the data set is not as published, or without evidence.
        Unsupported: no such language or floor.
        SettingsError: an override is not a setting.
    """
    loaded = load_sets(data) if dataset == "sets" else (load_dataset(dataset, data),)
    loaded = tuple(select_questions(part, data, limit=limit, sample=sample) for part in loaded)
    arms = _choose_arms(floor)
    chosen = {**(overrides or {}), **({"retrieval.profile": profile} if profile else {})}
    run = _SilenceRun(arms, chosen, load_generic_prompts(languages), progress or no_progress)
    foreign = foreign_questions(loaded)
    by_set = {
        part.name: run.measure_set(part, foreign, f"{part.name}/" if len(loaded) > 1 else "")
        for part in loaded
    }
    every = [outcome for outcomes in by_set.values() for outcome in outcomes]
    by_size = [run.measure_size(loaded, size) for size in sizes]
    return {
        "dataset": "silence",
        "kind": "silence",
        "data": dataset,
        "profile": run.settings["retrieval.profile"],
        "facts": "none",
        "compared_with": OFF if OFF in arms else None,
        "prompts": len(run.prompts),
        "floors": summarise_prompts(every, arms),
        "sets": {name: summarise_prompts(rows, arms) for name, rows in by_set.items()}
        if len(by_set) > 1
        else {},
        "sizes": by_size,
        "version": memtier_plugin.__version__,
        "settings": run.settings,
        "fingerprint": _fingerprint(every),
        "per_question": [_figures(outcome) for outcome in every],
    }


def _choose_arms(floor: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the overrides of each arm by its name."""
    values = floors()
    for value in floor:
        if value not in values:
            remedy = f"one of: {', '.join(values)}" if values else "it cannot be configured here"
            raise Unsupported(f"retrieval.floor {value!r}; {remedy}")
    # Losses are relative to `off`, so it is measured in any case.
    chosen = [v for v in values if not floor or v in floor or v == OFF]
    return {v: {".".join(_FLOOR): v} for v in chosen} or {AS_CONFIGURED: {}}


@dataclass(slots=True)
class _SilenceRun:
    """Records conversations and asks their prompts with every floor."""

    arms: Mapping[str, Mapping[str, str]]
    overrides: Mapping[str, Any]
    prompts: Sequence[GenericPrompt]
    progress: Progress
    settings: dict[str, Any] = field(default_factory=dict)
    _sessions: Iterator[int] = field(default_factory=count)

    def measure_set(
        self, loaded: Dataset, foreign: Mapping[int, Sequence[DatasetQuestion]], prefix: str
    ) -> list[SilenceOutcome]:
        """Ask in the store of each conversation of a set."""
        outcomes: list[SilenceOutcome] = []
        stores = loaded.conversations
        every = max(1, -(-len(stores) // _GENERIC_STORES))
        for number, conversation in enumerate(stores):
            prompts = self.prompts[number % every :: every]
            to_ask = list_prompts(conversation, foreign[id(conversation)], prompts, prefix)
            outcomes += self.ask(conversation, to_ask, f"{loaded.name}, {number + 1}")
        return outcomes

    def measure_size(self, loaded: Sequence[Dataset], size: int) -> dict[str, Any]:
        """Ask in a store of this many lines."""
        conversations = [c for part in loaded for c in part.conversations]
        kept = conversations[:-1] or conversations
        store, made_up = build_store(kept, size)
        foreign = exchange_names(conversations[-1], store) if len(conversations) > 1 else []
        to_ask = list_prompts(store, foreign, self.prompts)
        outcomes = self.ask(store, to_ask, f"{size:,} lines")
        return {"lines": size, "made_up": made_up, "floors": summarise_prompts(outcomes, self.arms)}

    def ask(
        self, conversation: Conversation, prompts: Sequence[AskedPrompt], name: str
    ) -> Iterator[SilenceOutcome]:
        """Record a conversation, and ask each prompt with every floor."""
        by_question = {id(prompt.question): prompt for prompt in prompts}
        conversation = replace(conversation, questions=tuple(p.question for p in prompts))
        run = BenchRun(
            loaded=Dataset(name=name, conversations=(conversation,), skipped=0, unresolved=0),
            facts="none",
            progress=lambda what, done, total: self.progress(f"{name}: {what}", done, total),
        )
        recorded = RecordedConversation()
        with ExitStack() as stack:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="memtier-bench-"))
            memories = {
                arm: stack.enter_context(
                    MemTier.open(
                        Path(home) / "home", "silence", settings={**self.overrides, **settings}
                    )
                )
                for arm, settings in self.arms.items()
            }
            first = next(iter(memories.values()))
            self.settings = flatten_settings(first.settings)
            for stage in conversation.stages:
                run.record(first, stage, recorded)
                for question in stage.questions:
                    prompt = by_question[id(question)]
                    for arm, memory in memories.items():
                        yield self._ask_once(memory, prompt, arm, recorded)
                    run.count_asked()

    def _ask_once(
        self, memory: MemTier, prompt: AskedPrompt, arm: str, recorded: RecordedConversation
    ) -> SilenceOutcome:
        """Ask a prompt as the first one of a new session."""
        started = time.perf_counter()
        recall = memory.recall(
            prompt.question.text,
            session_id=f"asked:{next(self._sessions)}",
            purpose="inject",
            at=prompt.question.at,
        )
        return SilenceOutcome(
            id=prompt.id,
            kind=prompt.kind,
            group=prompt.group,
            floor=arm,
            lines=len(recall.injected),
            tokens=recall.tokens,
            seconds=time.perf_counter() - started,
            gold=prompt.question.gold,
            injected=frozenset(recorded.turns(recall.injected)),
        )


# -- figures ---------------------------------------------------------------------------------------


def summarise_prompts(
    outcomes: Iterable[SilenceOutcome], arms: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the figures of each floor and kind of prompt."""
    by_arm: dict[str, list[SilenceOutcome]] = {arm: [] for arm in arms}
    for outcome in outcomes:
        by_arm[outcome.floor].append(outcome)
    reference = {o.id: o.answered for o in by_arm.get(OFF, ()) if o.kind == "own"}
    return {arm: _summarise_arm(rows, reference) for arm, rows in by_arm.items()}


def _summarise_arm(
    outcomes: Sequence[SilenceOutcome], reference: Mapping[str, bool]
) -> dict[str, Any]:
    by_kind = {kind: [o for o in outcomes if o.kind == kind] for kind in KINDS}
    figures: dict[str, Any] = {kind: _speech(rows) for kind, rows in by_kind.items()}
    own_prompts, generic = by_kind["own"], by_kind["generic"]
    if own_prompts:
        shares = [recall_at(tuple(o.injected), o.gold, len(o.injected)) for o in own_prompts]
        lost = [reference[o.id] and not o.answered for o in own_prompts] if reference else []
        figures["own"] |= {
            "answered": _share(o.answered for o in own_prompts),
            "injected_recall": round(fmean(shares), 4),
            "loss": _share(lost) if lost else None,
        }
    for index, name in enumerate(("by_language", "by_kind")):
        groups = dict.fromkeys(o.group[index] for o in generic)
        figures["generic"][name] = {
            group: _speech([o for o in generic if o.group[index] == group]) for group in groups
        }
    figures["latency_ms"] = latency_percentiles([o.seconds for o in outcomes])
    return figures


def _speech(outcomes: Sequence[SilenceOutcome]) -> dict[str, Any]:
    """Return how often nothing was injected, and how much otherwise; None for no prompts."""
    silent = sum(not o.lines for o in outcomes)
    return {
        "prompts": len(outcomes),
        "silent": round(silent / len(outcomes), 4) if outcomes else None,
        "interval": [round(bound, 4) for bound in wilson_interval(silent, len(outcomes))],
        "tokens": round(fmean(o.tokens for o in outcomes), 1) if outcomes else None,
        "lines": round(fmean(o.lines for o in outcomes), 2) if outcomes else None,
    }


def _share(values: Iterable[bool]) -> float:
    return round(fmean(values), 4)


def _figures(outcome: SilenceOutcome) -> dict[str, Any]:
    """Return the figures of one prompt with one floor."""
    is_own = outcome.kind == "own"
    return {
        "id": f"{outcome.floor}: {outcome.id}",
        "category": f"{outcome.kind}, {outcome.floor}",
        "silent": float(not outcome.lines),
        "tokens": outcome.tokens,
        "lines": outcome.lines,
        "answered": float(outcome.answered) if is_own else None,
    }


def _fingerprint(outcomes: Iterable[SilenceOutcome]) -> str:
    """Return a hash that identifies the prompts and their evidence, with any floor."""
    prompts = {(o.id, *sorted(o.gold)) for o in outcomes}
    return sha256(json.dumps(sorted(prompts)).encode()).hexdigest()[:16]
