"""What a synchronisation with the server of a shared ledger did."""

from __future__ import annotations

from dataclasses import dataclass, field

from memtier_plugin.storage.ledger.segments import LedgerFile


@dataclass(slots=True)
class Synced:
    """What a synchronisation did.

    ``files`` are those with new lines, by name; ``refused`` says why what waits was not delivered.
    """

    pulled: int = 0
    delivered: int = 0
    purged: bool = False
    refused: str | None = None
    files: dict[str, LedgerFile] = field(default_factory=dict)
