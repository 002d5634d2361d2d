"""A chat model of an endpoint, asked within what the user allows.

Each request is reserved before it is made and settled after; what was refused or never reached the
server is not charged, what may have been answered is.
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

NO_MODEL: Final = "none"  # as a model's name

Reserve = Callable[[Tariff, float, str], AbstractContextManager[Meter]]


@contextmanager
def reserve_nothing(tariff: Tariff, cost: float, purpose: str) -> Generator[Meter]:
    """Reserve nothing and settle nothing."""
    yield Meter()


class ChatModel:
    """One model; safe to use from many threads if its `reserve` is."""

    def __init__(
        self, title: str, endpoint: Endpoint, model: str, reserve: Reserve = reserve_nothing
    ) -> None:
        """Take a model of an endpoint.

        Args:
            title: the endpoint's name in the settings.
            reserve: called with the tariff, the most that a request may cost and its purpose; what
                it returns is open while the request is made, and raises CapReached to forbid it.
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
        cls, name: str, endpoints: Mapping[str, Endpoint], reserve: Reserve = reserve_nothing,
        *, key: str = "consolidation.model",
    ) -> ChatModel | None:  # fmt: skip
        """Return the model of a name such as "endpoint:NAME/MODEL"; None for "none".

        Raises:
            SettingsError: it names no endpoint that is configured; says so of the setting `key`.
        """
        return None if name == NO_MODEL else cls(*resolve_model(name, endpoints, key), reserve)

    def cost(self, reply: ChatReply) -> float:
        """Return what a reply cost."""
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
        """Return what the model answers; each attempt is within what is allowed.

        An attempt that was refused or found no server leaves its reservation to the next one.

        Args:
            purpose: what it is for, as the journal tells: "extraction", "evolution", "summary";
                "ask" for what a user waits for, which has a count of calls of its own.
            schema: see `EndpointClient.chat`; the answer may still be anything.

        Raises:
            CapReached: a request more would be beyond what is allowed.
            ContextTooLong, EndpointRefused, AnswerLost, EndpointError: see `EndpointClient.chat`.
        """
        self.client.warm_up()  # outside of a request's time, and nothing is reserved without a key
        reading = sum(count_tokens(message["content"]) for message in messages)
        most = self.tariff.cost(reading * TOKEN_MARGIN, max_tokens)

        open_one: list[Meter] = []  # what a refusal or a dead server left to the next attempt

        def once() -> ChatReply:
            if not open_one:
                open_one.append(stack.enter_context(self._reserve(self.tariff, most, purpose)))
            [meter] = open_one
            # Until it is known better: also where Ctrl-C ends the wait for an answer.
            meter.calls, meter.tokens, meter.output_tokens = 1, reading, max_tokens
            try:
                reply = self.client.chat(
                    self.model, messages, max_tokens=max_tokens, temperature=temperature,
                    schema=schema, attempts=1, seconds=seconds,
                )  # fmt: skip
            except AnswerLost:
                open_one.clear()
                stack.close()
                raise
            except EndpointError:
                meter.calls = meter.tokens = meter.output_tokens = 0
                raise
            meter.tokens, meter.output_tokens = reply.prompt_tokens, reply.completion_tokens
            return reply

        with ExitStack() as stack:
            return retry(once, attempts)

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
        """Return what the model answers as JSON that fits a schema, and the reply it stood in.

        Args:
            checked: what the answer is held against, if that is less than what is asked for.

        Raises:
            BadAnswer: the answer holds no such JSON; its tokens are spent all the same.
            CapReached, EndpointError: as `chat`.
        """
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        reply = self.chat(
            messages, purpose=purpose, max_tokens=max_tokens, schema=schema, seconds=seconds
        )
        return parse_json(reply.text, checked or schema), reply
