"""Execute a purge: rewrite ledgers, archives and other files that hold the text."""

from __future__ import annotations

import hashlib
import json
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.files import pass_point, remove_private_file, write_private_file
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.lifecycle.purge.plan import (
    PlainFileEdit,
    PurgePlan,
    SpanFinder,
    TextFinder,
    replace_spans,
)
from memtier_plugin.storage import home_files
from memtier_plugin.storage import home_files as exports
from memtier_plugin.storage.store import Store

# -- Search MemTier's own archives for purged text

_ERRORS: Final = (tarfile.TarError, OSError, EOFError, zlib.error)
_PIECE: Final = 8 * 1024 * 1024  # bytes of a file read at a time
_OVERLAP: Final = 64 * 1024


def archive_holds(path: Path, finder: SpanFinder) -> bool:
    """Return whether an archive contains purged text, or cannot be read."""
    try:
        with tarfile.open(path, mode="r|gz") as archive:
            for member in archive:
                source = archive.extractfile(member) if member.isreg() else None
                tail = b""
                while source and (data := source.read(_PIECE)):
                    if finder((tail + data).decode("utf-8", "surrogateescape")):
                        return True
                    tail = data[-_OVERLAP:]
    except _ERRORS:
        return True
    return False


# -- Execute a purge plan: rewrite the ledgers, then the index; every step can be repeated
#
# The plan is in `.purging.json` from before the first change until after the last.  If the process
# is killed, the next purge or the daemon completes it.

LOCK: Final = "purging"
# Sources of other ledgers come last.
_LEDGER_ORDER: Final = ("journal", "semantic", "procedural", "episodic")
_INDEX_SECONDS: Final = 10.0  # how long others may keep reading the old index

Progress = Callable[[str, int, int], None]


def save_plan(store: Store, plan: PurgePlan) -> None:
    """Save a plan before its first step.

    Raises:
        LedgerWriteError: it cannot be saved; nothing may be done.
    """
    pass_point("before purge plan")
    write_private_file(store.project_folder.purge_plan, json.dumps(plan.to_json()), durable=True)
    pass_point("after purge plan")


