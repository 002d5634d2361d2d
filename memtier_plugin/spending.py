"""What was spent on embedding by an endpoint, and what may be: by the project's journal.

A line that reserves what the next requests may cost stands in the journal before they are made, and
one that settles it after; a reservation that a crash left unsettled counts whole, as its requests
may have been made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from memtier_plugin.errors import CapReached
from memtier_plugin.records import JournalEvent

KIND: Final = "embed"
# How many tokens a text may have for each that our own rule counts, until an endpoint has told:
# the rule takes four bytes for one, which is little for Chinese and for code.
MARGIN: Final = 1.5


@dataclass(slots=True)
class Meter:
    """What the requests under one reservation took."""

    tokens: int = 0
    items: int = 0


@dataclass(slots=True)
class Budget:
    """What one project may spend on one model; all costs are in the currency of the price.

    ``spent`` and ``approved`` are from the beginning; ``cap`` is `embedding.max_cost`.
    """

    model: str
    price: float  # of a token
    cap: float
    spent: float = 0.0
    approved: float = 0.0
    margin: float = MARGIN

    @classmethod
    def of(cls, model: str, price: float, cap: float, events: Iterable[JournalEvent]) -> Budget:
        """Fold the project's `embed` events, in any order."""
        mine = {event.id: event.data for event in events if event.data.get("model") == model}
        settled = {str(data["settles"]) for data in mine.values() if "settles" in data}
        spent = sum((float(data.get("cost", 0.0)) for data in mine.values()), 0.0)
        spent += sum(float(d.get("reserves", 0.0)) for i, d in mine.items() if i not in settled)
        approved = max((float(data.get("approved", 0.0)) for data in mine.values()), default=0.0)
        return cls(model, price, cap, spent, approved)

    @property
    def allowed(self) -> float:
        """What may be spent in all."""
        return max(self.cap, self.approved)

    def cost(self, tokens: float) -> float:
        """Return what so many tokens, counted by our own rule, are estimated to cost."""
        return tokens * self.price

    def affords(self, tokens: float) -> bool:
        """Tell whether so many tokens, counted by our own rule, are within what is allowed."""
        return self.spent + self.cost(tokens) * self.margin <= self.allowed or not self.price

    def approval(self, tokens: float) -> float:
        """Return what has to be allowed for so many tokens more."""
        return max(self.allowed, self.spent + self.cost(tokens) * MARGIN)

    @contextmanager
    def reserved(self, tokens: int, note: Callable[..., str]) -> Iterator[Meter]:
        """Give a meter for requests of about so many tokens, and count what it tells.

        Args:
            note: writes a line into the journal and returns its id.

        Raises:
            CapReached: they would cost more than is allowed.
        """
        meter = Meter()
        if not self.price:
            yield meter
            return
        if not self.affords(tokens):
            raise CapReached(f"{self.spent:.4f} of {self.allowed:.4f} is spent")
        cost = self.cost(tokens) * self.margin
        line = note(model=self.model, reserves=cost)
        before = self.spent
        self.spent += cost
        try:
            yield meter
        finally:
            real = self.cost(meter.tokens)
            told = {"tokens": meter.tokens, "embedded": meter.items, "cost": real}
            note(model=self.model, settles=line, **told)
            self.spent = before + real


def money(cost: float) -> str:
    """Return an amount as it is shown: to four places, and very little as less than that."""
    return f"{cost:.4f}" if cost >= 0.0001 or not cost else "<0.0001"
