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
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.paths import make_private_folder, socket_path, write_private_file
from memtier_plugin.operations.hook_latency import MAX_NOTED, HookWait, note_waits

CONNECT_SECONDS: Final = 1.0
PING_SECONDS: Final = 2.0
FIRST_PAUSE: Final = 0.5  # seconds before a resident that failed is started again
LONGEST_PAUSE: Final = 60.0
MAX_QUEUED: Final = 1000  # queued files tried in one go
MAX_IN_MEMORY: Final = 100  # payloads kept in memory while the disk is full
MAX_REQUEST_BYTES: Final = 15 * 1024 * 1024  # of a request; the resident's limit is slightly higher
_TEXT_LIMITS: Final = (
    1_000_000,
    100_000,
    10_000,
    1_000,
    100,
)  # successive limits for each text of a request that is too large
_MAX_REPLAY_FAILURES: Final = 3  # failed queue files after which replay stops for now
_CLOSE_TIMEOUT: Final = 10.0  # a child gets to finish its work
# Variables passed to a child; an endpoint's key only if it is configured.
_PASSED_VARIABLES: Final = re.compile(
    r"(?:PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_.*|TZ|TMPDIR|XDG_.*|VIRTUAL_ENV|MEMTIER_.*)\Z"
)

_log = logging.getLogger("memtier")

Payload = Mapping[str, Any]  # JSON, as a host or the resident gives it


class ResidentUnreachable(MemTierError):
    """No resident can be reached at present."""


class ResidentBroken(ResidentUnreachable):
    """The resident went away before it answered."""


class ResidentFailed(ResidentUnreachable):
    """The resident reports that it cannot do this now."""


class ResidentRefused(MemTierError):
    """The resident will never accept this request."""


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """The host's own model for a project (None: any), which its user lets MemTier ask."""

    host: str
    project: str | None
    complete: Callable[[Payload], Payload]


class _Connection:
    """One connection: one thread writes requests, another dispatches the answers."""

    def __init__(
        self,
        reader: IO[bytes],
        writer: IO[bytes],
        close: Callable[[], object],
        kill: Callable[[], object],
        offer: ModelOffer | None = None,
    ) -> None:
        self.alive = True
        self._offer = offer
        self.suspected = False
        self._close = close
        self._kill = kill
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting: dict[str, _PendingAnswer] = {}
        if offer:
            self._send("offer_model", {"host": offer.host, "project": offer.project})
        for name, work, stream in (("read", self._read, reader), ("write", self._write, writer)):
            threading.Thread(
                target=work, args=(stream,), name=f"memtier-{name}", daemon=True
            ).start()

    def ask(self, method: str, params: Payload, seconds: float) -> Any:
        """Send a request and return its answer.

        Raises:
            ResidentRefused: the resident will never accept this.
            ResidentFailed: it cannot do this now.
            ResidentBroken: it ended before it answered.
            TimeoutError: no answer in time.
        """
        key, answer = uuid.uuid4().hex, _PendingAnswer()
        head = json.dumps({"jsonrpc": "2.0", "id": key, "method": method})
        line = f'{head[:-1]}, "params": {_fit_request(params)}}}\n'.encode("ascii")
        self._waiting[key] = answer
        try:
            if not self.alive:
                raise ResidentBroken("the resident ended")
            self._lines.put(line)
            return answer.wait(seconds)
        finally:
            self._waiting.pop(key, None)

    def end(self) -> None:
        """Close the connection after all pending requests are sent."""
        self._lines.put(None)

    def kill(self) -> None:
        """Kill the resident, even if another process started it."""
        self._kill()
        self._fail_pending()

    def _write(self, writer: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            while (line := self._lines.get()) is not None:
                writer.write(line)
                writer.flush()
        self._close()
        with suppress(OSError, ValueError):
            writer.close()

    def _read(self, reader: IO[bytes]) -> None:
        with suppress(OSError, ValueError), reader:
            for line in reader:
                with suppress(ValueError, KeyError, TypeError, AttributeError):
                    answer = json.loads(line)
                    if "method" in answer:
                        worker = threading.Thread(target=self._complete, args=(answer,))
                        worker.daemon = True
                        worker.start()
                        continue
                    self._waiting[str(answer["id"])].give(answer)
        self._fail_pending()

    def _send(self, method: str, params: Payload) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._lines.put(json.dumps(message).encode("ascii") + b"\n")

    def _complete(self, request: Payload) -> None:
        """Answer what the resident asks of this host: a completion of the host's own model."""
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request.get("id")}
        params = request.get("params") or {}
        try:
            if not self._offer or (request["method"], params.get("offer")) != (
                "complete",
                self._offer.project,
            ):
                raise ResidentRefused("the host's model is not offered")
            reply["result"] = self._offer.complete(params)
        except Exception as error:  # whatever the host raises
            name = "NOT_OFFERED" if isinstance(error, ResidentRefused) else type(error).__name__
            reply["error"] = {"code": -32000, "message": str(error), "data": {"error": name}}
        self._lines.put(json.dumps(reply, default=str).encode("ascii") + b"\n")

    def _fail_pending(self) -> None:
        self.alive = False
        self._lines.put(None)
        for answer in list(self._waiting.values()):
            answer.give(None)


