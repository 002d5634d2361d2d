"""Keys that recognise a message delivered twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Final

from memtier_plugin.core.records import Entry

PLACES: Final = 5_000  # of a message in its run that are tried to know its key again


def place_key(agent: str, run: str, position: int, role: str) -> str:
    """Return a key that stands for whatever a run has at a place; it knows nothing of the text."""
    identity = json.dumps(["purged", agent, run, position, role]).encode()
    return f"purged:{hashlib.blake2b(identity, digest_size=16).hexdigest()}"


def place_keys(agent: str, run: str, roles: Iterable[tuple[int, str]]) -> list[str]:
    """Return the `place_key` of each message of a run, given by position and role."""
    return [place_key(agent, run, position, role) for position, role in roles]


def key_after(entry: Entry, key_of: Callable[[int], str]) -> str:
    """Return the key that a purged entry is to have: its place's, found by its own key.

    Args:
        key_of: the key of this entry's role and content at a place of its run.
    """
    for position in range(PLACES):
        if key_of(position) == entry.key:
            return place_key(entry.agent_id, entry.run_id, position, entry.role)
    return entry.key  # somebody else's: it says nothing that we know of
