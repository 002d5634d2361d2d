"""Back up a project into one verified file while others write, and restore it.

What is copied is fixed under the writers' locks: of each ledger, the complete lines at that moment.
Agents' journals are read first, then what they refer to, and the project's journal last, so that no
reference dangles and no forgetting is missed.  The copying itself holds no lock.  The index, which
can be rebuilt, and the state of this machine are left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import BackupError
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.paths import (
    LEDGERS,
    RESTORING,
    encode_file_name,
    make_private_folder,
    register_long_name,
)
from memtier_plugin.storage.snapshot import belongs_to_backup, freeze_parts
from memtier_plugin.transfer.archive import ArchiveKind, Progress, read_archive, write_archive


def write_backup(folder: Path, project: str, dest: Path, now: datetime, progress: Progress) -> Path:
    """Write a project's backup and return its path; ``dest`` is a new file or a folder.

    Raises:
        BackupError: the file exists or cannot be written; nothing is left behind.
        LedgerError: a ledger cannot be read.
    """
    if dest.is_dir():
        dest = dest / f"memtier-{encode_file_name(project)}-{now:%Y%m%dT%H%M%SZ}{BACKUP.suffix}"
    name = {"project": project}
    return write_archive(BACKUP, folder, dest, lambda: freeze_parts(folder), name, now, progress)


def verify_backup(archive: Path, progress: Progress = lambda *_: None) -> Mapping[str, Any]:
    """Verify an archive against its manifest, and return the manifest.

    Raises:
        BackupError: it is not a backup, or part of it is damaged, missing or unsafe.
    """
    return read_archive(BACKUP, archive, None, progress)


def restore_backup(
    archive: Path, home: Path, project: str | None = None, progress: Progress = lambda *_: None
) -> tuple[str, Path]:
    """Unpack a verified archive as a new project; return its name and folder.

    Args:
        project: its name here [its former name].

    Raises:
        BackupError: the project exists, or the archive is damaged; nothing was overwritten.
        LedgerError: the home cannot be written, or is not ours.
    """
    make_private_folder(home, "projects")
    fresh = make_private_folder(home, f"{RESTORING}{os.getpid()}-{new_id()}")
    try:
        manifest = read_archive(BACKUP, archive, fresh, progress)
        name = project or str(manifest["project"])
        folder = home / "projects" / encode_file_name(name)
        if os.path.lexists(folder):
            raise BackupError(
                f"the project {name!r} exists already, and a restore overwrites nothing; "
                "name another with --project, or another --home"
            )
        register_long_name(folder.parent, folder.name, name)
        fault_injection.run_step("rename restored", None, os.rename, fresh, folder)
    except OSError as error:
        raise BackupError(f"cannot restore {archive}: {error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return name, folder


def _belongs(inner: tuple[str, ...]) -> bool:
    if len(inner) == 1:
        return belongs_to_backup(inner[0])
    return (
        len(inner) <= 3
        and inner[0] in LEDGERS
        and (inner[-1] == ".names" or (inner[-1].endswith(".jsonl") and inner[-1][0] != "."))
        and not any(part.startswith(".") for part in inner[:-1])
    )


BACKUP: Final = ArchiveKind("memtier-backup", 1, "backup", "project", ".tar.gz", _belongs)
