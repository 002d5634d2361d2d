"""A home that was copied is the same home: its index goes on where it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.memory import MemTier
from tests.builders import say, say_each


def indexed_rows(memory: MemTier) -> list[Any]:
    """Return the rows of all items in the index: what is read again gets new ones."""
    rows = memory.store.index.connection().execute("SELECT row, id, file FROM items ORDER BY row")
    return [*rows]


@pytest.mark.parametrize("times", ["kept", "new"])
def test_a_copied_home_is_neither_degraded_nor_read_again(
    home: Path, tmp_path: Path, times: str
) -> None:
    """Files with other inodes and the content that was read keep their rows, without a warning."""
    with MemTier.open(home, "p") as memory:
        say_each(memory, *(f"The pump {n} stands in hall {n}." for n in range(40)))
        memory.recall("pump 3", run_id="r", purpose="inject")
        memory.catch_up()
        before, hits = indexed_rows(memory), [hit.id for hit in memory.recall("pump 7").hits]
    copy = tmp_path / "copy"
    shutil.copytree(home, copy, copy_function=shutil.copy2 if times == "kept" else shutil.copy)
    with MemTier.open(copy, "p") as memory:
        recall = memory.recall("pump 7")
        status = memory.status()
        assert [hit.id for hit in recall.hits] == hits
        assert "degraded" not in recall.label
        assert (status["degraded"], status["warnings"]) == ([], [])
        assert indexed_rows(memory) == before
        assert not memory.store.reader().notices()
        fresh = say(memory, "The pump 41 is new.")
        assert fresh.id in {hit.id for hit in memory.recall("pump 41").hits}


def test_a_copy_that_was_changed_is_read_again(home: Path, tmp_path: Path) -> None:
    """A copy with an earlier line edited is not taken for what was read."""
    with MemTier.open(home, "p") as memory:
        say_each(memory, *(f"The pump {n:02} stands in a hall." for n in range(80)))
        memory.catch_up()
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    [file] = (copy / "projects" / "p" / "episodic" / "main").glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"pump 02 stands", b"mill 02 stands"))
    assert file.stat().st_size > 8192, "the edit must lie before the hashed end of the file"
    os.utime(file, (1, 1))
    with MemTier.open(copy, "p") as memory:
        memory.catch_up()
        assert [path for _, path, _ in memory.store.reader().notices()]
        assert "mill 02" in memory.recall("mill 02").hits[0].text
