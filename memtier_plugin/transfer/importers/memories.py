"""Import memories of other tools: OpenClaw's and Hermes' files, and mem0's exports."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.records import Entry, FactDraft, Message
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.memory import MemTier
from memtier_plugin.transfer.importers.reading import (
    SkipCallback,
    parse_timestamp,
    read_items,
    read_json_lines,
)

# -- Read agents' memory files: OpenClaw's Markdown, Hermes' notes between section signs
#
# Their author is unknown, so their origin is `external` and facts found in them wait for review.
# Each note is a run of its own, named by a hash of its text, so that importing an edited file again
# adds only what is new.
#
# openclaw-memory   ``MEMORY.md``, ``USER.md`` and ``memory/*.md`` of a workspace, or one such file.
#                   A note is a list item with its indented lines, or a paragraph, under its nearest
#                   heading; a file named after a day was observed on that day.
# hermes-memory     ``memories/MEMORY.md`` and ``USER.md`` of a Hermes home, or one such file.

MEMORY_FILES: Final = ("MEMORY.md", "memory.md", "USER.md")
SECTION_SIGN: Final = "\u00a7"  # alone on a line, it separates two notes of Hermes
_MAX_BYTES: Final = 16 * 1024 * 1024  # bytes of one file
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d(?!\d)")
_HEADING: Final = re.compile(r"(#{1,6})\s+(.*\S)\s*")
_BULLET: Final = re.compile(r"(?:[-*+]|\d+[.)])\s+(?=\S)")
_RULE: Final = re.compile(r"(?:-{3,}|\*{3,}|_{3,})\s*")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)


def read_openclaw_memory(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the notes of an OpenClaw workspace, or of one of its memory files."""
    for label, file in _find_openclaw_files(path, skip):
        text = read_note_file(file, skip)
        when = _parse_day(file.name) or modified_at(file)
        text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
        for note in split_notes(text):
            yield note_session("openclaw-memory", label, note, when)


