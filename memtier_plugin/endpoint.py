"""The one client of any OpenAI-compatible endpoint, for vectors and for answers.

Through the `openai` package, imported at the first request.  Every request has a limit of time
that holds whatever the server does; what may pass (a busy or broken server) is tried again.  A key
comes from the environment variable that the endpoint names, and is put into no message.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from memtier_plugin.errors import EndpointError, EndpointRefused
from memtier_plugin.records import count_tokens
from memtier_plugin.settings_keys import Endpoint

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["ATTEMPTS", "Client", "Embeddings", "Endpoint", "Reply"]

ATTEMPTS: Final = 4
FIRST_PAUSE: Final = 0.5  # seconds; each later one is twice as long, give or take a half
LONGEST_PAUSE: Final = 20.0  # seconds, also where the server asks for more

_PASSING: Final = frozenset({408, 409, 425, 429})  # and every 5xx
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Embeddings:
    """One vector for each text, in their order, and the tokens that the endpoint counted."""

    vectors: Sequence[Sequence[float]]
    tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What a chat model said, and the tokens that the endpoint counted."""

    text: str
    prompt_tokens: int
    completion_tokens: int


class Client:
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
        attempts: int = ATTEMPTS,
        seconds: float | None = None,
    ) -> Embeddings:
        """Return one vector for each text.

        Args:
            attempts: how often it is tried, at most.
            seconds: the limit of one attempt, if it is to be under the endpoint's ``timeout_s``.

        Raises:
            EndpointRefused: it does not take this request, however often it is asked.
            EndpointError: no answer, or none that can be used, after every attempt.
        """
        if not texts:
            return Embeddings((), 0)

        def ask(client: OpenAI, limit: float) -> Embeddings:
            answer = client.embeddings.create(
                model=model,
                input=list(texts),
                encoding_format="float",  # what every server knows; the package asks for base64
                timeout=limit,
            )
            return _embeddings(answer, texts)

        return self._asked(ask, attempts, seconds)

    def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        attempts: int = ATTEMPTS,
        seconds: float | None = None,
    ) -> Reply:
        """Return what a chat model answers to messages of ``role`` and ``content``.

        Raises:
            as `embed`.
        """

        def ask(client: OpenAI, limit: float) -> Reply:
            answer = client.chat.completions.create(
                model=model,
                messages=[dict(message) for message in messages],  # type: ignore[misc]
                max_tokens=max_tokens,
                temperature=temperature,
                timeout=limit,
            )
            return _reply(answer, messages)

        return self._asked(ask, attempts, seconds)

    def _asked(self, ask: Callable[[OpenAI, float], T], attempts: int, seconds: float | None) -> T:
        limit = min(math.inf if seconds is None else seconds, self.endpoint.timeout_s)
        for attempt in range(1, attempts + 1):
            try:
                # The package's own limit is one of silence: a server that drips holds it for ever.
                return _within(limit, lambda: ask(self._client(), limit))
            except EndpointError:
                raise
            except (
                Exception
            ) as error:  # the package and its transport raise errors of several trees
                if attempt == attempts or not _passes(error):
                    self._tell(error, limit)
                time.sleep(_pause(error, attempt))
        raise ValueError("at least one attempt")

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

    def _tell(self, error: Exception, limit: float) -> NoReturn:
        """Raise what a person can do something about."""
        where = f"the endpoint {self.endpoint.base_url}"
        status = getattr(error, "status_code", None)
        what = f"{type(error).__name__}: {error}"
        key = None if self.endpoint.key_env == "none" else os.environ.get(self.endpoint.key_env)
        if key:
            what = what.replace(key.strip(), "[key]")
        what = " ".join(what.split())[:300]
        if status in (401, 403):
            hint = f"check the key in {self.endpoint.key_env}"
            raise EndpointError(f"{where} refuses the key; {hint} ({what})") from None
        if status == 404:
            hint = "check the model's name, and base_url, which mostly ends in /v1"
            raise EndpointError(f"{where} knows no such model or path; {hint} ({what})") from None
        if status == 429:
            hint = "it is tried again later; if it persists, look at the account's limits"
            raise EndpointError(f"{where} allows no more requests now; {hint} ({what})") from None
        if isinstance(status, int) and 400 <= status < 500 and not _passes(error):
            raise EndpointRefused(f"{where} refuses the request ({what})") from None
        if isinstance(status, int):
            raise EndpointError(
                f"{where} is in trouble; it is tried again later ({what})"
            ) from None
        if isinstance(error, TimeoutError) or type(error).__name__ == "APITimeoutError":
            hint = "is it overloaded? endpoints.*.timeout_s gives it longer"
            raise EndpointError(f"{where} did not answer within {limit:g} s; {hint}") from None
        if isinstance(error, ValueError | TypeError | AttributeError | LookupError):
            hint = "is it OpenAI-compatible?"
            raise EndpointError(f"{where} gives an answer that is none; {hint} ({what})") from None
        hint = "is the server running, and base_url right?"
        raise EndpointError(f"{where} cannot be reached; {hint} ({what})") from None

    def _unlock(self) -> None:
        self._lock = threading.Lock()


def _embeddings(answer: Any, texts: Sequence[str]) -> Embeddings:
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
    return Embeddings(vectors, int(tokens or sum(map(count_tokens, texts))))


def _reply(answer: Any, messages: Sequence[Mapping[str, str]]) -> Reply:
    text = answer.choices[0].message.content
    if not isinstance(text, str):
        raise TypeError("an answer without a text")
    usage = answer.usage
    asked = getattr(usage, "prompt_tokens", None)
    said = getattr(usage, "completion_tokens", None)
    return Reply(
        text,
        int(asked or sum(count_tokens(message["content"]) for message in messages)),
        int(said or count_tokens(text)),
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


def _passes(error: Exception) -> bool:
    """Tell whether the same request may do better later."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status in _PASSING or status >= 500
    return True


def _pause(error: Exception, attempt: int) -> float:
    """Return how many seconds to wait before the next attempt."""
    response: Any = getattr(error, "response", None)
    try:
        asked = float(response.headers["retry-after"])
    except (AttributeError, KeyError, TypeError, ValueError):
        asked = 0.0
    # Not all at once: many clients that were refused together come back apart.
    own = FIRST_PAUSE * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5)
    return min(LONGEST_PAUSE, max(asked, own))
