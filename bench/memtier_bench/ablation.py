"""`memtier bench ablation`: measure each part by removing it or changing its value.

The variants are those of MemTier's Table 2 (signals, k, token budget, scoping), Table 7 (Stage 1 by
BM25, vectors or both), Table 8 (how many sessions Stage 1 selects) and appendix E (normalised
BM25), the signals and sizes of `recall_first`, and ranks fused as in True Memory.  A conversation
is recorded once per embedding model, and every variant queries that recording.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.compare import compare_metrics
from memtier_bench.datasets import Conversation, Dataset
from memtier_bench.intervals import bootstrap_interval
from memtier_bench.jobs import WRITTEN, run_background_jobs
from memtier_bench.metrics import (
    QuestionOutcome,
    latency_percentiles,
    mean,
    question_figures,
    recall_at,
    summarise_outcomes,
)
from memtier_bench.progress import Progress, no_progress
from memtier_bench.reading import ReaderModel
from memtier_bench.retrieval import (
    BenchRun,
    RecordedConversation,
    dataset_fingerprint,
    prepare_dataset,
)
from memtier_bench.silence_prompts import (
    AskedPrompt,
    foreign_questions,
    list_prompts,
    load_generic_prompts,
)
from memtier_papers.memtier import scorer as paper_scorer
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.paths import ProjectFolder, make_home
from memtier_plugin.core.settings.load import flatten_settings, load_settings
from memtier_plugin.memory import MemTier

GROUPS: Final = (
    *("signals", "k", "token_budget", "sessions", "scope", "stage_one", "normalise"),
    *("fusion", "adaptive", "stores", "outcomes"),
)
_SIZES: Final[Mapping[str, Mapping[str, Sequence[int]]]] = {
    "recall_first": {
        "k": (4, 8, 16, 32),
        "token_budget": (150, 300, 600, 1200),
        "sessions": (1, 3, 5, 10),
    },
    "paper": {"k": (1, 2, 4, 8), "token_budget": (150, 300, 600), "sessions": (1, 3, 5, 10)},
    "rrf": {"k": (5, 10, 16), "token_budget": (300, 600, 1200)},
}
# Other profiles in place of `recall_first`, as changed settings.
_FUSIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "profile rrf": {"retrieval.profile": "rrf"},
    "profile rrf, k 16": {"retrieval.profile": "rrf", "rrf.k": 16},
    "profile rrf, no guard": {"retrieval.profile": "rrf", "rrf.guard": False},
    "profile rrf, no surprise": {"retrieval.profile": "rrf", "rrf.surprise": 0.0},
}
# Each of Mem-T's stores (Table 4) left out: working memory, facts, experiences and turns.
STORES: Final[Mapping[str, Mapping[str, Any]]] = {
    "without working memory": {"summaries.working": False},
    "without facts": {"retrieval.facts": False},
    "without experiences": {"retrieval.experiences": False},
    "without lines": {"retrieval.depth": "facts"},
}
# Mechanisms that are off by default, switched on; some need a background job to write more.
_ADAPTIVE: Final[Mapping[str, Mapping[str, Any]]] = {
    "profiles of people": {"people.profiles": True},
    "episodes of 6 hours": {"retrieval.episode_hours": 6.0},
    "surprise": {"retrieval.weights.surprise": 1.0},
    "summaries of months and people": {"summaries.long": True},
    "search tier by tier": {"retrieval.search": "tiers", "priority.enabled": True},
    "gate leaves lines out": {"gate.mode": "index"},
    "withhold a line in 5 % of the runs": {"causes.withhold": 0.05},
}
_SWITCHED: Final = {"fusion": _FUSIONS, "adaptive": _ADAPTIVE, "stores": STORES}
_CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "scope": ("sessions", "none"),
    "stage_one": ("bm25", "dense", "rrf"),
    "normalise": ("raw", "log1p", "minmax", "zscore"),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings that differ from the profile's in one part.

    ``credits``: whether outcomes of calls count, if each question is a run with a call.
    """

    group: str
    name: str
    overrides: Mapping[str, Any]
    credits: bool = False


