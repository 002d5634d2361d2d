"""`memtier serve`: JSON-RPC 2.0, one request per line on a Unix socket or stdin/stdout, or HTTP.

Answers to lines are sent when ready, not in the order of requests.
"""

from __future__ import annotations

import logging
import os
import resource
import select
import signal
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

import memtier_plugin
from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.paths import make_home, resolve_home
from memtier_plugin.core.residents import Address, SocketClaim
from memtier_plugin.pool import memory_pool
from memtier_plugin.server.dispatch import MAX_RUNNING_CALLS, Dispatcher, encode
from memtier_plugin.server.host_models import HostConnection
from memtier_plugin.server.requests import (
    FOREVER,
    MAX_LINE_BYTES,
    RefusedRequest,
    only_reads,
    parse_request,
)

# -- The Unix socket of `memtier serve`: connections of one user, limited in number, a thread each

MAX_CONNECTIONS: Final = 256
MAX_SILENT: Final = 32  # connections without a request; beyond, the oldest is closed
SEND_SECONDS: Final = 10  # how long a client may stall reading before it is disconnected
REQUEST_SECONDS: Final = 10.0  # time for the first line
_PEEK: Final = 65_536  # longest line, in bytes

_log = logging.getLogger("memtier")

ConnectionHandler = Callable[[IO[bytes], Callable[[bytes], object]], None]


def peer_uid(connection: socket.socket) -> int:
    """Return the user id of the peer of a Unix socket.

    Raises:
        OSError: the system does not provide it.
    """
    if sys.platform == "darwin":
        # struct xucred by LOCAL_PEERCRED at SOL_LOCAL: version, uid, and groups.
        return int(struct.unpack_from("=II", connection.getsockopt(0, 1, 76))[1])
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


class SocketListener:
    """Accepts the same user's connections on a home's socket, passing each to ``attend``."""

    def __init__(self, claim: SocketClaim, attend: ConnectionHandler) -> None:
        self.path = claim.path
        self._claim = claim
        self._attend = attend
        claim.note(ready=True)  # before the first answer, so that clients can rely on it
        self._waker, self._woken = socket.socketpair()
        self._guard = Mutex()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._silent: dict[socket.socket, None] = {}  # without a request so far, oldest first
        self._ended: set[socket.socket] = set()  # closed by us, about to end
        self._thread = threading.Thread(target=self._accept, name="memtier-accept", daemon=True)
        self._thread.start()

    def count_clients(self) -> int:
        """Return the number of open connections."""
        with self._guard:
            return len(self._connections)

    def close(self) -> None:
        """Reject new connections, finish running calls, and remove the socket."""
        self._waker.close()
        self._thread.join()
        self._claim.listening.close()
        self._woken.close()
        with self._guard:
            open_now = dict(self._connections)
        for connection, thread in open_now.items():
            with suppress(OSError):  # the client closed first
                connection.shutdown(socket.SHUT_RD)  # its reader sees the end of input
            thread.join()
        self._claim.end()

    def _accept(self) -> None:
        listening = self._claim.listening
        while True:
            ready, _, _ = select.select([listening, self._woken], [], [])
            if self._woken in ready:
                return
            try:
                connection, _ = listening.accept()
            except OSError as error:  # the client left, or too many files are open
                _log.warning("a connection was not accepted: %s", error)
                select.select([self._woken], [], [], 0.1)
                continue
            if not (_is_same_user(connection) and self._admit(connection)):
                connection.close()

    def _admit(self, connection: socket.socket) -> bool:
        thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
        with self._guard:
            if len(self._silent) >= MAX_SILENT:
                oldest = next(iter(self._silent))
                del self._silent[oldest]
                self._ended.add(oldest)
                with suppress(OSError):  # just closed
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end of input
            if len(self._connections) - len(self._ended) >= MAX_CONNECTIONS:
                _log.warning("a connection was refused: %d are open", MAX_CONNECTIONS)
                return False
            self._connections[connection] = thread
            self._silent[connection] = None
            thread.start()
        return True

    def _serve(self, connection: socket.socket) -> None:
        timeout = struct.pack("ll", SEND_SECONDS, 0)
        try:
            with connection, connection.makefile("rb") as reader:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
                in_time = _wait_for_request(connection)
                with self._guard:
                    self._silent.pop(connection, None)
                if in_time:
                    self._attend(reader, connection.sendall)
                else:
                    _log.warning("closed a connection without a request in %g s", REQUEST_SECONDS)
        except OSError as error:
            _log.info("a connection broke: %s", error)
        finally:
            with self._guard:
                self._silent.pop(connection, None)
                self._ended.discard(connection)
                del self._connections[connection]


