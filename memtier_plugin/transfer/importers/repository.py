"""Import what a repository knows of itself: its history, its notes to agents, its decisions.

git            a work tree of git: each of the newest commits on the current branch is an entry,
               with its message and the files that it touched.  A commit that takes another back
               makes a lesson besides, which is proposed as a fact.
project-notes  ``CLAUDE.md``, ``AGENTS.md``, ``GEMINI.md``, ``.cursorrules``, Cursor's rules,
               Copilot's instructions, and decision records (``docs/adr`` and the like); a folder,
               or one such file.  A note is a list item or a paragraph, under its nearest heading.

All of it is the repository's text, whoever wrote it: its origin is `external`.  A commit and a note
are runs of their own, named by the commit and by the note's text, so that another import adds only
what is new.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.formats import from_iso
from memtier_plugin.core.git import Repository
from memtier_plugin.core.records import Message
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.transfer.importers.memories import (
    is_regular_file,
    modified_at,
    note_session,
    read_note_file,
    split_notes,
)
from memtier_plugin.transfer.importers.reading import SkipCallback, in_time

NOTE_FILES: Final = (
    *("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md", "GEMINI.md"),
    *(".cursorrules", ".github/copilot-instructions.md"),
)
DECISION_FOLDERS: Final = (
    *("docs/adr", "docs/adrs", "docs/decisions", "docs/architecture/decisions"),
    *("doc/adr", "doc/architecture/decisions", "adr", "decisions"),
)
LESSONS: Final = "git-lessons"  # the kind of session that lessons belong to
_CURSOR_RULES: Final = ".cursor/rules"
_MOST_COMMITS: Final = 2_000  # the newest
_MOST_FILES: Final = 12  # of a commit that are named
_MOST_BODY: Final = 1_500  # characters of a message below its subject
_FIELD, _COMMIT = "\x1f", "\x1e"  # separate what git prints of a commit, and commits
_FORMAT: Final = _COMMIT + _FIELD.join(("%H", "%cI", "%an", "%s", "%b")) + _FIELD
_TRAILER: Final = re.compile(
    r"(?m)^[A-Z][a-z]+(?:-[A-Za-z]+)+: .*$\n?|^\(cherry picked from .*$\n?"
)
_REVERTS: Final = re.compile(r"This reverts commit ([0-9a-f]{7,40})[^\n]*\n?")
_QUOTED: Final = re.compile(r'Revert "(.*)"$')


class Commit(NamedTuple):
    """A commit as git prints it; ``body`` lacks trailers."""

    name: str
    when: datetime
    author: str
    subject: str
    body: str
    files: tuple[str, ...]


def read_git(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the commits of a work tree, oldest first, and the lessons of those taken back."""
    repository = Repository.of(path)
    if repository is None:
        raise ImportFileError(f"{path}: not a work tree of git, or git is not installed")
    label = repository.top.name
    for commit in in_time(_commits(repository, skip)):
        text = f"Commit {commit.name[:8]} by {commit.author}: {commit.subject}"
        if commit.body:
            text += f"\n{commit.body}"
        if commit.files:
            more = len(commit.files) - _MOST_FILES
            named = ", ".join(commit.files[:_MOST_FILES])
            text += f"\nTouched: {named}{f' and {more} more' if more > 0 else ''}"
        yield _session(f"git/{label}", commit.name, text, commit.when)
        if lesson := _lesson(commit):
            yield _session(f"{LESSONS}/{label}", commit.name, lesson, commit.when)


def _commits(repository: Repository, skip: SkipCallback) -> Iterator[Commit]:
    log = ("log", "--no-merges", f"-n{_MOST_COMMITS}", "--reverse", "--name-only", "--no-color")
    printed = repository.lines(*log, f"--format={_FORMAT}", end=_COMMIT.encode())
    for number, text in enumerate((*printed,)):
        readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        fields = readable.split(_FIELD)
        if not text.strip():
            continue
        try:
            name, when, author, subject, body, files = fields
            date = from_iso(when)
        except ValueError:
            skip(f"{repository.top}, commit {number}", f"not read: {readable[:60]!r}")
            continue
        body = _TRAILER.sub("", body).strip()[:_MOST_BODY]
        touched = tuple(file for file in files.split("\n") if file)
        yield Commit(name, date, author, subject, body, touched)


