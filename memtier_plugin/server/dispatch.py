"""Answer JSON-RPC 2.0 requests of many clients in turn, from one bounded pool of threads."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from memtier_plugin.core import concurrency
from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.results import RunContext
from memtier_plugin.pool import memory_pool
from memtier_plugin.server.methods import METHODS, Methods
from memtier_plugin.server.requests import (
    BadParams,
    Json,
    RefusedRequest,
    check_arguments,
    deadline_of,
    error_answer,
    only_reads,
    parse_body,
)

# -- Run the calls of many clients on a few threads without one delaying another
#
# The next call is taken from the client with the least recent processor time.  A heavy client gets
# one thread at a time while others are present.  A call's expected time counts from its start, or
# many calls started at once would take all threads.

HALF_LIFE: Final = 10.0  # half-life of counted processor time, in seconds
HEAVY: Final = 1.0  # counted processor seconds that make a client heavy
PRESENT: Final = 10.0  # seconds after its last call that a client counts as present
_MOST_CLIENTS: Final = 1024  # clients remembered

T = TypeVar("T")


@dataclass(slots=True)
class _Client(Generic[T]):
    waiting: deque[tuple[Callable[[], T], Future[T], float]] = field(default_factory=deque)
    running: int = 0
    spent: float = 0.0
    seen: float = 0.0  # time of the last update, by `time.monotonic`

    def age(self, now: float) -> None:
        """Decay the counted time."""
        self.spent *= 0.5 ** ((now - self.seen) / HALF_LIFE)
        self.seen = now


class FairQueue(Generic[T]):
    """Runs clients' calls in fair order.

    Args:
        threads: the most concurrent calls.
        waiting: the most pending calls of a client; submitting more blocks.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._most, self._room = threads, waiting
        self._clients: dict[Hashable, _Client[T]] = {}
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self._closed = False

    def submit(self, key: Hashable, call: Callable[[], T], expected: float = 0.0) -> Future[T]:
        """Schedule a call; if cancelled before its turn it never runs.

        Args:
            expected: estimated processor seconds.
        """
        future: Future[T] = Future()
        with self._changed:
            client = self._clients.setdefault(key, _Client())
            client.age(time.monotonic())
            self._changed.wait_for(lambda: len(client.waiting) < self._room or self._closed)
            if self._closed:
                future.cancel()
                return future
            self._clients[key] = self._clients.pop(key, client)  # the one seen last comes last
            client.waiting.append((call, future, expected))
            waiting = sum(len(each.waiting) for each in self._clients.values())
            if self._idle < waiting and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name="memtier-rpc", daemon=True).start()
            self._changed.notify_all()
        return future

    def close(self) -> None:
        """Reject new calls and drop pending ones."""
        with self._changed:
            self._closed = True
            for client in self._clients.values():
                for _, future, _ in client.waiting:
                    future.cancel()
                client.waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._closed or self._next() is not None)
                self._idle -= 1
                client = self._next()
                if client is None:
                    return
                call, future, expected = client.waiting.popleft()
                client.running += 1
                client.spent += expected
                self._changed.notify_all()  # room for another call
            start = time.thread_time()
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(call())
            except BaseException as error:  # belongs to the caller
                future.set_exception(error)
            finally:
                with self._changed:
                    client.running -= 1
                    client.age(time.monotonic())
                    cpu_seconds = time.thread_time() - start
                    client.spent = max(0.0, client.spent - expected) + cpu_seconds
                    self._forget()
                    self._changed.notify_all()

    def _next(self) -> _Client[T] | None:
        """Return the next client to serve; None if no call may run now."""
        now = time.monotonic()
        present = sum(
            bool(c.running or c.waiting) or now - c.seen < PRESENT for c in self._clients.values()
        )

        def may_run(client: _Client[T]) -> bool:
            heavy = client.spent > HEAVY and present > 1
            return bool(client.waiting) and client.running < (1 if heavy else self._most)

        able = [client for client in self._clients.values() if may_run(client)]
        return min(able, key=lambda client: (client.spent, client.running), default=None)

    def _forget(self) -> None:
        for key, client in list(self._clients.items())[: len(self._clients) - _MOST_CLIENTS]:
            if not (client.running or client.waiting):
                del self._clients[key]


# -- Answer JSON-RPC 2.0 requests of any number of clients from one bounded pool of threads
#
# Errors of MemTier have the code -32000 and their class in ``data.error``.

MAX_RUNNING_CALLS: Final = 8
MAX_WAITING_CALLS: Final = 64  # of one client
MAX_PROCESSOR_SECONDS: Final = 20.0  # of one request
SECONDS_A_BYTE: Final = 3e-6  # processor seconds expected for a long request
END_SECONDS: Final = 4.0  # for running calls after a signal to end

_log = logging.getLogger("memtier")


