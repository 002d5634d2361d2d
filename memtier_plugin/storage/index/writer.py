"""Keep the index in sync with the ledgers: catching up is the only way to add data to it.

Each file is read from its last mark; a file that was replaced or edited is dropped and read again
from the start in one transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.events import DeliverEvent, PromoteEvent, RecallEvent, RestoreEvent
from memtier_plugin.core.files import pass_point
from memtier_plugin.core.formats import CUT_OFF, new_id, to_iso
from memtier_plugin.core.records import (
    Entry,
    Fact,
    JournalEvent,
    decode_entry,
    decode_event,
    decode_fact,
)
from memtier_plugin.storage.index.connection import (
    CACHE_KIB,
    close_connection,
    connect,
    index_problem,
)
from memtier_plugin.storage.index.items import Batch, IndexItems, Prepared, Record
from memtier_plugin.storage.index.postings import (
    IndexedText,
    Postings,
    follow_plugins,
    merge_ngrams,
)
from memtier_plugin.storage.index.records import to_utf8, to_utf8_all
from memtier_plugin.storage.index.vectors import Vectors
from memtier_plugin.storage.ledger import jsonl as ledger
from memtier_plugin.storage.ledger.jsonl import (
    LedgerFile,
    LedgerLine,
    ReadMark,
    is_torn,
    ledger_files,
)
from memtier_plugin.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import apsw

    from memtier_plugin.core.hookspecs import Embedder

CHUNK_BYTES: Final = 1024 * 1024  # bytes of ledger per transaction, to keep others' waits short
_MERGED: Final = "merged"  # metadata key: the entries when n-grams were merged last
_MANY_ENTRIES: Final = 500  # since then, from which merging pays
_GROWTH: Final = 0.2  # since then, of the entries
_TOGETHER: Final = 2000  # lines prepared together
_MANY: Final = 100  # lines from which a transaction is worth a 32 MB cache

# Errors that a line from another program may raise while it is indexed.
_MALFORMED: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)


def read_mark(connection: apsw.Connection, name: str) -> ReadMark | None:
    """Return how far a ledger file was read into this index."""
    for row in connection.execute(
        """SELECT device, inode, size, mtime_ns, offset, lines, tail, crc FROM files
           WHERE path = ?""",
        (name,),
    ):
        return ReadMark(*row)
    return None


def is_behind(connection: apsw.Connection, file: LedgerFile) -> bool:
    """Tell, by one stat, whether a ledger file has changed since it was read."""
    return _changed(file, read_mark(connection, file.name))


def files_behind(
    connection: apsw.Connection, files: Sequence[LedgerFile], *, leave_recalls: bool = False
) -> list[LedgerFile]:
    """Return the files for which `is_behind` is true, with a single query.

    Args:
        leave_recalls: not those to which only a few recalls were added.
    """
    names = json.dumps(to_utf8_all(file.name for file in files))
    marks = {
        str(path): ReadMark(*mark)
        for path, *mark in connection.execute(
            """SELECT path, device, inode, size, mtime_ns, offset, lines, tail, crc FROM files
               WHERE path IN (SELECT value FROM json_each(?))""",
            (names,),
        )
    }
    changed = [file for file in files if _changed(file, marks.get(file.name))]
    if not leave_recalls:
        return changed
    return [file for file in changed if not adds_only_recalls(file, marks.get(file.name))]


def _changed(file: LedgerFile, mark: ReadMark | None) -> bool:
    try:
        status = file.path.lstat()
    except FileNotFoundError:
        return mark is not None
    return mark is None or not mark.same_as(status)


class IndexWriter(IndexItems):
    """Brings one project's index up to date with its ledgers."""

    def __init__(
        self,
        connection: apsw.Connection,
        folder: Path,
        tokenizer: Tokenizer,
        embedder: Embedder | None = None,
        includes: Callable[[Record], bool] | None = None,
    ) -> None:
        super().__init__(connection, tokenizer, embedder)
        self._folder = folder
        self._includes = includes

    def catch_up(
        self,
        files: Iterable[LedgerFile],
        *,
        budget: int | None = None,
        progress: Callable[[int], None] | None = None,
        ours: bool = False,
    ) -> tuple[int, bool]:
        """Read what is new in these files; return the number of lines, and whether that was all.

        Args:
            files: that are behind, by `files_behind`.
            budget: stop after about this many bytes and leave the rest for the next call; a larger
                file that must be read again from the start needs a call without a budget.
            progress: called with the number of bytes of each step.
            ours: this process replaced the files itself, so no notice is recorded.

        Raises:
            apsw.BusyError: another process keeps the index locked.
            UnsafePath, LedgerError: a file cannot be read; the others were indexed.
        """
        count, complete = 0, True
        problem: LedgerError | None = None
        for file in files:
            behind = True
            while behind and (budget is None or budget > 0):
                try:
                    lines, size = self._step(file, ours, budget)
                except LedgerError as error:
                    problem = problem or error
                    break
                count += lines
                budget = None if budget is None else budget - size
                if progress:
                    progress(size)
                behind = is_behind(self._db, file)
                if not size:
                    break
            complete = complete and not behind
        if problem:
            raise problem
        return count, complete

    def catch_up_all(self, *, progress: Callable[[int], None] | None = None) -> int:
        """Read everything new, and drop the rows of deleted files."""
        files = ledger_files(self._folder)
        present = {file.name for file in files}
        deleted = [
            LedgerFile(self._folder / str(name), str(name), str(kind), None)
            for name, kind in self._db.execute("SELECT path, ledger FROM files").fetchall()
            if name not in present
        ]
        behind = files_behind(self._db, [*deleted, *files])
        lines = self.catch_up(behind, progress=progress)[0]
        self.merge_ngrams()
        return lines

    def merge_ngrams(self) -> None:
        """Merge the n-grams' segments once much was added since they were merged last.

        Left for the next time where another process writes, or nobody can.
        """
        import apsw

        [(entries,)] = self._db.execute("SELECT coalesce(sum(entries), 0) FROM scopes").fetchall()
        merged = int(read_metadata(self._db).get(_MERGED, 0))
        if entries - merged >= max(_MANY_ENTRIES, merged * _GROWTH):
            with suppress(apsw.BusyError, apsw.ReadOnlyError, apsw.FullError):
                merge_ngrams(self._db)
                set_metadata(self._db, _MERGED, str(entries))

    def _step(self, file: LedgerFile, ours: bool, budget: int | None) -> tuple[int, int]:
        """Read one chunk of one file in one transaction; return lines and bytes."""
        while True:
            mark = read_mark(self._db, file.name)
            change = ledger.detect_change(file.path, mark) if mark else None
            lines: list[LedgerLine] = []
            if change != "deleted":
                if change and budget and file.path.stat().st_size > budget:
                    return 0, 0
                # A changed file is read whole: readers see either its old or its new content.
                limit = CHUNK_BYTES if budget is None else min(CHUNK_BYTES, budget)
                lines, fresh = ledger.read_lines(file.path, *(() if change else (mark, limit)))
            parts = [lines[start : start + _TOGETHER] for start in range(0, len(lines), _TOGETHER)]
            # Prepare outside the transaction, which blocks other writers, as far as memory allows.
            bad, good = self._prepared(file, parts[0] if parts else [])
            with self._room(len(lines)), self._transaction() as batch:
                if read_mark(self._db, file.name) != mark:
                    continue  # another process has indexed it in the meantime
                if change:
                    self._drop(file.name, batch)
                if change and file.provisional:
                    self._drop_if_refused(file.settled, batch)
                if change and not (ours or file.provisional):
                    self._notice(file.name, change)
                if change == "deleted":
                    return 0, 0
                number = self._save_mark(file, fresh)
                self._ingest(number, bad, good, batch)
                for part in parts[1:]:
                    self._ingest(number, *self._prepared(file, part), batch)
                    batch.postings.write()
            return len(lines), sum(len(line.data) for line in lines)

    @contextmanager
    def _room(self, lines: int) -> Iterator[None]:
        """Enlarge the page cache while many lines are written, as they touch the whole index.

        Only for the duration: a process may have many connections.
        """
        if lines < _MANY:
            yield
            return
        self._db.execute("PRAGMA cache_size = -32000")  # KiB
        try:
            yield
        finally:
            self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")

    @contextmanager
    def _transaction(self) -> Iterator[Batch]:
        batch = Batch(Postings(self._db))
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield batch
            self.settle(batch)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        pass_point("before commit index")
        self._db.execute("COMMIT")
        pass_point("after commit index")

    def _save_mark(self, file: LedgerFile, mark: ReadMark) -> int:
        rows = self._db.execute(
            """INSERT INTO files(path, ledger, owner, device, inode, size, mtime_ns, offset, lines,
                 tail, crc) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT(path) DO UPDATE SET device = excluded.device, inode = excluded.inode,
                 size = excluded.size, mtime_ns = excluded.mtime_ns, offset = excluded.offset,
                 lines = excluded.lines, tail = excluded.tail, crc = excluded.crc RETURNING id""",
            (
                file.name,
                file.ledger,
                to_utf8(file.owner) if file.owner is not None else None,
                mark.device,
                mark.inode,
                mark.size,
                mark.mtime_ns,
                mark.offset,
                mark.lines,
                mark.tail,
                mark.crc,
            ),
        )
        return int(rows.fetchone()[0])

    def _notice(self, name: str, change: str) -> None:
        now = to_iso(datetime.now(UTC))
        notice = f"{change} by somebody else; its rows were dropped and read again"
        self._db.execute("INSERT INTO notices VALUES(?, ?, ?)", (now, name, notice))

    # -- lines in ------------------------------------------------------------------------------

    def _prepared(
        self, file: LedgerFile, lines: Sequence[LedgerLine]
    ) -> tuple[list[tuple[LedgerLine, Exception]], list[Prepared]]:
        """Split lines into malformed ones and records prepared for indexing."""
        bad: list[tuple[LedgerLine, Exception]] = []
        good: list[tuple[Record, LedgerLine]] = []
        for line in lines:
            try:
                if line.data.strip():
                    record = _parse_record(file, line)
                    if self._includes is None or self._includes(record):
                        good.append((record, line))
            except _MALFORMED as error:
                bad.append((line, error))
        return bad, self.prepare(good)

    def _ingest(
        self,
        number: int,
        bad: Sequence[tuple[LedgerLine, Exception]],
        good: Sequence[Prepared],
        batch: Batch,
    ) -> None:
        """Index lines together; a malformed record is rolled back and refused alone."""
        for line, error in bad:
            self._refuse(number, line, error)
        try:
            with self._db:  # a savepoint
                self._put(good, number, batch)
            return
        except _MALFORMED:
            batch.numbers.clear()  # some numbers may have been assigned in the rolled back part
        for prepared in good:  # one by one, to single out the malformed record
            try:
                with self._db:
                    self._put([prepared], number, batch)
            except _MALFORMED as error:
                batch.numbers.clear()
                self._refuse(number, prepared[1], error)

    def _put(self, records: Sequence[Prepared], number: int, batch: Batch) -> None:
        entries = [prepared for prepared in records if isinstance(prepared[0], Entry)]
        self.add_entries(
            cast("list[tuple[Entry, LedgerLine, IndexedText]]", entries), number, batch
        )
        for record, line, text in records:
            if isinstance(record, Fact):
                self.add_fact(record, line, text, number, batch)
            elif isinstance(record, JournalEvent):
                self.add_event(record, line, number, batch)

    def _refuse(self, number: int, line: LedgerLine, error: Exception) -> None:
        reason = CUT_OFF if is_torn(line) else f"{type(error).__name__}: {error}"[:200]
        self._db.execute(
            "INSERT OR REPLACE INTO bad_lines VALUES(?, ?, ?)",
            (number, line.number, to_utf8(reason)),
        )

    # -- one file out --------------------------------------------------------------------------

    def _drop(self, name: str, batch: Batch) -> None:
        number = self._db.execute("SELECT id FROM files WHERE path = ?", (name,)).fetchone()[0]
        for row, identity, tier in self._db.execute(
            "SELECT row, id, tier FROM items WHERE file = ?", (number,)
        ).fetchall():
            self.set_indexed(int(row), False, batch)
            self._db.execute("DELETE FROM items WHERE row = ?", (row,))
            if tier != "episodic":
                self._db.execute("DELETE FROM facts WHERE id = ?", (identity,))
                self.sources.drop(str(identity))
            batch.touched.add(str(identity))
        undone: set[str] = set()  # runs whose undo is dropped with this file
        for event, kind, data in self._db.execute(
            "SELECT id, kind, iif(kind = 'restore', data, NULL) FROM events WHERE file = ?",
            (number,),
        ).fetchall():
            if kind == RestoreEvent.KIND:
                undone.add(RestoreEvent.of(decode_event(data)).run)
            for (item,) in self._db.execute(
                "SELECT item FROM touches WHERE event = ?", (event,)
            ).fetchall():
                batch.touched.add(str(item))
            self._db.execute("DELETE FROM touches WHERE event = ?", (event,))
            if kind == PromoteEvent.KIND:
                batch.touched |= self.sources.drop(str(event))
        for table, column in (("events", "file"), ("bad_lines", "file"), ("files", "id")):
            self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))  # noqa: S608
        if undone:
            batch.touched |= self.sources.reapply_promotions(sorted(undone))
        batch.dropped = True

    def _drop_if_refused(self, file: LedgerFile, batch: Batch) -> None:
        """Drop a file with lines that were refused because they were in its spool, too."""
        refused = self._db.execute(
            """SELECT 1 FROM bad_lines JOIN files ON files.id = file
               WHERE path = ? AND reason LIKE '%was seen before'""",
            (file.name,),
        ).fetchone()
        if refused:
            self._drop(file.name, batch)

    # -- vectors -------------------------------------------------------------------------------

    def add_vectors(self, model: str, vectors: Vectors) -> None:
        """Add vectors of items indexed without them; skipped while another process writes."""
        import apsw

        with suppress(apsw.BusyError), self._transaction():
            self.vectors.put(model, vectors)


