"""Speak JSON-RPC with a program that a check starts, a line a message, as its clients do."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

STEP_SECONDS: Final = 60.0  # that an answer may take
Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]


@contextmanager
def converse(command: Sequence[str]) -> Iterator[Ask]:
    """Speak JSON-RPC with a program, a line a message; yield a function that asks it."""
    with subprocess.Popen(
        [*command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        stdin, stdout, stderr = program.stdin, program.stdout, program.stderr
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def read() -> None:
            for line in stdout:
                lines.put(line)
            lines.put(b"")

        threading.Thread(target=read, daemon=True).start()

        def ask(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
            request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            after = [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
            for message in (request, *(after if method == "initialize" else ())):
                with suppress(BrokenPipeError):
                    stdin.write(json.dumps(message).encode() + b"\n")
                    stdin.flush()
            while True:
                try:
                    line = lines.get(timeout=STEP_SECONDS)
                except queue.Empty:
                    return {"error": "no answer in time"}
                if not line and stderr is not None:
                    return {"error": stderr.read().decode("utf-8", "replace").strip()[-500:]}
                answer: dict[str, Any] = json.loads(line)
                if "method" not in answer:  # else the program tells of something itself
                    return answer

        try:
            yield ask
        finally:
            with suppress(OSError):
                stdin.close()
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()
