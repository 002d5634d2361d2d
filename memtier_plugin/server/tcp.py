"""`memtier serve --tcp`: the protocol of the Unix socket over TCP, after TLS and a token.

The first line of a connection is a call of `authenticate` with the token; what it grants holds for
the connection, as long as the token is not revoked.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from memtier_plugin import __version__
from memtier_plugin.core.errors import MemTierError, SettingsError, Unsupported
from memtier_plugin.core.residents import Address, is_loopback
from memtier_plugin.core.stream import Stream
from memtier_plugin.server.access import Access
from memtier_plugin.server.lines import REQUEST_SECONDS, LineReader
from memtier_plugin.server.listener import Listener
from memtier_plugin.server.tokens import Grant, Tokens

MAX_CONNECTIONS: Final = 512
MAX_SILENT: Final = 128  # connections without a token
MAX_FIRST_LINE: Final = 4096  # bytes, of the call that brings the token
_BACKLOG: Final = 256

_log = logging.getLogger("memtier")

ClientHandler = Callable[[LineReader, Callable[[bytes], object], Access], None]


def tls_of(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return what a server needs for TLS 1.2 or newer: a chain of certificates and its key.

    Raises:
        SettingsError: they cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"--certificate {certificate} and --key {key or certificate} cannot be used: {error}; "
            "both are PEM files, the chain first with this host's own certificate"
        ) from error
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def listen(address: Address, tls: ssl.SSLContext | None) -> socket.socket:
    """Return a socket that listens already.

    Raises:
        SettingsError: it would take tokens in plain text over a network.
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


class TcpListener:
    """Listens on an address and hands every client with a token to ``talk``.

    Raises:
        SettingsError, Unsupported: as `listen`.
    """

    def __init__(
        self, home: Path, address: Address, tls: ssl.SSLContext | None, talk: ClientHandler
    ) -> None:
        self._home, self._tls, self._talk = home, tls, talk
        self._tokens = Tokens(home)
        self._tokens.grants()  # what cannot be read is told at the start
        listening = listen(address, tls)
        port = listening.getsockname()[1]
        self.address = Address(address.host, port, tls is not None)
        self._listener = Listener(
            listening, self._attend, most=MAX_CONNECTIONS, most_silent=MAX_SILENT
        )

    def close(self) -> None:
        """Refuse new connections, and answer running calls."""
        self._listener.close()

    def _attend(self, connection: socket.socket, heard: Callable[[], None]) -> None:
        until = time.monotonic() + REQUEST_SECONDS
        stream = Stream(connection, self._tls, until=until)
        lines = LineReader(stream.receive)
        access = self._authenticate(lines.readline(MAX_FIRST_LINE, until), stream.send)
        if access is not None:
            heard()
            self._talk(lines, stream.send, access)

    def _authenticate(self, line: bytes, send: Callable[[bytes], object]) -> Access | None:
        """Answer the call that brings the token; return what it grants, or None."""
        key: object = None
        try:
            request = json.loads(line)
            key, params = request.get("id"), request.get("params")
            if request.get("method") != "authenticate" or not isinstance(params, dict):
                raise ValueError("the first request is `authenticate`, with a token")
            key = key if isinstance(key, str | int) else None
            grant = self._tokens.check(params.get("token"))
            if grant is None:
                raise ValueError(
                    "the token is unknown, was revoked or has expired; make another with "
                    "`memtier token new` on the resident's machine"
                )
        except (ValueError, RecursionError, AttributeError, MemTierError) as error:
            _log.info("a client was refused: %s", error)
            reason = str(error) if line else "no token came"
            send(_line(key, error={"code": -32001, "message": reason}))
            return None
        send(_line(key, result={"version": __version__, "token": grant.id}))
        return Access(grant, self._home, self._holds, params.get("stand_in") is True)

    def _holds(self, grant: Grant) -> bool:
        try:
            return self._tokens.holds(grant)
        except MemTierError as error:  # who cannot be known is refused
            _log.warning("a client was refused: %s", error)
            return False


def _line(key: object, **answer: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": key, **answer}).encode("ascii") + b"\n"
