"""Models offered by connected hosts, each for a project, and the requests sent to them.

Once its user has consented, a host's plugin offers its model over its connection. Requests use that
connection, and the offer ends with it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import (
    AnswerLate,
    AnswerLost,
    ContextTooLong,
    EndpointRefused,
    HostAway,
    HostLeft,
)
from memtier_plugin.providers.endpoint import is_too_long

MAX_OFFERS: Final = 16  # of one connection

# Errors by which OpenClaw and Hermes permanently refuse a request.
_REFUSALS: Final = frozenset(
    {
        "LLM_COMPLETION_NOT_AUTHORIZED",
        "LLM_ISOLATED_INPUT_REJECTED",
        "LLM_ISOLATED_UNSUPPORTED",
        "PluginLlmTrustError",
        "NOT_OFFERED",
    }
)

Send = Callable[[dict[str, Any]], None]


class _Request:
    """A request pending at its host."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.answer: Mapping[str, Any] | None = None  # None: the host disconnected

    def give(self, answer: Mapping[str, Any] | None) -> None:
        self.answer = answer
        self.answered.set()


class HostConnection:
    """One connection with its offers and pending requests."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = Mutex()
        self._waiting: dict[str, _Request] = {}
        self._closed = False
        self.offers: dict[str | None, str] = {}  # the host by the project; None: any project

    def offer(self, params: Any) -> bool:
        """Record an offer; return whether it is valid."""
        project = params.get("project") if isinstance(params, dict) else 0
        if not isinstance(project, str | None) or len(self.offers) >= MAX_OFFERS:
            return False
        self.offers[project] = str(params.get("host"))
        return True

    def settle(self, answer: Mapping[str, Any]) -> None:
        """Deliver an answer to its pending request."""
        with self._lock:
            request = self._waiting.pop(str(answer.get("id")), None)
        if request:
            request.give(answer)

    def close(self) -> None:
        """Fail every pending request."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            request.give(None)

    def ask(self, params: Mapping[str, Any], seconds: float) -> Any:
        """Ask the host and wait for its answer.

        Raises:
            HostAway, HostLeft, AnswerLost, EndpointRefused: see `HostModelClient.chat`.
        """
        key, request = f"model-{uuid.uuid4().hex}", _Request()
        with self._lock:
            if self._closed:
                raise HostAway("the host has just disconnected")
            self._waiting[key] = request
        message = {"jsonrpc": "2.0", "id": key, "method": "complete", "params": dict(params)}
        self._send(message)
        if not request.answered.wait(seconds):
            with self._lock:
                self._waiting.pop(key, None)
            raise AnswerLate(f"the host's model did not answer within {seconds:g} s")
        if request.answer is None:
            raise HostLeft("the host disconnected before its model answered")
        return _result_of(request.answer)


class HostModels:
    """The connections of a resident, and the newest offer for each project."""

    def __init__(self) -> None:
        self._lock = Mutex()
        self._connections: list[HostConnection] = []

    def attach(self, send: Send) -> HostConnection:
        """Return a new connection, to which ``send`` writes."""
        connection = HostConnection(send)
        with self._lock:
            self._connections.append(connection)
        return connection

    def detach(self, connection: HostConnection) -> None:
        """Withdraw a connection's offers, and fail its pending requests."""
        with self._lock:
            self._connections.remove(connection)
        connection.close()

    def find(self, project: str) -> tuple[HostConnection, str | None]:
        """Return the newest connection offering a model for a project, and the offer's key.

        Raises:
            HostAway: none does.
        """
        with self._lock:
            for connection in reversed(self._connections):
                for key in (project, None):
                    if key in connection.offers:
                        return connection, key
        raise HostAway(f"no running host offers its model for project {project!r}")


def _result_of(answer: Mapping[str, Any]) -> Any:
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    details = error if isinstance(error, dict) else {}
    data = details.get("data")
    code = data.get("error") if isinstance(data, dict) else None
    message = f"the host's model: {details.get('message')} ({code})"
    if code in _REFUSALS:
        raise EndpointRefused(message)
    if is_too_long(message):
        raise ContextTooLong(message)
    raise AnswerLost(message)
