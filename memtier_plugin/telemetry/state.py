"""The records to export, and the state of the last export for `memtier status`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import parse_json_text, to_iso
from memtier_plugin.core.paths import make_private_folder
from memtier_plugin.core.records import Entry, Fact, JournalEvent

STATE_FILE: Final = "telemetry.json"
_NOTE_SECONDS: Final = 60.0  # between two notes of the same outcome


@dataclass(frozen=True, slots=True)
class WrittenRecords:
    """Records written together: the time, in nanoseconds since 1970, and the duration."""

    project: str
    records: Sequence[Entry | Fact | JournalEvent]
    ms: float
    at: int


class ExportState:
    """Records when an export last succeeded or failed; never raises."""

    def __init__(self, home: Path, endpoint: str) -> None:
        self.endpoint = endpoint
        self._home = home
        self._lock = Mutex()
        self._noted: tuple[str, float] = ("", 0.0)

    def note_success(self) -> None:
        """Record that the collector accepted an export."""
        self._note("")

    def note_failure(self, error: str) -> None:
        """Record that an export failed, and why."""
        self._note(error[:300] or "unknown error")

    def _note(self, error: str) -> None:
        now = time.monotonic()
        with self._lock:
            before, when = self._noted
            if self._noted[1] and before == error and now - when < _NOTE_SECONDS:
                return
            self._noted = (error, now)
        note = {"at": to_iso(datetime.now(UTC)), "endpoint": self.endpoint, "error": error}
        with suppress(MemTierError, OSError):
            folder = make_private_folder(self._home, "hosts")
            write_private_file(folder / STATE_FILE, json.dumps(note))


def describe_export(home: Path) -> str | None:
    """Return the last failure of the export, for `status`; None after a success."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = parse_json_text((home / "hosts" / STATE_FILE).read_text("utf-8"))
        if note["error"]:
            endpoint, since = note["endpoint"], note["at"]
            return f"telemetry: {endpoint} has received nothing since {since}: {note['error']}"
    return None
