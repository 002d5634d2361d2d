"""Locks between threads in a process that forks."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path

from memtier_plugin.core.concurrency import Mutex
from tests.processes import PATIENCE, run_in_fork

ROOT = Path(__file__).parents[2]
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
# Made by a call and held by nobody else, or of threads that no child of a fork has.
EXEMPT = {
    "daemon/scheduler.py": {"Lock", "Condition"},  # its thread, and APScheduler's locks, are gone
    "memtier_plugin/server/dispatch.py": {"Condition"},  # its threads are gone with it
    "memtier_plugin/server/rpc.py": {
        "Lock",  # of one connection, within the call that attends it
    },
}


def test_a_child_finds_every_mutex_free() -> None:
    """A lock that another thread holds when the process forks can be taken in the child."""
    mutex, held, done = Mutex(), threading.Event(), threading.Event()

    def hold() -> None:
        with mutex:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def take() -> None:
        assert mutex.acquire(timeout=PATIENCE)
        assert not mutex.acquire(blocking=False)
        mutex.release()

    try:
        assert run_in_fork(take) == ""
        assert not mutex.acquire(blocking=False)  # here it is still held
    finally:
        done.set()
        thread.join()


def locks_made(source: str) -> Iterator[str]:
    """Yield the names of the locks of `threading` that a module makes or has made by default."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in LOCKS
            and isinstance(node.value, ast.Name)
            and node.value.id == "threading"
        ):
            yield node.attr
        if isinstance(node, ast.ImportFrom) and node.module == "threading":
            yield from LOCKS & {name.name for name in node.names}


def test_no_lock_is_inherited() -> None:
    """Where locks of `threading` are made, they are made again after a fork; else `Mutex` is."""
    plain = {}
    for top in ("memtier_plugin", "hooks", "daemon", "config"):
        for path in (ROOT / top).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            source = path.read_text("utf-8")
            if "threading" not in source or "register_at_fork" in source:
                continue
            if made := set(locks_made(source)) - EXEMPT.get(name, set()):
                plain[name] = made
    assert plain == {}
