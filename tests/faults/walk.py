"""The walk: a workload in a child process, once for every point, kind and time of it."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import memtier_plugin
from memtier_plugin.core.errors import MemTierError, Paused
from memtier_plugin.pool import memory_pool
from tests.faults import injection, promises, workload

PATIENCE = 180.0  # seconds for a process of a case; alone on a machine it needs two
TRIES = 3  # of a step in the process that has the fault: it fails once


@dataclass(frozen=True, order=True)
class Point:
    """One place that the workload passes: how often, and which kinds of fault it takes."""

    name: str
    times: int
    kinds: tuple[str, ...]


@dataclass(frozen=True, order=True)
class Case:
    """What one run of the workload is told."""

    point: str
    kind: str
    time: str  # a number, or with + that it stays so

    def __str__(self) -> str:
        return f"{self.point}:{self.time}={self.kind}"


@dataclass
class Result:
    """How a case ended: broken promises, and how the error was told."""

    case: Case
    fired: bool
    how: str = ""
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as a line of the results' file."""
        return asdict(self)

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Result:
        """Read it back."""
        return cls(**{**line, "case": Case(**line["case"])})


def code() -> str:
    """Return what the results hold for: a digest of all code that took part."""
    package = Path(memtier_plugin.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for top in (
        package,
        package.parent / "hooks",
        package.parent / "daemon",
        Path(__file__).parent,
    ):
        for path in sorted(top.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def warm(places: Path) -> None:
    """Do all of it once here, so that the forked processes of the cases find it imported."""
    work(places / "warm", places / "warm.acks", "", None)
    promises.broken(places / "warm", promises.Acknowledged(), {})
    memory_pool.close()


def discover(places: Path) -> tuple[list[Point], dict[str, Any]]:
    """Run the workload undisturbed; return the points that it passes, and what it leaves."""
    home, log, acks = places / "calm", places / "calm.log", places / "calm.acks"
    status = forked(lambda: work(home, acks, "", log))
    acknowledged = promises.Acknowledged.read(acks)
    if status or acknowledged.broken or acknowledged.errors:
        raise RuntimeError(f"the undisturbed workload failed: {status} {acknowledged}")
    times: Counter[str] = Counter()
    kinds: dict[str, tuple[str, ...]] = {}
    for line in log.read_text().splitlines():
        name, _, takes = line.partition("\t")
        times[name] += 1
        kinds[name] = tuple(takes.split())
    points = [Point(name, number, kinds[name]) for name, number in sorted(times.items())]
    # Twice, as after a fault: what is done again must not change what is remembered.
    forked(lambda: work(home, acks, "", None, again=True))
    calm = inside(lambda: promises.state_of(home))
    return points, calm


def cases(points: list[Point], most: int) -> Iterator[Case]:
    """Yield what is to be tried of each point: its first and last time, and some between."""
    for point in points:
        # Not quite the last of many: how many pages are written is not the same every time.
        last = point.times if point.times < 20 else point.times * 9 // 10
        spread = {1 + (last - 1) * n // max(1, most - 1) for n in range(most)}
        inside = "index" in point.name  # SQLite knows what to do with errors, wherever
        for kind in point.kinds:
            once = kind == "delay" or (inside and kind != "kill")
            for number in [last] if once else sorted(spread):
                yield Case(point.name, kind, str(number))
        if "enospc" in point.kinds and point.name.startswith("before") and not inside:
            yield Case(point.name, "enospc", "1+")  # a disk that stays full
        if "short" in point.kinds and "append" in point.name:
            for kind in ("kill", "eio"):  # the append cannot be taken back either
                truncate = point.name.replace("part of append", "before truncate")
                yield Case(f"{point.name}=short; {truncate}", kind, "1")


def run(case: Case, calm: dict[str, Any], places: Path) -> Result:
    """Let one case happen, let another process go on, and look at what was promised."""
    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=places))
    home, acks, log = folder / "home", folder / "acks", folder / "log"
    try:
        meanwhile = lambda: beside(home, acks, log)  # noqa: E731
        status = forked(
            lambda: work(home, acks, str(case), log), meanwhile if case.kind == "delay" else None
        )
        fired = any(line.startswith(injection.FIRED) for line in log.read_text().splitlines())
        result = Result(case, fired)
        if not fired:
            return result
        killed = status == -signal.SIGKILL
        if killed != (case.kind == "kill"):
            result.broken.append(f"the process ended with {status}")
        acknowledged = promises.Acknowledged.read(acks)
        result.how = how(case, acknowledged)
        status = forked(lambda: work(home, acks, "", None, again=True))
        if status:
            result.broken.append(f"the next process ended with {status}")
        acknowledged = promises.Acknowledged.read(acks)
        result.broken += inside(lambda: promises.broken(home, acknowledged, calm))
        result.seconds = round(time.perf_counter() - started, 2)
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def how(case: Case, acknowledged: promises.Acknowledged) -> str:
    """Tell how an error was told; what was made good by itself needs no telling."""
    if case.kind in ("kill", "delay"):
        return case.kind
    return "told" if acknowledged.errors else "made good"


# -- the processes of a case -------------------------------------------------------------------


def work(home: Path, acks: Path, fault: str, log: Path | None, again: bool = False) -> None:
    """Do the steps of the workload, each again if it fails, and tell all that happens.

    Args:
        again: this is the process that comes after: nothing may fail any more.
    """
    acknowledged = promises.Acknowledged.read(acks)
    tell = workload.writer(acks)
    logging.getLogger("memtier").addHandler(_Teller(tell, again))
    logging.getLogger("memtier").propagate = False
    # What SQLite takes no notice of, as when the log cannot be copied back, it prints.
    sys.excepthook = sys.unraisablehook = lambda *_: None
    injection.arm(fault, str(log) if log else "")
    world = workload.World(home, tell, acknowledged.done)
    if again and home.exists():
        with world.open() as memory:
            memory.resume()  # where it died while it was off
    stays = "+=" in fault
    for name, do in workload.STEPS.items():
        if again and name in acknowledged.done and name in ("remember", "reindex"):
            continue  # without a run's id it would be another; the look at the promises does it
        for left in reversed(range(1 if again else TRIES)):
            try:
                do(world)
            except (MemTierError, workload.JobFailed) as error:
                tell({"error": f"{name}: {type(error).__name__}: {error}"})
                if again or (not left and not stays):
                    tell({"broken": f"{name} fails without a fault: {error}"})
            except Exception as error:
                tell({"broken": f"{name} raised {type(error).__name__}: {error}"})
            else:
                tell({"done": name})
                break


def beside(home: Path, acks: Path, log: Path) -> None:
    """Record and recall while another process is slow, in the middle of what it does."""
    until = time.monotonic() + PATIENCE
    while not (log.exists() and injection.FIRED in log.read_text()):
        if time.monotonic() > until:
            return
        time.sleep(0.005)
    world = workload.World(home, workload.writer(acks))
    try:
        with world.open(day=5) as memory:
            messages = [{"role": "user", "content": "Good morning."}]
            world.stored(memory.record(messages, session_id=workload.BESIDE, run_id="b1"))
            memory.recall("how is the bread?")
    except Paused:
        pass  # as it should be, where the slow one has just switched the project off
    except Exception as error:
        world.tell({"broken": f"beside the slow process: {type(error).__name__}: {error}"})


class _Teller(logging.Handler):
    def __init__(self, tell: workload.Tell, again: bool) -> None:
        super().__init__(logging.WARNING)
        self._tell, self._again = tell, again

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._tell({"error": f"log: {text}"})


def forked(do: Callable[[], None], meanwhile: Callable[[], None] | None = None) -> int:
    """Do something in a process of its own; returns 0, its exit code, or minus a signal.

    Args:
        meanwhile: done at the same time by one more process, which is waited for, too.
    """
    if meanwhile is not None and (other := os.fork()) == 0:
        try:
            meanwhile()
        finally:
            os._exit(0)
    if (pid := os.fork()) == 0:
        status = 1
        try:
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 1)
            do()
            status = 0
        finally:
            os._exit(status)
    until = time.monotonic() + PATIENCE
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -signal.SIGALRM
        time.sleep(0.005)
    if meanwhile is not None:
        os.waitpid(other, 0)
    return os.waitstatus_to_exitcode(ended[1])


def inside(do: Callable[[], Any]) -> Any:
    """Return what something finds in a process of its own, which opens nothing in this one."""
    import pickle

    with tempfile.TemporaryFile() as file:

        def answer() -> None:
            file.write(pickle.dumps(do()))
            file.flush()

        if status := forked(answer):
            raise RuntimeError(f"the look at the promises ended with {status}")
        file.seek(0)
        return pickle.loads(file.read())
