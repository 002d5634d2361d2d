"""Bring a machine into a shared project by a copy of another machine's files, and out of it.

A snapshot has the day files up to their marks and the index of them: nothing is read, embedded or
indexed anew.  What waits for the server, settings, and the state of a machine are not in it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import BackupError, IndexProblem, LedgerError
from memtier_plugin.core.files import hold_lock, pass_point, sync_folders, write_private_file
from memtier_plugin.core.formats import new_id, parse_json_text
from memtier_plugin.core.paths import (
    LEDGERS,
    PROJECT_JOURNAL,
    RESTORING,
    SHARED_FOLDER,
    SHARED_NOTE,
    ProjectFolder,
    index_path,
    make_ledger_folder,
    make_private_folder,
    owner_folder_name,
)
from memtier_plugin.storage.home_files import remove_abandoned_restores
from memtier_plugin.storage.index.connection import connect, index_problem
from memtier_plugin.storage.index.postings import follow_plugins
from memtier_plugin.storage.index.sqlite import remove_index
from memtier_plugin.storage.index.vector_coverage import copy_vectors
from memtier_plugin.storage.index.writer import IndexWriter, build_index, read_metadata
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import spool_file
from memtier_plugin.storage.ledger.log import FileLog
from memtier_plugin.storage.protocol import LOCK_SECONDS
from memtier_plugin.storage.shared.copied_files import (
    Mark,
    digest,
    marked_streams,
    read_mark,
    write_mark,
)
from memtier_plugin.storage.shared.protocol import BATCH, Refused, SharedLedger, Stream, line_key
from memtier_plugin.storage.shared.sharing import Sharing
from memtier_plugin.storage.store import Store

INDEX: Final = "index.sqlite3"  # in a snapshot
_ATTEMPTS: Final = 3
_CHUNK: Final = 1024 * 1024  # bytes

Progress = Callable[[int, int], None]


@contextmanager
def staging_folder(home: Path) -> Iterator[Path]:
    """Yield a new folder in the home; the next call removes what a killed process left of it."""
    remove_abandoned_restores(home)
    folder = make_private_folder(home, f"{RESTORING}{os.getpid()}-{new_id()}")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- making one --------------------------------------------------------------------------------


def copy_state(
    store: Store,
    sharing: Sharing,
    into: Path,
    agents: Collection[str] = (),
    progress: Progress = lambda *_: None,
) -> dict[Stream, Mark]:
    """Copy what this machine follows, files and index, into an empty folder; return the marks.

    Args:
        agents: of the private ledgers only these agents'; all of them if there are none.
        progress: called with (bytes indexed, bytes in all) where the index must be made anew.

    Raises:
        LedgerError: the server is away; or purges went on all the time.
        IndexProblem: the index cannot be copied.
    """
    for _ in range(_ATTEMPTS):
        sharing.sync()
        store.catch_up_all()
        streams = [s for s in marked_streams(store.project_folder.path) if _is_wanted(s, agents)]
        before = _epochs(store, streams)
        shutil.rmtree(into)
        into.mkdir(mode=0o700)
        if not agents:
            _copy_index(store, into / INDEX)
        marks = {stream: sharing.replica.copy_stream(stream, into) for stream in streams}
        if agents:
            _make_index(store, into, progress)
        else:
            _settle_index(store, into)
        if _epochs(store, streams) == before:
            return marks
    raise LedgerError("lines are being purged: make the snapshot when that is done")


def _is_wanted(stream: Stream, agents: Collection[str]) -> bool:
    private = stream.owner not in (None, PROJECT_JOURNAL)
    return not agents or not private or stream.owner in agents


def _epochs(store: Store, streams: Iterable[Stream]) -> list[int]:
    return [read_mark(store.project_folder.path, stream).epoch for stream in streams]


def _copy_index(store: Store, path: Path) -> None:
    """Copy the index without its free pages, which may still hold what was deleted."""
    import apsw

    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        store.index.connection().execute("VACUUM INTO ?", (str(path),))
    except apsw.Error as error:
        raise index_problem(store.index.path, error) from error


def _settle_index(store: Store, folder: Path) -> None:
    """Let a copied index be that of the copied files: without what waits for the server."""
    import apsw

    path = folder / INDEX
    try:
        with closing(connect(path)) as connection:
            follow_plugins(connection, read_metadata(connection))
            IndexWriter(connection, folder, store.tokenizer, store.embedder).catch_up_all()
            connection.execute("DELETE FROM notices")  # of the other machine
    except apsw.Error as error:
        raise index_problem(path, error) from error


def _make_index(store: Store, folder: Path, progress: Progress) -> None:
    """Make an index of the copied files alone: a copy of the whole one would hold the others'."""
    path = folder / INDEX
    build = build_index(path, folder, store.tokenizer, store.embedder, progress)
    with build as (connection, _):
        copy_vectors(store.index, connection, store.embedder)


