"""SQLite for the index: its version, its files, a library for forked children."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from memtier_plugin.core.errors import IndexProblem
from memtier_plugin.core.files import run_step

# -- Name the SQLite that the index is kept in, and try what the index needs of it


def describe_engine() -> dict[str, str]:
    """Return the versions of apsw, SQLite and its full-text search, which is tried.

    Raises:
        IndexProblem: the search is missing, or does not work.
    """
    import apsw

    connection = apsw.Connection(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        connection.execute("INSERT INTO words VALUES ('a memory for agents')")
        [(hits,)] = connection.execute("SELECT count(*) FROM words WHERE words MATCH 'agents'")
        if hits != 1:
            raise IndexProblem("FTS5 does not find a word that it was given")
        [(source,)] = connection.execute("SELECT fts5_source_id()")
    except apsw.Error as error:
        raise IndexProblem(f"SQLite lacks what the index needs: {error}") from error
    finally:
        connection.close()
    return {
        "apsw": apsw.apsw_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "fts5": str(source).removeprefix("fts5: ").partition(" ")[0],
    }


# -- Find, set aside and remove index files together with their logs

APPLICATION_ID: Final = 0x4D54_4952  # "MTIR", to tell our index from a foreign database
NEW_INDEX: Final = "index.new.sqlite3"  # next to the index, while a new one is built
BUILD_LOCK: Final = ".reindex.lock"  # held during a build
AS_OF_PREFIX: Final = "as-of-"  # prefix of a temporary index of a past state


def remove_index(path: Path) -> int:
    """Remove a SQLite file and its logs; return the number of files removed.

    Raises:
        IndexProblem: a file cannot be removed.
    """
    parts = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm", "-journal")]
    existing = [part for part in parts if part.exists()]
    for part in existing:
        try:
            run_step("unlink", part, part.unlink, missing_ok=True)
        except OSError as error:
            raise IndexProblem(f"cannot remove {part}: {error}") from error
    return len(existing)


def broken_indexes(path: Path) -> list[Path]:
    """List the indexes set aside from a path, oldest first, without their logs."""
    candidates = path.parent.glob(f"{path.name}.broken-*")
    return sorted(file for file in candidates if file.name.rpartition("-")[2].isdigit())


def is_own_index(path: Path) -> bool:
    """Tell by its header whether a file is, or was, an index of ours."""
    try:
        with path.open("rb") as file:
            head = file.read(72)
    except OSError:
        return False
    return not path.is_symlink() and head[68:] == APPLICATION_ID.to_bytes(4, "big")


def set_aside(path: Path) -> Path:
    """Rename a file and its logs; of indexes set aside earlier only the last is kept."""
    for old in [file for file in broken_indexes(path) if is_own_index(file)][:-1]:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{old}{suffix}").unlink(missing_ok=True)
    aside = path.with_name(f"{path.name}.broken-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        if os.path.lexists(f"{path}{suffix}"):
            run_step("rename", path, os.rename, f"{path}{suffix}", f"{aside}{suffix}")
    return aside


# -- Give a forked child a SQLite of its own
#
# A fork copies SQLite as it stands while other threads use it: mutexes that nobody will release,
# and the list of its locks, by which the child takes locks of its parent's for its own.  Then both
# read and write one file without a lock between them, until "the disk image is malformed".  SQLite
# has no call to begin anew, so a child loads the library a second time, from a copy of its file,
# when it first needs it.  What it inherited it neither uses nor closes.

_NAME: Final = "apsw"
_FOLDER: Final = "memtier-sqlite-"

_used = False  # by this process, or by the one that forked it
_inherited: list[ModuleType] = []  # the libraries of the processes that this one descends from


def note_use() -> None:
    """Remember that this process has connections, which its children must not touch.

    Raises:
        IndexProblem: this process was forked, and could not load a library of its own.
    """
    global _used
    library = sys.modules.get(_NAME)
    if library is not None and library.__file__ in [old.__file__ for old in _inherited]:
        raise IndexProblem(
            "this process was forked from one that uses the index, and cannot load SQLite again; "
            "start it anew (multiprocessing: the method 'spawn')"
        )
    _used = True


class _Loader(ExtensionFileLoader):
    """Loads the library, and removes a copy on the disk: what is loaded needs its file no more."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Load the library."""
        try:
            return super().create_module(spec)
        finally:
            if (folder := Path(self.path).parent).name.startswith(_FOLDER):
                shutil.rmtree(folder, ignore_errors=True)


class _OwnCopy:
    """Finds the library in a copy of its file; the first finder of a forked child."""

    def __init__(self, file: str, search: Sequence[str]) -> None:
        self.file = file
        self.search = search

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where the library is loaded from; every other module is found as ever."""
        if name != _NAME:
            return None
        for make in (_copy_to_memory, _copy_to_disk):
            with suppress(OSError, AttributeError):
                file = make(self.file)
                return spec_from_file_location(
                    name,
                    file,
                    loader=_Loader(name, file),
                    submodule_search_locations=[*self.search],
                )
        return None


def _copy_to_memory(file: str) -> str:
    copy = os.memfd_create(_NAME)  # closed by the end of the process: the path stays its own
    with os.fdopen(copy, "wb", closefd=False) as target, Path(file).open("rb") as source:
        shutil.copyfileobj(source, target)
    path = f"/proc/{os.getpid()}/fd/{copy}"
    os.stat(path)  # without /proc the copy goes to the disk
    return path


def _copy_to_disk(file: str) -> str:
    folder = tempfile.mkdtemp(prefix=_FOLDER)
    return shutil.copy(file, folder)


def _begin_anew() -> None:
    """Put the inherited library aside, in a child of a process that used it."""
    library: Any = sys.modules.get(_NAME)
    if not _used or library is None or library in _inherited:
        return
    _inherited.append(library)
    for kept in (library, *getattr(library, "connections", list)()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # no destructor may close it either
    for name in [n for n in sys.modules if n == _NAME or n.startswith(f"{_NAME}.")]:
        del sys.modules[name]
    if not any(isinstance(finder, _OwnCopy) for finder in sys.meta_path):  # else a grandchild
        copy = _OwnCopy(str(library.__file__), getattr(library, "__path__", ()))
        sys.meta_path.insert(0, copy)


os.register_at_fork(after_in_child=_begin_anew)
