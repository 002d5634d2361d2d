"""Write a shared project's files and index into one archive, and join the project from it.

The archive is not compressed, as an index compresses badly and slowly.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import BackupError
from memtier_plugin.core.paths import LEDGERS, ProjectFolder, shared_name
from memtier_plugin.storage.home_files import FrozenFile
from memtier_plugin.storage.shared.bootstrap import (
    INDEX,
    adopt,
    check_copy,
    copy_state,
    marks_from_json,
    marks_to_json,
    staging_folder,
)
from memtier_plugin.storage.shared.protocol import SharedLedger
from memtier_plugin.storage.shared.sharing import Sharing
from memtier_plugin.storage.store import Store
from memtier_plugin.transfer.archive import ArchiveKind, Progress, read_archive, write_archive

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d\.jsonl")


def _belongs(inner: tuple[str, ...]) -> bool:
    if inner == (INDEX,):
        return True
    return (
        2 <= len(inner) <= 3
        and inner[0] in LEDGERS
        and _DAY.fullmatch(inner[-1]) is not None
        and not any(name.startswith(".") for name in inner)
    )


SNAPSHOT: Final = ArchiveKind("memtier-snapshot", 1, "snapshot", "snapshot", ".tar", _belongs)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a machine copied from a snapshot.

    ``streams`` and ``lines`` were copied; ``read_anew`` counts the streams that differ on the
    server, as it was restored from a backup.
    """

    streams: int
    lines: int
    read_anew: int


def write_snapshot(
    store: Store,
    sharing: Sharing,
    dest: Path,
    agents: Collection[str],
    now: datetime,
    progress: Progress,
) -> tuple[int, int]:
    """Write the streams that this machine follows to a new file; return its streams and lines.

    Args:
        agents: include only these agents' private ledgers; all if empty.

    Raises:
        BackupError: the file exists or cannot be written; nothing is left behind.
        LedgerError: the server is unreachable, or a ledger cannot be read.
        IndexProblem: the index cannot be copied.
    """
    folder = store.project_folder
    with staging_folder(folder.home) as copied:
        marks = copy_state(store, sharing, copied, agents, progress)
        describe = {
            "project": shared_name(folder.path),
            "agents": sorted(agents) or None,
            "streams": marks_to_json(marks),
        }
        write_archive(SNAPSHOT, folder.path, dest, lambda: _freeze(copied), describe, now, progress)
    return len(marks), sum(mark.offset for mark in marks.values())


def _freeze(folder: Path) -> list[FrozenFile]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    frozen = []
    for path in files:
        status = path.stat()
        name = path.relative_to(folder).as_posix()
        frozen.append(FrozenFile(path, name, status.st_size, status.st_ino))
    return frozen


def join_by_snapshot(
    folder: ProjectFolder,
    project: str,
    name: str,
    ledger: SharedLedger,
    archive: Path,
    progress: Progress,
) -> Taken:
    """Share a project from this machine, starting from a snapshot.

    Args:
        name: the project's name on the server.

    Raises:
        BackupError: the archive is damaged, of another kind, or of a newer MemTier.
        Refused: it contains streams that this machine was not granted, or is of another server;
            as with the above, nothing has changed.
        Unreachable: the server is unreachable.
    """
    with staging_folder(folder.home) as copied:
        manifest = read_archive(SNAPSHOT, archive, copied, progress)
        if manifest["project"] != name:
            raise BackupError(
                f"{archive} is of the project {manifest['project']!r}, not of {name!r}: see --name"
            )
        try:
            marks = marks_from_json(manifest["streams"])
        except (ValueError, TypeError, KeyError) as error:
            raise BackupError(f"{archive}: its manifest cannot be read: {error!r}") from error
        followed, unknown = check_copy(ledger, copied, marks)
        adopt(folder, project, name, ledger, copied, followed)
    lines = sum(mark.offset for mark in followed.values())
    return Taken(len(followed), lines, len(unknown))
