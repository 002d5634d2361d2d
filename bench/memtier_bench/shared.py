"""Measure a project shared by many machines, with a real server and machines as processes.

Each machine has a home and a role of its own.  Everything is in a database created for the run and
dropped after it.  The server's CPU time is measured if it runs on this machine, and includes its
background work; statements are counted by pg_stat_statements, if loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.metrics import percentile
from memtier_bench.probe import child_environment, run_in_fresh_process
from memtier_bench.progress import Progress, no_progress
from memtier_bench.scratch import Scratch, open_scratch
from memtier_bench.server_cpu import cpu_seconds, leader_of
from memtier_bench.shared_machine import AGENT
from memtier_bench.synthetic import EPOCH, SyntheticChat
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.formats import to_iso

PARTS: Final = ("machines", "appends", "lag", "catch-up")

_SEED: Final = 1
_QUERIES: Final = 200  # distinct queries
_LAG_RUNS: Final = 200
_LAG_PAUSE: Final = 0.05  # seconds between two runs, so that each is followed separately
_IDLE_SECONDS: Final = 20.0
_READY_SECONDS: Final = 4.0  # time for processes to start, before all of them begin at once
_FILL_LINES: Final = 1000  # lines appended at a time
_NOW: Final = to_iso(EPOCH + timedelta(days=3650))


def run_shared(
    url: str,
    *,
    machines: int = 4,
    runs: int = 2000,
    recalls: int = 1000,
    lines: int = 4000,
    writers: Sequence[int] = (1, 4, 16),
    batches: Sequence[int] = (2, 100),
    catch_up: Sequence[int] = (20_000,),
    only: Collection[str] = (),
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Measure the named parts, or all; return a JSON report.

    Args:
        url: a database of the server, as a user that may create databases and roles.
        runs: of each machine, alternating between one agent's shared session and its own.
        recalls: on one machine, to measure their cost on the server.
        lines: appended in total for each number of writers and each batch.
        catch_up: how many entries a new machine fetches and indexes.

    Raises:
        LedgerError: the server is unreachable, or refuses.
        MemTierError: a machine failed.
    """
    measures: dict[str, Callable[[_Bench], Any]] = {
        "machines": lambda bench: _measure_machines(bench, machines, runs, recalls),
        "appends": lambda bench: [
            _measure_appends(bench, count, batch, lines) for batch in batches for count in writers
        ],
        "lag": _measure_lag,
        "catch-up": lambda bench: [
            row for entries in catch_up for row in _measure_catch_up(bench, entries)
        ],
    }
    figures: dict[str, Any] = {}
    with (
        open_scratch(url) as scratch,
        tempfile.TemporaryDirectory(prefix="memtier-shared-") as top,
    ):
        bench = _Bench(scratch, Path(top), progress)
        for part in PARTS:
            if not only or part in only:
                figures[part] = measures[part](bench)
        return {
            "kind": "shared",
            "dataset": "shared",
            "server": scratch.version(),
            "version": memtier_plugin.__version__,
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
            **figures,
        }


@dataclass(slots=True)
class _Machine:
    """A machine: its home, its server address, and the project."""

    home: Path
    url: str
    project: str
    environment: Mapping[str, str]

    def task(self, **more: Any) -> dict[str, Any]:
        """Return the task description for a process of this machine."""
        return {"home": str(self.home), "url": self.url, "project": self.project, **more}

    def run(self, function: str, **more: Any) -> dict[str, Any]:
        """Call a function of `shared_machine` in a process of this machine."""
        return run_in_fresh_process(function, self.task(**more), "shared_machine", self.environment)

    def command(self, *arguments: str) -> dict[str, Any]:
        """Run `memtier` on this machine; return its output.

        Raises:
            MemTierError: it failed.
        """
        return self.measure(*arguments)[0]

    def measure(self, *arguments: str) -> tuple[dict[str, Any], dict[str, float]]:
        """Run `memtier` on this machine; return its output and cost.

        Raises:
            MemTierError: it failed.
        """
        scope = ("--json", "--home", str(self.home), "--project", self.project)
        command = [sys.executable, "-m", "memtier_plugin", *scope, *arguments]
        environment = {**child_environment(), **self.environment}
        started = time.perf_counter()
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
            assert process.stdout
            with process.stdout as pipe:
                printed = pipe.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                log.seek(0)
                raise MemTierError(f"memtier {' '.join(arguments)}: {printed}{log.read()}")
        took = {
            "seconds": round(time.perf_counter() - started, 2),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
            "peak_rss_mb": round(used.ru_maxrss / (2**10 if sys.platform == "linux" else 2**20)),
        }
        return dict(json.loads(printed.splitlines()[-1])), took

    @contextmanager
    def following(self) -> Iterator[None]:
        """Run this machine's daemon, which follows the server."""
        command = [sys.executable, "-m", "memtier_plugin.daemon", "--home", str(self.home), "--all"]
        with (self.home / "daemon.log").open("ab") as log:
            environment = {**child_environment(), **self.environment}
            daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            daemon.terminate()
            daemon.wait()


