"""Measure `memtier serve --tcp`: many tenants on one resident, and one of several killed.

Residents are processes with homes of their own, behind TLS if `openssl` is available to make a
certificate.  The clients are threads of this process, each with its own connections.
"""

from __future__ import annotations

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.metrics import latency_percentiles
from memtier_bench.probe import child_environment
from memtier_bench.progress import Progress, no_progress
from memtier_bench.scratch import ScratchDatabase
from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.residents import in_order, parse_address
from memtier_plugin.hooks.remote_memory import RemoteMemory
from memtier_plugin.server.access import FILE, Tokens

HOT: Final = 64  # tenants that receive all calls in one of the phases
_PROJECTS: Final = 12  # shared projects in the part with a killed resident
_SEED: Final = 1
_PACE: Final = 0.05  # seconds between a client's turns while a resident is killed
_RECALL_SECONDS: Final = 4.0  # as long as hosts wait
# Shares of the time: before the kill, while it is down, after its return
_BEFORE, _AWAY, _AFTER = 0.25, 0.4, 0.35
_CONFIG: Final = {"embedding": {"model": "none"}}


def run_serve(
    *,
    tenants: int = 2000,
    clients: int = 8,
    turns: int = 4000,
    residents: int = 3,
    seconds: float = 40.0,
    url: str | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Measure a resident with many tenants; with PostgreSQL also several with one killed.

    Args:
        turns: of all clients, each a recall and the end of a run, in each phase.
        residents: of which one is killed.
        seconds: for the part with the kill.
        url: a PostgreSQL, as a user that may create databases and roles.

    Raises:
        MemTierError: a resident does not start, or the server is unreachable.
    """
    with tempfile.TemporaryDirectory(prefix="memtier-serve-") as top:
        report = {"tenants": _measure_tenants(Path(top), tenants, clients, turns, progress)}
        if url is not None:
            report["kill"] = _measure_kill(Path(top), url, residents, clients, seconds, progress)
        return {
            "kind": "serve",
            "dataset": "serve",
            "version": memtier_plugin.__version__,
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
            "tls": _certificate(Path(top)) is not None,
            **report,
        }


@dataclass
class _Resident:
    """A `memtier serve --tcp` and its home."""

    home: Path
    certificate: Path | None
    environment: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it at its previous address, and wait until it listens."""
        where = self.address.partition("//")[2] or "127.0.0.1:0"
        tls = ("--certificate", str(self.certificate)) if self.certificate else ()
        scope = ("--json", "--home", str(self.home), "serve", "--no-socket", "--tcp", where, *tls)
        with (self.home / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "memtier_plugin", *scope],
                env={**child_environment(), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise MemTierError(f"no resident: {(self.home / 'serve.log').read_text('utf-8')}")
        self.address = str(json.loads(line)["address"])

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal, and wait until it exits."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.communicate()
            self.process = None

    def size(self) -> dict[str, float]:
        """Return its memory in megabytes, current and peak, and its open files (on Linux)."""
        if self.process is None or sys.platform != "linux":
            return {}
        folder = Path(f"/proc/{self.process.pid}")
        status = (folder / "status").read_text("ascii", "replace")
        memory = {
            name: round(int(status.partition(f"{field}:")[2].split()[0]) / 1024, 1)
            for name, field in (("rss_mb", "VmRSS"), ("peak_mb", "VmHWM"))
        }
        return {**memory, "files": len([*(folder / "fd").iterdir()])}


def _make_residents(
    top: Path, number: int, configs: Sequence[Mapping[str, Any]], environment: Mapping[str, str]
) -> tuple[list[_Resident], str]:
    """Create homes that accept one token for all projects; return them unstarted, and the token."""
    residents: list[_Resident] = []
    token = ""
    for count in range(number):
        home = top / f"resident-{number}-{count}"
        home.mkdir(mode=0o700)
        (home / "config.yaml").write_text(json.dumps({**_CONFIG, **configs[count]}))
        if not residents:
            token = Tokens(home).new(["*"])[0]
        else:
            shutil.copy(residents[0].home / FILE, home / FILE)
        residents.append(_Resident(home, _certificate(top), environment))
    return residents, token


def _certificate(top: Path) -> Path | None:
    """Return a certificate for 127.0.0.1 with its key, made once; None without `openssl`."""
    path = top / "certificate.pem"
    if not path.exists() and shutil.which("openssl"):
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
        command = ["openssl", "req", "-x509", *curve, "-days", "2", *names]
        files = ["-keyout", str(path), "-out", str(top / "public.pem")]
        subprocess.run([*command, *files], check=True, capture_output=True)
        with path.open("ab") as file:
            file.write((top / "public.pem").read_bytes())
    return path if path.exists() else None


@contextmanager
def _running(residents: Sequence[_Resident]) -> Iterator[None]:
    try:
        for resident in residents:
            resident.start()
        yield
    finally:
        for resident in residents:
            resident.end()


# -- many tenants on one resident ------------------------------------------------------------------


def _measure_tenants(
    top: Path, tenants: int, clients: int, turns: int, progress: Progress
) -> dict[str, Any]:
    [resident], token = _make_residents(top, 1, [{}], {})
    with _running([resident]), ExitStack() as stack:
        ca_file = str(resident.certificate or "")
        memories = [
            stack.enter_context(
                RemoteMemory("", residents=[resident.address], token=token, ca_file=ca_file)
            )
            for _ in range(clients)
        ]
        start = resident.size()
        rows = []
        chance = random.Random(_SEED)
        every = [*range(tenants)]
        phases = {
            "the first run of each": every,
            "all alike": [chance.randrange(tenants) for _ in range(turns)],
            f"{min(HOT, tenants)} of them": [
                chance.randrange(min(HOT, tenants)) for _ in range(turns)
            ],
        }
        for name, turns_of_phase in phases.items():
            calls = _Calls(name, len(turns_of_phase), progress)
            work = partial(_talk, calls, [*enumerate(turns_of_phase)], name)
            begun = time.monotonic()
            with ThreadPoolExecutor(clients) as pool:
                for done in [pool.submit(work, memory) for memory in memories]:
                    done.result()
            rows.append({**calls.row(time.monotonic() - begun), **resident.size()})
        log = (resident.home / "serve.log").read_text("utf-8", "replace")
    return {
        "tenants": tenants,
        "clients": clients,
        "start": start,
        "phases": rows,
        "foreign": sum(row["foreign"] for row in rows),
        "tracebacks": log.count("Traceback"),
    }


class _Calls:
    """The durations and failures of all clients' calls."""

    def __init__(self, name: str, total: int, progress: Progress) -> None:
        self.name, self.total, self.progress = name, total, progress
        self.seconds: dict[str, list[float]] = {"recall": [], "end_run": []}
        self.errors: Counter[str] = Counter()
        self.foreign = self.done = 0
        self._next = iter(range(total))
        self._lock = Mutex()

    def next(self) -> int | None:
        """Return the number of the next turn, for any client."""
        with self._lock:
            number = next(self._next, None)
            if number is not None:
                self.done += 1
                if not self.done % 50:
                    self.progress(f"tenants: {self.name}", self.done, self.total)
        return number

    def measure(self, method: str, call: Callable[[], Any]) -> Any:
        """Return the result of a call, recording its duration; None if it failed."""
        started = time.perf_counter()
        try:
            return call()
        except MemTierError as error:
            self.errors[f"{method}: {error}"[:160]] += 1
            return None
        finally:
            self.seconds[method].append(time.perf_counter() - started)

    def row(self, elapsed: float) -> dict[str, Any]:
        """Return the figures as a row."""
        calls = sum(map(len, self.seconds.values()))
        return {
            "name": self.name,
            "calls": calls,
            "calls_per_s": round(calls / elapsed, 1),
            "errors": dict(self.errors),
            "foreign": self.foreign,
            **{f"{name}_ms": latency_percentiles(s) for name, s in self.seconds.items() if s},
        }


def _talk(
    calls: _Calls, turns: Sequence[tuple[int, int]], phase: str, memory: RemoteMemory
) -> None:
    """Run turns for the listed tenants until none is left; no recall may show another's data."""
    while (number := calls.next()) is not None:
        count, tenant = turns[number]
        tenant_memory = memory.of(f"tenant-{tenant}")
        query = f"Where does the crane of tenant {tenant} stand?"
        recalled = calls.measure(
            "recall",
            partial(tenant_memory.recall, query, seconds=_RECALL_SECONDS, purpose="inject"),
        )
        for hit in recalled["hits"] if recalled else ():
            calls.foreign += f" {tenant} " not in hit["text"]
        turn = [
            {"role": "user", "content": f"The crane of tenant {tenant} stands at pier {count}."},
            {"role": "assistant", "content": f"Noted for tenant {tenant} : pier {count}."},
        ]
        ended = partial(
            tenant_memory.end_run, turn, session_id=f"s{count % 3}", run_id=f"{phase}-{count}"
        )
        calls.measure("end_run", ended)


# -- a resident killed -----------------------------------------------------------------------------


def _measure_kill(
    top: Path, url: str, number: int, clients: int, seconds: float, progress: Progress
) -> dict[str, Any]:
    projects = [f"shared-{count}" for count in range(_PROJECTS)]
    with ScratchDatabase(url) as scratch:
        configs = [{"ledger": {"shared": scratch.add_machine(*projects)}} for _ in range(number)]
        environment = {"PGPASSWORD": scratch.environment["PGPASSWORD"]}
        residents, token = _make_residents(top, number, configs, environment)
        for done, resident in enumerate(residents, 1):
            for project in projects:
                _join(resident, project)
            progress("residents join", done, number)
        with _running(residents):
            addresses = [resident.address for resident in residents]
            order = in_order(map(parse_address, addresses), projects[0])
            victim = residents[addresses.index(str(order[0]))]
            watch = _Watch(projects, seconds, progress)
            ca_file = str(victim.certificate or "")
            with ThreadPoolExecutor(clients) as pool:
                works = [
                    pool.submit(_keep_talking, watch, addresses, token, ca_file, client)
                    for client in range(clients)
                ]
                time.sleep(seconds * _BEFORE)
                killed = time.monotonic()
                victim.end(signal.SIGKILL)
                time.sleep(seconds * _AWAY)
                returned = time.monotonic()
                victim.start()
                for work in works:
                    work.result()
            with RemoteMemory("", residents=addresses, token=token, ca_file=ca_file) as memory:
                lost, doubled = watch.compare(memory)
    moved = [
        project
        for project in projects
        if str(in_order(map(parse_address, addresses), project)[0]) == victim.address
    ]
    return {
        "residents": number,
        "clients": clients,
        "projects": _PROJECTS,
        "projects_of_the_killed": len(moved),
        **watch.figures(killed, returned, moved),
        "lost": lost,
        "doubled": doubled,
    }


def _join(resident: _Resident, project: str) -> None:
    scope = ("--json", "--home", str(resident.home), "--project", project, "shared", "join")
    done = subprocess.run(
        [sys.executable, "-m", "memtier_plugin", *scope],
        env={**child_environment(), **resident.environment},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise MemTierError(f"memtier shared join: {done.stdout}{done.stderr}")


class _Watch:
    """Every call of the clients: its start, its end, and whether it failed."""

    def __init__(self, projects: Sequence[str], seconds: float, progress: Progress) -> None:
        self.projects, self.progress = projects, progress
        self.begun = time.monotonic()
        self.until = self.begun + seconds
        self.total = seconds
        self.calls: list[tuple[str, float, float, str, str]] = []
        self.acknowledged: list[tuple[str, str]] = []  # project and text of the run

    def note(self, method: str, project: str, call: Callable[[], Any]) -> bool:
        """Make a call; return whether it was answered."""
        begun, error = time.monotonic(), ""
        try:
            call()
        except MemTierError as failure:
            error = str(failure) or "failed"
        now = time.monotonic()
        self.calls.append((method, begun, now, error, project))
        self.progress(
            "a resident is killed", round(min(now - self.begun, self.total)), round(self.total)
        )
        return not error

    def figures(self, killed: float, returned: float, moved: Collection[str]) -> dict[str, Any]:
        """Return failures, the longest calls, and when service was restored after the kill.

        Args:
            moved: the projects of the killed resident.
        """
        figures: dict[str, Any] = {"acknowledged": len(self.acknowledged)}
        for method in ("recall", "end_run"):
            mine = [call for call in self.calls if call[0] == method]
            before = [end - begin for _, begin, end, *_ in mine if end < killed]
            after = [call[1:] for call in mine if call[2] >= killed]
            failed = [end - killed for _, end, error, _ in after if error]
            again = [
                min(
                    (e - killed for b, e, error, of in after if of == each and not error),
                    default=self.total,
                )
                for each in moved
            ]
            figures[method] = {
                "calls": len(mine),
                "failed": len(failed),
                "before_ms": latency_percentiles(before) if before else {},
                "after_ms": latency_percentiles([end - begin for begin, end, *_ in after]),
                "longest_s": round(max(end - begin for begin, end, *_ in after), 2),
                "last_failed_s": round(max(failed, default=0.0), 2),
                "again_s": round(max(again, default=0.0), 2),
                "errors": dict(
                    Counter(error[:160] for _, _, error, _ in after if error).most_common(5)
                ),
            }
        figures["away_s"] = round(returned - killed, 1)
        return figures

    def compare(self, memory: RemoteMemory) -> tuple[int, int]:
        """Return how many acknowledged runs are lost, and how many are stored twice."""
        lost = doubled = 0
        for project in self.projects:
            words = Counter(word for of, word in self.acknowledged if of == project)
            project_memory = memory.of(project)
            for word in words:
                hits = project_memory.recall(word, k=8, seconds=30.0)["hits"]
                times = sum(word in hit["text"].split() for hit in hits)
                lost, doubled = lost + (not times), doubled + (times > 1)
        return lost, doubled


def _keep_talking(
    watch: _Watch, addresses: Sequence[str], token: str, ca_file: str, client: int
) -> None:
    """Recall and end runs in one project after another until the time is up."""
    with RemoteMemory("", residents=addresses, token=token, ca_file=ca_file) as memory:
        number = 0
        while time.monotonic() < watch.until:
            project = watch.projects[(client + number) % len(watch.projects)]
            project_memory, word = memory.of(project), f"w{client}x{number}"
            watch.note(
                "recall",
                project,
                partial(project_memory.recall, "Which word?", seconds=_RECALL_SECONDS),
            )
            turn = [{"role": "user", "content": f"The word is {word} now"}]
            ended = partial(
                project_memory.end_run, turn, session_id=f"s{client}", run_id=f"{client}-{number}"
            )
            if watch.note("end_run", project, ended):
                watch.acknowledged.append((project, word))
            number += 1
            time.sleep(_PACE)
