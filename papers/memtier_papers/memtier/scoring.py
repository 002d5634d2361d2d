"""Request the log-probabilities of a text's tokens from an endpoint's model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Self

from memtier_plugin.core.errors import AnswerLost, EndpointRefused
from memtier_plugin.core.records import count_tokens
from memtier_plugin.providers.chat import ChatModel, Estimate
from memtier_plugin.providers.endpoint import EndpointClient
from memtier_plugin.providers.pricing import TOKEN_MARGIN, Meter

if TYPE_CHECKING:
    from openai import OpenAI

_MAX_START: Final = 16  # characters of a mark that a server prepends to the text


class NoLogprobs(AnswerLost):
    """An endpoint does not return the log-probabilities of its input."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """The tokens of a text, each with its log-probability; ``read`` counts the charged ones.

    A token may be part of a character, which servers return as a special mark. So positions are
    counted in ASCII characters: ``starts`` has each token's.
    """

    starts: Sequence[int]
    logprobs: Sequence[float | None]
    read: int

    @classmethod
    def of(
        cls, text: str, tokens: Sequence[str], logprobs: Sequence[float | None], read: int | None
    ) -> Self | None:
        """Return the tokens that a server echoed; None if they do not match the text.

        Raises:
            ValueError: a token has no log-probability, or an invalid one.
        """
        original, echoed = _ascii(text), _ascii("".join(tokens))
        before = echoed.find(original)
        if not tokens or not 0 <= before <= _MAX_START:
            return None
        if len(tokens) != len(logprobs):
            raise ValueError(f"{len(logprobs)} log-probabilities for {len(tokens)} tokens")
        if not all(value is None or math.isfinite(value) for value in logprobs):
            raise ValueError("a log-probability that is not a number")
        lengths = [len(_ascii(token)) for token in tokens]
        starts = [start - before for start in [0, *accumulate(lengths)][: len(tokens)]]
        inside = sum(start < len(original) for start in starts)  # the rest is what it generated
        return cls(starts[:inside], logprobs[:inside], read or inside)

    def after(self, beginning: str, most: int) -> list[float]:
        """Return the log-probabilities of the first tokens after the beginning of the text."""
        length = len(_ascii(beginning))
        later = zip(self.starts, self.logprobs, strict=True)
        values = [value for start, value in later if start >= length and value is not None]
        return values[:most]


def _ascii(text: str) -> str:
    return "".join(filter(str.isascii, text))


def score_text(client: EndpointClient, model: str, text: str) -> ScoredText:
    """Return the log-probability of each token of a text, in one attempt at ``/completions``.

    Raises:
        NoLogprobs: the endpoint does not echo the text's tokens with their probabilities.
        EndpointRefused: the endpoint rejects this request for good.
        EndpointError: there was no usable answer.
    """

    def create(openai: OpenAI, limit: float) -> ScoredText:
        answer: Any = openai.completions.create(
            model=model,
            prompt=text,
            echo=True,
            max_tokens=0,
            logprobs=1,
            temperature=0.0,
            timeout=limit,
        )
        rows = answer.choices[0].logprobs if answer.choices else None
        tokens, logprobs = getattr(rows, "tokens", None), getattr(rows, "token_logprobs", None)
        read = getattr(answer.usage, "prompt_tokens", None) if answer.usage else None
        scored = ScoredText.of(text, tokens, logprobs, read) if tokens and logprobs else None
        if scored is None:
            raise NoLogprobs(
                f"the endpoint {client.endpoint.base_url} does not echo the log-probabilities of a"
                " prompt (echo, max_tokens 0, logprobs 1 on /v1/completions); vLLM and SGLang do"
            )
        return scored

    return client.request(create)


def score_within_budget(model: ChatModel, text: str, purpose: str) -> ScoredText:
    """Return the log-probability of each token of a text, every attempt within the budget.

    Raises:
        CapReached: another request would exceed the budget.
        EndpointRefused: the model has no endpoint.
        NoLogprobs: its endpoint does not echo its input.
        EndpointError: no attempt got a usable answer.
    """
    client = model.client
    if not isinstance(client, EndpointClient):
        raise EndpointRefused(f"{model.name} is no endpoint: it gives no log-probabilities")
    tokens = count_tokens(text)
    most = Estimate(model.tariff.cost(tokens * TOKEN_MARGIN, 0), tokens, 0)

    def request(meter: Meter) -> ScoredText:
        scored = score_text(client, model.model, text)
        meter.tokens = scored.read
        return scored

    return model.within_budget(request, most, purpose)
