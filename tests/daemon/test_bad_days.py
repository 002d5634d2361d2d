"""The daemon's bad days, each with real processes: endpoints, crashes, clocks, disks, backlogs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.operations import job_state
from memtier_plugin.retrieval.session import RELATION as WORKING_SUMMARY
from tests.builders import append_lines, say_in, write_config
from tests.loopback import Loopback, honest
from tests.processes import (
    PATIENCE,
    child_environment,
    fork_python,
    running,
    start_daemon,
    start_python,
    wait_until,
)

PROJECT = "house"
AGENT = "test.main"

lock = import_module("memtier_plugin.daemon.child")


@pytest.fixture
def server(server: Loopback) -> Loopback:
    """Serve a model that claims what plain sentences state, until it is told otherwise."""
    server.slow = 1.0
    server.answers(honest)
    return server


def opened(home: Path) -> MemTier:
    """Open the project as a host does."""
    return MemTier.open(home, PROJECT, AGENT)


def facts(home: Path, extractor: str = "") -> set[tuple[str, str, str]]:
    """Return what the project knows of its user, of an extractor whose name begins so.

    A session's running summary is left out: it is written after the facts.
    """
    with opened(home) as memory:
        known = [fact for fact in memory.facts() if fact.relation != WORKING_SUMMARY]
        matching = [fact for fact in known if fact.extractor.startswith(extractor)]
    triples = {(fact.subject, fact.relation, fact.value) for fact in matching}
    assert len(triples) == len(matching), "a fact is there twice"
    return triples


def status(home: Path) -> dict[str, Any]:
    """Return the project's status."""
    with opened(home) as memory:
        return memory.status()


def configure(home: Path, base_url: str, timeout_s: float = 0.5, **consolidation: Any) -> None:
    """Let a chat model of an endpoint extract facts, too."""
    settings = {
        "consolidation": {"model": "endpoint:local/small", **consolidation},
        "endpoints": {"local": {"base_url": base_url, "timeout_s": timeout_s}},
    }
    write_config(home, settings)


# -- endpoints -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["429", "500", "close", "truncated", "page", "slow", "context"])
def test_an_endpoint_that_fails(home: Path, server: Loopback, fault: str) -> None:
    """The daemon goes on by rules, says what is wrong, and makes it good when the endpoint can."""
    configure(home, server.base_url)
    server.always(fault)
    say_in(home, PROJECT, "I live in Lisbon.")
    with running(start_daemon("--interval", "0.3", "--project", PROJECT)):
        wait_until(lambda: facts(home))
        wait_until(lambda: "model" in job_state.read_background(home / "projects" / PROJECT).jobs)
        say_in(home, PROJECT, "I am allergic to walnuts.")
        wait_until(lambda: len(facts(home)) > 1)  # the rules' pass waits for no endpoint
        wait_until(lambda: status(home)["consolidation"]["backlog"]["rules"] == 0)
        wait_until(
            lambda: any(message.startswith("model: ") for message in status(home)["degraded"])
        )
        report = status(home)
        assert server.base_url in " ".join(report["degraded"])
        assert report["consolidation"]["backlog"] == {"rules": 0, "model": 2}
        server.always(None)
        wait_until(lambda: status(home)["consolidation"]["backlog"] == {"rules": 0, "model": 0})
        wait_until(
            lambda: not any(message.startswith("model: ") for message in status(home)["degraded"])
        )
    assert facts(home)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["shape", "empty", "cut", "invented"])
def test_answers_that_say_nothing(home: Path, server: Loopback, fault: str) -> None:
    """Answers of no use end neither the daemon nor the rules; they are counted, and no facts.

    An invented quote is rejected where the rules read the line first, and waits for review before.
    """
    configure(home, server.base_url)
    server.always(fault)
    say_in(home, PROJECT, "I live in Lisbon.", "The ferry to Almada leaves at noon.")
    with running(start_daemon("--interval", "0.3", "--project", PROJECT)) as process:
        wait_until(lambda: status(home)["consolidation"]["backlog"] == {"rules": 0, "model": 0})
        assert facts(home) and not facts(home, "chat")
        with opened(home) as memory:
            events = memory.events(kinds=["consolidate"])
        passes = [event.data for event in events if event.data["extractor"] == "model"]
        assert any(data["rejected"] or data["proposed"] for data in passes)
        server.always(None)
        say_in(home, PROJECT, "I am allergic to walnuts.", "My sister's name is Ines.")
        wait_until(lambda: len(facts(home)) > 2)
        wait_until(lambda: status(home)["consolidation"]["backlog"] == {"rules": 0, "model": 0})
        assert process.poll() is None


