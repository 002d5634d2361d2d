"""A run to be recorded, and the conversion of its messages to entries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Entry, Message, Run, count_tokens

# Our own tools; a host may prefix their names.
_STORING_TOOLS: Final = ("memory_store", "memtier_store")


class NewRun(NamedTuple):
    """A run to be recorded: the key, the final message and whether it was truncated, for each.

    ``position_keys`` identify a message by its position in the run, also after it was purged.
    ``tainted`` has the keys of the messages that carry external text.
    """

    run: Run
    messages: Sequence[tuple[str, Message, bool]]
    position_keys: Sequence[str]
    tainted: Collection[str] = ()

    def new_messages(self, existing: Collection[str]) -> Iterator[tuple[str, Message, bool]]:
        """Yield the messages of which neither key exists."""
        for position_key, message in zip(self.position_keys, self.messages, strict=True):
            if message[0] not in existing and position_key not in existing:
                yield message

    def make_entries(
        self, existing: set[str], turns: dict[str, int], project: str, now: datetime
    ) -> list[Entry]:
        """Build the entries of the messages that are not stored yet.

        Their keys are added to ``existing``, and they count as turns of their session.
        """
        entries = []
        for key, message, truncated in self.new_messages(existing):
            existing.add(key)
            turns[self.run.session] += 1
            turn = turns[self.run.session]
            entries.append(self._make_entry(key, message, truncated, turn, project, now))
        return entries

    def _make_entry(
        self, key: str, message: Message, truncated: bool, turn: int, project: str, now: datetime
    ) -> Entry:
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
            tainted=message.role == "assistant"
            and (key in self.tainted or _asks_to_store(message)),
            truncated=truncated,
            private=self.run.private,
            key=key,
        )


def _asks_to_store(message: Message) -> bool:
    """Return whether a message calls a storing tool, whose text is an entry of its own."""
    return any(call.name.endswith(_STORING_TOOLS) for call in message.tool_calls)
