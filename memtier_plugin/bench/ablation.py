"""`memtier bench ablation`: measure each part by leaving it out or changing its value.

The variants are those of MemTier's Table 2 (signals, k, token budget, scoping), Table 7 (Stage 1 by
BM25, vectors or both), Table 8 (how many sessions Stage 1 chooses) and appendix E (normalised
BM25), the signals and sizes of `recall_first`, and ranks fused as in True Memory.  A conversation
is recorded once per embedding model, and every variant queries that recording.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.bench.compare import compare_metrics
from memtier_plugin.bench.metrics import (
    QuestionOutcome,
    latency_percentiles,
    question_figures,
    summarise_outcomes,
)
from memtier_plugin.bench.progress import Progress, no_progress
from memtier_plugin.bench.reading import Reader
from memtier_plugin.bench.retrieval import (
    BenchRun,
    RecordedConversation,
    dataset_fingerprint,
    prepare_dataset,
)
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.paths import make_home
from memtier_plugin.core.settings.load import flatten_settings, load_settings
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.reranking import NO_RERANKER
from memtier_plugin.retrieval import paper_scorer
from memtier_plugin.storage.project_folder import ProjectFolder

GROUPS: Final = (
    *("signals", "k", "token_budget", "sessions", "scope", "stage_one", "normalise"),
    *("fusion", "adaptive", "stores"),
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
# What other profiles find in place of `recall_first`, by the changed settings.
_FUSIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "profile rrf": {"retrieval.profile": "rrf"},
    "profile rrf, k 16": {"retrieval.profile": "rrf", "rrf.k": 16},
    "profile rrf, no guard": {"retrieval.profile": "rrf", "rrf.guard": False},
}
# Each store of Mem-T (Table 4) left out: working memory, facts, experiences and what was said.
_STORES: Final[Mapping[str, Mapping[str, Any]]] = {
    "without working memory": {"summaries.working": False},
    "without facts": {"retrieval.facts": False},
    "without experiences": {"retrieval.experiences": False},
    "without lines": {"retrieval.depth": "facts"},
}
# What is off by default, switched on; of these settings, some make a background job write more.
_ADAPTIVE: Final[Mapping[str, Mapping[str, Any]]] = {
    "profiles of people": {"people.profiles": True},
    "episodes of 6 hours": {"retrieval.episode_hours": 6.0},
    "surprise": {"retrieval.weights.surprise": 1.0},
    "summaries of months and people": {"summaries.long": True},
    "search tier by tier": {"retrieval.search": "tiers", "priority.enabled": True},
    "gate leaves lines out": {"gate.mode": "index"},
}
_SWITCHED: Final = {"fusion": _FUSIONS, "adaptive": _ADAPTIVE, "stores": _STORES}
_WRITTEN: Final = ("people.profiles", "summaries.long", "priority.enabled", "gate.mode")
_CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "scope": ("sessions", "none"),
    "stage_one": ("bm25", "dense", "rrf"),
    "normalise": ("raw", "log1p", "minmax", "zscore"),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings that differ from the profile's in one part."""

    group: str
    name: str
    overrides: Mapping[str, Any]


@dataclass(slots=True)
class _Arm:
    """A profile unchanged (no group) or a variant of it, with its outcomes."""

    profile: str
    variant: Variant
    overrides: Mapping[str, Any]
    outcomes: list[QuestionOutcome] = field(default_factory=list)


