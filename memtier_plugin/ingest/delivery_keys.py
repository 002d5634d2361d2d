"""Keys that recognise a message delivered twice."""

from __future__ import annotations

import hashlib
import json
from typing import Final, NamedTuple

from memtier_plugin.core.records import Entry, Message

PLACES: Final = 5_000  # of a message in its run that are tried to know its key again


class Delivery(NamedTuple):
    """Whose run it is: hosts count runs for each person anew, so one id may be of several."""

    agent: str
    run: str
    sender: str | None = None

    @property
    def names(self) -> list[str]:
        """The names by which its keys know it."""
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
