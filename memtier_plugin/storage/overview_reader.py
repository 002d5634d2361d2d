"""The protocol by which summaries and timelines are made and found; part of the index's readers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from memtier_plugin.core.records import Source
from memtier_plugin.storage.index.overviews import GroupBy, LineGroup, ShelvedFact


class OverviewReader(Protocol):
    """Read groups of lines to summarise, and what is on a shelf."""

    def session_groups(self, least: int) -> list[LineGroup]:
        """Return the sessions with at least this many quotable lines, latest activity first."""

    def session_group(self, agent: str, sender: str, session: str) -> LineGroup | None:
        """Return the quotable lines of one session; None if it has none."""

    def line_groups(self, by: GroupBy, least: int) -> list[LineGroup]:
        """Return the groups with at least this many quotable lines, the latest first."""

    def group_rows(
        self,
        group: LineGroup,
        limit: int,
        span: tuple[float, float] = (-1e300, 1e300),
        speaker: str | None = None,
    ) -> list[int]:
        """Return a group's newest rows, up to a limit, in conversation order.

        Args:
            span: when they were said, in seconds since 1970, the end excluded.
            speaker: only theirs, for a group of speakers.
        """

    def word_rarity(self, agent: str, sender: str, words: Collection[str]) -> dict[str, float]:
        """Return the idf of each word among all lines of an agent and sender."""

    def shelved_facts(
        self, shelf: str, about: tuple[str, str, str] | None = None
    ) -> list[ShelvedFact]:
        """Return every fact put on a shelf, or of this agent, sender and subject, oldest first."""

    def shelf_rows(
        self,
        shelf: str,
        scopes: Sequence[int],
        limit: int,
        start: float = -1e300,
        end: float = 1e300,
    ) -> list[int]:
        """Return the newest rows on a shelf, in these scopes, observed within a time span."""

    def shelves_of(self, rows: Collection[int]) -> dict[int, str]:
        """Return the shelf of each row that is on one."""

    def changed_facts(self) -> list[int]:
        """Return the rows of shared facts whose subject and relation have had another value."""

    def remaining_sources(self, facts: Iterable[str]) -> Mapping[str, Sequence[Source]]:
        """Return each fact's sources that are not forgotten; facts without any are left out."""
