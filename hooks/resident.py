"""Connect a Python host to MemTier's resident, with the standard library alone.

The counterpart of `openclaw/bridge.js`: connects to the home's socket and starts a resident if none
runs.  The resident belongs to the home: it outlives this process and exits by itself.  Every call
has a deadline, a hanging resident is killed and restarted with back-off, and undelivered runs wait
on disk.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import LedgerError, MemTierError, UnsafePath
from memtier_plugin.core.files import check_ownership, run_step, write_private_file
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.paths import make_private_folder, open_process_log, socket_path
from memtier_plugin.core.residents import SocketClaim, SocketOwner, claim_socket, find_owner
from memtier_plugin.operations.hook_calls import MAX_NOTED, HookWait, note_waits

from .resident_connection import (
    Connection,
    ModelOffer,
    Payload,
    ResidentBroken,
    ResidentFailed,
    ResidentRefused,
    ResidentUnreachable,
    fit_request,
)

if TYPE_CHECKING:
    from .remote import RemoteLink, RemoteResidents

CONNECT_SECONDS: Final = 1.0
PING_SECONDS: Final = 8.0  # a machine may be busy
FLUSH_SECONDS: Final = 0.5  # for the last notification to leave this process
FIRST_PAUSE: Final = 0.5  # seconds before a resident that failed is started again
LONGEST_PAUSE: Final = 60.0
MAX_QUEUED: Final = 1000  # queued files tried in one go
MAX_IN_MEMORY: Final = 100  # payloads kept in memory while the disk is full
_MAX_REPLAY_FAILURES: Final = 3  # failed queue files after which replay stops for now
_SCOPE: Final = ("host", "context", "home", "project", "agent")  # parameters that identify a memory
RETRY_SECONDS: Final = 0.02  # between two attempts to connect
LOG: Final = "resident"
_END_SECONDS: Final = 0.5  # for a process that has released its socket
# Variables passed to a resident; an endpoint's key only if it is configured.
_PASSED_VARIABLES: Final = re.compile(
    r"(?:PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_.*|TZ|TMPDIR|XDG_.*|VIRTUAL_ENV|MEMTIER_.*|OTEL_.*)\Z"
)

_log = logging.getLogger("memtier")


class ResidentClient:
    """Talks to the resident of one home, started by any process; thread-safe.

    Args:
        remote: residents on other machines to use instead; runs that wait for them are queued in
            the home, apart from those for its own resident.
    """

    def __init__(
        self,
        command: Sequence[str],
        home: str | Path,
        environment: Sequence[str] = (),
        offer: ModelOffer | None = None,
        remote: RemoteResidents | None = None,
    ) -> None:
        self._offer = offer
        self._remote = remote
        self._queue_folder = ("queue", "remote") if remote else ("queue",)
        self.home = Path(os.path.abspath(Path(home).expanduser()))
        self._command = [*command]
        self._environment = frozenset(environment)
        self._lock = Mutex()
        self._replay_lock = Mutex()
        self._link: Connection | None = None
        self._started: subprocess.Popen[bytes] | None = None  # by us, last
        self._check: threading.Thread | None = None
        self._failures = 0
        self._paused_until = 0.0
        self._last_failure = ""
        self._in_memory: deque[Payload] = deque(maxlen=MAX_IN_MEMORY)
        self._waits: deque[HookWait] = deque(maxlen=MAX_NOTED)
        self._waits_lock = Mutex()

    def call(self, method: str, params: Payload, seconds: float) -> Any:
        """Ask the resident, starting it if needed; retry once if it went away.

        Raises:
            ResidentRefused: it will never accept this.
            ResidentUnreachable: no answer in time, or no resident; the message says why.
        """
        until = time.monotonic() + seconds
        try:
            return self._ask(method, params, until)
        except ResidentBroken:
            self._note_end()
        try:
            return self._ask(method, params, until)
        except ResidentBroken as error:
            raise ResidentUnreachable(self._note_end() or str(error)) from error

    def _ask(self, method: str, params: Payload, until: float) -> Any:
        link: Connection | RemoteLink
        if self._remote:
            link = self._remote.connect(str(params.get("project") or ""), until)
        else:
            link = self._connect(until)
        try:
            answer = link.ask(method, params, max(0.0, until - time.monotonic()))
        except TimeoutError as error:
            owner = None if self._remote else find_owner(self.home)
            if not link.suspected and (owner is None or owner.may_hang):
                link.suspected = True
                self._check = threading.Thread(
                    target=self._check_alive, args=(link,), name="memtier-check", daemon=True
                )
                self._check.start()
            why = f"; {_describe_owner(owner)}" if owner and not owner.ready else ""
            raise ResidentUnreachable(f"{method}: {error}{why}") from error
        self._failures = 0
        return answer

    def acknowledge(self, request: Payload, answer: Payload) -> None:
        """Tell the resident in the background that the host used the block of an answer.

        Args:
            request: the parameters of the request, which identify the memory.
        """
        scope = {name: value for name, value in request.items() if name in _SCOPE}
        if recall := answer.get("recall_id"):
            self.tell("acknowledge", {**scope, "recall_id": recall})

    def tell(self, method: str, params: Payload) -> None:
        """Send a notification to the resident, if connected."""
        with suppress(MemTierError):
            link: Connection | RemoteLink | None = self._link
            if self._remote:
                link = self._remote.connect(str(params.get("project") or ""), time.monotonic())
            if link:
                link.tell(method, params)

    def flush(self) -> None:
        """Wait until notifications have left this process, before it exits."""
        if self._link:
            self._link.flush(FLUSH_SECONDS)

    def deliver(self, params: Payload, seconds: float) -> bool:
        """Deliver a hook's payload; if that fails now, keep it on disk for later.

        Returns whether it was delivered.

        Args:
            seconds: for this payload and those queued before.
        """
        until = time.monotonic() + seconds
        try:
            self.call("hook", params, seconds)
        except ResidentRefused as error:
            _log.warning("memtier: %s was refused: %s", params.get("name"), error)
            return True
        except MemTierError as error:
            self._queue(params)
            _log.warning("memtier: %s is not stored yet: %s", params.get("name"), error)
            return False
        self.replay(until - time.monotonic())
        return True

    def replay(self, seconds: float) -> int:
        """Deliver queued payloads, oldest first, while there is time; return how many."""
        until = time.monotonic() + seconds
        if not self._replay_lock.acquire(blocking=False):
            return 0
        taken = failed = 0
        try:
            while self._in_memory:
                try:
                    self.call("hook", self._in_memory[0], until - time.monotonic())
                    taken += 1
                except ResidentRefused as error:
                    _log.warning(
                        "memtier: %s was refused: %s", self._in_memory[0].get("name"), error
                    )
                self._in_memory.popleft()
            for path in self._queued():
                try:
                    taken += self._delivered(path, until - time.monotonic())
                except ResidentFailed:
                    failed += 1
                    if failed == _MAX_REPLAY_FAILURES:
                        break
        except ResidentUnreachable:
            pass  # they stay queued
        finally:
            self._replay_lock.release()
        return taken

    def note_wait(self, host: str, wait: HookWait, *, aside: bool = False) -> None:
        """Record how long a hook held the host; if the disk is full, write it with the next one.

        Args:
            aside: write in the background, so that the host does not wait.
        """
        self._waits.append(wait)
        if aside:
            worker = threading.Thread(
                target=self._write_waits, args=(host,), name="memtier-note", daemon=True
            )
            with suppress(RuntimeError):  # an exiting process cannot start threads
                worker.start()
        else:
            self._write_waits(host)

    def _write_waits(self, host: str) -> None:
        with self._waits_lock, suppress(OSError, MemTierError):
            if waits := [*self._waits]:
                note_waits(self.home, host, waits, datetime.now(UTC))
            for _ in waits:
                self._waits.popleft()

    def close(self) -> None:
        """Close the connection; the resident keeps running unless it hangs."""
        if self._remote:
            self._remote.close()
        if self._check:
            self._check.join(PING_SECONDS)
        with self._lock:
            link, self._link = self._link, None
        if link:
            link.end()

    # -- the queue on disk -------------------------------------------------------------------------

    def _queue(self, params: Payload) -> None:
        try:
            folder = make_private_folder(self.home, *self._queue_folder)
            name = f"{time.time_ns() // 1_000_000}-{uuid.uuid4().hex}.json"
            write_private_file(folder / name, fit_request(params), durable=True)
        except (OSError, MemTierError) as error:  # mostly a full disk
            self._in_memory.append(params)
            _log.warning("memtier: it waits in memory only: %s", error)

    def _queued(self) -> Iterator[Path]:
        with suppress(OSError):
            yield from sorted(self.home.joinpath(*self._queue_folder).glob("*.json"))[:MAX_QUEUED]

    def _delivered(self, path: Path, seconds: float) -> bool:
        try:
            self.call("hook", parse_json_text(path.read_text("utf-8")), seconds)
        except FileNotFoundError:
            return False  # another process delivered it
        except (ResidentRefused, ValueError) as error:
            _log.warning("memtier: %s cannot be delivered and is set aside: %s", path, error)
            with suppress(OSError):
                run_step("rename", path, path.rename, path.with_suffix(".json.refused"))
            return False
        except OSError as error:
            raise ResidentFailed(f"{path} cannot be read: {error}") from error
        with suppress(OSError):
            run_step("unlink", path, path.unlink, missing_ok=True)
        return True

    # -- the connection --------------------------------------------------------------------------

    def _connect(self, until: float) -> Connection:
        """Return a connection to the home's resident, which is started if none runs.

        Raises:
            ResidentUnreachable: there is none in time; the message says why.
        """
        if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
            raise ResidentUnreachable("the resident is still being started")
        try:
            ended = None
            while self._link is None or not self._link.alive:
                owner = find_owner(self.home)
                if owner and owner.is_outdated:
                    if owner.pid != ended:
                        owner.send(signal.SIGTERM)
                    ended = owner.pid
                elif link := self._connect_socket():
                    self._link = link
                    break
                elif claim := self._claim():
                    self._start(claim, until)
                    continue
                if time.monotonic() >= until:
                    raise ResidentUnreachable(f"no resident in time: {_describe_owner(owner)}")
                time.sleep(RETRY_SECONDS)
            return self._link
        finally:
            self._lock.release()

    def _connect_socket(self) -> Connection | None:
        path = socket_path(self.home)
        connection = socket.socket(socket.AF_UNIX)
        try:
            check_ownership(path.parent, path.parent.lstat(), stat.S_IFDIR)
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(str(path))
            connection.settimeout(None)
        except (OSError, UnsafePath):
            connection.close()
            return None

        def kill() -> None:
            if (owner := find_owner(self.home)) and owner.may_hang:
                owner.send(signal.SIGKILL)
            close()

        def close() -> None:
            with suppress(OSError):  # not close(): a thread may be reading
                connection.shutdown(socket.SHUT_RDWR)

        reader, writer = connection.makefile("rb"), connection.makefile("wb")
        connection.close()  # closes once both files are closed
        return Connection(reader, writer, close, kill, self._offer)

    def _claim(self) -> SocketClaim | None:
        try:
            return claim_socket(self.home)
        except (OSError, MemTierError) as error:
            raise ResidentUnreachable(f"no resident can be started: {error}") from error

    def _start(self, claim: SocketClaim, until: float) -> None:
        """Start a resident on a listening socket, where requests wait meanwhile.

        Raises:
            ResidentUnreachable: it cannot be started now.
        """
        started = False
        try:
            self._wait_out_pause(until)
            log = open_process_log(self.home, LOG)
            try:
                fds = (claim.lock, claim.listening.fileno())
                scope = ("--home", str(self.home), "serve", "--claimed", *map(str, fds))
                self._started = subprocess.Popen(
                    [*self._command, *scope],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._passed_environment(),
                    pass_fds=fds,
                    start_new_session=True,  # the host's Ctrl-C and terminal must not end it
                )
            finally:
                os.close(log)
            started = True
            claim.note(ready=False, pid=self._started.pid)
            # Reap it, or a long-lived host keeps a zombie.
            threading.Thread(
                target=self._started.wait, name="memtier-resident", daemon=True
            ).start()
        except (OSError, LedgerError) as error:
            self._note_failure(f"cannot start {self._command[0]}: {error}")
            raise ResidentUnreachable(self._last_failure) from error
        finally:
            (claim.hand_over if started else claim.end)()

    def _wait_out_pause(self, until: float) -> None:
        """Wait before the next start if the last one failed.

        Raises:
            ResidentUnreachable: that takes too long.
        """
        self._note_end()  # the socket was free
        rest = self._paused_until - time.monotonic()
        if rest > max(0.0, until - time.monotonic()):
            raise ResidentUnreachable(f"{self._last_failure}; it is started again in {rest:.1f} s")
        time.sleep(max(0.0, rest))

    def _note_end(self) -> str:
        """Record and return how a resident that we started failed, if it did."""
        with suppress(subprocess.TimeoutExpired):
            if self._started and (code := self._started.wait(_END_SECONDS)):
                self._started = None
                self._note_failure(f"the resident ended with {code}{self._last_words()}")
                return self._last_failure
        return ""

    def _last_words(self) -> str:
        """Return the last line of the resident's log, as a reason."""
        with suppress(OSError, IndexError):
            log = (self.home / "logs" / f"{LOG}.log").read_text("utf-8", "replace")
            return f": {log.strip().splitlines()[-1][:200]}"
        return ""

    def _passed_environment(self) -> dict[str, str]:
        return {
            name: value
            for name, value in os.environ.items()
            if _PASSED_VARIABLES.match(name) or name in self._environment
        }

    def _check_alive(self, link: Connection | RemoteLink) -> None:
        """Kill a resident that does not answer a ping; a slow one may continue."""
        try:
            link.ask("ping", {}, PING_SECONDS)
            link.suspected = False
        except (MemTierError, TimeoutError):
            if link.alive:
                self._note_failure("the resident hangs")
                link.kill()

    def _note_failure(self, why: str) -> None:
        self._last_failure = why
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self._failures)
        self._failures += 1
        self._paused_until = time.monotonic() + pause


def _describe_owner(owner: SocketOwner | None) -> str:
    if owner is None:
        return "the last one is just ending"
    if owner.is_outdated:
        return f"version {owner.version} (process {owner.pid}) is to end first"
    return f"process {owner.pid} {'takes no connection' if owner.ready else 'is being loaded'}"
