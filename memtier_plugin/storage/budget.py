"""Budget of a project's chat calls, kept in its journal across processes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime

from memtier_plugin.core.events import ChatEvent, new_event
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.records import EventPayload
from memtier_plugin.providers.chat import (
    HOST_MODEL,
    ChatModel,
    Estimate,
    HostModelClient,
    tariff_of,
)
from memtier_plugin.providers.pricing import (
    DailyChatBudget,
    Meter,
    Tariff,
    charge,
    start_of_day,
)
from memtier_plugin.storage.store import Store


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
        if model == HOST_MODEL and name is None:
            host, home = settings.host_model, self._store.project_folder.home
            client = HostModelClient(home, self._store.project, host.timeout_s)
            tariff = tariff_of(HOST_MODEL, host, reports_cost=True)
            return ChatModel(client, HOST_MODEL, tariff, self.reserve)
        return ChatModel.from_name(model, settings.endpoints, self.reserve, key=key)

    def spent_today(self) -> DailyChatBudget:
        """Return today's spending and its limits (raises IndexProblem, LedgerError)."""
        now = self._clock()
        with self._store.session() as reader:
            events = reader.events(kinds=[ChatEvent.KIND], since=start_of_day(now))
            events += [
                e for e in self._store.unindexed_events(PROJECT_JOURNAL) if e.kind == ChatEvent.KIND
            ]
        return DailyChatBudget.from_events(events, now, self._store.settings.consolidation)

    @contextmanager
    def reserve(self, tariff: Tariff, most: Estimate, purpose: str) -> Generator[Meter]:
        """Reserve the most that one call may take, yield its meter, and record what it measured.

        Raises:
            CapReached: the call would exceed the budget.
            IndexProblem, LedgerError: the call cannot be recorded, so it must not be made.
        """
        meter = Meter()
        reservation = ChatEvent(
            model=tariff.model,
            purpose=purpose,
            reserves=most.cost,
            calls=1,
            tokens=most.tokens,
            output_tokens=most.output_tokens,
        )

        def write(payload: EventPayload) -> str:
            if payload is not reservation:
                return self._write(payload)
            # Across processes: two concurrent checks would both find room for the last call.
            with self._store.exclusive("spending"):
                tokens = most.tokens + most.output_tokens
                self.spent_today().check(tariff, most.cost, purpose, tokens)
                return self._write(payload)

        def settlement(reservation_id: str) -> ChatEvent:
            priced = tariff.cost(meter.tokens, meter.output_tokens)
            return ChatEvent(
                settles=reservation_id,
                model=tariff.model,
                purpose=purpose,
                calls=meter.calls,
                tokens=meter.tokens,
                output_tokens=meter.output_tokens,
                cost=priced if meter.cost is None else meter.cost,
            )

        with charge(write, reservation, settlement):
            yield meter

    def _write(self, payload: EventPayload) -> str:
        event = new_event(payload, agent=self._agent, at=self._clock())
        self._store.append_events([event], shared=True)
        return event.id
