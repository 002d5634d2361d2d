"""`memtier bench work`: what the next task of a project needs, and what would mislead it.

Scripted projects are played through a memory in the order of their days.  Each probe is then the
first prompt of a new session: its block should have what the task needs, and nothing that would
mislead, unless MemTier notes that it is of the past.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, get_args

import memtier_plugin
from memtier_bench.intervals import named_mean
from memtier_bench.metrics import mean, percentile
from memtier_bench.progress import Progress, no_progress
from memtier_bench.reading import ReaderModel
from memtier_bench.work.obedience import measure_obedience
from memtier_bench.work.play import AskedProbe, ProjectPlayer, ShownLine, read_lines
from memtier_bench.work.projects import SETS, ProbeKind, WorkProject, load_projects
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.core.settings.yaml_file import YamlFile
from memtier_plugin.credit.verdict import SEED
from memtier_plugin.retrieval.block import BlockPlan

_MECHANISMS: Final = Path(__file__).with_name("mechanisms.yaml")
MEMTIER: Final = "memtier"
KINDS: Final = get_args(ProbeKind)
FIGURES: Final = ("needed", "misled", "right")
BASELINES: Final = ("bm25", "bm25-always", "bm25-full", "nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """What a probe's block has; ``needed`` and ``misled`` are None where it asks for neither.

    ``lacks`` are the needs that no line has, ``misled_by`` the traps that some unmarked line has.
    """

    asked: AskedProbe
    lines: Sequence[ShownLine]
    tokens: int
    lacks: tuple[str, ...]
    misled_by: tuple[str, ...]

    @property
    def needed(self) -> bool | None:
        """Whether all needs are met."""
        return not self.lacks if self.asked.probe.needs else None

    @property
    def misled(self) -> bool | None:
        """Whether a trap stands unmarked."""
        return bool(self.misled_by) if self.asked.probe.misleads else None

    @property
    def right(self) -> bool:
        """Whether nothing is lacking, and nothing misleads."""
        return not (self.lacks or self.misled_by)

    @property
    def project(self) -> str:
        """The name of its project."""
        return self.asked.id.rpartition("/")[0]


def run_work(
    chosen: str = "held",
    arms: Sequence[str] = (),
    failures: int = 0,
    seed: int = SEED,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    reader: ReaderModel | None = None,
) -> dict[str, Any]:
    """Play projects and judge the blocks of their probes under each arm; return a JSON report.

    Args:
        chosen: ``tune``, ``held``, or a file of that form.
        arms: those of `list_arms` that are measured besides MemTier as it is [all].
        failures: the maximum of MemTier's failures reported; none of ``held``.
        seed: of the resampled projects.
        overrides: settings of every arm, by dotted key.
        reader: does what probes ask, and is held against the rules for that.

    Raises:
        EndpointError: the reader does not answer.
        ImportFileError: the file is missing or malformed; names file, line and remedy.
        Unsupported: there is no such arm, or failures of ``held`` are wanted.
        SettingsError: an override is not a setting.
    """
    known = list_arms()
    wanted = dict.fromkeys((MEMTIER, *(arms or known)))
    if unknown := [name for name in wanted if name not in known]:
        raise Unsupported(f"arm {unknown[0]!r}; one of: {', '.join(known)}")
    if failures and chosen == "held":
        raise Unsupported("the failures of `held` are not shown: develop on `--set tune`")
    projects = load_projects(SETS.get(chosen) or Path(chosen))
    played = {name: known[name] for name in wanted if name not in BASELINES}
    tell = progress or no_progress
    outcomes, settings = _play_all(projects, played, overrides or {}, tell)
    asked = [each.asked for each in outcomes[MEMTIER]]
    outcomes |= _baselines(asked, settings["retrieval.token_budget"])
    blocks = {name: [o.lines for o in outcomes[name]] for name in (MEMTIER, "bm25", "nothing")}
    obeyed = measure_obedience(asked, blocks, reader, seed, tell) if reader else None
    differences = {n: _differences(outcomes[MEMTIER], outcomes[n], seed) for n in wanted}
    del differences[MEMTIER]
    return {
        "kind": "work",
        "dataset": "work",
        "set": chosen,
        "projects": len(projects),
        "probes": len(asked),
        "seed": seed,
        "profile": settings["retrieval.profile"],
        "facts": "extracted",
        "arms": {name: _by_kind(outcomes[name], seed) for name in wanted},
        "differences": differences,
        "obedience": obeyed,
        "failures": [_describe(each) for each in outcomes[MEMTIER] if not each.right][:failures],
        "version": memtier_plugin.__version__,
        "settings": settings,
        "fingerprint": sha256(json.dumps([str(p) for p in projects]).encode()).hexdigest()[:16],
        "per_question": [_question_figures(each) for each in outcomes[MEMTIER]],
    }


def list_arms() -> dict[str, Mapping[str, Any]]:
    """Return each arm with the settings that it changes; the baselines have none."""
    file = YamlFile.parse(str(_MECHANISMS), _MECHANISMS.read_text("utf-8"))
    switches = {name: file.value(node) for name, node, _ in file.pairs(file.root)}
    if find_spec("onnxruntime") is None:
        del switches["encoder"]
    return {MEMTIER: {}, **switches, **{name: {} for name in BASELINES}}


def _play_all(
    projects: Sequence[WorkProject],
    played: Mapping[str, Mapping[str, Any]],
    overrides: Mapping[str, Any],
    tell: Progress,
) -> tuple[dict[str, list[ProbeOutcome]], dict[str, Any]]:
    """Return the outcomes under each arm's settings, and the settings of the first."""
    outcomes: dict[str, list[ProbeOutcome]] = {name: [] for name in played}
    settings: dict[str, Any] = {}
    for number, (name, switched) in enumerate(played.items()):
        for nth, project in enumerate(projects):
            tell(name, number * len(projects) + nth, len(played) * len(projects))
            asked, used = _play(project, {"ledger.durability": "os", **overrides, **switched})
            outcomes[name] += [judge_probe(each, each.lines, each.tokens) for each in asked]
            settings = settings or used
    return outcomes, settings


