"""Which items have vectors of a model: counting them, what is missing, and letting go of old ones.

Every write here is one short transaction, so that nobody waits long for a re-embedding.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import IndexProblem
from memtier_plugin.providers.embedding.static import StaticEmbedder
from memtier_plugin.storage.index.connection import Index
from memtier_plugin.storage.index.items import MAX_PIECES, PIECE_CHARS, embedding_texts
from memtier_plugin.storage.index.records import IndexRecords
from memtier_plugin.storage.index.vectors import IndexVectors, Vectors
from memtier_plugin.storage.index.writer import read_metadata, set_metadata

if TYPE_CHECKING:
    import apsw

    from memtier_plugin.core.hookspecs import Embedder

_STEP: Final = 1_000  # items
_ABOVE: Final = 1 << 62  # every row
_DROPPING: Final = "dropping "


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many items can be found, how many of them lack vectors of a model, and of what size.

    ``tokens`` estimates what the missing ones have, at four bytes each; ``old`` tells whether there
    are vectors of other models.
    """

    items: int = 0
    missing: int = 0
    tokens: int = 0
    old: bool = False


class IndexCoverage(IndexRecords):
    """The vectors of one project's index, on one thread's connection."""

    def coverage(self, model: str) -> Coverage:
        """Count; reads every item once where some are missing."""
        items = self._count("SELECT coalesce(sum(entries), 0) FROM scopes")
        done = self._count("SELECT coalesce(sum(items), 0) FROM embedded WHERE model = ?", (model,))
        old = bool(self.models_being_dropped() or set(self.models()) - {model})
        tokens = self._tokens(model) if done < items else 0
        return Coverage(items, max(0, items - done), tokens, old)

    def _tokens(self, model: str) -> int:
        # Two more for who says it.
        return self._count(
            """SELECT coalesce(sum((octet_length(substr(coalesce(
                   json_extract(data, '$.content'), json_extract(data, '$.text'), ''), 1, ?2)) + 3)
                   / 4 + 2), 0)
               FROM items WHERE indexed
                 AND NOT EXISTS (SELECT 1 FROM vectors WHERE item = row AND model = ?1)""",
            (model, MAX_PIECES * PIECE_CHARS),
        )

    def pieces_without_vectors(
        self, model: str, limit: int, before: int | None = None
    ) -> dict[int, tuple[str, ...]]:
        """Return the pieces that are to be embedded of rows without vectors, newest first.

        Args:
            before: only rows below this one, so that a pass looks at each row once.
        """
        rows = self._db.execute(
            """SELECT row FROM items WHERE indexed AND row < ?
               AND NOT EXISTS (SELECT 1 FROM vectors WHERE item = row AND model = ?)
               ORDER BY row DESC LIMIT ?""",
            (_ABOVE if before is None else before, model, limit),
        ).fetchall()
        stored = self.items_by_row([row for (row,) in rows])
        return {row: embedding_texts(stored[row].item) for (row,) in rows if row in stored}

    def vector_length(self, model: str) -> int | None:
        """Return the length of a model's vectors, None if there is none yet."""
        sql = "SELECT length(vector) FROM vectors WHERE model = ? AND vector <> x'' LIMIT 1"
        return self._count(sql, (model,)) or None

    def probe_vector(self, model: str) -> bytes | None:
        """Return the vector that a model gave of a fixed text when it made its first ones."""
        kept = read_metadata(self._db).get(f"probe {model}")
        return bytes.fromhex(kept) if kept else None

    def set_probe_vector(self, model: str, vector: bytes | None) -> None:
        """Keep, or forget, what `probe_vector` returns."""
        set_metadata(self._db, f"probe {model}", vector.hex() if vector else "")

    def last_error(self) -> str | None:
        """Return why the last pass ended early, if it did."""
        return str(read_metadata(self._db).get("embedding trouble") or "") or None

    def set_last_error(self, why: str | None) -> None:
        """Keep, or forget, what `last_error` returns."""
        if why != self.last_error():
            set_metadata(self._db, "embedding trouble", why or "")

    def put_vectors(self, model: str, vectors: Vectors) -> None:
        """Keep the vectors of rows that are still there to be found.

        Raises:
            apsw.BusyError: another process keeps the index locked, longer than this one waits.
        """
        with self._transaction():
            IndexVectors(self._db).put(model, vectors)

    def drop_model(self, model: str, limit: int) -> Generator[int]:
        """Delete the vectors of a model, in steps of so many; yield how many each was.

        What they are found by goes first and at once: no half of a model is ever compared. Until
        the end a mark says so (`models_being_dropped`), as half a model could not be told from a
        whole one.
        """
        with self._transaction():
            set_metadata(self._db, f"{_DROPPING}{model}", "")
            self._uncount(model)
        after = -1
        while True:
            with self._transaction():
                gone = self._db.execute(
                    """DELETE FROM vectors WHERE (item, model, piece) IN
                         (SELECT item, model, piece FROM vectors WHERE item >= ? AND model = ?
                          ORDER BY item LIMIT ?)
                       RETURNING item""",
                    (after, model, limit),
                ).fetchall()
                if not gone and after < 0:  # not even of what others wrote meanwhile
                    self._uncount(model)
                    self._db.execute("DELETE FROM meta WHERE key = ?", (f"{_DROPPING}{model}",))
                    return
            after = max((item for (item,) in gone), default=-1)
            if gone:
                yield len(gone)

    def _uncount(self, model: str) -> None:
        for table in ("vector_signs", "embedded"):
            self._db.execute(f"DELETE FROM {table} WHERE model = ?", (model,))  # noqa: S608

    def models_being_dropped(self) -> list[str]:
        """Return the models whose deletion was begun and not ended."""
        keys = [key for key in read_metadata(self._db) if key.startswith(_DROPPING)]
        return [key.removeprefix(_DROPPING) for key in keys]

    def models(self) -> list[str]:
        """Return the models that have vectors here."""
        return [str(model) for (model,) in self._db.execute("SELECT DISTINCT model FROM embedded")]

    def ledger_lines(self, rows: Iterable[int]) -> dict[int, tuple[str, bytes]]:
        """Return the id and the ledger line of each row."""
        found = self._db.execute(
            "SELECT row, id, data FROM items WHERE row IN (SELECT value FROM json_each(?))",
            (json.dumps(list(rows)),),
        )
        return {int(row): (str(identity), bytes(data)) for row, identity, data in found}

    def vectors_of_lines(
        self, model: str, lines: Mapping[int, tuple[str, bytes]]
    ) -> dict[int, list[bytes]]:
        """Return the vectors that a model has here of items with the same id and ledger line."""
        found: dict[int, list[bytes]] = {}
        for row, (identity, data) in lines.items():
            pieces = self._db.execute(
                """SELECT vector FROM items JOIN vectors ON item = row
                   WHERE id = ? AND data = ? AND model = ? ORDER BY piece""",
                (identity, data, model),
            ).fetchall()
            if pieces:
                found[row] = [bytes(vector) for (vector,) in pieces]
        return found

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        fault_injection.pass_point("before commit vectors")
        self._db.execute("COMMIT")
        fault_injection.pass_point("after commit vectors")


def copy_vectors(old: Index, fresh: apsw.Connection, embedder: Embedder | None) -> int:
    """Take over, into an index made anew, the vectors that it would be dear to make anew.

    Those of a model on this machine are there already.  A vector is taken where the item is the
    same to the byte.  Returns of how many items; none where the old index cannot be read.
    """
    import apsw

    if embedder is None or isinstance(embedder, StaticEmbedder):
        return 0
    carried, before = 0, None
    target = IndexCoverage(fresh)
    try:
        source = IndexCoverage(old.connection())
        target.set_probe_vector(embedder.name, source.probe_vector(embedder.name))
        while texts := target.pieces_without_vectors(embedder.name, _STEP, before):
            found = source.vectors_of_lines(embedder.name, target.ledger_lines(texts))
            whole = {row: v for row, v in found.items() if len(v) == len(texts[row])}
            target.put_vectors(embedder.name, whole)
            carried, before = carried + len(whole), min(texts)
    except (apsw.Error, IndexProblem):
        return carried
    return carried
