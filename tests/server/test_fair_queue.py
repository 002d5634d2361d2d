"""Whose turn it is among the calls of many clients, and what is done for nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from memtier_plugin.core import concurrency
from memtier_plugin.core.errors import Exhausted
from memtier_plugin.server import dispatch
from memtier_plugin.server.dispatch import FairQueue
from tests.processes import PATIENCE


def burn(seconds: float) -> None:
    """Take processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def most_at_once(queue: FairQueue, who: str, expected: float = 0.0) -> int:
    """Have eight calls of a client run, and return how many of them ran at once."""
    lock, running, most = threading.Lock(), 0, 0

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    for call in [queue.submit(who, count, expected) for _ in range(8)]:
        call.result(PATIENCE)
    return most


def test_who_took_least_comes_first() -> None:
    """A client that asks once is served before the many calls that another has waiting."""
    queue, order, gate = FairQueue(1, 64), [], threading.Event()
    first = queue.submit("many", gate.wait)
    calls = [queue.submit("many", lambda n=n: order.append(n)) for n in range(10)]  # type: ignore[misc]
    last = queue.submit("one", lambda: order.append(-1))
    gate.set()
    for call in (first, *calls, last):
        call.result(PATIENCE)
    assert order[0] == -1
    assert order[1:] == [*range(10)]
    queue.close()


def test_a_heavy_client_has_one_thread_while_others_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who took much processor time leaves the other threads free; alone it has them all."""
    monkeypatch.setattr(dispatch, "HEAVY", 0.0001)
    queue = FairQueue(4, 64)
    queue.submit("heavy", lambda: burn(0.1)).result(PATIENCE)
    assert most_at_once(queue, "heavy") > 1
    queue.submit("other", lambda: None).result(PATIENCE)
    assert most_at_once(queue, "heavy") == 1
    queue.close()


def test_what_is_expected_counts_from_the_start() -> None:
    """Calls that are likely to take long run one at a time beside others, begun at once or not."""
    queue = FairQueue(4, 64)
    queue.submit("other", lambda: None).result(PATIENCE)
    assert most_at_once(queue, "heavy", 2.0) == 1
    queue.close()


def test_one_client_fills_its_own_queue_only() -> None:
    """Who submits more than may wait waits; another does not."""
    queue, gate = FairQueue(1, 2), threading.Event()
    queue.submit("many", gate.wait)

    def fill() -> None:
        for _ in range(9):
            queue.submit("many", lambda: None)

    filling = threading.Thread(target=fill, daemon=True)
    filling.start()
    other = queue.submit("one", lambda: None)
    assert filling.is_alive()
    gate.set()
    other.result(PATIENCE)
    filling.join(PATIENCE)
    assert not filling.is_alive()
    queue.close()


def test_what_waits_at_the_end_is_dropped() -> None:
    """A queue that closes runs no call that waited; the one that runs is not waited for."""
    queue, gate, ran = FairQueue(1, 64), threading.Event(), []
    running = queue.submit("a", gate.wait)
    waiting = queue.submit("a", lambda: ran.append(1))
    while not running.running():
        time.sleep(0.001)
    queue.close()
    assert waiting.cancelled()
    assert queue.submit("a", lambda: ran.append(2)).cancelled()
    gate.set()
    running.result(PATIENCE)
    assert not ran


@pytest.mark.parametrize("is_wanted", [lambda: False, None])
def test_an_allowance_ends_work(is_wanted: Callable[[], bool] | None) -> None:
    """Work ends at the next look once its processor time is spent, or its answer is not wanted."""
    concurrency.require()
    with concurrency.allow(0.01, is_wanted):
        burn(0.02)
        with pytest.raises(Exhausted):
            concurrency.require()
    concurrency.require()
