"""Ask a chat model of an endpoint within the user's budget.

Each request is reserved before it is made and settled after it. A request that was refused or never
reached the server is not charged; one that may have been answered is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

from memtier_plugin.core.errors import AnswerLost, EndpointError
from memtier_plugin.core.records import count_tokens
from memtier_plugin.providers.endpoint import (
    MAX_ATTEMPTS,
    ChatReply,
    Endpoint,
    EndpointClient,
    resolve_model,
    retry,
)
from memtier_plugin.providers.pricing import TOKEN_MARGIN, Meter, Tariff
from memtier_plugin.providers.structured_output import parse_json

NO_MODEL: Final = "none"  # the model name that switches chat off

Reserve = Callable[[Tariff, float, str], AbstractContextManager[Meter]]


@contextmanager
def reserve_nothing(tariff: Tariff, cost: float, purpose: str) -> Generator[Meter]:
    """Charge nothing: for models without a budget."""
    yield Meter()


class ChatModel:
    """Ask one model; safe to use from many threads if its `reserve` is."""

    def __init__(
        self, title: str, endpoint: Endpoint, model: str, reserve: Reserve = reserve_nothing
    ) -> None:
        """Take a model of an endpoint.

        Args:
            title: the endpoint's name in the settings.
            reserve: called with the tariff, the highest cost of a request and its purpose; returns
                a context that is open during the request, or raises CapReached to forbid it.
        """
        self.name = f"{title}/{model}"
        self.model = model
        self.client = EndpointClient(endpoint)
        self._reserve = reserve
        price = endpoint.price_per_million_tokens
        output = endpoint.price_per_million_output_tokens or price
        self.tariff = Tariff(self.name, price / 1e6, output / 1e6)

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
        return None if name == NO_MODEL else cls(*resolve_model(name, endpoints, key), reserve)

    def cost(self, reply: ChatReply) -> float:
        """Return the cost of a reply."""
        return self.tariff.cost(reply.prompt_tokens, reply.completion_tokens)

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        purpose: str,
        max_tokens: int,
        temperature: float = 0.0,
        schema: Mapping[str, Any] | None = None,
        attempts: int = MAX_ATTEMPTS,
        seconds: float | None = None,
    ) -> ChatReply:
        """Return the model's answer; every attempt stays within the budget.

        An attempt that was refused or found no server leaves its reservation to the next one.

        Args:
            purpose: as the journal names it: "extraction", "evolution", "summary", or "ask" for
                a question that a user waits for, whose calls are counted apart.
            schema: see `EndpointClient.chat`; the answer may still be anything.

        Raises:
            CapReached: one more request would exceed the budget.
            ContextTooLong, EndpointRefused, AnswerLost, EndpointError: see `EndpointClient.chat`.
        """
        self.client.warm_up()  # outside of a request's time, and nothing is reserved without a key
        prompt_tokens = sum(count_tokens(message["content"]) for message in messages)
        highest_cost = self.tariff.cost(prompt_tokens * TOKEN_MARGIN, max_tokens)
        open_meters: list[Meter] = []  # at most one: what a failed attempt leaves to the next

        def attempt() -> ChatReply:
            if not open_meters:
                reservation = self._reserve(self.tariff, highest_cost, purpose)
                open_meters.append(stack.enter_context(reservation))
            [meter] = open_meters
            # The estimate stands if Ctrl-C ends the wait for the answer.
            meter.calls, meter.tokens, meter.output_tokens = 1, prompt_tokens, max_tokens
            try:
                reply = self.client.chat(
                    self.model,
                    messages,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    schema=schema,
                    attempts=1,
                    seconds=seconds,
                )
            except AnswerLost:
                open_meters.clear()
                stack.close()
                raise
            except EndpointError:
                meter.calls = meter.tokens = meter.output_tokens = 0
                raise
            meter.tokens, meter.output_tokens = reply.prompt_tokens, reply.completion_tokens
            return reply

        with ExitStack() as stack:
            return retry(attempt, attempts)

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
