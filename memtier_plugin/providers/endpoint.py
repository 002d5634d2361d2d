"""Request vectors and chat answers from any OpenAI-compatible endpoint.

The `openai` package is imported at the first request. Every request has a deadline that holds
whatever the server does; transient failures (a busy or broken server) are retried. The API key
comes from the environment variable that the endpoint names, and never appears in a message.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import finalize

from memtier_plugin.core.concurrency import Mutex, TooManyJobs, WorkerPool
from memtier_plugin.core.errors import (
    AnswerLate,
    AnswerLost,
    ContextTooLong,
    EndpointError,
    EndpointRefused,
    SettingsError,
)
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.settings.schema import ENDPOINT_PREFIX, Endpoint

if TYPE_CHECKING:
    from openai import OpenAI


MAX_ATTEMPTS: Final = 4
FIRST_PAUSE: Final = 0.5  # seconds; each later pause is twice as long, within a half
LONGEST_PAUSE: Final = 20.0  # seconds, even if the server asks for more

_FORMAT: Final = re.compile(
    r"response_?format|json_?schema|json_?object|\bschema\b|grammar|structured|guided",
    re.IGNORECASE,
)
T = TypeVar("T")
Tools = Sequence[Mapping[str, Any]]  # as OpenAI-compatible servers expect them


@dataclass(frozen=True, slots=True)
class EmbeddingReply:
    """One vector per text, in order, and the tokens that the endpoint counted."""

    vectors: Sequence[Sequence[float]]
    tokens: int


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The text of a chat answer, the endpoint's token counts, and why it ended."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish: str = "stop"  # "length": the answer was cut off
    cost: float | None = (
        None  # as the server reports it; None: it goes by the price in the settings
    )

    @property
    def truncated(self) -> bool:
        """Whether the answer was cut off at the token limit."""
        return self.finish == "length"


@dataclass(frozen=True, slots=True)
class RequestFormat:
    """The options of a chat request that an endpoint accepts: all, until it refuses one."""

    structured: int = 2  # 2: a JSON schema, 1: any JSON object, 0: free text
    limit_parameter: str = "max_tokens"
    temperature: bool = True
    tools: bool = True

    def options(
        self,
        schema: Mapping[str, Any] | None,
        max_tokens: int,
        temperature: float,
        tools: Tools | None = None,
    ) -> dict[str, Any]:
        """Return the request's arguments except the model and the messages."""
        options: dict[str, Any] = {self.limit_parameter: max_tokens}
        if tools and self.tools:
            options["tools"] = [*tools]
        if self.temperature:
            options["temperature"] = temperature
        if schema is not None and self.structured == 2:
            form = {"name": schema.get("title", "answer"), "strict": True, "schema": schema}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        elif schema is not None and self.structured == 1:
            options["response_format"] = {"type": "json_object"}
        return options

    def simplified(
        self, response: str, schema: bool, *, proven: bool, tools: bool = False
    ) -> RequestFormat | None:
        """Return a simpler format to try after a refusal; None if the format is not the cause.

        Args:
            response: the server's message.
            schema: whether a schema was requested.
            proven: whether the endpoint has accepted this format before.
            tools: whether tools were offered.
        """
        if self.limit_parameter == "max_tokens" and "max_completion_tokens" in response:
            return replace(self, limit_parameter="max_completion_tokens")
        if self.temperature and "temperature" in response:
            return replace(self, temperature=False)
        if tools and self.tools and (not proven or "tool" in response.casefold()):
            return replace(self, tools=False)
        if schema and self.structured and (not proven or _FORMAT.search(response)):
            return replace(self, structured=self.structured - 1)
        return None


_workers = WorkerPool("memtier-endpoint")

# The format that each endpoint accepts, by address and model, for the lifetime of the process.
_formats: dict[tuple[str, str], RequestFormat] = {}


def resolve_model(
    name: str, endpoints: Mapping[str, Endpoint], key: str
) -> tuple[str, Endpoint, str]:
    """Return the title, the endpoint and the model of "endpoint:NAME/MODEL".

    Args:
        key: the setting with this value, for the error.

    Raises:
        SettingsError: no such endpoint is configured.
    """
    title, slash, model = name.removeprefix(ENDPOINT_PREFIX).partition("/")
    if not (name.startswith(ENDPOINT_PREFIX) and slash and title and model):
        raise SettingsError(f"{key} is {name!r}; expected 'endpoint:NAME/MODEL'")
    if title not in endpoints:
        configured = ", ".join(sorted(endpoints)) or "none is"
        raise SettingsError(
            f"{key} is {name!r}, and no endpoint {title!r} is configured ({configured}); "
            "describe it under `endpoints:` in the home's config.yaml"
        )
    return title, endpoints[title], model


