"""What an endpoint's failure means, in words that a person can do something about.  Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from memtier_plugin.core.errors import AnswerLost, ContextTooLong, EndpointError, EndpointRefused

# How servers say that a request is longer than what the model reads, in the order: OpenAI and vLLM;
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
_TPM: Final = "request too large for"  # a whole minute's allowance would not do (OpenAI, with 429)
# A server error that speaks of the answer's form comes back however often it is tried (llama.cpp).
_FORM: Final = re.compile(r"response_?format|json_?schema|json_?object|grammar", re.IGNORECASE)
_PASSING: Final = frozenset({408, 409, 425, 429})  # and every 5xx
_MOST_CHARS: Final = 300  # of what a server says, where a person reads it
_MOST_SAID: Final = 4000


def to_endpoint_error(
    error: Exception, where: str, key_env: str, key: str | None, limit: float
) -> EndpointError:
    """Return what the failure of one request comes to.

    Args:
        where: the endpoint, as it is to be named.
        key: what must not be repeated, if there is one.
        limit: how many seconds the request had.
    """
    status = getattr(error, "status_code", None)
    text = f"{type(error).__name__}: {error}"
    if key:
        text = text.replace(key.strip(), "[key]")
    what = " ".join(text.split())[:_MOST_CHARS]
    if isinstance(status, int):
        return _of_status(status, text, what, where, key_env, _retry_after(error))
    if isinstance(error, TimeoutError) or type(error).__name__ == "APITimeoutError":
        hint = "is it overloaded? endpoints.*.timeout_s gives it longer"
        return _as_transient(AnswerLost(f"{where} did not answer within {limit:g} s; {hint}"))
    if isinstance(error, ValueError | TypeError | AttributeError | LookupError):
        hint = "is it OpenAI-compatible?"
        return _as_transient(AnswerLost(f"{where} gives an answer that is none; {hint} ({what})"))
    hint = "is the server running, and base_url right?"
    return _as_transient(EndpointError(f"{where} cannot be reached; {hint} ({what})"))


def _of_status(
    status: int, text: str, what: str, where: str, key_env: str, wait: float
) -> EndpointError:
    if status in (401, 403):
        hint = f"check the key in {key_env}"
        return EndpointError(f"{where} refuses the key; {hint} ({what})")
    if status == 404:
        hint = "check the model's name, and base_url, which mostly ends in /v1"
        return EndpointError(f"{where} knows no such model or path; {hint} ({what})")
    if status == 413 or (status not in _PASSING and _TOO_LONG.search(text)) or _TPM in text.lower():
        refusal: EndpointRefused = ContextTooLong(
            f"{where} refuses the request: too long for its model ({what})"
        )
        refusal.response_text = text[:_MOST_SAID]
        return refusal
    if status not in _PASSING and (400 <= status < 500 or _FORM.search(text)):
        refusal = EndpointRefused(f"{where} refuses the request ({what})")
        refusal.response_text = text[:_MOST_SAID]
        return refusal
    if status == 429:
        hint = "it is tried again later; if it persists, look at the account's limits"
        return _as_transient(
            EndpointError(f"{where} allows no more requests now; {hint} ({what})"), wait
        )
    error = EndpointError(f"{where} is in trouble; it is tried again later ({what})")
    return _as_transient(error, wait) if status in _PASSING or status >= 500 else error


def _as_transient(error: EndpointError, wait: float = 0.0) -> EndpointError:
    error.transient = True
    error.retry_after = wait
    return error


def _retry_after(error: Exception) -> float:
    """Return how many seconds the server asks to be left alone."""
    response: Any = getattr(error, "response", None)
    try:
        return float(response.headers["retry-after"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0.0
