"""An index that cannot be used is set aside and made anew, and says so; nothing is lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from memtier_plugin.core.errors import ForeignFile, IndexProblem
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index import sqlite
from memtier_plugin.storage.index.connection import MIGRATIONS
from tests.builders import say
from tests.processes import fork_python

ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def newer(path: Path) -> None:
    """Let an index be one of a newer MemTier."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


def foreign_database(path: Path) -> None:
    """Make another program's database."""
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("CREATE TABLE mine(x)")
        connection.commit()


def damaged(start: int) -> Callable[[Path], None]:
    """Return what writes noise over a file from some place on."""

    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(b"\xa5" * max(0, path.stat().st_size - start))

    return damage


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (newer, "upgrade MemTier"),
        (foreign_database, "another program's database"),
        (lambda path: path.write_text("notes of mine\n" * 100), "not a database"),
        (damaged(0), "not a database"),
        (damaged(100), "malformed"),
        (damaged(4096), "malformed"),
        (damaged(20 * 4096), "malformed"),
        (lambda path: os.truncate(path, 5000), "malformed"),
        (lambda path: os.truncate(path, 10 * 4096), "malformed"),
        (lambda path: path.write_bytes(b""), ""),
        (lambda path: path.unlink(), ""),
    ],
    ids=["newer", "database", "text", "head", "schema", "pages", "late", "cut", "half", "empty",
         "gone"],
)  # fmt: skip
@pytest.mark.parametrize("opened", [False, True])
def test_an_index_that_cannot_be_used_is_made_anew(
    home: Path, harm: Callable[[Path], None], says: str, opened: bool
) -> None:
    """It is set aside, told in `status`, and all that the ledgers hold is found again.

    Where the damage shows in the middle of a recall, that one says so and the next goes well.
    """
    with MemTier.open(home) as memory:
        for number in range(12):
            say(memory, f"the fox number {number}", run_id=f"r{number}")
        memory.catch_up()
        expected = {hit.id for hit in memory.recall("fox").hits}
        index = memory.store.index.path
        memory.store.index.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if not opened:
            memory.store.close()
        harm(index)
        before = index.read_bytes() if index.exists() else b""
        for _ in range(3):
            try:
                ids = {hit.id for hit in memory.recall("fox").hits}
            except IndexProblem as problem:
                assert "try again" in str(problem)
        assert ids == expected
        assert say(memory, "the last fox")
        status = memory.status()
        assert status["entries"] == 13
        asides = sqlite.broken_indexes(index)
        if says and asides:
            assert any(says in line and "set aside" in line for line in status["warnings"])
        if not opened:
            assert len(asides) == bool(says)
            assert not says or asides[0].read_bytes()[:4096] == before[:4096]
        assert not any("index" in line for line in status["degraded"])


def test_a_broken_index_is_replaced_once(home: Path) -> None:
    """Many processes that find it broken at the same time set aside one, and all go on."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        index = memory.store.index.path
    index.write_text("noise " * 1000)
    code = (
        "from memtier_plugin.memory import MemTier\n"
        f"with MemTier.open({str(home)!r}) as memory:\n"
        "    print(len(memory.recall('fox').hits))"
    )
    printing = {"stdout": subprocess.PIPE, "text": True}
    processes = [fork_python("-c", code, **printing) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in processes] == ["1"] * 3
    assert len(sqlite.broken_indexes(index)) == 1


def test_of_broken_indexes_only_the_last_two_stay(home: Path) -> None:
    """What breaks again and again does not fill the disk; what is no index of ours stays."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        index = memory.store.index.path
        for number in range(5):
            memory.store.close()
            damaged(4096)(index)
            if number == 0:
                index.write_text("a diary")
            memory.catch_up()
    asides = sqlite.broken_indexes(index)
    assert len(asides) == 3 and asides[0].read_text() == "a diary"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.mkdir(), "not a plain file"),
        (lambda path: path.symlink_to(path.with_name("elsewhere")), "is a symlink"),
    ],
    ids=["folder", "symlink"],
)
def test_what_is_no_file_is_left_alone(home: Path, make: Any, says: str) -> None:
    """A folder or a link is refused with the remedy; `reindex` sets it aside unchanged."""
    with MemTier.open(home) as memory:
        index = memory.store.index.path
        make(index)
        before = index.lstat()
        with pytest.raises(ForeignFile, match=f"{says}.*memtier reindex"):
            memory.recall("fox")
        assert say(memory, "the fox sleeps").content == "the fox sleeps"
        assert any(says in reason for reason in memory.status()["degraded"])
        assert any(says in finding.what for finding in memory.doctor())
        assert index.lstat().st_mtime_ns == before.st_mtime_ns
        assert memory.reindex()["entries"] == 1
        assert memory.recall("fox").hits
    [aside] = sqlite.broken_indexes(index)
    assert aside.lstat().st_ino == before.st_ino


def test_an_index_begun_anew_says_what_it_lacks(home: Path) -> None:
    """Until all older files were read, recalls and `status` say that it is being rebuilt."""
    with MemTier.open(home, clock=lambda: START) as memory:
        say(memory, "the oldest fox")
        index = memory.store.index.path
        [first] = (memory.folder / "episodic" / "main").glob("*.jsonl")
    for day in range(1, 4):
        line = first.read_bytes().replace(b"oldest", b"fox of %d" % day)
        line = line.replace(b'"id": "01', b'"id": "%02d' % (day + 10))
        line = line.replace(b'"key": "', b'"key": "x')
        first.with_name(f"2030-01-0{day}.jsonl").write_bytes(line)
    index.write_text("noise")
    with MemTier.open(home) as memory:
        recall = memory.recall("oldest fox")
        assert recall.label == "degraded: index is being rebuilt"
        assert "oldest" not in str([hit.text for hit in recall.hits])
        memory.catch_up()
        recall = memory.recall("oldest fox")
        assert recall.label == "hybrid" and "oldest" in recall.hits[0].text
