"""Read and write the JSON files by which programs are configured."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memtier_plugin.core.errors import LedgerWriteError, SettingsError
from memtier_plugin.core.paths import check_replaceable
from memtier_plugin.hosts.json_comments import edit_json, is_plain_json, parse_json


def read_text(path: Path) -> str | None:
    """Return a file's text with its line endings, None where there is none.

    Raises:
        SettingsError: it cannot be read, or is a device or a pipe.
    """
    try:
        check_replaceable(path)
        return path.read_bytes().decode("utf-8")  # keep its line endings
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, LedgerWriteError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error


def read_json(path: Path, by_hand: str) -> dict[str, Any]:
    """Return the object that a configuration holds, empty where there is none.

    Raises:
        SettingsError: it is no JSON, with or without comments; the message ends with ``by_hand``.
    """
    text = read_text(path)
    try:
        document = parse_json(text) if text and text.strip() else {}
    except ValueError as error:
        raise SettingsError(f"{path}: not JSON ({error}); mend it, {by_hand}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: expected an object")
    return document


def format_json(document: Mapping[str, Any], like: str | None) -> str:
    """Return a document as JSON, indented, and escaped, as the text that it replaces.

    Of a text with comments only what differs is changed.
    """
    indent: str | int | None = 2
    if like and like.strip():
        if not is_plain_json(like):
            return edit_json(like, document)
        line = re.search(r"\n([ \t]+)\S", like)
        indent = line[1] if line else None
    plain = json.dumps(document, indent=indent, ensure_ascii=not like or like.isascii())
    return plain + ("\n" if not like or like.endswith("\n") else "")


def open_section(config: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """Return a section of a configuration, made where there is none.

    Raises:
        SettingsError: something else has its name.
    """
    section = config.setdefault(name, {})
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: {name} is {section!r:.40}, expected an object")
    return section
