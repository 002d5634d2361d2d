"""A machine's copy after somebody changed it: edited or deleted, an old backup, a lost index."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from memtier_plugin.core.paths import index_path
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index.sqlite import remove_index
from memtier_plugin.storage.shared.replica import BATCH
from tests.builders import append_lines, say_each, write_config
from tests.shared.server import PostgresServer
from tests.shared.test_machines import memtier
from tests.shared.test_replicas import PROJECT, hits, sharing, turns_of
from tests.shared.test_snapshots import are_equal, paths_with, project

pytestmark = pytest.mark.shared


@pytest.fixture
def homes(postgres: PostgresServer, database: str, tmp_path: Path) -> list[Path]:
    """Return the homes of two machines with the same few lines."""
    paths = []
    for name in ("anna", "bert"):
        home = tmp_path / name
        where = {"ledger": {"shared": postgres.url(database, name)}}
        write_config(home, {**where, "embedding": {"model": "none"}})
        memtier(home, "shared", "join")
        paths.append(home)
    with MemTier.open(paths[0], PROJECT, "a") as memory:
        say_each(memory, "The harbor opens at six.", "Mia likes green tea.", run_id="r")
        memory.remember("The pier has two cranes.")
    memtier(paths[1], "shared", "drain")
    return paths


def day_file(home: Path) -> Path:
    """Return the file of an agent's entries."""
    [path] = (project(home) / "episodic" / "a").glob("*.jsonl")
    return path


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(path.read_bytes().replace(b"six", b"ten")),
        lambda path: path.write_bytes(path.read_bytes().replace(b"harbor opens", b"pier shuts")),
    ],
)
def test_a_file_that_somebody_changed(homes: list[Path], damage: Callable[[Path], object]) -> None:
    """Deleted, cut or edited, a file is the server's again before anything more is said."""
    anna, bert = homes
    memtier(bert, "shared", "drain")
    sound = day_file(bert).read_bytes()
    damage(day_file(bert))
    memtier(bert, "shared", "drain")
    assert day_file(bert).read_bytes() == sound
    with MemTier.open(bert, PROJECT, "a") as memory:
        assert "opens at six" in memory.recall("When does the harbor open?").text
    are_equal(anna, bert)


def test_lines_that_somebody_added(homes: list[Path]) -> None:
    """What was written past the plugin is kept: it is delivered, once, after what was there."""
    anna, bert = homes
    with MemTier.open(bert, PROJECT, "a") as memory:
        append_lines(memory, ["The buoy is green."])
    memtier(bert, "shared", "drain")
    with MemTier.open(anna, PROJECT, "a") as memory:
        say_each(memory, "The crane is red.")
    are_equal(anna, bert)
    with MemTier.open(anna, PROJECT, "a") as memory:
        assert "buoy" in memory.recall("What color is the buoy?").text


@pytest.mark.parametrize("what", ["older", "newer marks"])
def test_an_old_backup_of_a_home(homes: list[Path], what: str) -> None:
    """A home that was copied back follows from there, even where its marks are newer."""
    anna, bert = homes
    backup = bert.with_name("backup")
    shutil.copytree(bert, backup)
    with MemTier.open(anna, PROJECT, "a") as memory:
        say_each(memory, "The crane is red.", "The code is swordfish.", run_id="x")
    memtier(bert, "shared", "drain")
    marks = bert.with_name("marks")
    shutil.copytree(project(bert) / ".shared", marks)
    shutil.rmtree(bert)
    shutil.copytree(backup, bert)
    if what == "newer marks":
        shutil.rmtree(project(bert) / ".shared")
        shutil.copytree(marks, project(bert) / ".shared")
    memtier(bert, "shared", "drain")
    are_equal(anna, bert)
    with MemTier.open(bert, PROJECT, "a") as memory:
        assert turns_of(memory) == [1, 2, 3, 4]


def test_a_backup_from_before_a_purge(homes: list[Path]) -> None:
    """What was purged since a home was backed up is removed from it again, and not delivered."""
    anna, bert = homes
    with MemTier.open(anna, PROJECT, "a") as memory:
        [entry] = say_each(memory, "The code is swordfish.", run_id="x")
    memtier(bert, "shared", "drain")
    backup = bert.with_name("backup")
    shutil.copytree(bert, backup)
    with MemTier.open(anna, PROJECT, "a") as memory:
        memory.purge(Selection(ids=(entry.id,)))
    memtier(bert, "shared", "drain")
    shutil.rmtree(bert)
    shutil.copytree(backup, bert)
    memtier(bert, "shared", "drain")
    assert paths_with(bert, b"swordfish") == []
    are_equal(anna, bert)
    sound = day_file(anna).read_bytes()
    day_file(bert).write_bytes(b"")
    memtier(bert, "shared", "drain")
    (project(bert) / ".shared" / "episodic.a.json").unlink()
    day_file(bert).write_bytes(sound[:-20] + b"}" + sound[-19:])
    are_equal(anna, bert)
    assert day_file(anna).read_bytes() == sound  # a purge's tombstones are no lines that were lost


def test_a_lost_index(homes: list[Path]) -> None:
    """An index that was wiped is made again from the files alone, and recalls the same."""
    anna, bert = homes
    remove_index(index_path(project(bert)))
    with MemTier.open(anna, PROJECT, "a") as one_of, MemTier.open(bert, PROJECT, "a") as other:
        assert hits(other, "When does the harbor open?") == hits(
            one_of, "When does the harbor open?"
        )
    are_equal(anna, bert)


def test_a_long_past_is_delivered_in_few_parts(
    homes: list[Path], postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """A project with thousands of lines joins: each arrives once, in order, whatever the size."""
    home = tmp_path / "carl"  # by anna's role
    where = {"ledger": {"shared": postgres.url(database, "anna")}}
    write_config(home, {**where, "embedding": {"model": "none"}})
    number = 2 * BATCH + 10
    with MemTier.open(home, PROJECT, "long") as memory:
        append_lines(memory, [f"Crane {n} is at pier {n}. " + "x" * 1500 for n in range(number)])
        before = texts_of(memory)
    assert memtier(home, "shared", "join")["delivered"] >= number
    with MemTier.open(home, PROJECT, "long") as memory:
        assert texts_of(memory) == before and len(before) == number + 1
        assert sharing(memory).replica.spooled() == []


def texts_of(memory: MemTier) -> list[str]:
    """Return what was said, as the log has it."""
    return [
        logged.entry.content for logged in memory.store.log.entries(agent="long") if logged.entry
    ]
