"""Account for and cap the cost of endpoints, by the events of the project's journal.  Pure.

An event reserves the maximum cost before requests are made; another one settles it afterwards. A
reservation that a crash left unsettled counts in full: its requests may have been made. Vectors
have one allowance for the project's lifetime, chat has one per day.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from memtier_plugin.core.errors import CapReached
from memtier_plugin.core.events import ChatEvent, EmbedEvent
from memtier_plugin.core.records import EventPayload, JournalEvent
from memtier_plugin.core.settings.schema import Consolidation

# The purpose of calls that a user waits for; all others run in the background
ASK_PURPOSE: Final = "ask"
# Real tokens per estimated token, until an endpoint has reported its count: the estimate is one
# token per four bytes, which is too low for Chinese and for code.
TOKEN_MARGIN: Final = 1.5

WriteEvent = Callable[[EventPayload], str]  # to the journal; returns the event's id


@dataclass(slots=True)
class Meter:
    """Counts the usage of the requests under one reservation."""

    tokens: int = 0
    items: int = 0
    output_tokens: int = 0
    calls: int = 0
    cost: float | None = None  # as the server reports it


@dataclass(frozen=True, slots=True)
class Spending:
    """The cost, calls and tokens of journal events, open reservations included."""

    cost: float = 0.0
    calls: int = 0
    tokens: int = 0

    @classmethod
    def from_events(cls, events: Mapping[str, ChatEvent | EmbedEvent]) -> Spending:
        """Total the payloads of events, by event id and in any order."""
        settled = {payload.settles for payload in events.values() if payload.settles}
        counted = [
            payload
            for event_id, payload in events.items()
            if payload.reserves is None or event_id not in settled
        ]
        costs = (payload.reserves or payload.cost or 0.0 for payload in counted)
        chats = [payload for payload in counted if isinstance(payload, ChatEvent)]
        calls = sum(chat.calls for chat in chats)
        tokens = sum((chat.tokens or 0) + (chat.output_tokens or 0) for chat in chats)
        return cls(sum(costs, 0.0), calls, tokens)


@contextmanager
def charge(
    write: WriteEvent, reservation: EventPayload, settlement: Callable[[str], EventPayload]
) -> Generator[None]:
    """Write a reservation before the requests under it, and its settlement after them.

    Args:
        settlement: builds the event that settles the reservation with a given id.
    """
    reservation_id = write(reservation)
    try:
        yield
    finally:
        write(settlement(reservation_id))


@dataclass(slots=True)
class EmbeddingBudget:
    """Caps the cost of one project's vectors by one model, in the currency of the model's price.

    ``spent`` and ``approved`` are lifetime totals; ``cap`` is `embedding.max_cost`.
    """

    model: str
    price: float  # per token
    cap: float
    spent: float = 0.0
    approved: float = 0.0
    margin: float = TOKEN_MARGIN

    @classmethod
    def from_events(
        cls, model: str, price: float, cap: float, events: Iterable[JournalEvent]
    ) -> EmbeddingBudget:
        """Total the project's `embed` events, in any order."""
        payloads = {
            event.id: payload
            for event in events
            if (payload := EmbedEvent.of(event)).model == model
        }
        approved = max((payload.approved or 0.0 for payload in payloads.values()), default=0.0)
        return cls(model, price, cap, Spending.from_events(payloads).cost, approved)

    @property
    def allowed(self) -> float:
        """The maximum total spending."""
        return max(self.cap, self.approved)

    def cost(self, tokens: float) -> float:
        """Return the cost of a number of tokens by our own estimate."""
        return tokens * self.price

    def affords(self, tokens: float) -> bool:
        """Return whether a number of tokens, by our own estimate, fits into the allowance."""
        return self.spent + self.cost(tokens) * self.margin <= self.allowed or not self.price

    def required_approval(self, tokens: float) -> float:
        """Return the total to approve for this many more tokens."""
        return max(self.allowed, self.spent + self.cost(tokens) * TOKEN_MARGIN)

    @contextmanager
    def reserve(self, tokens: int, write: WriteEvent) -> Iterator[Meter]:
        """Reserve the cost of requests of about this many tokens; charge the meter's count.

        Raises:
            CapReached: they would exceed the allowance.
        """
        meter = Meter()
        if not self.price:
            yield meter
            return
        if not self.affords(tokens):
            raise CapReached(f"{self.spent:.4f} of {self.allowed:.4f} is spent")
        cost, before = self.cost(tokens) * self.margin, self.spent

        def settlement(reservation_id: str) -> EmbedEvent:
            return EmbedEvent(
                settles=reservation_id,
                model=self.model,
                tokens=meter.tokens,
                embedded=meter.items,
                cost=self.cost(meter.tokens),
            )

        with charge(write, EmbedEvent(model=self.model, reserves=cost), settlement):
            self.spent = before + cost
            try:
                yield meter
            finally:
                self.spent = before + self.cost(meter.tokens)


