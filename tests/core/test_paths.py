"""Names from outside become safe file names and come back; what is not ours is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memtier_plugin.core.errors import LedgerWriteError, UnsafePath
from memtier_plugin.core.files import remove_private_file, write_private_file
from memtier_plugin.core.paths import (
    PROJECT_JOURNAL,
    decode_file_name,
    encode_file_name,
    iter_ledger_folders,
    make_ledger_folder,
    make_private_folder,
    make_project_folder,
)
from memtier_plugin.memory import MemTier

# Lone surrogates included: hosts written in JavaScript have such names.
names = st.text(st.characters(), max_size=400)


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Take away the umask, so that only the modes that we ask for protect anything."""
    before = os.umask(0)
    yield
    os.umask(before)


@given(names)
@example("")
@example("_project")
@example(".hidden")
@example("../../etc/passwd")
@example("a/b\\c\nd\x00e")
@example("UPPER")
@example("%41")
@example("x" * 300)
@example("Ж" * 300)
@example("\ud800")
def test_file_names_are_safe(name: str) -> None:
    """Whatever the name, its file name is short lower-case ASCII and one step of a path."""
    encoded = encode_file_name(name)
    assert 0 < len(encoded) <= 120
    assert set(encoded) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-%~ABCDEF")
    assert encoded[0] not in "._"


@given(st.lists(names, unique=True, max_size=6))
def test_names_are_reversible(tmp_path_factory: pytest.TempPathFactory, owners: list[str]) -> None:
    """Every agent's name is read back from its folder, and no two share one."""
    home = tmp_path_factory.mktemp("home")
    for owner in owners:
        make_ledger_folder(home, "p", "episodic", owner)
    decoded = [owner for _, owner, _ in iter_ledger_folders(make_project_folder(home, "p"))]
    assert sorted(map(str, decoded)) == sorted(owners)


def test_the_folder_of_another_agent_is_not_looked_at(home: Path, tmp_path: Path) -> None:
    """Of the episodic ledgers one agent's alone is listed: what stands beside it costs nothing."""
    own = make_ledger_folder(home, "p", "episodic", "me")
    (own.parent / "other").symlink_to(tmp_path)
    make_ledger_folder(home, "p", "journal", "other")
    listed = [*iter_ledger_folders(own.parents[1], "me")]
    assert [(ledger, owner) for ledger, owner, _ in listed] == [
        ("episodic", "me"),
        ("journal", "other"),
    ]
    with pytest.raises(UnsafePath):
        [*iter_ledger_folders(own.parents[1])]


@given(names, names)
def test_names_do_not_fold(name: str, other: str) -> None:
    """Two names differ on a file system that folds case, too."""
    if name != other:
        assert encode_file_name(name).lower() != encode_file_name(other).lower()


def test_long_project_is_named(home: Path) -> None:
    """A project of 300 characters is listed under its own name."""
    name = "Project/" + "x" * 292
    with MemTier.open(home, name) as memory:
        assert decode_file_name(home / "projects", memory.folder.name) == name


def test_torn_names_file_is_survived(home: Path) -> None:
    """What a crash left in ``.names`` costs no other name."""
    folder = make_ledger_folder(home, "p", "episodic", "a" * 200)
    names = folder.parent / ".names"
    names.write_bytes(names.read_bytes() + b'{"file": "torn')
    other = make_ledger_folder(home, "p", "episodic", "b" * 200)
    assert decode_file_name(folder.parent, folder.name) == "a" * 200
    assert decode_file_name(folder.parent, other.name) == "b" * 200


def test_agent_named_as_the_project_journal(home: Path) -> None:
    """An agent that is named ``_project`` is recorded and recalled as any other."""
    with MemTier.open(home, agent_id=PROJECT_JOURNAL) as memory:
        memory.record([{"role": "user", "content": "the fox sleeps"}], session_id="s")
        assert memory.recall("fox").hits
        assert [entry.agent_id for entry in memory.entries()] == [PROJECT_JOURNAL]


