"""The daemon: what it does without being asked, one per project, and how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.results import RunContext
from memtier_plugin.memory import MemTier
from memtier_plugin.operations import job_state
from tests.builders import say_in, write_config
from tests.processes import (
    PATIENCE,
    start_daemon,
    start_python,
    wait_until,
)

child = import_module("memtier_plugin.daemon.child")
lock = import_module("memtier_plugin.daemon.child")
scheduler = import_module("memtier_plugin.daemon.scheduler")


def facts(home: Path, project: str) -> int:
    """Count a project's facts."""
    with MemTier.open(home, project, "test.main") as memory:
        return len(memory.facts())


@contextmanager
def held_pass(folder: Path) -> Iterator[None]:
    """Hold the lock on the pass of the rules, as another consolidation does."""
    with (folder / ".consolidate.rules.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_once_serves_every_project(home: Path) -> None:
    """--once turns what is new in all projects into facts, and ends with exit 0."""
    say_in(home, "Über/Haus", "I live in Lisbon.")
    say_in(home, "boat", "I am allergic to walnuts.")
    process = start_daemon("--once", "--all", stderr=subprocess.PIPE, text=True)
    assert process.communicate(timeout=PATIENCE) and process.returncode == 0
    assert facts(home, "Über/Haus") and facts(home, "boat")


def test_once_serves_the_project_named(home: Path) -> None:
    """--project leaves the other projects alone."""
    say_in(home, "house", "I live in Lisbon.")
    say_in(home, "boat", "I am allergic to walnuts.")
    scheduler.serve_projects(home, ["house"], once=True)
    assert facts(home, "house") and not facts(home, "boat")


def test_once_goes_on_past_a_broken_project(home: Path) -> None:
    """--once serves the projects after one that cannot be, and ends with exit 1."""
    say_in(home, "aged", "I live in Faro.")
    (home / "projects" / "aged" / "project.yaml").write_text("kk: 3\n")
    say_in(home, "boat", "I am allergic to walnuts.")
    process = start_daemon("--once", "--all", stderr=subprocess.PIPE, text=True)
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "kk" in message and "Traceback" not in message
    assert facts(home, "boat")


def test_once_makes_no_project(home: Path) -> None:
    """A project that does not exist is told of, not made."""
    say_in(home, "boat", "I am allergic to walnuts.")
    process = start_daemon("--once", "--project", "boot", stderr=subprocess.PIPE, text=True)
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "'boot'" in message
    assert not (home / "projects" / "boot").exists()


def test_a_deleted_project_stays_deleted(home: Path) -> None:
    """A daemon lets go of a project whose folder is gone, and serves one made anew in its place."""
    say_in(home, "house", "I live in Lisbon.")
    stop = threading.Event()
    thread = threading.Thread(
        target=scheduler.serve_projects, args=(home,), kwargs={"interval": 0.1, "stop": stop}
    )
    thread.start()
    try:
        wait_until(lambda: facts(home, "house"))
        with MemTier.open(home, "house", "test.main") as memory:  # what it is at may end
            wait_until(lambda: memory.status()["background"]["jobs"].get("sweep", {}).get("next"))
        (home / "projects" / "house").rename(home / "gone")
        time.sleep(1.0)
        assert not (home / "projects" / "house").exists()
        say_in(home, "house", "I am allergic to walnuts.")
        wait_until(lambda: facts(home, "house") == 1)
        assert lock.is_held(home, "house")
    finally:
        stop.set()
        thread.join(PATIENCE)


def test_how_each_job_went(home: Path) -> None:
    """`status` tells of each job when it went well, why it did not and how often, and when next."""
    say_in(home, "house", "I live in Lisbon.")
    with MemTier.open(home, "house", "test.main") as memory:
        before = memory.status()
        assert before["consolidation"]["due"] and before["consolidation"]["backlog"]["rules"] == 1
        with held_pass(memory.folder):
            assert not scheduler.serve_projects(home, ["house"], once=True)
            assert not scheduler.serve_projects(home, ["house"], once=True)
        status = memory.status()
        assert status["background"]["jobs"]["consolidation"]["failures"] == 2
        assert any(
            "consolidation: " in message and "2 times" in message for message in status["degraded"]
        )
        assert not status["consolidation"]["due"]  # it was tried just now
        served = scheduler.Scheduler(interval=60)
        served.add(home, "house")
        wait_until(lambda: memory.status()["background"]["jobs"]["sweep"]["next"])
        status = memory.status()
        assert status["background"]["served"] and status["consolidation"]["next"]
        assert status["consolidation"]["last"] and status["backlog"] == 0
        assert served.stop(PATIENCE)
        status = memory.status()
        assert status["degraded"] == [] and status["consolidation"]["next"] is None


def test_a_project_makes_room_for_another(home: Path) -> None:
    """One that is at rest is dropped, and its lock is free; added again, it is served again."""
    say_in(home, "boat", "I live in Lisbon.")
    served = scheduler.Scheduler(interval=60)
    try:
        for _ in range(2):
            served.add(home, "boat")
            wait_until(lambda: served.drop(home, "boat"))
            assert not lock.is_held(home, "boat") and facts(home, "boat")
        assert served.drop(home, "boat") and not served._scheduler.get_jobs()
    finally:
        assert served.stop(PATIENCE)


def test_a_server_of_many_starts_no_daemons(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that serves its projects itself does not start one more for each session."""
    say_in(home, "boat", "I live in Lisbon.")
    monkeypatch.setattr(child, "serves_itself", threading.Event())
    child.serves_itself.set()
    assert not child.start_detached(home, "boat")


def test_the_doctor_asks_for_a_daemon(home: Path) -> None:
    """Entries that have waited for long, with nobody to consolidate them, are a finding."""
    say_in(home, "house", "I live in Lisbon.")
    with MemTier.open(home, "house", "test.main") as memory:
        assert not any("no daemon is running" in finding.what for finding in memory.doctor())

    def later() -> datetime:
        return datetime.now(UTC) + timedelta(hours=1)

    with MemTier.open(home, "house", "test.main", clock=later) as memory:
        assert any("no daemon is running" in finding.what for finding in memory.doctor())
        scheduler.serve_projects(home, ["house"], once=True)
        assert not any("no daemon is running" in finding.what for finding in memory.doctor())


def test_project_and_all_exclude_each_other() -> None:
    """Contradicting options are refused with the usage's exit code."""
    process = start_daemon("--project", "house", "--all", stderr=subprocess.PIPE, text=True)
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2 and "--all" in message


def test_wrong_settings_are_told(home: Path) -> None:
    """A wrong configuration ends --once with exit 1 and one line that names the key."""
    write_config(home, "consolidation: {intervall: 3}\n")
    process = start_daemon("--once", "--project", "p", stderr=subprocess.PIPE, text=True)
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "intervall" in message and "Traceback" not in message


def test_the_scheduler_promotes_without_a_call(home: Path) -> None:
    """Entries become facts by the clock alone, in projects that came later, too."""
    stop = threading.Event()
    thread = threading.Thread(
        target=scheduler.serve_projects, args=(home,), kwargs={"interval": 0.1, "stop": stop}
    )
    thread.start()
    try:
        say_in(home, "house", "I live in Lisbon.")
        wait_until(lambda: facts(home, "house"))
        say_in(home, "house", "I am allergic to walnuts.")
        wait_until(lambda: facts(home, "house") > 1)
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert not lock.is_held(home, "house")


def test_jobs_never_overlap(home: Path) -> None:
    """A job that outlasts its interval is not started again beside itself."""
    say_in(home, "house", "I live in Lisbon.")
    say_in(home, "boat", "I am allergic to walnuts.")
    at_work: list[str] = []
    most: list[int] = []
    stop = threading.Event()

    def slow(project: str, _report: Any) -> None:
        at_work.append(project)
        most.append(len(at_work))
        time.sleep(0.1)
        at_work.remove(project)
        if len(most) >= 6:
            stop.set()

    assert scheduler.serve_projects(home, interval=0.02, stop=stop, on_run=slow)
    assert set(most) == {1}


@pytest.mark.parametrize("off", ["paused", "disabled"])
def test_what_is_switched_off_stays_so(home: Path, off: str) -> None:
    """A paused project and one that wants no consolidation are not consolidated."""
    say_in(home, "house", "I live in Lisbon.")
    if off == "paused":
        with MemTier.open(home, "house") as memory:
            memory.pause()
    else:
        write_config(home, "consolidation: {enabled: false}\n")
    scheduler.serve_projects(home, once=True)
    assert not facts(home, "house")


def test_a_broken_project_does_not_stop_the_others(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One project whose settings are wrong is told of and left out; the others are served."""
    say_in(home, "house", "I live in Lisbon.")
    say_in(home, "wreck", "I live in Faro.")
    (home / "projects" / "wreck" / "project.yaml").write_text("kk: 3\n")
    stop = threading.Event()
    scheduler.serve_projects(
        home, interval=0.1, stop=stop, on_run=lambda _project, _report: stop.set()
    )
    assert facts(home, "house")
    assert "wreck" in caplog.text and "kk" in caplog.text


def test_one_daemon_per_project(home: Path) -> None:
    """A second daemon leaves the project to the first, and takes over when that one is killed."""
    say_in(home, "house", "I live in Lisbon.")
    first = start_daemon("--interval", "0.2", stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: facts(home, "house"))
        assert lock.is_held(home, "house")
        assert not child.start_detached(home, "house")
        second = start_daemon("--interval", "0.2", stderr=subprocess.PIPE, text=True)
        try:
            assert second.stderr is not None
            wait_until(lambda: "served by another process" in second.stderr.readline())
            first.kill()
            first.wait()
            wait_until(lambda: lock.is_held(home, "house"))
            say_in(home, "house", "I am allergic to walnuts.")
            wait_until(lambda: facts(home, "house") > 1)
        finally:
            second.kill()
            second.communicate()
    finally:
        first.kill()
        first.communicate()
    assert not lock.is_held(home, "house")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon(home: Path, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end the daemon with exit 0 within five seconds, its lock let go."""
    say_in(home, "house", "I live in Lisbon.")
    process = start_daemon("--all", stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: facts(home, "house"))
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert not lock.is_held(home, "house")


def test_a_job_that_does_not_end(home: Path) -> None:
    """A stop reports a job that is still at work, and keeps the project's lock until it is over."""
    say_in(home, "house", "I live in Lisbon.")
    begun, go_on = threading.Event(), threading.Event()

    def stuck(_project: str, _report: Any) -> None:
        begun.set()
        go_on.wait(PATIENCE)

    served = scheduler.Scheduler(interval=60, on_run=stuck)
    served.add(home, "house")
    assert begun.wait(PATIENCE)
    assert served.stop(patience=0.05) is False
    assert lock.is_held(home, "house")
    go_on.set()
    assert served.stop(PATIENCE) is True
    assert not lock.is_held(home, "house")


def test_a_symlinked_lock_is_refused(home: Path, tmp_path: Path) -> None:
    """A symlink at the lock's place is an error that says so; what it points to stays untouched."""
    say_in(home, "house", "I live in Lisbon.")
    (home / "projects" / "house" / lock.LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(import_module("memtier_plugin.core.errors").UnsafePath, match="symlink"):
        lock.is_held(home, "house")
    assert not (tmp_path / "elsewhere").exists()


# -- started by a host -----------------------------------------------------------------------------

HOST = """
import os, sys
from memtier_plugin.core.results import RunContext
from memtier_plugin.core.plugins import manager
os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
context = RunContext(agent_id="test.main", project="house", session_id="s")
manager().hook.session_start(context=context)
os._exit(0)
"""


def children(home: Path) -> list[int]:
    """Return the processes that are daemons of a home now."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"memtier_plugin.daemon" in words and os.fsencode(home) in words:
                pids.append(int(path.parent.name))
    return pids


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_a_host_that_is_gone_at_once(home: Path) -> None:
    """What a host starts outlives it, niced, in a session of its own, with none of its files."""
    say_in(home, "house", "I live in Lisbon.")
    folder = home / "projects" / "house"
    with (folder / ".facts.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # so that it is there long enough to be looked at
        assert start_python("-c", HOST).wait(PATIENCE) == 0
        wait_until(lambda: lock.is_held(home, "house"))
        [pid] = children(home)
        assert os.getsid(pid) == pid
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.nice(0) + 10)
        opened = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)}
        assert opened == {os.devnull, str(home / "logs" / "daemon.log")}
        every = []
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                every.append(os.readlink(path))
        assert every.count(os.devnull) == 2  # its own input and output, not the host's file
    wait_until(lambda: facts(home, "house"))
    wait_until(lambda: not children(home))
    with MemTier.open(home, "house", "test.main") as memory:
        assert memory.status()["background"]["asked"] is None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_two_hosts_at_once(home: Path) -> None:
    """Of what two hosts start together one consolidates, once, and the other leaves."""
    say_in(home, "house", "I live in Lisbon.")
    both = [start_python("-c", HOST), start_python("-c", HOST)]
    assert [process.wait(PATIENCE) for process in both] == [0, 0]
    wait_until(lambda: facts(home, "house"))
    wait_until(lambda: not children(home))
    with MemTier.open(home, "house", "test.main") as memory:
        read = [event.data["read"] for event in memory.events(kinds=["consolidate"])]
        assert sum(read) == 1 and facts(home, "house") == 1
        assert memory.status()["background"]["asked"] is None


@pytest.mark.usefixtures("daemons")
def test_a_daemon_that_cannot_be_started(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose Python cannot be found says so in `status`, and the session begins."""
    say_in(home, "house", "I live in Lisbon.")
    monkeypatch.setattr(sys, "executable", str(home / "no-python"))
    context = RunContext(agent_id="test.main", home=str(home), project="house")
    plugins.manager().hook.session_start(context=context)
    with MemTier.open(home, "house", "test.main") as memory:
        assert "no-python" in " ".join(memory.status()["degraded"])


def test_a_daemon_that_did_nothing(home: Path) -> None:
    """Of a daemon that was started and never began, `status` and `doctor` say where to look."""
    say_in(home, "house", "I live in Lisbon.")
    folder = home / "projects" / "house"
    job_state.note_start_request(folder, datetime.now(UTC))
    with MemTier.open(home, "house", "test.main") as memory:
        assert "did nothing" not in " ".join(memory.status()["degraded"])
    job_state.note_start_request(folder, datetime.now(UTC) - timedelta(minutes=5))
    with MemTier.open(home, "house", "test.main") as memory:
        assert "daemon.log" in " ".join(memory.status()["degraded"])
        assert any("did nothing" in finding.what for finding in memory.doctor())
        scheduler.serve_projects(home, ["house"], once=True)
        assert "did nothing" not in " ".join(memory.status()["degraded"])


def test_what_is_noted_survives_anything(home: Path) -> None:
    """A torn or foreign file is read as nothing known, and written anew."""
    say_in(home, "house", "I live in Lisbon.")
    folder = home / "projects" / "house"
    path = folder / "background.json"
    for content in (
        "",
        "{",
        "[1]",
        '{"jobs": {"a": 3, "b": {"failures": "x", "c": 1}}, "asked": 4}',
    ):
        path.write_text(content)
        assert job_state.read_background(folder).last() is None
        job_state.note_job(folder, "sweep", datetime.now(UTC))
        assert job_state.read_background(folder).jobs["sweep"].ok
        assert json.loads(path.read_text())["jobs"]["sweep"]["failures"] == 0
        assert path.stat().st_mode & 0o777 == 0o600
