"""A server with many users: few descriptors, few threads, and nobody reads another's memory."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memtier_plugin import AsyncMemTier, MemoryPool, MemTier, RunContext, Workers
from memtier_plugin.core.concurrency import Turns
from memtier_plugin.core.errors import Closed, MessageError
from tests.builders import user_message

BOUND = 64
SETTINGS = {"embedding.model": "none", "ledger.durability": "os"}


def user_context(home: Path, number: int) -> RunContext:
    """Return the context of one of many users, each with a project of their own."""
    return RunContext(agent_id="host.main", project=f"user-{number}", home=str(home))


def count_descriptors() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


class Watch:
    """Looks all the time at what a process has open, from a thread of its own."""

    def __init__(self, measure: Callable[[], int]) -> None:
        self._measure = measure
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.before = self.most = measure()

    def _look(self) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, self._measure())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def added(self) -> int:
        """How many more there were at most than before."""
        return self.most - self.before


@pytest.mark.parametrize("users", [80, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_users_in_64_threads(
    home: Path, users: int, record_property: Callable[[str, object], None]
) -> None:
    """Each finds their own line and no other, within 64 descriptors that are all given back.

    Nobody waits much longer than the others: for the slowest twentieth at most three times as
    many are served meanwhile as for the others.
    """
    pool = MemoryPool(BOUND, SETTINGS)
    MemTier.open(home, "user-0").close()
    leaks: list[str] = []
    waits: list[int] = []  # how many others were served meanwhile: the clock is the machine's

    def serve(number: int) -> None:
        before = len(waits)
        with pool.use(user_context(home, number)) as memory:
            message = user_message(f"The badge of the locker is secret{number}x.")
            memory.record([message], session_id="s", run_id="r")
            hits = memory.recall("What is the badge of the locker?").hits
        waits.append(len(waits) - before)
        texts = [hit.text for hit in hits]
        if texts != [f"The badge of the locker is secret{number}x."]:
            leaks.append(f"user {number}: {texts}")

    with Watch(count_descriptors) as watch, ThreadPoolExecutor(64) as threads:
        done = [threads.submit(serve, number) for number in range(users)]
        errors = [error for future in done if (error := future.exception())]
    p95 = sorted(waits)[int(len(waits) * 0.95)]
    figures = {"users": users, "descriptors": watch.added, "p95": p95}
    record_property("pool", figures)
    print(figures)  # noqa: T201 - read with `pytest -s`
    assert (errors, leaks) == ([], [])
    assert watch.added <= BOUND
    assert p95 <= 3 * sum(waits) / len(waits)
    assert count_descriptors() <= watch.before + 1, "what nobody uses has no file open"
    pool.close()


def test_a_pool_that_keeps_a_few_open(home: Path) -> None:
    """What was used longest ago is closed for another, never what is in use; it opens again."""
    pool = MemoryPool(settings=SETTINGS)
    pool.keep_at_most(3)
    with pool.use(user_context(home, 0)) as first:
        for number in (1, 2, 3, 1, 4):
            with pool.use(user_context(home, number)) as memory:
                memory.record([user_message(f"I am {number}.")], session_id="s")
        open_now = sorted(key[1] or "" for key in pool._opened)
        assert open_now == ["user-0", "user-1", "user-4"]
        assert first.record([user_message("I am here.")], session_id="s")
    with pool.use(user_context(home, 2)) as memory:
        assert "I am 2" in memory.recall("who am I?").text
    pool.close()


def test_turns_are_first_come_first_served() -> None:
    """Who has waited longest is next, also when one that leaves comes back at once."""
    turns, order = Turns(1), list[int]()
    queued = threading.Barrier(2)

    def wait(number: int) -> None:
        queued.wait()
        with turns:
            order.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
    with turns:
        for thread in threads:
            thread.start()
            queued.wait()
            time.sleep(0.02)
    with turns:
        order.append(99)
    for thread in threads:
        thread.join()
    assert order == [*range(8), 99]


def test_a_use_within_a_use_does_not_wait_for_itself(home: Path) -> None:
    """A call within a call needs no turn of its own, however few there are."""
    pool = MemoryPool(8, SETTINGS)
    assert pool.calls == 1
    with pool.use(user_context(home, 1)) as outer:
        outer.record([user_message("The kettle is blue.")], session_id="s")
        with pool.use(user_context(home, 1)) as inner:
            assert inner is outer
            assert inner.recall("kettle").hits
        assert outer.recall("kettle").hits
    with pytest.raises(MessageError, match="8 or more"):
        MemoryPool(7)


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Return workers that are closed at the end."""
    shared = Workers(BOUND, SETTINGS)
    yield shared
    shared.close()


