"""Answer questions with a reader model, given a block of memory.

The reader is any OpenAI-compatible chat endpoint, used as in MemTier, section 4.1: temperature 0,
at most 30 tokens, no LLM judge (`answers` scores).  A condition decides its context: ``memory`` the
block that would be injected, ``oracle`` the gold turns as a block, ``sessions`` the gold turns'
whole sessions (the oracle of MemTier, table 6), ``none`` nothing, ``full`` the whole conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memtier_bench.answers import ReaderAnswer, judge_answer
from memtier_bench.datasets import DatasetQuestion
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.results import Hit
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.core.settings.yaml_file import all_keys
from memtier_plugin.providers.endpoint import ChatReply, EndpointClient
from memtier_plugin.retrieval.block import BlockPlan

DEFAULT_CONDITIONS: Final = ("memory", "oracle", "none")
CONDITIONS: Final = (*DEFAULT_CONDITIONS, "sessions", "full")
_MAX_ANSWER_TOKENS: Final = 30  # of an answer (MemTier, section 4.1)
_BUDGET: Final = 1_000_000  # tokens; large enough for any block
_INSTRUCTION: Final = (
    "Answer the question with the answer alone, in as few words as possible. "
    "Where recalled memory stands above it, go by that."
)


class ReaderModel:
    """A chat model that answers questions; replies are cached by prompt."""

    def __init__(self, base_url: str, model: str, key_env: str | None = None) -> None:
        """Connect to an endpoint.

        Args:
            base_url: of an OpenAI-compatible server, usually ending in `/v1`.
            key_env: the environment variable that holds its key, if it needs one.

        Raises:
            Unsupported: the address is invalid.
        """
        try:
            address = all_keys()[("endpoints", "*", "base_url")].accept(base_url)
        except ValueError as error:
            raise Unsupported(f"--reader {base_url!r}: {error}") from None
        self.model = model
        self.endpoint = Endpoint(base_url=address, key_env=key_env or "none", timeout_s=120)
        self._client = EndpointClient(self.endpoint)
        self._replies: dict[str, ChatReply] = {}

    def answer(self, question: DatasetQuestion, block: str, recall_id: str = "") -> ReaderAnswer:
        """Return the scored answer to a question that has an expected one.

        Args:
            block: the context before the question [none].
            recall_id: the block's random id, ignored by the cache.

        Raises:
            EndpointError: the endpoint does not answer.
        """
        today = f"Today is {question.at:%A, %d %B %Y}.\n" if question.at else ""
        question_part = f"{today}Question: {question.text}\nAnswer:"
        same = f"{block.replace(recall_id, '') if recall_id else block}\n{question_part}"
        reply = self._replies.get(same)
        if reply is None:
            prompt = f"{block}\n{question_part}" if block else question_part
            messages = [
                {"role": "system", "content": _INSTRUCTION},
                {"role": "user", "content": prompt},
            ]
            reply = self._client.chat(self.model, messages, max_tokens=_MAX_ANSWER_TOKENS)
            self._replies[same] = reply
        expected = question.answer or ""
        return judge_answer(reply.text, expected, reply.prompt_tokens, reply.completion_tokens)


def build_full_block(hits: Sequence[Hit]) -> str:
    """Return a block of all these hits in full, in the form of a recall's."""
    return BlockPlan(hits, max(1, len(hits)), _BUDGET).fill("bench")[1]
