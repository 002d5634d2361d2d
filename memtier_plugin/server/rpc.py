"""`memtier serve`: JSON-RPC 2.0, one request a line, on stdin/stdout, a Unix socket, and TCP.

Answers come as they are ready, not in the order of the requests. Errors of MemTier have the code
-32000 and their class in ``data.error``.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.host import RunContext
from memtier_plugin.core.mutex import Mutex
from memtier_plugin.core.paths import make_home, resolve_home
from memtier_plugin.core.residents import Address
from memtier_plugin.core.stream import FOREVER
from memtier_plugin.pool import memory_pool
from memtier_plugin.server.access import Access
from memtier_plugin.server.host_models import HostConnection
from memtier_plugin.server.lines import LineReader
from memtier_plugin.server.methods import METHODS, Methods
from memtier_plugin.server.parameters import BadParams, check_arguments, is_deeper
from memtier_plugin.server.tcp import TcpListener
from memtier_plugin.server.unix_socket import SocketListener

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_RUNNING_CALLS: Final = 8
MAX_WAITING_CALLS: Final = 64
MAX_DEPTH: Final = 100  # of a client's JSON
MAX_OPEN: Final = 64  # memories that stay open for the next call, with `serve_tcp`
MAX_IN_BACKGROUND: Final = 64  # projects that are followed and consolidated, with `serve_tcp`
MAX_FILES: Final = 8192
_OTHER_FILES: Final = 768  # connections, locks, logs

_log = logging.getLogger("memtier")
_Json = dict[str, Any]


def serve(
    home: str | Path | None,
    stdin: IO[bytes],
    stdout: IO[bytes],
    socket: bool = True,
    scheduler: bool = True,
) -> int:
    """Serve until ``stdin`` ends or SIGTERM comes, then finish running calls and return 0.

    Without a usable socket (another server holds it) only stdin and stdout are served. With
    ``scheduler`` the projects that calls name are consolidated in the background.
    """
    home = resolve_home(home)
    server = _Server(home, scheduler=scheduler)
    listener = _listen(home, server) if socket else None
    server.methods.socket = str(listener.path) if listener else None

    def write(line: bytes) -> None:
        stdout.write(line)
        stdout.flush()

    with redirect_stdout(sys.stderr):  # what a plugin prints is not protocol
        with _ended_by_sigterm() as ending:
            server.attend(stdin, write, ending)
        if listener:
            listener.close()
        server.close()
    return 0


def serve_tcp(
    home: str | Path | None,
    address: Address,
    tls: ssl.SSLContext | None,
    announce: Callable[[Address], object],
    *,
    socket: bool = True,
    scheduler: bool = True,
) -> int:
    """Serve clients with a token, and the Unix socket, until SIGTERM or SIGINT; return 0.

    Of many projects those that were used last stay open, and in the background.

    Args:
        announce: called with the address once it is listened on.

    Raises:
        SettingsError, Unsupported: it cannot be listened on, or not without TLS.
    """
    from memtier_plugin.daemon import child

    home = make_home(resolve_home(home))
    child.serves_itself.set()  # or the sessions of a thousand tenants start as many processes
    memory_pool.keep_at_most(_raise_limits())
    server = _Server(home, scheduler=scheduler, most=MAX_IN_BACKGROUND)
    # Not an event that a handler sets: Python runs handlers in the main thread, and where another
    # thread got the signal, nothing wakes that. The byte is written by whichever thread gets it.
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(waker)
    clients = TcpListener(
        home, address, tls, lambda reader, write, access: server.attend(reader, write, None, access)
    )
    listener = _listen(home, server) if socket else None
    server.methods.socket = str(listener.path) if listener else None
    announce(clients.address)
    os.read(wake, 1)
    signal.set_wakeup_fd(-1)
    for each in (clients, listener):
        if each:
            each.close()
    server.close()
    return 0


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

    def __init__(self) -> None:
        self.requested = False
        self._reading = False

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True
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
        self._pool = ThreadPoolExecutor(MAX_RUNNING_CALLS, thread_name_prefix="memtier-rpc")
        self._room = threading.BoundedSemaphore(MAX_WAITING_CALLS)
        self._lock = Mutex()
        self._scheduler: Any = None
        self._closed = False
        self._served: dict[RunContext, None] = {}  # what was used longest ago comes first

    def attend(
        self,
        reader: IO[bytes] | LineReader,
        write: Callable[[bytes], object],
        ending: _Ending | None = None,
        access: Access | None = None,
    ) -> None:
        """Read requests until the input ends; return when all of them are answered.

        Args:
            access: what a client over TCP may ask; everything without.
        """
        lock = threading.Lock()
        running: set[Future[None]] = set()
        ending = ending or _Ending()

        def send(answer: _Json | list[_Json] | None) -> None:
            if answer is None:
                return
            line = json.dumps(answer, default=str).encode("ascii") + b"\n"
            try:
                with lock:
                    write(line)
            except (OSError, ValueError) as error:  # ValueError: a closed file
                _log.info("the client disconnected before its answer: %s", error)

        methods = self.methods.restricted(access) if access else self.methods

        def answer(request: Any, until: float) -> None:
            send(self._answers(request, methods, until))

        def done(call: Future[None]) -> None:
            running.discard(call)
            self._room.release()

        models = self.methods.host_models
        host = None if access else models.attach(send)
        try:
            for request in _requests(reader, ending, send):
                if access and (refusal := _refuse(request, access)):
                    send(refusal)
                    break
                if self._take_at_once(request, host, methods, send):
                    continue
                until = _deadline(request)
                self._room.acquire()
                call = self._pool.submit(answer, request, until)
                running.add(call)
                call.add_done_callback(done)
        finally:
            if host:
                models.detach(host)  # before the wait: a call may be waiting for this host
        if ending.requested:
            for call in list(running):
                call.cancel()
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
        """Stop the pool and the scheduler, and close the memories."""
        with self._lock:
            self._closed = True
            if self._scheduler is not None:
                self._scheduler.ask_to_stop()  # it finishes its job while calls are answered
        self._pool.shutdown()
        with self._lock:
            if self._scheduler is not None:
                self._scheduler.stop()
        memory_pool.close()

    def _answers(self, request: Any, methods: Methods, until: float) -> _Json | list[_Json] | None:
        if not isinstance(request, list):
            if time.monotonic() > until:
                return _error(request.get("id"), -32000, "too busy: nobody waits any more", "Busy")
            return self._answer(request, methods)
        if not request:
            return _error(None, -32600, "an empty batch")
        answers = (self._answer(each, methods) for each in request)
        return [answer for answer in answers if answer is not None] or None

    def _answer(self, request: Any, methods: Methods) -> _Json | None:
        """Answer one request; a notification has no id and gets no answer."""
        if not isinstance(request, dict):
            return _error(None, -32600, "a request is an object")
        key, method = request.get("id"), request.get("method")
        if isinstance(key, bool) or not isinstance(key, str | int | float | None):
            return _error(None, -32600, "an id is a string, a number or null")
        if request.get("jsonrpc") != "2.0" or not isinstance(method, str):
            return _error(key, -32600, 'a request has "jsonrpc": "2.0" and a method')
        try:
            answer = {"jsonrpc": "2.0", "id": key, "result": _call(methods, method, request)}
        except BadParams as error:
            answer = _error(key, error.code, str(error))
        except MemTierError as error:
            answer = _error(key, -32000, str(error), type(error).__name__)
        except Exception as error:  # a client without an answer would wait forever
            _log.exception("%s failed", method)
            reason = "see the server's log" if methods.access else str(error)  # of its files, say
            answer = _error(key, -32603, f"{type(error).__name__}: {reason}", type(error).__name__)
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


def _call(methods: Methods, method: str, request: _Json) -> Any:
    if method not in METHODS:
        raise BadParams(f"no method {method!r}; there are {', '.join(METHODS)}", code=-32601)
    params = request.get("params", {})
    if methods.access:
        params = methods.access.narrow(method, params)
    function = getattr(methods, method)
    return function(**check_arguments(function, params))


def _refuse(request: Any, access: Access) -> _Json | None:
    """Return the answer after which a client's connection ends, or None for a fit request."""
    key = request.get("id") if isinstance(request, dict) else None
    key = key if isinstance(key, str | int) else None
    if not access.holds(access.grant):
        return _error(key, -32001, "the token was revoked or has expired", "NotGranted")
    if isinstance(request, list):
        return _error(None, -32600, "no batches over TCP: send a request a line")
    if is_deeper(request, MAX_DEPTH):
        return _error(key, -32600, f"the request is nested more than {MAX_DEPTH} deep")
    return None


