"""List the segments of a project's log: one file per ledger, owner and day."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memtier_plugin.core.cause_events import DeliverEvent
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.paths import iter_ledger_folders
from memtier_plugin.core.records import Entry, decode_entry
from memtier_plugin.storage.ledger import jsonl

LATER: Final = (RecallEvent.KIND, DeliverEvent.KIND)  # kinds of events that may wait for the index
_RECALLS: Final = re.compile(
    rb'(?:\{"schema": \d+, "id": "\w+", "timestamp": "[^"]+", "kind": "(?:%b)", [^\n]*\n){1,32}'
    % "|".join(LATER).encode()
)
_MOST_BYTES: Final = 128 * 1024  # of them
SPOOL: Final = "-spool"  # in the name after the day; sorts before the day's own file


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """One ledger file: its path, ledger and owner."""

    path: Path
    name: str  # relative to the project's folder
    ledger: str
    owner: str | None

    @property
    def day(self) -> str:
        """The UTC day of its records, as YYYY-MM-DD."""
        return self.path.stem.removesuffix(SPOOL)

    @property
    def provisional(self) -> bool:
        """Whether its records still wait for the server of a shared ledger."""
        return self.path.stem.endswith(SPOOL)

    @property
    def spool(self) -> LedgerFile:
        """The file of the same day with the records that wait for the server."""
        path = spool_file(self.path)
        name = self.name.removesuffix(self.path.name) + path.name
        return LedgerFile(path, name, self.ledger, self.owner)

    @property
    def settled(self) -> LedgerFile:
        """The file of the same day with the records that have their place in the log."""
        path = self.path.with_name(f"{self.day}.jsonl")
        name = self.name.removesuffix(self.path.name) + path.name
        return LedgerFile(path, name, self.ledger, self.owner)


def spool_file(path: Path) -> Path:
    """Return the file for the records of a ledger file that wait for the server."""
    return path if path.stem.endswith(SPOOL) else path.with_name(f"{path.stem}{SPOOL}.jsonl")


def ledger_files(
    folder: Path, *, newest: int | None = None, agent: str | None = None
) -> list[LedgerFile]:
    """Return a project's ledger files, or only the newest few of each ledger folder.

    Args:
        agent: restrict the episodic ledgers to this agent's.
    """
    files = []
    for kind, owner, where in iter_ledger_folders(folder, agent):
        paths = jsonl.list_day_files(where)[-newest:] if newest else jsonl.list_day_files(where)
        files += [LedgerFile(path, str(path.relative_to(folder)), kind, owner) for path in paths]
    return files


def parse_entries(file: LedgerFile, lines: Iterable[jsonl.LedgerLine]) -> Iterator[Entry]:
    """Yield the entries on these lines; the index counts bad lines and `doctor` lists them."""
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):
            yield decode_entry(line.data, owner=file.owner)


def adds_only_recalls(file: LedgerFile, mark: jsonl.ReadMark | None) -> bool:
    """Return whether a journal has nothing new since a mark but a few recalls and their deliveries.

    Raises:
        UnsafePath, LedgerError: the file cannot be read.
    """
    if file.ledger != "journal" or mark is None:
        return False
    added = jsonl.read_appended(file.path, mark, _MOST_BYTES)
    return added is not None and _RECALLS.fullmatch(added) is not None
