"""The log of a shared project: this machine's files, rewritten on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.log import FileLog
from memtier_plugin.storage.ledger.segments import LedgerFile
from memtier_plugin.storage.shared.replica import Replica


class SharedLog(FileLog):
    """The ledger files of a shared project; what is replaced is replaced on the server first."""

    def __init__(self, folder: Path, replica: Replica) -> None:
        super().__init__(folder)
        self._replica = replica

    def rewrite(self, file: LedgerFile, replace: Callable[[bytes], bytes]) -> bool:
        """Replace each line of a file, on every machine; return whether that changed it."""
        if file.provisional:
            return super().rewrite(file, replace)
        return self._replica.replace_lines(file, replace, "purge") > 0

    def drop_events(self, kind: str, before: datetime) -> Iterator[tuple[LedgerFile, int]]:
        """Empty the lines of a kind of event; they keep their places."""

        def empty(line: bytes) -> bytes:
            with suppress(ValueError):
                if jsonl.parse_line(jsonl.LedgerLine(1, 0, line)).get("kind") == kind:
                    return b"\n"
            return line

        for file in self.segments("journal"):
            number = sum(empty(line) != line for line in self.records(file))
            if file.day < f"{before:%Y-%m-%d}" and number:
                if file.provisional:
                    super().rewrite(file, empty)
                else:
                    self._replica.replace_lines(file, empty, "expire")
                yield file, number
