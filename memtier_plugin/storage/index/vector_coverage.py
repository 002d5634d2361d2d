"""Count the items with vectors of a model, list those without, and drop old models.

Every write is a short transaction, so a re-embedding never blocks other writers for long.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import IndexProblem
from memtier_plugin.core.files import pass_point
from memtier_plugin.providers.embedding.static import StaticEmbedder
from memtier_plugin.storage.index.connection import Index
from memtier_plugin.storage.index.items import MAX_PIECES, PIECE_CHARS, pieces_to_embed
from memtier_plugin.storage.index.records import RecordReader
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
    """The number of retrievable items, and how many of them lack vectors of a model.

    ``tokens`` estimates the size of the missing ones, at four bytes per token; ``old`` tells
    whether there are vectors of other models.
    """

    items: int = 0
    missing: int = 0
    tokens: int = 0
    old: bool = False


class VectorCoverage(RecordReader):
    """The vectors of one project's index, on one thread's connection."""

    def coverage(self, model: str) -> Coverage:
        """Measure a model's coverage; reads every item once if some lack vectors."""
        items = self._count("SELECT coalesce(sum(entries), 0) FROM scopes")
        done = self._count("SELECT coalesce(sum(items), 0) FROM embedded WHERE model = ?", (model,))
        old = bool(self.models_being_dropped() or set(self.models()) - {model})
        tokens = self._tokens(model) if done < items else 0
        return Coverage(items, max(0, items - done), tokens, old)

    def _tokens(self, model: str) -> int:
        # Two more for the speaker.
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
        """Return the pieces to embed of rows without vectors, newest first.

        Args:
            before: only rows below this one, so that a pass visits each row once.
        """
        rows = self._db.execute(
            """SELECT row FROM items WHERE indexed AND row < ?
               AND NOT EXISTS (SELECT 1 FROM vectors WHERE item = row AND model = ?)
               ORDER BY row DESC LIMIT ?""",
            (_ABOVE if before is None else before, model, limit),
        ).fetchall()
        stored = self.items_by_row([row for (row,) in rows])
        return {row: pieces_to_embed(stored[row]) for (row,) in rows if row in stored}

    def vector_length(self, model: str) -> int | None:
        """Return the length of a model's vectors, or None if it has none yet."""
        sql = "SELECT length(vector) FROM vectors WHERE model = ? AND vector <> x'' LIMIT 1"
        return self._count(sql, (model,)) or None

    def probe_vector(self, model: str) -> bytes | None:
        """Return the vector of a fixed text, embedded together with the model's first vectors."""
        encoded = read_metadata(self._db).get(f"probe {model}")
        return bytes.fromhex(encoded) if encoded else None

    def set_probe_vector(self, model: str, vector: bytes | None) -> None:
        """Store or clear the probe vector."""
        set_metadata(self._db, f"probe {model}", vector.hex() if vector else "")

    def last_error(self) -> str | None:
        """Return why the last pass ended early, if it did."""
        return str(read_metadata(self._db).get("embedding trouble") or "") or None

    def set_last_error(self, why: str | None) -> None:
        """Store or clear the last error."""
        if why != self.last_error():
            set_metadata(self._db, "embedding trouble", why or "")

    def put_vectors(self, model: str, vectors: Vectors) -> None:
        """Store vectors of the rows that are still retrievable.

        Raises:
            apsw.BusyError: another process holds the index lock beyond the busy timeout.
        """
        with self._transaction():
            IndexVectors(self._db).put(model, vectors)

    def drop_model(self, model: str, limit: int) -> Generator[int]:
        """Delete a model's vectors in steps of at most ``limit``; yield the size of each step.

        The search data is deleted first, in one transaction, so a partly deleted model is never
        searched.  A mark (`models_being_dropped`) stays until the end, as the remaining vectors
        do not show that some are missing.
        """
        with self._transaction():
            set_metadata(self._db, f"{_DROPPING}{model}", "")
            self._uncount(model)
        after = -1
        while True:
            with self._transaction():
                deleted = self._db.execute(
                    """DELETE FROM vectors WHERE (item, model, piece) IN
                         (SELECT item, model, piece FROM vectors WHERE item >= ? AND model = ?
                          ORDER BY item LIMIT ?)
                       RETURNING item""",
                    (after, model, limit),
                ).fetchall()
                if not deleted and after < 0:  # including vectors written in the meantime
                    self._uncount(model)
                    self._db.execute("DELETE FROM meta WHERE key = ?", (f"{_DROPPING}{model}",))
                    return
            after = max((item for (item,) in deleted), default=-1)
            if deleted:
                yield len(deleted)

    def _uncount(self, model: str) -> None:
        for table in ("vector_signs", "embedded"):
            self._db.execute(f"DELETE FROM {table} WHERE model = ?", (model,))  # noqa: S608

    def models_being_dropped(self) -> list[str]:
        """Return the models whose deletion was started but not finished."""
        keys = [key for key in read_metadata(self._db) if key.startswith(_DROPPING)]
        return [key.removeprefix(_DROPPING) for key in keys]

    def models(self) -> list[str]:
        """Return the models that have vectors here."""
        return [str(model) for (model,) in self._db.execute("SELECT DISTINCT model FROM embedded")]

    def ledger_lines(self, rows: Iterable[int]) -> dict[int, tuple[str, bytes]]:
        """Return the id and the ledger line of each row."""
        lines = self._db.execute(
            "SELECT row, id, data FROM items WHERE row IN (SELECT value FROM json_each(?))",
            (json.dumps(list(rows)),),
        )
        return {int(row): (str(identity), bytes(data)) for row, identity, data in lines}

    def vectors_of_lines(
        self, model: str, lines: Mapping[int, tuple[str, bytes]]
    ) -> dict[int, list[bytes]]:
        """Return a model's vectors of items with the same id and ledger line."""
        vectors: dict[int, list[bytes]] = {}
        for row, (identity, data) in lines.items():
            pieces = self._db.execute(
                """SELECT vector FROM items JOIN vectors ON item = row
                   WHERE id = ? AND data = ? AND model = ? ORDER BY piece""",
                (identity, data, model),
            ).fetchall()
            if pieces:
                vectors[row] = [bytes(vector) for (vector,) in pieces]
        return vectors

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        pass_point("before commit vectors")
        self._db.execute("COMMIT")
        pass_point("after commit vectors")


def copy_vectors(old: Index, fresh: apsw.Connection, embedder: Embedder | None) -> int:
    """Copy vectors that are expensive to recompute into a rebuilt index.

    A static model's vectors are there already.  Vectors are copied only for items whose ledger
    line is identical.  Returns the number of items; copying stops if the old index is unreadable.
    """
    import apsw

    if embedder is None or isinstance(embedder, StaticEmbedder):
        return 0
    carried, before = 0, None
    target = VectorCoverage(fresh)
    try:
        source = VectorCoverage(old.connection())
        target.set_probe_vector(embedder.name, source.probe_vector(embedder.name))
        while texts := target.pieces_without_vectors(embedder.name, _STEP, before):
            vectors = source.vectors_of_lines(embedder.name, target.ledger_lines(texts))
            complete = {row: v for row, v in vectors.items() if len(v) == len(texts[row])}
            target.put_vectors(embedder.name, complete)
            carried, before = carried + len(complete), min(texts)
    except (apsw.Error, IndexProblem):
        return carried
    return carried
