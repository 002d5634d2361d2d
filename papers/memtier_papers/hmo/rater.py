"""Rate entries by a chat model: one number per record (HMO, table 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from memtier_papers.hmo.importance import MAX_CHARS, parse_importance
from memtier_plugin.core.records import Entry
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompting import fence_data, load_prompt

PROMPTS: Final = Path(__file__).parent / "prompts"
PURPOSE: Final = "importance"
_MAX_ANSWER_TOKENS: Final = 400  # reasoning models need more than the number itself


class ChatRater:
    """Asks a chat model for the importance of entries."""

    def __init__(self, model: ChatModel) -> None:
        """Bind to a model."""
        self.model = model
        self._prompt = load_prompt("importance", PROMPTS)

    def rate(self, entry: Entry, persona: str) -> int | None:
        """Return the importance of an entry; None for an answer without a number.

        Args:
            persona: the known lines about its sender, "" for none.

        Raises:
            CapReached, EndpointError: the model was not asked, or did not answer.
        """
        record = f"{entry.speaker or entry.role}: {entry.content[:MAX_CHARS]}"
        user = f"{fence_data([persona])}\n\n{fence_data([record])}"
        reply = self.model.chat(
            [{"role": "system", "content": self._prompt.text}, {"role": "user", "content": user}],
            purpose=PURPOSE,
            max_tokens=_MAX_ANSWER_TOKENS,
        )
        return parse_importance(reply.text)
