"""The home: made by MemTier, or known as its own, or refused as it was found."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.errors import LedgerError, UnsafePath
from memtier_plugin.core.paths import HOME_MARKER
from tests.builders import say
from tests.processes import run_memtier


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of everything below a folder, and of itself."""
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.stat().st_mode),
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (folder, *folder.rglob("*"))
    }


@pytest.mark.parametrize("command", [None, ["init"], ["remember", "x"], ["install", "hermes"]])
def test_a_folder_of_somebody_else_is_left_alone(home: Path, command: list[str] | None) -> None:
    """A folder with other things in it is no home: nothing is added, and no mode is changed."""
    home.mkdir(mode=0o755)
    (home / "notes.txt").write_text("mine")
    (home / "projects").mkdir()
    (home / "projects" / "website").mkdir()
    before = contents(home)
    if command is None:
        with pytest.raises(UnsafePath, match="was not created by MemTier"):
            MemTier.open(home)
    else:
        assert "was not created by MemTier" in run_memtier(*command, code=1).stderr
    assert contents(home) == before


def test_the_root_is_no_home() -> None:
    """Opening `/` as a home changes nothing, not even its mode."""
    before = os.stat("/").st_mode, sorted(os.listdir("/"))
    with pytest.raises(LedgerError):
        MemTier.open("/")
    assert (os.stat("/").st_mode, sorted(os.listdir("/"))) == before


def test_a_home_is_known_again(home: Path) -> None:
    """An empty folder becomes a home; it stays one whatever is put there, also an old one."""
    home.mkdir()
    with MemTier.open(home) as memory:
        say(memory, "The boat is red.")
    assert (home / HOME_MARKER).exists()
    (home / "notes.txt").write_text("beside it")
    with MemTier.open(home) as memory:
        assert memory.recall("boat").hits
    (home / HOME_MARKER).unlink()  # as a version without markers left it
    with MemTier.open(home) as memory:
        assert memory.recall("boat").hits
    assert (home / HOME_MARKER).exists()


def test_a_home_that_a_host_began(home: Path) -> None:
    """What a host's plugin puts there before any memory is opened makes it no stranger's folder."""
    for name in ("queue/1-a.json", "hosts/openclaw.waits.json", "run/memtier.lock"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("{}")
    with MemTier.open(home) as memory:
        say(memory, "The boat is red.")
    assert (home / HOME_MARKER).exists()
