"""`make power-loss`: whatever is acknowledged is there after a power cut, at whatever moment.

A workload runs with `power_loss.c` preloaded, which journals what it writes, renames and syncs, and
the workload adds what was acknowledged to it.  The journal is replayed to each of its prefixes on a
disk that forgets: of a file it has what it held when a sync of it began, of a folder the names that
it had then, or, drawn by a seed, some of what came after.  Everything acknowledged by then must
stand in a whole line of the right ledger, and MemTier must open what is left and find it.
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
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import memtier_plugin
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.ledger import jsonl

SOURCE = Path(__file__).with_name("power_loss.c")
PACKAGE = Path(memtier_plugin.__file__).parents[1]
PROJECT = "power"
LONG = "agent-" + "x" * 130  # a name that stands in full in a file of names
DRAWS = 2  # torn disks per prefix that is opened
SETTINGS = {"consolidation.probes": 0, "embedding.model": "none"}
COMPILER = next(filter(None, map(shutil.which, ("gcc", "cc", "clang"))), None)


# -- the workload, in a process of its own ---------------------------------------------------------


def acknowledge(ledger: str, *needles: str) -> None:
    """Add to the journal that a line with all of these texts was acknowledged."""
    fd = os.open(os.environ["POWER_LOG"], os.O_WRONLY | os.O_APPEND)
    os.write(fd, f"A {json.dumps([ledger, *needles])}\n".encode())
    os.close(fd)


def work(home: Path, rounds: int, end: str) -> None:
    """Record, credit, remember, forget and consolidate in four threads; perhaps die in it."""
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(_record, home, agent, rounds, end == "killed")
            for agent in ("main", "main", LONG)
        ]
        for job in [*jobs, pool.submit(_decide, home, rounds, end)]:
            job.result()


def _record(home: Path, agent: str, rounds: int, dies: bool) -> None:
    """Record and end runs; two threads deliver the same ones, and both are answered."""
    with MemTier.open(home, PROJECT, agent, SETTINGS) as memory:
        for number in range(rounds):
            text = f"In round {number} the kiln of {agent[:5]} is at {900 + number} degrees."
            messages = [
                {"role": "user", "content": text},
                {"role": "assistant", "content": f"Noted: {900 + number} degrees."},
            ]
            run = f"run-{agent[:5]}-{number}"
            memory.recall(f"kiln {number}", purpose="inject", session_id="s", run_id=run)
            if dies and number == rounds // 2:
                threading.Timer(0.004, os.kill, (os.getpid(), signal.SIGKILL)).start()
            if number % 2:
                memory.record(messages, session_id="s", run_id=run)
            else:
                result = memory.end_run(messages, session_id="s", run_id=run)
                for item in result.credits:
                    acknowledge("journal", '"kind": "credit"', run, item)
            acknowledge("episodic", text, run)


def _decide(home: Path, rounds: int, name: str) -> None:
    """Remember, forget and consolidate: what is written to several ledgers together."""
    with MemTier.open(home, PROJECT, "clerk", SETTINGS) as memory:
        for number in range(max(1, rounds // 3)):
            fact = memory.remember(f"The {name} locker {number} belongs to Ada.")
            acknowledge("semantic", fact.id)
            memory.forget(ids=[fact.id])
            acknowledge("journal", '"kind": "forget"', fact.id)
        entry = memory.record(
            [{"role": "user", "content": f"I live in Porto since the {name} round."}],
            session_id="home",
        )[0]
        acknowledge("episodic", entry.id)
        report = memory.consolidate(extractor="rules")
        for consolidation in report.runs:
            acknowledge("journal", '"kind": "consolidate"', consolidation)


# -- the disk that forgets -------------------------------------------------------------------------


@dataclass(eq=False)
class Node:
    """A file or folder: what it holds, what of it is on the disk, and what came after that."""

    folder: bool
    now: Any
    disk: Any
    pending: list[Callable[[Any], None]] = field(default_factory=list)
    changes: int = 0  # how many operations there were, the pending ones the last of them

    def change(self, operation: Callable[[Any], None]) -> None:
        """Do an operation, which a sync will put on the disk."""
        operation(self.now)
        self.pending.append(operation)
        self.changes += 1

    def synced(self, content: Any, changes: int) -> None:
        """Put on the disk what there was after so many operations."""
        unsynced = self.changes - changes
        if unsynced <= len(self.pending):  # else a sync that began later is done already
            self.disk = content
            self.pending = self.pending[len(self.pending) - unsynced :]


class Disk:
    """The files below a folder, as they are and as a power cut would leave them."""

    def __init__(self, inode: int) -> None:
        self.root = Node(True, {}, {})
        self._nodes = {inode: self.root}
        self._syncs: dict[str, tuple[Node, Any, int]] = {}
        self.changes = 0  # of what is on the disk

    def replay(self, line: bytes) -> None:
        """Do what a line of the journal says."""
        kind, _, rest = line.decode("utf-8", "surrogateescape").partition(" ")
        getattr(self, f"_do_{kind.lower()}")(rest)

    def tree(self, random_: random.Random | None = None) -> dict[str, bytes | None]:
        """Return path and content of all that is left; with a generator, also of unsynced parts."""
        left: dict[str, bytes | None] = {}

        def walk(node: Node, path: str) -> None:
            for name, inner in _remains(node, random_).items():
                where = f"{path}{name}"
                if inner.folder:
                    left[where] = None
                    walk(inner, f"{where}/")
                else:
                    left[where] = bytes(_remains(inner, random_))

        walk(self.root, "")
        return left

    def _find(self, path: str) -> Node:
        node = self.root
        for name in path.split("/") if path else ():
            node = node.now[name]
        return node

    def _parent(self, path: str) -> tuple[Node, str]:
        folder, _, name = path.rpartition("/")
        return self._find(folder), name

    def _make(self, rest: str, folder: bool) -> None:
        inode, _, path = rest.partition(" ")
        node = Node(folder, {}, {}) if folder else Node(folder, bytearray(), bytearray())
        self._nodes[int(inode)] = node
        parent, name = self._parent(path)
        parent.change(lambda names: names.__setitem__(name, node))

    def _do_o(self, rest: str) -> None:
        self._make(rest, False)

    def _do_d(self, rest: str) -> None:
        self._make(rest, True)

    def _do_w(self, rest: str) -> None:
        inode, start, data = rest.split(" ")
        at, written = int(start), bytes.fromhex(data)

        def write(content: bytearray) -> None:
            content.extend(bytes(max(0, at - len(content))))
            content[at : at + len(written)] = written

        self._nodes[int(inode)].change(write)

    def _do_t(self, rest: str) -> None:
        inode, size = map(int, rest.split(" "))
        if inode in self._nodes:
            self._nodes[inode].change(lambda content: content.__delitem__(slice(size, None)))

    def _do_r(self, rest: str) -> None:
        old, new = rest.split("\t")
        (source, name), (target, renamed) = self._parent(old), self._parent(new)
        node = source.now[name]
        source.change(lambda names: names.pop(name, None))
        target.change(lambda names: names.__setitem__(renamed, node))

    def _do_u(self, rest: str) -> None:
        parent, name = self._parent(rest)
        parent.change(lambda names: names.pop(name, None))

    def _do_b(self, rest: str) -> None:
        number, inode = rest.split(" ")
        node = self._nodes.get(int(inode))
        if node:
            self._syncs[number] = node, node.now.copy(), node.changes

    def _do_e(self, rest: str) -> None:
        if rest not in self._syncs:
            return
        node, content, changes = self._syncs.pop(rest)
        node.synced(content, changes)
        self.changes += 1


def _remains(node: Node, random_: random.Random | None) -> Any:
    """Return what a power cut leaves of a node: what was synced, and some of what came after."""
    left = node.disk.copy()
    if random_ is None:
        return left
    for operation in node.pending[: random_.randint(0, len(node.pending))]:
        operation(left)
    if not node.folder and len(left) > len(node.disk) and random_.random() < 0.5:
        cut = random_.randint(len(node.disk), len(left))
        left[cut:] = random_.choice((b"", bytes(len(left) - cut)))  # torn, or never filled
    return left


# -- what was promised -----------------------------------------------------------------------------


@dataclass
class Report:
    """What a replay came to."""

    prefixes: int = 0
    disks: int = 0
    opened: int = 0
    syncs: int = 0
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the figures, and what was lost."""
        return dict(vars(self))


