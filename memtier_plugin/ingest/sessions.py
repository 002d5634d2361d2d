"""Sessions, exchanges and turns of a conversation, and keys that tell a message sent twice."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from memtier_plugin.core.records import Entry, Message

# -- Sessions, exchanges and turns of a conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """One message, with the name its file gives it and the run it belongs to, where known."""

    id: str
    message: Message
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange: what was asked and everything up to the next question."""

    run_id: str
    turns: tuple[ImportedMessage, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the exchange."""
        return tuple(turn.message for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session of a file; `observed_at` is None where the file does not say when it was.

    ``sender`` is for whom alone it is recalled, where the file has several people's.
    """

    session_id: str
    observed_at: datetime | None
    turns: tuple[ImportedMessage, ...]
    sender: str | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of the session, in order."""
        return tuple(turn.message for turn in self.turns)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The session as exchanges, whose ids stay the same when the file is read again.

        An exchange starts where a user speaks after an answer; between people, where the one
        who opened the session speaks after another.
        """
        groups: list[list[ImportedMessage]] = []
        for turn in self.turns:
            if not groups or _starts_exchange(
                turn.message, groups[-1][-1].message, self.turns[0].message
            ):
                groups.append([])
            groups[-1].append(turn)
        return tuple(
            Exchange(
                run_id=next((t.run_id for t in group if t.run_id), f"{self.session_id}:{number}"),
                turns=tuple(group),
            )
            for number, group in enumerate(groups, start=1)
        )


def _starts_exchange(message: Message, before: Message, first: Message) -> bool:
    if message.role != "user":
        return False
    if before.role != "user":
        return True
    return message.speaker == first.speaker and message.speaker != before.speaker


# -- Keys that recognise a message delivered twice

PLACES: Final = 5_000  # of a message in its run that are tried to know its key again


class Delivery(NamedTuple):
    """Whose run it is: hosts number runs for each person, so one id may belong to several."""

    agent: str
    run: str
    sender: str | None = None

    @property
    def names(self) -> list[str]:
        """The names that its keys use for it."""
        return [self.agent, self.run, *([] if self.sender is None else [self.sender])]

    @classmethod
    def of(cls, entry: Entry) -> Delivery:
        """Return the delivery that an entry is of."""
        return cls(entry.agent_id, entry.run_id, entry.sender)

    def key(self, position: int, message: Message) -> str:
        """Return the key of a message at a place of the run, by its role and content."""
        content = message.content.encode("utf-8", "surrogatepass")
        identity = json.dumps([*self.names, position, message.role]).encode()
        digest = identity + hashlib.blake2b(content).digest()
        return hashlib.blake2b(digest, digest_size=16).hexdigest()

    def place_key(self, position: int, role: str) -> str:
        """Return a key that stands for whatever is at a place; it knows nothing of the text."""
        identity = json.dumps(["purged", *self.names, position, role]).encode()
        return f"purged:{hashlib.blake2b(identity, digest_size=16).hexdigest()}"


def key_after(entry: Entry) -> str:
    """Return the key that a purged entry is to have: its place's, found by its own key."""
    delivery, message = Delivery.of(entry), Message(role=entry.role, content=entry.content)
    for position in range(PLACES):
        if delivery.key(position, message) == entry.key:
            return delivery.place_key(position, entry.role)
    return entry.key  # somebody else's: it says nothing that we know of
