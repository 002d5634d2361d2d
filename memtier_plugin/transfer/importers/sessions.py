"""Read files and typed fields for the importers.

Every function raises ImportFileError, which names the file, the location and what was expected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.times import from_iso
from memtier_plugin.transfer.importers.files import require_plain
from memtier_plugin.transfer.importers.time_limit import in_time

T = TypeVar("T")

_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    list: "a list",
    dict: "an object",
    int: "a whole number",
}


def load_json(path: Path) -> Any:
    """Read a whole JSON file.

    Raises:
        ImportFileError: the file cannot be read, or is not JSON.
    """
    return _parse_json("".join(line for _, line in read_text_lines(path)), str(path))


def require_field(record: Any, name: str, kind: type[T], location: str) -> T:
    """Return a required field of a given type.

    Raises:
        ImportFileError: the field is missing or has another type.
    """
    if not isinstance(record, dict):
        raise ImportFileError(f"{location}: expected an object with {name!r}, found {record!r:.60}")
    value = record.get(name)
    if not isinstance(value, kind):
        expected = _TYPE_NAMES[kind]
        raise ImportFileError(
            f"{location}: expected {name!r} to be {expected}, found {value!r:.60}"
        )
    return value


def as_object(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    """Return a text, or an empty one for any other value."""
    return value if isinstance(value, str) else ""


def parse_date(text: str, pattern: str, location: str) -> datetime:
    """Parse a date in UTC by a strptime pattern.

    Raises:
        ImportFileError: the text does not fit the pattern.
    """
    try:
        return datetime.strptime(text, pattern).replace(tzinfo=UTC)
    except ValueError:
        raise ImportFileError(
            f"{location}: expected a date as {pattern!r}, found {text!r:.60}"
        ) from None


def parse_timestamp(value: Any, location: str) -> datetime | None:
    """Parse ISO text, or seconds or milliseconds since 1970; None stays None."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return from_iso(value.strip())
        seconds = float(value)
        # 1e11 seconds is in the year 5138, 1e11 milliseconds in 1973: larger ones are milliseconds.
        return datetime.fromtimestamp(seconds / 1000 if seconds > 1e11 else seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ImportFileError(
            f"{location}: expected an ISO time such as 2026-03-14T09:30, or seconds since 1970, "
            f"found {value!r:.60}"
        ) from None


def read_documents(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of a file with their locations: a single value, or one per line."""
    filled = ((number, line) for number, line in read_text_lines(path) if line.strip())
    number, first = next(filled, (1, ""))
    try:
        document = json.loads(first)
    except (ValueError, RecursionError):
        yield str(path), load_json(path)
        return
    yield f"{path}:{number}", document
    for number, line in filled:
        yield f"{path}:{number}", _parse_json(line, f"{path}:{number}")


def read_text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file with their numbers."""
    require_plain(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(in_time(file), start=1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise ImportFileError(
                        f"{path}:{number}: expected UTF-8 text: {error.reason} "
                        f"at byte {error.start}"
                    ) from None
                yield number, text
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read: {error.strerror}") from error


def _parse_json(text: str, location: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ImportFileError(
            f"{location}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise ImportFileError(f"{location}: JSON nested too deeply") from None
