"""What a consolidation has not read yet: streamed from its cursors, a window at a time.

Each extractor has cursors of its own, so that one that is slow or fails delays only itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from memtier_plugin.core.codecs import decode_entry
from memtier_plugin.core.records import Entry
from memtier_plugin.storage.index.writer import LedgerFile, ledger_files
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.store import Store

RULES: Final = "rules"
MODEL: Final = "model"

_OVERRUN: Final = 20  # entries that a window may have beyond its limit, so as not to cut a run


@dataclass(slots=True)
class Window:
    """Entries that are looked at together, and where the cursors stand before and after them."""

    entries: list[Entry] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    positions: list[tuple[str, int]] = field(
        default_factory=list
    )  # of the entries: file and offset

    def truncate(self, count: int) -> None:
        """Keep only the first few entries: the cursors stand before the next one then."""
        if count >= len(self.entries):
            return
        name, start = self.positions[count]
        names = list(self.cursors)
        self.cursors = {one: self.cursors[one] for one in names[: names.index(name)]}
        if start > self.starts[name]:
            self.cursors[name] = start
        del self.entries[count:], self.positions[count:]


def find_unread_files(store: Store, extractor: str = RULES) -> dict[LedgerFile, int]:
    """Return the episodic ledger files with whole lines an extractor has not read, in bytes.

    Oldest first, so that facts come in the order in which they were said.
    """
    reader = store.reader()
    seen, known = reader.cursors(extractor), reader.offsets()
    files = [file for file in ledger_files(store.folder) if file.ledger == "episodic"]
    files.sort(key=lambda file: (file.path.name, file.name))
    waiting = {f: known.get(f.name, 0) - seen.get(f.name, 0) for f in files}
    return {file: size for file, size in waiting.items() if size > 0}


def count_unread(store: Store, extractor: str = RULES) -> int:
    """Return about how many entries an extractor has not read."""
    reader = store.reader()
    lines, known = reader.line_counts(), reader.offsets()
    # Not counted, which would mean reading them: by the mean length of each file's lines.
    return sum(
        math.ceil(size * lines[file.name] / known[file.name])
        for file, size in find_unread_files(store, extractor).items()
    )


def find_oldest_unread(store: Store) -> datetime | None:
    """Return when the first entry was written that the rules may not have read."""
    seen = store.reader().cursors(RULES)
    for file in find_unread_files(store):
        lines = next(_stream_indexed_lines(store, file, seen.get(file.name, 0)), [])
        for entry in (_parse_entry(line, file) for line in lines):
            if entry:
                return entry.timestamp
    return None


def read_window(
    store: Store,
    extractor: str,
    limit: int,
    *,
    tokens: float = math.inf,
    refuse: Callable[[Entry], str] = lambda entry: "",
) -> Window:
    """Read the next entries that an extractor has not seen.

    What is forgotten, or was made a fact of when somebody asked for it, is read past.

    Args:
        limit: entries, but for the rest of a run.
        tokens: of all their texts, about.
        refuse: why an entry is to be read past, or nothing.
    """
    window = Window()
    seen = store.reader().cursors(extractor)
    for file in find_unread_files(store, extractor):
        window.starts[file.name] = seen.get(file.name, 0)
        for lines in _stream_indexed_lines(store, file, seen.get(file.name, 0)):
            found = [(line, _parse_entry(line, file)) for line in lines]
            aside = store.reader().excluded_from_facts([entry.id for _, entry in found if entry])
            for line, entry in found:
                if _is_full(window, entry, limit, tokens):
                    return window
                window.cursors[file.name] = line.start + len(line.data)
                if entry is None or entry.id in aside:
                    continue
                if reason := refuse(entry):
                    window.skipped[reason] += 1
                    continue
                window.entries.append(entry)
                window.positions.append((file.name, line.start))
                window.tokens += entry.tokens
    return window


def group_by_session(entries: list[Entry]) -> list[list[Entry]]:
    """Return entries by agent, session and sender, each in order, the first said first."""
    together: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        key = (entry.agent_id, entry.session_id, entry.sender or "")
        together.setdefault(key, []).append(entry)
    return sorted(together.values(), key=lambda group: group[0].observed_at)


def _is_full(window: Window, entry: Entry | None, limit: int, tokens: float) -> bool:
    count = len(window.entries)
    if count < limit and (window.tokens < tokens or not count):
        return False
    last = window.entries[-1]
    goes_on = entry and (entry.agent_id, entry.run_id) == (last.agent_id, last.run_id)
    return not goes_on or count >= limit + _OVERRUN or window.tokens >= 2 * tokens


def _stream_indexed_lines(
    store: Store, file: LedgerFile, start: int
) -> Iterator[list[jsonl.LedgerLine]]:
    """Yield what the index knows of a file after a cursor, a piece at a time."""
    end = store.reader().offsets().get(file.name, 0)
    for lines in jsonl.stream(file.path, start):
        inside = [line for line in lines if line.start < end]
        yield inside
        if len(inside) < len(lines):
            return


def _parse_entry(line: jsonl.LedgerLine, file: LedgerFile) -> Entry | None:
    try:
        return decode_entry(line.data, owner=file.owner)
    except (ValueError, TypeError, KeyError):
        return None  # `doctor` names it