def test_async_calls_share_a_few_threads(home: Path, workers: Workers) -> None:
    """Hundreds of awaited calls of many users run on a few threads, within the descriptors."""

    async def serve(number: int) -> list[str]:
        memory = await AsyncMemTier.open(home, f"user-{number}", workers=workers)
        async with memory:
            await memory.record([user_message(f"My key is k{number}y.")], session_id="s")
            recalls = [memory.recall("Which is my key?") for _ in range(3)]
            return [hit.text for recall in await asyncio.gather(*recalls) for hit in recall.hits]

    async def serve_all() -> list[list[str]]:
        return await asyncio.gather(*map(serve, range(40)))

    with Watch(count_descriptors) as files, Watch(threading.active_count) as threads:
        answers = asyncio.run(serve_all())
    assert answers == [[f"My key is k{number}y."] * 3 for number in range(40)]
    assert threads.added <= BOUND // 8 + 1  # and the watch itself
    assert files.added <= BOUND


def test_what_takes_long_holds_up_neither_loop_nor_recalls(home: Path, workers: Workers) -> None:
    """While consolidations run, the loop turns and recalls are answered."""
    release = threading.Event()

    async def scene() -> None:
        memories = [await AsyncMemTier.open(home, f"u{n}", workers=workers) for n in range(4)]
        for memory in memories:
            await memory.record([user_message("The lamp is green.")], session_id="s")
        # The real job asks at each step whether to end: here it waits there.
        slow = [
            asyncio.ensure_future(memory.consolidate(stop=lambda: not release.wait(60)))
            for memory in memories
        ]
        await asyncio.sleep(0.1)
        recalls = await asyncio.gather(*(memory.recall("lamp") for memory in memories))
        assert all(recall.hits for recall in recalls)
        assert not any(job.done() for job in slow)
        release.set()
        await asyncio.gather(*slow)

    asyncio.run(scene())


def test_a_call_that_is_cancelled_in_the_queue_never_runs(home: Path) -> None:
    """Who gives up before the turn has written nothing."""

    async def scene() -> None:
        release = threading.Event()
        workers = Workers(8, SETTINGS)
        memory = await AsyncMemTier.open(home, "p", workers=workers)
        blocked = asyncio.ensure_future(memory._run(lambda _: release.wait(60), slow=False))
        await asyncio.sleep(0.05)
        late = asyncio.ensure_future(memory.record([user_message("Late.")], session_id="s"))
        await asyncio.sleep(0.05)
        late.cancel()
        await asyncio.sleep(0.05)
        release.set()
        await blocked
        assert not (await memory.recall("Late.")).hits
        await asyncio.to_thread(workers.close)

    asyncio.run(scene())


def test_async_errors_and_closing(home: Path) -> None:
    """Errors are those of the synchronous calls; a closed memory says so, its threads end."""
    before = threading.active_count()

    async def scene() -> None:
        async with await AsyncMemTier.open(home, "p", settings=SETTINGS) as memory:
            with pytest.raises(MessageError, match="query"):
                await memory.recall(None)  # type: ignore[arg-type]
            fact = await memory.remember("The well is dry.")
            assert [known.id for known in await memory.facts()] == [fact.id]
        with pytest.raises(Closed):
            await memory.facts()

    asyncio.run(scene())
    assert threading.active_count() == before


def test_repr_of_a_recall_fits_on_a_line(home: Path) -> None:
    """What a debugger or a log shows of a recall is a line, not its hits."""
    with MemTier.open(home, "p", settings=SETTINGS) as memory:
        memory.record([user_message(f"Tale {n}. " * 20) for n in range(9)], session_id="s")
        shown = repr(memory.recall("tale " * 40))
    assert len(shown) < 200 and "9 hits" in shown and "\n" not in shown
