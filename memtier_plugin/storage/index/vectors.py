"""Store and search vectors: exact cosine by sqlite-vec, shortlisted by signs in large scopes."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.errors import IndexProblem

if TYPE_CHECKING:
    import apsw
    import numpy as np
    from numpy.typing import NDArray


# -- Load the sqlite-vec extension, which computes vector distances inside SQLite


def execute_with_vec(
    connection: apsw.Connection, sql: str, values: Sequence[Any]
) -> Iterator[tuple[Any, ...]]:
    """Run a query that calls sqlite-vec functions, loading the extension on first use.

    Raises:
        IndexProblem: sqlite-vec is not installed; the message names the remedy.
    """
    import apsw

    try:
        return connection.execute(sql, tuple(values))
    except apsw.SQLError as error:
        if "no such function" not in str(error):
            raise
    _load(connection)
    return connection.execute(sql, tuple(values))


def _load(connection: apsw.Connection) -> None:
    # Only locate the Python package: importing it pulls in numpy and the standard library's
    # sqlite3, a quarter of a second.
    spec = find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        raise IndexProblem(
            "sqlite-vec is missing: install memtier again, or `pip install sqlite-vec`"
        )
    connection.enable_load_extension(True)
    try:
        connection.load_extension(str(Path(spec.origin).with_name("vec0")))
    finally:
        connection.enable_load_extension(False)


# -- Store and search vectors: exact cosine over int8 vectors, shortlisted by signs in large scopes
#
# An item has one vector for each piece of its text and each model.  Up to `EXACT_PIECES` a query is
# compared with every piece in the scopes searched.  Above that, the signs of the vectors'
# components (one bit each), kept in segments of a scope, give a shortlist, and only the shortlist
# is compared exactly.  Results do not depend on how pieces were divided into segments.

COVERED_SHARE: Final = 0.95  # share of items that must have vectors before a model is used
EXACT_PIECES: Final = 2_000  # the most pieces in scope for which every one is compared
SEGMENT: Final = 256  # pieces whose signs are stored, read and written together


Vectors = Mapping[int, Sequence[bytes]]  # row -> one int8 vector per piece of its text


class IndexVectors:
    """The vectors of one project's index, on one thread's connection."""

    def __init__(self, connection: Any) -> None:
        self._db: Any = connection

    # -- storing and dropping ------------------------------------------------------------------

    def put(self, model: str, vectors: Vectors) -> None:
        """Store the vectors of indexed rows that have none of this model yet.

        A vector of zeros means that the model knows no word of the piece; the row still counts
        as embedded.  Call it inside a transaction.
        """
        scopes = {
            int(row): int(scope)
            for row, scope in self._db.execute(
                """SELECT row, scope FROM items
                   WHERE row IN (SELECT value FROM json_each(?)) AND indexed
                     AND NOT EXISTS (SELECT 1 FROM vectors WHERE item = row AND model = ?)""",
                (json.dumps(list(vectors)), model),
            )
        }
        self._db.executemany(
            "INSERT INTO vectors VALUES(?, ?, ?, ?)",
            [
                (row, model, piece, vector if any(vector) else b"")
                for row in sorted(scopes)
                for piece, vector in enumerate(vectors[row] or [b""])
            ],
        )
        for scope in sorted(set(scopes.values())):
            rows = sorted(row for row in scopes if scopes[row] == scope)
            self._count(model, scope, len(rows))
            self._add_signs(model, scope, {row: [*filter(any, vectors[row])] for row in rows})

    def drop(self, row: int, scope: int) -> None:
        """Delete a row's vectors of every model."""
        models = self._db.execute(
            "SELECT DISTINCT model FROM vectors WHERE item = ?", (row,)
        ).fetchall()
        for (model,) in models:
            self._drop_signs(str(model), scope, {row})
            self._count(str(model), scope, -1)
        self._db.execute("DELETE FROM vectors WHERE item = ?", (row,))

    def _count(self, model: str, scope: int, change: int) -> None:
        self._db.execute(
            """INSERT INTO embedded VALUES(?, ?, ?) ON CONFLICT(model, scope)
               DO UPDATE SET items = items + excluded.items""",
            (model, scope, change),
        )

    # -- segments of signs ---------------------------------------------------------------------

    def _add_signs(self, model: str, scope: int, vectors: Vectors) -> None:
        """Merge rows (ascending) into the segments, each of which covers a range of rows."""
        import numpy as np

        rows = [row for row, pieces in vectors.items() for _ in pieces]
        blobs = b"".join(blob for pieces in vectors.values() for blob in pieces)
        if not rows:
            return
        fresh = np.array(rows, "<i8")
        signs = pack_signs(np.frombuffer(blobs, np.int8).reshape(len(rows), -1))
        firsts = [
            int(first)
            for (first,) in self._db.execute(
                "SELECT first FROM vector_signs WHERE model = ? AND scope = ? ORDER BY first",
                (model, scope),
            )
        ]
        # Rows before the first segment's first row belong to the first segment too.
        segments = np.maximum(np.searchsorted(firsts, fresh, side="right") - 1, 0)
        for segment in np.unique(segments):
            mine = segments == segment
            old = firsts[segment] if firsts else None
            self._merge(model, scope, old, fresh[mine], signs[mine])

    def _merge(
        self,
        model: str,
        scope: int,
        first: int | None,
        rows: NDArray[np.int64],
        signs: NDArray[np.uint8],
    ) -> None:
        import numpy as np

        if first is not None:
            held, bits = self._segment(model, scope, first)
            order = np.argsort(np.concatenate([held, rows]), kind="stable")
            rows = np.concatenate([held, rows])[order]
            signs = np.concatenate([bits, signs])[order]
            self._db.execute(
                "DELETE FROM vector_signs WHERE model = ? AND scope = ? AND first = ?",
                (model, scope, first),
            )
        # Cut between rows only, so that all pieces of a row are in one segment.
        begin = 0
        while begin < len(rows):
            end = min(begin + SEGMENT, len(rows))
            while end < len(rows) and rows[end] == rows[end - 1]:
                end += 1
            self._write(model, scope, rows[begin:end], signs[begin:end])
            begin = end

    def _drop_signs(self, model: str, scope: int, dropped: Collection[int]) -> None:
        import numpy as np

        for row in dropped:
            for (first,) in self._db.execute(
                """SELECT max(first) FROM vector_signs
                   WHERE model = ? AND scope = ? AND first <= ?""",
                (model, scope, row),
            ).fetchall():
                if first is None:
                    continue
                rows, signs = self._segment(model, scope, int(first))
                keep = rows != row
                if np.all(keep):
                    continue
                self._db.execute(
                    "DELETE FROM vector_signs WHERE model = ? AND scope = ? AND first = ?",
                    (model, scope, first),
                )
                if np.any(keep):
                    self._write(model, scope, rows[keep], signs[keep])

    def _segment(
        self, model: str, scope: int, first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        import numpy as np

        items, signs = self._db.execute(
            "SELECT items, signs FROM vector_signs WHERE model = ? AND scope = ? AND first = ?",
            (model, scope, first),
        ).fetchone()
        rows = np.frombuffer(items, "<i8")
        return rows, np.frombuffer(signs, np.uint8).reshape(len(rows), -1)

    def _write(
        self, model: str, scope: int, rows: NDArray[np.int64], signs: NDArray[np.uint8]
    ) -> None:
        self._db.execute(
            "INSERT INTO vector_signs(model, scope, first, items, signs) VALUES(?, ?, ?, ?, ?)",
            (model, scope, int(rows[0]), rows.tobytes(), signs.tobytes()),
        )

    # -- searching -----------------------------------------------------------------------------

    def count_covered(self, model: str, scopes: Iterable[int]) -> tuple[int, int]:
        """Return (items with vectors of a model, all items) of these scopes."""
        done, items = self._db.execute(
            """SELECT coalesce(sum(embedded.items), 0), coalesce(sum(entries), 0) FROM scopes
               LEFT JOIN embedded ON scope = id AND model = ?
               WHERE id IN (SELECT value FROM json_each(?))""",
            (model, json.dumps(list(scopes))),
        ).fetchone()
        return int(done), int(items)

    def is_covered(self, model: str, scopes: Iterable[int]) -> bool:
        """Return whether enough items (`COVERED_SHARE`) are embedded to use a model here."""
        done, items = self.count_covered(model, scopes)
        return done >= COVERED_SHARE * items

    def nearest(
        self, model: str, scopes: Sequence[int], query: bytes, cap: int, limit: int
    ) -> tuple[dict[int, float], int]:
        """Return the rows nearest to a query with their cosines, and how many pieces were compared.

        Up to `EXACT_PIECES` pieces, all are compared; above, those of the shortlist.

        Args:
            query: an int8 vector, as bytes.
            cap: the most pieces to compare; the newest are.
            limit: the most pieces to return; ties go to the newest.
        """
        if not any(query):  # the model knows none of the query's words
            return {}, 0
        if self._count_pieces(model, scopes) <= min(cap, EXACT_PIECES):
            pieces = self._pieces(model, scopes)
            return self._scan(model, query, pieces, limit), len(pieces)
        rows, compared = self.shortlist(model, scopes, query, cap, limit)
        near = self.similarity(model, query, rows)
        return {
            row: near[row] for row in sorted(near, key=lambda row: (-near[row], -row))
        }, compared

    def similarity(self, model: str, query: bytes, rows: Collection[int]) -> dict[int, float]:
        """Return for each of these rows the cosine of its nearest piece to a query vector.

        Cosines are clipped at 0; a row of which the model knows no word has 0.  A row without
        vectors is left out.
        """
        pieces = self._db.execute(
            """SELECT item, vector FROM vectors
               WHERE item IN (SELECT value FROM json_each(?)) AND model = ?""",
            (json.dumps(list(rows)), model),
        ).fetchall()
        # A vector of another length is from an older model of the same name; a zero vector has
        # no cosine.
        size = len(query) if any(query) else -1
        near: dict[int, float] = dict.fromkeys([row for row, _ in pieces], 0.0)
        same = [piece for piece in pieces if len(piece[1]) == size]
        cosines = _cosines(query, [vector for _, vector in same])
        for (row, _), cosine in zip(same, cosines, strict=True):
            if cosine > near[row]:
                near[row] = cosine
        return near

    def _count_pieces(self, model: str, scopes: Sequence[int]) -> int:
        """Count the pieces with signs in these scopes."""
        [(count,)] = self._db.execute(
            """SELECT coalesce(sum(length(items)) / 8, 0) FROM vector_signs
               WHERE model = ? AND scope IN (SELECT value FROM json_each(?))""",
            (model, json.dumps(list(scopes))),
        )
        return int(count)

    def _pieces(self, model: str, scopes: Sequence[int]) -> array[int]:
        """Return the row of each piece with signs in these scopes; a row repeats per piece."""
        pieces = array("q")
        for scope in scopes:
            for (items,) in self._db.execute(
                "SELECT items FROM vector_signs WHERE model = ? AND scope = ?", (model, scope)
            ):
                pieces.frombytes(items)
        return pieces

    def _scan(
        self, model: str, query: bytes, pieces: Collection[int], limit: int
    ) -> dict[int, float]:
        """Compare a query with every piece of these rows; see `nearest`."""
        source, bound = _source_of({*pieces})
        near: dict[int, float] = {}
        for row, distance in execute_with_vec(
            self._db,
            f"""SELECT item, vec_distance_cosine(vec_int8(vector), vec_int8(?1)) AS distance
                FROM {source} WHERE model = ?2 AND length(vector) = ?4
                ORDER BY distance, item DESC LIMIT ?5""",  # noqa: S608
            (query, model, bound, len(query), limit),
        ):
            near.setdefault(row, max(0.0, 1 - distance))
        return near

    def shortlist(
        self, model: str, scopes: Sequence[int], query: bytes, cap: int, limit: int
    ) -> tuple[list[int], int]:
        """Return the rows whose signs agree most with a query's, and how many pieces were compared.

        Args:
            query: an int8 vector, as bytes.
            cap: the most pieces to compare; the newest are.
            limit: the most pieces to return; ties go to the newest.
        """
        import numpy as np

        rows: list[NDArray[np.int64]] = []
        signs: list[NDArray[np.uint8]] = []
        for scope in scopes:
            held = 0
            for items, bits in self._db.execute(
                """SELECT items, signs FROM vector_signs WHERE model = ? AND scope = ?
                   ORDER BY first DESC""",
                (model, scope),
            ):
                rows.append(np.frombuffer(items, "<i8"))
                signs.append(np.frombuffer(bits, np.uint8).reshape(len(rows[-1]), -1))
                held += len(rows[-1])
                if held >= cap:
                    break
        if not rows:
            return [], 0
        items, bits = np.concatenate(rows), np.concatenate(signs)
        if len(items) > cap:  # by row, so that the result does not depend on the segments
            newest = items >= np.partition(items, len(items) - cap)[len(items) - cap]
            items, bits = items[newest], bits[newest]
        components = np.frombuffer(query, np.int8)
        if bits.shape[1] != pack_signs(components[None, :]).shape[1]:
            return [], 0  # stored by an older model of the same name, with another length
        distances = _sign_distances(bits, components)
        order = _nearest_first(distances, items, limit)
        return list(dict.fromkeys(items[order].tolist())), len(items)


def _source_of(rows: Collection[int]) -> tuple[str, str]:
    """Return the vectors of these rows as an SQL source, with the value of its parameter ?3.

    Rows that were written together are read together: a look-up of each takes twice as long.
    """
    runs: list[list[int]] = []
    for row in sorted(rows):
        if runs and row == runs[-1][1] + 1:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    if 2 * len(runs) > len(rows):
        return "json_each(?3) CROSS JOIN vectors ON item = value", json.dumps(sorted(rows))
    within = "item BETWEEN value ->> 0 AND value ->> 1"
    return f"json_each(?3) CROSS JOIN vectors ON {within}", json.dumps(runs)


def _cosines(query: bytes, vectors: Sequence[bytes]) -> list[float]:
    """Return the cosine of each int8 vector to a query of the same length."""
    import numpy as np

    if not vectors:
        return []
    matrix = np.frombuffer(b"".join(vectors), np.int8).reshape(len(vectors), -1).astype(np.float32)
    query_vector = np.frombuffer(query, np.int8).astype(np.float32)
    # Not by BLAS, whose threads cost more than so few products; sums of int8 products are exact.
    dots = np.einsum("ij,j->i", matrix, query_vector).astype(np.float64)
    squares = np.einsum("ij,ij->i", matrix, matrix).astype(np.float64)
    cosines: list[float] = (dots / np.sqrt(squares * float(query_vector @ query_vector))).tolist()
    return cosines


def pack_signs(vectors: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Pack the signs of (n, d) vectors into bytes of shape (n, 8 * ceil(d / 64))."""
    import numpy as np

    packed = np.packbits(vectors > 0, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))


def _sign_distances(bits: NDArray[np.uint8], query: NDArray[np.int8]) -> NDArray[np.int32]:
    """Return how far a query is from each row's signs: the negative of their product, shape (n,).

    The query keeps its components, only the rows are reduced to signs (asymmetric distance: Jegou,
    Douze and Schmid, Product Quantization for Nearest Neighbor Search, 2011, section III): of the
    exact ten nearest of 34,000 texts a shortlist of 200 holds 96 %, by Hamming distance 68 %.  A
    table a byte has the sums of all its 256 patterns.
    """
    import numpy as np

    padded = np.zeros(8 * bits.shape[1], np.int32)
    padded[: len(query)] = query
    patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.int32)
    tables = (1 - 2 * patterns) @ padded.reshape(-1, 8).T  # (256, bytes)
    distances = np.zeros(len(bits), np.int32)
    for table, column in zip(
        np.ascontiguousarray(tables.T), np.ascontiguousarray(bits.T), strict=True
    ):
        distances += table.take(column)
    return distances


def _nearest_first(
    distances: NDArray[np.int32], items: NDArray[np.int64], limit: int
) -> NDArray[np.int64]:
    """Return the indices of the ``limit`` nearest, then the newer, without sorting all of them."""
    import numpy as np

    if len(items) <= limit:
        return np.lexsort((-items, distances))
    worst = np.partition(distances, limit - 1)[limit - 1]
    better = np.flatnonzero(distances < worst)
    equal = np.flatnonzero(distances == worst)
    equal = equal[np.argsort(-items[equal], kind="stable")][: limit - len(better)]
    chosen = np.concatenate([better, equal])
    order: NDArray[np.int64] = chosen[np.lexsort((-items[chosen], distances[chosen]))]
    return order
