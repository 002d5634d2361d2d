"""LangChain: a middleware that remembers other threads; for LangGraph's store see `langgraph`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Unpack

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.config import get_config

from .conversations import Conversations, Owner, Turn, prepend


class MemTierMiddleware(AgentMiddleware[Any, Any, Any]):
    """Adds recalled lines to each prompt, not to the state, and records each run.

    A session is the ``thread_id`` of the graph's configuration; without one, each run is a session.
    """

    def __init__(self, **owner: Unpack[Owner]) -> None:
        super().__init__()
        self._conversations = Conversations("langchain", **owner)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with recalled lines before the user's newest message."""
        messages, turn = request.messages, _turn(request.messages)
        return handler(
            request.override(messages=self._conversations.with_block(messages, turn, _put))
        )

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Do as `wrap_model_call`."""
        messages, turn = request.messages, _turn(request.messages)
        messages = await self._conversations.with_block_async(messages, turn, _put)
        return await handler(request.override(messages=messages))

    def after_agent(self, state: Any, runtime: Any) -> None:
        """Record the run."""
        self._conversations.end(_run(state["messages"]), _turn(state["messages"]))

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        """Do as `after_agent`."""
        messages = state["messages"]
        await self._conversations.end_async(_run(messages), _turn(messages))


def _run(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """Return the messages from the user's newest one on."""
    starts = [at for at, each in enumerate(messages) if isinstance(each, HumanMessage)]
    return messages[starts[-1] :] if starts else messages


def _turn(messages: Sequence[AnyMessage]) -> Turn:
    run = str(_run(messages)[0].id)  # the graph gives each message an id
    thread = get_config().get("configurable", {}).get("thread_id")
    return Turn(session=str(thread or run), run=run)


def _put(message: AnyMessage, block: str) -> AnyMessage:
    content = prepend(message.content, block, lambda text: {"type": "text", "text": text})
    return message.model_copy(update={"content": content})
