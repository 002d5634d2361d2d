"""Ask a chat model of an endpoint within the user's budget.

Each request is reserved before it is made and settled after it. A request that was refused or never
reached the server is not charged; one that may have been answered is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from memtier_plugin.core.errors import AnswerLost, EndpointError
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.settings.schema import Endpoint, Price
from memtier_plugin.providers.endpoint import (
    MAX_ATTEMPTS,
    ChatReply,
    EndpointClient,
    Tools,
    resolve_model,
    retry,
)
from memtier_plugin.providers.pricing import TOKEN_MARGIN, Meter, Tariff
from memtier_plugin.providers.structured_output import parse_json

NO_MODEL: Final = "none"  # the model name that switches chat off


@dataclass(frozen=True, slots=True)
class Estimate:
    """The most that one request may take."""

    cost: float = 0.0
    tokens: int = 0
    output_tokens: int = 0


T = TypeVar("T")
Reserve = Callable[[Tariff, Estimate, str], AbstractContextManager[Meter]]


@contextmanager
def reserve_nothing(tariff: Tariff, most: Estimate, purpose: str) -> Generator[Meter]:
    """Charge nothing: for models without a budget."""
    yield Meter()


class ChatClient(Protocol):
    """A client that requests completions from an endpoint or from the host's own model."""

    def warm_up(self) -> None:
        """Prepare for requests, or raise EndpointError where there can be none."""

    def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: Mapping[str, Any] | None = None,
        tools: Tools | None = None,
        attempts: int = MAX_ATTEMPTS,
        seconds: float | None = None,
    ) -> ChatReply:
        """Return a model's answer; see `EndpointClient.chat`."""
        ...


def tariff_of(model: str, price: Price, *, reports_cost: bool = False) -> Tariff:
    """Return the tariff of a model by the price in the settings."""
    read = price.price_per_million_tokens
    written = price.price_per_million_output_tokens or read
    return Tariff(model, read / 1e6, written / 1e6, reports_cost)


class ChatModel:
    """Ask one model; safe to use from many threads if its `reserve` is."""

    def __init__(
        self, client: ChatClient, model: str, tariff: Tariff, reserve: Reserve = reserve_nothing
    ) -> None:
        """Bind to a model of a client.

        Args:
            reserve: called with the tariff, the most that a request may take and its purpose;
                returns a context that is open during the request, or raises CapReached to forbid
                it.
        """
        self.name = tariff.model
        self.model = model
        self.client = client
        self.tariff = tariff
        self._reserve = reserve

    @classmethod
    def of_endpoint(
        cls, title: str, endpoint: Endpoint, model: str, reserve: Reserve = reserve_nothing
    ) -> ChatModel:
        """Return a model of an endpoint, which the settings know by its title."""
        return cls(
            EndpointClient(endpoint), model, tariff_of(f"{title}/{model}", endpoint), reserve
        )

    @classmethod
    def from_name(
        cls,
        name: str,
        endpoints: Mapping[str, Endpoint],
        reserve: Reserve = reserve_nothing,
        *,
        key: str = "consolidation.model",
    ) -> ChatModel | None:
        """Return the model of a name such as "endpoint:NAME/MODEL"; None for "none".

        Raises:
            SettingsError: no such endpoint is configured; the message names the setting `key`.
        """
        if name == NO_MODEL:
            return None
        return cls.of_endpoint(*resolve_model(name, endpoints, key), reserve)

    def cost(self, reply: ChatReply) -> float:
        """Return the cost of a reply: as it says itself, else by the price in the settings."""
        if reply.cost is not None:
            return reply.cost
        return self.tariff.cost(reply.prompt_tokens, reply.completion_tokens)

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        purpose: str,
        max_tokens: int,
        temperature: float = 0.0,
        schema: Mapping[str, Any] | None = None,
        tools: Tools | None = None,
        attempts: int = MAX_ATTEMPTS,
        seconds: float | None = None,
    ) -> ChatReply:
        """Return the model's answer; every attempt stays within the budget.

        An attempt that was refused or found no server leaves its reservation to the next one.

        Args:
            purpose: as the journal names it: "extraction", "evolution", "summary", or "ask" for
                a question that a user waits for, whose calls are counted apart.
            schema, tools: see `EndpointClient.chat`; the answer may still be anything.

        Raises:
            CapReached: one more request would exceed the budget.
            ContextTooLong, EndpointRefused, AnswerLost, EndpointError: see `EndpointClient.chat`.
        """
        most = self._estimate(messages, tools, max_tokens)

        def request(meter: Meter) -> ChatReply:
            reply = self.client.chat(
                self.model,
                messages,
                max_tokens=max_tokens,
                temperature=temperature,
                schema=schema,
                tools=tools,
                attempts=1,
                seconds=seconds,
            )
            meter.tokens, meter.output_tokens = reply.prompt_tokens, reply.completion_tokens
            meter.cost = reply.cost
            return reply

        return self.within_budget(request, most, purpose, attempts)

    def within_budget(
        self,
        request: Callable[[Meter], T],
        most: Estimate,
        purpose: str,
        attempts: int = MAX_ATTEMPTS,
    ) -> T:
        """Make a request within the budget; `chat` says how its attempts are charged."""
        self.client.warm_up()  # outside of a request's time, and nothing is reserved without a key
        open_meters: list[Meter] = []  # at most one: what a failed attempt leaves to the next

        def attempt() -> T:
            if not open_meters:
                reservation = self._reserve(self.tariff, most, purpose)
                open_meters.append(stack.enter_context(reservation))
            [meter] = open_meters
            # The estimate stands if Ctrl-C ends the wait for the answer.
            meter.calls, meter.tokens, meter.output_tokens = 1, most.tokens, most.output_tokens
            try:
                return request(meter)
            except AnswerLost:
                open_meters.clear()
                stack.close()
                raise
            except EndpointError:
                meter.calls = meter.tokens = meter.output_tokens = 0
                raise

        with ExitStack() as stack:
            return retry(attempt, attempts)

    def _estimate(
        self, messages: Sequence[Mapping[str, str]], tools: Tools | None, max_tokens: int
    ) -> Estimate:
        """Return the most that one request may take."""
        tokens = sum(count_tokens(message["content"]) for message in messages)
        tokens += count_tokens(json.dumps(tools)) if tools else 0
        return Estimate(self.tariff.cost(tokens * TOKEN_MARGIN, max_tokens), tokens, max_tokens)

    def chat_json(
        self,
        system: str,
        user: str,
        *,
        purpose: str,
        max_tokens: int,
        schema: Mapping[str, Any],
        checked: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> tuple[Any, ChatReply]:
        """Return the JSON of an answer that fits a schema, and the whole reply.

        Args:
            checked: the schema to check the answer against, if laxer than the one asked for.

        Raises:
            BadAnswer: the answer holds no such JSON; its tokens are charged all the same.
            CapReached: one more request would exceed the budget.
            EndpointError: there is no answer; see `chat`.
        """
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        reply = self.chat(
            messages, purpose=purpose, max_tokens=max_tokens, schema=schema, seconds=seconds
        )
        return parse_json(reply.text, checked or schema), reply
