"""Connect a Python host to MemTier's resident, with the standard library alone.

The counterpart of `openclaw/bridge.js`: uses the resident's socket if one runs, else starts a child
on stdio.  Every call has a deadline, a resident that hangs is killed and restarted with back-off,
and a run that could not be delivered waits on disk.
"""

from __future__ import annotations

import json
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
from typing import Any, Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import MemTierError, UnsafePath
from memtier_plugin.core.mutex import Mutex
from memtier_plugin.core.paths import (
    check_ownership,
    make_private_folder,
    socket_path,
    write_private_file,
)
from memtier_plugin.operations.hook_latency import MAX_NOTED, HookWait, note_waits

from .remote import RemoteResidents
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

CONNECT_SECONDS: Final = 1.0
PING_SECONDS: Final = 2.0
FIRST_PAUSE: Final = 0.5  # seconds before a resident that failed is started again
LONGEST_PAUSE: Final = 60.0
MAX_QUEUED: Final = 1000  # queued files tried in one go
MAX_IN_MEMORY: Final = 100  # payloads kept in memory while the disk is full
_MAX_REPLAY_FAILURES: Final = 3  # failed queue files after which replay stops for now
_CLOSE_TIMEOUT: Final = 10.0  # a child gets to finish its work
# Variables passed to a child; an endpoint's key only if it is configured.
_PASSED_VARIABLES: Final = re.compile(
    r"(?:PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_.*|TZ|TMPDIR|XDG_.*|VIRTUAL_ENV|MEMTIER_.*|OTEL_.*)\Z"
)

_log = logging.getLogger("memtier")


