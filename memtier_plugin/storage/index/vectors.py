"""Vectors in the index: whole ones to compare exactly, and their signs to find them by.

An item has one vector for each piece of its text and each model.  Up to `EXACT_PIECES` a query is
compared with every piece of an asker.  Beyond, the signs of the vectors' components (one bit each),
which are kept in segments of a scope, make a shortlist by a few reads of packed bits, and only that
is compared exactly.  What is found does not depend on how the segments came about.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.storage.index.sqlite_vec import execute_with_vec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COVERED_SHARE: Final = 0.95  # of the items must have vectors of a model before it is used at all
EXACT_PIECES: Final = 10_000  # up to which every piece of the scopes asked for is compared
SEGMENT: Final = 256  # pieces whose signs are kept, read and written together

Vectors = Mapping[int, Sequence[bytes]]  # of each row, one int8 vector for each piece


class IndexVectors:
    """The vectors of one project's index, on one thread's connection."""

    def __init__(self, connection: Any) -> None:
        self._db: Any = connection

    # -- in and out ----------------------------------------------------------------------------

    def put(self, model: str, vectors: Vectors) -> None:
        """Keep the vectors of rows that can be found and have none of this model.

        A vector of zeros says that the model knows nothing of the piece: the row counts as done.
        Belongs into a transaction of the caller.
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
        """Forget a row's vectors of every model."""
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
        """Merge rows (in order) into the segments; each holds all pieces between two rows."""
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
        # Cut only between two rows, so that every piece of a row stands in one segment.
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
        """Return how many items of these scopes have vectors of a model, and how many there are."""
        done, items = self._db.execute(
            """SELECT coalesce(sum(embedded.items), 0), coalesce(sum(entries), 0) FROM scopes
               LEFT JOIN embedded ON scope = id AND model = ?
               WHERE id IN (SELECT value FROM json_each(?))""",
            (model, json.dumps(list(scopes))),
        ).fetchone()
        return int(done), int(items)

    def is_covered(self, model: str, scopes: Iterable[int]) -> bool:
        """Tell whether so much is embedded that a model may be used for these scopes."""
        done, items = self.count_covered(model, scopes)
        return done >= COVERED_SHARE * items

    def nearest(
        self, model: str, scopes: Sequence[int], query: bytes, cap: int, limit: int
    ) -> tuple[dict[int, float], int]:
        """Return the rows nearest to a query, each with its cosine, and the pieces compared.

        Up to `EXACT_PIECES` every piece is compared; beyond, only those of the shortlist are.

        Args:
            query: the int8 vector.
            cap: pieces that are compared at most, the newest.
            limit: pieces that are taken; between equals the newest.
        """
        if not any(query):  # words that the model does not know are like nothing
            return {}, 0
        pieces = self._pieces(model, scopes)
        if len(pieces) <= min(cap, EXACT_PIECES):
            return self._scan(model, query, pieces, limit), len(pieces)
        rows, compared = self.shortlist(model, scopes, query, cap, limit)
        near = self.similarity(model, query, rows)
        return {
            row: near[row] for row in sorted(near, key=lambda row: (-near[row], -row))
        }, compared

    def similarity(self, model: str, query: bytes, rows: Collection[int]) -> dict[int, float]:
        """Return the cosine of these rows' nearest piece to a query vector.

        Never below 0, which is also what a row has of which the model knows nothing; one without
        vectors is left out.
        """
        near: dict[int, float] = {}
        # A vector of another length is of a model of the same name; one of zeros has no cosine.
        for row, cosine in execute_with_vec(
            self._db,
            """SELECT item, iif(?4 AND length(vector) = length(?1),
                                1 - vec_distance_cosine(vec_int8(vector), vec_int8(?1)), 0.0)
               FROM vectors WHERE item IN (SELECT value FROM json_each(?2)) AND model = ?3""",
            (query, json.dumps(list(rows)), model, any(query)),
        ):
            near[row] = max(near.get(row, 0.0), cosine)
        return near

    def _pieces(self, model: str, scopes: Sequence[int]) -> array[int]:
        """Return the row of every piece of these scopes that can be compared."""
        pieces = array("q")
        for scope in scopes:
            for (items,) in self._db.execute(
                "SELECT items FROM vector_signs WHERE model = ? AND scope = ?", (model, scope)
            ):
                pieces.frombytes(items)
        return pieces

    def _scan(
        self, model: str, query: bytes, pieces: Sequence[int], limit: int
    ) -> dict[int, float]:
        """Compare a query with every piece of these rows."""
        rows = set(pieces)
        [(total,)] = self._db.execute(
            "SELECT coalesce(sum(length(items)) / 8, 0) FROM vector_signs WHERE model = ?", (model,)
        )
        others = int(total) - len(pieces)
        source, bound = "json_each(?5) CROSS JOIN vectors ON item = value", [json.dumps([*rows])]
        if 4 * others <= len(pieces):
            # Reading the table in order takes half as long as looking up row by row; at worst so
            # many of other scopes come first, which are left out below.
            source, bound = "vectors", []
        distances = execute_with_vec(
            self._db,
            f"""SELECT item, vec_distance_cosine(vec_int8(vector), vec_int8(?1)) AS distance
                FROM {source} WHERE model = ?2 AND length(vector) = ?3
                ORDER BY distance, item DESC LIMIT ?4""",  # noqa: S608
            (query, model, len(query), limit + (0 if bound else others), *bound),
        )
        near: dict[int, float] = {}
        for row, distance in islice((hit for hit in distances if hit[0] in rows), limit):
            near.setdefault(row, max(0.0, 1 - distance))
        return near

    def shortlist(
        self, model: str, scopes: Sequence[int], query: bytes, cap: int, limit: int
    ) -> tuple[list[int], int]:
        """Return the rows whose signs agree most with a query's, and how many were compared.

        Args:
            query: the int8 vector.
            cap: pieces that are compared at most, the newest.
            limit: pieces that are taken; between equals the newest.
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
        if len(items) > cap:  # by row, so that it does not matter how they were cut into segments
            newest = items >= np.partition(items, len(items) - cap)[len(items) - cap]
            items, bits = items[newest], bits[newest]
        query_signs = pack_signs(np.frombuffer(query, np.int8)[None, :])
        if bits.shape[1] != query_signs.shape[1]:
            return [], 0  # a model of the same name and another length: not comparable
        differ = _hamming_distances(bits, query_signs)
        # One number to sort by: agreement first, then the newer row.
        order = np.lexsort((-items, differ)) if len(items) <= limit else _top(differ, items, limit)
        return list(dict.fromkeys(items[order].tolist())), len(items)


def pack_signs(vectors: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Pack the signs of (n, d) vectors into (n, d / 8, rounded up to whole 8) bytes."""
    import numpy as np

    packed = np.packbits(vectors > 0, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))


def _hamming_distances(bits: NDArray[np.uint8], query: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the number of differing signs of each row."""
    import numpy as np

    words = np.ascontiguousarray(bits).view(np.uint64) ^ query.view(np.uint64)
    differ: NDArray[np.int64] = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return differ


def _top(differ: NDArray[np.int64], items: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Return the indices of the ``limit`` best, without sorting all of them."""
    import numpy as np

    worst = np.partition(differ, limit - 1)[limit - 1]
    better = np.flatnonzero(differ < worst)
    equal = np.flatnonzero(differ == worst)
    equal = equal[np.argsort(-items[equal], kind="stable")][: limit - len(better)]
    chosen = np.concatenate([better, equal])
    order: NDArray[np.int64] = chosen[np.lexsort((-items[chosen], differ[chosen]))]
    return order
