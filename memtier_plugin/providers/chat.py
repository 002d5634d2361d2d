"""Ask a chat model within the user's budget: an endpoint's, or the host's own."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from memtier_plugin.core import errors
from memtier_plugin.core.errors import (
    AnswerLate,
    AnswerLost,
    EndpointError,
    HostAway,
    HostLeft,
    UnsafePath,
)
from memtier_plugin.core.files import check_ownership
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.settings.schema import Endpoint, HostModel
from memtier_plugin.providers.endpoint import (
    MAX_ATTEMPTS,
    ChatReply,
    EndpointClient,
    Tools,
    resolve_model,
    retry,
)
from memtier_plugin.providers.pricing import TOKEN_MARGIN, Meter, Tariff
from memtier_plugin.providers.prompting import parse_json

# -- Ask the host's model, through the resident and the host's plugin
#
# The resident forwards a request to a connected host whose user has consented.  This side needs
# only the standard library: one connection to the resident's socket per request.

HOST_MODEL: Final = "host"  # the model name in the settings
CONNECT_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 5.0  # for the resident to report that the host timed out

# The errors that the resident reports by name.
_ERRORS: Final = (
    "HostAway",
    "HostLeft",
    "AnswerLost",
    "EndpointRefused",
    "ContextTooLong",
    "EndpointError",
)


class HostModelClient:
    """Requests completions from the host that serves a project."""

    def __init__(self, home: Path, project: str, seconds: float) -> None:
        """Bind to a project's host; ``seconds`` is the deadline of a completion."""
        self._socket = socket_path(home)
        self._project = project
        self._seconds = seconds

    def warm_up(self) -> None:
        """Check that a host offers its model for the project.

        Raises:
            HostAway: no resident or no such host runs now.
        """
        self._call("offers", {"project": self._project}, CONNECT_SECONDS)

    def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: Mapping[str, Any] | None = None,
        tools: Tools | None = None,
        attempts: int = 1,
        seconds: float | None = None,
    ) -> ChatReply:
        """Return the host's answer.

        A host takes no schema and no tools, so the messages must describe the expected answer.
        Tokens that the host does not report are estimated.

        Raises:
            HostAway: no host runs now; nothing was asked.
            HostLeft: the host ended before it answered.
            AnswerLost: it did not answer in time, or its model failed.
            EndpointRefused: the host's own policy forbids the request.
        """
        limit = min(seconds or self._seconds, self._seconds)
        params = {
            "project": self._project,
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seconds": limit,
        }
        result = self._call("complete", params, limit + GRACE_SECONDS)
        text = str(result.get("text") or "")
        read = sum(count_tokens(message["content"]) for message in messages)
        return ChatReply(
            text,
            _count(result.get("prompt_tokens"), read),
            _count(result.get("completion_tokens"), count_tokens(text)),
            cost=_amount(result.get("cost")),
        )

    def _call(self, method: str, params: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        connection = socket.socket(socket.AF_UNIX)
        try:
            check_ownership(self._socket.parent, self._socket.parent.lstat(), stat.S_IFDIR)
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(str(self._socket))
        except (OSError, UnsafePath) as error:
            connection.close()
            raise HostAway(f"no host runs that could be asked for its model ({error})") from None
        with connection, connection.makefile("rwb") as stream:
            try:
                connection.settimeout(seconds)
                stream.write(json.dumps(request).encode("ascii") + b"\n")
                stream.flush()
                answer = parse_json_text(stream.readline() or b"null")
            except TimeoutError:
                raise AnswerLate(f"the host did not answer within {seconds:g} s") from None
            except (OSError, ValueError) as error:
                raise HostLeft(f"the resident ended before the host answered ({error})") from None
        return _result_of(answer)


def _result_of(answer: Any) -> Mapping[str, Any]:
    """Return the result of a JSON-RPC answer, or raise the error that it reports."""
    if not isinstance(answer, dict):
        raise HostLeft("the resident ended before the host answered")
    error = answer.get("error")
    if error is None:
        result = answer.get("result")
        return result if isinstance(result, dict) else {}
    name = error.get("data", {}).get("error") if isinstance(error.get("data"), dict) else None
    kind: type[EndpointError] = getattr(errors, name) if name in _ERRORS else EndpointError
    raise kind(str(error.get("message")))


def _count(value: Any, estimate: int) -> int:
    return value if type(value) is int and value > 0 else estimate


def _amount(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and value >= 0 else None


# -- Ask an endpoint's chat model within the user's budget
#
# Each request is reserved before it is made and settled after it. A request that was refused or
# never reached the server is not charged; one that may have been answered is.

NO_MODEL: Final = "none"  # the model name that switches chat off


@dataclass(frozen=True, slots=True)
class Estimate:
    """The most tokens and money that one request may use."""

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


def tariff_of(model: str, price: Endpoint | HostModel, *, reports_cost: bool = False) -> Tariff:
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
            reserve: called with the tariff, the maximum usage of a request and its purpose; returns
        a
                context that is open during the request, or raises CapReached to forbid it.
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
        """Return a model of an endpoint; ``title`` is the endpoint's name in the settings."""
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
        """Return the model with a name such as "endpoint:NAME/MODEL"; None for "none".

        Raises:
            SettingsError: no such endpoint is configured; the message names the setting `key`.
        """
        if name == NO_MODEL:
            return None
        return cls.of_endpoint(*resolve_model(name, endpoints, key), reserve)

    def cost(self, reply: ChatReply) -> float:
        """Return the cost of a reply: as reported by the server, else by the configured price."""
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
            purpose: its name in the journal: "extraction", "evolution", "summary", or "ask" for a
                question that a user waits for, whose calls are counted separately.
            schema, tools: see `EndpointClient.chat`; the answer may ignore them.

        Raises:
            CapReached: another request would exceed the budget.
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
        # Before the request's time starts; and without a key nothing is reserved
        self.client.warm_up()
        # At most one: the reservation that a failed attempt leaves to the next
        open_meters: list[Meter] = []

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
        """Return the most that one request may use."""
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
            checked: the schema to check the answer against, if laxer than the requested one.

        Raises:
            BadAnswer: the answer contains no such JSON; its tokens are charged anyway.
            CapReached: another request would exceed the budget.
            EndpointError: there is no answer; see `chat`.
        """
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        reply = self.chat(
            messages, purpose=purpose, max_tokens=max_tokens, schema=schema, seconds=seconds
        )
        return parse_json(reply.text, checked or schema), reply