class EndpointClient:
    """Sends requests to one endpoint; thread-safe, also after a fork."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._lock = Mutex()
        self._opened: tuple[int, OpenAI] | None = None  # the process and its client

    def warm_up(self) -> None:
        """Import the package and open the client (raises EndpointError without a key)."""
        self._client()

    def embed(
        self,
        model: str,
        texts: Sequence[str],
        *,
        attempts: int = MAX_ATTEMPTS,
        seconds: float | None = None,
    ) -> EmbeddingReply:
        """Return one vector for each text.

        Args:
            attempts: the most attempts.
            seconds: the deadline of one attempt, if shorter than the endpoint's ``timeout_s``.

        Raises:
            EndpointRefused: the endpoint rejects this request for good.
            EndpointError: no attempt got a usable answer.
        """
        if not texts:
            return EmbeddingReply((), 0)

        def create(client: OpenAI, limit: float) -> EmbeddingReply:
            answer = client.embeddings.create(
                model=model,
                input=list(texts),
                encoding_format="float",  # the package defaults to base64
                timeout=limit,
            )
            return _embedding_reply(answer, texts)

        return self.request(create, attempts, seconds)

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
        """Return a chat model's answer to messages of ``role`` and ``content``.

        Options that the endpoint refuses are dropped. So the messages must describe the expected
        JSON, and callers must check the answer.

        Args:
            schema: the JSON schema of the answer, with a ``title``; None for free text.
            tools: that the model may call; a call becomes part of the answer's text, as
                ``<tool_call>{"name", "arguments"}</tool_call>``.

        Raises:
            ContextTooLong: the messages, with or without the answer, exceed the model's context.
            EndpointRefused: the endpoint rejects this request for good.
            EndpointError: no attempt got a usable answer.
        """
        proven_format = _formats.get((self.endpoint.base_url, model))
        form = proven_format or RequestFormat()
        while True:
            try:
                options = form.options(schema, max_tokens, temperature, tools)
                reply = self._chat(model, messages, options, attempts, seconds)
            except ContextTooLong:
                raise
            except EndpointRefused as error:
                simpler = form.simplified(
                    error.response_text,
                    schema is not None,
                    proven=proven_format is not None,
                    tools=bool(tools),
                )
                if simpler is None:
                    raise
                form = simpler
            else:
                _formats[self.endpoint.base_url, model] = form
                return reply

    def _chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        options: Mapping[str, Any],
        attempts: int,
        seconds: float | None,
    ) -> ChatReply:
        def create(client: OpenAI, limit: float) -> ChatReply:
            answer = client.chat.completions.create(
                model=model,
                messages=[dict(message) for message in messages],  # type: ignore[misc]
                timeout=limit,
                **options,
            )
            return _chat_reply(answer, messages, tools="tools" in options)

        return self.request(create, attempts, seconds)

    def request(
        self,
        create: Callable[[OpenAI, float], T],
        attempts: int = 1,
        seconds: float | None = None,
    ) -> T:
        """Call a function with the endpoint's client and a limit in seconds; return its result.

        Raises:
            EndpointRefused: the endpoint rejects this request for good.
            EndpointError: no attempt got a usable answer.
        """
        limit = min(math.inf if seconds is None else seconds, self.endpoint.timeout_s)

        def attempt() -> T:
            try:
                # The package limits only silence: a server that trickles would block it forever.
                return _within(limit, lambda: create(self._client(), limit))
            except EndpointError:
                raise
            # The package and its transport have several error hierarchies
            except Exception as error:
                raise self._endpoint_error(error, limit) from None

        return retry(attempt, attempts)

    def _client(self) -> OpenAI:
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                from openai import OpenAI

                base_url = self.endpoint.base_url
                client = OpenAI(api_key=self._key() or "none", base_url=base_url, max_retries=0)
                # The package reads these from the environment, and would send them to any server.
                client.organization = client.project = None
                self._opened = (os.getpid(), client)
                finalize(self, _close, *self._opened).atexit = False
            return self._opened[1]

    def _key(self) -> str | None:
        name = self.endpoint.key_env
        if name == "none":
            return None
        key = os.environ.get(name, "").strip()
        if not key:
            raise EndpointError(
                f"the endpoint {self.endpoint.base_url} needs a key, and the environment variable "
                f"{name} is not set: set it where MemTier runs, the daemon included"
            )
        return key

    def _endpoint_error(self, error: Exception, limit: float) -> EndpointError:
        name = self.endpoint.key_env
        key = None if name == "none" else os.environ.get(name)
        return to_endpoint_error(error, f"the endpoint {self.endpoint.base_url}", name, key, limit)


def _close(process: int, client: OpenAI) -> None:
    """Close an unused client; a forked child leaves its parent's alone."""
    if process == os.getpid():
        client.close()


