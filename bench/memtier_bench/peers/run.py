"""`memtier bench peers`: other memories, really run, on the same turns and prompts.

Each peer is installed in an environment of its own and driven in a process of its own.  A peer that
cannot be installed or fails says why; the others go on.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

import memtier_plugin
from memtier_bench.datasets import Conversation, load_dataset
from memtier_bench.metrics import mean
from memtier_bench.peers.embeddings import serve_embeddings
from memtier_bench.peers.install import PeerUnavailable, install
from memtier_bench.peers.measure import (
    Asker,
    Figures,
    ask_conversation,
    ask_identity,
    ask_project,
    play_memtier,
)
from memtier_bench.peers.systems import (
    ENCODER,
    PEERS,
    Bm25System,
    MemTierSystem,
    MiniLmSystem,
    Peer,
    System,
    start_driver,
)
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import dataset_fingerprint, select_questions
from memtier_bench.silence_prompts import (
    AskedPrompt,
    foreign_questions,
    list_prompts,
    load_generic_prompts,
)
from memtier_bench.work.projects import SETS, WorkProject, load_projects
from memtier_plugin.core.errors import ImportFileError, Unsupported

MEMTIER: Final = "memtier"
SHARES: Final = ("recall", "needed", "misled", "right", "change", "correction", "who")
_PARTS: Final = ("talk", "foreign", "generic", "work", "identity")
_THRESHOLDS: Final = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)


def run_peers(
    data: Path,
    folder: Path,
    only: Sequence[str] = (),
    judgement: Path | None = None,
    chosen: str = "held",
    conversations: int = 2,
    sample: int = 150,
    progress: Progress | None = None,
    keep: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Install the peers and measure each on the same data; return a JSON report.

    Args:
        data: LoCoMo, as published; its first ``conversations`` and a ``sample`` of questions.
        folder: where the peers are installed, and stay.
        only: of `PEERS`; MemTier, which sets the budgets of tokens, is measured in any case.
        chosen: the projects of work: ``tune``, ``held``, or a file of that form.
        keep: called with the report so far after each system.
        judgement: a folder with the `identity.yaml` of `memtier bench judgement`; else no identity.

    Raises:
        ImportFileError: the data are not as published.
        Unsupported: there is no such peer.
    """
    if unknown := [name for name in only if name not in PEERS]:
        raise Unsupported(f"peer {unknown[0]!r}; one of: {', '.join(PEERS)}")
    loaded = load_dataset("locomo", data)
    loaded = replace(loaded, conversations=loaded.conversations[:conversations])
    loaded = select_questions(loaded, data, sample=sample)
    foreign, generic = foreign_questions([loaded]), load_generic_prompts(["en"])
    run = _Run(
        talks=[
            (c, list_prompts(c, foreign[id(c)], generic[number::conversations]))
            for number, c in enumerate(loaded.conversations)
        ],
        projects=load_projects(SETS.get(chosen) or Path(chosen)),
        cases=_load_cases(judgement),
        folder=folder.expanduser().absolute(),
        progress=progress or no_progress,
    )
    report: dict[str, Any] = {
        "kind": "peers",
        "dataset": "peers",
        "set": chosen,
        "questions": sum(len(c.questions) for c in loaded.conversations),
        "prompts": {part: run.count_prompts(part) for part in _PARTS},
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "peers": {},
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }
    for name in dict.fromkeys((MEMTIER, *(only or PEERS))):
        report["peers"][name] = run.measure(PEERS[name])
        report |= {"budgets": run.budgets, "threshold": run.threshold}
        if keep:
            keep(report)
    return report