def _parse_record(file: LedgerFile, line: LedgerLine) -> Record:
    """Decode the record on a line (raises one of `_MALFORMED`)."""
    if file.ledger == "journal":
        return decode_event(line.data)
    if file.ledger != "episodic":
        return decode_fact(line.data, tier=file.ledger)
    entry = decode_entry(line.data, owner=file.owner)
    if entry.agent_id != file.owner:
        raise ValueError(f"it says agent {entry.agent_id!r}, not {file.owner!r}")
    return entry


@contextmanager
def build_index(
    path: Path,
    folder: Path,
    tokenizer: Tokenizer,
    embedder: Embedder | None = None,
    progress: Callable[[int, int], None] | None = None,
    includes: Callable[[Record], bool] | None = None,
) -> Iterator[tuple[apsw.Connection, int]]:
    """Read every ledger of a project into a new index; yield it and the number of lines.

    Args:
        includes: tells which records belong to it; all of them when None.

    Raises:
        IndexProblem, LedgerError: the index cannot be built.
    """
    import apsw

    connection = connect(path)
    try:
        set_metadata(connection, "tokenizer", tokenizer.fingerprint)
        set_metadata(connection, "built", new_id())
        follow_plugins(connection, {})
        files = ledger_files(folder)
        total = sum(file.path.stat().st_size for file in files) or 1
        done = 0

        def step(size: int) -> None:
            nonlocal done
            done += size
            if progress:
                progress(min(done, total), total)

        writer = IndexWriter(connection, folder, tokenizer, embedder, includes)
        lines, _ = writer.catch_up(files, progress=step)
        writer.merge_ngrams()
        yield connection, lines
    except apsw.Error as error:
        raise index_problem(path, error) from error
    finally:
        close_connection(connection)