def _embedding_reply(answer: Any, texts: Sequence[str]) -> EmbeddingReply:
    """Check that an answer has one finite vector per text, all of one length: (n, d)."""
    rows = sorted(answer.data, key=lambda row: row.index)
    if [row.index for row in rows] != list(range(len(texts))):
        raise ValueError(f"{len(rows)} vectors for {len(texts)} texts")
    vectors = [[float(value) for value in row.embedding] for row in rows]
    if len({len(vector) for vector in vectors}) != 1 or not vectors[0]:
        raise ValueError("vectors of different lengths, or empty ones")
    if not all(math.isfinite(value) for vector in vectors for value in vector):
        raise ValueError("a vector with a component that is not a number")
    tokens = getattr(answer.usage, "prompt_tokens", None) if answer.usage else None
    return EmbeddingReply(vectors, int(tokens or sum(map(count_tokens, texts))))


def _call_text(call: Any) -> str:
    """Return a native tool call as text; its arguments are kept verbatim."""
    document = {"name": call.function.name, "arguments": call.function.arguments}
    return f"<tool_call>{json.dumps(document)}</tool_call>"


def _chat_reply(
    answer: Any, messages: Sequence[Mapping[str, str]], *, tools: bool = False
) -> ChatReply:
    choice = answer.choices[0]
    # There is no content if reasoning used up the tokens, or the model refuses.
    text = "" if choice.message.content is None else choice.message.content
    if not isinstance(text, str):
        raise TypeError("an answer that is not text")
    if tools:
        text = "".join(map(_call_text, choice.message.tool_calls or ())) or text
    usage = answer.usage
    prompt_tokens = getattr(usage, "prompt_tokens", None)
    completion_tokens = getattr(usage, "completion_tokens", None)
    return ChatReply(
        text,
        int(prompt_tokens or sum(count_tokens(message["content"]) for message in messages)),
        int(completion_tokens or count_tokens(text)),
        str(choice.finish_reason or "stop"),
    )


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call; after the limit raise TimeoutError, abandoning its thread."""
    future = _workers.submit(call)
    if wait([future], seconds).done:
        return future.result()
    raise TimeoutError(f"no answer within {seconds:g} s")


def retry(call: Callable[[], T], attempts: int = MAX_ATTEMPTS) -> T:
    """Return the result of a call, retrying transient errors with growing pauses.

    What came too late is left to the caller, who may ask for less.
    """
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except EndpointError as error:
            if attempt == attempts or not error.transient or isinstance(error, AnswerLate):
                raise
            # With jitter, so that clients refused together do not retry together.
            pause = FIRST_PAUSE * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5)
            time.sleep(min(LONGEST_PAUSE, max(error.retry_after, pause)))
    raise ValueError("at least one attempt")


# -- Translate endpoint failures into errors with a remedy

# How servers report that a request exceeds the model's context, in order: OpenAI and vLLM;
# llama.cpp (also with status 500) and its Python server; Ollama and LM Studio; Anthropic, Gemini,
# Mistral and Groq behind their compatible addresses; text-generation-inference.
_TOO_LONG: Final = re.compile(
    r"context_length_exceeded|string_above_max_length|maximum (?:context|model) length"
    r"|exceeds? (?:the )?(?:available |maximum |max )?context|exceed_context_size"
    r"|context (?:size|window|length) (?:has been )?exceeded|longer than the (?:maximum|context)"
    r"|input length exceeds|context the overflows|greater than the context length"
    r"|prompt (?:is )?too long|exceeds the maximum number of tokens|too large for model with"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)|max_new_tokens`? must be",
    re.IGNORECASE,
)
_TPM: Final = "request too large for"  # it exceeds the quota of a whole minute (OpenAI, with 429)
# A server error about the format of the answer is permanent (llama.cpp).
_FORM: Final = re.compile(r"response_?format|json_?schema|json_?object|grammar", re.IGNORECASE)
_TRANSIENT: Final = frozenset({408, 409, 425, 429})  # and every 5xx
_MAX_SHOWN_CHARS: Final = 300  # of a server's message within ours
_MAX_RESPONSE_CHARS: Final = 4000


def to_endpoint_error(
    error: Exception, where: str, key_env: str, key: str | None, limit: float
) -> EndpointError:
    """Return the error of one failed request, with a remedy.

    Args:
        where: the endpoint's name in messages.
        key: the secret that messages must not repeat, if any.
        limit: the seconds that the request was given.
    """
    status = getattr(error, "status_code", None)
    text = f"{type(error).__name__}: {error}"
    if key:
        text = text.replace(key.strip(), "[key]")
    excerpt = " ".join(text.split())[:_MAX_SHOWN_CHARS]
    if isinstance(status, int):
        return _status_error(status, text, excerpt, where, key_env, _retry_after(error))
    if isinstance(error, TooManyJobs):
        hint = "earlier requests are still waiting for answers; it will be retried later"
        return _as_transient(EndpointError(f"{where} was not asked: {hint} ({excerpt})"))
    if isinstance(error, TimeoutError) or type(error).__name__ == "APITimeoutError":
        hint = "it may be overloaded: raise endpoints.*.timeout_s"
        return _as_transient(AnswerLate(f"{where} did not answer within {limit:g} s; {hint}"))
    if isinstance(error, ValueError | TypeError | AttributeError | LookupError):
        hint = "is it OpenAI-compatible?"
        return _as_transient(AnswerLost(f"{where} returned an invalid answer; {hint} ({excerpt})"))
    hint = "check that the server is running and base_url is right"
    return _as_transient(EndpointError(f"{where} cannot be reached; {hint} ({excerpt})"))


def is_too_long(text: str) -> bool:
    """Return whether a server's message means that a request exceeds its model's context."""
    return bool(_TOO_LONG.search(text))


def _status_error(
    status: int, text: str, excerpt: str, where: str, key_env: str, retry_after: float
) -> EndpointError:
    if status in (401, 403):
        hint = f"check the key in {key_env}"
        return EndpointError(f"{where} refuses the key; {hint} ({excerpt})")
    if status == 404:
        hint = "check the model's name, and base_url, which usually ends in /v1"
        return EndpointError(f"{where} knows no such model or path; {hint} ({excerpt})")
    if (
        status == 413
        or (status not in _TRANSIENT and _TOO_LONG.search(text))
        or _TPM in text.lower()
    ):
        refusal: EndpointRefused = ContextTooLong(
            f"{where} refuses the request: too long for its model ({excerpt})"
        )
        refusal.response_text = text[:_MAX_RESPONSE_CHARS]
        return refusal
    if status not in _TRANSIENT and (400 <= status < 500 or _FORM.search(text)):
        refusal = EndpointRefused(f"{where} refuses the request ({excerpt})")
        refusal.response_text = text[:_MAX_RESPONSE_CHARS]
        return refusal
    if status == 429:
        hint = "it will be retried later; if this persists, check the account's limits"
        return _as_transient(
            EndpointError(f"{where} refuses further requests for now; {hint} ({excerpt})"),
            retry_after,
        )
    error = EndpointError(f"{where} is in trouble; it is tried again later ({excerpt})")
    return _as_transient(error, retry_after) if status in _TRANSIENT or status >= 500 else error


def _as_transient(error: EndpointError, retry_after: float = 0.0) -> EndpointError:
    error.transient = True
    error.retry_after = retry_after
    return error


def _retry_after(error: Exception) -> float:
    """Return the seconds of the Retry-After header; 0 without one."""
    response: Any = getattr(error, "response", None)
    try:
        return float(response.headers["retry-after"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0.0
