"""The one client of any OpenAI-compatible endpoint, for vectors and for answers.

Through the `openai` package, imported at the first request.  Every request has a limit of time
that holds whatever the server does; what may pass (a busy or broken server) is tried again.  A key
comes from the environment variable that the endpoint names, and is put into no message.
"""

from __future__ import annotations

import math
import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from memtier_plugin.core.errors import ContextTooLong, EndpointError, EndpointRefused, SettingsError
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.providers.endpoint_errors import to_endpoint_error

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = [
    "MAX_ATTEMPTS",
    "ChatReply",
    "EmbeddingReply",
    "Endpoint",
    "EndpointClient",
    "resolve_model",
    "retry",
]

ENDPOINT_PREFIX: Final = "endpoint:"  # of a model's name in the settings
MAX_ATTEMPTS: Final = 4
FIRST_PAUSE: Final = 0.5  # seconds; each later one is twice as long, give or take a half
LONGEST_PAUSE: Final = 20.0  # seconds, also where the server asks for more

_FORMAT: Final = re.compile(
    r"response_?format|json_?schema|json_?object|\bschema\b|grammar|structured|guided",
    re.IGNORECASE,
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmbeddingReply:
    """One vector for each text, in their order, and the tokens that the endpoint counted."""

    vectors: Sequence[Sequence[float]]
    tokens: int


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a chat model said, the tokens that the endpoint counted, and why it ended there."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish: str = "stop"  # "length": the answer was cut off

    @property
    def truncated(self) -> bool:
        """Whether the answer is only the beginning of one."""
        return self.finish == "length"


@dataclass(frozen=True, slots=True)
class RequestFormat:
    """What of a chat request an endpoint takes: all of it, until it refuses."""

    structured: int = 2  # 2: a JSON schema, 1: any JSON object, 0: free text
    limit_parameter: str = "max_tokens"
    temperature: bool = True

    def options(
        self, schema: Mapping[str, Any] | None, max_tokens: int, temperature: float
    ) -> dict[str, Any]:
        """Return what goes into a request beside model and messages."""
        options: dict[str, Any] = {self.limit_parameter: max_tokens}
        if self.temperature:
            options["temperature"] = temperature
        if schema is not None and self.structured == 2:
            wanted = {"name": schema.get("title", "answer"), "strict": True, "schema": schema}
            options["response_format"] = {"type": "json_schema", "json_schema": wanted}
        elif schema is not None and self.structured == 1:
            options["response_format"] = {"type": "json_object"}
        return options

    def simplified(self, said: str, schema: bool, *, proven: bool) -> RequestFormat | None:
        """Return what to try after a refusal; None where the form is not to blame.

        Args:
            said: how the server words it.
            schema: whether the answer was to have a form.
            proven: whether the endpoint has taken this form before.
        """
        if self.limit_parameter == "max_tokens" and "max_completion_tokens" in said:
            return replace(self, limit_parameter="max_completion_tokens")
        if self.temperature and "temperature" in said:
            return replace(self, temperature=False)
        if schema and self.structured and (not proven or _FORMAT.search(said)):
            return replace(self, structured=self.structured - 1)
        return None


# What each endpoint was found to take, by address and model, as long as this process lives.
_forms: dict[tuple[str, str], RequestFormat] = {}


def resolve_model(
    name: str, endpoints: Mapping[str, Endpoint], key: str
) -> tuple[str, Endpoint, str]:
    """Return the title, the endpoint and the model that "endpoint:NAME/MODEL" means.

    Args:
        key: the setting that says it, for the error.

    Raises:
        SettingsError: it means none that is configured.
    """
    title, slash, model = name.removeprefix(ENDPOINT_PREFIX).partition("/")
    if not (name.startswith(ENDPOINT_PREFIX) and slash and title and model):
        raise SettingsError(f"{key} is {name!r}; expected 'endpoint:NAME/MODEL'")
    if title not in endpoints:
        known = ", ".join(sorted(endpoints)) or "none is"
        raise SettingsError(
            f"{key} is {name!r}, and no endpoint {title!r} is configured ({known}); "
            "describe it under `endpoints:` in the home's config.yaml"
        )
    return title, endpoints[title], model


class EndpointClient:
    """Talks to one endpoint; safe to use from many threads, and after a fork."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._made: tuple[int, OpenAI] | None = None  # with the process that made it
        os.register_at_fork(after_in_child=self._unlock)

    def warm_up(self) -> None:
        """Load the package, so that the first request need not (raises EndpointError: no key)."""
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
            attempts: how often it is tried, at most.
            seconds: the limit of one attempt, if it is to be under the endpoint's ``timeout_s``.

        Raises:
            EndpointRefused: it does not take this request, however often it is asked.
            EndpointError: no answer, or none that can be used, after every attempt.
        """
        if not texts:
            return EmbeddingReply((), 0)

        def ask(client: OpenAI, limit: float) -> EmbeddingReply:
            answer = client.embeddings.create(
                model=model,
                input=list(texts),
                encoding_format="float",  # what every server knows; the package asks for base64
                timeout=limit,
            )
            return _embeddings(answer, texts)

        return self._request(ask, attempts, seconds)

    def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: Mapping[str, Any] | None = None,
        attempts: int = MAX_ATTEMPTS,
        seconds: float | None = None,
    ) -> ChatReply:
        """Return what a chat model answers to messages of ``role`` and ``content``.

        What the endpoint does not take of a request's form is left out: the messages have to
        describe the JSON that is wanted, and the answer has to be checked, whoever it is from.

        Args:
            schema: a JSON schema of the answer, with a ``title``; without one it is free text.

        Raises:
            ContextTooLong: the messages, or they and the answer, are more than the model reads.
            EndpointRefused, EndpointError: as `embed`.
        """
        known = _forms.get((self.endpoint.base_url, model))
        form = known or RequestFormat()
        while True:
            try:
                reply = self._chat(
                    model, messages, form, schema, max_tokens, temperature, attempts, seconds
                )
            except ContextTooLong:
                raise
            except EndpointRefused as error:
                simpler = form.simplified(
                    error.response_text, schema is not None, proven=known is not None
                )
                if simpler is None:
                    raise
                form = simpler
            else:
                _forms[self.endpoint.base_url, model] = form
                return reply

    def _chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        form: RequestFormat,
        schema: Mapping[str, Any] | None,
        max_tokens: int,
        temperature: float,
        attempts: int,
        seconds: float | None,
    ) -> ChatReply:
        options = form.options(schema, max_tokens, temperature)

        def ask(client: OpenAI, limit: float) -> ChatReply:
            answer = client.chat.completions.create(
                model=model,
                messages=[dict(message) for message in messages],  # type: ignore[misc]
                timeout=limit,
                **options,
            )
            return _reply(answer, messages)

        return self._request(ask, attempts, seconds)

    def _request(
        self, ask: Callable[[OpenAI, float], T], attempts: int, seconds: float | None
    ) -> T:
        limit = min(math.inf if seconds is None else seconds, self.endpoint.timeout_s)

        def once() -> T:
            try:
                # The package's own limit is one of silence: a server that drips holds it for ever.
                return _within(limit, lambda: ask(self._client(), limit))
            except EndpointError:
                raise
            except Exception as error:  # the package and its transport have errors of several trees
                raise self._endpoint_error(error, limit) from None

        return retry(once, attempts)

    def _client(self) -> OpenAI:
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                from openai import OpenAI

                base_url = self.endpoint.base_url
                client = OpenAI(api_key=self._key() or "none", base_url=base_url, max_retries=0)
                # The package takes these from the environment, and would tell them to any server.
                client.organization = client.project = None
                self._made = (os.getpid(), client)
            return self._made[1]

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

    def _unlock(self) -> None:
        self._lock = threading.Lock()