@dataclass(frozen=True, slots=True)
class Tariff:
    """The price of one token read by a model, and of one written."""

    model: str
    input: float = 0.0
    output: float = 0.0
    reports_cost: bool = False  # the server may report costs, whatever the settings say

    @property
    def free(self) -> bool:
        """Whether nothing is charged."""
        return not (self.input or self.output or self.reports_cost)

    def cost(self, tokens: float, output_tokens: float) -> float:
        """Return the cost of tokens read and tokens written."""
        return tokens * self.input + output_tokens * self.output


@dataclass(frozen=True, slots=True)
class DailyChatBudget:
    """A project's chat usage on one day (UTC), and its caps.

    Background calls and users' questions are counted separately, so that neither starves the other;
    both share one money budget.
    """

    ends: datetime
    background: Spending
    asked: Spending
    most_calls: int
    most_cost: float
    most_tokens: int

    @classmethod
    def from_events(
        cls, events: Iterable[JournalEvent], now: datetime, limits: Consolidation
    ) -> DailyChatBudget:
        """Total the project's `chat` events, of any days and in any order."""
        starts = start_of_day(now)
        ends = starts + timedelta(days=1)
        today = {
            event.id: ChatEvent.of(event) for event in events if starts <= event.timestamp < ends
        }
        interactive = {key: chat for key, chat in today.items() if chat.purpose == ASK_PURPOSE}
        background = {key: chat for key, chat in today.items() if chat.purpose != ASK_PURPOSE}
        return cls(
            ends,
            Spending.from_events(background),
            Spending.from_events(interactive),
            limits.max_calls_per_day,
            limits.max_cost_per_day,
            limits.max_tokens_per_day,
        )

    @property
    def cost(self) -> float:
        """The cost of all calls, background and interactive."""
        return self.background.cost + self.asked.cost

    def check(self, tariff: Tariff, cost: float, purpose: str, tokens: int = 0) -> None:
        """Refuse another call of at most this cost and these tokens if it would exceed a cap.

        Raises:
            CapReached: the day's calls, tokens or money are used up; says until when.
        """
        spending = self.asked if purpose == ASK_PURPOSE else self.background
        until = f"{self.ends:%Y-%m-%d %H:%M} UTC"
        if spending.calls >= self.most_calls:
            raise CapReached(
                f"{spending.calls} of {self.most_calls} calls to {tariff.model} were made today; "
                f"more from {until}, or set consolidation.max_calls_per_day",
                self.ends,
            )
        if spending.tokens + tokens > self.most_tokens:
            raise CapReached(
                f"{spending.tokens} of {self.most_tokens} tokens of {tariff.model} were used today,"
                f" and one call more may take {tokens}; "
                f"more from {until}, or set consolidation.max_tokens_per_day",
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
    """Return the start of a time's day (UTC)."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def format_cost(cost: float) -> str:
    """Format an amount to four places; a smaller one as "<0.0001"."""
    return f"{cost:.4f}" if cost >= 0.0001 or not cost else "<0.0001"
