"""What was spent on endpoints, and what may be: by the project's journal.  Pure.

A line that reserves what the next requests may cost stands in the journal before they are made, and
one that settles it after; a reservation that a crash left unsettled counts whole, as its requests
may have been made.  Vectors have one allowance from the beginning, chat one for each day.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from memtier_plugin.core.errors import CapReached
from memtier_plugin.core.records import JournalEvent

EMBED_EVENT: Final = "embed"
CHAT_EVENT: Final = "chat"
ASK_PURPOSE: Final = "ask"  # the purpose of what a user asks; everything else is the background's
# How many tokens a text may have for each that our own rule counts, until an endpoint has told:
# the rule takes four bytes for one, which is little for Chinese and for code.
TOKEN_MARGIN: Final = 1.5


@dataclass(slots=True)
class Meter:
    """What the requests under one reservation took."""

    tokens: int = 0
    items: int = 0
    output_tokens: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Spending:
    """What lines of the journal come to, open reservations included."""

    cost: float = 0.0
    calls: int = 0

    @classmethod
    def from_events(cls, events: Iterable[JournalEvent]) -> Spending:
        """Fold these events, in any order."""
        lines = {event.id: event.data for event in events}
        settled = {str(data["settles"]) for data in lines.values() if "settles" in data}
        counted = [data for i, data in lines.items() if "reserves" not in data or i not in settled]
        return cls(
            sum((float(data.get("reserves", data.get("cost", 0.0))) for data in counted), 0.0),
            sum(int(data.get("calls", 0)) for data in counted),
        )


@contextmanager
def charge(
    note: Callable[..., str], reserved: Mapping[str, Any], settled: Callable[[], Mapping[str, Any]]
) -> Generator[None]:
    """Write a reservation before what is done under it, and after it what that took.

    Args:
        note: writes a line into the journal and returns its id.
    """
    line = note(**reserved)
    try:
        yield
    finally:
        note(settles=line, **settled())


@dataclass(slots=True)
class EmbeddingBudget:
    """What one project may spend on one model; all costs are in the currency of the price.

    ``spent`` and ``approved`` are from the beginning; ``cap`` is `embedding.max_cost`.
    """

    model: str
    price: float  # of a token
    cap: float
    spent: float = 0.0
    approved: float = 0.0
    margin: float = TOKEN_MARGIN

    @classmethod
    def from_events(
        cls, model: str, price: float, cap: float, events: Iterable[JournalEvent]
    ) -> EmbeddingBudget:
        """Fold the project's `embed` events, in any order."""
        mine = [event for event in events if event.data.get("model") == model]
        approved = max((float(event.data.get("approved", 0.0)) for event in mine), default=0.0)
        return cls(model, price, cap, Spending.from_events(mine).cost, approved)

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

    def required_approval(self, tokens: float) -> float:
        """Return what has to be allowed for so many tokens more."""
        return max(self.allowed, self.spent + self.cost(tokens) * TOKEN_MARGIN)

    @contextmanager
    def reserve(self, tokens: int, note: Callable[..., str]) -> Iterator[Meter]:
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
        cost, before = self.cost(tokens) * self.margin, self.spent

        def settled() -> Mapping[str, Any]:
            real = self.cost(meter.tokens)
            return {
                "model": self.model, "tokens": meter.tokens, "embedded": meter.items, "cost": real,
            }  # fmt: skip

        with charge(note, {"model": self.model, "reserves": cost}, settled):
            self.spent = before + cost
            try:
                yield meter
            finally:
                self.spent = before + self.cost(meter.tokens)


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a model's tokens cost, one each: those it reads and those it writes."""

    model: str
    input: float = 0.0
    output: float = 0.0

    @property
    def free(self) -> bool:
        """Whether nothing is charged."""
        return not (self.input or self.output)

    def cost(self, tokens: float, output_tokens: float) -> float:
        """Return what so many of each cost."""
        return tokens * self.input + output_tokens * self.output


@dataclass(frozen=True, slots=True)
class DailyChatBudget:
    """What a project's chat took on one day (UTC), and may take.

    The background and what users ask have each their own count of calls, so that neither starves
    the other; the money is the same.
    """

    ends: datetime
    background: Spending
    asked: Spending
    most_calls: int
    most_cost: float

    @classmethod
    def from_events(
        cls, events: Iterable[JournalEvent], now: datetime, most_calls: int, most_cost: float
    ) -> DailyChatBudget:
        """Fold the project's `chat` events, of any days and in any order."""
        starts = start_of_day(now)
        ends = starts + timedelta(days=1)
        today = [event for event in events if starts <= event.timestamp < ends]
        asked = [event for event in today if event.data.get("purpose") == ASK_PURPOSE]
        rest = [event for event in today if event.data.get("purpose") != ASK_PURPOSE]
        return cls(
            ends, Spending.from_events(rest), Spending.from_events(asked), most_calls, most_cost
        )

    @property
    def cost(self) -> float:
        """What was spent, whoever it was for."""
        return self.background.cost + self.asked.cost

    def check(self, tariff: Tariff, cost: float, purpose: str) -> None:
        """Let one call more pass that may cost so much.

        Raises:
            CapReached: it is more than is allowed.
        """
        mine = self.asked if purpose == ASK_PURPOSE else self.background
        until = f"{self.ends:%Y-%m-%d %H:%M} UTC"
        if mine.calls >= self.most_calls:
            raise CapReached(
                f"{mine.calls} of {self.most_calls} calls to {tariff.model} were made today; more "
                f"from {until}, or set consolidation.max_calls_per_day",
                self.ends,
            )
        if tariff.free or self.cost + cost <= self.most_cost:
            return
        if cost > self.most_cost:
            raise CapReached(
                f"one call to {tariff.model} may cost {format_cost(cost)}, and "
                f"{format_cost(self.most_cost)} a day is allowed: "
                "set consolidation.max_cost_per_day"
            )
        raise CapReached(
            f"{format_cost(self.cost)} of {format_cost(self.most_cost)} is spent on "
            f"{tariff.model} today, and one call more may cost {format_cost(cost)}; "
            f"more from {until}, or set consolidation.max_cost_per_day",
            self.ends,
        )


def start_of_day(now: datetime) -> datetime:
    """Return when the day (UTC) began."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def format_cost(cost: float) -> str:
    """Return an amount as it is shown: to four places, and very little as less than that."""
    return f"{cost:.4f}" if cost >= 0.0001 or not cost else "<0.0001"
