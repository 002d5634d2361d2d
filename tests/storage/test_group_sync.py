"""Group commit: who waits for one file shares a sync, and shares its failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memtier_plugin.core.errors import LedgerWriteError
from memtier_plugin.core.files import count_flushes
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.group_sync import Appended
from tests.faults import injection
from tests.processes import PATIENCE

WRITERS = 6


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Let nothing fail any more after a test."""
    yield
    injection.arm()


def written(path: Path, number: int) -> Appended:
    """Return an appended line that is still to be synced."""
    appended = jsonl.write_records(path, [{"number": number}], durability="sync")
    assert appended is not None
    return appended


def numbers(path: Path) -> list[int]:
    """Return what the lines of a ledger hold."""
    return [jsonl.parse_line(line)["number"] for line in jsonl.read_lines(path)[0]]


def in_threads(work: Callable[[int], None], count: int = WRITERS) -> None:
    """Do the work in so many threads at once."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_writers_share_a_sync(tmp_path: Path) -> None:
    """Who appends while a sync goes on waits for the next, together with all others."""
    path = tmp_path / "2026-01-05.jsonl"
    before = count_flushes()
    barrier = threading.Barrier(WRITERS, timeout=PATIENCE)

    def write(number: int) -> None:
        appended = written(path, number)
        barrier.wait()
        appended.sync()

    in_threads(write)
    assert sorted(numbers(path)) == [*range(WRITERS)]
    assert count_flushes() - before == 1


def test_all_who_shared_a_failed_sync_are_told(tmp_path: Path) -> None:
    """A failed sync acknowledges nothing: its lines are taken back, and each writer is told."""
    path = tmp_path / "2026-01-05.jsonl"
    jsonl.append_records(path, [{"number": -1}], durability="sync")
    errors: list[str] = []
    injection.arm(f"before fsync {tmp_path.name}:1=eio")
    pending = [written(path, number) for number in range(WRITERS)]

    def sync(number: int) -> None:
        try:
            pending[number].sync()
        except LedgerWriteError as error:
            errors.append(str(error))

    in_threads(sync)
    assert len(errors) == WRITERS and all("Input/output error" in error for error in errors)
    assert numbers(path) == [-1]
    injection.arm()
    jsonl.append_records(path, [{"number": 7}], durability="sync")
    assert numbers(path) == [-1, 7]


def test_a_failed_sync_before_the_line_of_another(tmp_path: Path) -> None:
    """A line that another has appended behind cannot be taken back, and the error says so."""
    path = tmp_path / "2026-01-05.jsonl"
    appended = written(path, 1)
    jsonl.append_records(path, [{"number": 2}])
    injection.arm(f"before fsync {tmp_path.name}:1=eio")
    with pytest.raises(LedgerWriteError, match="perhaps not on the disk"):
        appended.sync()
    assert numbers(path) == [1, 2]


def test_sync_is_the_default(home: Path) -> None:
    """Without a setting the disk has a run before it is acknowledged; `fsync` is its old name."""
    assert load_settings(home, "p").ledger.durability == "sync"
    old = load_settings(home, "p", overrides={"ledger.durability": "fsync"})
    assert old.ledger.durability == "sync"