def _is_same_user(connection: socket.socket) -> bool:
    """Return whether a connection is from the home's user."""
    try:
        user = peer_uid(connection)
    except OSError as error:
        _log.warning("a connection was refused: its user is unknown (%s)", error)
        return False
    if user != os.geteuid():
        _log.warning("a connection of user %d was refused", user)
        return False
    return True


def _wait_for_request(connection: socket.socket) -> bool:
    """Wait for a complete line or the end of input; return whether either came in time."""
    poll = select.poll()  # select() is limited to descriptors below 1,024
    poll.register(connection, select.POLLIN)
    end = time.monotonic() + REQUEST_SECONDS
    while (left := end - time.monotonic()) > 0:
        if not poll.poll(left * 1000):
            return False
        begun = connection.recv(_PEEK, socket.MSG_PEEK)
        if not begun or b"\n" in begun or len(begun) == _PEEK:
            return True
        time.sleep(0.05)  # half a line
    return False


MAX_OPEN: Final = 64  # memories kept open between calls by `serve_tcp`
MAX_IN_BACKGROUND: Final = 64  # projects followed and consolidated by `serve_tcp`
MAX_FILES: Final = 8192
_SWITCH_SECONDS: Final = 0.001  # interval at which threads switch
_OTHER_FILES: Final = 768  # connections, locks, logs
_CHECK_SECONDS: Final = 5.0  # between checks whether the resident is still needed


def serve(
    home: str | Path | None, stdin: IO[bytes], stdout: IO[bytes], *, scheduler: bool = True
) -> int:
    """Serve one client until ``stdin`` ends or SIGTERM, then finish running calls; return 0.

    Args:
        scheduler: consolidate the projects named by calls, in the background.
    """
    dispatcher = Dispatcher(resolve_home(home), scheduler=scheduler)

    def write(line: bytes) -> None:
        stdout.write(line)
        stdout.flush()

    with redirect_stdout(sys.stderr):  # keep plugins' prints out of the protocol
        with _ended_by_sigterm(dispatcher.end_soon) as ending:
            _attend(dispatcher, stdin, write, ending)
        dispatcher.close()
    return 0


def serve_resident(
    home: Path, claim: SocketClaim, idle_seconds: float, *, scheduler: bool = True
) -> int:
    """Serve a home on its socket until a signal, or until it is idle; return 0.

    Args:
        idle_seconds: exit after so long without clients; 0 for never.
        scheduler: as for `serve`.
    """
    dispatcher = Dispatcher(home, scheduler=scheduler)
    is_replaced = _watch_version()
    os.chdir(home)  # the starting folder may be deleted
    with _signal_pipe() as wake:
        listener = _listen(dispatcher, claim)
        used = time.monotonic()
        while not select.select([wake], [], [], min(_CHECK_SECONDS, idle_seconds or FOREVER))[0]:
            if listener.count_clients():
                used = time.monotonic()
            is_idle = idle_seconds and time.monotonic() - used >= idle_seconds
            if is_idle or is_replaced() or not claim.is_current():
                break
        else:
            dispatcher.end_soon()  # on a signal
        listener.close()
        dispatcher.close()
    return 0


def serve_tcp(
    home: Path,
    address: Address,
    tls: ssl.SSLContext | None,
    announce: Callable[[Address], object],
    claim: SocketClaim | None,
) -> int:
    """Serve TCP clients with a token, and the home's socket, until SIGTERM or SIGINT; return 0.

    The most recently used projects stay open and in the background.

    Args:
        announce: called with the address once listening.

    Raises:
        SettingsError, Unsupported: the address cannot be used, or needs TLS.
    """
    import asyncio

    from memtier_plugin.daemon import child
    from memtier_plugin.server.http import HttpServer

    home = make_home(home)
    child.serves_itself.set()  # else a thousand tenants' sessions start as many processes
    memory_pool.keep_at_most(_raise_limits())
    sys.setswitchinterval(_SWITCH_SECONDS)
    dispatcher = Dispatcher(home, scheduler=True, most=MAX_IN_BACKGROUND)
    server = HttpServer(home, address, tls, dispatcher)
    listener = _listen(dispatcher, claim) if claim else None
    asyncio.run(server.serve(announce))
    if listener:
        listener.close()
    dispatcher.close()
    return 0


def _watch_version() -> Callable[[], bool]:
    """Return a function that returns whether another version replaced this installation."""
    file, ours = Path(memtier_plugin.__file__), f'"{memtier_plugin.__version__}"'

    def is_replaced() -> bool:
        try:
            return ours not in file.read_text("utf-8")
        except OSError:
            return True

    return is_replaced if not is_replaced() else lambda: False