@dataclass(slots=True)
class Arm:
    """A profile unchanged (no group) or a variant of it, with its outcomes.

    Attributes:
        quiet: prompts that need no memory, in the form of `compare.compare_metrics`.
        index_bytes: the size of a rebuilt index, without recalls.
    """

    profile: str
    variant: Variant
    overrides: Mapping[str, Any]
    outcomes: list[QuestionOutcome] = field(default_factory=list)
    quiet: list[dict[str, Any]] = field(default_factory=list)
    index_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationPlan:
    """What is varied, and how it is measured.

    Attributes:
        profile: `recall_first`, `paper` or `rrf` [each].
        facts: as for `run_retrieval`.
        only: which of `GROUPS` to vary [all but `outcomes`]; with `outcomes` each question is a
            run with a call, whose outcome one variant credits and all others ignore.
        variants: use these in place of the groups'.
        overrides: settings of every arm, by dotted key.
        reader: also let it answer from each variant's block.
        conditions: further contexts given to the reader with the unchanged profile.
        learn: credit right answers, as for `run_retrieval`; each variant learns separately.
        silence: how many prompts that need no memory to ask too; where questions are runs also
            so many about another conversation.
        keep: called with the report after each conversation.
    """

    profile: str | None = None
    facts: str = "none"
    only: Sequence[str] = ()
    variants: Sequence[Variant] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    reader: ReaderModel | None = None
    conditions: Sequence[str] = ()
    learn: bool = False
    silence: int = 0
    keep: Callable[[dict[str, Any]], None] | None = None

    @property
    def acts(self) -> bool:
        """Whether each question is a run with a call."""
        return "outcomes" in self.only

    def arms(self, home: Path) -> list[Arm]:
        """Return each profile and its variants.

        Raises:
            Unsupported: the profile has no variants in these groups.
            SettingsError: an override is not a setting.
        """
        profiles = [self.profile] if self.profile else _SIZES
        arms = [arm for name in profiles for arm in self._arms_of(home, name)]
        if not any(arm.variant.group for arm in arms):
            groups = ", ".join(self.only or GROUPS)
            raise Unsupported(f"nothing to vary in {self.profile}: {groups}")
        return arms

    def _arms_of(self, home: Path, profile: str) -> Iterator[Arm]:
        chosen = {**self.overrides, "retrieval.profile": profile}
        settings = flatten_settings(load_settings(home, "bench", None, chosen))
        yield Arm(profile, Variant("", "as it is", {}), chosen)
        for variant in self.variants or list_variants(profile, settings):
            if self.variants or variant.group in (self.only or GROUPS):
                yield Arm(profile, variant, {**chosen, **variant.overrides})
        if self.acts:
            yield Arm(profile, Variant("outcomes", "outcomes credited", {}, credits=True), chosen)


def run_ablation(
    dataset: str,
    data: Path,
    profile: str | None = None,
    facts: str = "none",
    only: Iterable[str] = (),
    limit: int | None = None,
    sample: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    reader: ReaderModel | None = None,
    progress: Progress | None = None,
    *,
    learn: bool = False,
) -> dict[str, Any]:
    """Ask every question of a data set once for each variant; return the differences, for JSON.

    Args:
        profile, only, reader, learn: as in `AblationPlan`.
        dataset, data, facts, limit, sample, overrides, progress: as for `run_retrieval`.

    Raises:
        ImportFileError, EndpointError, SettingsError: as by `run_retrieval`.
        Unsupported: the profile has nothing of these groups to vary.
    """
    loaded = prepare_dataset(dataset, data, facts, limit, sample, answered=reader is not None)
    plan = AblationPlan(
        profile=profile,
        facts=facts,
        only=tuple(only),
        overrides=overrides or {},
        reader=reader,
        learn=learn,
    )
    return ablate(loaded, plan, progress)


def ablate(loaded: Dataset, plan: AblationPlan, progress: Progress | None = None) -> dict[str, Any]:
    """Ask the questions of a loaded data set once per variant; return the differences.

    Raises:
        Unsupported, SettingsError: see `AblationPlan.arms`.
        EndpointError: the reader does not answer.
    """
    facts, learn = plan.facts, plan.learn
    run = BenchRun(loaded=loaded, facts=facts, progress=progress or no_progress, learn=learn)
    run.acts = plan.acts
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
        arms = plan.arms(Path(folder))
        for finished in _ask(run, Path(folder), arms, plan):
            if plan.keep is not None:
                plan.keep(_report(run, plan, arms, finished))
    return _report(run, plan, arms, len(loaded.conversations))