class ResidentClient:
    """Talks to the resident of one home, started by any process; thread-safe.

    Args:
        remote: the residents to ask instead, on other machines; what waits for them waits in the
            home, apart from what waits for its own resident.
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
        self._child: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._paused_until = 0.0
        self._last_failure = ""
        self._in_memory: deque[Payload] = deque(maxlen=MAX_IN_MEMORY)
        self._waits: deque[HookWait] = deque(maxlen=MAX_NOTED)
        self._waits_lock = Mutex()

    def call(self, method: str, params: Payload, seconds: float) -> Any:
        """Ask the resident, starting it if needed; ask once more if it went away.

        Raises:
            ResidentRefused: it will never accept this.
            ResidentUnreachable: no answer in time, or no resident; the message says why.
        """
        until = time.monotonic() + seconds
        try:
            return self._ask(method, params, until)
        except ResidentBroken:
            return self._ask(method, params, until)

    def _ask(self, method: str, params: Payload, until: float) -> Any:
        if self._remote:
            link = self._remote.connect(str(params.get("project") or ""), until)
        else:
            link = self._connect(until)
        try:
            answer = link.ask(method, params, until - time.monotonic())
        except TimeoutError as error:
            if not link.suspected:
                link.suspected = True
                threading.Thread(target=self._check_alive, args=(link,), daemon=True).start()
            raise ResidentUnreachable(f"{method}: {error}") from error
        self._failures = 0
        return answer

    def deliver(self, params: Payload, seconds: float) -> bool:
        """Deliver a hook's payload; if that fails now, keep it on disk for later.

        Returns whether it was delivered.
        """
        try:
            self.call("hook", params, seconds)
        except ResidentRefused as error:
            _log.warning("memtier: %s was refused: %s", params.get("name"), error)
            return True
        except MemTierError as error:
            self._queue(params)
            _log.warning("memtier: %s is not stored yet: %s", params.get("name"), error)
            return False
        self.replay(seconds)
        return True

    def replay(self, seconds: float) -> int:
        """Deliver queued payloads, oldest first; return how many were accepted."""
        if not self._replay_lock.acquire(blocking=False):
            return 0
        taken = failed = 0
        try:
            while self._in_memory:
                try:
                    self.call("hook", self._in_memory[0], seconds)
                    taken += 1
                except ResidentRefused as error:
                    _log.warning(
                        "memtier: %s was refused: %s", self._in_memory[0].get("name"), error
                    )
                self._in_memory.popleft()
            for path in self._queued():
                try:
                    taken += self._delivered(path, seconds)
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
        """Close the connection; a resident that we started finishes its work and ends."""
        if self._remote:
            self._remote.close()
        with self._lock:
            self._drop_inherited()
            link, self._link = self._link, None
            child, self._child = self._child, None
        if link:
            link.end()
        if child:
            try:
                child.wait(_CLOSE_TIMEOUT)
            except subprocess.TimeoutExpired:
                if link and link.suspected:
                    link.kill()

    # -- what waits on the disk ------------------------------------------------------------------

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
            self.call("hook", json.loads(path.read_text("utf-8")), seconds)
        except FileNotFoundError:
            return False  # another process delivered it
        except (ResidentRefused, ValueError) as error:
            _log.warning("memtier: %s cannot be delivered and is set aside: %s", path, error)
            with suppress(OSError):
                fault_injection.run_step(
                    "rename", path, path.rename, path.with_suffix(".json.refused")
                )
            return False
        except OSError as error:
            raise ResidentFailed(f"{path} cannot be read: {error}") from error
        with suppress(OSError):
            fault_injection.run_step("unlink", path, path.unlink, missing_ok=True)
        return True

    # -- the connection --------------------------------------------------------------------------

    def _connect(self, until: float) -> Connection:
        if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
            raise ResidentUnreachable("the resident is still being started")
        try:
            self._drop_inherited()
            if self._link is None or not self._link.alive:
                self._link = self._connect_socket() or self._start_child(until)
            return self._link
        finally:
            self._lock.release()

    def _drop_inherited(self) -> None:
        """Let go of the connection and the child of the process that this one was forked from."""
        if self._link and self._link.inherited:
            self._link = self._child = None

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
            with suppress(OSError, ValueError):
                pid = int(path.with_suffix(".lock").read_text("ascii"))
                if _is_resident(pid):
                    os.kill(pid, signal.SIGKILL)
            close()

        def close() -> None:
            with suppress(OSError):  # not close(): a thread may be reading
                connection.shutdown(socket.SHUT_RDWR)

        reader, writer = connection.makefile("rb"), connection.makefile("wb")
        connection.close()  # closes once both files are closed
        return Connection(reader, writer, close, kill, self._offer)

    def _start_child(self, until: float) -> Connection:
        rest = self._paused_until - time.monotonic()
        if rest > max(0.0, until - time.monotonic()):
            raise ResidentUnreachable(f"{self._last_failure}; it is started again in {rest:.1f} s")
        time.sleep(max(0.0, rest))
        keep = {
            n: v
            for n, v in os.environ.items()
            if _PASSED_VARIABLES.match(n) or n in self._environment
        }
        try:
            child = subprocess.Popen(
                [*self._command, "--home", str(self.home), "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=keep,
                start_new_session=True,  # Ctrl-C in a terminal is the host's, not ours
            )
        except OSError as error:
            self._note_failure(f"cannot start {self._command[0]}: {error}")
            raise ResidentUnreachable(self._last_failure) from error
        assert child.stdin is not None
        assert child.stdout is not None
        self._child = child

        def close() -> None:
            with suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]

        def watch() -> None:
            if (code := child.wait()) and self._child is child:
                self._note_failure(f"the resident ended with {code}")

        threading.Thread(target=watch, name="memtier-child", daemon=True).start()
        return Connection(child.stdout, child.stdin, close, child.kill, self._offer)

    def _check_alive(self, link: Connection) -> None:
        """Kill a resident that does not answer a ping; a slow one may continue."""
        try:
            link.ask("ping", {}, PING_SECONDS)
            link.suspected = False
        except (MemTierError, TimeoutError):
            if link.alive:
                self._child = None
                self._note_failure("the resident hangs")
                link.kill()

    def _note_failure(self, why: str) -> None:
        self._last_failure = why
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self._failures)
        self._failures += 1
        self._paused_until = time.monotonic() + pause


def _is_resident(pid: int) -> bool:
    """Tell whether a process is a `memtier serve`: its id may have been reused."""
    with suppress(OSError, subprocess.SubprocessError):
        arguments = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, check=True, timeout=2
        ).stdout
        return b"memtier" in arguments and b"serve" in arguments
    return False