def _embeddings(answer: Any, texts: Sequence[str]) -> EmbeddingReply:
    """Check that an answer has one finite vector for each text, all of a length."""
    found = sorted(answer.data, key=lambda one: one.index)
    if [one.index for one in found] != list(range(len(texts))):
        raise ValueError(f"{len(found)} vectors for {len(texts)} texts")
    vectors = [[float(value) for value in one.embedding] for one in found]
    if len({len(vector) for vector in vectors}) != 1 or not vectors[0]:
        raise ValueError("vectors of several lengths, or of none")
    if not all(math.isfinite(value) for vector in vectors for value in vector):
        raise ValueError("a vector with a component that is no number")
    tokens = getattr(answer.usage, "prompt_tokens", None) if answer.usage else None
    return EmbeddingReply(vectors, int(tokens or sum(map(count_tokens, texts))))


def _reply(answer: Any, messages: Sequence[Mapping[str, str]]) -> ChatReply:
    choice = answer.choices[0]
    # A model that thought up to its limit, or refuses, has no content at all.
    text = "" if choice.message.content is None else choice.message.content
    if not isinstance(text, str):
        raise TypeError("an answer that is no text")
    usage = answer.usage
    asked = getattr(usage, "prompt_tokens", None)
    said = getattr(usage, "completion_tokens", None)
    return ChatReply(
        text,
        int(asked or sum(count_tokens(message["content"]) for message in messages)),
        int(said or count_tokens(text)),
        str(choice.finish_reason or "stop"),
    )


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Return what a call gives, or raise TimeoutError; a late call is left behind in its thread."""
    answers: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="memtier-endpoint", daemon=True)
    thread.start()
    thread.join(seconds)
    if answers:
        return answers[0]
    if errors:
        raise errors[0]
    raise TimeoutError(f"no answer within {seconds:g} s")


def retry(call: Callable[[], T], attempts: int = MAX_ATTEMPTS) -> T:
    """Return what a call gives; what may pass is tried again, after a pause that grows."""
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except EndpointError as error:
            if attempt == attempts or not error.transient:
                raise
            # Not all at once: many clients that were refused together come back apart.
            own = FIRST_PAUSE * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5)
            time.sleep(min(LONGEST_PAUSE, max(error.retry_after, own)))
    raise ValueError("at least one attempt")
