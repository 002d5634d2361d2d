"""Ask the model that a host is configured with, through the resident and the host's plugin.

The resident passes a request on to a connected host whose user has consented.  This side needs the
standard library only: one connection to the resident's socket a request.
"""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core import errors
from memtier_plugin.core.errors import AnswerLost, EndpointError, HostAway, HostLeft, UnsafePath
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.paths import check_ownership, socket_path
from memtier_plugin.core.records import count_tokens
from memtier_plugin.providers.endpoint import ChatReply, Tools

HOST_MODEL: Final = "host"  # the model name in the settings
CONNECT_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 5.0  # for the resident to report that the host was too slow

# The errors that the resident reports by name.
_ERRORS: Final = (
    "HostAway",
    "HostLeft",
    "AnswerLost",
    "EndpointRefused",
    "ContextTooLong",
    "EndpointError",
)


class HostModelClient:
    """Requests completions of the host that serves a project."""

    def __init__(self, home: Path, project: str, seconds: float) -> None:
        """Bind to a project's host; ``seconds`` is the deadline of a completion."""
        self._socket = socket_path(home)
        self._project = project
        self._seconds = seconds

    def warm_up(self) -> None:
        """Check that a host offers its model for the project.

        Raises:
            HostAway: no resident or no such host runs now.
        """
        self._call("offers", {"project": self._project}, CONNECT_SECONDS)

    def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: Mapping[str, Any] | None = None,
        tools: Tools | None = None,
        attempts: int = 1,
        seconds: float | None = None,
    ) -> ChatReply:
        """Return the host's answer.

        A host takes no schema and no tools, so the messages have to describe what is expected.
        Tokens that the host does not report are estimated.

        Raises:
            HostAway: no host runs now; nothing was asked.
            HostLeft: the host ended before it answered.
            AnswerLost: it did not answer in time, or its model failed.
            EndpointRefused: the host's own policy does not allow the request.
        """
        limit = min(seconds or self._seconds, self._seconds)
        params = {
            "project": self._project,
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seconds": limit,
        }
        result = self._call("complete", params, limit + GRACE_SECONDS)
        text = str(result.get("text") or "")
        read = sum(count_tokens(message["content"]) for message in messages)
        return ChatReply(
            text,
            _count(result.get("prompt_tokens"), read),
            _count(result.get("completion_tokens"), count_tokens(text)),
            cost=_amount(result.get("cost")),
        )

    def _call(self, method: str, params: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        connection = socket.socket(socket.AF_UNIX)
        try:
            check_ownership(self._socket.parent, self._socket.parent.lstat(), stat.S_IFDIR)
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(str(self._socket))
        except (OSError, UnsafePath) as error:
            connection.close()
            raise HostAway(f"no host runs that could be asked for its model ({error})") from None
        with connection, connection.makefile("rwb") as stream:
            try:
                connection.settimeout(seconds)
                stream.write(json.dumps(request).encode("ascii") + b"\n")
                stream.flush()
                answer = parse_json_text(stream.readline() or b"null")
            except TimeoutError:
                raise AnswerLost(f"the host did not answer within {seconds:g} s") from None
            except (OSError, ValueError) as error:
                raise HostLeft(f"the resident ended before the host answered ({error})") from None
        return _result_of(answer)


def _result_of(answer: Any) -> Mapping[str, Any]:
    """Return the result of a JSON-RPC answer, or raise the error that it reports."""
    if not isinstance(answer, dict):
        raise HostLeft("the resident ended before the host answered")
    error = answer.get("error")
    if error is None:
        result = answer.get("result")
        return result if isinstance(result, dict) else {}
    name = error.get("data", {}).get("error") if isinstance(error.get("data"), dict) else None
    kind: type[EndpointError] = getattr(errors, name) if name in _ERRORS else EndpointError
    raise kind(str(error.get("message")))


def _count(value: Any, estimate: int) -> int:
    return value if type(value) is int and value > 0 else estimate


def _amount(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and value >= 0 else None
