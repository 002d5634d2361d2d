"""LlamaIndex: a memory that remembers other conversations."""

from __future__ import annotations

import asyncio
from typing import Any, Self, Unpack

from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory import BaseMemory, Memory

from .conversations import Conversations, OpenRun, Owner


class MemTierMemory(BaseMemory):
    """Keeps a conversation as LlamaIndex' own `Memory` does, and adds MemTier to it.

    Args:
        history: keeps the messages of this conversation; a `Memory` of its own when None.
    """

    _history: BaseMemory = PrivateAttr()
    _conversations: Conversations = PrivateAttr()
    _run: OpenRun = PrivateAttr()

    def __init__(
        self, session_id: str, history: BaseMemory | None = None, **owner: Unpack[Owner]
    ) -> None:
        super().__init__()
        self._history = history or Memory.from_defaults(session_id=session_id)
        self._conversations = Conversations("llama-index", **owner)
        self._run = OpenRun(self._conversations, session_id)

    @classmethod
    def from_defaults(cls, **kwargs: Any) -> Self:
        """Return a memory made from these arguments."""
        return cls(**kwargs)

    async def aget(self, input: Any = None, **kwargs: Any) -> list[ChatMessage]:
        """Return the messages, with recalled lines before the user's newest one."""
        messages = await self._history.aget(input, **kwargs)
        return await self._conversations.with_block_async(messages, self._run.turn, _put)

    async def aput(self, message: ChatMessage) -> None:
        """Keep a message, and record what belongs to a run."""
        await self.aput_messages([message])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Keep several messages; see `aput`."""
        await self._history.aput_messages(messages)
        await self._run.add(messages)

    async def aget_all(self) -> list[ChatMessage]:
        """Return all messages of this conversation."""
        return await self._history.aget_all()

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replace the messages of this conversation; what MemTier recorded of it stays."""
        await self._history.aset(messages)

    async def areset(self) -> None:
        """Remove the messages of this conversation; what MemTier recorded of it stays."""
        await self._history.areset()

    def get(self, input: Any = None, **kwargs: Any) -> list[ChatMessage]:
        """Do as `aget`, outside an event loop."""
        return asyncio.run(self.aget(input, **kwargs))

    def put(self, message: ChatMessage) -> None:
        """Do as `aput`, outside an event loop."""
        asyncio.run(self.aput(message))

    def get_all(self) -> list[ChatMessage]:
        """Do as `aget_all`, outside an event loop."""
        return asyncio.run(self.aget_all())

    def set(self, messages: list[ChatMessage]) -> None:
        """Do as `aset`, outside an event loop."""
        asyncio.run(self.aset(messages))

    def reset(self) -> None:
        """Do as `areset`, outside an event loop."""
        asyncio.run(self.areset())


def _put(message: ChatMessage, block: str) -> ChatMessage:
    blocks = [TextBlock(text=f"{block}\n\n"), *message.blocks]
    return message.model_copy(update={"blocks": blocks})