# -- taking one --------------------------------------------------------------------------------


def check_copy(
    ledger: SharedLedger, folder: Path, marks: Mapping[Stream, Mark]
) -> tuple[dict[Stream, Mark], list[Stream]]:
    """Compare a copied state with the server; return what can be followed from, and the rest.

    The rest are streams whose end is not the server's: it lost it, and was restored from a backup
    that is older than the copy.

    Raises:
        Refused: this machine was not granted a stream, or the copy is of another server.
        BackupError: the index is none of ours, or of a newer MemTier; or a file is missing.
    """
    with suppress(FileNotFoundError):
        try:
            connect(folder / INDEX).close()
        except IndexProblem as error:
            raise BackupError(f"the snapshot's index cannot be used: {error}") from error
    heads = ledger.heads()
    hidden = sorted({str(s.owner or s.ledger) for s in marks if s not in heads})
    if hidden:
        raise Refused(
            f"the snapshot has ledgers that this machine may not read ({', '.join(hidden[:5])}): "
            "grant them, or make it with `memtier shared snapshot --only-agent`"
        )
    followed, diverged = dict[Stream, Mark](), list[Stream]()
    for stream, mark in marks.items():
        _check_files(folder, stream, mark)
        head = heads[stream]
        reached = head.offset >= mark.offset and head.epoch >= mark.epoch
        if reached and _has_tail(ledger, stream, mark, head.epoch):
            followed[stream] = mark
        elif not ledger.delivered(stream, _first_keys(folder, stream)):
            raise Refused(
                f"the snapshot's {stream.ledger} of {stream.owner or 'the project'} has nothing "
                "in common with the server's: it is of another server; join without it"
            )
        else:
            diverged.append(stream)
    return followed, diverged


def _check_files(folder: Path, stream: Stream, mark: Mark) -> None:
    """Check that a stream's files have the bytes and, as offsets are dense, the lines of a mark."""
    lines = 0
    for day, size in mark.sizes.items():
        path = _copied(folder, stream) / f"{day}.jsonl"
        if not path.is_file() or path.stat().st_size != size:
            raise BackupError(f"{path.name} of {stream} differs from the snapshot's manifest")
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                lines += data.count(b"\n")
    if lines != mark.offset:
        raise BackupError(f"the snapshot has {lines} lines of {stream}, not {mark.offset}")


def _has_tail(ledger: SharedLedger, stream: Stream, mark: Mark, epoch: int) -> bool:
    """Return whether the server has a mark's line where it says; a purge may have replaced it."""
    if not mark.offset:
        return True
    lines = ledger.read(stream, mark.offset - 1, 1)
    if lines and digest(lines[0].data) == mark.tail:
        return True
    purges = ledger.purged(stream, mark.epoch) if epoch > mark.epoch else ()
    return any(mark.offset in purge.offsets for purge in purges)


def _first_keys(folder: Path, stream: Stream) -> list[bytes]:
    for path in jsonl.list_day_files(_copied(folder, stream)):
        for lines in jsonl.stream(path, 0):
            return [line_key(line.data) for line in lines[:BATCH]]
    return []


def _copied(folder: Path, stream: Stream) -> Path:
    ledger = folder / stream.ledger
    return ledger if stream.owner is None else ledger / owner_folder_name(stream.owner)


def adopt(
    folder: ProjectFolder,
    project: str,
    name: str,
    ledger: SharedLedger,
    copied: Path,
    marks: Mapping[Stream, Mark],
) -> None:
    """Share a project from this machine, from a copied state on; no other process may write.

    Whoever is killed within leaves a project that is shared: what it lacks is fetched.  Called
    again, this takes what was not taken.

    Args:
        copied: the folder with the copy, which is taken apart.
        marks: of the streams to take.

    Raises:
        Unreachable, Refused: the server.
        LedgerError: a file cannot be moved.
    """
    join(folder, name, joining=True)  # what was said here before waits for delivery
    pass_point("after join shared")
    for stream, mark in marks.items():
        if read_mark(folder.path, stream).offset:
            continue  # of an interrupted join, and perhaps further by now
        ledger.acknowledge(stream, mark.offset, mark.epoch)  # a purge waits for this machine
        files = make_ledger_folder(folder.home, project, stream.ledger, stream.owner)
        for day in mark.sizes:
            path = files / f"{day}.jsonl"
            os.replace(_copied(copied, stream) / path.name, path)
            sync_folders(path, fresh=True)
        write_mark(folder.path, stream, mark)
        pass_point("after adopt stream")
    remove_index(index_path(folder.path))
    if (copied / INDEX).exists():
        shutil.move(copied / INDEX, index_path(folder.path))
    mark_joined(folder, name)


