"""The daemon: what it does without being asked, one per project, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.memory import MemTier

ROOT = Path(__file__).parents[1]
PATIENCE = 30.0

jobs = import_module("memtier_plugin.daemon.jobs")
lock = import_module("memtier_plugin.daemon.lock")
scheduler = import_module("memtier_plugin.daemon.scheduler")


def daemon(*arguments: str) -> subprocess.Popen[str]:
    """Start the daemon in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "memtier_plugin.daemon", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def tell(home: Path, project: str, text: str) -> None:
    """Record something that the rules find a fact in."""
    with MemTier.open(home, project, "test.main") as memory:
        memory.record([{"role": "user", "content": text}], session_id="s", run_id=text)


def facts(home: Path, project: str) -> int:
    """Count a project's facts."""
    with MemTier.open(home, project, "test.main") as memory:
        return len(memory.facts())


def until(holds: Callable[[], object]) -> None:
    """Wait for something that another thread or process brings about."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.05)


def test_once_serves_every_project(home: Path) -> None:
    """--once turns what is new in all projects into facts, and ends with exit 0."""
    tell(home, "Über/Haus", "I live in Lisbon.")
    tell(home, "boat", "I prefer the green paint.")
    process = daemon("--once", "--all")
    assert process.communicate(timeout=PATIENCE) and process.returncode == 0
    assert facts(home, "Über/Haus") and facts(home, "boat")


def test_once_serves_the_project_named(home: Path) -> None:
    """--project leaves the other projects alone."""
    tell(home, "house", "I live in Lisbon.")
    tell(home, "boat", "I prefer the green paint.")
    scheduler.run(home, ["house"], once=True)
    assert facts(home, "house") and not facts(home, "boat")


def test_project_and_all_exclude_each_other() -> None:
    """Contradicting options are refused with the usage's exit code."""
    process = daemon("--project", "house", "--all")
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2 and "--all" in message


def test_wrong_settings_are_told(home: Path) -> None:
    """A wrong configuration ends --once with exit 1 and one line that names the key."""
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("consolidation: {intervall: 3}\n")
    process = daemon("--once", "--project", "p")
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "intervall" in message and "Traceback" not in message


def test_the_scheduler_promotes_without_a_call(home: Path) -> None:
    """Entries become facts by the clock alone, in projects that came later, too."""
    stop = threading.Event()
    thread = threading.Thread(
        target=scheduler.run, args=(home,), kwargs={"interval": 0.1, "stop": stop}
    )
    thread.start()
    try:
        tell(home, "house", "I live in Lisbon.")
        until(lambda: facts(home, "house"))
        tell(home, "house", "I prefer the green paint.")
        until(lambda: facts(home, "house") > 1)
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert not lock.held(home, "house")


def test_jobs_never_overlap(home: Path) -> None:
    """A job that outlasts its interval is not started again beside itself."""
    tell(home, "house", "I live in Lisbon.")
    tell(home, "boat", "I prefer the green paint.")
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

    assert scheduler.run(home, interval=0.02, stop=stop, on_run=slow)
    assert set(most) == {1}


@pytest.mark.parametrize("off", ["paused", "disabled"])
def test_what_is_switched_off_stays_so(home: Path, off: str) -> None:
    """A paused project and one that wants no consolidation are not consolidated."""
    tell(home, "house", "I live in Lisbon.")
    if off == "paused":
        with MemTier.open(home, "house") as memory:
            memory.pause()
    else:
        (home / "config.yaml").write_text("consolidation: {enabled: false}\n")
    scheduler.run(home, once=True)
    assert not facts(home, "house")


def test_a_broken_project_does_not_stop_the_others(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One project whose settings are wrong is told of and left out; the others are served."""
    tell(home, "house", "I live in Lisbon.")
    tell(home, "wreck", "I live in Faro.")
    (home / "projects" / "wreck" / "project.yaml").write_text("kk: 3\n")
    stop = threading.Event()
    scheduler.run(home, interval=0.1, stop=stop, on_run=lambda _project, _report: stop.set())
    assert facts(home, "house")
    assert "wreck" in caplog.text and "kk" in caplog.text


def test_one_daemon_per_project(home: Path) -> None:
    """A second daemon leaves the project to the first, and takes over when that one is killed."""
    tell(home, "house", "I live in Lisbon.")
    first = daemon("--interval", "0.2")
    try:
        until(lambda: facts(home, "house"))
        assert lock.held(home, "house")
        assert not jobs.start_detached(home, "house")
        second = daemon("--interval", "0.2")
        try:
            assert second.stderr is not None
            until(lambda: "served by another process" in second.stderr.readline())
            first.kill()
            first.wait()
            until(lambda: lock.held(home, "house"))
            tell(home, "house", "I prefer the green paint.")
            until(lambda: facts(home, "house") > 1)
        finally:
            second.kill()
            second.communicate()
    finally:
        first.kill()
        first.communicate()
    assert not lock.held(home, "house")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon(home: Path, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end the daemon with exit 0 within five seconds, its lock let go."""
    tell(home, "house", "I live in Lisbon.")
    process = daemon("--all")
    try:
        until(lambda: facts(home, "house"))
        process.send_signal(number)
        process.communicate(timeout=5)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert not lock.held(home, "house")


def test_a_job_that_does_not_end(home: Path) -> None:
    """A stop reports a job that is still at work, and keeps the project's lock until it is over."""
    tell(home, "house", "I live in Lisbon.")
    begun, go_on = threading.Event(), threading.Event()

    def stuck(_project: str, _report: Any) -> None:
        begun.set()
        go_on.wait(PATIENCE)

    served = scheduler.Scheduler(interval=60, on_run=stuck)
    served.add(home, "house")
    assert begun.wait(PATIENCE)
    assert served.stop(patience=0.05) is False
    assert lock.held(home, "house")
    go_on.set()
    assert served.stop() is True
    assert not lock.held(home, "house")


def test_a_symlinked_lock_is_refused(home: Path, tmp_path: Path) -> None:
    """A symlink at the lock's place is an error that says so; what it points to stays untouched."""
    tell(home, "house", "I live in Lisbon.")
    (home / "projects" / "house" / lock.NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(import_module("memtier_plugin.errors").UnsafePath, match="symlink"):
        lock.held(home, "house")
    assert not (tmp_path / "elsewhere").exists()
