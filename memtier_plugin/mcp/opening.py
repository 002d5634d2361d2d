"""Greet a client on stdin and stdout before the MCP SDK, which takes a second or more, is loaded.

The first request of a client, `initialize` or `server/discover`, is answered as the SDK would, and
so is each `ping`.  The SDK reads the same first request later, so that it knows the client; its
answer to that is dropped.  A client that waits three seconds for `server/discover` assumes an older
server and sends `initialize`; the SDK, having read both by then, serves neither.
Uses the standard library alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any, Final

from memtier_plugin import __version__
from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.mcp.definitions import INSTRUCTIONS

NAMES: Final = {"name": "memtier", "title": "MemTier", "version": __version__}
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # of `initialize`
MODERN_VERSIONS: Final = ("2026-07-28",)  # of `server/discover`
_META: Final = "io.modelcontextprotocol/"
_UNSUPPORTED_VERSION: Final = -32022
_OFFERED: Final = {
    "capabilities": {
        "prompts": {"listChanged": False},
        "resources": {"listChanged": False, "subscribe": False},
        "tools": {"listChanged": False},
    },
    "instructions": INSTRUCTIONS,
}
_DISCOVERED: Final = {
    **_OFFERED,
    "cacheScope": "private",
    "resultType": "complete",
    "supportedVersions": MODERN_VERSIONS,
    "ttlMs": 0,
    "_meta": {f"{_META}serverInfo": NAMES},
}
_SETTLE_SECONDS: Final = 10.0  # for the SDK to answer the first request, too


class Opening:
    """Answers a client's lines until the SDK reads its first one; from then on the SDK does.

    It stands for both files of the SDK's transport, stdin and stdout; thread-safe.
    """

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._lines: SimpleQueue[str | threading.Event] = SimpleQueue()
        self._mutex = Mutex()  # guards stdout, and who answers
        self._is_open = True
        self._is_first = True  # no line was left to the SDK
        self._greeted: object = None  # the id of the first request, if it was answered here
        self._settled = threading.Event()  # the SDK has answered it, too
        threading.Thread(target=self._read, name="memtier-stdin", daemon=True).start()

    @classmethod
    def on_stdio(cls) -> Opening:
        """Take over stdin and stdout; other readers get an empty file, and other writers stderr.

        Raises:
            OSError: the process has none.
        """
        null = os.open(os.devnull, os.O_RDWR)  # stderr, where that is closed
        ours = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1)]
        os.dup2(null, 0)
        os.dup2(2, 1)
        stdin = os.fdopen(ours[0], encoding="utf-8", errors="replace")
        return cls(stdin, os.fdopen(ours[1], "w", encoding="utf-8"))

    def readline(self) -> str:
        """Return the next unanswered line, "" at the end; from now on all are left to the SDK."""
        with self._mutex:
            self._is_open = False
        line = self._lines.get()
        while isinstance(line, threading.Event):
            line.wait(_SETTLE_SECONDS)
            line = self._lines.get()
        return line

    def write(self, text: str) -> int:
        """Write a line from the SDK, unless the client already has that answer."""
        with self._mutex:
            if self._greeted is not None and _parse(text).get("id") == self._greeted:
                self._greeted = None
                self._settled.set()
                return len(text)
            return self._stdout.write(text)

    def flush(self) -> None:
        """Send what was written."""
        with self._mutex:
            self._stdout.flush()

    def _read(self) -> None:
        with suppress(OSError), self._stdin:
            for line in self._stdin:
                with self._mutex:
                    if not (self._is_open and self._answer(line)):
                        self._lines.put(line)
        self._lines.put("")

    def _answer(self, line: str) -> bool:
        """Answer a line if it can be answered here; return whether it was."""
        request = _parse(line)
        identity, method = request.get("id"), request.get("method")
        is_request = request.get("jsonrpc") == "2.0" and type(identity) in (int, str)
        if is_request and method == "ping":
            self._say(identity, result={})
            return True
        is_first, self._is_first = self._is_first, False
        if not (is_request and is_first):
            return False
        params = request.get("params")
        if method == "server/discover" and (version := _version_of(params)):
            if version not in MODERN_VERSIONS:  # the SDK would refuse it, and `initialize` after it
                self._is_first = True
                data = {"supported": MODERN_VERSIONS, "requested": version}
                error = {"code": _UNSUPPORTED_VERSION, "message": "Unsupported protocol version"}
                self._say(identity, error={**error, "data": data})
                return True
            return self._greet(line, identity, _DISCOVERED)
        if method == "initialize" and (result := greet(params)):
            return self._greet(line, identity, result)
        return False

    def _greet(self, line: str, identity: object, result: Mapping[str, Any]) -> bool:
        self._greeted = identity
        self._lines.put(line)
        self._lines.put(self._settled)  # hold back the next line: the SDK answers out of order
        self._say(identity, result=result)
        return True

    def _say(self, identity: object, **answer: Mapping[str, Any]) -> None:
        reply = {"jsonrpc": "2.0", "id": identity, **answer}
        self._stdout.write(json.dumps(reply, separators=(",", ":")) + "\n")
        self._stdout.flush()


def greet(params: object) -> dict[str, Any]:
    """Return the result of an `initialize`; {} if it is invalid: the SDK then says why."""
    fields = params if isinstance(params, dict) else {}
    known = isinstance(fields.get("capabilities"), dict) and _is_client(fields.get("clientInfo"))
    if not known or fields.get("protocolVersion") not in VERSIONS:
        return {}
    return {**_OFFERED, "protocolVersion": fields["protocolVersion"], "serverInfo": NAMES}


def _version_of(params: object) -> str:
    """Return the version that a `server/discover` names; "" if the SDK must answer it."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    fields = meta if isinstance(meta, dict) else {}
    known = isinstance(fields.get(f"{_META}clientCapabilities"), dict)
    version = fields.get(f"{_META}protocolVersion")
    is_complete = (
        known and _is_client(fields.get(f"{_META}clientInfo")) and isinstance(version, str)
    )
    return str(version) if is_complete else ""


def _is_client(info: object) -> bool:
    fields = [info.get("name"), info.get("version")] if isinstance(info, dict) else [None]
    return {*map(type, fields)} == {str}


def _parse(line: str) -> dict[str, Any]:
    """Return the object that a line is, or {}."""
    with suppress(ValueError):
        parsed = parse_json_text(line)
        return parsed if isinstance(parsed, dict) else {}
    return {}
