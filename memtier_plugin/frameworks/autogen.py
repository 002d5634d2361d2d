"""AutoGen: a model context that remembers other conversations."""

from __future__ import annotations

from typing import Unpack

from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import LLMMessage

from .conversations import Conversations, OpenRun, Owner, prepend


class MemTierContext(UnboundedChatCompletionContext):
    """Keeps a conversation's messages, records its runs, and adds recalled lines to its prompts."""

    def __init__(self, session_id: str, **owner: Unpack[Owner]) -> None:
        super().__init__()
        self._conversations = Conversations("autogen", **owner)
        self._run = OpenRun(self._conversations, session_id)

    async def add_message(self, message: LLMMessage) -> None:
        """Keep a message, and record what belongs to a run."""
        await super().add_message(message)
        await self._run.add([message])

    async def get_messages(self) -> list[LLMMessage]:
        """Return the messages, with recalled lines before the user's newest one."""
        messages = await super().get_messages()
        return await self._conversations.with_block_async(messages, self._run.turn, _put)


def _put(message: LLMMessage, block: str) -> LLMMessage:
    return message.model_copy(update={"content": prepend(message.content, block, str)})