class _PendingAnswer:
    def __init__(self) -> None:
        self._event = threading.Event()
        self._told: Payload | None = None

    def give(self, answer: Payload | None) -> None:
        self._told = answer
        self._event.set()

    def wait(self, seconds: float) -> Any:
        if not self._event.wait(max(0.0, seconds)):
            raise TimeoutError(f"no answer within {seconds:.1f} s")
        if self._told is None:
            raise ResidentBroken("the resident ended before it answered")
        error = self._told.get("error")
        if error is None:
            return self._told.get("result")
        what = error.get("data", {}).get("error") if isinstance(error.get("data"), dict) else None
        if error.get("code") == -32602 or what == "MessageError":
            raise ResidentRefused(str(error.get("message")))
        raise ResidentFailed(str(error.get("message")))


class ResidentClient:
    """Talks to the resident of one home, started by any process; thread-safe."""

    def __init__(
        self,
        command: Sequence[str],
        home: str | Path,
        environment: Sequence[str] = (),
        offer: ModelOffer | None = None,
    ) -> None:
        self._offer = offer
        self.home = Path(os.path.abspath(Path(home).expanduser()))
        self._command = [*command]
        self._environment = frozenset(environment)
        self._lock = threading.Lock()
        self._replay_lock = threading.Lock()
        self._link: _Connection | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._paused_until = 0.0
        self._last_failure = ""
        self._in_memory: deque[Payload] = deque(maxlen=MAX_IN_MEMORY)
        self._waits: deque[HookWait] = deque(maxlen=MAX_NOTED)
        self._waits_lock = threading.Lock()

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
        with self._lock:
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
            folder = make_private_folder(self.home, "queue")
            name = f"{time.time_ns() // 1_000_000}-{uuid.uuid4().hex}.json"
            write_private_file(folder / name, _fit_request(params), durable=True)
        except (OSError, MemTierError) as error:  # mostly a full disk
            self._in_memory.append(params)
            _log.warning("memtier: it waits in memory only: %s", error)

    def _queued(self) -> Iterator[Path]:
        with suppress(OSError):
            yield from sorted((self.home / "queue").glob("*.json"))[:MAX_QUEUED]

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

    def _connect(self, until: float) -> _Connection:
        if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
            raise ResidentUnreachable("the resident is still being started")
        try:
            if self._link is None or not self._link.alive:
                self._link = self._connect_socket() or self._start_child(until)
            return self._link
        finally:
            self._lock.release()

    def _connect_socket(self) -> _Connection | None:
        path = socket_path(self.home)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(str(path))
            connection.settimeout(None)
        except OSError:
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
        return _Connection(reader, writer, close, kill, self._offer)

    def _start_child(self, until: float) -> _Connection:
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
        return _Connection(child.stdout, child.stdin, close, child.kill, self._offer)

    def _check_alive(self, link: _Connection) -> None:
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


def _fit_request(params: Payload) -> str:
    """Encode parameters as JSON within the resident's limit; long texts are truncated if needed."""
    text = json.dumps(params, default=str)
    for most in _TEXT_LIMITS:
        if len(text) <= MAX_REQUEST_BYTES:
            break
        text = json.dumps(_truncate_texts(params, most), default=str)
    return text


def _truncate_texts(value: Any, most: int) -> Any:
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}\n[... {len(value) - most} characters left out]"
    if isinstance(value, Mapping):
        return {key: _truncate_texts(part, most) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_truncate_texts(part, most) for part in value]
    return value