class Dispatcher:
    """Runs requests fairly, and registers their projects for background work.

    Args:
        scheduler: consolidate the projects named by calls.
        most: the most projects in the background; unlimited if None.
    """

    def __init__(self, home: Path, *, scheduler: bool, most: int | None = None) -> None:
        self._most = most
        self.methods = Methods(home, self._serve_project if scheduler else lambda _context: None)
        self._queue: FairQueue[bytes] = FairQueue(MAX_RUNNING_CALLS, MAX_WAITING_CALLS)
        self._over: threading.Timer | None = None
        self._lock = Mutex()
        self._scheduler: Any = None
        self._closed = False
        self._served: dict[RunContext, None] = {}  # least recently used first

    def submit(
        self,
        request: Any,
        methods: Methods,
        is_connected: Callable[[], bool],
        send: Callable[[bytes], object] = lambda _line: None,
    ) -> Future[bytes]:
        """Schedule a request; a notification's answer is empty.

        Args:
            request: its JSON, or the unparsed bytes if it is long.
            is_connected: returns whether the client is still connected.
            send: called with the answer before the call is done.
        """
        at, access, reads = time.monotonic(), methods.access, only_reads(request)

        def work() -> bytes:
            with concurrency.allow(MAX_PROCESSOR_SECONDS, lambda: is_connected() or not reads):
                try:
                    parsed = parse_body(request) if isinstance(request, bytes) else request
                    line = encode(self._answers(parsed, methods, deadline_of(parsed, at)))
                except RefusedRequest as error:
                    line = encode(error.answer)
            send(line)
            return line

        expected = SECONDS_A_BYTE * len(request) if isinstance(request, bytes) else 0.0
        return self._queue.submit(access and access.grant.id, work, expected)

    def answer(self, request: Any, methods: Methods) -> Json | None:
        """Answer one request immediately; a notification (no id) gets no answer."""
        if not isinstance(request, dict):
            return error_answer(None, -32600, "a request must be an object")
        key, method = request.get("id"), request.get("method")
        if isinstance(key, bool) or not isinstance(key, str | int | float | None):
            return error_answer(None, -32600, "an id must be a string, a number or null")
        if request.get("jsonrpc") != "2.0" or not isinstance(method, str):
            return error_answer(key, -32600, 'a request must have "jsonrpc": "2.0" and a method')
        try:
            answer = {"jsonrpc": "2.0", "id": key, "result": _call(methods, method, request)}
        except BadParams as error:
            answer = error_answer(key, error.code, str(error))
        except MemTierError as error:
            answer = error_answer(key, -32000, str(error), type(error).__name__)
        except Exception as error:  # without an answer the client would wait forever
            _log.exception("%s failed", method)
            reason = (
                "see the server's log" if methods.access else str(error)
            )  # an error of its files, for example
            answer = error_answer(
                key, -32603, f"{type(error).__name__}: {reason}", type(error).__name__
            )
        return answer if "id" in request else None

    def close(self) -> None:
        """Stop the queue and the scheduler, and close the memories."""
        with self._lock:
            self._closed = True
            if self._scheduler is not None:
                self._scheduler.ask_to_stop()  # it finishes its job while calls are answered
        self._queue.close()
        with self._lock:
            if self._scheduler is not None:
                self._scheduler.stop()
        memory_pool.close()
        if self._over:
            self._over.cancel()

    def end_soon(self) -> None:
        """Drop pending calls, and exit the process if running ones take too long.

        Acknowledged data is already on disk.
        """
        self._queue.close()
        self._over = threading.Timer(END_SECONDS, os._exit, [0])
        self._over.daemon = True
        self._over.start()

    def _answers(self, request: Any, methods: Methods, until: float) -> Json | list[Json] | None:
        if not isinstance(request, list):
            if time.monotonic() > until:
                return error_answer(
                    request.get("id"), -32000, "too busy: the client's deadline has passed", "Busy"
                )
            return self.answer(request, methods)
        if not request:
            return error_answer(None, -32600, "the batch is empty")
        answers = (self.answer(each, methods) for each in request)
        return [answer for answer in answers if answer is not None] or None

    def _serve_project(self, context: RunContext) -> None:
        """Register a call's project with the scheduler, on a separate thread."""
        served = RunContext(
            agent_id="", project=context.project, home=context.home, workspace=context.workspace
        )
        with self._lock:
            known = room = served in self._served
            if known:
                self._served[served] = self._served.pop(served)
            elif room := self._make_room():
                self._served[served] = None
        if known:
            return
        if self._most is not None:
            with suppress(MemTierError), memory_pool.use(context) as memory:
                memory.synchronise()  # others may have written in the meantime
        if not room:
            return
        threading.Thread(target=self._schedule, args=(served,), daemon=True).start()

    def _make_room(self) -> bool:
        """Drop the least recently used idle project if the limit is reached."""
        if self._most is None or len(self._served) < self._most:
            return True
        for old in self._served:
            with suppress(MemTierError):  # settings became invalid: dropped at a later call
                if self._scheduler and self._scheduler.drop(*memory_pool.locate(old)):
                    del self._served[old]
                    return True
        return False

    def _schedule(self, context: RunContext) -> None:
        from memtier_plugin.daemon import scheduler  # slow to import

        try:
            home, project = memory_pool.locate(context)
            with self._lock:
                if self._closed:
                    return
                self._scheduler = self._scheduler or scheduler.Scheduler(aside=True)
                self._scheduler.add(home, project)
        except MemTierError as error:
            _log.warning("no consolidation: %s", error)


def encode(answer: Json | list[Json] | None) -> bytes:
    """Return an answer as a line of JSON, empty for none."""
    return json.dumps(answer, default=str).encode("ascii") + b"\n" if answer else b""


def _call(methods: Methods, method: str, request: Json) -> Any:
    if method not in METHODS:
        raise BadParams(f"no method {method!r}; there are {', '.join(METHODS)}", code=-32601)
    params = request.get("params", {})
    if methods.access:
        params = methods.access.narrow(method, params)
    function = getattr(methods, method)
    return function(**check_arguments(function, params))
