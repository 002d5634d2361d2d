"""Vectors in the index: compared exactly, above a size after a shortlist by their signs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index import vectors as index_vectors
from memtier_plugin.storage.index.connection import connect
from memtier_plugin.storage.index.vectors import IndexVectors, pack_signs

SIZE = 12  # components; not whole bytes, and few enough for ties
ALL = 1_000
Pieces = tuple[int, list[bytes]]  # the scope of a row, and a vector for each piece of it

vectors = st.binary(min_size=SIZE, max_size=SIZE)
queries = vectors.filter(any)
stores = st.dictionaries(
    st.integers(1, 60), st.tuples(st.integers(1, 2), st.lists(vectors, min_size=1, max_size=3))
)
some_scopes = st.sampled_from([(1,), (2,), (1, 2)])


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Open an index without anything in it."""
    with closing(connect(tmp_path_factory.mktemp("index") / "index.sqlite3")) as opened:
        yield opened


@contextmanager
def items(connection: Any, rows: Mapping[int, int]) -> Iterator[IndexVectors]:
    """Have rows in these scopes for as long as this lasts."""
    connection.execute("BEGIN")
    try:
        for scope in {*rows.values()}:
            connection.execute(
                "INSERT INTO scopes(id, agent, sender, entries) VALUES(?, ?, '', ?)",
                (scope, f"agent {scope}", [*rows.values()].count(scope)),
            )
        connection.executemany(
            """INSERT INTO items(row, id, tier, scope, file, line, turn, role, observed, standing,
                                 retrievable, indexed, length, data)
               VALUES(?1, 'e' || ?1, 'episodic', ?2, 1, ?1, 1, 'user', 0.0, 0, 1, 1, 1, x'')""",
            [*rows.items()],
        )
        yield IndexVectors(connection)
    finally:
        connection.execute("ROLLBACK")


@contextmanager
def stored(
    connection: Any, store: Mapping[int, Pieces], model: str = "m"
) -> Iterator[IndexVectors]:
    """Have these rows with their vectors, put in at once."""
    with items(connection, {row: scope for row, (scope, _) in store.items()}) as index:
        index.put(model, {row: pieces for row, (_, pieces) in store.items()})
        yield index


def scan(
    store: Mapping[int, Pieces], scopes: tuple[int, ...], query: bytes, cap: int, limit: int
) -> tuple[list[int], int]:
    """Compare a query with the newest pieces one by one, as `shortlist` says that it does."""
    candidates = [
        (row, np.frombuffer(piece, np.int8))
        for row in sorted(store, reverse=True)
        for piece in store[row][1]
        if store[row][0] in scopes and any(piece)
    ]
    oldest = (
        candidates[min(cap, len(candidates)) - 1][0] if candidates else 0
    )  # never but a part of a row
    candidates = [(row, vector) for row, vector in candidates if row >= oldest]
    asked = np.frombuffer(query, np.int8).astype(int)
    order = sorted((-int(asked @ np.where(vector > 0, 1, -1)), -row) for row, vector in candidates)
    return [*dict.fromkeys(-row for _, row in order[:limit])], len(candidates)


def cosine(first: bytes, other: bytes) -> float:
    """Return the cosine of two int8 vectors."""
    a, b = (np.frombuffer(blob, np.int8).astype(float) for blob in (first, other))
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def rows_with_signs(connection: Any) -> set[int]:
    """Return the rows whose signs are kept in some segment."""
    blobs = connection.execute("SELECT items FROM vector_signs").fetchall()
    return {int(row) for (blob,) in blobs for row in np.frombuffer(blob, "<i8")}


# -- finding --------------------------------------------------------------------------------------