def _deadline(request: Any) -> float:
    """Return until when a client waits, by `time.monotonic`; the request may say for how long."""
    seconds = request.get("seconds") if isinstance(request, dict) else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return FOREVER
    return time.monotonic() + seconds


def _listen(home: Path, server: _Server) -> SocketListener | None:
    try:
        return SocketListener(home, server.attend)
    except (MemTierError, OSError) as error:
        _log.warning("no socket: %s", error)
        return None


@contextmanager
def _ended_by_sigterm() -> Iterator[_Ending]:
    ending = _Ending()
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


def _requests(
    reader: IO[bytes] | LineReader, ending: _Ending, send: Callable[[_Json], None]
) -> Iterator[Any]:
    """Yield the JSON of each line; answer a line that is none with an error."""
    for line in _lines(reader, ending):
        if line is None:
            send(_error(None, -32600, f"a line is longer than {MAX_LINE_BYTES} bytes"))
            continue
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            send(_error(None, -32700, f"not JSON: {error}"))
            continue
        yield request


def _lines(reader: IO[bytes] | LineReader, ending: _Ending) -> Iterator[bytes | None]:
    """Yield the lines that are not blank, and None for one that is too long."""
    while line := ending.readline(reader, MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = ending.readline(reader, MAX_LINE_BYTES)
            yield None
        elif line.strip():
            yield line


def _error(key: Any, code: int, message: str, kind: str | None = None) -> _Json:
    error: _Json = {"code": code, "message": message}
    if kind:
        error["data"] = {"error": kind}
    return {"jsonrpc": "2.0", "id": key, "error": error}
