"""What all frameworks share: MemTier's hooks, called with messages of any framework.

As in every host, no error of the memory reaches the framework, each hook keeps its deadline, and
`memtier status` tells how the hooks fared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypedDict, TypeVar, Unpack

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import new_id
from memtier_plugin.core.plugins import manager, record_failure
from memtier_plugin.core.results import PromptAddition, PromptEvent, RunContext, RunEvent
from memtier_plugin.hooks.payloads import drop_oldest
from memtier_plugin.ingest.messages import parse_messages
from memtier_plugin.trust.escaping import FENCE

M = TypeVar("M")

_MOST_RUNS: Final = 200  # whose blocks are kept, and
_MOST_SESSIONS: Final = 200  # whose prompts are
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Owner(TypedDict, total=False):
    """Whose memory it is.

    ``home`` is ``MEMTIER_HOME`` or ``~/.memtier``; ``project`` that of the folder, else "default";
    ``agent`` "main"; ``sender`` the person who speaks, where several do.
    """

    home: str
    project: str
    agent: str
    sender: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a conversation: its session, its run and who speaks."""

    session: str
    run: str
    sender: str | None = None


class Conversations:
    """The conversations of one agent; safe to share between threads."""

    def __init__(self, host: str, **owner: Unpack[Owner]) -> None:
        self._base = RunContext(
            agent_id=f"{host}.{owner.get('agent', 'main')}",
            project=owner.get("project"),
            home=str(owner["home"]) if "home" in owner else None,
            sender=owner.get("sender"),
        )
        self._lock = Mutex()
        self._blocks: dict[str, str] = {}  # by run: each model call gets the same block
        self._seen: dict[str, dict[str, datetime]] = {}  # by session: when each prompt was seen

    def with_block(
        self,
        messages: Sequence[M],
        turn: Turn,
        put: Callable[[M, str], M],
        query: str | None = None,
    ) -> list[M]:
        """Return a prompt's messages, with this turn's block before the user's newest one.

        Args:
            messages: in the framework's types; they are not changed.
            put: returns a copy of a message with the block before its text.
            query: what to recall for, where the framework wraps the user's words in its own.
        """
        prompts = [(at, text) for at, m in enumerate(messages) if (text := user_text(m))]
        if not prompts or FENCE in prompts[-1][1]:
            return [*messages]
        at, prompt = prompts[-1]
        if turn.run not in self._blocks:
            since = self._visible_since(turn.session, [text for _, text in prompts])
            self._blocks[turn.run] = self._recall(query or prompt, turn, since)
            drop_oldest(self._blocks, _MOST_RUNS)
        block = self._blocks.get(turn.run, "")
        if not block:
            return [*messages]
        return [*messages[:at], put(messages[at], block), *messages[at + 1 :]]

    async def with_block_async(
        self, messages: Sequence[M], turn: Turn, put: Callable[[M, str], M]
    ) -> list[M]:
        """Do as `with_block`, without blocking the event loop."""
        return await asyncio.to_thread(self.with_block, messages, turn, put)

    def end(self, messages: Sequence[object], turn: Turn, error: str | None = None) -> None:
        """Record a finished run from its messages, and credit what was injected into it.

        If a run is given again with more messages, only those are added.  Other items are
        left out.
        """
        try:
            parsed = parse_messages(messages)
        except MessageError as problem:
            record_failure("memtier", "agent_end", problem)
            parsed = parse_messages([message for message in messages if _is_message(message)])
        if parsed:
            event = RunEvent(messages=parsed, error=error)
            manager().hook.agent_end(event=event, context=self._context(turn))

    async def end_async(
        self, messages: Sequence[object], turn: Turn, error: str | None = None
    ) -> None:
        """Do as `end`, without blocking the event loop."""
        await asyncio.to_thread(self.end, messages, turn, error)

    def _context(self, turn: Turn) -> RunContext:
        sender = turn.sender or self._base.sender
        return replace(self._base, session_id=turn.session, run_id=turn.run, sender=sender)

    def _recall(self, prompt: str, turn: Turn, since: datetime | None) -> str:
        event = PromptEvent(prompt=prompt, visible_since=since)
        addition: PromptAddition | None = manager().hook.before_prompt_build(
            event=event, context=self._context(turn)
        )
        return addition.prepend_context if addition else ""

    def _visible_since(self, session: str, prompts: list[str]) -> datetime | None:
        """Return since when the session is part of the prompt, and need not be recalled.

        None if it is not.  A framework may cut off the beginning of a long session.
        """
        now = datetime.now(UTC)
        with self._lock:
            known = session in self._seen
            seen = self._seen.setdefault(session, {})
            for earlier in prompts[:-1]:  # from an earlier process, or cut off in this one
                seen.setdefault(earlier, now if known else _EARLIEST)
            seen[prompts[-1]] = now
            drop_oldest(self._seen, _MOST_SESSIONS)
        if not known:
            manager().hook.session_start(context=replace(self._base, session_id=session))
        return seen[prompts[0]] if len(prompts) > 1 else None


class OpenRun:
    """The run of a conversation whose framework hands over messages one at a time."""

    def __init__(self, conversations: Conversations, session: str) -> None:
        self._conversations = conversations
        self._messages: list[object] = []
        self.turn = Turn(session=session, run=new_id())

    async def add(self, messages: Sequence[object]) -> None:
        """Add messages: a user's message begins a run, and the answers to it are recorded."""
        for message in messages:
            if user_text(message):
                if any(not user_text(each) for each in self._messages):
                    self._messages = []
                if not self._messages:
                    self.turn = replace(self.turn, run=new_id())
            self._messages.append(message)
        if self._messages and not user_text(self._messages[-1]):
            await self._conversations.end_async(self._messages, self.turn)


def _is_message(message: object) -> bool:
    with suppress(MessageError):
        parse_messages([message])
        return True
    return False


def user_text(message: object) -> str:
    """Return the user's words in a message of any framework; "" if it has none."""
    with suppress(MessageError):
        parsed = parse_messages([message])
        return "\n".join(m.content for m in parsed if m.role == "user" and m.origin != "external")
    return ""


def prepend(content: Any, block: str, part: Callable[[str], Any]) -> Any:
    """Return a message's content, a text or a list of parts, with a block before it."""
    if isinstance(content, str):
        return f"{block}\n\n{content}"
    return [part(f"{block}\n\n"), *content]
