"""One connection to the resident: requests out, answers in, with the standard library alone.

If the host offers its own model, the resident asks it over the same connection.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, Any, Final
from weakref import WeakSet

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.formats import parse_json_text

# Limits of a request; the resident's are slightly higher.
MAX_REQUEST_BYTES: Final = 15 * 1024 * 1024
_TEXT_LIMITS: Final = (
    1_000_000,
    100_000,
    10_000,
    1_000,
    100,
)  # successive limits for each text of a request that is too large

Payload = Mapping[str, Any]  # JSON sent by a host or the resident


class ResidentUnreachable(MemTierError):
    """No resident can be reached now."""


class ResidentBroken(ResidentUnreachable):
    """The resident went away before it answered."""


class ResidentFailed(ResidentUnreachable):
    """The resident reports that it cannot do this now."""


class ResidentRefused(MemTierError):
    """The resident will never accept this request."""


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """The offer of a host's model for a project (None: any), with its user's consent."""

    host: str
    project: str | None
    complete: Callable[[Payload], Payload]


class Connection:
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
        self._streams = (reader, writer)
        self._lines: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        self._waiting: dict[str, _PendingAnswer] = {}
        if offer:
            self.tell("offer_model", {"host": offer.host, "project": offer.project})
        _connections.add(self)
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
        head = json.dumps({"jsonrpc": "2.0", "id": key, "method": method, "seconds": seconds})
        line = f'{head[:-1]}, "params": {fit_request(params)}}}\n'.encode("ascii")
        self._waiting[key] = answer
        try:
            if not self.alive:
                raise ResidentBroken("the resident ended")
            self._lines.put(line)
            return answer.wait(seconds)
        finally:
            self._waiting.pop(key, None)

    def tell(self, method: str, params: Payload) -> None:
        """Send a notification in the background."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._lines.put(json.dumps(message).encode("ascii") + b"\n")

    def flush(self, seconds: float) -> None:
        """Wait until all notifications have left this process."""
        sent = threading.Event()
        self._lines.put(sent)
        sent.wait(seconds)

    def end(self) -> None:
        """Close the connection after all pending requests are sent."""
        self._lines.put(None)

    def kill(self) -> None:
        """Kill the resident, even if another process started it."""
        self._kill()
        self._fail_pending()

    def leave_to_parent(self) -> None:
        """Drop the connection in a forked child: its threads and their data are the parent's.

        The resident sees the parent leave, whatever the child does.
        """
        self.alive = False
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in self._streams:
            with suppress(OSError, ValueError):  # ValueError: it is closed
                os.dup2(nothing, stream.fileno(), inheritable=False)
        os.close(nothing)

    def _write(self, writer: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            while (line := self._lines.get()) is not None:
                if isinstance(line, threading.Event):
                    line.set()
                    continue
                writer.write(line)
                writer.flush()
        self._close()
        with suppress(OSError, ValueError):
            writer.close()

    def _read(self, reader: IO[bytes]) -> None:
        with suppress(OSError, ValueError), reader:
            for line in reader:
                with suppress(ValueError, KeyError, TypeError, AttributeError):
                    answer = parse_json_text(line)
                    if "method" in answer:
                        worker = threading.Thread(target=self._complete, args=(answer,))
                        worker.daemon = True
                        worker.start()
                        continue
                    self._waiting[str(answer["id"])].give(answer)
        self._fail_pending()

    def _complete(self, request: Payload) -> None:
        """Answer the resident's request for a completion of the host's model."""
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


_connections: Final[WeakSet[Connection]] = WeakSet()
# Never closed: a stream in use by a thread during the fork cannot be closed in the child.
_inherited: Final[list[Connection]] = []


def _leave_connections() -> None:
    for connection in _connections:
        connection.leave_to_parent()
        _inherited.append(connection)
    _connections.clear()


os.register_at_fork(after_in_child=_leave_connections)


class _PendingAnswer:
    def __init__(self) -> None:
        self._event = threading.Event()
        self._answer: Payload | None = None

    def give(self, answer: Payload | None) -> None:
        self._answer = answer
        self._event.set()

    def wait(self, seconds: float) -> Any:
        if not self._event.wait(max(0.0, seconds)):
            raise TimeoutError(f"no answer within {seconds:.1f} s")
        if self._answer is None:
            raise ResidentBroken("the resident ended before it answered")
        return result_of(self._answer)


def result_of(answer: Payload) -> Any:
    """Return the result of an answer.

    Raises:
        ResidentRefused, ResidentFailed: the answer is an error.
    """
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    data = error.get("data")
    kind = data.get("error") if isinstance(data, dict) else None
    if error.get("code") == -32602 or kind == "MessageError":
        raise ResidentRefused(str(error.get("message")))
    raise ResidentFailed(str(error.get("message")))


def fit_request(params: Payload, limit: int = MAX_REQUEST_BYTES) -> str:
    """Encode parameters as JSON within the resident's limit; long texts are truncated if needed."""
    text = json.dumps(params, default=str)
    for most in _TEXT_LIMITS:
        if len(text) <= limit:
            break
        text = json.dumps(_truncate_texts(params, most), default=str)
    return text


def _truncate_texts(value: Any, most: int) -> Any:
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}\n[... {len(value) - most} characters left out]"
    if isinstance(value, Mapping):
        return {key: _truncate_texts(inner, most) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_truncate_texts(inner, most) for inner in value]
    return value
