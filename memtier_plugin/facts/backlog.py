"""Read entries not yet consolidated: streamed from cursors, a window at a time.

Each extractor has its own cursors, so that a slow or failing one delays only itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from memtier_plugin.core.records import Entry
from memtier_plugin.storage.ledger.jsonl import LedgerFile
from memtier_plugin.storage.protocol import LoggedEntry
from memtier_plugin.storage.store import Store

RULES: Final = "rules"
MODEL: Final = "model"

_OVERRUN: Final = 20  # entries beyond a window's limit that complete a run


@dataclass(slots=True)
class Window:
    """Entries that are read together, with the cursors before and after, by file.

    ``positions`` are the file and the offset of each entry.
    """

    entries: list[Entry] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    positions: list[tuple[str, int]] = field(default_factory=list)

    def skip(self, entries: Collection[str], reason: str) -> None:
        """Skip entries; they count as read."""
        if not entries:
            return
        self.skipped[reason] += len(entries)
        inside = [number for number, e in enumerate(self.entries) if e.id not in entries]
        self.entries[:] = [self.entries[number] for number in inside]
        self.positions[:] = [self.positions[number] for number in inside]

    def truncate(self, count: int) -> None:
        """Drop all but the first entries, and set the cursors before the next one."""
        if count >= len(self.entries):
            return
        name, start = self.positions[count]
        files = list(self.cursors)
        self.cursors = {file: self.cursors[file] for file in files[: files.index(name)]}
        if start > self.starts[name]:
            self.cursors[name] = start
        del self.entries[count:], self.positions[count:]


def find_unread_files(store: Store, extractor: str = RULES) -> dict[LedgerFile, int]:
    """Return the episodic segments with indexed bytes that an extractor has not read.

    Oldest first, so that facts are made in the order of their statements.
    """
    reader = store.reader()
    read, indexed = reader.cursors(extractor), reader.offsets()
    segments = sorted(
        (s for s in store.log.segments("episodic") if not s.provisional),
        key=lambda segment: (segment.day, segment.name),
    )
    unread = {s: indexed.get(s.name, 0) - read.get(s.name, 0) for s in segments}
    return {segment: size for segment, size in unread.items() if size > 0}


def count_unread(store: Store, extractor: str = RULES) -> int:
    """Estimate how many entries an extractor has not read, by the files' mean line length."""
    reader = store.reader()
    lines, indexed = reader.line_counts(), reader.offsets()
    return sum(
        math.ceil(size * lines[file.name] / indexed[file.name])
        for file, size in find_unread_files(store, extractor).items()
    )


def find_oldest_unread(store: Store) -> datetime | None:
    """Return the time of the first entry that the rules may not have read."""
    seen = store.reader().cursors(RULES)
    for file in find_unread_files(store):
        first = next(_stream_indexed_entries(store, file, seen.get(file.name, 0)), [])
        for logged in first:
            if logged.entry:
                return logged.entry.timestamp
    return None


def read_window(
    store: Store,
    extractor: str,
    limit: int,
    *,
    tokens: float = math.inf,
    refuse: Callable[[Entry], str] = lambda entry: "",
) -> Window:
    """Read the next entries that an extractor has not read.

    Skips forgotten entries, and those already made facts on request.

    Args:
        limit: how many entries; exceeded only to complete a run.
        tokens: approximately how many tokens of text.
        refuse: returns why an entry is skipped, or an empty string.
    """
    window = Window()
    reader = store.reader()
    cursors = reader.cursors(extractor)
    for file in find_unread_files(store, extractor):
        start = window.starts[file.name] = cursors.get(file.name, 0)
        for batch in _stream_indexed_entries(store, file, start):
            ids = [logged.entry.id for logged in batch if logged.entry]
            excluded = reader.excluded_from_facts(ids)
            for logged in batch:
                entry = logged.entry
                if _is_full(window, entry, limit, tokens):
                    return window
                window.cursors[file.name] = logged.end
                if entry is None or entry.id in excluded:
                    continue
                if reason := refuse(entry):
                    window.skipped[reason] += 1
                    continue
                window.entries.append(entry)
                window.positions.append((file.name, logged.start))
                window.tokens += entry.tokens
    return window


def group_by_session(entries: list[Entry]) -> list[list[Entry]]:
    """Group entries by agent, session and sender, the group with the oldest first entry first."""
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        key = (entry.agent_id, entry.session_id, entry.sender or "")
        groups.setdefault(key, []).append(entry)
    return sorted(groups.values(), key=lambda group: group[0].observed_at)


def _is_full(window: Window, entry: Entry | None, limit: int, tokens: float) -> bool:
    count = len(window.entries)
    if count < limit and (window.tokens < tokens or not count):
        return False
    last = window.entries[-1]
    same_run = entry and (entry.agent_id, entry.run_id) == (last.agent_id, last.run_id)
    return not same_run or count >= limit + _OVERRUN or window.tokens >= 2 * tokens


def _stream_indexed_entries(
    store: Store, segment: LedgerFile, start: int
) -> Iterator[list[LoggedEntry]]:
    """Yield the indexed entries of a segment after a cursor, a chunk at a time."""
    end = store.reader().offsets().get(segment.name, 0)
    return store.log.entries_after(segment, start, end)
