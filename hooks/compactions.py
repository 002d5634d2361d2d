"""When each session of a host was last compacted: what a prompt still shows of it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.paths import make_private_folder, write_private_file
from memtier_plugin.core.times import from_iso, to_iso

from .payloads import drop_oldest

MAX_SESSIONS: Final = 2000  # sessions remembered; the oldest are dropped first


@dataclass(slots=True)
class Compactions:
    """The time of each session's last compaction, kept across restarts of the resident."""

    file: Path
    times: dict[str, str]

    @classmethod
    def load(cls, home: Path, host: str) -> Compactions:
        """Read a host's times from a home; an unreadable file is replaced."""
        compactions = cls(home / "hosts" / f"{host}.json", {})
        with suppress(OSError, ValueError, TypeError, AttributeError):
            saved = parse_json_text(compactions.file.read_text("utf-8"))
            compactions.times = {str(k): to_iso(from_iso(v)) for k, v in saved.items()}
        return compactions

    def last_compaction(self, session: str) -> datetime:
        """Return the time since which a session's conversation is complete."""
        return from_iso(self.times.get(session, "0001-01-02T00:00:00Z"))

    def note(self, session: str, now: datetime) -> None:
        """Record that a session is being compacted."""
        self.times.pop(session, None)
        self.times[session] = to_iso(now)
        drop_oldest(self.times, MAX_SESSIONS)
        with suppress(MemTierError, OSError):  # it stays known in memory
            make_private_folder(self.file.parents[1], "hosts")
            write_private_file(self.file, json.dumps(self.times))