def _lesson(commit: Commit) -> str:
    """Return what a commit that takes another back teaches; empty for any other."""
    reverted = _REVERTS.search(commit.body)
    quoted = _QUOTED.match(commit.subject)
    if not (reverted or quoted):
        return ""
    what = quoted[1] if quoted else commit.subject
    why = " ".join(_REVERTS.sub("", commit.body).split())
    text = f'"{what}" was tried and taken back on {commit.when:%Y-%m-%d}'
    return f"{text}: {why}" if why else f"{text}."


def _session(name: str, key: str, text: str, when: datetime) -> Session:
    message = Message(role="user", content=text, origin="external", observed_at=when)
    turn = ImportedMessage(id=key, message=message, run_id=f"{name}:{key}")
    return Session(session_id=name, observed_at=when, turns=(turn,))


# -- notes -----------------------------------------------------------------------------------------


def find_note_files(folder: Path, skip: SkipCallback = lambda _location, _why: None) -> list[Path]:
    """Return the files of a folder that are notes to agents, or decision records."""
    files = [folder / name for name in NOTE_FILES]
    files += sorted((folder / _CURSOR_RULES).glob("*.mdc"))
    for name in DECISION_FOLDERS:
        files += sorted((folder / name).glob("*.md"))
    # On a case-insensitive file system one file has several names.
    kept = {file.resolve(): file for file in files if is_regular_file(file, skip)}
    top = folder.resolve()
    for resolved in [*kept]:
        if not resolved.is_relative_to(top):  # through a link to a folder elsewhere
            skip(str(kept.pop(resolved)), "outside of the folder")
    return [*kept.values()]


def is_note_file(path: Path) -> bool:
    """Return whether a file is one of those, by its name and folder."""
    if path.name in {Path(name).name for name in NOTE_FILES} or path.suffix == ".mdc":
        return True
    parent = path.parent.as_posix()
    return path.suffix == ".md" and any(
        parent == name or parent.endswith(f"/{name}") for name in DECISION_FOLDERS
    )


def read_project_notes(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the notes of a folder, or of one file, with the dates of their last changes."""
    folder = path if path.is_dir() else path.parent
    repository = Repository.of(folder)
    top = repository.top if repository else folder
    files = find_note_files(path, skip) if path.is_dir() else [path]
    for file in files:
        when = _changed_at(repository, file) or modified_at(file)
        resolved = file.resolve()
        within = resolved.is_relative_to(top)
        label = resolved.relative_to(top).as_posix() if within else file.name
        title = _title(file, skip) if _is_decision(file) else ""
        for note in split_notes(read_note_file(file, skip)):
            yield note_session("project-notes", label, _under(title, note), when)


def _is_decision(file: Path) -> bool:
    return file.suffix == ".md" and is_note_file(file) and file.name not in NOTE_FILES


def _title(file: Path, skip: SkipCallback) -> str:
    """Return the heading of a decision record, without which its parts say little."""
    lines = (line.strip() for line in read_note_file(file, skip).split("\n"))
    return next((line.lstrip("# ") for line in lines if line.startswith("# ")), file.stem)


def _under(title: str, note: str) -> str:
    if not title:
        return note
    heading, separator, body = note.partition("\n")
    if heading.startswith("#") and separator:
        return f"# {title}, {heading.lstrip('# ')}\n{body}"
    return f"# {title}\n{note}"


def _changed_at(repository: Repository | None, file: Path) -> datetime | None:
    """Return when a file was committed last; None if git does not follow it."""
    if repository is None:
        return None
    printed = repository.read("log", "-n1", "--format=%cI", "--", str(file.resolve()))
    return from_iso(printed.strip()).astimezone(UTC) if printed and printed.strip() else None
