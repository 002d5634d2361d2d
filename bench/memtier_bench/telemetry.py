"""The cost of telemetry in a recall: off, on, and with a collector that is down, in the same run.

Each mode has a home with the same entries, and they take turns, so that a busy machine slows all
alike. A mode's exports are sent before the next one's turn.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any, Final

from memtier_bench.metrics import latency_percentiles
from memtier_bench.progress import Progress, no_progress
from memtier_bench.synthetic import SyntheticChat
from memtier_plugin.memory import MemTier
from memtier_plugin.telemetry.watch import close_watches

MODES: Final = ("off", "on", "down")
_ROUNDS: Final = 6  # most rounds per mode
_SESSION: Final = 20  # entries of a synthetic session


def run_telemetry(
    *,
    entries: int = 1000,
    recalls: int = 600,
    seed: int = 1,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Measure the latency of recalls for prompts in each mode.

    Args:
        recalls: of each mode.
    """
    chat = SyntheticChat(seed)
    rounds = min(_ROUNDS, recalls)
    questions = chat.questions(recalls // rounds)
    latencies: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as top, ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        taken.bind(("127.0.0.1", 0))  # bound but not listening
        down = f"http://127.0.0.1:{taken.getsockname()[1]}"
        endpoints = {"off": down, "on": stack.enter_context(_collector()), "down": down}
        memories = {}
        for number, mode in enumerate(MODES):
            telemetry = {
                "telemetry.enabled": mode != "off",
                "telemetry.endpoint": endpoints[mode],
            }
            memory = MemTier.open(Path(top, mode), "bench", settings=telemetry)
            memories[mode] = stack.enter_context(memory)
            sessions = islice(SyntheticChat(seed).sessions(), entries // _SESSION or 1)
            for _ in memory.record_sessions(sessions):
                pass
            _recall(memory, questions[:20])
            close_watches()
            progress("homes", number + 1, len(MODES))
        for part in range(rounds):
            for shift in range(len(MODES)):
                mode = MODES[(part + shift) % len(MODES)]
                latencies[mode] += _recall(memories[mode], questions)
                close_watches()
            progress("rounds", part + 1, rounds)
    return {
        "kind": "telemetry",
        "dataset": "telemetry",
        "entries": entries,
        "modes": {
            mode: {"recalls": len(each), "latency_ms": latency_percentiles(each)}
            for mode, each in latencies.items()
        },
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }


def _recall(memory: MemTier, questions: Sequence[str]) -> list[float]:
    latencies = []
    for question in questions:
        started = time.perf_counter()
        memory.recall(question, session_id="bench", purpose="inject")
        latencies.append(time.perf_counter() - started)
    return latencies


@contextmanager
def _collector() -> Iterator[str]:
    """Serve a collector that accepts everything; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *_: object) -> None:
            logging.getLogger("memtier").debug(format)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
