"""The append-only ledgers: whole lines or nothing, and every change by others is seen."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import LedgerError, LedgerWriteError, UnsafePath
from memtier_plugin.core.files import hold_lock
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.ledger import jsonl
from tests.processes import holding, run_python

ROOT = Path(__file__).parents[2]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records = st.dictionaries(st.text(st.characters()), json_values, max_size=4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a ledger that does not exist yet."""
    return tmp_path / "2026-01-05.jsonl"


def parsed(path: Path) -> list[dict[str, Any]]:
    """Return what stands on the readable lines of a ledger."""
    records = []
    for line in jsonl.read_lines(path)[0]:
        try:
            records.append(jsonl.parse_line(line))
        except ValueError:
            continue
    return records


@contextmanager
def holder(path: Path) -> Iterator[None]:
    """Let another process hold the lock on a file."""
    code = f"""
        import fcntl
        file = open({str(path)!r}, "ab")
        fcntl.flock(file, fcntl.LOCK_EX)
    """
    with holding(code):
        yield


@given(st.lists(st.lists(records, max_size=4), max_size=4), st.sampled_from(["os", "sync"]))
def test_what_is_appended_is_read(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], durability: Any
) -> None:
    """Any JSON objects, lone surrogates and line ends included, come back in their order."""
    path = tmp_path_factory.mktemp("ledger") / "2026-01-05.jsonl"
    path.touch()
    for batch in batches:
        jsonl.append_records(path, batch, durability=durability)
    lines, mark = jsonl.read_lines(path)
    assert [jsonl.parse_line(line) for line in lines] == [
        record for batch in batches for record in batch
    ]
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert mark.offset == mark.size == path.stat().st_size


@given(st.binary(max_size=400), st.lists(records, min_size=1, max_size=3))
def test_any_bytes_before_an_append(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, batch: list[dict[str, Any]]
) -> None:
    """Whatever stands in the file, an append is whole lines of its own and is read back."""
    path = tmp_path_factory.mktemp("ledger") / "2026-01-05.jsonl"
    path.write_bytes(garbage)
    jsonl.append_records(path, batch)
    assert path.read_bytes().startswith(garbage)
    assert parsed(path)[-len(batch) :] == batch


@given(st.binary(max_size=300), st.integers(1, 64))
def test_reading_in_pieces_equals_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, limit: int
) -> None:
    """Reading on from a mark, in pieces of any size, gives the lines of the whole file."""
    path = tmp_path_factory.mktemp("ledger") / "2026-01-05.jsonl"
    path.write_bytes(data)
    all_lines, end = jsonl.read_lines(path)
    lines: list[jsonl.LedgerLine] = []
    mark = None
    while mark is None or not mark.same_as(path.stat()):
        assert mark is None or jsonl.detect_change(path, mark) is None
        more, mark = jsonl.read_lines(path, mark, limit)
        lines += more
    assert (lines, mark) == (all_lines, end)
    assert b"".join(line.data for line in lines) == data[: data.rfind(b"\n") + 1]


def test_torn_last_line(path: Path) -> None:
    """A line that a crash cut off is not read, is reported, and the next one stands alone."""
    jsonl.append_records(path, [{"n": 1}])
    with path.open("ab") as file:
        file.write(b'{"n": 2, "text": "cut of')
    lines, mark = jsonl.read_lines(path)
    assert len(lines) == 1
    assert jsonl.has_torn_tail(path, mark)
    jsonl.append_records(path, [{"n": 3}])
    assert parsed(path) == [{"n": 1}, {"n": 3}]
    assert jsonl.detect_change(path, mark) is None
    more, mark = jsonl.read_lines(path, mark)
    assert [line.number for line in more] == [2, 3]
    assert not jsonl.has_torn_tail(path, mark)