def replay(
    journal: Path, inode: int, folder: Path, *, opened: float, seed: int, most: int | None = None
) -> Report:
    """Replay a journal to every prefix, and look for what was acknowledged by then.

    Args:
        opened: the share of the disks that MemTier opens, besides the search of their lines.
        most: so many disks at most are looked at, spread over the journal by the seed.
    """
    lines = journal.read_bytes().splitlines()
    random_ = random.Random(seed)
    disk, report, promised = Disk(inode), Report(), list[list[str]]()
    moments = [n for n, line in enumerate(lines) if line[:1] in b"AEWTRUDO"]
    chosen = set(moments if most is None else random_.sample(moments, min(most, len(moments))))
    for number, line in enumerate(lines):
        report.prefixes += 1
        if line.startswith(b"A "):
            promised.append(json.loads(line[2:]))
        else:
            disk.replay(line)
            report.syncs += line.startswith(b"E ")
        if number not in chosen:
            continue
        for draw in (None, random_):
            tree = disk.tree(draw)
            report.disks += 1
            report.lost += [f"{number}: {promise}" for promise in _missing(tree, promised)]
            if random_.random() < opened:
                report.opened += 1
                report.lost += _opened(tree, promised, folder / "opened")
    report.acknowledged = len(promised)
    return report


