"""Machines that write and recall while something goes wrong, and the count afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.paths import ProjectFolder
from memtier_plugin.core.records import Entry
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.bootstrap import join
from tests.builders import write_config
from tests.processes import child_environment, running, start_daemon, start_python, wait_until
from tests.shared.test_replicas import PROJECT, hits, ledgers, turns_of

# Until the file `stop` is there: one run after the other, each given again until it is stored.
_WRITER: Final = """
import pathlib, sys, time
from datetime import UTC, datetime, timedelta
from memtier_plugin.memory import MemTier
home, skew, pause = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
every = int(sys.argv[4])
stop, log = home / "stop", home / "acknowledged"
number = len(log.read_text().splitlines()) if log.exists() else 0
clock = lambda: datetime.now(UTC) + timedelta(seconds=skew)
with MemTier.open(home, "harbor", "a", clock=clock) as memory, log.open("a", buffering=1) as out:
    while not stop.exists():
        run = f"{home.name}-{number}"
        text = f"{run}: crane {number} is at pier {home.name}. " + "It was painted. " * 20
        session = home.name if number % every else "ours"
        begun = time.monotonic()
        try:
            memory.record([{"role": "user", "content": text}], session_id=session, run_id=run)
            print(run, begun, time.monotonic() - begun, file=out)
            number += 1
        except Exception as error:
            with (home / "failed").open("a") as failed:
                print(run, begun, repr(error), file=failed)
        time.sleep(pause)
"""
_READER: Final = """
import pathlib, sys, time
from datetime import UTC, datetime, timedelta
from memtier_plugin.memory import MemTier
home, skew = pathlib.Path(sys.argv[1]), float(sys.argv[2])
clock, log = lambda: datetime.now(UTC) + timedelta(seconds=skew), home / "recalls"
with MemTier.open(home, "harbor", "a", clock=clock) as memory, log.open("a", buffering=1) as out:
    while not (home / "stop").exists():
        begun = time.monotonic()
        try:
            found = len(memory.recall("Which crane is at which pier?", purpose="inject").hits)
        except Exception as error:
            found = -1
        print(begun, time.monotonic() - begun, found, file=out)
        time.sleep(0.05)
