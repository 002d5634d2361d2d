"""Failing on purpose inside SQLite: its own writes to the index, as `faults` is told.

Only in a process that is told to fail is the index opened through this.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core import fault_injection

_NAME: Final = "memtier-faults"
_registered: list[object] = []  # SQLite knows it for as long as it is kept


def failing_vfs() -> str:
    """Return the name of the file system through which SQLite's operations may fail."""
    import apsw

    if not _registered:
        _registered.append(_make(apsw))
    return _NAME


def _make(apsw: Any) -> object:
    def told(error: OSError) -> Exception:
        full = error.errno == errno.ENOSPC
        return (apsw.FullError if full else apsw.IOError)(str(error))  # type: ignore[no-any-return]

    def step(name: str, of: str, do: Callable[..., Any], *given: Any) -> Any:
        try:
            return fault_injection.run_step(f"{name} {of}", None, do, *given)
        except OSError as error:
            raise told(error) from error

    class File(apsw.VFSFile):  # type: ignore[misc]
        def __init__(self, name: Any, flags: list[int]) -> None:
            self.what = _what(name if isinstance(name, str | None) else name.filename())
            super().__init__("", name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:
            def put(part: bytes) -> int:
                super(File, self).xWrite(part, offset)
                return len(part)

            try:
                written = fault_injection.write_through(
                    f"write {self.what}", None, put, bytes(data)
                )
                if written != len(data):  # as SQLite's own does of a write that stays short
                    raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes fitted")
            except OSError as error:
                raise told(error) from error

        def xSync(self, flags: int) -> None:
            step("fsync", self.what, super().xSync, flags)

        def xTruncate(self, size: int) -> None:
            step("truncate", self.what, super().xTruncate, size)

    class FileSystem(apsw.VFS):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(_NAME, "")

        def xOpen(self, name: Any, flags: list[int]) -> object:
            return File(name, flags)

        def xDelete(self, name: str, sync: bool) -> None:
            step("unlink", _what(name), super().xDelete, name, sync)

    return FileSystem()


def _what(path: str | None) -> str:
    """Return what a file of SQLite's is: of the index, or of one being built."""
    if path is None:
        return "temporary"
    stem, _, suffix = Path(path).name.partition(".sqlite3")
    return f"{'new index' if stem.endswith('new') else 'index'}{suffix}"