def _load_cases(folder: Path | None) -> list[Mapping[str, Any]]:
    if folder is None:
        return []
    path = folder / "identity.yaml"
    try:
        cases: list[Mapping[str, Any]] = yaml.safe_load(path.read_text("utf-8"))["cases"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ImportFileError(f"{path}: {error}; docs/evaluation.md describes it") from None
    return cases


@dataclass(slots=True, kw_only=True)
class _Run:
    """Measures one system after the other; the first is MemTier."""

    talks: Sequence[tuple[Conversation, Sequence[AskedPrompt]]]
    projects: Sequence[WorkProject]
    cases: Sequence[Mapping[str, Any]]
    folder: Path
    progress: Progress
    budgets: dict[str, int] | None = None
    threshold: float | None = None

    def count_prompts(self, part: str) -> int:
        """Return how many prompts a part has."""
        if part == "work":
            return sum(len(project.probes) for project in self.projects)
        if part == "identity":
            return sum(len(case["checks"]) for case in self.cases)
        kind = "own" if part == "talk" else part
        return sum(prompt.kind == kind for _, prompts in self.talks for prompt in prompts)

    def measure(self, peer: Peer) -> dict[str, Any]:
        """Return a system's figures, or why there are none."""
        row: dict[str, Any] = {"version": peer.version, "how": peer.how}
        try:
            with self._started(peer) as (system, scratch):
                asker = Asker(
                    system=system,
                    folder=scratch,
                    tick=self._ticker(peer.name),
                    budgets=self.budgets,
                )
                self._ask_all(asker, peer.name)
        except PeerUnavailable as error:
            return {**row, "failed": str(error)}
        if self.budgets is None:
            tokens = asker.plain.values
            self.budgets = {p: round(mean(tokens.get(f"{p} tokens", [0]))) for p in _PARTS}
        return {
            **row,
            "default": _summarise(asker.plain),
            "equal": _summarise(asker.cut),
            "ms": round(median(asker.plain.ms), 2),
            "bytes": _total(asker.plain.bytes),
        }

    @contextmanager
    def _started(self, peer: Peer) -> Iterator[tuple[System, Path]]:
        """Install and start a system; yield it with an empty folder for its stores."""
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memtier-")))
            scratch.chmod(0o711)  # PostgreSQL, which refuses to be root, passes through
            url = ""
            if peer.embeds:
                self.progress("install encoder", 0, 1)
                python = install(self.folder / "encoder", ENCODER)
                url = stack.enter_context(serve_embeddings(python, self.folder / "cache"))
            system = self._start(peer, scratch, url)
            stack.callback(system.close)
            yield system, scratch

    def _start(self, peer: Peer, scratch: Path, url: str) -> System:
        if peer.name == MEMTIER:
            return MemTierSystem()
        if peer.name == "minilm":
            self.threshold = fit_threshold(url, load_projects(SETS["tune"]), scratch)
            return MiniLmSystem(url, self.threshold)
        if peer.wanted is None:
            return Bm25System()
        self.progress(f"install {peer.name}", 0, 1)
        interpreter = install(self.folder / peer.name, peer.wanted)
        return start_driver(peer, interpreter, scratch / "process", url)

    def _ask_all(self, asker: Asker, name: str) -> None:
        for conversation, prompts in self.talks:
            ask_conversation(asker, conversation, prompts)
        for project in self.projects:
            (play_memtier if name == MEMTIER else ask_project)(asker, project)
        ask_identity(asker, self.cases)

    def _ticker(self, name: str) -> Callable[[], None]:
        total = sum(map(self.count_prompts, _PARTS))
        done = 0

        def tick() -> None:
            nonlocal done
            done += 1
            self.progress(name, done, total)

        return tick


def fit_threshold(url: str, projects: Sequence[WorkProject], scratch: Path) -> float:
    """Return the threshold of MiniLM under which most probes of these projects are right."""
    rights = dict.fromkeys(_THRESHOLDS, 0.0)
    for threshold in rights:
        figures = Figures()
        asker = Asker(
            system=MiniLmSystem(url, threshold),
            folder=scratch / f"fit-{threshold}",
            tick=lambda: None,
            plain=figures,
        )
        for project in projects:
            ask_project(asker, project)
        rights[threshold] = figures.mean("right") or 0.0
    return max(rights, key=lambda threshold: rights[threshold])


def _total(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _summarise(figures: Figures) -> dict[str, float | None]:
    """Return the means: shares, tokens of a prompt, and silence where nothing is needed."""
    means = {name: figures.mean(name) for name in (*SHARES, "foreign", "generic")}
    means |= {f"{part}_tokens": figures.mean(f"{part} tokens") for part in ("talk", "work")}
    return {name: None if value is None else round(value, 4) for name, value in means.items()}
