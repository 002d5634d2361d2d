"""The bounds of a search that goes on: what was read, what waits, what was asked before.  Pure.

TierMem's research loop (section 2.3) without its defects: what a round finds is read before it
ends, pages that were too many for one round come first in the next, and no search is made twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class FollowUp:
    """One more search: by meaning, or by words alone."""

    kind: Literal["semantic", "keyword"]
    text: str

    @property
    def key(self) -> tuple[str, ...]:
        """What two searches for the same have in common."""
        words = self.text.casefold().split()
        return (self.kind, *(sorted(set(words)) if self.kind == "keyword" else words))


@dataclass(slots=True)
class FollowUpBudget:
    """What one question has read and asked so far.

    ``pages_per_round`` pages are read in a round.
    """

    pages_per_round: int
    read: dict[str, None] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    searched: dict[tuple[str, ...], FollowUp] = field(default_factory=dict)

    def add_pages(self, pages: Iterable[str]) -> int:
        """Put pages behind those that wait, and return how many are new."""
        new = [page for page in dict.fromkeys(pages) if page not in self.read]
        new = [page for page in new if page not in self.pending]
        self.pending.update(dict.fromkeys(new))
        return len(new)

    def take_pages(self) -> list[str]:
        """Return the pages to be read now; they are not offered again."""
        now = [*self.pending][: self.pages_per_round]
        for page in now:
            del self.pending[page]
            self.read[page] = None
        return now

    def claim_new(self, commands: Iterable[FollowUp]) -> list[FollowUp]:
        """Return the searches that were not made yet, and count them as made."""
        new = []
        for command in commands:
            if command.key[1:] and command.key not in self.searched:
                self.searched[command.key] = command
                new.append(command)
        return new
