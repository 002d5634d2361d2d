"""Tell which of an assistant's messages are held, since they carry what strangers wrote.

A message is held against the external text of its session: pages, mail, results of tools that reach
out, external lines that a memory tool showed; of this run and of earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from memtier_plugin.core.errors import IndexProblem
from memtier_plugin.core.records import Entry, Message, Run
from memtier_plugin.storage.actor import Actor
from memtier_plugin.trust.external_text import ExternalText
from memtier_plugin.trust.origins import effective_origin
from memtier_plugin.trust.tool_calls import is_own_tool, is_wrapper
from memtier_plugin.trust.tool_origins import shown_lines

_EARLIER: Final = 500  # newest entries of a session that are looked at, and
_EARLIER_CHARS: Final = 400_000  # characters of them


class HeldLines:
    """Walks through the runs of an agent, as they are recorded."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._sessions: dict[str, ExternalText] = {}

    def positions(self, run: Run, messages: Sequence[Message]) -> frozenset[int]:
        """Return the positions of a run's messages that are held.

        Args:
            messages: the run's, in order; the runs of a session come in order too.
        """
        session = self._sessions.get(run.session)
        if session is None:
            session = ExternalText(self._actor.store.tokenizer.words)
            if any(message.role == "assistant" for message in messages):
                for entry in self._earlier(run):
                    _add(session, entry)
            self._sessions[run.session] = session
        for text in run.seen:
            session.add_external(text)
        session.begin_run()
        held = set()
        for position, message in enumerate(messages):
            if message.role == "assistant" and _is_held(session, message):
                held.add(position)
            else:
                _add(session, message)
        return frozenset(held)

    def _earlier(self, run: Run) -> list[Entry]:
        """Return what was recorded of the session before, the oldest first.

        Whoever's turn it was, the assistant has read it.
        """
        store = self._actor.store
        with suppress(IndexProblem), store.session() as reader:
            scopes = reader.scopes(run.agent, run.sender, read_all=True)
            rows = reader.newest_in_session(run.agent, run.session, scopes, _EARLIER)
            stored = reader.items_by_row(rows)
            entries, room = [], _EARLIER_CHARS
            for row in rows:
                entry = stored[row].item if row in stored else None
                if isinstance(entry, Entry) and entry.run_id != run.run and room > 0:
                    entries.append(entry)
                    room -= len(entry.content)
            return entries[::-1]
        return []


def _is_held(session: ExternalText, message: Message) -> bool:
    if message.origin == "external":
        return True
    if not session:
        return False
    texts = [message.content, *(call.arguments for call in message.tool_calls)]
    if any(map(session.is_carried_by, texts)):
        return True
    return session.read_in_run and not session.is_grounded("\n".join(texts))


def _add(session: ExternalText, item: Message | Entry) -> None:
    """Add what an item brings: external text, or words that are the user's or the machine's."""
    origin = effective_origin(item) if isinstance(item, Entry) else item.origin or item.role
    if origin == "external":
        if item.role != "assistant":
            session.add_external(item.content)
    elif _is_shown_by_memory(item):
        for line, external in shown_lines(item.content):
            (session.add_external if external else session.add_trusted)(line)
    elif origin == "user" or not session:
        session.add_trusted(item.content)
    # What else is said or printed after external text may have it from there: it proves nothing.


def _is_shown_by_memory(item: Message | Entry) -> bool:
    """Tell whether it is what a memory tool answered, called through a wrapper or not."""
    name = item.tool.name if item.tool else ""
    return item.origin == "system" and (is_own_tool(name) or is_wrapper(name))
