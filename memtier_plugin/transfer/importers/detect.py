"""Detect the format of a file, folder or ZIP to import."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.transfer.importers.chat_exports import CONVERSATIONS_STEM
from memtier_plugin.transfer.importers.memories import MEMORY_FILES, SECTION_SIGN
from memtier_plugin.transfer.importers.reading import read_items, read_text_lines, require_plain

EXPORT_KEY: Final = "memtier_export"  # key in the first line of MemTier's own exports
MEMTIER_FORMAT: Final = "memtier"  # the format of MemTier's own exports
_MAX_LINES: Final = 200  # lines
_TEXT: Final = re.compile(r"#+\s+\d{4}-\d\d-\d\d.*|[^\W\d_][\w .'\u2019-]{0,40}?\s*:\s+\S.*")
# The format of an item that has all of these keys; the first match wins.
_KEYS: Final = (
    (MEMTIER_FORMAT, {EXPORT_KEY}),
    ("chatgpt", {"mapping"}),
    ("claude", {"chat_messages"}),
    ("longmemeval", {"haystack_sessions"}),
    ("locomo", {"conversation", "sample_id"}),
    ("mem0", {"memory", "id"}),
    ("openclaw", {"hook"}),
    ("openclaw", {"type"}),
    ("openai", {"messages"}),
    ("openai", {"role"}),
)


def detect_format(path: Path) -> str:
    """Detect the format of a file, folder or ZIP; return its name.

    Raises:
        ImportFileError: no format matches, or the file cannot be read.
    """
    require_plain(path)
    format_name = None
    if path.is_dir():
        format_name = _detect_folder(path)
    elif path.suffix == ".md":
        format_name = _detect_markdown(path)
    else:
        format_name = _detect_items(path) or _detect_text(path)
    if format_name is None:
        raise ImportFileError(f"{path}: cannot detect the format; name it with --format")
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
    return None


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


def _detect_keys(first: Any) -> str | None:
    keys = first.keys() if isinstance(first, Mapping) else frozenset()
    return next((name for name, required in _KEYS if required <= keys), None)


def _detect_text(path: Path) -> str | None:
    for _, line in read_text_lines(path):
        if line.strip():
            return "text" if _TEXT.fullmatch(line.strip()) else None
    return None
