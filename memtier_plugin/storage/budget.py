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
    """Lets chat calls of one project pass, and counts them."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def chat_model(
        self, name: str | None = None, *, key: str = "consolidation.model"
    ) -> ChatModel | None:
        """Return the chat model of a name, or that of the settings, at this account's charge.

        Raises:
            SettingsError: it names no endpoint that is configured.
        """
        settings = self._store.settings
        wanted = settings.consolidation.model if name is None else name
        return ChatModel.from_name(wanted, settings.endpoints, self.reserve, key=key)

    def spent_today(self) -> DailyChatBudget:
        """Return what was spent today and what may be (raises IndexProblem, LedgerError)."""
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
        """Give a meter for one call that may cost so much, and count what it tells.

        Raises:
            CapReached: it would be more than is allowed.
            IndexProblem, LedgerError: it cannot be counted, so it is not made.
        """
        meter = Meter()
        reservation = ChatEvent(model=tariff.model, purpose=purpose, reserves=cost, calls=1)

        def write(payload: EventPayload) -> str:
            if payload is not reservation:
                return self._write(payload)
            # One at a time, in all processes: two that look at once would both find room for one.
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
