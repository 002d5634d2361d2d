"""List the files of a home that may hold copies of records, for a purge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memtier_plugin.storage import recovery
from memtier_plugin.storage.export_register import REGISTER_FILE
from memtier_plugin.storage.index.scrub import index_files, unneeded_files
from memtier_plugin.storage.store import Store


def list_all_files(store: Store) -> set[Path]:
    """Return every file of the home, and of the index wherever it is."""
    files = {path for path in store.project_folder.home.rglob("*") if path.is_file()}
    return files | {*index_files(store.index)}


def list_obsolete_files(store: Store) -> list[Path]:
    """List the files that nothing reads again: of former indexes and of dead processes."""
    unfinished = [path for path in recovery.find_unfinished(store) if path.is_file()]
    return sorted({*unneeded_files(store.index), *unfinished})


def iter_other_files(store: Store) -> Iterator[Path]:
    """Yield the home's files that belong neither to this project's log nor to an index."""
    own = {file.path for file in store.log.segments()}
    for path in sorted(store.project_folder.home.rglob("*")):
        if path in own or path.is_symlink() or not path.is_file():
            continue
        if ".sqlite3" in path.name or path.name == REGISTER_FILE:
            continue
        yield path
