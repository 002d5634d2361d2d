"""Google's Agent Development Kit: a plugin that remembers other sessions."""

from __future__ import annotations

from typing import Unpack

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models import LlmRequest
from google.adk.plugins import BasePlugin
from google.genai.types import Content, Part

from .conversations import Conversations, Owner, Turn


class MemTierPlugin(BasePlugin):
    """Adds recalled lines to each prompt, not to the session, and records each invocation.

    The app's user is the sender: what one says in private is not told to others.
    """

    def __init__(self, **owner: Unpack[Owner]) -> None:
        super().__init__(name="memtier")
        self._conversations = Conversations("google-adk", **owner)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> None:
        """Add recalled lines before the user's newest message."""
        turn = Turn(
            session=callback_context.session.id,
            run=callback_context.invocation_id,
            sender=callback_context.user_id,
        )
        llm_request.contents = await self._conversations.with_block_async(
            llm_request.contents, turn, _put
        )

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Record the invocation."""
        await self._record(invocation_context)

    async def on_run_error_callback(
        self, *, invocation_context: InvocationContext, error: Exception
    ) -> None:
        """Record an invocation that failed, as far as it got."""
        await self._record(invocation_context, repr(error))

    async def _record(
        self, invocation_context: InvocationContext, error: str | None = None
    ) -> None:
        session, run = invocation_context.session, invocation_context.invocation_id
        events = [event for event in session.events if event.invocation_id == run]
        turn = Turn(session=session.id, run=run, sender=session.user_id)
        await self._conversations.end_async(events, turn, error)


def _put(content: Content, block: str) -> Content:
    return Content(role=content.role, parts=[Part(text=f"{block}\n\n"), *(content.parts or ())])