def _missing(tree: dict[str, bytes | None], promised: Sequence[list[str]]) -> Iterator[list[str]]:
    """Yield what no readable line of its ledger holds."""
    texts: dict[str, str] = {}
    for path, content in tree.items():
        ledger = path.split("/")[3:4]
        if ledger and content and path.endswith(".jsonl"):
            texts[ledger[0]] = texts.get(ledger[0], "") + _readable(content)
    for promise in promised:
        ledger, *needles = promise
        lines = texts.get(ledger, "")
        start = lines.find(needles[-1])
        while start >= 0:
            line = lines[lines.rfind("\n", 0, start) + 1 : lines.find("\n", start)]
            if all(needle in line for needle in needles):
                break
            start = lines.find(needles[-1], start + 1)
        else:
            yield promise


def _readable(content: bytes) -> str:
    """Return the complete lines of a ledger that hold JSON objects."""
    readable = []
    for number, data in enumerate(content.split(b"\n")[:-1], 1):
        try:
            jsonl.parse_line(jsonl.LedgerLine(number, 0, data))
        except ValueError:
            continue
        readable.append(data.decode("utf-8", "replace"))
    return "\n".join(["", *readable, ""])


def _opened(tree: dict[str, bytes | None], promised: Sequence[list[str]], top: Path) -> list[str]:
    """Write out what is left, and let MemTier read it; return what it does not find."""
    home = top / "home"
    for path, content in tree.items():
        target = top / path
        if content is None:
            target.mkdir(parents=True, mode=0o700)
        else:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(content)
    try:
        with MemTier.open(home, PROJECT, "main", SETTINGS) as memory:
            memory.store.catch_up_all()
            memory.recall("kiln", k=3)
            entries = list(memory.entries())
            agents = {entry.agent_id for entry in entries if entry.content.startswith("In round")}
            seen = {"episodic": {f"{e.content} {e.run_id} {e.id}" for e in entries}}
            with memory.store.session() as reader:
                facts = reader.rows_of(p[1] for p in promised if p[0] == "semantic")
            lost = [f"fact {p[1]}" for p in promised if p[0] == "semantic" and p[1] not in facts]
            for ledger, *needles in promised:
                if ledger == "episodic" and not any(
                    all(needle in text for needle in needles) for text in seen[ledger]
                ):
                    lost.append(f"entry {needles}")
            if agents - {"main", LONG}:
                lost.append(f"names of agents: {agents}")
            return lost
    finally:
        shutil.rmtree(top)


# -- running it ------------------------------------------------------------------------------------


def journal_workload(folder: Path, rounds: int, *, durability: str = "sync") -> tuple[Path, int]:
    """Run the workload until it is killed, and then again; return the journal and the inode.

    Raises:
        RuntimeError: it failed.
    """
    library, journal, root = folder / "power_loss.so", folder / "journal", folder / "disk"
    build = [str(COMPILER), "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)]
    subprocess.run([*build, "-ldl", "-lpthread"], check=True)
    root.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MEMTIER_")},
        "LD_PRELOAD": str(library),
        "POWER_ROOT": str(root),
        "POWER_LOG": str(journal),
        "POWER_SYNC_US": "1500",
        "PYTHONPATH": str(PACKAGE),
        "MEMTIER_LEDGER__DURABILITY": durability,
    }
    for end, expected in (("killed", -signal.SIGKILL), ("done", 0)):
        command = [sys.executable, "-m", "tests.faults.power_loss", "--work", str(root / "home")]
        command += ["--rounds", str(rounds), "--end", end]
        done = subprocess.run(
            command, env=environment, cwd=PACKAGE, capture_output=True, text=True, check=False
        )
        if done.returncode != expected:
            raise RuntimeError(f"the workload ended with {done.returncode}: {done.stderr[-2000:]}")
    return journal, root.stat().st_ino


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workload, replay its journal, show the figures; returns 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.power_loss")
    parser.add_argument("--rounds", type=int, default=24, help="of each thread of the workload")
    parser.add_argument("--opened", type=float, default=0.05, help="share that MemTier opens")
    parser.add_argument("--most", type=int, help="disks looked at [every prefix]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", choices=["sync", "os"], default="sync")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--end", default="done", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(options.work, options.rounds, options.end)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="memtier-power-"))
    try:
        journal, inode = journal_workload(folder, options.rounds, durability=options.durability)
        report = replay(
            journal, inode, folder, opened=options.opened, seed=options.seed, most=options.most
        )
    finally:
        shutil.rmtree(folder)
    print(json.dumps({**report.to_json(), "lost": len(report.lost)}))  # noqa: T201
    for what in report.lost[:20]:
        print(what, file=sys.stderr)  # noqa: T201
    return int(bool(report.lost))


if __name__ == "__main__":
    sys.exit(main())
