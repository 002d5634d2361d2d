"""Which memories a run's outcome is credited to, and how much (MemTier eq. 1, seeds 1.5).  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.text.tokenizer import plain_words

Proxy = Literal["jaccard", "overlap"]


def compute_reward(calls: Sequence[ToolCall]) -> float:
    """Return the reward of a run in {-0.5, 0, +1} (seeds A6).

    No calls, or none whose outcome is known: 0.  The last call of every tool went well: +1.  The
    run ended in a failed call: -0.5.  Otherwise 0.
    """
    known = [call for call in calls if call.ok is not None]
    last = {call.name: call.ok for call in known}
    if not known:
        return 0.0
    if all(last.values()):
        return 1.0
    return 0.0 if known[-1].ok else -0.5


def answer_words(messages: Sequence[Message]) -> set[str]:
    """Return the words that the agent produced: its last text and its tool-call arguments.

    Tool results and the injected block are no part of it, or every line would credit itself.
    """
    texts = [m.content for m in messages if m.role == "assistant" and m.content.strip()][-1:]
    texts += [call.arguments for message in messages for call in message.tool_calls]
    return {word for text in texts for word in plain_words(text)}


def affinity(memory: Collection[str], answer: Collection[str], proxy: Proxy = "jaccard") -> float:
    """Return a_i: the words shared, over their union (jaccard) or over the memory's (overlap)."""
    mine, theirs = set(memory), set(answer)
    whole = mine | theirs if proxy == "jaccard" else mine
    return len(mine & theirs) / len(whole) if whole else 0.0


def normalise_shares(affinities: Sequence[float]) -> list[float]:
    """Return a_hat: each affinity over their sum; all 0 when the sum is (no update at all)."""
    total = sum(affinities)
    return [value / total if total else 0.0 for value in affinities]
