"""Answer questions with a reader model, given a block of memory.

The reader is any OpenAI-compatible chat endpoint, used as in MemTier, section 4.1: temperature 0,
at most 30 tokens, no LLM judge (`answers` scores).  Its replies can be kept in a file, so that a
run that was cut off goes on.  A condition decides its context: ``memory`` the
block that would be injected, ``oracle`` the gold turns as a block, ``sessions`` the gold turns'
whole sessions (the oracle of MemTier, table 6), ``none`` nothing, ``full`` the whole conversation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from memtier_bench.answers import ReaderAnswer, judge_answer
from memtier_bench.datasets import DatasetQuestion
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.results import Hit
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.core.settings.yaml_file import all_keys
from memtier_plugin.providers.endpoint import EndpointClient
from memtier_plugin.retrieval.block import BlockPlan

DEFAULT_CONDITIONS: Final = ("memory", "oracle", "none")
CONDITIONS: Final = (*DEFAULT_CONDITIONS, "sessions", "full")
_MAX_ANSWER_TOKENS: Final = 30  # of an answer (MemTier, section 4.1)
_SECONDS: Final = 600  # for one answer: a model on a busy CPU reads ten tokens a second
_BUDGET: Final = 1_000_000  # tokens; large enough for any block
_INSTRUCTION: Final = (
    "Answer the question with the answer alone, in as few words as possible. "
    "Where recalled memory stands above it, go by that."
)


class ReaderModel:
    """A chat model that answers questions; replies are kept by prompt."""

    def __init__(
        self,
        base_url: str,
        model: str,
        key_env: str | None = None,
        instruction: str = _INSTRUCTION,
        replies: Path | None = None,
        most_tokens: int = _MAX_ANSWER_TOKENS,
    ) -> None:
        """Connect to an endpoint.

        Args:
            base_url: of an OpenAI-compatible server, usually ending in `/v1`.
            key_env: the environment variable that holds its key, if it needs one.
            instruction: the system prompt.
            replies: a file of JSON lines that keeps each reply, made if there is none.
            most_tokens: of an answer.

        Raises:
            Unsupported: the address is invalid.
        """
        try:
            address = all_keys()[("endpoints", "*", "base_url")].accept(base_url)
        except ValueError as error:
            raise Unsupported(f"--reader {base_url!r}: {error}") from None
        self.model = model
        self.instruction = instruction
        self.most_tokens = most_tokens
        self.endpoint = Endpoint(base_url=address, key_env=key_env or "none", timeout_s=_SECONDS)
        self._client = EndpointClient(self.endpoint)
        self._file = replies
        self._replies = _read_replies(replies) if replies else {}

    def describe(self) -> dict[str, Any]:
        """Return who answers and how, for a report."""
        return {
            "model": self.model,
            "endpoint": self.endpoint.base_url,
            "instruction": self.instruction,
            "temperature": 0,
            "most_answer_tokens": self.most_tokens,
        }

    def settings_for(self, setting: str) -> dict[str, Any]:
        """Return the settings by which MemTier asks this model, as often as it needs.

        Args:
            setting: what it is asked for, "ask.model" or "consolidation.model".
        """
        return {
            "endpoints.reader.base_url": self.endpoint.base_url,
            "endpoints.reader.key_env": self.endpoint.key_env,
            "endpoints.reader.timeout_s": self.endpoint.timeout_s,
            setting: f"endpoint:reader/{self.model}",
            "consolidation.max_calls_per_day": 1_000_000,
            "consolidation.max_tokens_per_day": 1_000_000_000,
        }

    def answer(self, question: DatasetQuestion, block: str, recall_id: str = "") -> ReaderAnswer:
        """Return the scored answer to a question.

        Args:
            block: the context before the question [none].
            recall_id: the block's random id, ignored when a reply is looked up.

        Raises:
            EndpointError: the endpoint does not answer.
        """
        today = f"Today is {question.at:%A, %d %B %Y}.\n" if question.at else ""
        reply = self.reply(f"{today}Question: {question.text}\nAnswer:", block, recall_id)
        return judge_answer(expected=question.answer or "", **reply)

    def reply(self, prompt: str, block: str, recall_id: str = "") -> dict[str, Any]:
        """Return what the model says to a prompt below a block, by the names of `judge_answer`.

        Args, Raises: as for `answer`.
        """
        same = f"{block.replace(recall_id, '') if recall_id else block}\n{prompt}"
        key = sha256("\0".join((self.model, self.instruction, same)).encode()).hexdigest()
        reply = self._replies.get(key)
        if reply is None:
            reply = self._ask(f"{block}\n{prompt}" if block else prompt)
            self._keep(key, reply)
        return reply

    def _ask(self, prompt: str) -> dict[str, Any]:
        """Return a reply with its tokens and seconds, by the names of `judge_answer`."""
        messages = [
            {"role": "system", "content": self.instruction},
            {"role": "user", "content": prompt},
        ]
        started = time.perf_counter()
        reply = self._client.chat(self.model, messages, max_tokens=self.most_tokens)
        return {
            "answer": reply.text,
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "seconds": round(time.perf_counter() - started, 3),
        }

    def _keep(self, key: str, reply: dict[str, Any]) -> None:
        self._replies[key] = reply
        if self._file:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **reply}) + "\n")


def _read_replies(path: Path) -> dict[str, dict[str, Any]]:
    """Return the replies in a file by key; a last line that was cut off is removed."""
    text = path.read_text("utf-8") if path.is_file() else ""
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text, "utf-8")
    replies = [json.loads(line) for line in text.splitlines()]
    return {reply.pop("key"): reply for reply in replies}


def build_full_block(hits: Sequence[Hit]) -> str:
    """Return a block of all these hits in full, in the form of a recall's."""
    return BlockPlan(hits, max(1, len(hits)), _BUDGET).fill("bench")[1]
