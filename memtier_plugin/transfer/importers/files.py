"""Read large exports: a JSON list item by item, from a file, a ZIP or a folder.

Nothing from a ZIP is written to disk.  Every function raises ImportFileError, which names the file
and the location in it.
"""

from __future__ import annotations

import io
import json
import stat
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.transfer.importers.time_limit import in_time

# Called with the location of something that is left out, and the reason.
SkipCallback = Callable[[str, str], None]

# Characters of one item; far more than any real conversation.
MAX_ITEM_CHARS: Final = 32 * 1024 * 1024
# A ZIP may hold so many files, and so many bytes: as a whole, and where it shrank them too well to
# be text.
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
    """Refuse what is neither a plain file nor a folder: a pipe would be waited for.

    Raises:
        ImportFileError: with what it is not.
    """
    with _import_errors(path):
        mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ImportFileError(f"{path}: not a plain file; write what is to be imported into one")


def _check_size(path: Path, files: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse a ZIP that would unpack to more than any export is."""
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
            # A value at the end of the buffer may continue, as a number does.
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
