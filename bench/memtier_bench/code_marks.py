"""`memtier bench code`: what a memory says of files and names that its code no longer has.

A repository is built by a seed, a memory gets lines that name what it has, had and never had, and
each line is recalled.  A mark is right where the line names what is gone, or has another name now,
and says so.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

import memtier_plugin
from memtier_bench.code_repository import COMMITS, RENAMES, CodeRepository, build_repository
from memtier_bench.metrics import latency_percentiles
from memtier_bench.progress import Progress, no_progress
from memtier_bench.tables import Report, ReportTable, Section
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.records import Message
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.workspace import Workspace

LINES: Final = Path(__file__).with_name("code_lines.yaml")
_SETTINGS: Final = {"ledger.durability": "os", "retrieval.floor": "off"}
_TEMPLATES: Final = (
    "The code for it is in {}.",
    "I changed `{}` because the tests were red.",
    "Before you touch {}, ask the platform team.",
)


class CodeLine(NamedTuple):
    """A line, and the beginnings of the notes that it must get."""

    text: str
    notes: tuple[str, ...]
    written: bool  # by an author, not for a file of the repository


def run_code(
    lines: Path | None = None,
    repositories: int = 3,
    seed: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure the marks of lines in memories of built repositories; return a JSON report.

    Args:
        lines: a file of lines in the form of the one that ships [that].
        seed: of the first repository; the others follow.

    Raises:
        ImportFileError: the file of lines is not of that form.
        OSError, CalledProcessError: git is missing, or failed.
    """
    tell = progress or no_progress
    figures = []
    for number in range(repositories):
        tell(f"repository {number + 1}", number, repositories)
        with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
            built = build_repository(Path(folder).resolve() / "shop", seed + number)
            cases = [*read_lines(lines or LINES, built), *_generated(built)]
            figures.append(_measure(Path(folder) / "home", built, cases))
    return {
        "kind": "code",
        "dataset": "code",
        "repositories": repositories,
        "seed": seed,
        "commits": COMMITS,
        "renames": RENAMES,
        "counts": {name: _sum(figures, name) for name in ("written", "files")},
        "failures": sorted({line for each in figures for line in each["failures"]}),
        "recalled": sum(each["recalled"] for each in figures),
        "read_seconds": [each["read_seconds"] for each in figures],
        "reread_seconds": [each["reread_seconds"] for each in figures],
        "mark_ms": latency_percentiles([s for each in figures for s in each["mark"]]),
        "recall_ms": latency_percentiles([s for each in figures for s in each["recall"]]),
        "without_ms": latency_percentiles([s for each in figures for s in each["without"]]),
        "version": memtier_plugin.__version__,
    }


def _sum(figures: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    return {key: sum(each[name][key] for each in figures) for key in figures[0][name]}


def read_lines(path: Path, built: CodeRepository) -> Iterator[CodeLine]:
    """Yield the lines of a file with the names of a repository in place.

    Raises:
        ImportFileError: the file cannot be read, or is not of that form.
    """
    names = built.names
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
        for case in document["marked"]:
            marks = [(k.format_map(names), v.format_map(names)) for k, v in case["marks"].items()]
            # A file that only moved still has a bare name that stands for it.
            expected = tuple(f"{n} is {what}" for n, what in marks if not what.endswith(f"/{n}"))
            yield CodeLine(case["line"].format_map(names), expected, True)
        for line in document["unmarked"]:
            yield CodeLine(line.format_map(names), (), True)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError, TypeError) as error:
        raise ImportFileError(f"{path}: not a file of lines: {error!r}") from error
    except AttributeError as error:
        raise ImportFileError(f"{path}: a line or mark is no text: {error}") from error


def _generated(built: CodeRepository) -> Iterator[CodeLine]:
    """Yield a line for each file that was renamed, deleted, brought back, or kept."""
    expected: dict[str, tuple[str, ...]] = {
        path: (f"{path} is now {new}",) for path, new in built.renamed.items()
    }
    expected |= {path: (f"{path} is gone",) for path in built.deleted}
    expected |= dict.fromkeys((*built.returned, *built.kept, *built.renamed.values()), ())
    for number, (path, notes) in enumerate(expected.items()):
        yield CodeLine(_TEMPLATES[number % len(_TEMPLATES)].format(path), notes, False)