def _play(
    project: WorkProject, overrides: Mapping[str, Any]
) -> tuple[list[AskedProbe], dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder,
        ProjectPlayer(Path(folder) / "home", project, overrides) as player,
    ):
        return [*player.play()], flatten_settings(player.settings)


def _baselines(asked: Sequence[AskedProbe], most: int) -> dict[str, list[ProbeOutcome]]:
    """Return the outcomes of each baseline.

    ``bm25`` has as many tokens for each probe as MemTier took; ``bm25-always`` as many for each as
    MemTier took in the mean, so that it is not told when to keep silent; ``bm25-full`` all of
    `retrieval.token_budget`.
    """
    average = round(mean([each.tokens for each in asked]))
    outcomes: dict[str, list[ProbeOutcome]] = {name: [] for name in BASELINES}
    for each in asked:
        budgets = (each.tokens, average, most, 0)
        for name, budget in zip(BASELINES, budgets, strict=True):
            hits, block = BlockPlan(each.ranked, len(each.ranked), budget).fill("bench")
            lines = read_lines(hits, block)
            outcomes[name].append(judge_probe(each, lines, count_tokens(block)))
    return outcomes


def judge_probe(asked: AskedProbe, lines: Sequence[ShownLine], tokens: int) -> ProbeOutcome:
    """Hold a block against the needs and traps of its probe."""
    shown = [each.line.casefold() for each in lines]
    unmarked = [each.text.casefold() for each in lines if not each.is_past]
    return ProbeOutcome(
        asked=asked,
        lines=lines,
        tokens=tokens,
        lacks=tuple(
            need
            for need in asked.probe.needs
            if not any(part in line for part in need.casefold().split("|") for line in shown)
        ),
        misled_by=tuple(
            trap for trap in asked.probe.misleads if any(trap.casefold() in t for t in unmarked)
        ),
    )


# -- the figures -----------------------------------------------------------------------------------


def _by_kind(outcomes: Sequence[ProbeOutcome], seed: int) -> dict[str, Any]:
    kinds = {kind: [o for o in outcomes if o.asked.probe.kind == kind] for kind in KINDS}
    groups = {"all": outcomes, **{kind: group for kind, group in kinds.items() if group}}
    return {
        name: {
            "probes": len(group),
            **{f: named_mean([(o.project, getattr(o, f)) for o in group], seed) for f in FIGURES},
            "silent": named_mean([(o.project, not o.lines) for o in group], seed),
            "tokens": {
                "p50": percentile([o.tokens for o in group], 0.5),
                "mean": round(mean([o.tokens for o in group]), 1),
            },
        }
        for name, group in groups.items()
    }


def _differences(
    ours: Sequence[ProbeOutcome], theirs: Sequence[ProbeOutcome], seed: int
) -> dict[str, Any]:
    """Return MemTier's shares minus another arm's, on the same probes."""
    changes: dict[str, Any] = {}
    for figure in FIGURES:
        pairs = [
            (o.project, getattr(o, figure), getattr(t, figure))
            for o, t in zip(ours, theirs, strict=True)
        ]
        values = [(p, a - b) for p, a, b in pairs if a is not None]
        changes[figure] = named_mean(values, seed)
    return changes


def _question_figures(outcome: ProbeOutcome) -> dict[str, Any]:
    """Return one probe's figures, for `memtier bench compare`."""
    return {
        "id": outcome.asked.id,
        "category": outcome.asked.probe.kind,
        "right": float(outcome.right),
        "silent": float(not outcome.lines),
        "tokens": outcome.tokens,
    }


def _describe(outcome: ProbeOutcome) -> str:
    probe = outcome.asked.probe
    faults = [f"lacks {need!r}" for need in outcome.lacks]
    faults += [f"misled by {trap!r}" for trap in outcome.misled_by]
    head = f"{outcome.asked.id}, {probe.kind}: {probe.prompt}\n  {'; '.join(faults)}"
    return "\n  ".join([head, *(each.line for each in outcome.lines)])
