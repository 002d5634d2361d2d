"""A server whose backup is restored, as docs/scale.md says it goes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier
from tests.builders import say_each
from tests.processes import wait_until
from tests.shared.server import PostgresServer, programs
from tests.shared.test_replicas import ledgers, machine, reaches, sharing, sync, turns_of

pytestmark = [pytest.mark.shared, pytest.mark.slow]

__all__ = ["machine"]


def test_a_restored_backup(
    machine: Callable[..., MemTier], postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """What was said since comes back from the machines; what was purged since is purged again."""
    anna, bert = machine("anna"), machine("bert")
    [gone] = say_each(anna, "The harbor opens at six.")
    anna.purge(Selection(ids=(gone.id,)))
    [secret] = say_each(anna, "The code is swordfish.", run_id="r")
    sync(anna, bert)
    restore = back_up(postgres.url(database), tmp_path)
    say_each(bert, "The crane is red.")
    anna.purge(Selection(ids=(secret.id,)))
    sync(anna, bert)
    assert not copies_of(b"swordfish", anna, bert)
    restore()
    for memory in (anna, bert):
        sharing(memory).ledger.close()
    wait_until(lambda: reaches(anna) and reaches(bert))
    sync(anna, bert)
    assert ledgers(anna) == ledgers(bert) and "crane is red" in anna.recall("crane").text
    assert turns_of(anna) == [*range(1, len(turns_of(anna)) + 1)]
    assert copies_of(b"swordfish", anna, bert)
    anna.purge(Selection(ids=(secret.id,)))
    sync(anna, bert)
    assert not copies_of(b"swordfish", anna, bert)
    assert "crane is red" in bert.recall("crane").text


def test_a_ledger_that_is_younger_than_the_backup(
    machine: Callable[..., MemTier], postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """It comes back whole from the machines that have it."""
    anna, bert = machine("anna"), machine("bert")
    say_each(anna, "The harbor opens at six.")
    restore = back_up(postgres.url(database), tmp_path)
    other = machine("anna", agent="b")
    say_each(other, "The crane is red.")
    restore()
    for memory in (anna, bert, other):
        sharing(memory).ledger.close()
    wait_until(lambda: reaches(anna) and reaches(bert))
    sync(anna, bert)
    assert ledgers(anna) == ledgers(bert)
    assert copies_of(b"crane is red", bert) and copies_of(b"opens at six", bert)


def back_up(url: str, folder: Path) -> Callable[[], object]:
    """Dump a database; return what restores it."""
    programs_folder = programs()
    assert programs_folder is not None
    file = folder / "backup"
    subprocess.run([programs_folder / "pg_dump", "-Fc", "-f", file, url], check=True)
    command = [programs_folder / "pg_restore", "--clean", "-d", url, file]
    return lambda: subprocess.run(command, check=True)


def copies_of(text: bytes, *memories: MemTier) -> list[Path]:
    """Return the files of machines that have a text."""
    files = (path for memory in memories for path in memory.folder.rglob("*") if path.is_file())
    return [path for path in files if text in path.read_bytes()]
