"""`memtier serve`: JSON-RPC 2.0, one request a line, on a Unix socket, stdin/stdout, and TCP.

Answers come as they are ready, not in the order of the requests. Errors of MemTier have the code
-32000 and their class in ``data.error``.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

import memtier_plugin
from memtier_plugin.core import allowance
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.host import RunContext
from memtier_plugin.core.mutex import Mutex
from memtier_plugin.core.paths import make_home, resolve_home
from memtier_plugin.core.resident_socket import Claim
from memtier_plugin.core.residents import Address
from memtier_plugin.core.stream import FOREVER
from memtier_plugin.pool import memory_pool
from memtier_plugin.server.access import Access
from memtier_plugin.server.fair_queue import FairQueue
from memtier_plugin.server.host_models import HostConnection
from memtier_plugin.server.lines import LineReader
from memtier_plugin.server.methods import METHODS, Methods
from memtier_plugin.server.parameters import BadParams, check_arguments
from memtier_plugin.server.requests import (
    deadline_of,
    error_answer,
    only_reads,
    parse_line,
    read_requests,
    refuse,
)
from memtier_plugin.server.tcp import TcpListener
from memtier_plugin.server.unix_socket import SocketListener

MAX_RUNNING_CALLS: Final = 8
MAX_WAITING_CALLS: Final = 64  # of one client
MAX_PROCESSOR_SECONDS: Final = 20.0  # of one request
SECONDS_A_BYTE: Final = 3e-6  # of the processor, that a long request is expected to take
END_SECONDS: Final = 4.0  # after a signal to end, for the calls that run
MAX_OPEN: Final = 64  # memories that stay open for the next call, with `serve_tcp`
MAX_IN_BACKGROUND: Final = 64  # projects that are followed and consolidated, with `serve_tcp`
MAX_FILES: Final = 8192
_SWITCH_SECONDS: Final = 0.001  # after which a thread of one client lets another's run
_OTHER_FILES: Final = 768  # connections, locks, logs
_CHECK_SECONDS: Final = 5.0  # between two looks whether anybody needs a resident

_log = logging.getLogger("memtier")
_Json = dict[str, Any]


def serve(
    home: str | Path | None, stdin: IO[bytes], stdout: IO[bytes], *, scheduler: bool = True
) -> int:
    """Serve one client until ``stdin`` ends or SIGTERM comes, then finish running calls; return 0.

    Args:
        scheduler: consolidate the projects that calls name, in the background.
    """
    server = _Server(resolve_home(home), scheduler=scheduler)

    def write(line: bytes) -> None:
        stdout.write(line)
        stdout.flush()

    with redirect_stdout(sys.stderr):  # what a plugin prints is not protocol
        with _ended_by_sigterm(server.end_soon) as ending:
            server.attend(stdin, write, ending)
        server.close()
    return 0


def serve_resident(home: Path, claim: Claim, idle_seconds: float, *, scheduler: bool = True) -> int:
    """Serve a home on its socket until a signal, or until nobody needs it any more; return 0.

    Args:
        idle_seconds: for how long there may be no client; 0 is for ever.
        scheduler: as for `serve`.
    """
    server = _Server(home, scheduler=scheduler)
    is_replaced = _watch_version()
    os.chdir(home)  # the folder that it was started in may go
    with _signal_pipe() as wake:
        listener = server.listen(claim)
        used = time.monotonic()
        while not select.select([wake], [], [], min(_CHECK_SECONDS, idle_seconds or FOREVER))[0]:
            if listener.count_clients():
                used = time.monotonic()
            is_idle = idle_seconds and time.monotonic() - used >= idle_seconds
            if is_idle or is_replaced() or not claim.is_current():
                break
        else:
            server.end_soon()  # at a signal
        listener.close()
        server.close()
    return 0


def serve_tcp(
    home: Path,
    address: Address,
    tls: ssl.SSLContext | None,
    announce: Callable[[Address], object],
    claim: Claim | None,
    *,
    scheduler: bool = True,
) -> int:
    """Serve clients with a token, and the home's socket, until SIGTERM or SIGINT; return 0.

    Of many projects those that were used last stay open, and in the background.

    Args:
        announce: called with the address once it is listened on.

    Raises:
        SettingsError, Unsupported: it cannot be listened on, or not without TLS.
    """
    from memtier_plugin.daemon import child

    home = make_home(home)
    child.serves_itself.set()  # or the sessions of a thousand tenants start as many processes
    memory_pool.keep_at_most(_raise_limits())
    sys.setswitchinterval(_SWITCH_SECONDS)
    server = _Server(home, scheduler=scheduler, most=MAX_IN_BACKGROUND)
    with _signal_pipe() as wake:
        clients = TcpListener(
            home,
            address,
            tls,
            lambda reader, write, access: server.attend(reader, write, None, access),
        )
        listener = server.listen(claim) if claim else None
        announce(clients.address)
        select.select([wake], [], [])
    server.end_soon()
    for each in (clients, listener):
        if each:
            each.close()
    server.close()
    return 0


def _watch_version() -> Callable[[], bool]:
    """Return a function that tells whether another version has been installed in our place."""
    file, ours = Path(memtier_plugin.__file__), f'"{memtier_plugin.__version__}"'

    def is_replaced() -> bool:
        try:
            return ours not in file.read_text("utf-8")
        except OSError:
            return True

    return is_replaced if not is_replaced() else lambda: False


def _raise_limits() -> int:
    """Let this process open more files if it may; return how many memories may stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft < most:
        with suppress(OSError, ValueError):  # a system with a limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES
    return max(MAX_RUNNING_CALLS, min(MAX_OPEN, room // (3 * MAX_RUNNING_CALLS)))


class _Ending:
    """Ends the input on SIGTERM, but never in the middle of a call or a line."""

    def __init__(self, prepare: Callable[[], None] = lambda: None) -> None:
        self.requested = False
        self._reading = False
        self._prepare = prepare

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            threading.Thread(target=self._prepare, daemon=True).start()  # no lock in a handler
        if self._reading:
            raise _Terminated

    def readline(self, reader: IO[bytes] | LineReader, limit: int) -> bytes:
        """Read a line; empty after SIGTERM."""
        try:
            self._reading = True
            return b"" if self.requested else reader.readline(limit)
        except _Terminated:
            return b""
        finally:
            self._reading = False


class _Terminated(BaseException):
    """SIGTERM came while waiting for input."""


class _Server:
    """Answers requests of any number of connections from one bounded pool of threads."""

    def __init__(self, home: Path, *, scheduler: bool, most: int | None = None) -> None:
        self._most = most
        self.methods = Methods(home, self._serve_project if scheduler else lambda _context: None)
        self._queue = FairQueue(MAX_RUNNING_CALLS, MAX_WAITING_CALLS)
        self._over: threading.Timer | None = None
        self._lock = Mutex()
        self._scheduler: Any = None
        self._closed = False
        self._served: dict[RunContext, None] = {}  # what was used longest ago comes first

    def listen(self, claim: Claim) -> SocketListener:
        """Attend to the clients of a home's socket, each in a thread."""
        listener = SocketListener(claim, self.attend)
        self.methods.socket = str(listener.path)
        self.methods.count_clients = listener.count_clients
        return listener

    def attend(
        self,
        reader: IO[bytes] | LineReader,
        write: Callable[[bytes], object],
        ending: _Ending | None = None,
        access: Access | None = None,
    ) -> None:
        """Read requests until the input ends; return when all of them are answered.

        Of a client that went away over TCP what it asked to store is stored; the rest is left.

        Args:
            access: what a client over TCP may ask; everything without.
        """
        lock, here, ending = threading.Lock(), True, ending or _Ending()
        running: dict[Future[None], bool] = {}  # whether it only reads

        def send(answer: _Json | list[_Json] | None) -> None:
            nonlocal here
            if answer is None:
                return
            line = json.dumps(answer, default=str).encode("ascii") + b"\n"
            try:
                with lock:
                    write(line)
            except (OSError, ValueError) as error:  # ValueError: a closed file
                _log.info("the client disconnected before its answer: %s", error)
                here = False

        methods = self.methods.restricted(access) if access else self.methods

        def answer(request: Any, at: float) -> None:
            with allowance.allow(MAX_PROCESSOR_SECONDS, lambda: here or not only_reads(request)):
                late = isinstance(request, bytes)
                request = parse_line(request, send) if late else request
                if late and access and request is not None and (no := refuse(request, access)):
                    send(no)
                elif request is not None:
                    send(self._answers(request, methods, deadline_of(request, at)))

        models = self.methods.host_models
        host = None if access else models.attach(send)
        try:
            for request in read_requests(partial(ending.readline, reader), send, bool(access)):
                parsed = not isinstance(request, bytes)
                if parsed and access and (refusal := refuse(request, access)):
                    send(refusal)
                    break
                if parsed and self._take_at_once(request, host, methods, send):
                    continue
                work = partial(answer, request, time.monotonic())
                call = self._queue.submit(access and access.grant.id, work, _expected(request))
                running[call] = only_reads(request)
                call.add_done_callback(lambda done: running.pop(done, None))
        finally:
            if host:
                models.detach(host)  # before the wait: a call may be waiting for this host
        here = access is None and here  # on a pipe or socket of its own a client may only listen
        _drop([call for call, reads in [*running.items()] if ending.requested or reads > here])
        wait(list(running))

    def _take_at_once(
        self,
        request: Any,
        host: HostConnection | None,
        methods: Methods,
        send: Callable[[_Json | None], None],
    ) -> bool:
        """Handle what must not wait for the pool, however busy it is; tell whether it was that."""
        if not isinstance(request, dict):
            return False
        method = request.get("method")
        if method == "ping":
            send(self._answer(request, methods))
        elif host is None:
            return False
        elif method is None and ("result" in request or "error" in request):
            host.settle(request)
        elif method == "offer_model":
            if not host.offer(request.get("params")):
                _log.warning("an offer of a host's model was refused: %.200s", request)
        else:
            return False
        return True

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
        """Drop the calls that wait, and end the process if those that run take too long.

        Nothing that was acknowledged can be lost: it is on the disk.
        """
        self._queue.close()
        self._over = threading.Timer(END_SECONDS, os._exit, [0])
        self._over.daemon = True
        self._over.start()

    def _answers(self, request: Any, methods: Methods, until: float) -> _Json | list[_Json] | None:
        if not isinstance(request, list):
            if time.monotonic() > until:
                return error_answer(
                    request.get("id"), -32000, "too busy: nobody waits any more", "Busy"
                )
            return self._answer(request, methods)
        if not request:
            return error_answer(None, -32600, "an empty batch")
        answers = (self._answer(each, methods) for each in request)
        return [answer for answer in answers if answer is not None] or None

    def _answer(self, request: Any, methods: Methods) -> _Json | None:
        """Answer one request; a notification has no id and gets no answer."""
        if not isinstance(request, dict):
            return error_answer(None, -32600, "a request is an object")
        key, method = request.get("id"), request.get("method")
        if isinstance(key, bool) or not isinstance(key, str | int | float | None):
            return error_answer(None, -32600, "an id is a string, a number or null")
        if request.get("jsonrpc") != "2.0" or not isinstance(method, str):
            return error_answer(key, -32600, 'a request has "jsonrpc": "2.0" and a method')
        try:
            answer = {"jsonrpc": "2.0", "id": key, "result": _call(methods, method, request)}
        except BadParams as error:
            answer = error_answer(key, error.code, str(error))
        except MemTierError as error:
            answer = error_answer(key, -32000, str(error), type(error).__name__)
        except Exception as error:  # a client without an answer would wait forever
            _log.exception("%s failed", method)
            reason = "see the server's log" if methods.access else str(error)  # of its files, say
            answer = error_answer(
                key, -32603, f"{type(error).__name__}: {reason}", type(error).__name__
            )
        return answer if "id" in request else None

    def _serve_project(self, context: RunContext) -> None:
        """Register the project of a call with the scheduler, on a separate thread."""
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
                memory.synchronise()  # others may have written while nobody asked here
        if not room:
            return
        threading.Thread(target=self._schedule, args=(served,), daemon=True).start()

    def _make_room(self) -> bool:
        """Drop what was used longest ago and is at rest, if there are as many as may be served."""
        if self._most is None or len(self._served) < self._most:
            return True
        for old in self._served:
            with suppress(MemTierError):  # settings that are wrong since: it goes at a later call
                if self._scheduler and self._scheduler.drop(*memory_pool.locate(old)):
                    del self._served[old]
                    return True
        return False

    def _schedule(self, context: RunContext) -> None:
        from memtier_plugin.daemon import scheduler  # loading it takes a while

        try:
            home, project = memory_pool.locate(context)
            with self._lock:
                if self._closed:
                    return
                self._scheduler = self._scheduler or scheduler.Scheduler(aside=True)
                self._scheduler.add(home, project)
        except MemTierError as error:
            _log.warning("no consolidation: %s", error)


def _expected(request: Any) -> float:
    """Return the processor seconds that a request may take; a long one is not parsed yet."""
    return SECONDS_A_BYTE * len(request) if isinstance(request, bytes) else 0.0


def _drop(calls: Iterable[Future[None]]) -> None:
    for call in calls:
        call.cancel()


def _call(methods: Methods, method: str, request: _Json) -> Any:
    if method not in METHODS:
        raise BadParams(f"no method {method!r}; there are {', '.join(METHODS)}", code=-32601)
    params = request.get("params", {})
    if methods.access:
        params = methods.access.narrow(method, params)
    function = getattr(methods, method)
    return function(**check_arguments(function, params))


@contextmanager
def _signal_pipe() -> Iterator[int]:
    """Yield a descriptor that can be read once SIGTERM or SIGINT has come.

    Not an event that a handler sets: Python runs handlers in the main thread, and where another
    thread got the signal, nothing wakes that. The byte is written by whichever thread gets it.
    """
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(waker)
    try:
        yield wake
    finally:
        signal.set_wakeup_fd(-1)


@contextmanager
def _ended_by_sigterm(prepare: Callable[[], None]) -> Iterator[_Ending]:
    ending = _Ending(prepare)
    if threading.current_thread() is not threading.main_thread():
        yield ending  # signals are the main thread's
        return
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    before = signal.signal(signal.SIGTERM, ending)
    signal.set_wakeup_fd(waker)
    threading.Thread(target=_insist, args=(wake, ending), daemon=True).start()
    try:
        yield ending
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, before)
        os.close(waker)


def _insist(wake: int, ending: _Ending) -> None:
    """Send SIGTERM again until it is seen: Python misses one that comes just before a read."""
    main = threading.main_thread().ident
    while os.read(wake, 1) and not ending.requested and main is not None:
        time.sleep(0.05)
        if not ending.requested:
            signal.pthread_kill(main, signal.SIGTERM)
    os.close(wake)