def read_metadata(connection: apsw.Connection) -> dict[str, Any]:
    """Return the index's metadata."""
    return {str(key): value for key, value in connection.execute("SELECT key, value FROM meta")}


def set_metadata(connection: apsw.Connection, key: str, value: str | None) -> None:
    """Set one metadata value of the index, or delete it with None."""
    if value is None:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, value))


# -- Leave recalls for later: a journal with nothing else that is new
LATER: Final = (RecallEvent.KIND, DeliverEvent.KIND)  # kinds of events that may wait for the index
_RECALLS: Final = re.compile(
    rb'(?:\{"schema": \d+, "id": "\w+", "timestamp": "[^"]+", "kind": "(?:%b)", [^\n]*\n){1,32}'
    % "|".join(LATER).encode()
)
_MOST_BYTES: Final = 128 * 1024  # of them


def adds_only_recalls(file: LedgerFile, mark: ReadMark | None) -> bool:
    """Return whether a journal has nothing new since a mark but a few recalls and their deliveries.

    Raises:
        UnsafePath, LedgerError: the file cannot be read.
    """
    if file.ledger != "journal" or mark is None:
        return False
    added = ledger.read_appended(file.path, mark, _MOST_BYTES)
    return added is not None and _RECALLS.fullmatch(added) is not None
