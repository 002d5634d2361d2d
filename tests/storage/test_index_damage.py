"""Whatever of the index is damaged or gone, no call fails for it: a new one is begun at once."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from memtier_plugin import MemTier

SETTINGS = {"embedding.model": "none"}
PAGE = 4096
QUERY = "Which pump stands in hall 3?"
FEW_TABLES = ("items", "meta", "postings")
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home whose index has inner pages and rows of every kind."""
    home = tmp_path_factory.mktemp("whole") / "home"
    with MemTier.open(home, "p", settings=SETTINGS) as memory:
        for number in range(60):
            text = f"The pump {number} stands in hall {number % 7}, beside tank {number * 13 % 97}."
            memory.record([{"role": "user", "content": text}], session_id=f"s{number % 9}")
        memory.forget(ids=[next(memory.entries()).id])
        memory.consolidate(extractor="rules")
        memory.recall(QUERY, purpose="inject", run_id="r")
        memory.catch_up()
    connection = apsw.Connection(str(index_of(home)))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return home


def index_of(home: Path) -> Path:
    """Return the index of the only project."""
    return home / "projects" / "p" / "index.sqlite3"


def tables(home: Path) -> list[str]:
    """Return the names of the index's own tables."""
    connection = apsw.Connection(str(index_of(home)))
    names = [name for (name,) in connection.execute("SELECT name FROM pragma_table_list")]
    connection.close()
    return [name for name in names if not name.startswith(("sqlite_", "grams_", "gram_postings"))]


def assert_served(intact: Path, home: Path, damage: Damage) -> None:
    """Look whether every reading call answers, and a recall finds what it found, after damage."""
    shutil.copytree(intact, home)
    damage(index_of(home))
    with MemTier.open(home, "p", settings=SETTINGS) as memory:
        for _ in range(2):
            recall = memory.recall(QUERY)
            assert any("hall 3" in hit.text for hit in recall.hits)
            assert len(list(memory.entries())) == 59  # the forgotten one stays so
            memory.facts()
            assert memory.events(kinds=["recall"])
        assert recall.label == "lexical"
        memory.record([{"role": "user", "content": "The pump room is dry."}], session_id="n")
        assert memory.recall("pump room dry").hits[0].text == "The pump room is dry."
    shutil.rmtree(home)


def drop(table: str) -> Damage:
    """Return a damage: a table that somebody dropped."""

    def damage(path: Path) -> None:
        connection = apsw.Connection(str(path))
        connection.execute(f'DROP TABLE "{table}"')
        connection.close()

    return damage


def overwrite(number: int) -> Damage:
    """Return a damage: a page of the file that holds something else."""

    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(number * PAGE)
            file.write(random.Random(number).randbytes(PAGE))

    return damage


def pages(home: Path) -> list[int]:
    """Return the numbers of the pages behind the first, in an order drawn by a fixed seed."""
    numbers = [*range(1, index_of(home).stat().st_size // PAGE)]
    random.Random(5).shuffle(numbers)
    return numbers


def test_some_damage(intact: Path, tmp_path: Path) -> None:
    """A dropped table or a damaged inner page fails no recall, and is mended by the next."""
    for table in FEW_TABLES:
        assert_served(intact, tmp_path / "home", drop(table))
    for page in pages(intact)[:2]:
        assert_served(intact, tmp_path / "home", overwrite(page))


@pytest.mark.slow
def test_any_damage(intact: Path, tmp_path: Path) -> None:
    """The same for every table and every page."""
    names = tables(intact)
    assert {*FEW_TABLES} < {*names}
    for table in names:
        assert_served(intact, tmp_path / "home", drop(table))
    for page in pages(intact):
        assert_served(intact, tmp_path / "home", overwrite(page))