"""


@dataclass
class Figures:
    """What a bad day cost.

    ``held_s`` is the longest that a run was held up, ``late`` the runs that stand behind a later
    one of their machine and session, ``whole_s`` the time until all machines were the same again.
    """

    name: str
    runs: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    late: int = 0
    held_s: float = 0.0
    whole_s: float = 0.0
    recalls: int = 0
    recall_p95_ms: float = 0.0
    without_hits: int = 0


@dataclass
class Machine:
    """A home with a writer, a reader and a daemon that follows, each a process."""

    home: Path
    skew: float = 0.0
    pause: float = 0.02
    every: int = 2  # run in the session that all write into; the others in one of its own
    processes: dict[str, subprocess.Popen[Any]] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        """Start some of its processes."""
        environment = child_environment()
        for name in names or ("writer", "reader", "follower"):
            with (self.home / f"{name}.log").open("ab") as log:
                options = {"stdout": log, "stderr": log, "env": environment}
                if name == "follower":
                    arguments = ("--home", str(self.home), "--all", "--interval", "2")
                    self.processes[name] = start_daemon(*arguments, **options)
                else:
                    code = _WRITER if name == "writer" else _READER
                    more = (str(self.skew), str(self.pause), str(self.every))
                    self.processes[name] = start_python("-c", code, self.home, *more, **options)

    def kill(self, *names: str) -> None:
        """Kill some of its processes, all of them by default."""
        for name in names or [*self.processes]:
            with running(self.processes.pop(name)):
                pass

    def rows(self, name: str) -> list[list[str]]:
        """Return the lines that a process wrote of what it did."""
        path = self.home / name
        return (
            [line.split(" ", 2) for line in path.read_text().splitlines()] if path.exists() else []
        )


def joined(home: Path, url: str) -> Path:
    """Make the home of a machine that has joined the project."""
    write_config(home, {"ledger": {"shared": url}, "embedding": {"model": "none"}})
    folder = ProjectFolder.of(home, PROJECT)
    folder.make()
    join(folder, PROJECT)
    return home


@contextmanager
def at_work(machines: Sequence[Machine]) -> Iterator[None]:
    """Let machines write and recall for as long as this lasts; then they only follow."""
    try:
        for machine in machines:
            machine.start()
        for machine in machines:
            wait_until(lambda m=machine: len(m.rows("acknowledged")) > 4 and m.rows("recalls"))
        yield
        for machine in machines:
            (machine.home / "stop").touch()
            for name in ("writer", "reader"):
                assert machine.processes[name].wait(60) == 0, machine.home
    except BaseException:
        for machine in machines:
            machine.kill()
        raise


def spend(name: str, machines: Sequence[Machine], trouble: Callable[[], object]) -> Figures:
    """Spend a bad day; check that nothing is lost or doubled and that all machines are the same."""
    figures = Figures(name)
    try:
        with at_work(machines):
            begun = time.monotonic()
            trouble()
            ended = time.monotonic()
        figures.whole_s = round(_wait_until_whole(machines) - ended, 1)
    finally:
        for machine in machines:
            machine.kill()
    took = []
    for machine in machines:
        figures.failed += len(machine.rows("failed"))
        held = [float(row[2]) for row in machine.rows("acknowledged")]
        figures.held_s = round(max(figures.held_s, *held), 2)
        for at, seconds, number in machine.rows("recalls"):
            if begun <= float(at) <= ended:
                took.append(float(seconds))
                figures.without_hits += int(number) <= 0
    figures.recalls = len(took)
    figures.recall_p95_ms = round(1000 * sorted(took)[int(0.95 * len(took))], 1) if took else 0.0
    _count(machines, figures)
    sys.stdout.write(f"\n{json.dumps(asdict(figures))}\n")
    if path := os.environ.get("SHARED_FIGURES"):
        with Path(path).open("a") as out:
            print(json.dumps(asdict(figures)), file=out)
    assert (figures.lost, figures.doubled) == (0, 0)
    return figures


def _wait_until_whole(machines: Sequence[Machine]) -> float:
    """Wait until all machines are the same and stay so; return since when."""
    while True:
        wait_until(lambda: _are_whole(machines), 120)
        since = time.monotonic()
        time.sleep(1.0)
        if _are_whole(machines):
            return since


def _are_whole(machines: Sequence[Machine]) -> bool:
    """Tell whether nothing waits and all have the same files; they may change meanwhile."""
    states = []
    for machine in machines:
        folder = machine.home / "projects" / PROJECT
        try:
            if any(path.stat().st_size for path in folder.rglob("*-spool.jsonl")):
                return False
            files = [path for path in sorted(folder.rglob("*.jsonl")) if "-spool" not in path.name]
            states.append({str(path.relative_to(folder)): path.read_bytes() for path in files})
        except OSError:
            return False
    return all(state == states[0] for state in states)


def _late(entries: Iterable[Entry]) -> int:
    """Count the runs whose turn is after that of a later run of the same machine and session."""
    last: dict[tuple[str, str], int] = {}
    late = 0
    for entry in sorted(entries, key=lambda entry: entry.turn):
        name, number = str(entry.run_id).rsplit("-", 1)
        line = (name, entry.session_id)
        late += int(number) < last.get(line, -1)
        last[line] = max(last.get(line, -1), int(number))
    return late


def _count(machines: Sequence[Machine], figures: Figures) -> None:
    """Count what is lost and doubled, and compare the machines' files, turns and recalls."""
    memories = [MemTier.open(machine.home, PROJECT, "a") for machine in machines]
    try:
        for memory in (*memories, *memories):
            memory.synchronise()
            memory.catch_up()  # after thousands of lines the last are not indexed yet
        entries = [logged.entry for logged in memories[0].store.log.entries()]
        stored = Counter(entry.run_id for entry in entries if entry)
        acknowledged = {row[0] for machine in machines for row in machine.rows("acknowledged")}
        figures.runs = len(acknowledged)
        figures.lost = len(acknowledged - {*stored})
        figures.doubled = sum(number - 1 for number in stored.values())
        figures.late = _late(entry for entry in entries if entry)
        for memory in memories:
            assert ledgers(memory) == ledgers(memories[0])
        for session in ("ours", *(machine.home.name for machine in machines)):
            turns = turns_of(memories[0], session)
            assert turns == [*range(1, len(turns) + 1)], (session, turns)
        for query in ("Which crane is at pier anna?", "crane 3"):
            assert hits(memories[0], query) != []
            assert all(hits(memory, query) == hits(memories[0], query) for memory in memories)
    finally:
        for memory in memories:
            memory.close()
