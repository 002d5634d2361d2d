"""OpenAI Agents SDK: a session that remembers other sessions."""

from __future__ import annotations

from typing import Any, Unpack, cast

from agents import RunConfig, SQLiteSession
from agents.items import TResponseInputItem
from agents.memory import Session, SessionABC
from agents.run_config import CallModelData, ModelInputData

from .conversations import Conversations, OpenRun, Owner, prepend


class MemTierSession(SessionABC):
    """Keeps a session's items as another session does, and adds MemTier to it.

    Args:
        history: keeps the items of this session; the SDK's own, in memory, when None.
    """

    def __init__(
        self, session_id: str, history: Session | None = None, **owner: Unpack[Owner]
    ) -> None:
        self.session_id = session_id
        self._history = history or SQLiteSession(session_id)
        self.session_settings = self._history.session_settings
        self._conversations = Conversations("openai-agents", **owner)
        self._run = OpenRun(self._conversations, session_id)

    @property
    def run_config(self) -> RunConfig:
        """The configuration that adds recalled lines to the prompt, not to the items."""
        return RunConfig(call_model_input_filter=self.add_memory)

    async def add_memory(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the model's input with recalled lines: a `call_model_input_filter`."""
        original = data.model_data
        items = await self._conversations.with_block_async(original.input, self._run.turn, _put)
        return ModelInputData(input=items, instructions=original.instructions)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items of this session."""
        return await self._history.get_items(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Keep items of this session, and record what belongs to a run."""
        await self._history.add_items(items)
        await self._run.add(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the newest item; what MemTier recorded of it stays."""
        return await self._history.pop_item()

    async def clear_session(self) -> None:
        """Remove this session's items; what MemTier recorded of them stays."""
        await self._history.clear_session()


def _put(item: TResponseInputItem, block: str) -> TResponseInputItem:
    given = cast("dict[str, Any]", item)
    content = prepend(given["content"], block, lambda text: {"type": "input_text", "text": text})
    return cast("TResponseInputItem", {**given, "content": content})
