"""`memtier serve --tcp`: JSON-RPC over HTTP with TLS and tokens, one POST per request.

uvicorn reads HTTP.  Connections are accepted here to limit their number, what they may use before
they show a token, and how long a client may stall.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from memtier_plugin.core.asgi import deliver_refusals
from memtier_plugin.core.errors import NotGranted, SettingsError, Unsupported
from memtier_plugin.core.residents import Address, is_loopback
from memtier_plugin.server.access import Access, Grant, Tokens
from memtier_plugin.server.dispatch import MAX_WAITING_CALLS, Dispatcher, encode
from memtier_plugin.server.methods import Methods
from memtier_plugin.server.requests import (
    MAX_AT_ONCE,
    MAX_BODY_BYTES,
    Json,
    LongRequest,
    RefusedRequest,
    check_body_size,
    error_answer,
    only_reads,
    parse_body,
)

MAX_CONNECTIONS: Final = 512
MAX_SILENT: Final = 128  # connections without a token; beyond, the oldest is closed
MAX_HEAD_BYTES: Final = 8192  # of a request's headers, including its token
REQUEST_SECONDS: Final = 10.0  # for a request, plus one per `BYTES_A_SECOND`
BYTES_A_SECOND: Final = 100_000
IDLE_SECONDS: Final = 900  # without a request; the client reconnects for its next
SEND_SECONDS: Final = 10.0  # how long a client may stall reading
_BACKLOG: Final = 256

_log = logging.getLogger("memtier")


def load_tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return a server's TLS context (1.2 or newer) with a certificate chain and its key.

    Raises:
        SettingsError: they cannot be read, or do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    def refuse_password() -> str:
        raise ValueError("the key is encrypted")

    try:
        context.load_cert_chain(certificate, key, password=refuse_password)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"--certificate {certificate} and --key {key or certificate} cannot be used: {error}; "
            "both must be PEM files, this host's certificate first in the chain"
        ) from error
    return context


def listen(address: Address, tls: ssl.SSLContext | None) -> socket.socket:
    """Return a listening socket.

    Raises:
        SettingsError: tokens would travel in plain text over a network.
        Unsupported: the address cannot be listened on.
    """
    if tls is None and not is_loopback(address.host):
        raise SettingsError(
            f"{address.host} is on a network, where a token must not travel in plain text: give "
            "--certificate and --key, or listen on 127.0.0.1"
        )
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server(
            (address.host, address.port), family=family, backlog=_BACKLOG, reuse_port=False
        )
    except OSError as error:
        raise Unsupported(f"{address} cannot be listened on: {error}") from error


class HttpServer:
    """Answers requests of clients that have a token.

    Raises:
        SettingsError, Unsupported: as `listen`, or the tokens cannot be read.
    """

    def __init__(
        self, home: Path, address: Address, tls: ssl.SSLContext | None, dispatcher: Dispatcher
    ) -> None:
        self._home, self._tls, self._dispatcher = home, tls, dispatcher
        self._tokens = Tokens(home)
        self._tokens.grants()
        self._listening = listen(address, tls)
        self._listening.setblocking(False)
        port = self._listening.getsockname()[1]
        self.address = Address(address.host, port, tls is not None)
        self._config = Config(
            deliver_refusals(self._answer),
            interface="asgi3",
            log_config=None,
            log_level=logging.ERROR,  # do not log what strangers send
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=IDLE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        self._config.load()
        self._state = ServerState()
        self._connections: set[asyncio.Task[None]] = set()
        self._silent: dict[socket.socket, None] = {}  # without a token so far, oldest first
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def serve(self, announce: Callable[[Address], object]) -> None:
        """Serve until SIGTERM or SIGINT, then finish the running calls.

        Args:
            announce: called with the address once ready.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        accepting = loop.create_task(self._accept())
        announce(self.address)
        await ended.wait()
        self._dispatcher.end_soon()
        accepting.cancel()
        self._listening.close()
        for connection in [*self._state.connections]:
            connection.shutdown()
        while pending := {*self._connections, *self._state.tasks}:
            await asyncio.wait(pending)

    # -- connections -----------------------------------------------------------------------------

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError as error:  # the client left, or too many files are open
                _log.warning("a connection was not accepted: %s", error)
                await asyncio.sleep(0.1)
                continue
            if len(self._silent) >= MAX_SILENT:
                oldest = next(iter(self._silent))
                del self._silent[oldest]
                with suppress(OSError):  # just closed
                    oldest.shutdown(socket.SHUT_RDWR)
            if len(self._connections) >= MAX_CONNECTIONS + MAX_SILENT:
                _log.warning("a connection was refused: %d are open", len(self._connections))
                connection.close()
                continue
            self._silent[connection] = None
            task = loop.create_task(self._attend(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _attend(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        forget = {"note_token": lambda: self._silent.pop(connection, None)}
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # asyncio does not do it here
        try:
            _, protocol = await loop.connect_accepted_socket(
                lambda: _Connection(self._config, self._state, forget),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=REQUEST_SECONDS if self._tls else None,
            )
            await protocol.lost
        except OSError as error:
            _log.info("a connection broke: %s", error)
        finally:
            self._silent.pop(connection, None)

    # -- requests --------------------------------------------------------------------------------

    async def _answer(
        self, scope: MutableMapping[str, Any], receive: Any, send: Any
    ) -> None:  # an ASGI application
        request = Request(scope, receive)
        with suppress(ClientDisconnect):
            response = await self._respond(request)
            await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if request.url.path != "/" or request.method != "POST":
            status = 404 if request.url.path != "/" else 405
            return _refuse(status, error_answer(None, -32600, "POST a JSON-RPC request to /"))
        try:
            grant = self._check_token(request.headers.get("authorization", ""))
        except NotGranted as error:
            _log.info("a client was refused: %s", error)
            return _refuse(401, error_answer(None, -32001, str(error), "NotGranted"))
        request.state.note_token()
        try:
            body = await _read(request)
            parsed = body if len(body) > MAX_AT_ONCE else parse_body(body)
        except TimeoutError:
            return _refuse(408, error_answer(None, -32600, "the request took too long to arrive"))
        except RefusedRequest as error:
            return _refuse(413 if isinstance(error, LongRequest) else 400, error.answer)
        access = Access(grant, self._home, request.query_params.get("stand_in") == "true")
        methods = self._dispatcher.methods.restricted(access)
        if isinstance(parsed, dict) and parsed.get("method") == "ping":
            return _reply(encode(self._dispatcher.answer(parsed, methods)))  # even when busy
        return await self._call(request, parsed, methods, grant.id)

    def _check_token(self, authorization: str) -> Grant:
        """Return the scope of a request's token.

        Raises:
            NotGranted: it is unknown, revoked or expired.
        """
        scheme, _, token = authorization.partition(" ")
        grant = None
        try:
            if scheme.lower() == "bearer":
                grant = self._tokens.check(token.strip())
        except SettingsError as error:  # the message names files, so it is not sent to the client
            _log.warning("a client was refused: %s", error)
        if grant is None:
            raise NotGranted(
                "the token is unknown, was revoked or has expired; make another with "
                "`memtier token new` on the resident's machine"
            )
        return grant

    async def _call(self, request: Request, parsed: Any, methods: Methods, client: str) -> Response:
        """Answer a call in its turn.

        If the client hangs up, writes are still carried out and reads are dropped.
        """
        connected = True
        turn = self._turns.setdefault(client, asyncio.Semaphore(MAX_WAITING_CALLS))
        async with turn:
            call = self._dispatcher.submit(parsed, methods, lambda: connected)
            answer = asyncio.wrap_future(call)
            leaving = asyncio.create_task(_wait_for_disconnect(request))
            answer.add_done_callback(lambda _: leaving.cancel())
            await asyncio.wait({leaving})  # until either finishes
            if not answer.done():
                connected = False
                if only_reads(parsed):
                    call.cancel()
                await asyncio.wait({answer})
        if answer.cancelled():  # the server is ending
            return _refuse(503, error_answer(None, -32000, "this resident is ending", "Ending"))
        return _reply(answer.result())


class _Connection(H11Protocol):
    """A connection that times out slow requests and slow readers."""

    def __init__(self, config: Config, state: ServerState, scope: Json) -> None:
        super().__init__(config, state, scope)
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(REQUEST_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and self._is_idle():
            self._head_timer = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
        super().data_received(data)
        if not self._is_idle():  # headers are complete; the application waits for the body
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stop_timer()
        if left := self.transport.get_write_buffer_size():
            self.loop.call_later(SEND_SECONDS, self._check_reading, left)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _check_reading(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        elif left:
            self.loop.call_later(SEND_SECONDS, self._check_reading, left)


async def _read(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        RefusedRequest: it is too long, or too costly to parse.
        TimeoutError: it arrives too slowly.
    """
    body, loop = bytearray(), asyncio.get_running_loop()
    until = loop.time() + REQUEST_SECONDS
    too_long = LongRequest(-32600, f"a request is longer than {MAX_BODY_BYTES} bytes")
    if int(request.headers.get("content-length", 0)) > MAX_BODY_BYTES:
        raise too_long
    async with asyncio.timeout_at(until) as limit:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise too_long
            limit.reschedule(until + len(body) / BYTES_A_SECOND)
    check_body_size(body)
    return bytes(body)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _reply(line: bytes) -> Response:
    if not line:
        return Response(status_code=204)  # for a notification
    return Response(line, media_type="application/json")


def _refuse(status: int, answer: Json) -> Response:
    """Send an answer and close the connection."""
    headers = {"connection": "close"}
    return Response(encode(answer), status, headers, media_type="application/json")