def _report(
    run: BenchRun, plan: AblationPlan, arms: Sequence[Arm], finished: int
) -> dict[str, Any]:
    loaded = run.loaded
    return {
        "kind": "ablation",
        "dataset": loaded.name,
        "facts": plan.facts,
        "facts_stored": run.facts_stored // run.recordings,
        "questions": sum(bool(outcome.gold) for outcome in arms[0].outcomes),
        "quiet": sum("silent" in row for row in arms[0].quiet),
        "foreign": sum("foreign_silent" in row for row in arms[0].quiet),
        "conversations": [finished, len(loaded.conversations)],
        "skipped": loaded.skipped,
        "unresolved": loaded.unresolved,
        "reader": plan.reader.model if plan.reader else None,
        **run.credits_counted(),
        "profiles": [
            _profile_report(
                base, [a for a in arms if a.profile == base.profile and a.variant.group]
            )
            for base in arms
            if not base.variant.group
        ],
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }


def list_variants(profile: str, settings: Mapping[str, Any]) -> Iterator[Variant]:
    """Yield every variant of a profile.

    Args:
        settings: the unchanged profile's, by dotted key.
    """
    section = "retrieval" if profile == "recall_first" else profile
    prefix = f"{section}.weights."
    weights = {
        key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)
    }
    for name, weight in weights.items():
        if weight:
            left = paper_scorer.ablate(weights, name) if profile == "paper" else {name: 0.0}
            yield Variant(
                "signals",
                f"without {name}",
                {prefix + other: value for other, value in left.items()},
            )
    for group, sizes in _SIZES[profile].items():
        key = f"retrieval.{group}" if group == "sessions" else f"{section}.{group}"
        for size in sizes:
            if size != settings[key]:
                yield Variant(group, f"{group} {size}", {key: size})
    yield from _mechanisms(profile, settings)
    if profile != "paper":
        return
    for group, choices in _CHOICES.items():
        key = f"paper.{group}"
        for choice in choices:
            if choice != settings[key]:
                changed: dict[str, Any] = {key: choice}
                if choice in ("dense", "rrf") and settings["embedding.model"] == "none":
                    changed["embedding.model"] = "default"
                yield Variant(group, f"{group} {choice}", changed)
    counted = [name for name, weight in weights.items() if weight]
    equal = {prefix + name: 1 / len(counted) for name in counted}
    yield Variant("normalise", "zscore, weights equal", {"paper.normalise": "zscore", **equal})


def _mechanisms(profile: str, settings: Mapping[str, Any]) -> Iterator[Variant]:
    """Yield the variants that switch a mechanism on, or off where it is configured."""
    if profile == "recall_first":
        for group, variants in _SWITCHED.items():
            yield from (Variant(group, name, changed) for name, changed in variants.items())
    if profile != "paper" and settings["rerank.model"] != "none":
        yield Variant("signals", "without rerank", {"rerank.model": "none"})
    if profile != "paper" and settings["ask.hypothetical"]:
        yield Variant("signals", "without hypothetical", {"ask.hypothetical": False})
    if profile == "rrf":
        yield Variant("signals", "without guard", {"rrf.guard": False})