def read_hermes_memory(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the notes of a Hermes home, of its `memories` folder, or of one file."""
    folder = path / "memories" if (path / "memories").is_dir() else path
    files = [folder / name for name in MEMORY_FILES if (folder / name).exists()]
    for file in files if folder.is_dir() else [folder]:
        if not is_regular_file(file, skip):
            continue
        when = modified_at(file)
        for note in re.split(
            rf"^[ \t]*{SECTION_SIGN}[ \t]*$", read_note_file(file, skip), flags=re.MULTILINE
        ):
            if note.strip():
                yield note_session("hermes-memory", file.name, note.strip(), when)


def _find_openclaw_files(path: Path, skip: SkipCallback) -> Iterator[tuple[str, Path]]:
    if path.is_dir():
        # On a case-insensitive file system MEMORY.md and memory.md are one file.
        by_path = {file.resolve(): file for n in MEMORY_FILES if (file := path / n).exists()}
        files = [*by_path.values(), *sorted((path / "memory").rglob("*.md"))]
        files = files or sorted(path.glob("*.md"))  # the folder `memory` itself
        top = path.parent if path.name == "memory" else path
    else:
        files, top = [path], path.parent.parent if path.parent.name == "memory" else path.parent
    for file in files:
        if is_regular_file(file, skip):
            yield file.relative_to(top).as_posix(), file


def is_regular_file(file: Path, skip: SkipCallback) -> bool:
    """Return whether a path is a regular file; symlinks are skipped, as they may point anywhere."""
    if file.is_symlink():
        skip(str(file), "a symlink is not followed")
        return False
    return file.is_file()


def read_note_file(file: Path, skip: SkipCallback) -> str:
    """Return a memory file's text; a line that is not UTF-8 is left out and reported.

    Raises:
        ImportFileError: it cannot be read, or is too large.
    """
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ImportFileError(
                f"{file}: more than {_MAX_BYTES} bytes, too large for a memory file"
            )
        data = file.read_bytes()
    except OSError as error:
        raise ImportFileError(f"{file}: cannot be read: {error.strerror}") from error
    lines = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            lines.append(raw.decode("utf-8").rstrip("\r"))
        except UnicodeDecodeError as error:
            skip(f"{file}:{number}", f"not UTF-8: {error.reason} at byte {error.start}")
            lines.append("")
    return "\n".join(lines)


def split_notes(text: str) -> Iterator[str]:
    """Yield list items and paragraphs, each with its heading."""
    lines = text.split("\n")
    if lines[0].strip() == "---" and "---" in (line.strip() for line in lines[1:]):
        end = next(i for i, line in enumerate(lines[1:], 1) if line.strip() == "---")
        lines = lines[end + 1 :]  # the front matter
    heading, block, fenced = "", list[str](), False

    def done() -> Iterator[str]:
        note = "\n".join(block).strip()
        block.clear()
        if note:
            yield f"{heading}\n{note}" if heading else note

    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
            block.append(line)
        elif fenced:
            block.append(line)
        elif title := _HEADING.fullmatch(line):
            yield from done()
            heading = line.strip() if len(title[1]) > 1 else ""  # not a title
        elif not line.strip() or _RULE.fullmatch(line):
            yield from done()
        elif bullet := _BULLET.match(line):
            yield from done()
            block.append(line[bullet.end() :])
        else:
            block.append(line.strip() if block else line)
    yield from done()


def note_session(kind: str, label: str, note: str, when: datetime) -> Session:
    """Return a note as a session of its own run, named by a hash of its text."""
    digest = hashlib.blake2b(note.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    message = Message(role="user", content=note, origin="external", observed_at=when)
    name = f"{kind}/{label}"
    turn = ImportedMessage(id=digest, message=message, run_id=f"{name}:{digest}")
    return Session(session_id=name, observed_at=when, turns=(turn,))


def _parse_day(name: str) -> datetime | None:
    day = _DAY.match(name)
    try:
        # Noon: the same day in nearly every zone.
        return datetime.fromisoformat(f"{day[0]}T12:00:00+00:00") if day else None
    except ValueError:
        return None


def modified_at(file: Path) -> datetime:
    """Return when a file was written last."""
    return datetime.fromtimestamp(int(file.stat().st_mtime), UTC)


# -- Read memories exported from mem0: a list, an object with `results`, or one memory per line
#
# A model derived them from users' words, so their origin is `external`.  Each is a run of its own,
# named by its id, so that a later import adds only what mem0 changed.  If a file has memories of
# several users, each user's memories are recalled for that sender alone.


def read_mem0(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield each memory of a mem0 export."""
    memories = [
        (location, record)
        for location, record in _records(path, skip)
        if _is_memory(record, location, skip)
    ]
    several = len({record.get("user_id") for _, record in memories}) > 1
    for location, record in memories:
        try:
            session = _mem0_session(record, location, several)
        except ImportFileError as error:
            skip(location, str(error))
            continue
        yield session


def _records(path: Path, skip: SkipCallback) -> Iterator[tuple[str, Any]]:
    if path.suffix in (".jsonl", ".ndjson"):
        yield from read_json_lines(path, skip)
        return
    for location, record in read_items(path, ""):
        results = record.get("results") if isinstance(record, dict) else None
        if isinstance(results, list):
            for number, result in enumerate(results):
                yield f"{location}, result {number}", result
        else:
            yield location, record


def _is_memory(record: Any, location: str, skip: SkipCallback) -> bool:
    if not isinstance(record, dict):
        skip(location, f"not a memory: {record!r:.60}")
    elif not isinstance(record.get("id"), str) or not record["id"]:
        skip(location, "it has no `id`")
    elif not isinstance(record.get("memory"), str) or not record["memory"].strip():
        skip(location, f"memory {record['id']}: it has no text in `memory`")
    else:
        return True
    return False


def _mem0_session(record: dict[str, Any], location: str, several: bool) -> Session:
    when = parse_timestamp(record.get("updated_at") or record.get("created_at"), location)
    user = record.get("user_id")
    owner = next(
        (v for n in ("user_id", "agent_id", "app_id") if isinstance(v := record.get(n), str) and v),
        "all",
    )
    message = Message(role="user", content=record["memory"], origin="external", observed_at=when)
    return Session(
        session_id=f"mem0/{owner}",
        observed_at=when,
        turns=(ImportedMessage(id=record["id"], message=message, run_id=f"mem0:{record['id']}"),),
        sender=user if several and isinstance(user, str) and user else None,
    )


# -- Propose the notes of imported memory files as facts
#
# Their author is unknown, so all of them wait for `memtier review`.  Daily notes and commits report
# events and stay entries.

_MAX_CHARS: Final = 500  # characters; a longer note is not a single fact
_EVENTS: Final = re.compile(r"openclaw-memory/memory/|git/")


def propose_facts(memory: MemTier, entries: Iterable[Entry]) -> int:
    """Propose the notes among new entries as facts; return how many wait for review.

    Raises:
        LedgerError, IndexProblem: nothing was proposed; the entries stay.
    """
    drafts = [_draft_fact(entry) for entry in entries if _is_fact(entry)]
    return len(memory.add_facts(drafts)) if drafts else 0


def _is_fact(entry: Entry) -> bool:
    is_note = entry.origin == "external" and not _EVENTS.match(entry.session_id)
    return is_note and len(entry.content) <= _MAX_CHARS


def _draft_fact(entry: Entry) -> FactDraft:
    heading, _, body = entry.content.partition("\n")
    headed = heading.startswith("#") and bool(body)
    note = body if headed else entry.content
    text = " ".join(note.split())
    return FactDraft(
        subject=heading.lstrip("# ") if headed else "memory",
        relation="noted",
        value=text,
        text=f"{heading.lstrip('# ')}: {text}" if headed else text,
        sources=(entry.source,),
        quote=note,
        span=(len(entry.content) - len(note), len(entry.content)),
        valid_from=entry.observed_at,
        extractor="import",
        confidence=0.5,
        origin="external",
        status="proposed",
        reason=f"imported from {entry.session_id}",
    )
