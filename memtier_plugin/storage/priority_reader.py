"""What the job of priorities and a tiered recall may ask of the index."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from memtier_plugin.core.records import JournalEvent


class ScoredEntry(NamedTuple):
    """An entry with what its priority rests on; ``tier`` is 3 where it has no pointer."""

    id: str
    row: int
    observed: float
    importance: int
    tier: int = 3
    alignment: float = 0.0
    uses: int = 0
    used: str | None = None


class UnreadRecall(NamedTuple):
    """A journalled recall whose uses were not counted yet, and its line."""

    path: str
    line: int
    event: JournalEvent


class PriorityReader(Protocol):
    """Read importance, headers and tiers, within the entries of one agent and sender."""

    def audiences(self) -> list[tuple[str, str]]:
        """Return every agent and sender that has entries."""

    def unrated(self, limit: int) -> dict[tuple[str, str], list[int]]:
        """Return rows of a user's or the assistant's words without an importance, newest first.

        Confidences and what rests on external text are left out.
        """

    def relations_of(self, rows: Sequence[int]) -> dict[int, set[str]]:
        """Return the (normalised) relations of the current facts that rest on these entries."""

    def active(self, agent: str, sender: str) -> list[ScoredEntry]:
        """Return the entries in the cache and the buffer, by id."""

    def scored(self, ids: Collection[str], agent: str, sender: str) -> list[ScoredEntry]:
        """Return those of these entries of an agent and sender that were rated, by id."""

    def recent_rows(self, scopes: Sequence[int], sessions: int, limit: int) -> list[int]:
        """Return the newest rows of the latest sessions of these scopes."""

    def tier_rows(self, scopes: Sequence[int], tier: int) -> list[int]:
        """Return the rows of these scopes that a pointer puts into a tier."""

    def last_number(self, agent: str) -> int:
        """Return the number of an agent's last pass that wrote a header; 0 before the first."""

    def unread_recalls(self, agent: str, limit: int) -> list[UnreadRecall]:
        """Return an agent's recalls whose uses were not counted, in the order of their lines."""

    def counts(self) -> Mapping[str, int]:
        """Return how many entries are rated, and how many each active tier points at."""
