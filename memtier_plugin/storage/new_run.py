"""A run to be written, and the entry that each of its messages becomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Entry, Message, Run, count_tokens

_STORING_TOOLS: Final = (
    "memory_store",
    "memtier_store",
)  # our own tools, whatever a host puts before


class NewRun(NamedTuple):
    """A run to be written: its messages as they are to stand there, each with its key.

    Beside each stands whether it was cut.  ``position_keys`` are the keys by which a purged message
    is known at its place.
    """

    run: Run
    messages: Sequence[tuple[str, Message, bool]]
    position_keys: Sequence[str]
    tainted: bool

    def make_entry(
        self, key: str, message: Message, truncated: bool, turn: int, project: str, now: datetime
    ) -> Entry:
        """Return the entry of one of the messages, as the session's turn of that number."""
        return Entry(
            id=new_id(),
            timestamp=now,
            session_id=self.run.session,
            project=project,
            content=message.content,
            tokens=count_tokens(message.content),
            agent_id=self.run.agent,
            run_id=self.run.run,
            turn=turn,
            role=message.role,
            origin=message.origin or message.role,
            observed_at=message.observed_at or self.run.observed_at or now,
            sender=self.run.sender,
            speaker=message.speaker,
            parent=self.run.parent,
            tool=message.tool,
            tainted=message.role == "assistant" and (self.tainted or _asks_to_store(message)),
            truncated=truncated,
            key=key,
        )


def _asks_to_store(message: Message) -> bool:
    """Tell whether a message asks to keep something, which is an entry of its own, judged there."""
    return any(call.name.endswith(_STORING_TOOLS) for call in message.tool_calls)
