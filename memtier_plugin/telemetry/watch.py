"""Queue written records, and pass them to the exporter in the background.

The writing thread only appends to a bounded queue. A separate thread does everything else, the
import of OpenTelemetry included; if that fails, or a collector is down or slow, records are dropped
and counted, and `memtier status` reports it.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.core.installation import install_command
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.settings.schema import Settings, Telemetry
from memtier_plugin.telemetry.state import ExportState, WrittenRecords

if TYPE_CHECKING:
    from memtier_plugin.telemetry.otlp import OtlpExporter

MAX_QUEUED: Final = 2048  # queued batches; further ones are dropped
EXIT_SECONDS: Final = 1.0  # for an exiting process to export the rest
START_SECONDS: Final = 4.0  # for the exporter to start before that
_PAUSE: Final = 0.5  # seconds before a batch is processed, so that the writing hook goes first


class Watch:
    """A process's queue for a home, and the thread that empties it."""

    def __init__(self, home: Path, telemetry: Telemetry) -> None:
        self._home, self._telemetry = home, telemetry
        self._state = ExportState(home, telemetry.endpoint)
        self._queue: deque[WrittenRecords] = deque()
        self._dropped, self._is_broken = 0, False
        self._exporter: OtlpExporter | None = None
        self._wake, self._closing = threading.Event(), threading.Event()
        self._started, self._flushed = threading.Event(), threading.Event()
        # OpenTelemetry imports it, which fails while the interpreter is exiting.
        import_module("concurrent.futures.thread")
        threading.Thread(target=self._run, name="memtier-telemetry", daemon=True).start()

    def add(self, written: WrittenRecords) -> None:
        """Add records to the queue, or drop them if it is full."""
        if self._is_broken or len(self._queue) >= MAX_QUEUED:
            self._dropped += 1
            return
        self._queue.append(written)
        self._wake.set()

    def close(self) -> None:
        """Send the rest, within `START_SECONDS` and `EXIT_SECONDS`."""
        self._closing.set()
        self._wake.set()
        if self._started.wait(START_SECONDS) and not self._flushed.wait(EXIT_SECONDS):
            self._state.note_failure("the collector had not answered when a process ended")
        if self._exporter is not None:
            self._exporter.stop()

    def _run(self) -> None:
        self._wake.wait()
        self._closing.wait(_PAUSE)
        try:
            from memtier_plugin.telemetry.otlp import OtlpExporter

            exporter = OtlpExporter(self._home, self._telemetry, self._state)
            self._exporter = exporter
        except Exception as error:  # third-party library: the host must go on
            if not self._closing.is_set():  # an exiting process cannot start threads
                self._state.note_failure(_describe(error))
            self._is_broken = True
            self._queue.clear()
            self._flushed.set()
            return
        finally:
            self._started.set()
        while True:
            closing = self._closing.is_set()
            try:
                self._empty(exporter)
                if closing:
                    exporter.flush(EXIT_SECONDS)
            except Exception as error:  # for the same reason
                self._state.note_failure(_describe(error))
            if closing:
                self._flushed.set()
                return
            self._wake.wait()
            self._closing.wait(_PAUSE)

    def _empty(self, exporter: OtlpExporter) -> None:
        self._wake.clear()
        dropped, self._dropped = self._dropped, 0
        if dropped:
            exporter.drop(dropped)
        while self._queue:
            exporter.export(self._queue.popleft())


def _describe(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"{error}: run `{install_command('memtier[otel]')}`"
    return f"{type(error).__name__}: {error}"


_watches: dict[Path, Watch] = {}
_mutex: Final = Mutex()


def _forget_watches() -> None:
    """Start over in a forked child, which has none of its parent's threads."""
    _watches.clear()


os.register_at_fork(after_in_child=_forget_watches)


@hookimpl(trylast=True)
def memtier_written(
    home: Path,
    project: str,
    records: Sequence[Entry | Fact | JournalEvent],
    ms: float,
    settings: Settings,
) -> None:
    """Queue records for the exporter, if telemetry is on."""
    if not settings.telemetry.enabled:
        return
    watch = _watches.get(home)
    if watch is None:
        with _mutex:
            watch = _watches.get(home) or Watch(home, settings.telemetry)
            _watches[home] = watch
    watch.add(WrittenRecords(project, records, ms, time.time_ns()))


@atexit.register
def close_watches() -> None:
    """Send the rest, and end the threads."""
    while _watches:
        _, watch = _watches.popitem()
        watch.close()
