"""AG2: a middleware that remembers other conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ag2 import Context
from ag2.events import BaseEvent, ModelRequest, ModelResponse, TextInput
from ag2.middleware import BaseMiddleware
from ag2.middleware.base import AgentTurn, LLMCall

from memtier_plugin.core.formats import new_id

from .conversations import Conversations, Owner, Turn, user_text


class MemTierMiddleware:
    """Adds recalled lines to each prompt, not to the stream, and records each turn.

    Args:
        session_id: the conversation; the id of AG2's stream when None.
    """

    def __init__(self, session_id: str | None = None, **owner: Unpack[Owner]) -> None:
        self._session = session_id
        self._conversations = Conversations("ag2", **owner)

    def __call__(self, event: BaseEvent, context: Context) -> BaseMiddleware:
        """Return the middleware of a turn."""
        session = self._session or str(context.stream.id)
        turn = Turn(session=session, run=new_id())
        return _MemTierTurn(event, context, self._conversations, turn)


class _MemTierTurn(BaseMiddleware):
    def __init__(
        self, event: BaseEvent, context: Context, conversations: Conversations, turn: Turn
    ) -> None:
        super().__init__(event, context)
        self._conversations = conversations
        self._turn = turn

    async def on_llm_call(
        self, call_next: LLMCall, events: Sequence[BaseEvent], context: Context
    ) -> ModelResponse:
        prompt = await self._conversations.with_block_async(events, self._turn, _put)
        return await call_next(prompt, context)

    async def on_turn(
        self, call_next: AgentTurn, event: BaseEvent, context: Context
    ) -> ModelResponse:
        response = await call_next(event, context)
        events: list[Any] = [*await context.stream.history.get_events()]
        starts = [at for at, each in enumerate(events) if user_text(each)]
        await self._conversations.end_async(events[starts[-1] if starts else 0 :], self._turn)
        return response


def _put(event: BaseEvent, block: str) -> BaseEvent:
    parts = getattr(event, "parts", [])
    return ModelRequest([TextInput(f"{block}\n\n"), *parts])
