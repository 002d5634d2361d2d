"""Forks of a process whose threads use the index: neither side ever reads a broken one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.errors import IndexProblem
from memtier_plugin.storage.index import sqlite
from tests.builders import say
from tests.processes import run_in_fork

THREADS = 3


@contextmanager
def busy(memory: MemTier) -> Iterator[list[str]]:
    """Let threads record and recall for as long as this lasts; yields what went wrong."""
    problems: list[str] = []
    stop = threading.Event()

    def work(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            try:
                say(memory, f"the fox {number} sleeps in barn {turn}", run_id=f"r{number}-{turn}")
                memory.recall(f"where does the fox {number} sleep?")
            except Exception as error:
                problems.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield problems
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("forks", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_fork_while_threads_use_the_index(home: Path, forks: int) -> None:
    """A child records and recalls beside its parent's threads, and the index stays whole."""
    with MemTier.open(home) as memory:
        say(memory, "the owl lives in the oak", run_id="first")

        def child() -> None:
            for turn in range(3):
                say(
                    memory,
                    f"the child saw hare {turn}",
                    run_id=f"{os.getpid()}-{turn}",
                    session_id="c",
                )
                assert memory.recall("where does the owl live?").hits
            assert not _broken(memory)

        with busy(memory) as problems:
            failures = [failure for _ in range(forks) if (failure := run_in_fork(child))]
        assert not failures, "\n".join(failures)
        assert problems == []
        assert not _broken(memory)
        assert memory.recall("where does the owl live?").hits
        assert memory.doctor() is not None
        stored = list(memory.entries())
        assert len({entry.id for entry in stored}) == len(stored)  # no id was given twice
        entries = {entry.content for entry in stored}
        recalled = {hit.text for hit in memory.recall("which hare did the child see?").hits}
        assert {f"the child saw hare {turn}" for turn in range(3)} <= entries & recalled


def test_fork_of_a_fork(home: Path) -> None:
    """A child's child has its own SQLite too, also where nothing was ever used in between."""
    with MemTier.open(home) as memory:
        say(memory, "the owl lives in the oak", run_id="first")

        def recall() -> None:
            assert memory.recall("where does the owl live?").hits
            memory.close()

        def child() -> None:
            assert run_in_fork(recall) == ""
            recall()

        assert run_in_fork(lambda: child()) == ""
        assert run_in_fork(lambda: (recall(), run_in_fork(recall))) == ""
        recall()


def test_child_without_a_copy_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that cannot load SQLite again does not read the index beside its parent's locks."""
    with MemTier.open(home) as memory:
        say(memory, "the owl lives in the oak", run_id="first")
        for name in ("_copy_to_memory", "_copy_to_disk"):
            monkeypatch.setattr(sqlite, name, _fail)

        def child() -> None:
            with pytest.raises(IndexProblem, match="spawn"):
                memory.recall("where does the owl live?")

        assert run_in_fork(child) == ""
        assert memory.recall("where does the owl live?").hits


def _fail(file: str) -> str:
    raise OSError(f"no copy of {file}")


def _broken(memory: MemTier) -> list[str]:
    """Return what was set aside because SQLite could not read it."""
    aside = [path.name for path in memory.folder.glob("index.sqlite3.*broken*")]
    return [*aside, *(what for _, _, what in memory.store.reader().notices() if "aside" in what)]
