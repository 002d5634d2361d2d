"""Budget of a project's chat calls, kept in its journal across processes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime

from memtier_plugin.core.events import ChatEvent, EventPayload, new_event
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.pricing import (
    DailyChatBudget,
    Meter,
    Tariff,
    charge,
    start_of_day,
)
from memtier_plugin.storage.store import LOCK_SECONDS, Store


class ChatBudget:
    """Admits a project's chat calls within its budget, and counts them."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def chat_model(
        self, name: str | None = None, *, key: str = "consolidation.model"
    ) -> ChatModel | None:
        """Return the named chat model, or the configured one, charged to this budget.

        Raises:
            SettingsError: the name refers to no configured endpoint.
        """
        settings = self._store.settings
        model = settings.consolidation.model if name is None else name
        return ChatModel.from_name(model, settings.endpoints, self.reserve, key=key)

    def spent_today(self) -> DailyChatBudget:
        """Return today's spending and its limits (raises IndexProblem, LedgerError)."""
        now = self._clock()
        limits = self._store.settings.consolidation
        with self._store.session() as reader:
            events = reader.events(kinds=[ChatEvent.KIND], since=start_of_day(now))
            events += [
                e for e in self._store.unindexed_events(PROJECT_JOURNAL) if e.kind == ChatEvent.KIND
            ]
        return DailyChatBudget.from_events(
            events, now, limits.max_calls_per_day, limits.max_cost_per_day
        )

    @contextmanager
    def reserve(self, tariff: Tariff, cost: float, purpose: str) -> Generator[Meter]:
        """Reserve the cost of one call, yield its meter, and record what it measured.

        Raises:
            CapReached: the call would exceed the budget.
            IndexProblem, LedgerError: the call cannot be recorded, so it must not be made.
        """
        meter = Meter()
        reservation = ChatEvent(model=tariff.model, purpose=purpose, reserves=cost, calls=1)

        def write(payload: EventPayload) -> str:
            if payload is not reservation:
                return self._write(payload)
            # Across processes: two concurrent checks would both find room for the last call.
            with hold_lock(self._store.folder / ".spending.lock", LOCK_SECONDS):
                self.spent_today().check(tariff, cost, purpose)
                return self._write(payload)

        def settlement(reservation_id: str) -> ChatEvent:
            return ChatEvent(
                settles=reservation_id,
                model=tariff.model,
                purpose=purpose,
                calls=meter.calls,
                tokens=meter.tokens,
                output_tokens=meter.output_tokens,
                cost=tariff.cost(meter.tokens, meter.output_tokens),
            )

        with charge(write, reservation, settlement):
            yield meter

    def _write(self, payload: EventPayload) -> str:
        event = new_event(payload, agent=self._agent, at=self._clock())
        self._store.append_events([event], shared=True)
        return event.id
