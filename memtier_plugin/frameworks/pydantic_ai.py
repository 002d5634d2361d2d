"""pydantic-ai: a capability that remembers other conversations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from pydantic_ai import AgentRunResult, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestContext

from .conversations import Conversations, Owner, Turn, prepend, user_text


class MemTierCapability(AbstractCapability[Any]):
    """Adds recalled lines to each prompt, not to the history, and records each run.

    Args:
        session_id: the conversation; pydantic-ai's own id of it when None.
    """

    def __init__(self, session_id: str | None = None, **owner: Unpack[Owner]) -> None:
        self._session = session_id
        self._conversations = Conversations("pydantic-ai", **owner)

    def _turn(self, ctx: RunContext[Any]) -> Turn:
        run = str(ctx.run_id)
        return Turn(session=self._session or str(ctx.conversation_id or run), run=run)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Add recalled lines before the user's newest message, for this request alone."""
        request_context.messages = await self._conversations.with_block_async(
            request_context.messages, self._turn(ctx), _put
        )
        return request_context

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Record the run."""
        await self._conversations.end_async(result.new_messages(), self._turn(ctx))
        return result

    async def on_run_error(
        self, ctx: RunContext[Any], *, error: BaseException
    ) -> AgentRunResult[Any]:
        """Record a run that failed, as far as it got."""
        starts = [at for at, each in enumerate(ctx.messages) if user_text(each)]
        messages = ctx.messages[starts[-1] :] if starts else ctx.messages
        await self._conversations.end_async(messages, self._turn(ctx), error=repr(error))
        raise error


def _put(message: ModelMessage, block: str) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return message
    parts = [*message.parts]
    at = max(n for n, part in enumerate(parts) if isinstance(part, UserPromptPart))
    prompt = parts[at]
    assert isinstance(prompt, UserPromptPart)
    parts[at] = replace(prompt, content=prepend(prompt.content, block, str))
    return replace(message, parts=parts)
