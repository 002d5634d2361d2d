"""Read exports for the importers: large files and ZIPs item by item, within a time limit."""

from __future__ import annotations

import io
import json
import math
import stat
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final, TypeVar

from memtier_plugin.core.errors import ImportFileError, ImportStopped
from memtier_plugin.core.formats import from_iso

# -- Limit the time of an import: it stops before recording, or between sessions

DEFAULT_MINUTES: Final = 60.0
_EVERY: Final = 1000  # lines or messages of a session, between two checks of the clock

T = TypeVar("T")


class TimeLimit:
    """The time limit of an import, starting now.

    Args:
        minutes: 0 for no limit.
        clock: a monotonic clock, in seconds [`time.monotonic`].
    """

    def __init__(self, minutes: float, clock: Callable[[], float] | None = None) -> None:
        self._minutes = minutes
        self._clock = clock or monotonic
        self._end = self._clock() + 60 * minutes if minutes else math.inf

    def read(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the sessions of a file that is checked before anything is recorded.

        Reading a session is under the same limit; see `in_time`.

        Raises:
            ImportStopped: the time limit was reached.
        """
        token = _at_hand.set(self)
        try:
            for item in items:
                self.check_unrecorded()
                yield item
        finally:
            _at_hand.reset(token)

    def check_unrecorded(self) -> None:
        """Stop an import that has recorded nothing yet, once its time is up.

        Raises:
            ImportStopped: the time limit was reached.
        """
        if self._clock() > self._end:
            raise ImportStopped(
                f"stopped after {self._minutes:g} min, before the file was read through; "
                f"nothing was recorded. {self._more_time()}"
            )

    def check(self, recorded: int) -> None:
        """Stop an import between two sessions, once its time is up.

        Args:
            recorded: how many new messages it has recorded.

        Raises:
            ImportStopped: the time limit was reached.
        """
        if self._clock() <= self._end:
            return
        if recorded:
            then = f"{recorded} new messages are recorded; the same command goes on from there"
        else:
            then = f"no new message was reached. {self._more_time()}"
        raise ImportStopped(f"stopped after {self._minutes:g} min: {then}")

    def _more_time(self) -> str:
        return f"Give it longer: `--minutes {2 * self._minutes:g}`, or 0 for no limit"


_at_hand: Final[ContextVar[TimeLimit | None]] = ContextVar("memtier_import", default=None)


def in_time(items: Iterable[T]) -> Iterator[T]:
    """Yield the lines or messages of a session until the current import's time is up.

    Raises:
        ImportStopped: the time limit was reached.
    """
    for number, item in enumerate(items, start=1):
        if number % _EVERY == 0 and (limit := _at_hand.get()):
            limit.check_unrecorded()
        yield item


# -- Read large exports: a JSON list item by item, from a file, a ZIP or a folder
#
# Nothing from a ZIP is written to disk.  Every function raises ImportFileError, which names the
# file and the location in it.

# Called with the location of each skipped item, and the reason.
SkipCallback = Callable[[str, str], None]

# Characters of one item; far more than any real conversation.
MAX_ITEM_CHARS: Final = 32 * 1024 * 1024
# Limits of a ZIP: its files, its unpacked bytes, and the ratio above which it cannot be text.
MAX_FILES: Final = 10_000
MAX_BYTES: Final = 4 * 1024**3
_FREE_BYTES: Final = 8 * 1024**2
_MOST_SHRUNK: Final = 100
_CHUNK: Final = 1024 * 1024
_FILE_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # unsupported compression
    RuntimeError,  # encrypted
    OSError,
)


def read_items(path: Path, stem: str) -> Generator[tuple[str, Any]]:
    """Yield the items of a file, or of ``<stem>*.json`` in a ZIP or folder, with locations.

    Raises:
        ImportFileError: something cannot be read, or is not JSON.
    """
    for location, text in open_texts(path, stem):
        with text:
            yield from _parse_items(text, location)


def open_texts(path: Path, stem: str) -> Iterator[tuple[str, IO[str]]]:
    """Yield the opened text files of an export, with their locations."""
    if path.is_dir():
        files = sorted(file for file in path.glob(f"{stem}*.json") if file.is_file())
        if not files:
            raise ImportFileError(f"{path}: no file {stem}*.json in this folder")
        for file in files:
            yield from open_texts(file, stem)
        return
    require_plain(path)
    with _import_errors(path):
        if not zipfile.is_zipfile(path):
            yield str(path), path.open("r", encoding="utf-8-sig")
            return
    with _import_errors(path), zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if _is_named(name, stem))
        if not names:
            raise ImportFileError(f"{path}: no file {stem}*.json in this ZIP")
        _check_size(path, [archive.getinfo(name) for name in names])
        for name in names:
            yield f"{path}:{name}", io.TextIOWrapper(archive.open(name), encoding="utf-8-sig")


def read_json_lines(path: Path, skip: SkipCallback) -> Iterator[tuple[str, Any]]:
    """Yield the values of a JSON Lines file with their locations; invalid lines are skipped.

    Raises:
        ImportFileError: the file cannot be read.
    """
    require_plain(path)
    with _import_errors(path), path.open("rb") as file:
        for number, raw in enumerate(in_time(file), start=1):
            location = f"{path}:{number}"
            if not raw.strip():
                continue
            try:
                yield location, json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                skip(location, f"not UTF-8: {error.reason} at byte {error.start}")
            except json.JSONDecodeError as error:
                skip(location, f"not JSON at column {error.colno}: {error.msg}")
            except RecursionError:
                skip(location, "JSON nested too deeply")


def require_plain(path: Path) -> None:
    """Refuse anything but a plain file or a folder: reading a pipe would block.

    Raises:
        ImportFileError: it is neither.
    """
    with _import_errors(path):
        mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ImportFileError(f"{path}: not a plain file; save the data to one first")


def _check_size(path: Path, files: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse a ZIP that unpacks to more than any export has."""
    size, packed = sum(f.file_size for f in files), sum(f.compress_size for f in files)
    if len(files) > MAX_FILES:
        raise ImportFileError(f"{path}: {len(files)} files, at most {MAX_FILES} are read")
    if size > MAX_BYTES or size > max(_FREE_BYTES, _MOST_SHRUNK * packed):
        raise ImportFileError(
            f"{path}: it unpacks from {packed} to {size} bytes, which no export does; "
            "unpack it yourself, and import the folder, if you trust it"
        )


def _is_named(name: str, stem: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(stem) and last.endswith(".json") and "__MACOSX" not in name


@contextmanager
def _import_errors(location: object) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{location}: expected UTF-8 text: {error.reason}") from error
    except _FILE_ERRORS as error:
        why = getattr(error, "strerror", None) or error
        raise ImportFileError(f"{location}: cannot be read: {why}") from error


def _parse_items(text: IO[str], location: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a JSON list, or a single value that is not a list."""
    decode = json.JSONDecoder().raw_decode
    with _import_errors(location):
        buffer = text.read(_CHUNK).lstrip()
    listed = buffer.startswith("[")
    at, line, number, ended = int(listed), 1, 0, False
    while True:
        while at < len(buffer) and buffer[at] in " \t\r\n,":
            at += 1
        if listed and buffer[at : at + 1] == "]":
            return
        here = f"{location}, item {number}" if listed else location
        try:
            value, end = decode(buffer, at)
            # A value at the end of the buffer may be cut off, such as a number.
            complete = end < len(buffer) or ended
        except json.JSONDecodeError as error:
            if ended:
                raise ImportFileError(
                    f"{here}: not JSON at line {line + buffer.count(chr(10), 0, error.pos)}: "
                    f"{error.msg}"
                ) from None
            complete = False
        except RecursionError:
            raise ImportFileError(f"{here}: JSON nested too deeply") from None
        if complete:
            yield here, value
            if not listed:
                return
            at, number = end, number + 1
            continue
        if len(buffer) - at > MAX_ITEM_CHARS:
            raise ImportFileError(
                f"{here}: more than {MAX_ITEM_CHARS} characters; items that large are not read"
            )
        line += buffer.count("\n", 0, at)
        with _import_errors(location):
            more = text.read(max(_CHUNK, len(buffer) - at))
        buffer, at, ended = buffer[at:] + more, 0, not more


# -- Read files and typed fields for the importers
#
# Every function raises ImportFileError, which names the file, the location and what was expected.

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
