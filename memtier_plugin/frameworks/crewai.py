"""CrewAI: hooks by which each task of every crew remembers earlier ones."""

from __future__ import annotations

from typing import Any, Unpack

from crewai.hooks import InterceptionPoint, LLMCallHookContext, register_hook, unregister_hook
from crewai.hooks.contexts import StepContext

from memtier_plugin.core.formats import new_id

from .conversations import Conversations, Owner, Turn, prepend


class MemTierHooks:
    """Adds recalled lines to the prompt of each task, and records the task when it is done.

    They apply to all crews of the process until `unregister`.
    """

    def __init__(self, session_id: str | None = None, **owner: Unpack[Owner]) -> None:
        self._session = session_id or new_id()
        self._conversations = Conversations("crewai", **owner)
        self._turns: dict[str, Turn] = {}  # by task in progress
        self._hooks = (
            (InterceptionPoint.PRE_STEP, self._begin),
            (InterceptionPoint.PRE_MODEL_CALL, self._add_memory),
            (InterceptionPoint.POST_STEP, self._record),
        )
        for point, hook in self._hooks:
            register_hook(point, hook)

    def unregister(self) -> None:
        """Remove the hooks."""
        for point, hook in self._hooks:
            unregister_hook(point, hook)

    def _begin(self, context: StepContext) -> None:
        if context.kind == "task":
            self._turns[str(context.task.id)] = Turn(session=self._session, run=new_id())

    def _add_memory(self, context: LLMCallHookContext) -> None:
        turn = self._turns.get(str(getattr(context.task, "id", None)))
        if turn:  # the executor holds on to this very list
            context.messages[:] = self._conversations.with_block(
                context.messages, turn, _put, query=context.task.description
            )

    def _record(self, context: StepContext) -> None:
        turn = self._turns.pop(str(getattr(context.task, "id", None)), None)
        if turn is None:
            return
        output = context.output
        messages = [*(output.messages or ())]
        starts = [at for at, each in enumerate(messages) if each.get("role") == "user"]
        answers = messages[starts[0] + 1 :] if starts else []
        prompt = {"role": "user", "content": context.task.description}
        if not any(each.get("content") == output.raw for each in answers):
            answers.append({"role": "assistant", "content": output.raw})
        self._conversations.end([prompt, *answers], turn)


def _put(message: Any, block: str) -> Any:
    content = prepend(message["content"], block, lambda text: {"type": "text", "text": text})
    return {**message, "content": content}