def _ask(run: BenchRun, folder: Path, arms: Sequence[Arm], plan: AblationPlan) -> Iterator[int]:
    """Record each conversation once per embedding model and background job, and query each arm.

    Yields the number of finished conversations.
    """
    run.repeats = len(arms)
    run.recordings = len({*map(_recording_of, arms)})
    prompts = load_generic_prompts() if plan.silence else []
    prompts = prompts[:: max(1, len(prompts) // max(1, plan.silence))][: plan.silence]
    conversations = run.loaded.conversations
    others = foreign_questions([run.loaded]) if plan.acts and plan.silence else {}
    foreign_each = -(-plan.silence // len(conversations))
    for number, conversation in enumerate(conversations):
        foreign = others.get(id(conversation), [])[:foreign_each]
        quiet = list_prompts(conversation, foreign, prompts[number :: len(conversations)])
        quiet = [prompt for prompt in quiet if prompt.kind != "own"]
        stages = [*conversation.stages]
        recorded: dict[tuple[Any, ...], RecordedConversation] = {}
        for stage in stages:
            ended = quiet if stage is stages[-1] else []
            _ask_stage(run, folder, arms, plan, stage, recorded, ended)
        yield number + 1


def _ask_stage(
    run: BenchRun,
    folder: Path,
    arms: Sequence[Arm],
    plan: AblationPlan,
    stage: Conversation,
    recorded: dict[tuple[Any, ...], RecordedConversation],
    quiet: Sequence[AskedPrompt],
) -> None:
    """Record a stage of a conversation, each recording once, and query each arm."""
    sizes: dict[tuple[Any, ...], int] = {}
    for number, arm in enumerate(arms):
        key = _recording_of(arm)
        home = folder / "-".join(["home", *map(str, key)]).replace("/", "-")
        if key not in sizes:
            first = key not in recorded
            with MemTier.open(home, stage.id, settings=arm.overrides) as memory:
                recorded[key] = run.record(memory, stage, recorded.get(key))
                run_background_jobs(memory)
                if first and plan.silence:
                    memory.reindex()  # leaves no gaps from deleted rows
            # Later stages have the recalls of earlier ones in their index.
            sizes[key] = _index_bytes(home, stage.id) if first and plan.silence else 0
        arm.index_bytes += sizes[key]
        if run.learn or run.acts:
            home = _copy_project(home, folder / f"arm-{number}", stage.id)
        conditions = ("memory", *(() if arm.variant.group else plan.conditions))
        with MemTier.open(home, stage.id, settings=arm.overrides) as memory:
            arm.outcomes += run.ask(
                memory,
                stage,
                recorded[key],
                plan.reader,
                conditions,
                credits=arm.variant.credits,
            )
            arm.quiet += _ask_quiet(memory, quiet)


def _index_bytes(home: Path, project: str) -> int:
    """Return the size of a closed project's index, whose write-ahead log is then empty."""
    with MemTier.open(home, project) as memory:
        return memory.store.measure_usage(datetime.now(UTC)).index


def _ask_quiet(memory: MemTier, prompts: Sequence[AskedPrompt]) -> Iterator[dict[str, Any]]:
    """Ask prompts that need no memory, each as the first in a new session."""
    for prompt in prompts:
        recall = memory.recall(
            prompt.question.text,
            session_id=f"asked:{prompt.id}",
            purpose="inject",
            at=prompt.question.at,
        )
        name = "silent" if prompt.kind == "generic" else "foreign_silent"
        yield {name: float(not recall.injected)}


def _recording_of(arm: Arm) -> tuple[Any, ...]:
    """Return a key of the settings that affect how an arm's conversations are recorded."""
    return tuple(arm.overrides.get(key) for key in ("embedding.model", *WRITTEN))


def _copy_project(home: Path, copy: Path, project: str) -> Path:
    """Copy a project to a separate home, where a variant learns without the others."""
    source, copied = (ProjectFolder.of(make_home(root), project).path for root in (home, copy))
    shutil.copytree(source, copied)
    return copy


def _profile_report(base: Arm, others: Sequence[Arm]) -> dict[str, Any]:
    before = [question_figures(outcome) for outcome in base.outcomes]
    return {
        "profile": base.profile,
        "base": _figures(base),
        "rows": [
            {
                "group": arm.variant.group,
                "name": arm.variant.name,
                "overrides": dict(arm.variant.overrides),
                **_figures(arm),
                "difference": {
                    **compare_metrics([question_figures(o) for o in arm.outcomes], before),
                    **compare_metrics(arm.quiet, base.quiet),
                },
            }
            for arm in others
        ],
    }


def _mean_of(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if name in row]
    return mean(values) if values else None


def _figures(arm: Arm) -> dict[str, Any]:
    seconds = [outcome.seconds for outcome in arm.outcomes]
    shares = [recall_at(each.ranked, each.gold, 10) for each in arm.outcomes if each.gold] or [0.0]
    return {
        **summarise_outcomes(arm.outcomes),
        "recall10_interval": [round(bound, 4) for bound in bootstrap_interval(shares)],
        **{name: _mean_of(arm.quiet, name) for name in ("silent", "foreign_silent")},
        "latency_ms": latency_percentiles(seconds),
        "index_bytes": arm.index_bytes,
    }
