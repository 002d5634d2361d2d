"""The formats that can be imported, how each is read, and how a file's format is detected.

locomo       a LoCoMo file: samples with numbered, dated sessions between two people.  Both are
             people, so both speak as role `user`, told apart by `speaker`; an image's caption is
             appended as ``[image: caption]``.
longmemeval  a LongMemEval file: items, each with a haystack of dated chat sessions.
openai       JSON, or JSON Lines with a conversation a line: a list of chat messages, an object
             with `messages` (and optionally `id`, `created_at`), or a conversation of ChatGPT's.
openclaw     a session transcript (JSON Lines), or a captured `agent_end` payload.  Summaries made
             by compaction are skipped, as nobody said them.
chatgpt, claude, openclaw-memory, hermes-memory, mem0
             see `chat_exports` and `memories`; anything else in such a file is skipped
             and reported.
claude-code, codex, gemini
             see `coding_sessions`; a folder is read with all sessions in it, as of OpenClaw.
git, project-notes
             see `repository`.
text         lines ``Speaker: words``.  A line that is indented, or has no speaker, continues the
             message before it.  A heading ``# 2026-03-14 09:30`` (ISO, UTC unless it says
             otherwise) starts a session of that date; up to the first heading an empty line does.
             User, Human and Me speak as `user`, Assistant, AI and Bot as `assistant`, System as
             `system`; any other name is a person: role `user` with that speaker.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.ingest.messages import Session
from memtier_plugin.transfer.importers import (
    chat_exports,
    coding_sessions,
    memories,
    repository,
    transcripts,
)
from memtier_plugin.transfer.importers.chat_exports import CONVERSATIONS_STEM
from memtier_plugin.transfer.importers.memories import MEMORY_FILES, SECTION_SIGN
from memtier_plugin.transfer.importers.reading import (
    SkipCallback,
    read_items,
    read_text_lines,
    require_plain,
)


class Format(NamedTuple):
    """A format of conversations or memories.

    Attributes:
        read: yields the sessions of a file, and reports what is left out.
        keys: rows of keys; an item with all keys of a row is of this format.
        proposes: whether its notes are proposed as facts.
        files: which files of a folder have a session each.
        host: the host whose hooks may have recorded its sessions when they took place.
    """

    read: Callable[[Path, SkipCallback], Iterator[Session]]
    keys: tuple[str, ...] = ()
    proposes: bool = False
    files: tuple[str, ...] = ()
    host: str = ""


FORMATS: Final[Mapping[str, Format]] = {  # of an item that fits several, the first
    "chatgpt": Format(chat_exports.read_chatgpt, ("mapping",)),
    "claude": Format(chat_exports.read_claude, ("chat_messages",)),
    "longmemeval": Format(transcripts.read_longmemeval, ("haystack_sessions",)),
    "locomo": Format(transcripts.read_locomo, ("conversation sample_id",)),
    "mem0": Format(memories.read_mem0, ("memory id",), proposes=True),
    "claude-code": Format(
        coding_sessions.read_claude_code,
        ("sessionId type", "leafUuid type", "messageId snapshot type"),
        files=("**/*.jsonl",),
        host="claude-code",
    ),
    "codex": Format(
        coding_sessions.read_codex,
        ("payload timestamp type", "id instructions timestamp"),
        files=("**/rollout-*.jsonl",),
        host="codex",
    ),
    "gemini": Format(
        coding_sessions.read_gemini,
        ("projectHash sessionId",),
        files=("**/session-*.jsonl", "**/session-*.json"),
        host="gemini",
    ),
    "openclaw": Format(transcripts.read_openclaw, ("hook", "type"), files=("**/*.jsonl",)),
    "openai": Format(transcripts.read_openai, ("messages", "role")),
    "hermes-memory": Format(memories.read_hermes_memory, proposes=True),
    "openclaw-memory": Format(memories.read_openclaw_memory, proposes=True),
    "project-notes": Format(repository.read_project_notes, proposes=True),
    "git": Format(repository.read_git, proposes=True),
    "text": Format(transcripts.read_text),
}
EXPORT_KEY: Final = "memtier_export"  # key in the first line of MemTier's own exports
MEMTIER_FORMAT: Final = "memtier"  # the format of MemTier's own exports
_MAX_LINES: Final = 200  # lines
_MOST_TRIED: Final = 20  # files of a folder whose form is looked at
_TEXT: Final = re.compile(r"#+\s+\d{4}-\d\d-\d\d.*|[^\W\d_][\w .'\u2019-]{0,40}?\s*:\s+\S.*")


def read_transcript(
    path: Path, format: str, skip: SkipCallback = lambda _location, _why: None
) -> Iterator[Session]:
    """Yield the sessions of a file.

    Args:
        path: the file; for formats of several files, the folder or ZIP.
        format: one of `FORMATS`, described at the top of this module.
        skip: called with the location of what is left out, and the reason.

    Raises:
        ImportFileError: no such format; the file cannot be read or is not of that format.
    """
    if format not in FORMATS:
        names = ", ".join(sorted(FORMATS))
        raise ImportFileError(f"unknown format {format!r}; one of: {names}")
    empty = True
    for session in _read(path, FORMATS[format], skip):
        empty = False
        yield session
    if empty:
        raise ImportFileError(f"{path}: no messages in it that format {format!r} knows")


def _read(path: Path, form: Format, skip: SkipCallback) -> Iterator[Session]:
    """Yield the sessions of a file, or of each file of a folder; a broken one is reported."""
    if not (form.files and path.is_dir()):
        yield from form.read(path, skip)
        return
    for file in find_session_files(path, form):
        try:
            yield from form.read(file, skip)
        except ImportFileError as error:
            skip(str(file), str(error))


def find_session_files(folder: Path, form: Format) -> list[Path]:
    """Return the files of a folder that have a session each; none through a symlink."""
    files = {file for pattern in form.files for file in folder.glob(pattern)}
    return sorted(file for file in files if file.is_file() and not file.is_symlink())


def detect_format(path: Path) -> str:
    """Detect the format of a file, folder or ZIP; return its name.

    Raises:
        ImportFileError: no format matches, or the file cannot be read.
    """
    require_plain(path)
    if path.is_dir():
        format_name = _detect_folder(path)
    elif repository.is_note_file(path):
        format_name = "project-notes"
    elif path.suffix == ".md":
        format_name = _detect_markdown(path)
    else:
        format_name = _detect_items(path) or _detect_text(path)
    if format_name is None:
        raise ImportFileError(
            f"{path}: cannot detect the format; name it with --format, "
            "which `memtier import --help` lists"
        )
    return format_name


def _detect_folder(path: Path) -> str | None:
    if any(path.glob(f"{CONVERSATIONS_STEM}*.json")):
        return _detect_items(path)
    if (path / "memories").is_dir():
        return "hermes-memory"
    files = [file for name in MEMORY_FILES if (file := path / name).is_file()]
    if any(_detect_markdown(file) == "hermes-memory" for file in files) or (
        files and path.name == "memories"
    ):
        return "hermes-memory"
    if files or (path / "memory").is_dir() or any(path.glob("????-??-??*.md")):
        return "openclaw-memory"
    if (path / ".git").exists():
        return "git"
    if repository.find_note_files(path):
        return "project-notes"
    sessions = (file for file in path.rglob("*.json*") if file.is_file() and not file.is_symlink())
    names = (_detect_items(file) for file in islice(sessions, _MOST_TRIED))
    return next((name for name in names if name and name in FORMATS and FORMATS[name].files), None)


def _detect_markdown(path: Path) -> str | None:
    for number, line in read_text_lines(path):
        if line.strip() == SECTION_SIGN:
            return "hermes-memory"
        if number > _MAX_LINES:
            break
    if path.name in MEMORY_FILES and path.parent.name == "memories":
        return "hermes-memory"
    if path.name in MEMORY_FILES or path.parent.name == "memory" or path.name[:4].isdigit():
        return "openclaw-memory"
    return _detect_text(path)


def _detect_items(path: Path) -> str | None:
    try:
        several = path.is_dir() or zipfile.is_zipfile(path)
        with closing(read_items(path, CONVERSATIONS_STEM if several else "")) as items:
            _, first = next(items, ("", None))
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read: {error.strerror}") from error
    except ImportFileError:
        if path.is_dir() or zipfile.is_zipfile(path):
            raise
        return None  # plain text
    while isinstance(first, list) and first:  # an item may be a list of messages
        first = first[0]
    if isinstance(first, Mapping) and isinstance(first.get("results"), list):
        return "mem0"
    return _detect_keys(first)


def _detect_keys(item: Any) -> str | None:
    if not isinstance(item, Mapping):
        return None
    if EXPORT_KEY in item:
        return MEMTIER_FORMAT
    for name, form in FORMATS.items():
        if any(item.keys() >= {*row.split()} for row in form.keys):
            return name
    return None


def _detect_text(path: Path) -> str | None:
    for _, line in read_text_lines(path):
        if line.strip():
            return "text" if _TEXT.fullmatch(line.strip()) else None
    return None