def _measure(home: Path, built: CodeRepository, cases: Sequence[CodeLine]) -> dict[str, Any]:
    started = time.perf_counter()
    workspace = Workspace(built.top)
    workspace.refresh()
    read = time.perf_counter()
    workspace.refresh()
    again = time.perf_counter()
    counts = {name: dict.fromkeys(_COUNTS, 0) for name in _PARTS}
    failures: list[str] = []
    figures: dict[str, Any] = {"recalled": 0, "mark": [], "recall": [], "without": []}
    with MemTier.open(home, settings=_SETTINGS) as writer:
        for number, case in enumerate(cases):
            message = Message(role="user", content=case.text)
            writer.record([message], session_id=f"s{number}", run_id=f"r{number}")
    with (
        MemTier.open(home, settings=_SETTINGS) as without,
        MemTier.open(home, settings=_SETTINGS, workspace=built.top) as memory,
    ):
        memory.refresh_workspace()
        for case in cases:
            figures["without"].append(without.recall(case.text, purpose="inject").ms / 1000)
            recall = memory.recall(case.text, purpose="inject")
            figures["recall"].append(recall.ms / 1000)
            noted = [hit.note for hit in recall.injected if hit.text == case.text]
            figures["recalled"] += bool(noted)
            marker = workspace.marker()
            assert marker, "git did not answer"
            notes = noted[0].split("; ") if noted else marker.notes(case.text)
            notes = [note for note in notes if " is gone" in note or " is now " in note]
            _count(counts[_PARTS[not case.written]], case, notes, failures)
            begun = time.thread_time()
            for hit in recall.injected:
                marker.mark(hit, hit.text)
            figures["mark"].append(time.thread_time() - begun)
    seconds = {"read_seconds": round(read - started, 3), "reread_seconds": round(again - read, 3)}
    return {**counts, **figures, **seconds, "failures": failures}


_PARTS: Final = ("written", "files")
_COUNTS: Final[tuple[str, ...]] = ("lines", "right", "wrong", "missed")


def _count(
    counts: dict[str, int], case: CodeLine, notes: Sequence[str], failures: list[str]
) -> None:
    """Count a line's notes: each that it must get once, any other as wrong."""
    missed = [name for name in case.notes if not any(note.startswith(name) for note in notes)]
    wrong = [note for note in notes if not note.startswith(case.notes or ("\0",))]
    counts["lines"] += 1
    counts["right"] += len(case.notes) - len(missed)
    counts["missed"] += len(missed)
    counts["wrong"] += len(wrong)
    failures += [f"missed: {name}: {case.text}" for name in missed]
    failures += [f"wrong: {note}: {case.text}" for note in wrong]


def code_view(report: Report) -> list[Section]:
    """Return the tables of the marks and of what they cost."""
    head = " · ".join(f"{report[name]} {name}" for name in ("repositories", "commits", "renames"))
    marks = ReportTable(("marks", "lines", "right", "wrong", "missed"))
    labels = {"written": "lines by an author", "files": "a line for each file"}
    for name, counts in report["counts"].items():
        marks.add_row(labels[name], *map(str, counts.values()))
    costs = ReportTable(("ms", "p50", "p95", "p99"))
    for name, label in (
        ("mark_ms", "CPU time of marking a block"),
        ("recall_ms", "a recall with marks"),
        ("without_ms", "without"),
    ):
        costs.add_row(label, *(f"{value:.2f}" for value in report[name].values()))
    reads = ", ".join(f"{s:.2f}" for s in report["read_seconds"])
    again = ", ".join(f"{s:.2f}" for s in report["reread_seconds"])
    text = f"reading git in the background: {reads} s; again, nothing new: {again} s"
    return [f"{head} · seed {report['seed']}", marks, costs, text, *report["failures"][:20]]
