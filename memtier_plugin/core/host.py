"""Records of the hooks: what a host reports of a run, and what it gets back."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from memtier_plugin.core.records import Message
from memtier_plugin.core.structs import GivenRecord, Record
from memtier_plugin.core.usage_events import UsageEvent

# What a prompt is: small talk, a command of the host, a task or a question that anybody could put,
# a pasted log or code, a follow-up that leans on this session, or a question to the memory: about
# whoever asks, the assistant's words, a time, a list of things.
PromptKind = Literal[
    "chat",
    "command",
    "task",
    "question",
    "log",
    "follow_up",
    "personal",
    "assistant",
    "time",
    "list",
]


class RunContext(GivenRecord, frozen=True, kw_only=True):
    """The agent, session and run that a hook call belongs to, as the host knows them.

    ``agent_id`` is ``<host>.<agent>``; ``project`` None lets the workspace decide. What is said in
    a ``private`` run is a confidence.
    """

    agent_id: str
    session_id: str | None = None
    run_id: str | None = None
    project: str | None = None
    home: str | None = None
    workspace: str | None = None
    sender: str | None = None
    parent: str | None = None
    private: bool = False


class PromptEvent(GivenRecord, frozen=True, kw_only=True):
    """A prompt about to be built: the user's newest message, and what came before.

    ``visible_since`` is from when on the prompt has the session in it: what was said since is not
    injected again, and with ``keeps_injected`` what was injected since is not either.
    ``kind`` is what the host knows of the prompt; None leaves it to rules.
    ``caution`` stands first in the block, where the host frames it with words of its own.
    ``acknowledges`` is a promise to say when the prompt has the block (`MemTier.acknowledge`).
    """

    prompt: str
    messages: tuple[Message, ...] = ()
    visible_since: datetime | None = None
    keeps_injected: bool = False
    kind: PromptKind | None = None
    caution: str = ""
    acknowledges: bool = False


class Shown(GivenRecord, frozen=True, kw_only=True):
    """The part of a conversation that the prompt holds already: everything since a moment.

    With ``injected`` the lines of earlier recalls are still there too.
    """

    since: datetime
    injected: bool = False


class PromptAddition(Record, frozen=True, kw_only=True):
    """The text that a hook adds before the user's message."""

    prepend_context: str
    recall_id: str


class RunEvent(GivenRecord, frozen=True, kw_only=True):
    """A finished run: its own messages only, not the session's.

    ``seen`` is external text of earlier runs that the conversation still shows: what the assistant
    says is held against it. ``usage`` is what the host's models took for it.
    """

    messages: tuple[Message, ...]
    success: bool = True
    error: str | None = None
    seen: tuple[str, ...] = ()
    usage: tuple[UsageEvent, ...] = ()


class HookCall(Record, frozen=True):
    """The hook call that a host's payload translates to."""

    hook: str
    context: RunContext
    event: PromptEvent | RunEvent | None = None