@pytest.mark.slow
def test_an_endpoint_that_is_down(home: Path, server: Loopback) -> None:
    """Nobody listens: it is told with the address; as soon as somebody does, the rest is made."""
    with Loopback() as stopped:
        nowhere = stopped.base_url
    configure(home, nowhere)
    say_in(home, PROJECT, "I live in Lisbon.")
    with running(start_daemon("--interval", "0.3", "--project", PROJECT)):
        wait_until(lambda: facts(home))
        wait_until(lambda: f"{nowhere} cannot be reached" in " ".join(status(home)["degraded"]))
        configure(home, server.base_url)
        wait_until(lambda: status(home)["consolidation"]["backlog"] == {"rules": 0, "model": 0})
        wait_until(lambda: not status(home)["degraded"])


@pytest.mark.slow
def test_a_stop_while_an_endpoint_is_slow(home: Path, server: Loopback) -> None:
    """SIGTERM ends a daemon long before the endpoint that it waits for; the batch is redone."""
    server.slow = 60.0
    server.always("slow")
    configure(home, server.base_url, timeout_s=120.0)
    say_in(home, PROJECT, "I live in Lisbon.")
    with running(start_daemon("--interval", "0.3", "--project", PROJECT)) as process:
        wait_until(lambda: server.count("/chat/completions"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(server.slow / 2) == 0
    assert not lock.is_held(home, PROJECT)
    assert status(home)["consolidation"]["backlog"]["model"] == 1
    server.always(None)
    with running(start_daemon("--once", "--project", PROJECT)) as process:
        assert process.wait(PATIENCE) == 0
    assert status(home)["consolidation"]["backlog"] == {"rules": 0, "model": 0}


@pytest.mark.slow
def test_a_server_ends_while_an_endpoint_is_slow(home: Path, server: Loopback) -> None:
    """`memtier serve` ends within five seconds of SIGTERM, whatever its background waits for."""
    server.slow = 60.0
    server.always("slow")
    configure(home, server.base_url, timeout_s=120.0, interval_minutes=0.01)
    say_in(home, PROJECT, "I live in Lisbon.")
    code = (
        "import sys; from memtier_plugin.server.rpc import serve; "
        "sys.exit(serve(None, sys.stdin.buffer, sys.stdout.buffer))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running(fork_python("-c", code, **pipes)) as process:
        assert process.stdin and process.stdout
        params = {"project": PROJECT, "agent": AGENT}
        request = {"jsonrpc": "2.0", "id": 1, "method": "status", "params": params}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        assert "result" in json.loads(process.stdout.readline())
        wait_until(lambda: server.count("/chat/completions"))
        wait_until(lambda: facts(home))  # by rules, meanwhile
        assert lock.is_held(home, PROJECT)
        process.terminate()
        assert process.wait(server.slow / 2) == 0
    assert not lock.is_held(home, PROJECT)


@pytest.mark.slow
def test_the_day_s_calls_are_made(home: Path, server: Loopback) -> None:
    """At the cap the model waits, the rules do not, and status and doctor say so."""
    configure(home, server.base_url, max_calls_per_day=1, batch=1)
    say_in(home, PROJECT, "I live in Lisbon.", "I am allergic to walnuts.", "I work at Norwick.")
    with running(start_daemon("--once", "--project", PROJECT)) as process:
        process.wait(PATIENCE)
    report = status(home)
    assert report["consolidation"]["backlog"]["rules"] == 0
    assert report["spending"] | {"calls": 1, "most_calls": 1} == report["spending"]
    assert "1 of 1 calls" in " ".join(report["degraded"])
    with opened(home) as memory:
        assert any("calls allowed today" in finding.what for finding in memory.doctor())
    assert server.count("/chat/completions") == 1


# -- processes -------------------------------------------------------------------------------------


def statements(number: int) -> list[str]:
    """Return so many sentences that the rules find a fact in, of every third one."""
    return [
        f"What about locker number {index}?" if index % 3 else f"I am allergic to plant{index}."
        for index in range(number)
    ]


def filled(home: Path, number: int) -> None:
    """Record so many messages, twenty a session."""
    with opened(home) as memory:
        texts = statements(number)
        for start in range(0, number, 20):
            messages = [{"role": "user", "content": text} for text in texts[start : start + 20]]
            memory.record(messages, session_id=f"s{start}", run_id=f"r{start}")


@pytest.mark.slow
def test_two_daemons_at_once(home: Path) -> None:
    """Two daemons that start together do everything, and nothing twice."""
    filled(home, 300)
    write_config(home, "consolidation: {batch: 10}\n")
    arguments = ("--interval", "0.2", "--all")
    with running(start_daemon(*arguments)) as first, running(start_daemon(*arguments)) as second:
        wait_until(lambda: not status(home)["backlog"])
        assert first.poll() is None and second.poll() is None
    with opened(home) as memory:
        events = memory.events(kinds=["consolidate"])
    assert sum(event.data["read"] for event in events) == 300
    assert len(facts(home)) == 100


@pytest.mark.slow
def test_a_killed_daemon_is_followed(home: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle of a backlog: the next one goes on, and the facts are the same."""
    filled(home, 600)
    write_config(home, "consolidation: {batch: 10}\n")
    other = tmp_path / "undisturbed"
    shutil.copytree(home, other)
    for _ in range(3):
        enough = status(home)["backlog"] - 30
        with running(start_daemon("--once", "--all")) as process:
            wait_until(lambda: process.poll() is not None or status(home)["backlog"] < enough)  # noqa: B023
    with running(start_daemon("--interval", "0.2", "--all")):
        wait_until(lambda: not status(home)["backlog"])
    with running(start_daemon("--once", "--all")) as process:
        assert process.wait(PATIENCE) == 0
    with running(start_daemon("--once", "--all", "--home", str(other))) as process:
        assert process.wait(PATIENCE) == 0
    assert facts(home) == facts(other) and len(facts(home)) == 200


# -- clocks ----------------------------------------------------------------------------------------

COUNT = """
import sys, threading, time
from importlib import import_module
from pathlib import Path
scheduler = import_module("memtier_plugin.daemon.scheduler")
jobs = import_module("memtier_plugin.daemon.jobs")

def counted(name, job):
    def call(memory, run):
        job.run(memory, run)
        print(name, flush=True)
    return job._replace(run=call)

listed = {name: counted(name, job) for name, job in jobs.list_jobs().items()}
jobs.list_jobs = lambda: listed
served = scheduler.Scheduler(interval=float(sys.argv[2]), look_at_clock=0.2)
served.add(Path(sys.argv[1]), "house")
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def shift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that sets the wall clock of a process by a file."""
    compiler = shutil.which("cc")
    if not compiler or sys.platform != "linux":
        pytest.skip("the clock of one process is moved by a library that is compiled for Linux")
    library = tmp_path_factory.mktemp("clock") / "shift.so"
    source = Path(__file__).with_name("clock_shift.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@contextmanager
def counting(home: Path, library: Path, offset: Path, interval: float) -> Iterator[list[str]]:
    """Run the scheduler under a clock of its own and yield the jobs that ended, as they do."""
    process = start_python(
        "-c",
        COUNT,
        home,
        str(interval),
        env=child_environment(LD_PRELOAD=str(library), CLOCK_SHIFT=str(offset)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    done: list[str] = []
    reader = threading.Thread(target=lambda: done.extend(map(str.strip, process.stdout or ())))
    reader.start()
    try:
        yield done
    finally:
        process.kill()
        process.wait()
        reader.join()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


@pytest.mark.slow
def test_a_clock_set_back_stops_nothing(home: Path, shift: Path, tmp_path: Path) -> None:
    """After the clock was set back by a day jobs go on at their interval, and facts are made."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    say_in(home, PROJECT, "I live in Lisbon.")
    with counting(home, shift, offset, 1.0) as done:
        wait_until(lambda: done.count("consolidation") > 1)
        offset.write_text("-86400")
        count = len(done)
        wait_until(lambda: done[count:].count("consolidation") > 2)
        say_in(home, PROJECT, "I am allergic to walnuts.")
        wait_until(lambda: len(facts(home)) == 2)
        count, started = len(done), time.monotonic()
        wait_until(lambda: done[count:].count("consolidation") > 1)
        assert done[count:].count("consolidation") <= time.monotonic() - started + 2
    assert done.count("sweep") == 1


@pytest.mark.slow
def test_a_clock_set_forward_runs_nothing_twice(home: Path, shift: Path, tmp_path: Path) -> None:
    """Set forward by a day, what is due by then runs once, however many intervals went by."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    say_in(home, PROJECT, "I live in Lisbon.")
    interval = 4.0
    with counting(home, shift, offset, interval) as done:
        wait_until(lambda: "sweep" in done)
        first, started = len(done), time.monotonic()
        offset.write_text("86500")
        wait_until(lambda: {"sweep", "consolidation"} <= {*done[first:]})
        again = done[first:]
        elapsed = time.monotonic() - started
    assert again.count("sweep") == 1
    assert again.count("consolidation") <= elapsed / interval + 1


# -- disks -----------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of twelve megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("only root can mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m,mode=700", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(folder: Path) -> Path:
    """Leave no byte of a disk."""
    path = folder / "ballast"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * 65536):
            pass
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while file.write(b"x"):
            pass
    return path


@pytest.mark.slow
def test_a_full_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk nothing is lost and status says why; with room again it goes on by itself."""
    home = small_disk / "home"
    monkeypatch.setenv("MEMTIER_HOME", str(home))
    filled(home, 300)
    write_config(home, "consolidation: {batch: 100}\n")
    with running(start_daemon("--interval", "0.3", "--project", PROJECT)) as process:
        wait_until(lambda: not status(home)["backlog"])
        before = facts(home)
        say_in(home, PROJECT, *(f"I never eat fruit{number}." for number in range(40)))
        ballast = fill_up(small_disk)
        waits = status(home)
        assert "the disk is full" in " ".join(waits["degraded"])
        time.sleep(1.5)
        assert process.poll() is None
        assert facts(home) >= before
        with opened(home) as memory:
            assert any("the disk is full" in finding.what for finding in memory.doctor())
        ballast.unlink()
        wait_until(lambda: not status(home)["backlog"])
    with opened(home) as memory:
        assert sum(1 for _ in memory.entries()) == 340
    after = facts(home)
    assert after >= before and len(after) == 140
    assert "the disk is full" not in " ".join(status(home)["degraded"])


@pytest.mark.slow
def test_files_that_may_not_grow(home: Path) -> None:
    """Where no file may grow, --once fails with exit 1, and later does what it could not."""
    filled(home, 60)
    size = max(path.stat().st_size for path in home.rglob("*") if path.is_file())

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    done = subprocess.run(
        [sys.executable, "-m", "memtier_plugin.daemon", "--once", "--all"],
        env=child_environment(PYTHONDONTWRITEBYTECODE="1"),  # which would be cut off, too
        preexec_fn=limited,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and size > 2048
    assert "Traceback" not in done.stderr
    with running(start_daemon("--once", "--all")) as process:
        assert process.wait(PATIENCE) == 0
    assert len(facts(home)) == 20


# -- backlogs --------------------------------------------------------------------------------------

BACKLOG = int(os.environ.get("TEST_MEMTIER_BACKLOG", "20000"))


def rss_mb(pid: int) -> float:
    """Return the most memory that a process has had."""
    text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    return int(text.partition("VmHWM:")[2].split()[0]) / 2**10


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_long_backlog(home: Path) -> None:
    """TEST_MEMTIER_BACKLOG [20000] entries are read in bounded memory, also after SIGKILL."""
    write_config(home, "embedding: {model: none}\n")
    with opened(home) as memory:
        append_lines(memory, _backlog())
    most = 0.0
    with opened(home) as memory:
        memory.catch_up()
    with running(start_daemon("--once", "--all")) as process:
        wait_until(lambda: status(home)["backlog"] < 0.9 * BACKLOG, seconds=600)
        most = rss_mb(process.pid)
        process.kill()
    left = status(home)["backlog"]
    assert 0 < left < BACKLOG
    with running(start_daemon("--once", "--all")) as process:
        while process.poll() is None:
            with suppress(OSError, IndexError):
                most = max(most, rss_mb(process.pid))
            time.sleep(0.1)
        assert process.returncode == 0
    assert status(home)["backlog"] == 0
    assert most < 150, f"{most} MB"
    with opened(home) as memory:
        events = memory.events(kinds=["consolidate"], limit=10_000)
    assert sum(event.data["read"] for event in events) == BACKLOG + 1


def _backlog() -> Iterator[str]:
    for number in range(BACKLOG):
        talk = f"What about locker number {number}?"
        yield f"I am allergic to plant{number}. {talk}" if number % 50 == 0 else talk
