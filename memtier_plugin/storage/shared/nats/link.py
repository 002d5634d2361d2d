"""A connection to a NATS server for callers without asyncio: its event loop is a thread's own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import LedgerError, Unsupported
from memtier_plugin.core.formats import from_iso
from memtier_plugin.core.installation import install_command
from memtier_plugin.storage.shared.nats.messages import inbox
from memtier_plugin.storage.shared.protocol import Refused, Unreachable, seconds_left

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

T = TypeVar("T")

_CONNECT_SECONDS: Final = 3
_ANSWER_SECONDS: Final = 8.0  # for an answer; a server that stands still would never give one
_AWAY_SECONDS: Final = 5.0  # after a failure to connect, in which it is not tried again
_LEAST_PAYLOAD: Final = 2 * 1024 * 1024  # what a delivery may have: a message is never split
_IDLE_NS: Final = 10_000_000_000  # after which the server forgets a reader that was left
_WRONG_SEQUENCE: Final = 10071
_NO_STREAM: Final = 10059
_DENIED: Final = re.compile(
    r'permissions violation for (?:publish|subscription) to "([^"]+)"', re.I
)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Behind(Exception):
    """The subject or the stream has another last message than the writer expects."""


class StoredMessage(NamedTuple):
    """A stored message."""

    seq: int
    subject: str
    headers: Mapping[str, str]
    data: bytes
    stored: datetime


class ServerAddress(NamedTuple):
    """What the address of a server says; the password is in the environment or in a file."""

    server: str
    user: str
    options: Mapping[str, str]

    @classmethod
    def of(cls, url: str) -> ServerAddress:
        """Read an address.

        Raises:
            Refused: it would send in the clear over a network.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        server = f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 4222}"
        clear = parts.scheme == "nats" and options.get("tls") != "off"
        if clear and (parts.hostname or "localhost") not in _LOOPBACK:
            raise Refused(
                f"{server} would be asked in the clear: write tls:// in ledger.shared, or add "
                "?tls=off where the network is your own"
            )
        return cls(server, unquote(parts.username or "") or socket.gethostname(), options)

    def credentials(self) -> dict[str, Any]:
        """Return what the client needs to show who it is."""
        file = self.options.get("creds") or os.environ.get("NATS_CREDS")
        if file:
            return {"user_credentials": os.path.expanduser(file)}
        password = os.environ.get("NATS_PASSWORD")
        return {"user": self.user, "password": password} if password else {}

    def tls(self) -> dict[str, Any]:
        """Return what the client needs to check the server, and to show a certificate."""
        if not self.server.startswith("tls:"):
            return {}
        options = self.options
        context = ssl.create_default_context(cafile=options.get("ca") or os.environ.get("NATS_CA"))
        if options.get("cert"):
            context.load_cert_chain(options["cert"], options.get("key"))
        return {"tls": context, "tls_hostname": urlsplit(self.server).hostname}


