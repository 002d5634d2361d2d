"""Requests to residents on other machines (`memtier serve --tcp`), with the standard library.

The list of residents, the token and the root certificate come from the user: from keys of the
host's own configuration, or environment variables; never from a project's or a workspace's file.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import MemTierError, SettingsError
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.residents import Address, in_order, parse_address

from .resident_connection import (
    Payload,
    ResidentBroken,
    ResidentFailed,
    ResidentUnreachable,
    fit_request,
    result_of,
)

CONNECT_SECONDS: Final = 1.0  # for a connection, TLS and the token
TELL_SECONDS: Final = 5.0  # for a notification
FLUSH_SECONDS: Final = 1.0  # for pending notifications when the client closes
FIRST_PAUSE: Final = 0.5  # seconds before a failed resident is tried again
LONGEST_PAUSE: Final = 30.0
MAX_REQUEST_BYTES: Final = 15 * 1024 * 1024 // 4  # the resident's limit is slightly higher

_Key = tuple[Address, bool]


class RemoteLink:
    """Sends requests of any number of threads to one resident over reused connections.

    Args:
        stand_in: the resident is not the first for its projects.
        tls: of the resident's address; plain without.
    """

    def __init__(
        self, address: Address, token: str, tls: ssl.SSLContext | None, *, stand_in: bool
    ) -> None:
        self.alive = True
        self.suspected = False
        self.on_kill: Callable[[], object] = lambda: None
        self._address, self._tls = address, tls
        self._path = "/?stand_in=true" if stand_in else "/"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()
        self._telling: set[threading.Thread] = set()

    def welcome(self, seconds: float) -> None:
        """Send the token for the first time, and only to a server with a valid certificate.

        Raises:
            OSError, HTTPException: no connection, or no TLS.
            ResidentFailed: the token is refused.
        """
        result_of(self._post(_encode("ping", {}, seconds, key=1), seconds))

    def ask(self, method: str, params: Payload, seconds: float) -> Any:
        """Send a request and return its answer; as `Connection.ask`."""
        if not self.alive:
            raise ResidentBroken("the resident ended")
        try:
            answer = self._post(_encode(method, params, seconds, key=1), max(0.001, seconds))
        except TimeoutError:
            raise TimeoutError(f"no answer within {seconds:.1f} s") from None
        except (OSError, http.client.HTTPException) as error:
            self._retire()
            raise ResidentBroken("the resident ended before it answered") from error
        return result_of(answer)

    def tell(self, method: str, params: Payload) -> None:
        """Send a notification in the background."""

        def post() -> None:
            with suppress(OSError, http.client.HTTPException, MemTierError):
                self._post(_encode(method, params, TELL_SECONDS), TELL_SECONDS)
            self._telling.discard(threading.current_thread())

        thread = threading.Thread(target=post, name="memtier-tell", daemon=True)
        self._telling.add(thread)
        with suppress(RuntimeError):  # an exiting process cannot start threads
            thread.start()

    def end(self) -> None:
        """Close idle connections once pending notifications are sent."""
        until = time.monotonic() + FLUSH_SECONDS
        for thread in [*self._telling]:
            with suppress(RuntimeError):  # it was never started
                thread.join(max(0.0, until - time.monotonic()))
        self._retire()

    def kill(self) -> None:
        """Pause the use of the resident, which cannot be killed from here."""
        self.end()
        self.on_kill()

    def _post(self, body: bytes, seconds: float) -> Payload:
        connection = self._take_connection()
        connection.timeout = seconds
        try:
            if connection.sock:
                connection.sock.settimeout(seconds)
            connection.request("POST", self._path, body, self._headers)
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            self.alive = False
        self._idle.append(connection)  # one that the resident closes connects again
        if not self.alive:
            self._retire()
        if response.status == http.HTTPStatus.SERVICE_UNAVAILABLE:  # it is ending
            raise ConnectionAbortedError("the resident is ending")
        answer: Any = {}
        with suppress(ValueError):
            answer = parse_json_text(text) if text else {}
        if not isinstance(answer, dict):
            raise ResidentFailed("it is no resident of MemTier")
        return answer

    def _take_connection(self) -> http.client.HTTPConnection:
        if self._process != os.getpid():  # a forked child: the connections are its parent's
            self._close_idle()
            self._process = os.getpid()
        with suppress(IndexError):
            return self._idle.pop()
        host, port = self._address.host, self._address.port
        if self._tls:
            return http.client.HTTPSConnection(host, port, context=self._tls)
        return http.client.HTTPConnection(host, port)

    def _retire(self) -> None:
        """Let nobody use the link any more; a connection in use is closed when it is given back."""
        self.alive = False
        self._close_idle()

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


def _encode(method: str, params: Payload, seconds: float, key: int | None = None) -> bytes:
    request = {"jsonrpc": "2.0", "method": method, "seconds": seconds}
    if key is not None:
        request["id"] = key
    text = fit_request(params, MAX_REQUEST_BYTES)
    return f'{json.dumps(request)[:-1]}, "params": {text}}}'.encode("ascii")


class RemoteResidents:
    """The residents of a client; a project uses the first available one in its order.

    A resident that is not a project's first (`stand_in`) answers only if the project is shared: an
    unshared project there would be a different memory.

    Args:
        residents: their addresses, as `core.residents` parses them.
        token: the token; if empty, it is read from its file.
        ca_file: the root of their certificates [the system's trusted roots].
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
        self._links: dict[_Key, RemoteLink] = {}
        self._opening: dict[Address, Mutex] = {}
        self._failures: dict[Address, int] = {}
        self._paused: dict[Address, tuple[float, str]] = {}  # until when, and why

    @classmethod
    def of(cls, config: Mapping[str, Any], token: str = "") -> RemoteResidents | None:
        """Return the residents in a host's configuration or the environment, or None.

        Read from the keys `residents`, `token_file` and `ca_file`, or the variables
        `MEMTIER_RESIDENTS` (separated by commas), `MEMTIER_TOKEN`, `MEMTIER_TOKEN_FILE` and
        `MEMTIER_CA_FILE`.
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

    def connect(self, project: str, until: float) -> RemoteLink:
        """Return a link to the first available resident of a project.

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
            except (OSError, http.client.HTTPException, MemTierError) as error:
                reasons.append(self._note_failure(address, f"{address}: {error}"))
        raise ResidentUnreachable("; ".join(reasons))

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            links, self._links = self._links, {}
        for link in links.values():
            link.end()

    def _link(self, key: _Key, until: float) -> RemoteLink:
        with self._lock:
            opening = self._opening.setdefault(key[0], Mutex())
        with opening:
            link = self._links.get(key)
            if link is None or not link.alive:
                link = self._open(*key, min(until, time.monotonic() + CONNECT_SECONDS))
                self._failures.pop(key[0], None)
                self._links[key] = link
            return link

    def _open(self, address: Address, stand_in: bool, until: float) -> RemoteLink:
        """Return a link whose token was accepted.

        Raises:
            SettingsError: there is no token, or no such root certificate.
            OSError, HTTPException, ResidentFailed: as `RemoteLink.welcome`.
        """
        token, tls = self._read_token(), self._load_tls() if address.tls else None
        link = RemoteLink(address, token, tls, stand_in=stand_in)
        link.on_kill = lambda: self._note_failure(address, f"{address}: it does not answer")
        try:
            link.welcome(max(0.05, until - time.monotonic()))
        except BaseException:
            link.end()
            raise
        return link

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

    def _load_tls(self) -> ssl.SSLContext:
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
