"""Run the command and the tests' child processes, wait for what they bring about, kill them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result

from memtier_plugin.cli.main import main
from memtier_plugin.core.files import hold_lock
from memtier_plugin.core.paths import make_ledger_folder
from memtier_plugin.core.residents import find_owner
from memtier_plugin.storage.ledger.jsonl import day_file
from tests.forks import Forked

ROOT: Final = Path(__file__).parents[1]
PATIENCE: Final = 150.0  # seconds for what takes one on a machine that has nothing else to do


def run_memtier(*arguments: str | Path, input: str | None = None, code: int = 0) -> Result:
    """Run the command in this process, check its exit code, and pass on what it did not expect."""
    result = CliRunner().invoke(main, [*map(str, arguments)], input=input)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def run_json(*arguments: str | Path) -> Any:
    """Return what the command prints as JSON."""
    return json.loads(run_memtier(*arguments, "--json").stdout)


def child_environment(*paths: Path, **more: str) -> dict[str, str]:
    """Return this process's environment for a child that imports the code under test."""
    search_path = os.pathsep.join(map(str, (ROOT, *paths)))
    return {**os.environ, "PYTHONPATH": search_path, "PYTHONFAULTHANDLER": "1", **more}


def start_python(*arguments: str | Path, **options: Any) -> subprocess.Popen[Any]:
    """Start Python with these arguments; ``options`` are those of ``subprocess.Popen``."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, **({"env": child_environment()} | options))


def fork_python(*arguments: str | Path, **options: Any) -> subprocess.Popen[Any]:
    """Do as `start_python`, for a tenth of the time, where how Python starts is not the rule."""
    command = [sys.executable, *map(str, arguments)]
    return Forked(command, **({"env": child_environment()} | options))


def fork_and_run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Return how a forked child ended, however it did, and what it printed."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with fork_python(*arguments, text=True, **pipes, **options) as process:
        printed = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, *printed)


def start_daemon(*arguments: str, **options: Any) -> subprocess.Popen[Any]:
    """Start the daemon in a process of its own."""
    return fork_python("-m", "memtier_plugin.daemon", *arguments, **options)


def run_command(
    *command: str | Path, timeout: float = 300.0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; the test fails with it, and shows what it printed, if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        **({"env": child_environment(), "timeout": timeout} | options),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.args}:\n{done.stdout}{done.stderr}"
    return done


def run_python(code: str, *arguments: str | Path, **options: Any) -> str:
    """Run code in a process of its own, which must end well; return what it printed."""
    command = (sys.executable, "-c", textwrap.dedent(code), *arguments)
    return run_command(*command, **options).stdout


def run_in_fork(work: Callable[[], object], seconds: float = PATIENCE) -> str:
    """Run something in a forked child; return how it failed, or ''.

    The child never returns into the test: there it would report, and clean up, a second time.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            work()
        except BaseException:
            os.write(writer, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        if not select.select([file], [], [], seconds)[0]:
            os.kill(child, signal.SIGKILL)
        failure = file.read()
    status = os.waitpid(child, 0)[1]
    return failure or (f"the child ended with status {status}" if status else "")


def end_residents(folder: Path) -> None:
    """End the residents of the homes in a folder; they would outlive the test.

    An MCP server starts one in a thread, which may be about to.
    """
    for thread in threading.enumerate():
        if thread.name == "memtier-start":
            thread.join(PATIENCE)
    for log in folder.glob("**/logs/resident.log"):
        if owner := find_owner(log.parents[1]):
            owner.send(signal.SIGKILL)


def wait_until(holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for something that another thread or process brings about."""
    end, pause = time.monotonic() + seconds, 0.01
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(pause)
        pause = min(1.3 * pause, 0.5)  # what is looked at often takes the time of what is awaited


@contextmanager
def running(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Kill a process at the end, whatever came of it, and close its pipes.

    If the test fails meanwhile, the process first prints what each of its threads does.
    """
    with process:
        try:
            yield process
        except AssertionError:
            process.send_signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            raise
        finally:
            process.kill()


@contextmanager
def holding(code: str) -> Iterator[None]:
    """Let another process run code that takes a lock, and keep it for as long as this lasts."""
    code = textwrap.dedent(code) + '\nprint("held", flush=True)\nsys.stdin.read()\n'
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running(fork_python("-c", f"import sys\n{code}", **pipes)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield


@contextmanager
def held_ledger(home: Path, agent: str) -> Iterator[None]:
    """Hold the lock on an agent's ledger of today, as a process does that writes into it."""
    folder = make_ledger_folder(home, "p", "episodic", agent)
    with hold_lock(day_file(folder, datetime.now(UTC)), 1.0):
        yield
