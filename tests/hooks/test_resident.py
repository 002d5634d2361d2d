"""The pipe to the resident, in Python: against a real `memtier serve`, on its bad days too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from memtier_plugin.core.files import is_process_alive
from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.residents import find_owner
from memtier_plugin.hooks import resident as client_module
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hooks.resident_connection import (
    MAX_REQUEST_BYTES,
    ResidentRefused,
    ResidentUnreachable,
    fit_request,
)
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import HookWait
from tests.processes import (
    PATIENCE,
    ROOT,
    held_ledger,
    run_in_fork,
    run_python,
    running,
    start_python,
    wait_until,
)

SERVE = [sys.executable, "-W", "ignore", "-m", "memtier_plugin"]
AGENT = "hermes.default"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is started find the code that is tested."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def pipe(home: Path) -> Iterator[Callable[..., ResidentClient]]:
    """Return a function that makes pipes to the home's resident; they end with the test."""
    clients: list[ResidentClient] = []
    before = set(threading.enumerate())  # other tests of this process have threads too

    def make(*command: str, where: Path = home) -> ResidentClient:
        clients.append(ResidentClient(command or SERVE, where, ("PYTHONPATH",)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
    threads = ("memtier-read", "memtier-write")
    wait_until(lambda: not any(t.name in threads for t in set(threading.enumerate()) - before))


@pytest.fixture
def server(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a `memtier serve` that is nobody's child here, and wait for its socket."""
    # a real start: before a hanging resident is killed, its command line is read
    with running(start_python("-m", "memtier_plugin", "--home", home, "serve")) as process:
        wait_until(lambda: socket_path(home).exists())
        yield process


def turn(run: str, text: str = "My bag is in the blue locker.") -> dict[str, Any]:
    """Return the payload of a turn."""
    return {
        "host": "hermes",
        "name": "sync_turn",
        "event": {"user": text, "assistant": "Noted.", "messages": []},
        "context": {"session_id": "s", "run_id": run},
        "project": "p",
    }


def stored(home: Path) -> list[str]:
    """Return what users said, as the ledger has it."""
    with MemTier.open(home, "p", AGENT) as memory:
        return [e.content for e in memory.entries(agent=AGENT) if e.role == "user"]


def queued(home: Path) -> list[Path]:
    """Return what waits on the disk."""
    return sorted((home / "queue").glob("*.json"))


def pid(resident: ResidentClient) -> int:
    """Return the process that answers."""
    return int(resident.call("ping", {}, PATIENCE)["pid"])


def halt(process: int) -> None:
    """Stop a process; on a busy machine its other threads go on for a while after the signal."""
    os.kill(process, signal.SIGSTOP)
    tasks = Path(f"/proc/{process}/task")
    wait_until(
        lambda: all(
            t.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "T"
            for t in tasks.iterdir()
        )
    )


def test_a_resident_outlives_who_started_it(
    home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """Without a resident one is started; it stores the run, and stays when the host lets go."""
    first, second = pipe(), pipe()
    assert first.deliver(turn("r1"), PATIENCE)
    started = pid(first)
    first.close()
    assert pid(second) == started
    assert stored(home) == ["My bag is in the blue locker."]
    assert queued(home) == []


def test_a_resident_outlives_a_host_that_is_killed(
    home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """The whole group of a host's processes may be killed: the home keeps its resident."""
    code = """
        import os, signal, sys
        from memtier_plugin.hooks.resident import ResidentClient
        print(ResidentClient(sys.argv[2:], sys.argv[1]).call("ping", {}, 60.0)["pid"], flush=True)
        os.killpg(0, signal.SIGKILL)
    """
    command = ("-c", textwrap.dedent(code), home, *SERVE)
    with start_python(*command, stdout=PIPE, start_new_session=True) as host:
        started = int(host.communicate(timeout=PATIENCE)[0])
    assert host.returncode == -signal.SIGKILL
    assert pid(pipe()) == started


def test_whoever_comes_first_there_is_one_resident(
    home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """Clients that start at the same moment get the same resident, and start no second one."""
    clients = [pipe() for _ in range(16)]
    with ThreadPoolExecutor(len(clients)) as pool:
        assert len(set(pool.map(pid, clients))) == 1
    assert sum(client._started is not None for client in clients) == 1


def test_a_resident_that_is_loaded_keeps_who_waits(
    home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """A client that cannot wait any longer says why; the resident is not ended for it, but used."""
    slow = """import time, runpy
time.sleep(1.5)
runpy.run_module("memtier_plugin", run_name="__main__", alter_sys=True)  # memtier serve
"""
    resident = pipe(sys.executable, "-W", "ignore", "-c", slow)
    with pytest.raises(ResidentUnreachable, match="is being loaded"):
        resident.call("ping", {}, 0.2)
    started = resident._started
    assert started is not None
    assert pid(resident) == pid(pipe()) == started.pid


def test_two_versions(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """A newer version replaces the resident of an older one, which the older then uses."""
    code = """
        import sys, memtier_plugin
        memtier_plugin.__version__ = "0.0.9"
        from memtier_plugin.cli.main import main  # memtier serve
        main()
    """
    older = pipe(sys.executable, "-W", "ignore", "-c", textwrap.dedent(code))
    before = pid(older)  # it takes its own for current: this process is of our version
    ours = pipe()
    assert (owner := find_owner(home)) is not None
    assert owner.version == "0.0.9" and owner.is_outdated
    after = pid(ours)
    assert after != before
    assert older.call("ping", {}, PATIENCE)["pid"] == after
    wait_until(lambda: not is_process_alive(before) or older._started.wait(0) == 0)


def test_a_resident_that_nobody_needs_ends(
    home: Path, pipe: Callable[..., ResidentClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays while a client is connected, and ends itself some time after the last has gone."""
    monkeypatch.setenv("MEMTIER_RESIDENT__IDLE_MINUTES", "0.005")
    resident = pipe()
    started = pid(resident)
    time.sleep(1.0)
    assert pid(resident) == started
    resident.close()
    wait_until(lambda: find_owner(home) is None)
    assert not socket_path(home).exists()
    assert pid(resident) != started


def test_a_resident_of_a_home_that_is_removed_ends(
    home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """It does not stay for a socket that nobody finds any more."""
    resident = pipe()
    pid(resident)
    shutil.rmtree(home / "run")
    assert resident._started is not None
    assert resident._started.wait(PATIENCE) == 0


def test_one_pipe_for_many_threads(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """Threads that ask at the same time start one resident, and each gets its own answer."""
    resident = pipe()
    delivered: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda n=n: delivered.append(
                resident.deliver(turn(f"r{n}", f"Line {n}."), PATIENCE)
            )
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert delivered == [True] * 8
    assert sorted(stored(home)) == [f"Line {n}." for n in range(8)]


def test_a_forked_host_waits_for_no_thread_of_its_parent(
    home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """A host that forks while its threads hold all locks has a client in parent and child."""
    resident = pipe()
    answering = pid(resident)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with resident._lock, resident._replay_lock, resident._waits_lock:
            held.set()
            done.wait()

    def work() -> None:
        assert pid(resident) == answering
        assert resident.deliver(turn("in the child", "A line of the child."), PATIENCE)
        resident.note_wait("hermes", HookWait("p", AGENT, "prefetch", 5, True))
        started = time.monotonic()
        resident.close()
        assert time.monotonic() - started < PATIENCE / 2

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert run_in_fork(work) == ""
    finally:
        done.set()
        thread.join()
    assert pid(resident) == answering
    assert stored(home) == ["A line of the child."]


@pytest.mark.slow
def test_a_resident_that_hangs(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """A call keeps its deadline; who does not even answer a ping is killed and started anew."""
    resident = pipe()
    halt(first := pid(resident))
    started = time.monotonic()
    with pytest.raises(ResidentUnreachable, match="no answer"):
        resident.call("hook", turn("r1", "x" * 500_000), 0.5)  # more than a pipe holds
    assert time.monotonic() - started < PATIENCE / 2  # it would never answer
    wait_until(lambda: resident._link is not None and not resident._link.alive)
    assert pid(resident) != first
    assert resident.deliver(turn("r2"), PATIENCE)


@pytest.mark.slow
def test_somebody_elses_resident_that_hangs(
    home: Path, pipe: Callable[..., ResidentClient], server: subprocess.Popen[bytes]
) -> None:
    """A resident on the socket that hangs is killed too, whoever started it."""
    resident = pipe()
    assert pid(resident) == server.pid
    halt(server.pid)
    assert not resident.deliver(turn("r1"), 0.5)
    assert server.wait(PATIENCE) == -signal.SIGKILL
    assert resident.deliver(turn("r2", "Second."), PATIENCE)
    wait_until(lambda: not queued(home))
    assert sorted(stored(home)) == ["My bag is in the blue locker.", "Second."]


def test_killed_in_the_middle_of_a_store(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """A resident killed with SIGKILL while it stores: the run is stored exactly once."""
    resident = pipe()
    first = pid(resident)
    done: list[bool] = []
    with held_ledger(home, AGENT):
        thread = threading.Thread(target=lambda: done.append(resident.deliver(turn("r1"), 20)))
        thread.start()
        time.sleep(0.5)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: resident._started is None or resident._started.pid != first)
    thread.join(PATIENCE)
    assert done == [True] or len(queued(home)) == 1
    resident.replay(PATIENCE)
    assert stored(home) == ["My bag is in the blue locker."]


def test_what_was_not_delivered_is_stored_once(
    home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """Without any resident a run waits on the disk (0600); the next one takes it, exactly once."""
    nobody = pipe("memtier-that-is-not-there")
    assert not nobody.deliver(turn("r1", "First."), 1.0)
    assert not nobody.deliver(turn("r1", "First."), 1.0)
    assert [path.stat().st_mode & 0o777 for path in queued(home)] == [0o600] * 2
    assert pipe().deliver(turn("r2", "Second."), PATIENCE)
    assert queued(home) == []
    assert sorted(stored(home)) == ["First.", "Second."]


def test_a_resident_that_crashes_at_start(
    home: Path, pipe: Callable[..., ResidentClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start that fails is followed by a longer pause, and no call waits for it in vain."""
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.1)
    resident = pipe(sys.executable, "-c", "import sys; sys.exit(3)")
    pauses = []
    for number in range(3):
        assert not resident.deliver(turn(f"r{number}"), PATIENCE)
        pauses.append(resident._paused_until - time.monotonic())
    assert pauses == sorted(pauses)
    with pytest.raises(ResidentUnreachable, match="ended with 3; it is started again in"):
        resident.call("ping", {}, 0.05)
    assert len(queued(home)) == 3


def test_a_stale_socket(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """A socket file that a dead resident left does not keep the next one from starting."""
    path = socket_path(home)
    path.parent.mkdir(parents=True, mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    first, second = pipe(), pipe()
    assert pid(first) == pid(second)


@pytest.mark.parametrize("under", ["", "x" * 120])
def test_environments_do_not_part_clients(
    tmp_path: Path, pipe: Callable[..., ResidentClient], under: str
) -> None:
    """A client that is started with hardly any environment finds the resident of one that has all.

    So it is where the home's path is too long for a socket, too.
    """
    home = tmp_path / under / "home"
    first = pid(pipe(where=home))
    code = """
        import sys
        from memtier_plugin.hooks.resident import ResidentClient
        client = ResidentClient(sys.argv[2:], sys.argv[1])
        print(client.call("ping", {}, 60.0)["pid"])
        client.close()
    """
    folders = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    other = {**folders, "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    for environment in (folders, other):
        assert int(run_python(code, home, *SERVE, env=environment)) == first


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_another_users_socket(
    server: subprocess.Popen[bytes], home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """A socket in a folder of another user's is not spoken to: what is said there is private."""
    folder = socket_path(home).parent
    assert pid(pipe()) == server.pid
    os.chown(folder, 12345, -1)
    stranger = pipe()
    assert stranger._connect_socket() is None
    os.chown(folder, 0, -1)


def test_a_home_is_the_same_however_it_is_written(
    home: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """A home given with `..` in it has the same resident as without."""
    assert pid(pipe()) == pid(pipe(where=home.parent / "x" / ".." / home.name))


def test_a_disk_that_takes_nothing(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """Where the queue cannot be written, runs wait in memory; one that is refused holds up none."""
    home.mkdir(mode=0o700)
    (home / "queue").write_text("not a folder")
    resident = pipe("memtier-that-is-not-there")
    wrong = turn("r0") | {"event": {"messages": [{"role": "user", "content": 3}]}}
    assert not resident.deliver(wrong, 1.0)
    assert not resident.deliver(turn("r1", "First."), 1.0)
    resident._command = SERVE
    resident._paused_until = 0
    assert resident.deliver(turn("r2", "Second."), PATIENCE)
    assert sorted(stored(home)) == ["First.", "Second."]


def test_a_ledger_that_takes_nothing(
    home: Path, tmp_path: Path, pipe: Callable[..., ResidentClient]
) -> None:
    """A run that the resident could not store is not taken for stored: it waits on the disk."""
    resident = pipe()
    assert resident.deliver(turn("r0", "Before."), PATIENCE)
    folder = home / "projects" / "p" / "episodic" / AGENT
    moved = folder.rename(tmp_path / "moved")
    folder.symlink_to(moved)
    assert not resident.deliver(turn("r1", "Meanwhile."), PATIENCE)
    assert len(queued(home)) == 1
    folder.unlink()
    moved.rename(folder)
    assert resident.deliver(turn("r2", "After."), PATIENCE)
    assert sorted(stored(home)) == ["After.", "Before.", "Meanwhile."]


def test_what_will_never_be_taken(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """A payload that is refused is not tried for ever: in the queue it is set aside, and named."""
    resident = pipe()
    wrong = turn("r1") | {"event": {"messages": [{"role": "user", "content": 3}]}}
    with pytest.raises(ResidentRefused):
        resident.call("hook", wrong, PATIENCE)
    resident._queue(wrong)
    resident._queue(turn("r2"))
    (home / "queue" / "0-broken.json").write_text("{")
    assert resident.replay(PATIENCE) == 1
    assert len(list((home / "queue").glob("*.refused"))) == 2
    assert queued(home) == []


@pytest.mark.slow
def test_a_payload_of_many_megabytes(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """A tool result of 5 MB passes whole; more than a line may hold is cut, not lost."""
    five = turn("r1") | {"noise": None}
    five["event"] = {"messages": [{"role": "user", "content": "x" * 5_000_000}]}
    assert "characters left out" not in fit_request(five)
    huge = {"event": {"messages": [{"role": "tool", "content": "é" * 1_500_000}] * 3_000}}
    huge["event"]["messages"] = huge["event"]["messages"][:20]
    assert len(fit_request(huge)) <= MAX_REQUEST_BYTES
    many = turn("r2")
    many["event"]["messages"] = [
        {"role": "user", "content": "Many."},
        *({"role": "tool", "content": "x" * 2_000_000} for _ in range(10)),
    ]
    del many["host"]
    resident = pipe()
    resident.deliver(many | {"host": "hermes"}, PATIENCE)  # goes on where it takes long
    wait_until(lambda: "Many." in stored(home))


def test_a_childs_environment(
    home: Path, pipe: Callable[..., ResidentClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resident gets no secret of the host but what is named."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("NAMED_KEY", "named")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    environment_file = tmp_path / "environment"
    resident = ResidentClient(["/bin/sh", "-c", f"env > {environment_file}"], home, ("NAMED_KEY",))
    with pytest.raises(ResidentUnreachable):
        resident.call("ping", {}, 2.0)
    seen = environment_file.read_text()
    assert "secret" not in seen
    assert "NAMED_KEY=named" in seen and "PATH=" in seen and "MEMTIER_HOME=" in seen
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=" in seen


def test_letting_go_of_nothing(home: Path) -> None:
    """Closing before anything was asked, or twice, does nothing; asking again starts anew."""
    resident = ResidentClient(["memtier-that-is-not-there"], home)
    resident.close()
    resident.close()
    assert resident.replay(1.0) == 0
    with pytest.raises(ResidentUnreachable, match="cannot start"):
        resident.call("ping", {}, 1.0)


def test_payloads_are_read_by_both_pipes(home: Path, pipe: Callable[..., ResidentClient]) -> None:
    """What waits on the disk is the payload itself, in JSON, whichever pipe wrote it."""
    pipe("memtier-that-is-not-there").deliver(turn("r1"), 1.0)
    [path] = queued(home)
    assert json.loads(path.read_text()) == turn("r1")
