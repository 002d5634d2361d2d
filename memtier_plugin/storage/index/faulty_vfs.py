"""Inject faults into SQLite's writes to the index through a custom VFS.

The index is opened through it only in processes where `core.fault_injection` is armed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from memtier_plugin.core import fault_injection

_NAME: Final = "memtier-faults"
# Of each SQLite of this process, the VFS: it stays registered as long as a reference exists.
_registered: dict[ModuleType, object] = {}


def failing_vfs() -> str:
    """Register the fault-injecting VFS once and return its name."""
    import apsw

    if apsw not in _registered:  # a forked child has a SQLite of its own
        _registered[apsw] = _make(apsw)
    return _NAME


def _make(apsw: Any) -> object:
    def sqlite_error(error: OSError) -> Exception:
        full = error.errno == errno.ENOSPC
        return (apsw.FullError if full else apsw.IOError)(str(error))  # type: ignore[no-any-return]

    def step(name: str, of: str, do: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return fault_injection.run_step(f"{name} {of}", None, do, *arguments)
        except OSError as error:
            raise sqlite_error(error) from error

    class File(apsw.VFSFile):  # type: ignore[misc]
        def __init__(self, name: Any, flags: list[int]) -> None:
            self.description = _describe(name if isinstance(name, str | None) else name.filename())
            super().__init__("", name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:
            def put(part: bytes) -> int:
                super(File, self).xWrite(part, offset)
                return len(part)

            try:
                written = fault_injection.write_through(
                    f"write {self.description}", None, put, bytes(data)
                )
                if written != len(data):  # SQLite's own VFS reports a short write this way
                    raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes fitted")
            except OSError as error:
                raise sqlite_error(error) from error

        def xSync(self, flags: int) -> None:
            step("fsync", self.description, super().xSync, flags)

        def xTruncate(self, size: int) -> None:
            step("truncate", self.description, super().xTruncate, size)

    class FileSystem(apsw.VFS):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(_NAME, "")

        def xOpen(self, name: Any, flags: list[int]) -> object:
            return File(name, flags)

        def xDelete(self, name: str, sync: bool) -> None:
            step("unlink", _describe(name), super().xDelete, name, sync)

    return FileSystem()


def _describe(path: str | None) -> str:
    """Describe a file of SQLite: the index, one being built, or a temporary file."""
    if path is None:
        return "temporary"
    stem, _, suffix = Path(path).name.partition(".sqlite3")
    return f"{'new index' if stem.endswith('new') else 'index'}{suffix}"
