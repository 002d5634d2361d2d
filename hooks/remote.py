"""Connections to residents on other machines (`memtier serve --tcp`), with the standard library.

Which residents there are, the token and the root certificate are the user's: keys of the host's own
configuration, or variables of the environment; never a project's or a workspace's file.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.mutex import Mutex
from memtier_plugin.core.residents import Address, in_order, parse_address
from memtier_plugin.core.stream import Stream

from .resident_connection import MAX_TCP_REQUEST_BYTES, Connection, ResidentUnreachable

CONNECT_SECONDS: Final = 1.0  # for a connection, TLS and the token
FIRST_PAUSE: Final = 0.5  # seconds before a resident that failed is tried again
LONGEST_PAUSE: Final = 30.0
MAX_WELCOME: Final = 65_536  # bytes of the answer to the token

_Key = tuple[Address, bool]


class RemoteResidents:
    """The residents that a client may ask: for each project the first in its order that is there.

    A resident that is not the first for a project (`stand_in`) answers for it only if the project
    is shared; of any other it would have another memory.

    Args:
        residents: their addresses, as `core.residents` has them.
        token: the token; else it is read from its file.
        ca_file: the root of their certificates; else those that the system trusts.
    """

    def __init__(
        self,
        residents: Sequence[str],
        *,
        token: str = "",
        token_file: str = "",
        ca_file: str = "",
    ) -> None:
        self._residents = [*residents]
        self._token, self._token_file, self._ca_file = token, token_file, ca_file
        self._lock = Mutex()
        self._links: dict[_Key, Connection] = {}
        self._opening: dict[Address, Mutex] = {}
        self._failures: dict[Address, int] = {}
        self._paused: dict[Address, tuple[float, str]] = {}  # until when, and why

    @classmethod
    def of(cls, config: Mapping[str, Any], token: str = "") -> RemoteResidents | None:
        """Return those of a host's configuration or the environment; None if there are none.

        The keys `residents`, `token_file` and `ca_file`, or the variables `MEMTIER_RESIDENTS`
        (by commas), `MEMTIER_TOKEN`, `MEMTIER_TOKEN_FILE` and `MEMTIER_CA_FILE`.
        """
        configured = config.get("residents")
        if not configured:
            configured = os.environ.get("MEMTIER_RESIDENTS", "").split(",")
        listed = [configured] if isinstance(configured, str) else configured
        residents = [text for text in (str(each).strip() for each in listed) if text]
        if not residents:
            return None
        files = {
            key: str(config.get(key) or os.environ.get(f"MEMTIER_{key.upper()}", ""))
            for key in ("token_file", "ca_file")
        }
        if not (token or config.get("token_file")):
            token = os.environ.get("MEMTIER_TOKEN", "")
        return cls(residents, token=token, **files)

    def connect(self, project: str, until: float) -> Connection:
        """Return a connection to the first resident of a project that is there.

        Raises:
            ResidentUnreachable: none is, or the configuration is wrong; the message says why.
        """
        try:
            order = in_order(map(parse_address, self._residents), project)
        except SettingsError as error:
            raise ResidentUnreachable(str(error)) from error
        reasons = []
        for rank, address in enumerate(order):
            pause, reason = self._paused.get(address, (0.0, ""))
            if pause > time.monotonic():
                reasons.append(reason)
                continue
            try:
                return self._link((address, rank > 0), until)
            except (OSError, SettingsError) as error:
                reasons.append(self._note_failure(address, f"{address}: {error}"))
        raise ResidentUnreachable("; ".join(reasons))

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            links, self._links = self._links, {}
        for link in links.values():
            link.end()

    def _link(self, key: _Key, until: float) -> Connection:
        with self._lock:
            opening = self._opening.setdefault(key[0], Mutex())
        with opening:
            link = self._links.get(key)
            if link is None or not link.alive:
                link = self._open(*key, min(until, time.monotonic() + CONNECT_SECONDS))
                self._failures.pop(key[0], None)
                self._links[key] = link
            return link

    def _open(self, address: Address, stand_in: bool, until: float) -> Connection:
        """Connect, and bring the token; it is sent to nobody whose certificate does not hold.

        Raises:
            SettingsError: there is no token, or no such root certificate.
            OSError: no connection, no TLS, or the token is refused.
        """
        token, tls = self._read_token(), self._tls() if address.tls else None
        left = max(0.05, until - time.monotonic())
        connection = socket.create_connection((address.host, address.port), left)
        try:
            name = address.host if tls else None
            stream = Stream(connection, tls, name=name, until=until)
            request = {
                "jsonrpc": "2.0",
                "id": "token",
                "method": "authenticate",
                "params": {"token": token, "stand_in": stand_in},
            }
            stream.send(json.dumps(request).encode("ascii") + b"\n")
            _check_welcome(stream, until)
        except BaseException:
            connection.close()
            raise

        def kill() -> None:  # a resident elsewhere cannot be killed: it is left alone for a while
            self._note_failure(address, f"{address}: it does not answer")
            stream.end()

        return Connection(
            stream.reader(), stream.writer(), stream.end, kill, most=MAX_TCP_REQUEST_BYTES
        )

    def _read_token(self) -> str:
        if self._token or not self._token_file:
            token = self._token
        else:
            try:
                token = Path(self._token_file).expanduser().read_text("utf-8").strip()
            except (OSError, ValueError) as error:
                raise SettingsError(f"the token in {self._token_file} cannot be read") from error
        if not token:
            raise SettingsError("no token: name its file (token_file), or set MEMTIER_TOKEN")
        return token

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca_file or None)
        except OSError as error:
            raise SettingsError(f"{self._ca_file} is no root certificate: {error}") from error

    def _note_failure(self, address: Address, why: str) -> str:
        failures = self._failures.get(address, 0)
        self._failures[address] = failures + 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**failures)
        self._paused[address] = (time.monotonic() + pause, why)
        return why


def _check_welcome(stream: Stream, until: float) -> None:
    """Read the answer to the token, up to its end of line.

    Raises:
        OSError: it was refused; the message says why.
    """
    line = b""
    while not line.endswith(b"\n"):
        data = stream.receive(until)
        if not data or len(line) > MAX_WELCOME:
            raise ConnectionError("it ended before it took the token")
        line += data
    answer: Any = None
    with suppress(ValueError):
        answer = parse_json_text(line)
    if not isinstance(answer, dict) or "result" not in answer:
        error = answer.get("error") if isinstance(answer, dict) else None
        raise PermissionError(error.get("message") if isinstance(error, dict) else "no MemTier")
