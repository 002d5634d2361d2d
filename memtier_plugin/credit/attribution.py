"""Share the reward of a run among the memories it was given (MemTier, eq. 1). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.text.tokenizer import plain_words

Proxy = Literal["jaccard", "overlap"]


def compute_reward(calls: Sequence[ToolCall]) -> float:
    """Return the reward of a run, in {-0.5, 0, +1}.

    +1 if the last call of every tool succeeded, -0.5 if the last call of the run failed, and 0
    otherwise or when no outcome is known.
    """
    decided = [call for call in calls if call.ok is not None]
    last = {call.name: call.ok for call in decided}
    if not decided:
        return 0.0
    if all(last.values()):
        return 1.0
    return 0.0 if decided[-1].ok else -0.5


def answer_words(messages: Sequence[Message]) -> set[str]:
    """Return the words that the agent produced: its last text and its tool-call arguments.

    Tool results and the injected block are left out: each injected line would credit itself.
    """
    texts = [m.content for m in messages if m.role == "assistant" and m.content.strip()][-1:]
    texts += [call.arguments for message in messages for call in message.tool_calls]
    return {word for text in texts for word in plain_words(text)}


def share_reward(
    texts: Iterable[str], answer: Collection[str], proxy: Proxy = "jaccard"
) -> list[float]:
    """Return a_hat of the memories of these texts: by their words in common with the answer."""
    return normalise_shares([affinity(plain_words(text), answer, proxy) for text in texts])


def affinity(memory: Collection[str], answer: Collection[str], proxy: Proxy = "jaccard") -> float:
    """Return a_i: shared words over the union (jaccard) or over the memory's words (overlap)."""
    memory_words, answer_side = set(memory), set(answer)
    union = memory_words | answer_side if proxy == "jaccard" else memory_words
    return len(memory_words & answer_side) / len(union) if union else 0.0


def normalise_shares(affinities: Sequence[float]) -> list[float]:
    """Return a_hat: each affinity divided by their sum; all 0 when the sum is 0."""
    total = sum(affinities)
    return [value / total if total else 0.0 for value in affinities]