class Link:
    """One connection, made when it is first needed and again after it broke; thread-safe."""

    def __init__(self, address: ServerAddress, stream: str) -> None:
        self.address = address
        self._stream = stream
        self._lock = Mutex()
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self._heard: Subscription | None = None
        self._refusals: dict[str, asyncio.Future[None]] = {}
        self._away: tuple[float, Unreachable] | None = None

    # -- calls ---------------------------------------------------------------------------------

    def ask(self, verb: str, *rest: str, **values: object) -> dict[str, Any]:
        """Ask JetStream about the project's stream; return its answer.

        Raises:
            Refused, Unreachable: the server.
        """
        return self._run(self._ask(verb, rest, values))

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Store a message; return its sequence number.

        Raises:
            Behind: what a header expects is not so.
            Refused, Unreachable: the server.
            LedgerError: it is too large.
        """
        return self._run(self._publish(subject, data, headers))

    def tell(self, subject: str) -> None:
        """Notify listeners without waiting for an answer."""

        async def send() -> None:
            await self._connected.publish(subject)
            await self._connected.flush(_CONNECT_SECONDS)

        self._run(send())

    def erase(self, numbers: Sequence[int]) -> None:
        """Overwrite and remove messages, those that are still there.

        Raises:
            Refused, Unreachable: the server.
        """

        async def erase_each() -> None:
            for number in numbers:
                with suppress(LookupError):
                    await self._ask("STREAM.MSG.DELETE", (), {"seq": number, "no_erase": False})

        self._run(erase_each())

    @contextmanager
    def reader(
        self, subject: str, start: int = 1, *, headers: bool = False, last: bool = False
    ) -> Iterator[MessageReader]:
        """Read the messages of a subject or pattern from a sequence number on.

        Args:
            headers: without their bodies.
            last: the last one of each subject only.
        """
        name = os.urandom(12).hex()
        config: dict[str, object] = {
            "name": name,
            "filter_subject": subject,
            "deliver_policy": "last_per_subject" if last else "by_start_sequence",
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": _IDLE_NS,
            "mem_storage": True,
            "num_replicas": 1,
        }
        if headers:
            config["headers_only"] = True
        if not last:
            config["opt_start_seq"] = max(1, start)
        values = {"stream_name": self._stream, "config": config}
        made = self.ask("CONSUMER.CREATE", name, subject, **values)
        try:
            now = from_iso(str(made["created"]))
            yield MessageReader(self, self._stream, name, int(made["num_pending"]), now)
        finally:
            with suppress(LedgerError):
                self.tell(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}")

    def wait(self, subject: str, timeout: float) -> bool:
        """Wait until something is told on a subject; return whether it was, True the first time."""
        return self._run(self._wait(subject, timeout), timeout + _ANSWER_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        if self._process != os.getpid():
            self._forget()
        with self._lock:
            closing = self._drop()
        if closing is not None:
            with suppress(Exception):
                closing.result(2.0)

    # -- within the loop -----------------------------------------------------------------------

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise Unreachable(f"the connection to {self.address.server} was given up")
        return self._client

    async def _request(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> Msg:
        """Send a request; the server answers what it does not permit on another way."""
        from nats.errors import NoRespondersError

        refusal = asyncio.get_running_loop().create_future()
        self._refusals[subject.lower()] = refusal
        request = asyncio.ensure_future(
            self._connected.request(
                subject, data, timeout=_ANSWER_SECONDS, headers=dict(headers) if headers else None
            )
        )
        try:
            await asyncio.wait({request, refusal}, return_when=asyncio.FIRST_COMPLETED)
            if refusal.done():
                raise Refused(f"the user {self.address.user!r} may not publish to {subject}")
            return await request
        except NoRespondersError as error:
            raise Refused(f"there is no {self._stream} in NATS: {_INIT}") from error
        finally:
            request.cancel()
            self._refusals.pop(subject.lower(), None)

    async def _ask(
        self, verb: str, rest: Sequence[str], values: Mapping[str, object]
    ) -> dict[str, Any]:
        subject = ".".join(("$JS.API", verb, self._stream, *rest))
        answer = await self._request(subject, json.dumps(values).encode(), None)
        document: dict[str, Any] = json.loads(answer.data)
        self._check(document.get("error"))
        return document

    async def _publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        answer = await self._request(subject, data, headers)
        document = json.loads(answer.data)
        self._check(document.get("error"))
        return int(document["seq"])

    def _check(self, error: Mapping[str, Any] | None) -> None:
        if error is None:
            return
        text, number = error.get("description"), error.get("err_code")
        if number == _WRONG_SEQUENCE:
            raise Behind(text)
        if number == _NO_STREAM:
            raise Refused(f"there is no {self._stream} in NATS: {_INIT}")
        if error.get("code") == 404 or "found" in str(text):
            raise LookupError(text)
        if error.get("code") == 503:
            raise Unreachable(f"the shared ledger at {self.address.server}: {text}")
        raise LedgerError(f"the shared ledger at {self.address.server}: {text}")

    async def _wait(self, subject: str, timeout: float) -> bool:
        from nats.errors import TimeoutError as NothingYet

        heard = self._heard
        if heard is None:
            client = self._connected
            self._heard = await client.subscribe(subject)
            await client.flush(_CONNECT_SECONDS)
            return True  # what came before is not told
        try:
            await heard.next_msg(timeout)
        except NothingYet:
            return False
        while heard.pending_msgs:
            await heard.next_msg(1.0)
        return True

    async def _connect(self) -> Client:
        from nats.aio.client import Client
        from nats.errors import NoServersError

        client = Client()
        try:
            await client.connect(
                self.address.server,
                name="memtier",
                allow_reconnect=False,
                max_reconnect_attempts=1,  # it counts as away soon
                reconnect_time_wait=0,
                connect_timeout=_CONNECT_SECONDS,
                error_cb=self._on_error,
                inbox_prefix=inbox(self.address.user),
                **self.address.credentials(),
                **self.address.tls(),
            )
            if client.max_payload < _LEAST_PAYLOAD:
                raise Refused(
                    f"{self.address.server} takes messages of {client.max_payload:,} bytes: set "
                    "max_payload: 8MB in its configuration"
                )
        except NoServersError as error:
            await _shut(client)
            raise client.last_error or error from error
        except BaseException:
            await _shut(client)
            raise
        return client

    async def _on_error(self, error: Exception) -> None:
        match = _DENIED.search(str(error))
        future = self._refusals.get(match[1].lower()) if match else None
        if future is not None and not future.done():
            future.set_result(None)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T], limit: float = 2 * _ANSWER_SECONDS) -> T:
        """Run a coroutine in the loop, for as long as the caller's deadline lets it.

        Raises:
            Refused, Unreachable: the server.
        """
        import nats.errors

        try:
            loop = self._ready()
        except BaseException:
            work.close()
            raise
        try:
            running = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:  # another thread gave the connection up meanwhile
            work.close()
            raise Unreachable(f"the connection to {self.address.server} was given up") from error
        try:
            return running.result(seconds_left(limit))
        except CancelledError as error:  # the same
            raise Unreachable(f"the connection to {self.address.server} was given up") from error
        except nats.errors.MaxPayloadError as error:
            raise LedgerError(
                f"{self.address.server} does not take so much at once: raise max_payload in its "
                "configuration"
            ) from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            running.cancel()
            away = Unreachable(
                f"the shared ledger at {self.address.server} does not answer: {_name(error)}"
            )
            with self._lock:
                if self._loop is loop:
                    self._drop()
                if isinstance(error, TimeoutError):  # one that is gone may be back at once
                    self._away = time.monotonic(), away
            raise away from error

    def _ready(self) -> asyncio.AbstractEventLoop:
        """Return the loop of a connection that is open."""
        if self._process != os.getpid():  # the parent's thread is not here, its socket is its own
            self._forget()
        with self._lock:
            if self._loop and self._client and self._client.is_connected:
                return self._loop
            if self._away and time.monotonic() - self._away[0] < _AWAY_SECONDS:
                raise self._away[1]
            self._drop()
            self._loop = loop = asyncio.new_event_loop()
            threading.Thread(target=_turn, args=(loop,), name="memtier-nats", daemon=True).start()
            try:
                future = asyncio.run_coroutine_threadsafe(self._connect(), loop)
                self._client = future.result(seconds_left(_ANSWER_SECONDS))
            except BaseException as error:
                self._drop()
                raise self._failure(error) from error
            self._away = None
            return loop

    def _failure(self, error: BaseException) -> BaseException:
        import nats.errors

        text = f"the shared ledger at {self.address.server} cannot be used: {_name(error)}"
        if isinstance(error, ssl.SSLError) or "authorization" in str(error).lower():
            return Refused(text)
        if isinstance(error, nats.errors.Error | TimeoutError | OSError):
            away = Unreachable(text)
            self._away = time.monotonic(), away
            return away
        return error

    def _drop(self) -> Future[None] | None:
        """Let go of the connection; return what is done when it is closed."""
        loop, client = self._loop, self._client
        self._loop = self._client = self._heard = None
        if loop is None:
            return None

        async def shut() -> None:
            if client is not None:
                await _shut(client)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=1.0)
            loop.call_soon(loop.stop)

        return asyncio.run_coroutine_threadsafe(shut(), loop)


class MessageReader:
    """The messages that there were when it was opened, at ``now`` by the server's clock."""

    def __init__(self, link: Link, stream: str, name: str, left: int, now: datetime) -> None:
        self._link = link
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self.left = left
        self.now = now

    def take(self, limit: int) -> list[StoredMessage]:
        """Return the next messages; none when there are no more."""
        number = min(limit, self.left)
        if number <= 0:
            return []
        self.left -= number
        return self._link._run(self._take(number))

    async def _take(self, number: int) -> list[StoredMessage]:
        client = self._link._connected
        subject = client.new_inbox()
        subscription = await client.subscribe(subject)
        try:
            wanted = json.dumps({"batch": number, "expires": int(_ANSWER_SECONDS * 1e9)}).encode()
            await client.publish(self._next, wanted, reply=subject)
            messages: list[StoredMessage] = []
            while len(messages) < number:
                message = await subscription.next_msg(_ANSWER_SECONDS)
                if not message.reply:  # a status: less was there, after all
                    break
                meta = message.metadata
                messages.append(
                    StoredMessage(
                        meta.sequence.stream,
                        message.subject,
                        message.headers or {},
                        message.data,
                        meta.timestamp,
                    )
                )
            return messages
        finally:
            await subscription.unsubscribe()


_INIT: Final = "run `memtier shared init` as its owner"


async def _shut(client: Client) -> None:
    """Close a client, in whatever state it is."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), 1.0)
    transport = getattr(client, "_transport", None)  # of a connection that was not let in
    if transport is not None:
        with suppress(Exception):
            transport.close()
    await asyncio.sleep(0)  # in which the socket is closed


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped."""
    loop.run_forever()
    loop.close()


def check_driver() -> None:
    """Check that the driver is there.

    Raises:
        Unsupported: it is not installed.
    """
    try:
        import nats  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            "a shared ledger in NATS needs nats-py, which is missing: "
            f"run `{install_command('memtier[nats]')}`"
        ) from error


def _name(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
