"""`doctor --fix` mends what loses nothing, tells each repair, and leaves the rest to a person."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.files import hold_lock
from memtier_plugin.core.paths import make_private_folder, socket_path
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.ledger import jsonl
from tests.processes import run_memtier, run_python


@pytest.fixture
def memory(home: Path) -> MemTier:
    """Return a memory with two entries and a fact."""
    with MemTier.open(home, "p") as memory:
        memory.record([{"role": "user", "content": "the fox sleeps"}], session_id="s", run_id="r")
        memory.remember("The owl is called Athena.")
        memory.catch_up()
    return memory


def fix(code: int = 0) -> tuple[list[str], list[dict[str, Any]]]:
    """Run `doctor --fix`; return what was fixed, and what is still not fine."""
    result = run_memtier("doctor", "--fix", "--project", "p", "--json", code=code)
    document = json.loads(result.stdout)
    assert len(result.stderr.splitlines()) == len(document["fixed"])
    rest = [finding for finding in document["findings"] if finding["level"] != "ok"]
    return [finding["what"] for finding in document["fixed"]], rest


def today(memory: MemTier) -> Path:
    """Return the episodic ledger."""
    [path] = (memory.folder / "episodic" / "main").glob("*.jsonl")
    return path


def test_nothing_to_fix(memory: MemTier) -> None:
    """A project that is well is left as it is."""
    before = {path: path.stat().st_mtime_ns for path in memory.folder.rglob("*.jsonl")}
    assert fix() == ([], [])
    assert before == {path: path.stat().st_mtime_ns for path in memory.folder.rglob("*.jsonl")}


def test_a_torn_line_is_moved_and_nothing_lost(memory: MemTier) -> None:
    """The bytes of a line that was cut off are kept beside; the log then ends with a whole line."""
    path = today(memory)
    content = path.read_bytes()
    path.write_bytes(content + b'{"id": "torn')
    assert fix() == ([f"moved a torn last line to {aside(path).name}"], [])
    assert path.read_bytes() == content
    assert aside(path).read_bytes() == b'{"id": "torn' and mode(aside(path)) == 0o600
    with MemTier.open(memory.home, "p") as again:
        assert len(list(again.entries())) == 2
        assert again.status()["warnings"] == []


def aside(path: Path) -> Path:
    """Return where a torn line was moved."""
    [moved] = path.parent.glob(f".{path.name}.torn-*")
    return moved


def mode(path: Path) -> int:
    """Return who may do what."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_line_that_lacks_its_newline_is_ended(memory: MemTier) -> None:
    """An editor that took the last newline away has not taken the entry away."""
    path = today(memory)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    fixed, _ = fix()
    assert fixed[0] == "ended the last line, which lacked its newline"
    assert path.read_bytes() == content
    assert not list(path.parent.glob(".*.torn-*"))


def test_modes_are_mended(memory: MemTier) -> None:
    """Whatever of the home others may read or enter is closed to them; links are left alone."""
    outside = memory.home.parent / "outside"
    outside.write_text("mine")
    outside.chmod(0o644)
    (memory.home / "link").symlink_to(outside)
    for path in memory.home.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    fixed, rest = fix()
    assert all(what.startswith("closed to others (") for what in fixed) and fixed and not rest
    for path in memory.home.rglob("*"):
        if not path.is_symlink():
            assert mode(path) & 0o077 == 0, path
    assert mode(outside) == 0o644


def test_modes_are_mended_where_files_are_opened(memory: MemTier) -> None:
    """Without asking: the home, the project, and each ledger and index that is used."""
    paths = [memory.home, memory.folder, today(memory), memory.folder / "index.sqlite3"]
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with MemTier.open(memory.home, "p") as again:
        again.record([{"role": "user", "content": "x"}], session_id="s")
        assert again.recall("fox").hits
    assert [mode(path) for path in paths] == [0o700, 0o700, 0o600, 0o600]


def test_what_dead_processes_left_is_removed(memory: MemTier) -> None:
    """Half-written files of processes that are gone go; those of living ones stay."""
    process = run_python("import os; print(os.getpid())").strip()
    dead = memory.folder / f".background.json.{process}.1.new"
    alive = memory.folder / f".background.json.{os.getpid()}.1.new"
    half = memory.folder / "index.new.sqlite3"
    as_of_wal = memory.folder / "as-of-x.sqlite3-wal"
    asking = memory.folder / "as-of-y.sqlite3"
    restoring = memory.home / ".restoring-x"
    for path in (dead, alive, half, as_of_wal, asking):
        path.touch(0o600)
    restoring.mkdir(0o700)
    for path in (restoring, as_of_wal):
        os.utime(path, (0, 0))
    fixed, rest = fix()
    assert fixed == ["removed leftovers of a process that died"] * 4 and not rest
    assert alive.exists() and asking.exists()
    assert not any(path.exists() for path in (dead, half, as_of_wal, restoring))
    half.touch(0o600)
    with hold_lock(memory.folder / ".reindex.lock", 1.0):
        assert fix() == ([], [])  # somebody is building it
    assert half.exists()


def test_an_index_is_made_anew(memory: MemTier) -> None:
    """One that is damaged, or of another language, is rebuilt; the broken one is removed."""
    index = memory.folder / "index.sqlite3"
    with index.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(index.stat().st_size - 8192))
    fixed, rest = fix()
    assert fixed and all("index" in what for what in fixed)
    assert [finding["what"] for finding in rest if "set aside" not in finding["what"]] == []
    assert not list(memory.folder.glob("*.broken-*"))
    (memory.folder / "project.yaml").touch(0o600)
    (memory.folder / "project.yaml").write_text("language: german\n")
    assert fix()[0] == ["rebuilt the index"]
    with MemTier.open(memory.home, "p") as again:
        assert again.recall("fox").hits and again.status()["entries"] == 2


def test_a_write_that_was_cut_off_is_completed(memory: MemTier) -> None:
    """What was written ahead by a killed consolidation is written whole."""
    with MemTier.open(memory.home, "p") as again:
        [fact] = again.facts()
        plan = {"facts": [{**fact.to_json(), "id": "0" * 26, "text": "Late."}], "events": []}
    ahead = memory.folder / ".settling.json"
    ahead.write_bytes(jsonl.to_line(plan))
    ahead.chmod(0o600)
    assert fix()[0] == ["completed an interrupted write of facts"]
    assert not ahead.exists()
    with MemTier.open(memory.home, "p") as again:
        assert "Late." in [fact.text for fact in again.facts()]


def test_a_dead_servers_socket_is_removed(memory: MemTier) -> None:
    """A socket that nobody listens on any more goes; a living server's stays."""
    path = socket_path(memory.home)
    make_private_folder(path.parent)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    path.chmod(0o600)
    with hold_lock(path.with_suffix(".lock"), 1.0):
        assert fix() == ([], [])
    assert fix()[0] == ["removed the socket of a server that no longer runs"]
    assert not path.exists()


def test_what_only_a_person_can_judge_stays(memory: MemTier) -> None:
    """An unreadable line, and what is no index of ours, are named and left where they are."""
    path = today(memory)
    path.write_bytes(path.read_bytes() + b"not json\n")
    (memory.folder / "index.sqlite3").write_text("a diary")
    _, rest = fix(code=1)
    text = " ".join(finding["what"] + finding["remedy"] for finding in rest)
    assert "a line cannot be read" in text and "not a MemTier index" in text
    assert b"not json\n" in path.read_bytes()
    [diary] = memory.folder.glob("*.broken-*")
    assert diary.read_text() == "a diary"
