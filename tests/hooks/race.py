"""Start hooks and MCP servers at random, and see that they share one resident: ``make race``.

Each start is a real process of its own, as a coding agent has it.  With ``--busy`` other processes
take the machine's time; with ``--kills`` the resident is killed now and then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.residents import find_owner, stop_resident
from memtier_plugin.memory import MemTier
from tests.processes import child_environment, running, start_python, wait_until

HOST: Final = "claude-code"
LINE: Final = "My bag is in the blue locker."
QUESTION: Final = "Where is my bag?"
AT_ONCE: Final = 6  # processes that start or run beside each other
LONGEST_PAUSE: Final = 0.8  # seconds between two starts
LONGEST_SERVER: Final = 4.0  # seconds that a client keeps its MCP server
_BUSY: Final = "while True: sum(range(10_000))"
_HELLO: Final = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "race", "version": "1"},
    },
}


@dataclass
class Race:
    """What came of the starts.

    Attributes:
        residents: the processes that owned the home's socket, in their order.
        loaded: every `memtier serve` that was seen, owner or not.
        cold, warm: whether each prompt got the planted line, before a resident had answered and
            after.
        seconds: how long each warm prompt's process took.
    """

    residents: list[int] = field(default_factory=list)
    loaded: set[int] = field(default_factory=set)
    killed: list[int] = field(default_factory=list)
    cold: list[bool] = field(default_factory=list)
    warm: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    said: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """Return the figures."""
        ordered = sorted(self.seconds) or [0.0]
        figures = asdict(self) | {"loaded": len(self.loaded), "cpu": round(self.cpu, 1)}
        for name in ("cold", "warm"):
            answers = figures.pop(name)
            figures[f"{name}_prompts"] = len(answers)
            figures[f"{name}_without_the_line"] = answers.count(False)
        figures["seconds"] = {
            name: round(ordered[int(share * (len(ordered) - 1))], 2)
            for name, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
        }
        return figures


class _Watch:
    """Notes who owns the home's socket, and every process that serves it."""

    def __init__(self, home: Path, race: Race) -> None:
        self._home, self._race = home, race
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            owner = find_owner(self._home)
            if owner and owner.pid not in self._race.residents:
                self._race.residents.append(owner.pid)
            named = str(self._home).encode() + b"\0serve\0"
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    if named in path.read_bytes() and not self._is_about_to_run(path.parent):
                        self._race.loaded.add(int(path.parent.name))

    def _is_about_to_run(self, process: Path) -> bool:
        """Tell whether it is a resident's child, which has its command until it runs its own."""
        parent = int(process.joinpath("stat").read_text().rpartition(")")[2].split()[1])
        return parent in self._race.loaded


def run_race(
    starts: int, seed: int, folder: Path, *, busy: int = 0, kills: int = 0, long: bool = False
) -> Race:
    """Start that many hooks and servers, in an order and at moments that the seed says."""
    draw, race = random.Random(seed), Race()
    home = folder / ("h" * 180 if long else "race") / "home"
    with MemTier.open(home, "p", f"{HOST}.main") as memory:
        memory.record([{"role": "user", "content": LINE}], session_id="earlier")
    environment = child_environment(MEMTIER_RESIDENT__IDLE_MINUTES="5")
    command = [sys.executable, "-W", "ignore", "-m", "memtier_plugin"]
    command += ["--home", str(home), "--project", "p"]
    killed_at = draw.sample(range(starts // 4, starts), kills)
    is_warm = threading.Event()

    def hook(number: int, name: str) -> None:
        event = {"hook_event_name": name, "session_id": f"s{number}", "prompt": QUESTION}
        was_warm, started = is_warm.is_set(), time.monotonic()
        done = subprocess.run(
            [*command, "hook", HOST],
            input=json.dumps({**event, "cwd": str(folder)}),
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
        if name == "SessionStart":
            is_warm.set()
            return
        has_line = "blue locker" in done.stdout
        (race.warm if was_warm else race.cold).append(has_line)
        if was_warm:
            race.seconds.append(time.monotonic() - started)
        if has_line:
            is_warm.set()
        else:
            race.said.append(f"{number}: {done.stdout.strip()} {done.stderr.strip()}"[:300])

    def serve(seconds: float) -> None:
        pipe = subprocess.PIPE
        arguments = [*command, "--agent", f"{HOST}.main", "mcp"]
        with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, env=environment) as server:
            assert server.stdin and server.stdout
            server.stdin.write(json.dumps(_HELLO).encode() + b"\n")
            server.stdin.flush()
            assert b"memtier" in server.stdout.readline()
            time.sleep(seconds)
            server.stdin.close()

    with ExitStack() as stack:
        for _ in range(busy):
            stack.enter_context(running(start_python("-c", _BUSY)))
        stack.callback(stop_resident, home, 60.0)
        stack.enter_context(_Watch(home, race))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            calls = []
            for number in range(starts):
                kind = draw.choice(["mcp", "SessionStart", "prompt", "prompt"])
                if kind == "mcp":
                    calls.append(pool.submit(serve, draw.uniform(0, LONGEST_SERVER)))
                else:
                    name = "UserPromptSubmit" if kind == "prompt" else kind
                    calls.append(pool.submit(hook, number, name))
                time.sleep(draw.choice([0, draw.uniform(0, LONGEST_PAUSE)]))
                if number in killed_at:
                    wait_until(partial(_has_living_owner, race))
                    race.killed.append(race.residents[-1])
                    is_warm.clear()
                    os.kill(race.killed[-1], signal.SIGKILL)
            for call in calls:
                call.result()
        if owner := find_owner(home):
            race.cpu = _cpu_seconds(owner.pid)
    return race


def _has_living_owner(race: Race) -> bool:
    return bool(race.loaded.intersection(race.residents[-1:]).difference(race.killed))


def _cpu_seconds(pid: int) -> float:
    with suppress(OSError):
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def main() -> None:
    """Run a race, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--long", action="store_true", help="a home on a path of 200 characters")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="race-") as folder:
        given = vars(options)
        race = run_race(**given, folder=Path(folder))
    sys.stdout.write(
        json.dumps({**given, "load": os.getloadavg(), **race.report()}, indent=1) + "\n"
    )
    sys.exit(len(race.residents) != 1 + len(race.killed) or False in race.warm)


if __name__ == "__main__":
    main()