# -- marks as JSON -----------------------------------------------------------------------------


def marks_to_json(marks: Mapping[Stream, Mark]) -> list[dict[str, Any]]:
    """Return the marks of streams as JSON."""
    return [{**stream._asdict(), **asdict(mark)} for stream, mark in marks.items()]


def marks_from_json(records: Iterable[Mapping[str, Any]]) -> dict[Stream, Mark]:
    """Return the marks that `marks_to_json` returned.

    Raises:
        ValueError: they are something else.
    """
    marks = {}
    for record in records:
        try:
            stream = Stream(str(record["ledger"]), record["owner"])
            sizes = {str(day): int(size) for day, size in record["sizes"].items()}
            mark = Mark(int(record["epoch"]), int(record["offset"]), str(record["tail"]), sizes)
            [date.fromisoformat(day) for day in sizes]  # they become names of files
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the mark of a stream: {error!r}") from error
        if stream.ledger not in LEDGERS or not isinstance(stream.owner, str | None):
            raise ValueError(f"no stream: {stream}")
        marks[stream] = mark
    return marks


# -- Join a shared project: its folder has a note of it


def join(folder: ProjectFolder, name: str, *, joining: bool = False) -> None:
    """Make a project shared: its ledgers wait for delivery from now on.

    No other process may write meanwhile.

    Args:
        joining: more is to come before `mark_joined`; nothing is moved if that is so already.

    Raises:
        LedgerError: a file cannot be moved.
    """
    if not is_joining(folder.path):
        folder.make(SHARED_FOLDER)
        for file in FileLog(folder.path).segments():
            if not file.provisional:
                file.path.rename(spool_file(file.path))
        remove_index(index_path(folder.path))  # it has read these lines elsewhere
    _write_marker(folder, name, joining)


def mark_joined(folder: ProjectFolder, name: str) -> None:
    """Note that joining is done.

    Raises:
        LedgerError: it cannot be noted.
    """
    _write_marker(folder, name, False)


def is_joining(folder: Path) -> bool:
    """Return whether joining a shared project was interrupted."""
    try:
        return bool(
            parse_json_text((folder / SHARED_FOLDER / SHARED_NOTE).read_text("utf-8")).get(
                "joining"
            )
        )
    except (OSError, ValueError, AttributeError):
        return False


def _write_marker(folder: ProjectFolder, name: str, joining: bool) -> None:
    marker = {"project": name, **({"joining": True} if joining else {})}
    write_private_file(folder.path / SHARED_FOLDER / SHARED_NOTE, json.dumps(marker), durable=True)


# -- Make a shared project this machine's own again, or remove it from here


def make_own(folder: ProjectFolder) -> int:
    """Let a project be this machine's alone; return how many waiting lines stay here.

    No other process may write meanwhile.  A call that was cut off is completed by the next.

    Raises:
        LedgerError: a file cannot be written.
    """
    waiting = 0
    for file in FileLog(folder.path).segments():
        if file.provisional:
            lines = b"".join(FileLog(folder.path).records(file))
            waiting += lines.count(b"\n")
            with hold_lock(file.settled.path, LOCK_SECONDS):
                before = file.settled.path.read_bytes()
                if not before.endswith(lines):
                    text = (before + lines).decode("utf-8", "surrogateescape")
                    write_private_file(file.settled.path, text, durable=True)
            file.path.unlink()
    _remove(folder, SHARED_FOLDER)
    return waiting


def remove_copy(folder: ProjectFolder) -> None:
    """Remove all that this machine has of a project.

    Raises:
        LedgerError: something is left.
    """
    remove_index(index_path(folder.path))
    _remove(folder, "")


def _remove(folder: ProjectFolder, name: str) -> None:
    try:
        shutil.rmtree(folder.path / name)
    except OSError as error:
        raise LedgerError(f"cannot remove {folder.path / name}: {error}") from error