def run_ablation(
    dataset: str,
    data: Path,
    profile: str | None = None,
    facts: str = "none",
    only: Iterable[str] = (),
    limit: int | None = None,
    sample: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    reader: Reader | None = None,
    progress: Progress | None = None,
    *,
    learn: bool = False,
) -> dict[str, Any]:
    """Ask every question of a data set once for each variant; return the differences, for JSON.

    Args:
        profile: `recall_first`, `paper` or `rrf` [each].
        only: which of `GROUPS` to vary [all].
        reader: also let it answer from each variant's block.
        learn: credit right answers, as for `run_retrieval`; each variant learns for itself.
        dataset, data, facts, limit, sample, overrides, progress: as for `run_retrieval`.

    Raises:
        ImportFileError, EndpointError, SettingsError: as by `run_retrieval`.
        Unsupported: the profile has nothing of these groups to vary.
    """
    loaded = prepare_dataset(dataset, data, facts, limit, sample, answered=reader is not None)
    groups = tuple(only) or GROUPS
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
        arms = [
            arm
            for name in ([profile] if profile else _SIZES)
            for arm in _arms(Path(folder), name, groups, overrides or {})
        ]
        if not any(arm.variant.group for arm in arms):
            raise Unsupported(f"nothing to vary in {profile}: {', '.join(groups)}")
        run = BenchRun(loaded=loaded, facts=facts, progress=progress or no_progress, learn=learn)
        _ask(run, Path(folder), arms, reader)
    return {
        "kind": "ablation",
        "dataset": dataset,
        "facts": facts,
        "facts_stored": run.facts_stored // run.recordings,
        "questions": sum(bool(outcome.gold) for outcome in arms[0].outcomes),
        "skipped": loaded.skipped,
        "unresolved": loaded.unresolved,
        "reader": reader.model if reader else None,
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
    if profile != "paper" and settings["rerank.model"] != NO_RERANKER:
        yield Variant("signals", "without rerank", {"rerank.model": NO_RERANKER})
    if profile != "paper" and settings["ask.hypothetical"]:
        yield Variant("signals", "without hypothetical", {"ask.hypothetical": False})
    if profile == "rrf":
        yield Variant("signals", "without guard", {"rrf.guard": False})


def _arms(
    home: Path, profile: str, groups: Sequence[str], overrides: Mapping[str, Any]
) -> Iterator[_Arm]:
    chosen = {**overrides, "retrieval.profile": profile}
    settings = flatten_settings(load_settings(home, "bench", None, chosen))
    yield _Arm(profile, Variant("", "as it is", {}), chosen)
    for variant in list_variants(profile, settings):
        if variant.group in groups:
            yield _Arm(profile, variant, {**chosen, **variant.overrides})


def _ask(run: BenchRun, folder: Path, arms: Sequence[_Arm], reader: Reader | None) -> None:
    """Record each conversation once per embedding model and background job, and query each arm."""
    run.repeats = len(arms)
    run.recordings = len({*map(_recording_of, arms)})
    for conversation in run.loaded.conversations:
        recorded: dict[tuple[Any, ...], RecordedConversation] = {}
        for number, arm in enumerate(arms):
            key = _recording_of(arm)
            home = folder / "-".join(["home", *map(str, key)]).replace("/", "-")
            if key not in recorded:
                with MemTier.open(home, conversation.id, settings=arm.overrides) as memory:
                    recorded[key] = run.record(memory, conversation)
                    if any(key[1:]):
                        memory.summariser.run(limit=100_000)
                        memory.prioritiser.run(limit=100_000)
                        memory.gatekeeper.run(limit=100_000)
            if run.learn:
                home = _copy_project(home, folder / f"arm-{number}", conversation.id)
            with MemTier.open(home, conversation.id, settings=arm.overrides) as memory:
                arm.outcomes += run.ask(
                    memory, conversation, recorded[key], reader, conditions=["memory"]
                )


def _recording_of(arm: _Arm) -> tuple[Any, ...]:
    """Return what decides how an arm's conversations are recorded."""
    return tuple(arm.overrides.get(key) for key in ("embedding.model", *_WRITTEN))


def _copy_project(home: Path, copy: Path, project: str) -> Path:
    """Copy a project into a home of its own, where a variant learns without the others."""
    source, copied = (ProjectFolder.of(make_home(root), project).path for root in (home, copy))
    shutil.copytree(source, copied)
    return copy


def _profile_report(base: _Arm, others: Sequence[_Arm]) -> dict[str, Any]:
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
                "difference": compare_metrics([question_figures(o) for o in arm.outcomes], before),
            }
            for arm in others
        ],
    }


def _figures(arm: _Arm) -> dict[str, Any]:
    seconds = [outcome.seconds for outcome in arm.outcomes]
    return {**summarise_outcomes(arm.outcomes), "latency_ms": latency_percentiles(seconds)}
