"""A session of Hermes in one process, by the JSON-RPC that its own terminal interface speaks."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.runtimes.hosts import RUNTIMES, TURN, Hermes


class HermesChat:
    """A conversation that is open, a turn at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        created = self._call("session.create", {})
        self._session = created["session_id"]

    def say(self, text: str) -> str:
        """Have one turn and return the answer."""
        self._call("prompt.submit", {"session_id": self._session, "text": text})
        while True:
            event = self._messages.get(timeout=TURN).get("params") or {}
            if event.get("type") == "message.complete":
                payload = event.get("payload") or {}
                assert payload.get("status") != "error", payload
                return str(payload.get("text"))

    def _call(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        while True:
            message = self._messages.get(timeout=TURN)
            if message.get("id") == method:
                assert "result" in message, message
                return dict(message["result"])

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                self._messages.put(json.loads(line))


@contextmanager
def open_chat(hermes: Hermes) -> Iterator[HermesChat]:
    """Run Hermes for a conversation, and end it as its interface does."""
    with (
        (hermes.top / "chat.err").open("ab") as errors,
        subprocess.Popen(
            [RUNTIMES / "hermes" / "venv" / "bin" / "python", "-m", "tui_gateway.entry"],
            env=hermes.environment,
            cwd=hermes.top / "work",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        chat = HermesChat(process)
        try:
            yield chat
        finally:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            chat.reader.join()