@dataclass
class _Bench:
    """Shared by all parts: the server, a folder for homes, and the progress."""

    scratch: Scratch
    top: Path
    tell: Progress
    _made: Counter[str] = field(default_factory=Counter)

    @cached_property
    def _leader(self) -> int | None:
        return leader_of(self.scratch.process_id())

    def add_machine(self, project: str) -> _Machine:
        """Create a machine that may join a project."""
        self._made[project] += 1
        home = self.top / f"{project}-{self._made[project]}"
        home.mkdir(mode=0o700)
        name = self.scratch.project(project)
        url = self.scratch.add_machine(name)
        ledger = {"shared": url, "durability": self.scratch.durability}
        (home / "config.yaml").write_text(json.dumps({"ledger": ledger}))
        return _Machine(home, url, name, self.scratch.environment)

    def add_machines(self, project: str, number: int) -> list[_Machine]:
        """Create machines that have joined a project."""
        machines = [self.add_machine(project) for _ in range(number)]
        for done, machine in enumerate(machines, 1):
            machine.command("shared", "join")
            self.tell(f"{number} machines join", done, number)
        return machines

    def all_at_once(
        self, label: str, lines: int, works: Sequence[Callable[[], dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Run tasks in parallel; report how many lines the server has received."""
        before = self.scratch.count_lines()
        with ThreadPoolExecutor(len(works)) as pool:
            futures = [pool.submit(work) for work in works]
            while wait(futures, timeout=1.0).not_done:
                self.tell(label, min(lines, self.scratch.count_lines() - before), lines)
        return [future.result() for future in futures]

    def rest(self, label: str, seconds: float) -> None:
        """Leave the server idle for some seconds."""
        for passed in range(round(seconds)):
            self.tell(label, passed, round(seconds))
            time.sleep(1.0)

    @contextmanager
    def server_cost(self) -> Iterator[dict[str, float | None]]:
        """Measure the server's work during the block: CPU seconds, and statements."""
        cost: dict[str, float | None] = {}
        statements, used = self.scratch.count_statements(), cpu_seconds(self._leader)
        yield cost
        now = cpu_seconds(self._leader)
        cost["cpu"] = None if used is None or now is None else now - used
        after = self.scratch.count_statements()
        cost["statements"] = None if statements is None or after is None else after - statements


def _measure_machines(bench: _Bench, count: int, runs: int, recalls: int) -> dict[str, Any]:
    """Write on all machines at once; compare their copies and their recalls."""
    machines = bench.add_machines("machines", count)
    begin = time.time() + _READY_SECONDS
    with bench.server_cost() as cost:
        wrote = bench.all_at_once(
            f"{count} machines end {runs:,} runs each",
            2 * runs * count,
            [
                lambda machine=machine, number=number: machine.run(  # type: ignore[misc]
                    "write_runs",
                    seed=number,
                    runs=runs,
                    begin=begin,
                    sessions=["shared", f"own-{number}"],
                )
                for number, machine in enumerate(machines)
            ],
        )
    stored = bench.scratch.measure_lines()
    for machine in machines * 2:  # the last one's lines are new to the others
        machine.command("shared", "drain")
    seconds = max(part["ended"] for part in wrote) - min(part["begun"] for part in wrote)
    ended = count * runs
    return {
        "machines": count,
        "runs": ended,
        "delivered_meanwhile": stored.lines,
        "entries_per_s": round(2 * ended / seconds, 1),
        "end_run_ms": [part["latency_ms"] for part in wrote],
        "machine_cpu_ms_per_run": _each(sum(part["cpu"] for part in wrote), ended),
        "server_cpu_ms_per_run": _each(cost["cpu"], ended),
        "statements_per_run": _each(cost["statements"], ended, 1),
        **_compare_copies(machines, wrote),
        **_compare_recalls(bench, machines),
        "recalls": _measure_recalls(bench, machines[0], recalls),
        "bytes_per_line": {
            name: round(value / stored.lines, 1)
            for name, value in stored._asdict().items()
            if name != "lines"
        },
    }


def _compare_copies(
    machines: Sequence[_Machine], wrote: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Count lost and duplicated lines, turns out of order, and differing files."""
    copies = [machine.run("check_copy") for machine in machines]
    acknowledged = [entry for part in wrote for entry in part["acknowledged"]]
    stored = Counter(copies[0]["entries"])
    names = {name for copy in copies for name in copy["files"]}
    turns = copies[0]["turns"]
    return {
        "acknowledged": len(acknowledged),
        "stored": stored.total(),
        "lost": len({*acknowledged} - {*stored}),
        "doubled": stored.total() - len(stored),
        "sessions": len(turns),
        "sessions_out_of_order": sum(
            numbers != [*range(1, len(numbers) + 1)] for numbers in turns.values()
        ),
        "files": len(names),
        "files_different": sum(len({c["files"].get(name) for c in copies}) > 1 for name in names),
    }


def _compare_recalls(
    bench: _Bench, machines: Sequence[_Machine], *, rebuild: bool = True
) -> dict[str, Any]:
    """Run the same recalls on all machines, and on one again after rebuilding its index."""
    queries = SyntheticChat(0).questions(_QUERIES)
    asked = [(machine, False) for machine in machines] + [(machines[0], True)] * rebuild
    answers = []
    for number, (machine, anew) in enumerate(asked):
        bench.tell("the same recalls on all machines", number, len(asked))
        answers.append(machine.run("recall", queries=queries, at=_NOW, rebuild=anew)["hits"])
    figures = {
        "queries": len(queries),
        "queries_with_hits": sum(map(bool, answers[0])),
        "recalls_different": sum(
            len({*same}) > 1 for same in zip(*answers[: len(machines)], strict=True)
        ),
    }
    if rebuild:
        pairs = zip(answers[0], answers[-1], strict=True)
        figures["recalls_different_after_rebuild"] = sum(a != b for a, b in pairs)
    return figures


def _measure_recalls(bench: _Bench, machine: _Machine, number: int) -> dict[str, Any]:
    """Measure the cost of recalls on the server: while they run, and when their journal arrives."""
    questions = SyntheticChat(0).questions(_QUERIES)
    queries = [questions[n % _QUERIES] for n in range(number)]
    bench.tell(f"{number:,} recalls", 0, 1)
    machine.command("shared", "drain")
    with bench.server_cost() as cost:
        done = machine.run("recall", queries=queries, at=_NOW, rebuild=False)
    before = bench.scratch.measure_lines()
    with bench.server_cost() as later:
        machine.command("shared", "drain")
    after = bench.scratch.measure_lines()
    return {
        "recalls": number,
        "latency_ms": done["latency_ms"],
        "server_cpu_ms": _each(cost["cpu"], number),
        "statements": cost["statements"],
        "delivery_cpu_ms": _each(later["cpu"], number),
        "delivery_statements": later["statements"],
        "journal_bytes": round((after.payload - before.payload) / number, 1),
    }


def _measure_appends(bench: _Bench, writers: int, batch: int, lines: int) -> dict[str, Any]:
    """Append by the protocol, each writer to its own stream."""
    project = f"appends-{writers}-{batch}"
    machines = [bench.add_machine(project) for _ in range(writers)]
    each = max(1, lines // writers // batch) * batch
    begin = time.time() + _READY_SECONDS + 0.5 * writers
    with bench.server_cost() as cost:
        done = bench.all_at_once(
            f"{writers} writers, {batch} lines at a time",
            each * writers,
            [
                lambda machine=machine, number=number: machine.run(  # type: ignore[misc]
                    "append_lines",
                    agent=f"a{number}",
                    seed=number,
                    lines=each,
                    batch=batch,
                    begin=begin,
                    durable=bench.scratch.durability == "sync",
                )
                for number, machine in enumerate(machines)
            ],
        )
    total = sum(part["lines"] for part in done)
    seconds = max(part["ended"] for part in done) - min(part["begun"] for part in done)
    worst = {name: max(part["latency_ms"][name] for part in done) for name in ("p50", "p95")}
    return {
        "writers": writers,
        "batch": batch,
        "lines": total,
        "lines_per_s": round(total / seconds, 1),
        "append_ms": worst,
        "server_cpu_ms_per_append": _each(cost["cpu"], total // batch),
        "server_cpu_ms_per_line": _each(cost["cpu"], total),
    }


def _measure_lag(bench: _Bench) -> dict[str, Any]:
    """Write on one machine; record when it is indexed on another, whose daemon follows."""
    writer, reader = bench.add_machines("lag", 2)
    task = {"session": "shared", "turns": 2 * _LAG_RUNS, "until": time.time() + 300}
    with bench.server_cost() as alone:
        bench.rest("the server alone", _IDLE_SECONDS)
    with ExitStack() as stack:
        for machine in (writer, reader):
            stack.enter_context(machine.following())
        time.sleep(_READY_SECONDS)  # the daemons take their leases, and all check at once
        with bench.server_cost() as idle:
            bench.rest("two machines follow", _IDLE_SECONDS)
        connections = bench.scratch.count_connections()
        begin = time.time() + _READY_SECONDS
        wrote, watched = bench.all_at_once(
            "lag between two machines",
            2 * _LAG_RUNS,
            [
                lambda: writer.run(
                    "write_runs",
                    seed=_SEED,
                    runs=_LAG_RUNS,
                    begin=begin,
                    sessions=["shared"],
                    pause=_LAG_PAUSE,
                ),
                lambda: reader.run("watch", **task),
            ],
        )
    # A run has two turns; it is readable once the second is.
    lags = [seen - then for then, seen in zip(wrote["times"], watched["times"][1::2], strict=False)]
    return {
        "runs": _LAG_RUNS,
        "seen": len(lags),
        "lag_ms": {
            **{f"p{n}": round(1000 * percentile(lags, n / 100), 1) for n in (50, 95, 99)},
            "max": round(1000 * max(lags), 1),
        },
        "connections_per_machine": max(connections.values(), default=None),
        "idle_cpu_ms_per_machine_second": _each(
            None if idle["cpu"] is None else idle["cpu"] - (alone["cpu"] or 0.0), 2 * _IDLE_SECONDS
        ),
        "idle_statements_per_machine_second": _each(idle["statements"], 2 * _IDLE_SECONDS, 1),
    }


def _measure_catch_up(bench: _Bench, entries: int) -> list[dict[str, Any]]:
    """Let new machines join a project with history: line by line, and by a snapshot."""
    project = f"catch-up-{entries}"
    filler, first, second = (bench.add_machine(project) for _ in range(3))
    fill = {"agent": AGENT, "seed": _SEED, "lines": entries, "batch": _FILL_LINES, "begin": 0}
    fill["durable"] = False
    bench.all_at_once(
        f"{entries:,} entries to catch up with",
        entries,
        [lambda: filler.run("append_lines", **fill)],
    )
    stored, file = bench.scratch.measure_lines(), str(bench.top / f"{project}.tar")
    rows = [_measure_join(bench, first, entries, "replay")]
    bench.tell("a snapshot is written", 0, 1)
    made, took = first.measure("shared", "snapshot", file)
    rows.append(_measure_join(bench, second, entries, "snapshot", "--snapshot", file))
    Path(file).unlink()
    rows[0]["server_bytes_per_line"] = round((stored.heap + stored.indexes) / stored.lines, 1)
    rows[1] |= {"snapshot_bytes": made["bytes"], **{f"snapshot_{k}": v for k, v in took.items()}}
    copies = [machine.run("check_copy")["files"] for machine in (first, second)]
    # Without the register of exports
    names = {name for copy in copies for name in copy if "/" in name}
    rows[1]["files"] = len(names)
    rows[1]["files_different"] = sum(copies[0].get(n) != copies[1].get(n) for n in names)
    return [rows[0], rows[1] | _compare_recalls(bench, [first, second], rebuild=False)]


def _measure_join(
    bench: _Bench, machine: _Machine, entries: int, way: str, *arguments: str
) -> dict[str, Any]:
    """Measure `memtier shared join`, from process start to the last indexed line."""
    bench.tell(f"a new machine joins by {way}", 0, 1)
    with bench.server_cost() as cost:
        _, took = machine.measure("shared", "join", *arguments)
    index = machine.run("measure_index")
    return {
        "entries": entries,
        "way": way,
        "indexed": index["entries"],
        "index_bytes_per_entry": round(index["bytes"] / max(1, index["entries"]), 1),
        **took,
        "entries_per_s": round(entries / took["seconds"], 1),
        "server_cpu_ms_per_line": _each(cost["cpu"], entries),
    }


def _each(total: float | None, number: float, scale: int = 1000) -> float | None:
    """Return the average per item, in thousandths by default; None for none."""
    return None if total is None else round(scale * total / max(number, 1), 4)