def load_plan(store: Store) -> PurgePlan | None:
    """Return the plan of an unfinished purge, or None.

    Raises:
        LedgerError: it cannot be read.
    """
    path = store.project_folder.purge_plan
    try:
        return PurgePlan.from_json(parse_json_text(path.read_text("ascii")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"{path} differs from what was written ({error}); delete it and purge again"
        ) from error


def execute_plan(store: Store, plan: PurgePlan, progress: Progress | None = None) -> bool:
    """Execute the remaining steps of a plan; return whether the index is clean too.

    Raises:
        LedgerError, IndexProblem: repeat it; finished steps change nothing.
    """
    segments = sorted(store.log.segments(), key=lambda s: _LEDGER_ORDER.index(s.ledger))
    for number, segment in enumerate(segments, 1):
        store.log.rewrite(segment, plan.rewrite_line)
        if progress:
            progress("rewriting the ledgers", number, len(segments))
    for edit in plan.plain:
        edit_file(edit)
    for path in plan.files:
        remove_private_file(Path(path), "purged file")
    pass_point("before purge index")
    store.reindex(
        lambda done, all_: progress("building the index", done, all_) if progress else None
    )
    pass_point("before purge cleaning")
    clean = store.scrub_index(_INDEX_SECONDS)
    pass_point("after purge cleaning")
    return clean


def remove_plan(store: Store) -> None:
    """Remove the plan of a finished purge.

    Raises:
        LedgerWriteError: it stays; executing it once more changes nothing.
    """
    remove_private_file(store.project_folder.purge_plan, "purge plan")


def edit_file(edit: PlainFileEdit) -> None:
    """Edit a file that is not a ledger, unless it was replaced meanwhile."""
    path = Path(edit.path)
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return
    if text_digest(text, edit.spans[-1][1]) == edit.digest:
        write_private_file(path, replace_spans(text, edit.spans), durable=True)


def text_digest(text: str, end: int) -> str:
    """Return a digest of the beginning of a file's text."""
    data = text[:end].encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


# -- Search other files for a text: notes, queues, exports, leftovers of a crash

MAX_BYTES: Final = 64 * 1024 * 1024  # of a file whose text is read
_FILE_PIECE: Final = 4 * 1024 * 1024  # bytes of a file read at a time
_EDITABLE_EXPORTS: Final = ("jsonl", "markdown")  # kinds of exports that can be edited


@dataclass(slots=True)
class FileScan:
    """The plan for files: edits, deletions, and files left unchanged.

    ``queued`` counts edits of queued messages, ``names`` the other files that are edited or
    deleted; ``exports`` lists each export with its treatment, ``left`` each untreated file or
    folder with the reason.
    """

    edits: list[PlainFileEdit] = field(default_factory=list)
    deletions: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    queued: int = 0
    exports: list[dict[str, str]] = field(default_factory=list)
    left: list[dict[str, str]] = field(default_factory=list)


def scan_files(
    store: Store, finder: SpanFinder, needles: Sequence[str], *, delete_exports: bool
) -> FileScan:
    """Search the home's files and the known exports for purged text."""
    scan = FileScan()
    scan.deletions = sorted(map(str, home_files.list_obsolete_files(store)))
    scan.names += scan.deletions
    in_files = _file_finder(finder, needles)
    for path in home_files.iter_other_files(store):
        edit = find_in_file(path, in_files)
        too_large = edit is None and path.stat().st_size > MAX_BYTES
        if not edit and not (too_large and any(count_in_files([path], needles).values())):
            continue
        if why := "too large to be edited: delete it" if too_large else untouchable(store, path):
            scan.left.append({"path": str(path), "why": why})
            continue
        assert edit is not None
        if "queue" in _parts_below(path, store.project_folder.home):
            scan.queued += 1
        else:
            scan.names.append(str(path))
        scan.edits.append(edit)
    for owner, folder in store.log.owner_folders():
        if isinstance(finder, TextFinder) and finder(owner):
            scan.left.append({"path": folder, "why": "the name of an agent"})
    for export in exports.list_exports(store.project_folder.path):
        _scan_export(scan, export, in_files, searchable=any(needles), delete=delete_exports)
    return scan


def count_in_files(
    paths: Iterable[Path], needles: Sequence[str], *, encoded: bool = True
) -> dict[str, int]:
    """Return how often each file contains one of these texts.

    Args:
        encoded: count any encoding, except in an index, which contains the ledgers' lines.
    """
    texts = [needle for needle in needles if needle.strip()]
    if not texts:
        return {}
    finder, overlap = TextFinder(*texts), 16 * max(map(len, texts))
    counts = {}
    for path in paths:
        find = finder.find_all if encoded and ".sqlite3" not in path.name else finder.find_plain
        if count := sum(len(find(text)) for text in _pieces(path, overlap)):
            counts[str(path)] = count
    return counts


def names_in_use(store: Store, needles: Sequence[str]) -> list[str]:
    """Return the files and folders of the home whose names contain one of these texts."""
    texts = [needle for needle in needles if needle.strip()]
    finder = TextFinder(*texts) if texts else None
    home = store.project_folder.home
    return [str(path) for path in sorted(home.rglob("*")) if finder and finder.find_all(path.name)]


def _pieces(path: Path, overlap: int) -> Iterator[str]:
    """Yield the text of a file in overlapping pieces; nothing if it is unreadable."""
    tail = b""
    with suppress(OSError), path.open("rb") as file:
        while data := file.read(_FILE_PIECE):
            yield (tail + data).decode("utf-8", "surrogateescape")
            tail = (tail + data)[-overlap:]


def _scan_export(
    scan: FileScan,
    export: exports.Export,
    in_files: SpanFinder,
    *,
    searchable: bool,
    delete: bool,
) -> None:
    """Decide what to do with an exported file: rewrite, delete or leave it.

    Args:
        searchable: archives can be searched for a text; otherwise each may contain it.
    """
    if export.kind == exports.PART:
        if export.exists and str(export.path) not in scan.deletions:
            treatment = "a backup that is being written"
            scan.left.append({"path": str(export.path), "why": treatment})
        return
    if not export.exists:
        treatment = "moved away or deleted: not looked at"
        scan.exports.append({"path": str(export.path), "what": treatment})
        return
    editable = export.kind in _EDITABLE_EXPORTS
    edit = find_in_file(export.path, in_files) if editable else None
    if editable and not edit:
        return  # it does not contain the text
    if export.kind == "backup" and searchable and not archive_holds(export.path, in_files):
        return
    treatment = "left"
    if delete and export.unchanged:
        scan.deletions.append(str(export.path))
        treatment = "deleted"
    elif edit and export.unchanged:
        scan.edits.append(edit)
        treatment = "rewritten"
    scan.exports.append({"path": str(export.path), "kind": export.kind, "what": treatment})


def untouchable(store: Store, path: Path) -> str:
    """Return why a file must not be changed; "" if it may be."""
    if path.suffix == ".yaml":
        return "your settings: edit them"
    if path.name == ".names":
        return "the name of an agent or a project"
    folder = store.project_folder
    if folder.path not in path.parents and "projects" in _parts_below(path, folder.home):
        return "another project's: purge it there too"
    return ""


def _file_finder(finder: SpanFinder, needles: Sequence[str]) -> SpanFinder:
    """Return a finder for whole files, which searches for the needles if items are purged."""
    if isinstance(finder, TextFinder):
        return finder
    texts = [needle for needle in needles if needle.strip()]
    return TextFinder(*texts).find_all if texts else lambda _: ()


def find_in_file(path: Path, finder: SpanFinder) -> PlainFileEdit | None:
    """Return the edit that removes all matches from a file; None if unreadable or without any."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    spans = finder(text)
    return PlainFileEdit(str(path), spans, text_digest(text, spans[-1][1])) if spans else None


def _parts_below(path: Path, home: Path) -> Iterable[str]:
    return path.relative_to(home).parts if path.is_relative_to(home) else ()
