"""Which projects this machine shares, and how it leaves one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.files import hold_lock, write_private_file
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.paths import ProjectFolder, index_path
from memtier_plugin.storage.index.sqlite import remove_index
from memtier_plugin.storage.ledger.jsonl import spool_file
from memtier_plugin.storage.ledger.log import FileLog
from memtier_plugin.storage.protocol import LOCK_SECONDS

# -- Which projects this machine shares: a note in the project's folder, made by joining

FOLDER: Final = ".shared"
_MARKER: Final = "project.json"  # in `.shared`: the project's name on the server


def shared_name(folder: Path) -> str | None:
    """Return the name that a project has on the server; None if it is not shared.

    Raises:
        LedgerError: the note of it cannot be read.
    """
    path = folder / FOLDER / _MARKER
    try:
        return str(parse_json_text(path.read_text("utf-8"))["project"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error


def join(folder: ProjectFolder, name: str, *, joining: bool = False) -> None:
    """Make a project shared: its ledgers wait for delivery from now on.

    No other process may write meanwhile.

    Args:
        joining: more is to come before `mark_joined`; nothing is moved if that is so already.

    Raises:
        LedgerError: a file cannot be moved.
    """
    if not is_joining(folder.path):
        folder.make(FOLDER)
        for file in FileLog(folder.path).segments():
            if not file.provisional:
                file.path.rename(spool_file(file.path))
        remove_index(index_path(folder.path))  # it has read these lines elsewhere
    _write_marker(folder, name, joining)


def mark_joined(folder: ProjectFolder, name: str) -> None:
    """Note that joining is done.

    Raises:
        LedgerError: it cannot be noted.
    """
    _write_marker(folder, name, False)


def is_joining(folder: Path) -> bool:
    """Return whether joining a shared project was interrupted."""
    try:
        return bool(parse_json_text((folder / FOLDER / _MARKER).read_text("utf-8")).get("joining"))
    except (OSError, ValueError, AttributeError):
        return False


def _write_marker(folder: ProjectFolder, name: str, joining: bool) -> None:
    marker = {"project": name, **({"joining": True} if joining else {})}
    write_private_file(folder.path / FOLDER / _MARKER, json.dumps(marker), durable=True)


# -- Make a shared project this machine's own again, or remove it from here


def make_own(folder: ProjectFolder) -> int:
    """Let a project be this machine's alone; return how many waiting lines stay here.

    No other process may write meanwhile.  A call that was cut off is completed by the next.

    Raises:
        LedgerError: a file cannot be written.
    """
    waiting = 0
    for file in FileLog(folder.path).segments():
        if file.provisional:
            lines = b"".join(FileLog(folder.path).records(file))
            waiting += lines.count(b"\n")
            with hold_lock(file.settled.path, LOCK_SECONDS):
                before = file.settled.path.read_bytes()
                if not before.endswith(lines):
                    text = (before + lines).decode("utf-8", "surrogateescape")
                    write_private_file(file.settled.path, text, durable=True)
            file.path.unlink()
    _remove(folder, FOLDER)
    return waiting


def remove_copy(folder: ProjectFolder) -> None:
    """Remove all that this machine has of a project.

    Raises:
        LedgerError: something is left.
    """
    remove_index(index_path(folder.path))
    _remove(folder, "")


def _remove(folder: ProjectFolder, name: str) -> None:
    try:
        shutil.rmtree(folder.path / name)
    except OSError as error:
        raise LedgerError(f"cannot remove {folder.path / name}: {error}") from error