@pytest.mark.parametrize(
    "text",
    ["x" * 10_000_000, "\x00\x01\x7f\x85", "\ud800 \udfff", "a\rb\r\nc", "\u2028\u2029", "\ufeff"],
    ids=["10 MB", "NUL", "surrogates", "CR", "separators", "BOM"],
)
def test_odd_content(path: Path, text: str) -> None:
    """Content of any size and any characters is one line and comes back unchanged."""
    jsonl.append_records(path, [{"content": text}, {"content": "after"}])
    lines, _ = jsonl.read_lines(path, limit=4096)
    assert jsonl.parse_line(lines[0]) == {"content": text}
    assert parsed(path)[1] == {"content": "after"}


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00", b"[1]", b"3", b'"text"', b"null", b"{", b"[" * 200_000, b""]
)
def test_what_is_no_record(path: Path, data: bytes) -> None:
    """A line that is no JSON object is refused by one kind of error, however deep it is."""
    with pytest.raises(ValueError):
        jsonl.parse_line(jsonl.LedgerLine(1, 0, data + b"\n"))


FULL_DISK = """
    import resource, sys
    from pathlib import Path
    sys.dont_write_bytecode = True  # it would be cut off, too
    from memtier_plugin.storage.ledger import jsonl
    from memtier_plugin.core.errors import LedgerWriteError
    path = Path(sys.argv[1])
    jsonl.append_records(path, [{"n": 1, "text": "x" * 500}])
    before = path.read_bytes(), path.stat().st_mtime_ns
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        jsonl.append_records(path, [{"n": 2, "text": "y" * 300}, {"n": 3, "text": "z" * 300}])
    except LedgerWriteError as error:
        print(error)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    jsonl.append_records(path, [{"n": 4}])
"""


def test_full_disk(path: Path) -> None:
    """A write that does not fit whole is taken back, is an error, and costs no earlier line."""
    assert f"cannot append to {path}" in run_python(FULL_DISK, path)
    assert [record["n"] for record in parsed(path)] == [1, 4]


def test_symlinked_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    """A symlink in a ledger's place is refused for reading and writing; its target is left."""
    target = tmp_path / "target"
    target.write_bytes(b"{}\n")
    path.symlink_to(target)
    with pytest.raises(UnsafePath, match="is a symlink"):
        jsonl.append_records(path, [{"n": 1}])
    with pytest.raises(UnsafePath, match="is a symlink"):
        jsonl.read_lines(path)
    assert target.read_bytes() == b"{}\n"


def test_folder_in_the_place_of_a_ledger(path: Path) -> None:
    """A folder, or a pipe that nobody writes, is refused and not waited for."""
    path.mkdir()
    with pytest.raises(LedgerError):
        jsonl.append_records(path, [{"n": 1}])
    with pytest.raises(LedgerError):
        jsonl.read_lines(path)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(UnsafePath, match="not a plain file"):
        jsonl.append_records(path, [{"n": 1}])


def test_missing_ledger(path: Path) -> None:
    """Reading a ledger that is not there is an error that names it."""
    with pytest.raises(LedgerError, match=path.name):
        jsonl.read_lines(path)


def test_lock_held_by_another_process(path: Path) -> None:
    """While another process holds the lock an append gives up in its time and writes nothing."""
    jsonl.append_records(path, [{"n": 1}])
    with holder(path):
        started = time.monotonic()
        with pytest.raises(LedgerWriteError, match="stayed locked by another process"):
            jsonl.append_records(path, [{"n": 2}], timeout=0.1)
        assert time.monotonic() - started < 10  # far from for ever
        assert parsed(path) == [{"n": 1}]  # readers need no lock
    jsonl.append_records(path, [{"n": 3}])
    assert parsed(path) == [{"n": 1}, {"n": 3}]


def test_lock_follows_a_replaced_file(path: Path) -> None:
    """An append goes into the file that has the name now, not into one that was replaced."""
    jsonl.append_records(path, [{"n": 1}])
    with hold_lock(path, 1.0):
        fresh = path.with_suffix(".new")
        fresh.write_bytes(b'{"n": 9}\n')
        os.replace(fresh, path)
        jsonl.append_records(path, [{"n": 2}], timeout=1.0)
    assert parsed(path) == [{"n": 9}, {"n": 2}]


def test_child_does_not_inherit_the_lock(path: Path) -> None:
    """A child that was forked while we wrote does not keep the ledger locked."""
    with hold_lock(path, 1.0):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        jsonl.append_records(path, [{"n": 1}], timeout=1.0)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert parsed(path) == [{"n": 1}]


def test_check_of_a_file_that_only_grew(path: Path) -> None:
    """Appending, also within one tick of the clock, is no change of what was read."""
    jsonl.append_records(path, [{"n": 1}])
    _, mark = jsonl.read_lines(path)
    assert jsonl.detect_change(path, mark) is None
    time_then = path.stat().st_mtime_ns
    jsonl.append_records(path, [{"n": 2}])
    os.utime(path, ns=(time_then, time_then))
    assert jsonl.detect_change(path, mark) is None
    assert not mark.same_as(path.stat())
    assert [jsonl.parse_line(line) for line in jsonl.read_lines(path, mark)[0]] == [{"n": 2}]


def rewrite(path: Path, data: bytes) -> None:
    """Write into the very same file, as an editor that keeps the inode does."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda path, data: rewrite(path, data.replace(b'"n": 49', b'"n": 94')), "edited"),
        (lambda path, data: rewrite(path, data.replace(b"x", b"y", 1)), "edited"),
        (lambda path, data: rewrite(path, data[: len(data) // 2]), "truncated"),
        (lambda path, data: (path.unlink(), path.write_bytes(b"{}\n" + data[3:])), "replaced"),
        (lambda path, data: path.unlink(), "deleted"),
    ],
    ids=["last line", "first line", "truncated", "replaced", "deleted"],
)
def test_check_of_a_changed_file(path: Path, change: Any, what: str) -> None:
    """What a person does to a ledger that was read is named."""
    jsonl.append_records(path, [{"text": "x" * 200, "n": n} for n in range(50)])
    jsonl.append_records(path, [{"kept": path.with_name("kept").write_text("")}])
    _, mark = jsonl.read_lines(path)
    keep = os.open(path, os.O_RDONLY)  # or a new file could get the old one's inode
    data = path.read_bytes()
    os.utime(path, ns=(mark.mtime_ns - 10**9, mark.mtime_ns - 10**9))
    mark = jsonl.read_lines(path)[1]
    change(path, data)
    assert jsonl.detect_change(path, mark) == what
    os.close(keep)


@pytest.mark.parametrize("limit", [None, 100])
def test_a_copy_is_known_by_its_content(path: Path, limit: int | None) -> None:
    """What was read of a file is known again in a copy, and a line more of it is only that."""
    jsonl.append_records(path, [{"text": "x" * 200, "n": n} for n in range(50)])
    mark = jsonl.read_lines(path, None, limit)[1]
    mark = jsonl.read_lines(path, mark, limit)[1]
    data = path.read_bytes()
    kept = path.rename(path.with_name("kept"))  # or a new file could get the old one's inode
    path.write_bytes(data + b'{"n": 50}\n')
    assert path.stat().st_ino != kept.stat().st_ino
    assert jsonl.detect_change(path, mark) is None
    if limit is None:
        [line] = jsonl.read_lines(path, mark)[0]
        assert jsonl.parse_line(line) == {"n": 50}


def test_check_while_a_writer_begins(path: Path) -> None:
    """A new time at the old size is no edit while a writer has the file: its bytes come next."""
    jsonl.append_records(path, [{"n": n, "text": "x" * 200} for n in range(50)])
    _, mark = jsonl.read_lines(path)
    os.utime(path, ns=(mark.mtime_ns + 1, mark.mtime_ns + 1))
    assert jsonl.detect_change(path, mark) is None  # a new time alone edits nothing
    rewrite(path, path.read_bytes().replace(b"x", b"y", 1))
    os.utime(path, ns=(mark.mtime_ns + 1, mark.mtime_ns + 1))
    assert jsonl.detect_change(path, mark) == "edited"
    with holder(path):
        assert jsonl.detect_change(path, mark) is None


def test_day_files(tmp_path: Path) -> None:
    """The ledgers of a folder are its visible .jsonl files, oldest first."""
    for name in ("2026-01-06.jsonl", "2026-01-05.jsonl", ".lock", ".x.jsonl", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in jsonl.list_day_files(tmp_path)] == [
        "2026-01-05.jsonl",
        "2026-01-06.jsonl",
    ]
    assert jsonl.list_day_files(tmp_path / "none") == []


def test_lines_are_json_that_a_person_can_read(path: Path) -> None:
    """What is not ASCII stands in the file as it is, so that a person can read the log."""
    jsonl.append_records(path, [{"text": "Grüße 世界"}])
    assert "Grüße 世界" in path.read_text("utf-8")
    assert json.loads(path.read_text("utf-8"))["text"] == "Grüße 世界"


def test_a_line_cut_off_before_its_newline_is_known(home: Path) -> None:
    """A message whose line a crash left without its newline is not written again when delivered."""
    messages = [{"role": "user", "content": "The pump runs at 40 psi."}]
    with MemTier.open(home, "p") as memory:
        memory.record(messages, session_id="s", run_id="r")
    [ledger] = home.glob("projects/p/episodic/main/*.jsonl")
    ledger.write_bytes(ledger.read_bytes().removesuffix(b"\n"))
    with MemTier.open(home, "p") as memory:
        assert memory.record(messages, session_id="s", run_id="r") == []
        memory.record([{"role": "user", "content": "Another."}], session_id="s", run_id="r2")
        assert [entry.turn for entry in memory.entries()] == [1, 2]
    assert ledger.read_bytes().count(b"\n") == 2