@given(runs=st.lists(st.integers(1, 12), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_rows_written_together_are_read_together(
    connection: Any, runs: list[int], seed: int
) -> None:
    """Whether a scope's rows lie in runs or one by one, the same are compared, and no other's."""
    noise = random.Random(seed)
    store: dict[int, Pieces] = {}
    for size in runs:  # each run of the scope between many rows of another one
        for scope, count in ((1, size), (2, 30)):
            for _ in range(count):
                store[len(store) + 1] = scope, [noise.randbytes(SIZE)]
    with stored(connection, store) as index:
        query = noise.randbytes(SIZE)
        near, compared = index.nearest("m", (1,), query, ALL, ALL)
        assert compared == sum(runs)
        assert near == pytest.approx(nearest_by_hand(store, (1,), query, ALL), abs=1e-6)


@given(
    store=stores,
    query=queries,
    scopes=some_scopes,
    cap=st.integers(1, 100),
    limit=st.integers(1, 40),
)
def test_the_shortlist_is_an_exact_scan_of_signs(
    connection: Any,
    store: dict[int, Pieces],
    query: bytes,
    scopes: tuple[int, ...],
    cap: int,
    limit: int,
) -> None:
    """The rows that agree in most signs come first, the newest of equals, of the newest pieces."""
    with stored(connection, store) as index:
        assert index.shortlist("m", scopes, query, cap, limit) == scan(
            store, scopes, query, cap, limit
        )


def nearest_by_hand(
    store: Mapping[int, Pieces], scopes: tuple[int, ...], query: bytes, limit: int
) -> dict[int, float]:
    """Compare a query exactly with every piece of some scopes, one by one."""
    candidates = [
        (cosine(piece, query), row)
        for row, (scope, pieces) in store.items()
        for piece in pieces
        if scope in scopes and any(piece)
    ]
    best: dict[int, float] = {}
    for value, row in sorted(candidates, reverse=True)[:limit]:
        best.setdefault(row, max(0.0, value))
    return best


@given(store=stores, query=queries, scopes=some_scopes, limit=st.integers(1, 40))
def test_nearest_compares_every_piece(
    connection: Any, store: dict[int, Pieces], query: bytes, scopes: tuple[int, ...], limit: int
) -> None:
    """Up to a size the nearest are the exact ones, whichever scopes share the table."""
    with stored(connection, store) as index:
        near, compared = index.nearest("m", scopes, query, ALL, limit)
        by_hand = nearest_by_hand(store, scopes, query, limit)
        assert sorted(near.values(), reverse=True) == [*near.values()]
        assert sorted(near.values()) == pytest.approx(sorted(by_hand.values()), abs=1e-6)
        assert near == pytest.approx(index.similarity("m", query, near), abs=1e-6)
        inside = [pieces for scope, pieces in store.values() if scope in scopes]
        assert compared == sum(any(piece) for pieces in inside for piece in pieces)


@given(
    store=stores,
    query=queries,
    scopes=some_scopes,
    cap=st.integers(1, 100),
    limit=st.integers(1, 40),
)
def test_above_a_size_the_shortlist_is_compared(
    connection: Any,
    store: dict[int, Pieces],
    query: bytes,
    scopes: tuple[int, ...],
    cap: int,
    limit: int,
) -> None:
    """Where more is stored than is compared one by one, the shortlist is put in exact order."""
    with pytest.MonkeyPatch.context() as patch, stored(connection, store) as index:
        patch.setattr(index_vectors, "EXACT_PIECES", 0)
        rows, compared = index.shortlist("m", scopes, query, cap, limit)
        assert index.nearest("m", scopes, query, cap, limit) == (
            index.similarity("m", query, rows),
            compared,
        )


@given(
    store=stores,
    query=queries,
    scopes=some_scopes,
    cap=st.integers(1, 100),
    segment=st.integers(1, 8),
    chance=st.randoms(use_true_random=False),
)
def test_how_the_segments_came_about_does_not_matter(
    connection: Any,
    store: dict[int, Pieces],
    query: bytes,
    scopes: tuple[int, ...],
    cap: int,
    segment: int,
    chance: random.Random,
) -> None:
    """Whatever the order and the batches, with rows dropped and put again, the same is found."""
    waiting = [*store]
    chance.shuffle(waiting)
    again = waiting[::3]
    with (
        pytest.MonkeyPatch.context() as patch,
        items(connection, {row: scope for row, (scope, _) in store.items()}) as index,
    ):
        patch.setattr(index_vectors, "SEGMENT", segment)
        while waiting:
            batch = [waiting.pop() for _ in range(min(len(waiting), chance.randint(1, 6)))]
            index.put("m", {row: store[row][1] for row in batch})
            if again and again[-1] not in waiting:
                index.drop(row := again.pop(), store[row][0])
                waiting.insert(0, row)
        shortlist = index.shortlist("m", scopes, query, cap, 20)
        assert shortlist == scan(store, scopes, query, cap, 20)
        assert index.count_covered("m", (1, 2)) == (len(store), len(store))


@given(store=stores, chance=st.randoms(use_true_random=False), segment=st.integers(1, 8))
def test_what_is_dropped_is_gone(
    connection: Any, store: dict[int, Pieces], chance: random.Random, segment: int
) -> None:
    """Neither the vectors nor the signs of a dropped row are kept, and no other row's are lost."""
    dropped = {row for row in store if chance.random() < 0.5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_vectors, "SEGMENT", segment)
        with stored(connection, store) as index:
            for row in dropped:
                index.drop(row, store[row][0])
            left = {row: store[row] for row in store if row not in dropped}
            nonzero = {row for row, (_, pieces) in left.items() if any(map(any, pieces))}
            assert rows_with_signs(connection) == nonzero
            assert set(index.similarity("m", b"\1" * SIZE, store)) == set(left)
            assert index.count_covered("m", (1, 2)) == (len(left), len(store))


@given(st.lists(st.binary(min_size=1, max_size=1), min_size=1, max_size=200), st.booleans())
def test_signs_are_padded(components: list[bytes], many: bool) -> None:
    """Each component is one bit, set above zero, in whole words of 64 bits."""
    vector = np.frombuffer(b"".join(components), np.int8)
    packed = pack_signs(np.stack([vector] * (2 if many else 1)))
    assert packed.shape == (2 if many else 1, -(-len(vector) // 64) * 8)
    bits = np.unpackbits(packed[-1])
    assert bits[: len(vector)].tolist() == (vector > 0).tolist()
    assert not bits[len(vector) :].any()


def test_the_shortlist_holds_the_nearest(connection: Any) -> None:
    """Of 4,000 vectors of 24 hidden dimensions 100 by signs hold 95 % of the exact ten."""
    chance = np.random.default_rng(5)
    basis = chance.normal(size=(24, 192)) / 5

    def draw(count: int) -> NDArray[np.int8]:
        drawn = chance.normal(size=(count, 24)) @ basis + 0.6 * chance.normal(size=(count, 192))
        return np.clip(20 * drawn, -127, 127).astype(np.int8)

    vectors = draw(4_000)
    lengths = np.linalg.norm(vectors.astype(float), axis=1)
    store: dict[int, Pieces] = {row: (1, [v.tobytes()]) for row, v in enumerate(vectors)}
    kept = 0
    with stored(connection, store) as index:
        for query in draw(20):
            shortlist, _ = index.shortlist("m", (1,), query.tobytes(), len(store), 100)
            cosines = vectors.astype(float) @ query.astype(float) / lengths
            kept += len({*np.argsort(-cosines)[:10].tolist()} & {*shortlist})
    assert kept >= 0.95 * 200


# -- comparing ------------------------------------------------------------------------------------


@given(store=stores, query=queries)
def test_likeness_is_that_of_the_nearest_piece(
    connection: Any, store: dict[int, Pieces], query: bytes
) -> None:
    """A row is as near as its nearest piece by the exact cosine, and never less than nothing."""
    with stored(connection, store) as index:
        similarities = index.similarity("m", query, [*store, 999])
        assert similarities == pytest.approx(
            {
                row: max([0.0, *(cosine(piece, query) for piece in pieces if any(piece))])
                for row, (_, pieces) in store.items()
            },
            abs=1e-6,
        )
        for row, value in similarities.items():  # whatever else is compared
            assert index.similarity("m", query, [row]) == {row: value}


@given(store=stores, other=stores, query=queries)
def test_models_are_apart(
    connection: Any, store: dict[int, Pieces], other: dict[int, Pieces], query: bytes
) -> None:
    """The vectors of another model change nothing, and where there are none nothing is found."""
    with stored(connection, store) as index:
        rows = {row: pieces for row, (_, pieces) in zip(store, other.values(), strict=False)}
        assume(rows)
        index.put("other", rows)
        assert index.shortlist("m", (1, 2), query, ALL, ALL) == scan(store, (1, 2), query, ALL, ALL)
        theirs = {row: (store[row][0], pieces) for row, pieces in rows.items()}
        assert index.shortlist("other", (1, 2), query, ALL, ALL) == scan(
            theirs, (1, 2), query, ALL, ALL
        )
        assert set(index.similarity("other", query, store)) == set(rows)
        assert index.shortlist("third", (1, 2), query, ALL, ALL) == ([], 0)
        assert index.similarity("third", query, store) == {}
        assert index.nearest("third", (1, 2), query, ALL, ALL) == ({}, 0)


@pytest.mark.parametrize("size", [1, 8, 128])
def test_another_length_is_never_compared(connection: Any, size: int) -> None:
    """Vectors of another length than the query's are like nothing, whatever the model's name."""
    with stored(connection, {row: (1, [b"\1" * 64]) for row in range(1, 9)}) as index:
        assert index.similarity("m", b"\1" * size, [1, 2]) == {1: 0.0, 2: 0.0}
        if size > 64:
            assert index.shortlist("m", (1,), b"\1" * size, ALL, ALL) == ([], 0)
        assert index.nearest("m", (1,), b"\1" * size, ALL, ALL) == ({}, 8)


def test_what_the_model_does_not_know(connection: Any) -> None:
    """A vector of zeros says that a row is done; it is like nothing and found by nothing."""
    with stored(connection, {1: (1, [bytes(SIZE)]), 2: (1, []), 3: (1, [b"\1" * SIZE])}) as index:
        assert index.shortlist("m", (1,), b"\1" * SIZE, ALL, ALL) == ([3], 1)
        assert index.nearest("m", (1,), b"\1" * SIZE, ALL, ALL) == ({3: pytest.approx(1.0)}, 1)
        assert index.nearest("m", (1,), bytes(SIZE), ALL, ALL) == ({}, 0)
        similarities = index.similarity("m", b"\1" * SIZE, [1, 2, 3])
        assert similarities == {1: 0.0, 2: 0.0, 3: pytest.approx(1.0)}
        assert index.count_covered("m", (1,)) == (3, 3)


# -- counting -------------------------------------------------------------------------------------


def test_put_keeps_what_is_there(connection: Any) -> None:
    """A row that has vectors of the model keeps them; one that cannot be found gets none."""
    with stored(connection, {1: (1, [b"\1" * SIZE]), 2: (1, [b"\1" * SIZE])}) as index:
        connection.execute("UPDATE items SET indexed = 0 WHERE row = 2")
        index.drop(2, 1)
        index.put("m", {row: [b"\xff" * SIZE] for row in (1, 2, 3)})
        assert index.similarity("m", b"\1" * SIZE, (1, 2, 3)) == {1: pytest.approx(1.0)}
        assert index.count_covered("m", (1,)) == (1, 2)


@pytest.mark.parametrize(("done", "enough"), [(0, False), (94, False), (95, True), (100, True)])
def test_a_half_made_model_is_known_as_such(connection: Any, done: int, enough: bool) -> None:
    """A model is used when 95 of 100 items have its vectors, counted in the scopes that are asked.

    Where there is no item, none is missing.
    """
    rows = dict.fromkeys(range(1, 101), 1) | dict.fromkeys(range(101, 201), 2)
    with items(connection, rows) as index:
        index.put("m", {row: [b"\1" * SIZE] for row in range(1, done + 1)})
        assert index.count_covered("m", (1,)) == (done, 100)
        assert index.is_covered("m", (1,)) is enough
        assert index.count_covered("m", (1, 2)) == (done, 200)
        assert not index.is_covered("m", (1, 2))
        assert not index.is_covered("other", (1,))
        assert index.is_covered("m", (7,))


# -- in a memory ----------------------------------------------------------------------------------


def test_forgotten_lines_leave_no_vector(home: Path) -> None:
    """What is forgotten has neither vectors nor signs in the index, and is not found by meaning."""
    with MemTier.open(home) as memory:
        retained, forgotten = (
            memory.record([{"role": "user", "content": text}], session_id=text)[0]
            for text in ("Prices of shares fell.", "My dog had puppies.")
        )
        connection = memory.store.index.connection()
        assert len(rows_with_signs(connection)) == 2
        assert [hit.id for hit in memory.recall("newborn canine litter").hits] == [forgotten.id]
        memory.forget(ids=[forgotten.id])
        memory.catch_up()
        [row] = memory.store.reader().rows_of([retained.id]).values()
        assert rows_with_signs(connection) == {row}
        assert connection.execute("SELECT DISTINCT item FROM vectors").fetchall() == [(row,)]
        assert forgotten.id not in {hit.id for hit in memory.recall("newborn canine litter").hits}


def test_agents_and_senders_are_apart_by_meaning(home: Path) -> None:
    """What is found by its meaning alone is of the asker's own agent and sender, like all else."""
    text = [{"role": "user", "content": "My dog had puppies."}]
    with MemTier.open(home, agent_id="a") as first, MemTier.open(home, agent_id="b") as other:
        ids = {}
        for memory, sender in product((first, other), ("ann", None)):
            [entry] = memory.record(text, session_id="s", sender=sender)
            ids[memory.agent_id, sender] = entry.id
        for (agent, sender), own in ids.items():
            asking = first if agent == "a" else other
            recall = asking.recall("newborn canine litter", sender=sender)
            assert ([hit.id for hit in recall.hits], recall.vectors) == ([own], 1)


def test_a_rebuild_finds_the_same_by_meaning(home: Path) -> None:
    """An index whose vectors came one by one, with one forgotten, answers as one built at once."""
    lines = ["My dog had puppies.", "Prices of shares fell.", "The cat caught a mouse.", "Puppies!"]
    queries = ("newborn canine litter", "stock market", "kitten")
    with MemTier.open(home) as memory:
        entries = [
            memory.record([{"role": "user", "content": text}], session_id=text)[0] for text in lines
        ]
        memory.forget(ids=[entries[0].id])
        at = entries[-1].timestamp

        def answers() -> list[list[Any]]:
            recalls = [memory.recall(query, at=at) for query in queries]
            return [[(hit.id, hit.score, hit.signals) for hit in recall.hits] for recall in recalls]

        before = answers()
        memory.reindex()
        memory.catch_up()
        assert answers() == before
        assert all(before)
