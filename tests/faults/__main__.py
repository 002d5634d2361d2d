"""`make faults`: let everything fail that can, and look whether the promises hold.

python -m tests.faults                          every point and kind; goes on where it was left
python -m tests.faults --only "append episodic"     a part of it, each case with what it found
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.faults import injection, walk

DOUBLE = "twice"  # the column of cases where the way back fails too
MOMENTS = ("before ", "part of ", "after ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, show the table; returns 1 if a promise was broken or a point never reached."""
    options = _parser().parse_args(arguments)
    injection.arm()
    places = Path(tempfile.mkdtemp(prefix="memtier-faults-"))
    os.environ.pop("MEMTIER_HOME", None)
    console = Console(stderr=True)
    started = time.monotonic()
    try:
        console.print("[dim]the workload, undisturbed[/dim]")
        walk.warm(places)
        points, calm = walk.discover(places)
        selected = [case for case in walk.cases(points, options.times) if _is_wanted(case, options)]
        random.Random(options.seed).shuffle(selected)  # where time is short, a bit of everything
        selected = selected[: math.ceil(options.sample * len(selected))]
        finished = {} if options.afresh or options.only else _known(options.results)
        todo = [case for case in selected if str(case) not in finished]
        until = started + options.minutes * 60
        with _bar(console, len(selected), len(selected) - len(todo)) as advance:
            for result in _walked(todo, calm, places, options.jobs, until):
                finished[str(result.case)] = result
                if not options.only:
                    _keep(options.results, result)
                for what in result.broken:
                    console.print(f"[red]{result.case}[/red]: {what}", highlight=False)
                if options.only:
                    console.print(f"{result.case}: {result.how or 'not reached'}", highlight=False)
                advance()
    finally:
        shutil.rmtree(places, ignore_errors=True)
    done = [finished[str(case)] for case in selected if str(case) in finished]
    report = _report(points, selected, done, time.monotonic() - started)
    if options.json:
        print(json.dumps(report, indent=1))  # noqa: T201
    else:
        _show(Console(width=110), done, report)
    return int(bool(report["broken"] or report["never_reached"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="cases whose text has this, such as 'fsync journal'",
    )
    parser.add_argument("--kind", choices=injection.KINDS, help="this kind alone")
    parser.add_argument("--times", type=int, default=2, help="of how often a point is passed")
    parser.add_argument("--sample", type=float, default=1.0, help="this share of the cases, drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the sample and of the order")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--minutes", type=float, default=30.0, help="at most; the rest next time")
    parser.add_argument("--afresh", action="store_true", help="forget what was found before")
    parser.add_argument("--results", type=Path, default=Path("build/faults.jsonl"))
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _is_wanted(case: walk.Case, options: argparse.Namespace) -> bool:
    kind = options.kind in (None, case.kind)
    return kind and (not options.only or any(part in str(case) for part in options.only))


# -- going through them ------------------------------------------------------------------------


def _walked(
    todo: Sequence[walk.Case], calm: dict[str, Any], places: Path, jobs: int, until: float
) -> Iterator[walk.Result]:
    """Yield the result of each case; so many at a time, each in a process of its own."""
    left, running = [*reversed(todo)], {}
    while left or running:
        while left and len(running) < jobs and time.monotonic() < until:
            case = left.pop()
            result_path = places / f"result-{len(left)}"
            running[_begin(case, calm, places, result_path)] = case, result_path
        if not running:
            return
        pid, status = os.wait()
        case, result_path = running.pop(pid)
        if status:
            yield walk.Result(case, True, broken=[f"the look at it ended with {status}"])
        else:
            yield walk.Result.from_json(json.loads(result_path.read_text()))
            result_path.unlink()


def _begin(case: walk.Case, calm: dict[str, Any], places: Path, result_path: Path) -> int:
    if pid := os.fork():
        return pid
    status = 1
    try:
        result = walk.run(case, calm, places)
        if not result.fired:
            result = walk.run(case, calm, places)  # what threads do is not the same every time
        result_path.write_text(json.dumps(result.to_json()))
        status = 0
    finally:
        os._exit(status)


@contextmanager
def _bar(console: Console, total: int, done: int) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("faults"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Without a thread of its own: this process forks.
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        task = progress.add_task("faults", total=total, completed=done)

        def advance() -> None:
            progress.advance(task)
            if console.is_terminal:
                progress.refresh()
            elif not (at := progress.tasks[0].completed) % 100:
                console.print(f"{at:.0f} of {total}")

        yield advance


# -- what was found ----------------------------------------------------------------------------


def _known(path: Path) -> dict[str, walk.Result]:
    """Return what was found before by the same code."""
    if not path.exists():
        return {}
    first, *lines = path.read_text().splitlines() or [""]
    if first != json.dumps({"code": walk.code()}):
        path.unlink()
        return {}
    results = [walk.Result.from_json(json.loads(line)) for line in lines]
    return {str(result.case): result for result in results if not result.broken}


def _keep(path: Path, result: walk.Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a") as file:
        if new:
            file.write(json.dumps({"code": walk.code()}) + "\n")
        file.write(json.dumps(result.to_json()) + "\n")


def _report(
    points: Sequence[walk.Point],
    selected: Sequence[walk.Case],
    done: Sequence[walk.Result],
    seconds: float,
) -> dict[str, Any]:
    reached = {(result.case.point, result.case.kind) for result in done if result.fired}
    tried = {(result.case.point, result.case.kind) for result in done}
    return {
        "points": len(points),
        "operations": len({_operation(point.name) for point in points}),
        "cases": len(selected),
        "done": len(done),
        "reached": sum(result.fired for result in done),
        "never_reached": sorted(f"{point}={kind}" for point, kind in tried - reached),
        "killed": sum(result.case.kind == "kill" and result.fired for result in done),
        "told": sum(result.how == "told" for result in done),
        "made_good": sum(result.how == "made good" for result in done),
        "broken": {str(result.case): result.broken for result in done if result.broken},
        "seconds": round(seconds, 1),
    }


def _show(console: Console, done: Sequence[walk.Result], report: dict[str, Any]) -> None:
    columns = (*injection.KINDS, DOUBLE)
    cells: Counter[tuple[str, str]] = Counter()
    bad: Counter[tuple[str, str]] = Counter()
    for result in done:
        cell = (
            _operation(result.case.point),
            DOUBLE if ";" in result.case.point else result.case.kind,
        )
        cells[cell] += result.fired
        bad[cell] += bool(result.broken)
    table = Table("operation", *columns, box=None)
    for row in sorted({row for row, _ in cells}):
        shown = [
            ""
            if (row, c) not in cells
            else f"[red]{cells[row, c]} ({bad[row, c]} broken)[/red]"
            if bad[row, c]
            else str(cells[row, c])
            for c in columns
        ]
        table.add_row(row, *shown)
    totals = [str(sum(cells[row, c] for row, _ in {*cells} if _ == c)) for c in columns]
    table.add_row("in all", *totals, style="bold")
    console.print(table)
    names = ("points", "operations", "cases", "done", "reached", "killed", "told", "made_good")
    console.print(", ".join(f"{name.replace('_', ' ')} {report[name]}" for name in names))
    for case, problems in report["broken"].items():
        console.print(f"[red]{case}[/red]", *problems, sep="\n    ", highlight=False)
    if report["never_reached"]:
        console.print("never reached:", ", ".join(report["never_reached"]), highlight=False)
    console.print(f"promises broken: {len(report['broken'])}; {report['seconds']} seconds")


def _operation(point: str) -> str:
    name = point.partition("=")[0]
    for moment in MOMENTS:
        name = name.removeprefix(moment)
    return name


if __name__ == "__main__":
    sys.exit(main())