def _raise_limits() -> int:
    """Raise the limit of open files; return how many memories may stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft < most:
        with suppress(OSError, ValueError):  # the system has its own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES
    return max(MAX_RUNNING_CALLS, min(MAX_OPEN, room // (3 * MAX_RUNNING_CALLS)))


class _Ending:
    """Ends input on SIGTERM, but never within a call or a line."""

    def __init__(self, prepare: Callable[[], None] = lambda: None) -> None:
        self.requested = False
        self._reading = False
        self._prepare = prepare

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            threading.Thread(
                target=self._prepare, daemon=True
            ).start()  # no locks in a signal handler
        if self._reading:
            raise _Terminated

    def readline(self, reader: IO[bytes], limit: int) -> bytes:
        """Read a line; empty after SIGTERM."""
        try:
            self._reading = True
            return b"" if self.requested else reader.readline(limit)
        except _Terminated:
            return b""
        finally:
            self._reading = False


class _Terminated(BaseException):
    """SIGTERM arrived while waiting for input."""


def _listen(dispatcher: Dispatcher, claim: SocketClaim) -> SocketListener:
    """Serve the clients of a home's socket, each in a thread."""
    listener = SocketListener(claim, partial(_attend, dispatcher))
    dispatcher.methods.socket = str(listener.path)
    dispatcher.methods.count_clients = listener.count_clients
    return listener


def _attend(
    dispatcher: Dispatcher,
    reader: IO[bytes],
    write: Callable[[bytes], object],
    ending: _Ending | None = None,
) -> None:
    """Read requests until the input ends; return when all are answered."""
    lock, connected, ending = threading.Lock(), True, ending or _Ending()
    running: dict[Future[bytes], bool] = {}  # whether it has no effects

    def send(line: bytes) -> None:
        nonlocal connected
        try:
            with lock:
                write(line)  # empty for a notification
        except (OSError, ValueError) as error:  # ValueError: a closed file
            _log.info("the client disconnected before its answer: %s", error)
            connected = False

    models = dispatcher.methods.host_models
    host = models.attach(lambda message: send(encode(message)))
    try:
        for line in _lines(partial(ending.readline, reader)):
            try:
                request = _parse_line(line)
            except RefusedRequest as error:
                send(encode(error.answer))
                continue
            if _is_for_host(request, host):
                continue
            if isinstance(request, dict) and request.get("method") == "ping":
                send(encode(dispatcher.answer(request, dispatcher.methods)))  # even when busy
                continue
            call = dispatcher.submit(request, dispatcher.methods, lambda: connected, send)
            running[call] = only_reads(request)
            call.add_done_callback(lambda done: running.pop(done, None))
    finally:
        models.detach(host)  # before waiting, as a call may wait for this host
    for call, reads in [*running.items()]:
        if ending.requested or (reads and not connected):
            call.cancel()
    wait(list(running))


def _lines(readline: Callable[[int], bytes]) -> Iterator[bytes | None]:
    """Yield non-blank lines, and None for one that is too long."""
    while line := readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = readline(MAX_LINE_BYTES)
            yield None
        elif line.strip():
            yield line


def _parse_line(line: bytes | None) -> Any:
    if line is None:
        raise RefusedRequest(-32600, f"the line is longer than {MAX_LINE_BYTES} bytes")
    return parse_request(line)


def _is_for_host(request: Any, host: HostConnection) -> bool:
    """Handle an offer of a host's model or its answer; return whether it was one."""
    if not isinstance(request, dict):
        return False
    method = request.get("method")
    if method is None and ("result" in request or "error" in request):
        host.settle(request)
    elif method == "offer_model":
        if not host.offer(request.get("params")):
            _log.warning("an offer of a host's model was refused: %.200s", request)
    else:
        return False
    return True


@contextmanager
def _signal_pipe() -> Iterator[int]:
    """Yield a descriptor that becomes readable on SIGTERM or SIGINT.

    An event set by a handler would not do: handlers run in the main thread, which nothing wakes if
    another thread received the signal. The wakeup byte is written by the receiving thread.
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
        yield ending  # only the main thread handles signals
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
    """Resend SIGTERM until it is seen: Python misses one that comes just before a read."""
    main = threading.main_thread().ident
    while os.read(wake, 1) and not ending.requested and main is not None:
        time.sleep(0.05)
        if not ending.requested:
            signal.pthread_kill(main, signal.SIGTERM)
    os.close(wake)
