"""Find what is there to import on the first day in a folder, by names, sizes and times alone.

No session is opened: whose sessions may be read, the user is asked first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.git import Repository
from memtier_plugin.transfer.importers.formats import FORMATS, find_session_files
from memtier_plugin.transfer.importers.repository import find_note_files

_NO_NAME: Final = re.compile(r"[^A-Za-z0-9]")  # what Claude Code writes as a dash
_MOST_ROOT: Final = 4096  # bytes of the file in which Gemini CLI names a folder
_MOST_LINE: Final = 65_536  # bytes of a first line


@dataclass(frozen=True, slots=True)
class ImportSource:
    """Something that could be imported, in files of one format.

    ``kept`` are the files or folders to read; ``items`` counts their sessions, commits or files.
    """

    form: str
    kept: tuple[Path, ...]
    items: int
    size: int
    first: datetime | None
    last: datetime | None

    def to_json(self) -> dict[str, Any]:
        """Return what a user is shown of it: no paths of single sessions, a day for each end."""
        days = [f"{day:%Y-%m-%d}" if day else None for day in (self.first, self.last)]
        counts = {"format": self.form, "items": self.items, "bytes": self.size}
        return {**counts, "first": days[0], "last": days[1]}


def find_sources(folder: Path) -> list[ImportSource]:
    """Return what can be imported for the project in a folder, in the order of its importing."""
    folder = folder.resolve()
    listed = [
        *_of_repository(folder),
        _of_files("project-notes", find_note_files(folder)),
        _of_files("claude-code", _session_files("claude-code", [_claude_folder(folder)])),
        _of_files("codex", _session_files("codex", [_top("CODEX_HOME", ".codex") / "sessions"])),
        _of_files("gemini", _session_files("gemini", _gemini_folders(folder))),
        _of_files("openclaw", _session_files("openclaw", _openclaw_folders(folder))),
    ]
    return [source for source in listed if source.items]


def is_of_folder(source: ImportSource, file: Path, folder: Path) -> bool:
    """Return whether a session was in a folder, where only the session itself says it: Codex.

    Read only once the user agreed.
    """
    if source.form != "codex":
        return True
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        with file.open("rb") as opened:
            head = json.loads(opened.readline(_MOST_LINE))
        where = Path(str(head["payload"]["cwd"]))
        return where == folder or folder in where.parents
    return False


def _of_repository(folder: Path) -> Iterator[ImportSource]:
    if not (folder / ".git").exists() or (repository := Repository.of(folder)) is None:
        return
    printed = repository.read("log", "--no-merges", "--format=%ct") or ""
    times = [datetime.fromtimestamp(int(line), UTC) for line in printed.split()]
    if times:
        yield ImportSource("git", (folder,), len(times), 0, min(times), max(times))


def _of_files(form: str, files: Sequence[Path]) -> ImportSource:
    states = [file.stat() for file in files]
    times = [datetime.fromtimestamp(int(state.st_mtime), UTC) for state in states]
    size = sum(state.st_size for state in states)
    first, last = (min(times), max(times)) if times else (None, None)
    return ImportSource(form, tuple(files), len(files), size, first, last)


def _session_files(form: str, folders: Sequence[Path]) -> list[Path]:
    there = [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]
    return [file for folder in there for file in find_session_files(folder, FORMATS[form])]


def _top(variable: str, name: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / name)


def _claude_folder(folder: Path) -> Path:
    projects = _top("CLAUDE_CONFIG_DIR", ".claude") / "projects"
    return projects / _NO_NAME.sub("-", str(folder))


def _gemini_folders(folder: Path) -> list[Path]:
    """Return the folders whose marker names this one, or that are named by its hash."""
    kept = []
    hashed = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()
    for each in sorted((_top("GEMINI_CLI_HOME", "") / ".gemini" / "tmp").glob("*")):
        root = ""
        with suppress(OSError, ValueError), (each / ".project_root").open("rb") as opened:
            root = opened.read(_MOST_ROOT).decode("utf-8").strip()
        if each.name == hashed or root == str(folder):
            kept.append(each / "chats")
    return kept


def _openclaw_folders(folder: Path) -> list[Path]:
    """Return the folders of OpenClaw's sessions, if this folder is in its own."""
    top = _top("OPENCLAW_STATE_DIR", ".openclaw").resolve()
    if folder != top and top not in folder.parents:
        return []
    return sorted((top / "agents").glob("*/sessions"))
