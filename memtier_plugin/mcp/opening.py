"""Greet a client on stdin and stdout before the MCP SDK, which takes a second or more, is loaded.

`initialize` and `ping` are answered as the SDK answers them.  It reads the same `initialize` later,
so that it knows the client; what it answers to that is dropped.  Uses the standard library alone.
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
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.mcp.definitions import INSTRUCTIONS

NAMES: Final = {"name": "memtier", "title": "MemTier", "version": __version__}
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # of the protocol
_CAPABILITIES: Final = {
    "prompts": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": False},
    "tools": {"listChanged": False},
}
_SETTLE_SECONDS: Final = 10.0  # that the SDK may take to answer what is answered already


class Opening:
    """A client's lines: answered here until the SDK reads its first one, and from then by the SDK.

    It is both files of the SDK's transport, stdin and stdout; thread-safe.
    """

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._lines: SimpleQueue[str | threading.Event] = SimpleQueue()
        self._mutex = threading.Lock()  # of who answers, and of stdout
        self._is_open = True
        self._greeted: object = None  # the id of an `initialize` that was answered here
        self._settled = threading.Event()  # the SDK has answered it, too
        threading.Thread(target=self._read, name="memtier-stdin", daemon=True).start()

    @classmethod
    def on_stdio(cls) -> Opening:
        """Take stdin and stdout over; whatever else reads there has nothing, and writes to stderr.

        Raises:
            OSError: the process has none.
        """
        nothing = os.open(os.devnull, os.O_RDWR)  # stderr, where that is closed
        ours = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1)]
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        stdin = os.fdopen(ours[0], encoding="utf-8", errors="replace")
        return cls(stdin, os.fdopen(ours[1], "w", encoding="utf-8"))

    def readline(self) -> str:
        """Return the next line that is not answered, "" at the end; from now on none is."""
        with self._mutex:
            self._is_open = False
        line = self._lines.get()
        while isinstance(line, threading.Event):
            line.wait(_SETTLE_SECONDS)
            line = self._lines.get()
        return line

    def write(self, text: str) -> int:
        """Write a line of the SDK's, unless the client has that answer."""
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
        """Answer a line if that is simple, and return whether it was."""
        request = _parse(line)
        identity = request.get("id")
        if request.get("jsonrpc") != "2.0" or type(identity) not in (int, str):
            return False
        if request.get("method") == "ping":
            self._say(identity, {})
            return True
        if self._settled.is_set() or self._greeted is not None or not (greeting := greet(request)):
            return False
        self._greeted = identity
        self._lines.put(line)
        self._lines.put(self._settled)  # only then the next: the SDK takes them out of turn
        self._say(identity, greeting)
        return True

    def _say(self, identity: object, result: Mapping[str, Any]) -> None:
        answer = {"jsonrpc": "2.0", "id": identity, "result": result}
        self._stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
        self._stdout.flush()


def greet(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of an `initialize`; {} where the SDK must say what is wrong with it."""
    params = request.get("params")
    if request.get("method") != "initialize" or not isinstance(params, dict):
        return {}
    client = params.get("clientInfo")
    fields = [client.get("name"), client.get("version")] if isinstance(client, dict) else [None]
    known = isinstance(params.get("capabilities"), dict) and {*map(type, fields)} == {str}
    if not known or params.get("protocolVersion") not in VERSIONS:
        return {}
    return {
        "capabilities": _CAPABILITIES,
        "instructions": INSTRUCTIONS,
        "protocolVersion": params["protocolVersion"],
        "serverInfo": NAMES,
    }


def _parse(line: str) -> dict[str, Any]:
    """Return the object that a line is, or {}."""
    with suppress(ValueError):
        parsed = parse_json_text(line)
        return parsed if isinstance(parsed, dict) else {}
    return {}
