"""Make a shared project this machine's own again, or remove it from here."""

from __future__ import annotations

import shutil

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import index_path, write_private_file
from memtier_plugin.storage.index.files import remove_index
from memtier_plugin.storage.ledger.log import FileLog
from memtier_plugin.storage.project_folder import ProjectFolder
from memtier_plugin.storage.protocol import LOCK_SECONDS
from memtier_plugin.storage.shared.marker import FOLDER


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
