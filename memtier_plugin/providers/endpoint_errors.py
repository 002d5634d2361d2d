"""Translate the failures of endpoints into errors with a remedy.  Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from memtier_plugin.core.concurrency import TooManyJobs
from memtier_plugin.core.errors import AnswerLost, ContextTooLong, EndpointError, EndpointRefused

# How servers word that a request exceeds the context of the model, in order: OpenAI and vLLM;
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
_TPM: Final = (
    "request too large for"  # it exceeds the allowance of a whole minute (OpenAI, with 429)
)
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
        where: the endpoint, as messages name it.
        key: the secret that messages must not repeat, if there is one.
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
        hint = "earlier requests still wait for their answers; it is tried again later"
        return _as_transient(EndpointError(f"{where} was not asked: {hint} ({excerpt})"))
    if isinstance(error, TimeoutError) or type(error).__name__ == "APITimeoutError":
        hint = "is it overloaded? endpoints.*.timeout_s gives it longer"
        return _as_transient(AnswerLost(f"{where} did not answer within {limit:g} s; {hint}"))
    if isinstance(error, ValueError | TypeError | AttributeError | LookupError):
        hint = "is it OpenAI-compatible?"
        return _as_transient(AnswerLost(f"{where} returned an invalid answer; {hint} ({excerpt})"))
    hint = "is the server running, and base_url right?"
    return _as_transient(EndpointError(f"{where} cannot be reached; {hint} ({excerpt})"))


def is_too_long(text: str) -> bool:
    """Return whether a server's words mean that a request exceeds its model's context."""
    return bool(_TOO_LONG.search(text))


def _status_error(
    status: int, text: str, excerpt: str, where: str, key_env: str, retry_after: float
) -> EndpointError:
    if status in (401, 403):
        hint = f"check the key in {key_env}"
        return EndpointError(f"{where} refuses the key; {hint} ({excerpt})")
    if status == 404:
        hint = "check the model's name, and base_url, which mostly ends in /v1"
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
        hint = "it is tried again later; if it persists, look at the account's limits"
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
    """Return the seconds of the Retry-After header, 0 without one."""
    response: Any = getattr(error, "response", None)
    try:
        return float(response.headers["retry-after"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0.0
