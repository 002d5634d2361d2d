"""`make soak`: writers, readers, the daemon and rebuilds at once, killed at random; then the count.

    python -m tests.faults.soak --minutes 10 --seed 7

A writer notes what was acknowledged to it before it does anything else; in the end all of that must
be there, once, and the index and its recalls must be those of one built anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from memtier_bench.synthetic import WordList
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.memory import MemTier
from tests.faults import promises
from tests.faults.walk import warm
from tests.faults.workload import writer as acknowledging
from tests.proofs.checks import CONTENT, PACKAGE, ask, bad_lines, unequal

PROJECT = "soak"
AGENTS = ("soak.one", "soak.two", "soak.three")  # writers share them
SETTINGS = {"consolidation.probes": 0}
PAUSE = 1.0  # seconds of a writer between two runs, on average; of a reader a third of it
DAEMON_SECONDS = 3  # between two runs of the daemon
KILL_EVERY = 1.5  # seconds, on average
REINDEX_EVERY = 40.0
IDLE = 300  # recalls that are timed when nobody else is there
ASKED = 24  # recalls compared with those of a rebuilt index

_MASK = (1 << 64) - 1


@dataclass
class Worker:
    """One process of the soak, and how to start it again when it was killed."""

    name: str
    start: Callable[[int], int]  # given which life it is, returns the process
    process: int = 0
    lives: int = 0

    def live(self) -> None:
        """Start it, or again."""
        self.process = self.start(self.lives)
        self.lives += 1


@dataclass
class Soak:
    """One soak: where it happens and by which chance."""

    places: Path
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)  # processes that ended by themselves

    @property
    def home(self) -> Path:
        """The home that all of them use."""
        return self.places / "home"

    def workers(self, writers: int, readers: int) -> list[Worker]:
        """Return who takes part."""
        return [
            *(Worker(f"writer {n}", self._forks(_write, n)) for n in range(writers)),
            *(Worker(f"reader {n}", self._forks(_read, n)) for n in range(readers)),
            Worker("daemon", self._daemon),
        ]

    def _forks(self, role: Callable[[Soak, int, int], None], number: int) -> Callable[[int], int]:
        return lambda life: _fork(lambda: role(self, number, life))

    def _daemon(self, life: int) -> int:
        paths = os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get("PYTHONPATH"))))
        with (self.places / "daemon.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "memtier_plugin.daemon", "--home", str(self.home),
                 "--project", PROJECT, "--interval", str(DAEMON_SECONDS)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": paths},
            )  # fmt: skip
        process.returncode = 0  # it is waited for here, with the others
        return process.pid

    def open(self, agent: str) -> MemTier:
        """Open the memory of an agent."""
        return MemTier.open(self.home, PROJECT, agent, settings=SETTINGS)

    def chance(self, *of: object) -> random.Random:
        """Return the chance of one process in one of its lives."""
        return random.Random(f"{self.seed} {of}")

    # -- the run -------------------------------------------------------------------------------

    def run(self, workers: Sequence[Worker], seconds: float, at: Callable[[float], None]) -> None:
        """Let them work for so long, kill one now and then, and end them all."""
        chance = self.chance("kills")
        until = time.monotonic() + seconds
        kill, rebuild = time.monotonic() + KILL_EVERY, time.monotonic() + REINDEX_EVERY / 4
        rebuilding = 0
        for worker in workers:
            worker.live()
        while (now := time.monotonic()) < until:
            at(seconds - (until - now))
            time.sleep(0.05)
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                rebuilding = 0 if ended[0] == rebuilding else rebuilding
                for worker in workers:
                    if worker.process == ended[0]:
                        self.ends[worker.name.split()[0]] += 1  # nobody killed it
                        worker.live()
            if now >= kill:
                kill = now + KILL_EVERY * (0.5 + chance.random())
                if rebuilding and chance.random() < 0.1:
                    os.kill(rebuilding, signal.SIGKILL)
                    self.kills["reindex"] += 1
                else:
                    victim = chance.choice(workers)
                    self._kill(victim)
                    victim.live()
            if now >= rebuild and not rebuilding:
                rebuild = now + REINDEX_EVERY * (0.5 + chance.random())
                rebuilding = _fork(lambda: _reindex(self))
        for worker in workers:
            self._kill(worker, counted=False)
        if rebuilding:
            os.waitpid(rebuilding, 0)

    def _kill(self, worker: Worker, counted: bool = True) -> None:
        try:
            os.kill(worker.process, signal.SIGKILL)
            os.waitpid(worker.process, 0)
        except (ProcessLookupError, ChildProcessError):
            return
        self.kills[worker.name.split()[0]] += counted


def _fork(do: Callable[[], None]) -> int:
    if pid := os.fork():
        return pid
    status = 1
    try:
        do()
        status = 0
    finally:
        os._exit(status)


# -- what they do ------------------------------------------------------------------------------


def _write(soak: Soak, number: int, life: int) -> None:
    """Do runs, one after the other; the one that the last life died in is given again."""
    path = soak.places / f"writer-{number}.acks"
    done = [json.loads(line) for line in _whole_lines(path)]
    first = max((record["number"] for record in done if "number" in record), default=-1) + 1
    tell = acknowledging(path)
    pace = soak.chance("writer", number, life)
    words = WordList()
    agent = AGENTS[number % len(AGENTS)]
    mine = [entry for record in done for entry in record.get("entries", ())]
    with soak.open(agent) as memory:
        for index in range(first, sys.maxsize):
            run = f"w{number}-{index}"
            session = f"{agent}-{index // 40}"
            chance = soak.chance(run)  # what is said again in another life is the same
            try:
                memory.recall(
                    words.question(chance), purpose="inject", session_id=session, run_id=run
                )
                result = memory.end_run(
                    _messages(run, words, chance), session_id=session, run_id=run
                )
                record: dict[str, Any] = {
                    "number": index,
                    "entries": {entry.id: entry.content for entry in result.entries},
                    "credits": [[run, item] for item in sorted(result.credits)],
                }
                tell(record)
                mine += record["entries"]
                if index % 10 == 3:
                    fact = memory.remember(f"The door {run} is {words.text(chance, 9)}")
                    tell({"facts": [fact.id]})
                if index % 15 == 7 and mine:
                    tell({"forgotten": list(memory.forget(ids=[chance.choice(mine)]).ids)})
            except MemTierError as error:
                tell({"error": f"{type(error).__name__}: {error}"})
            except Exception as error:
                tell({"broken": f"writer: {type(error).__name__}: {error}"})
            time.sleep(PAUSE * 2 * pace.random())


def _messages(run: str, words: WordList, chance: random.Random) -> list[dict[str, Any]]:
    """Return a run's messages: the user's have facts in them now and then."""
    city = chance.choice(("Rome", "Oslo", "Bern", "Graz"))
    text = chance.choice(
        (words.text(chance, 9), words.text(chance, 9), f"I live in {city}.", f"I like {city}.")
    )
    return [
        {"role": "user", "content": f"{text} ({run})"},
        {"role": "tool", "name": "find", "content": "found", "ok": chance.random() < 0.7},
        {"role": "assistant", "content": f"{words.text(chance, 9)} ({run})"},
    ]


def _read(soak: Soak, number: int, life: int) -> None:
    """Ask again and again, and note how long it took and how the answer was made."""
    path = soak.places / f"reader-{number}.acks"
    tell = acknowledging(path)
    chance, words = soak.chance("reader", number, life), WordList()
    with soak.open(AGENTS[number % len(AGENTS)]) as memory:
        while True:
            began = time.perf_counter()
            try:
                label = memory.recall(words.question(chance)).label
            except MemTierError as error:
                tell({"error": f"{type(error).__name__}: {error}"})
            except Exception as error:
                tell({"broken": f"reader: {type(error).__name__}: {error}"})
            else:
                tell({"ms": round(1000 * (time.perf_counter() - began), 2), "label": label})
            time.sleep(PAUSE * 2 / 3 * chance.random())


def _reindex(soak: Soak) -> None:
    tell = acknowledging(soak.places / "reindex.acks")
    with soak.open(AGENTS[0]) as memory:
        try:
            memory.reindex()
            tell({"reindexed": True})
        except MemTierError as error:
            tell({"error": f"{type(error).__name__}: {error}"})


def _whole_lines(path: Path) -> list[bytes]:
    return [*path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


# -- what is there in the end ------------------------------------------------------------------


def report(soak: Soak, seconds: float) -> dict[str, Any]:
    """Count what was acknowledged, and what of it is lost, doubled or told differently."""
    acknowledged = promises.Acknowledged()
    times: list[float] = []
    labels: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    for path in sorted(soak.places.glob("*.acks")):
        part = promises.Acknowledged.read(path)
        acknowledged.entries |= part.entries
        acknowledged.credits |= part.credits
        acknowledged.facts |= part.facts
        acknowledged.forgotten |= part.forgotten
        acknowledged.errors += part.errors
        acknowledged.broken += part.broken
        for line in map(json.loads, _whole_lines(path)):
            operations["recalls"] += "ms" in line
            operations["runs"] += "number" in line
            operations["remembered"] += "facts" in line
            operations["forgotten"] += "forgotten" in line
            operations["reindexed"] += "reindexed" in line
            times += [line["ms"]] if "ms" in line else []
            labels[line.get("label", "")] += "label" in line
    folder = soak.home / "projects" / PROJECT
    with soak.open(AGENTS[0]) as memory:
        memory.catch_up()
        idle = _idle(soak)
        # The ones who come next complete what the dead left; only then is it all there.
        memory.consolidate(100_000)
        memory.catch_up()
        lost, doubled = _counted(memory, folder, acknowledged)
        divergent = _divergent(soak, memory)
        torn = bad_lines(folder)
        reported = [(n, line) for n, line, _ in memory.store.reader().bad_lines(limit=100_000)]
        acknowledged.broken += promises.unreported(folder, reported, memory.doctor())
        facts = len(memory.facts())
        promoted = len(memory.events(kinds=("promote",), limit=100_000))
    loaded = _quantile(times, 0.95)
    return {
        "seed": soak.seed,
        "seconds": round(seconds),
        "operations": dict(operations),
        "acknowledged": {
            name: len(getattr(acknowledged, name))
            for name in ("entries", "credits", "facts", "forgotten")
        },
        "facts_in_all": facts,
        "promotions": promoted,
        "kills": dict(soak.kills),
        "ended_by_themselves": dict(soak.ends),
        "torn_lines_all_reported": len(torn),
        "errors_told": dict(Counter(_short(error) for error in acknowledged.errors).most_common(8)),
        "lost": lost,
        "doubled": doubled,
        "divergent": divergent,
        "broken": acknowledged.broken[:20],
        "recall_ms": {
            "p50": _quantile(times, 0.5), "p95": loaded, "slowest": max(times, default=0.0),
            "idle_p50": _quantile(idle, 0.5), "idle_p95": _quantile(idle, 0.95),
            "p95_to_idle": round(loaded / max(_quantile(idle, 0.95), 0.01), 1),
        },
        "labels": {label: number for label, number in labels.items() if number},
    }  # fmt: skip


def _idle(soak: Soak) -> list[float]:
    """Time recalls of the store as it is now, when nobody else works."""
    times = []
    chance, words = soak.chance("idle"), WordList()
    with soak.open(AGENTS[0]) as memory:
        for _ in range(IDLE):
            began = time.perf_counter()
            memory.recall(words.question(chance))
            times.append(1000 * (time.perf_counter() - began))
    return times


def _counted(
    memory: MemTier, folder: Path, acknowledged: promises.Acknowledged
) -> tuple[list[str], list[str]]:
    """Return what is lost and what is there twice, each in words."""
    entries = [*promises.lines(folder, "episodic")]
    fact_ids = {fact.id for fact in memory.facts(include_superseded=True)}
    lost = [
        *promises.lost(
            folder, acknowledged, {entry["id"]: entry["content"] for entry in entries}, fact_ids
        )
    ]
    shown = acknowledged.forgotten & {entry.id for entry in memory.entries()}
    lost += [f"forgotten, but shown: {sorted(shown)[:5]}"] if shown else []
    doubled = [*promises.doubled(folder, entries)]
    # A fact of a consolidation is the same if it rests on the same entries and says the same.
    stated = Counter(
        (fact.relation, fact.text, tuple(sorted(source.entry for source in fact.sources)))
        for fact in memory.facts(include_superseded=True)
    )
    doubled += [f"fact twice: {what[1]}" for what, number in stated.items() if number > 1][:5]
    return lost, doubled


def _divergent(soak: Soak, memory: MemTier) -> list[str]:
    """Return in what the index, and what is recalled from it, differ from one built anew."""
    at = datetime.now(UTC) + timedelta(days=1)
    chance, words = soak.chance("asked"), WordList()
    queries = [words.question(chance) for _ in range(ASKED // len(AGENTS))]
    memories = [soak.open(agent) for agent in AGENTS]
    try:
        before = [recall for memory in memories for recall in ask(memory, queries, at)]
        memory.catch_up()
        followed = _digests(memory)
        memory.reindex()
        rebuilt = _digests(memory)
        memory.catch_up()
        after = [recall for memory in memories for recall in ask(memory, queries, at)]
    finally:
        for opened in memories:
            opened.close()
    changed = [
        f"{name}: {rows} rows, rebuilt {rebuilt[name][0]}"
        for name, (rows, digest) in followed.items()
        if (rows, digest) != rebuilt[name]
    ]
    return [*changed, *unequal(before, after)]


def _digests(memory: MemTier) -> dict[str, tuple[int, int]]:
    """Return, of each table, the number of rows and a digest in which their order is no matter."""
    connection = memory.store.index.connection()
    digests = {}
    for name, sql in CONTENT.items():
        rows, digest = 0, 0
        for row in connection.execute(sql):
            rows, digest = rows + 1, digest + hash(row) & _MASK
        digests[name] = rows, digest
    return digests


def _quantile(times: Sequence[float], share: float) -> float:
    ordered = sorted(times) or [0.0]
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)


def _short(error: str) -> str:
    """Return an error without what differs from one time to the next."""
    return " ".join(word for word in error.split() if "/" not in word)[:100]


# -- the command -------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak and show the report; returns 1 if anything was lost, doubled, divergent or broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    places = Path(tempfile.mkdtemp(prefix="memtier-soak-"))
    os.environ.pop("MEMTIER_HOME", None)
    console = Console(stderr=True)
    console.print(f"seed {options.seed}: {options.writers} writers, {options.readers} readers")
    try:
        warm(places)
        for path in places.glob("*.acks"):
            path.unlink()
        soak = Soak(places, options.seed)
        seconds = options.minutes * 60
        with soak.open(AGENTS[0]) as memory:
            memory.catch_up()
        with _bar(console, seconds) as at:
            soak.run(soak.workers(options.writers, options.readers), seconds, at)
        console.print("[dim]counting, and building the index anew[/dim]")
        results = report(soak, seconds)
    finally:
        shutil.rmtree(places, ignore_errors=True)
    if options.json:
        print(json.dumps(results, indent=1))  # noqa: T201
    else:
        for name, value in results.items():
            Console(width=110).print(f"{name.replace('_', ' ')}: {value}", highlight=False)
    return int(any(results[name] for name in ("lost", "doubled", "divergent", "broken")))


class _bar:
    """A progress bar of seconds, without a thread: this process forks."""

    def __init__(self, console: Console, seconds: float) -> None:
        columns = (TextColumn("soak"), BarColumn(), TimeRemainingColumn())
        self._console, self._shown = console, 0.0
        self._bar = Progress(*columns, console=console, auto_refresh=False)
        self._task = self._bar.add_task("soak", total=seconds)

    def __enter__(self) -> Callable[[float], None]:
        self._bar.__enter__()
        return self._at

    def __exit__(self, *how: Any) -> None:
        self._bar.__exit__(*how)

    def _at(self, seconds: float) -> None:
        self._bar.update(self._task, completed=seconds)
        if self._console.is_terminal:
            self._bar.refresh()
        elif seconds - self._shown >= 60:
            self._shown = seconds
            self._console.print(f"{seconds:.0f} seconds")


if __name__ == "__main__":
    sys.exit(main())
