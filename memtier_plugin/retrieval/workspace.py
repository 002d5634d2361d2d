"""Mark the lines of a block that name code which its workspace no longer has.

What git knows is read in the background, when a session starts and after a run, and kept in this
process.  A recall looks names up in it, and whether a file that should be gone is there again: it
never waits for git.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.git import Repository
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.code_history import CodeHistory, HistoryReader, NameChange
from memtier_plugin.text.code_names import CodeName, find_code_names

_MOST_MARKS: Final = 3  # of a line
_MOST_SECONDS: Final = 0.004  # of CPU time of a recall that may go into marks
_MOST_WORKSPACES: Final = 8  # of a process
# Files of instructions that hosts put before their agent, whole and without MemTier.
_INSTRUCTIONS: Final = ("CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md", "GEMINI.md")
# What a note may quote of a repository: a name, not a sentence that somebody made one of.
_PLAIN: Final = regex.compile(r"[\w@.][\w@./:+-]*(?: [\w@./:+-]+){0,2}")
_MOST_CHARS: Final = 120  # of such a name


class Workspace:
    """What is known of the code in one folder.  Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader: HistoryReader | None = None
        self._reading = threading.Lock()

    def refresh(self) -> None:
        """Read what git knows; another thread's reading is not repeated."""
        if self._reading.acquire(blocking=False):
            try:
                repository = Repository.of(self.folder)
                if repository is None:
                    self._reader = None
                    return
                reader = self._reader
                if reader is None or reader.repository != repository:
                    reader = HistoryReader(repository)
                reader.read()
                self._reader = reader
            finally:
                self._reading.release()

    def refresh_soon(self) -> None:
        """Do so in the background."""
        threading.Thread(target=self.refresh, name="memtier-workspace", daemon=True).start()

    def instructions(self) -> str:
        """Return the name of the file that instructs agents here; empty if there is none."""
        names = (name for name in _INSTRUCTIONS if (self.folder / name).is_file())
        return next(names, "")

    def marker(self) -> Marker | None:
        """Return what marks the lines of one recall; None as long as nothing is known."""
        reader = self._reader
        history = reader and reader.history
        return Marker(reader.repository.top, history) if reader and history else None


class Marker:
    """Marks the lines of one recall."""

    def __init__(self, top: Path, history: CodeHistory) -> None:
        self._top = top
        self._history = history
        self._left = _MOST_SECONDS

    def mark(self, hit: Hit, text: str) -> Hit:
        """Return a hit with a note on what of the shown text is gone, or has another name now."""
        if self._left <= 0:
            return hit
        started = time.thread_time()
        note = "; ".join(self.notes(text))
        self._left -= time.thread_time() - started
        return hit.with_note(note) if note else hit

    def notes(self, text: str) -> list[str]:
        """Return what is to be noted of the names in a text."""
        changes: dict[tuple[str, str], tuple[str, NameChange]] = {}
        text = text.replace(f"{self._top}/", "")
        for name in find_code_names(text, self._history.symbols):
            known = self._look_up(name)
            if known is None or (known[1].now and known[1].now in text):
                continue
            key, written = (name.kind, known[0]), name.written
            if key not in changes or len(changes[key][0]) < len(written):
                changes[key] = written, known[1]
        notes = [_note(written, change) for written, change in changes.values()]
        return [*filter(None, notes)][:_MOST_MARKS]

    def _look_up(self, name: CodeName) -> tuple[str, NameChange] | None:
        """Return what a name stands for, and what became of that; None if it is there, or unknown.

        Only what the history had is known.
        """
        history = self._history
        if name.kind == "path":
            return self._find_path(name)
        if name.kind == "version":
            return self._find_version(name)
        if name.kind == "command":
            kind = "target" if name.detail in ("make", "just") else "script"
            since = history.commands.get((kind, name.name))
        else:
            gone = history.symbols if name.kind == "symbol" else history.branches
            since = gone.get(name.name)
        return None if since is None else (name.name, NameChange(since))

    def _find_path(self, name: CodeName) -> tuple[str, NameChange] | None:
        last, ending = name.name.rpartition("/")[2], f"/{name.name}"

        def is_meant(path: str) -> bool:
            return path == name.name or path.endswith(ending)

        if any(map(is_meant, self._history.now.get(last, ()))):
            return None
        past = [each for each in self._history.then.get(last, ()) if is_meant(each[0])]
        past = [each for each in past if name.detail or not each[1].is_folder]
        past = [each for each in past if each[0] == name.name] or past
        if not past or len({change.now for _, change in past}) > 1:
            return None  # nothing, or nobody knows which
        if any(self._exists(path) for path, _ in past):
            return None
        path, change = past[-1]
        lost_again = change.now and not self._exists(change.now)
        return path, NameChange(change.since) if lost_again else change

    def _exists(self, path: str) -> bool:
        """Return whether a path of the history is in the work tree at this moment."""
        return os.path.lexists(f"{self._top}/{path}")

    def _find_version(self, name: CodeName) -> tuple[str, NameChange] | None:
        package = self._history.dependencies.get(name.name.lower())
        if package is None or any(_is_of(version, name.detail) for version in package.now):
            return None
        lost = [commit for version, commit in package.lost.items() if _is_of(version, name.detail)]
        if not lost or len(package.now) > 1:
            return None
        return name.written, NameChange(lost[0], next(iter(package.now), ""))


def _is_of(version: str, mentioned: str) -> bool:
    """Return whether a version is meant by another, which may leave its last parts out."""
    return f"{version}.".startswith(f"{mentioned}.")


def _note(written: str, change: NameChange) -> str:
    """Return what is said of a name; nothing of one that could be a sentence."""
    for name in (written, change.now):
        if len(name) > _MOST_CHARS or (name and not _PLAIN.fullmatch(name)):
            return ""
    if change.now:
        return f"{written} is now {change.now}"
    return f"{written} is gone since {change.since}" if change.since else f"{written} is gone"


# -- the workspaces of this process ----------------------------------------------------------------

_workspaces: Final[dict[Path, Workspace]] = {}
os.register_at_fork(after_in_child=_workspaces.clear)  # a thread that read is not in the child


def find_workspace(folder: Path | None) -> Workspace | None:
    """Return what is known of a folder, shared by all memories of this process."""
    if folder is None:
        return None
    known = _workspaces.get(folder) or _workspaces.setdefault(folder, Workspace(folder))
    for oldest in [*_workspaces][:-_MOST_WORKSPACES]:
        _workspaces.pop(oldest, None)
    return known