def test_modes_do_not_depend_on_the_umask(home: Path, no_umask: None) -> None:
    """Every folder is 0700 and every file 0600, whatever the umask."""
    with MemTier.open(home, "p" * 200, "a" * 200) as memory:
        memory.record([{"role": "user", "content": "the fox sleeps"}], session_id="s")
        memory.recall("fox", purpose="inject")
        memory.remember("the fox is red")
        memory.note_hook("a", "agent_end", ok=True)
        memory.reindex()
        memory.pause()
        modes = {path: path.lstat().st_mode for path in [home, *home.rglob("*")]}
    assert any(path.name == "index.sqlite3-wal" for path in modes)
    for path, mode in modes.items():
        assert mode & 0o777 == (0o700 if stat.S_ISDIR(mode) else 0o600), path


@pytest.mark.parametrize("part", ["", "projects", "projects/p", "projects/p/episodic"])
def test_symlinked_folders_are_refused(home: Path, tmp_path: Path, part: str) -> None:
    """A folder of the home that is a symlink is refused by name, before anything is written."""
    make_ledger_folder(home, "p", "episodic", "main")
    (home / part).rename(tmp_path / "elsewhere")
    (home / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath, match="is a symlink"):
        make_ledger_folder(home, "p", "episodic", "main")
    with pytest.raises(UnsafePath, match="is a symlink"), MemTier.open(home, "p") as memory:
        memory.record([{"role": "user", "content": "the fox"}], session_id="s")
    assert not list((tmp_path / "elsewhere").rglob("*.jsonl"))


def test_symlinked_agent_folder_is_not_read(home: Path, tmp_path: Path) -> None:
    """Another's ledgers behind a symlink are not recalled; the label and `doctor` say why."""
    with MemTier.open(tmp_path / "other") as other:
        other.record([{"role": "user", "content": "the fox sleeps"}], session_id="s")
    with MemTier.open(home) as memory:
        episodic = make_private_folder(memory.folder, "episodic")
        (episodic / "main").symlink_to(other.folder / "episodic" / "main")
        recall = memory.recall("fox")
        assert not recall.hits
        assert "is a symlink" in recall.label
        assert any("is a symlink" in finding.what for finding in memory.doctor())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
@pytest.mark.parametrize("part", ["", "projects", "projects/p"])
def test_foreign_owner_is_refused(home: Path, part: str) -> None:
    """A folder that belongs to another user is refused, with both users' numbers."""
    make_project_folder(home, "p")
    os.chown(home / part, 65534, 65534)
    with pytest.raises(UnsafePath, match="belongs to user 65534, not to you"):
        MemTier.open(home, "p")


def test_file_in_the_place_of_a_folder(home: Path) -> None:
    """A plain file where a folder should be is refused, and stays as it is."""
    make_private_folder(home)
    (home / "projects").write_text("mine")
    with pytest.raises(UnsafePath, match="is not a folder"):
        make_project_folder(home, "p")
    assert (home / "projects").read_text() == "mine"


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A home below a plain file gives an error that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerWriteError, match="file/home"):
        make_private_folder(tmp_path / "file" / "home")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")))
def test_write_private_replaces_whole(tmp_path: Path, text: str) -> None:
    """A small file is replaced whole, and nothing is left beside it."""
    path = tmp_path / "file"
    write_private_file(path, text)
    assert path.read_text("utf-8") == text
    assert [entry.name for entry in tmp_path.iterdir() if "file" in entry.name] == ["file"]


@pytest.mark.parametrize("act", [remove_private_file, lambda path: write_private_file(path, "x")])
def test_only_files_are_replaced(tmp_path: Path, act: Callable[[Path], None]) -> None:
    """A pipe, a device or a folder stays what it is, and so does a link to one."""
    pipe, link, device = tmp_path / "pipe", tmp_path / "link", tmp_path / "device"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    device.symlink_to(os.devnull)
    for path in (link, device, pipe, tmp_path):
        with pytest.raises(LedgerWriteError, match="not a plain file"):
            act(path)
    assert pipe.is_fifo() and link.is_fifo() and device.is_char_device()
    nowhere = tmp_path / "nowhere"
    nowhere.symlink_to(tmp_path / "none")
    act(nowhere)
    assert nowhere.is_file() or not os.path.lexists(nowhere)
