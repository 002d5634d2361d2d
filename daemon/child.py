"""Run jobs in separate processes, under the lock of a project's daemon."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.files import release_lock, try_acquire_lock
from memtier_plugin.core.formats import from_iso
from memtier_plugin.core.paths import (
    ProjectFolder,
    encode_file_name,
    make_project_folder,
    open_process_log,
    owned_folder_exists,
)
from memtier_plugin.operations import job_state
from memtier_plugin.operations.job_state import LOCK_NAME
from memtier_plugin.storage.store import open_log

# -- Lock a project for its daemon: `memtier daemon`, `memtier serve` or one started by a host

_TRIES: Final = 5  # a process that only checks for a daemon also holds the lock briefly
_PAUSE: Final = 0.02  # seconds


def acquire(home: Path, project: str) -> int | None:
    """Lock the project; return the descriptor for `release_lock`.

    Returns None if another daemon runs, or if the project is gone: its folder is not made anew.

    Raises:
        LedgerError: the project's folder cannot be used.
    """
    folder = ProjectFolder.of(home, project).path
    if not owned_folder_exists(folder):
        return None
    path = folder / LOCK_NAME
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE)
        if (fd := try_acquire_lock(path)) is not None:
            return fd
    return None


def is_held(home: Path, project: str) -> bool:
    """Return whether any process is the project's daemon now."""
    if not owned_folder_exists(ProjectFolder.of(home, project).path):
        return False
    fd = acquire(home, project)
    if fd is not None:
        release_lock(fd)
    return fd is None


def is_still_ours(fd: int, home: Path, project: str) -> bool:
    """Return whether the lock is on the current file: the folder may have been replaced."""
    path = home / "projects" / encode_file_name(project) / LOCK_NAME
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except OSError:
        return False


# -- Run jobs in processes of their own: detached from a short-lived host, or for a server
#
# A process that serves recalls runs no jobs itself: they would hold the interpreter lock.

MAX_REST: Final = timedelta(hours=1)  # jobs run this often even if nothing was written
_POLL_SECONDS: Final = 0.05  # seconds between checks of the stop event

# Set by a process that serves many projects and runs their jobs one after another.
serves_itself: Final = threading.Event()


def start_detached(home: Path, project: str) -> bool:
    """Run every job once in a new process that outlives this one.

    Returns False, and starts nothing, if a daemon already serves the project, or this process has
    declared that it serves its projects itself.

    Raises:
        MemTierError: it cannot be started.
    """
    if serves_itself.is_set() or is_held(home, project):
        return False
    job_state.note_start_request(make_project_folder(home, project), datetime.now(UTC))
    child = _start_process(home, ["--project", project], start_new_session=True)
    # Reap the child, or a long-lived host keeps a zombie.
    threading.Thread(target=child.wait, name="memtier-daemon", daemon=True).start()
    return True


def start_bringing_in(home: Path, project: str, agent: str, workspace: Path) -> None:
    """Bring in what a team shares in a workspace's repository, in a process that outlives this one.

    Raises:
        MemTierError: it cannot be started.
    """
    arguments = ["--project", project, "--agent", agent, "--workspace", str(workspace)]
    child = _start_process(home, arguments, start_new_session=True)
    threading.Thread(target=child.wait, name="memtier-share", daemon=True).start()


def run_child(
    home: Path,
    project: str,
    jobs: Sequence[str],
    fd: int,
    stop: threading.Event,
    *,
    again: timedelta,
    patience: float,
) -> None:
    """Run jobs of a project that this process has locked, in a child, and wait for it.

    Once ``stop`` is set the child is terminated, and killed after ``patience`` seconds.

    Raises:
        MemTierError: the child cannot be started, or a signal ended it.
    """
    arguments = ["--project", project, "--held", str(fd)]
    arguments += ["--again", str(again.total_seconds())]
    arguments += [argument for name in jobs for argument in ("--job", name)]
    child = _start_process(home, arguments, pass_fds=[fd])
    try:
        while not stop.is_set():
            with suppress(subprocess.TimeoutExpired):
                child.wait(_POLL_SECONDS)
                break
        if child.poll() is None:
            child.terminate()
            child.wait(patience)
    except subprocess.TimeoutExpired:
        child.kill()  # its unfinished job runs again
    finally:
        if child.poll() is None:
            child.kill()
        code = child.wait()
    if code < 0 and not stop.is_set():
        raise MemTierError(f"the jobs {', '.join(jobs)} were ended by signal {-code}")


def is_at_rest(home: Path, project: str, jobs: Sequence[str]) -> bool:
    """Return whether nothing was written since these jobs last succeeded, so that they can wait.

    Compares file times only, as it runs in processes that serve recalls.
    """
    folder = home / "projects" / encode_file_name(project)
    states_by_job = job_state.read_background(folder).jobs
    states = [states_by_job.get(name, job_state.JobState()) for name in jobs]
    if any(state.trouble or state.waits or not state.ok for state in states):
        return False
    done = min(from_iso(str(state.started)) for state in states)
    if not timedelta(0) <= datetime.now(UTC) - done < MAX_REST:
        return False
    try:
        newest = open_log(folder).last_written()
    except (OSError, MemTierError):
        return False
    return newest < done.timestamp()


def _start_process(home: Path, arguments: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    # The child must find this package even if it is not installed.
    package = str(Path(memtier_plugin.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), package)))
    try:
        log = open_process_log(home, "daemon")
        try:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "memtier_plugin.daemon",
                    "--once",
                    "--home",
                    str(home),
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "PYTHONPATH": paths},
                cwd=home,
                **how,
            )
        finally:
            os.close(log)
    except OSError as error:
        raise MemTierError(f"the daemon cannot be started ({sys.executable!r}): {error}") from error
