"""Remind a person in the chat of what waits for review, once a day at most.

What waits is counted after a run, when nobody waits for it; the next prompt reads one small file.
The file is of this machine: all agents of a project share it, and it survives a restart. It holds
hashes of names and counts, no text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import LedgerWriteError
from memtier_plugin.core.formats import from_iso, parse_json_text
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import write_private_file

FILE: Final = "review.json"
COUNT_AGAIN: Final = timedelta(hours=1)  # after which what waits is counted again

_LOCK: Final = ".review.lock"
_LOCK_SECONDS: Final = 0.05  # a prompt goes without the note rather than wait
_MAX_NAMES: Final = 200  # people remembered; the oldest are dropped first


class Audience(NamedTuple):
    """Whose part of the queue: what rests on this agent's lines of this sender alone."""

    agent: str
    sender: str | None = None


def is_counted(folder: Path, audience: Audience, now: datetime) -> bool:
    """Return whether something was found to wait for an agent's person a short time ago."""
    return _is_recent(_load(folder)["waiting"].get(_key(*audience)), now)


def note_count(folder: Path, audience: Audience, now: datetime, number: int) -> None:
    """Note how much waits for an agent's person, for the next prompt to tell."""
    key = _key(*audience)
    if number or _load(folder)["waiting"].get(key) is not None:
        _change(folder, lambda state: _put(state, "waiting", key, [now.isoformat(), number]))


def take_reminder(folder: Path, audience: Audience, now: datetime) -> int:
    """Return how much waits if the person is to be reminded now, and note that it was done."""
    key, person, today = _key(*audience), _key("", audience.sender), f"{now:%F}"
    state = _load(folder)
    if not _is_due(state, key, person, today):
        return 0
    number = 0

    def remind(state: dict[str, Any]) -> dict[str, Any]:
        nonlocal number
        if _is_due(state, key, person, today):  # no other agent was faster
            number = int(state["waiting"][key][1])
            state = _put(state, "reminded", person, today)
        return state

    _change(folder, remind)
    return number


def forget_counts(folder: Path) -> None:
    """Let what waits be counted anew: something was decided."""
    if _load(folder)["waiting"]:
        _change(folder, lambda state: {**state, "waiting": {}})


def _is_due(state: dict[str, Any], key: str, person: str, today: str) -> bool:
    counted = state["waiting"].get(key)
    waits = isinstance(counted, list) and len(counted) == 2 and isinstance(counted[1], int)
    return waits and counted[1] > 0 and state["reminded"].get(person) != today


def _is_recent(counted: Any, now: datetime) -> bool:
    """Return whether something was found to wait a short time ago."""
    with suppress(TypeError, ValueError, KeyError, IndexError):
        return bool(counted[1]) and timedelta(0) <= now - from_iso(counted[0]) < COUNT_AGAIN
    return False


def _key(agent: str, sender: str | None) -> str:
    identity = json.dumps([agent, sender or ""]).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(identity, digest_size=8).hexdigest()


def _put(state: dict[str, Any], part: str, key: str, value: object) -> dict[str, Any]:
    rest = {name: old for name, old in state[part].items() if name != key}
    return {**state, part: dict([*rest.items(), (key, value)][-_MAX_NAMES:])}


def _load(folder: Path) -> dict[str, Any]:
    """Return the state; of a missing or torn file what is usable."""
    try:
        content = parse_json_text((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        content = None
    content = content if isinstance(content, dict) else {}
    parts = {name: content.get(name) for name in ("waiting", "reminded")}
    return {name: part if isinstance(part, dict) else {} for name, part in parts.items()}


def _change(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the state; not at all while another process holds it or the disk is full."""
    with suppress(LedgerWriteError), hold_lock(folder / _LOCK, _LOCK_SECONDS):
        before = _load(folder)
        after = change(before)
        if after != before:
            write_private_file(folder / FILE, json.dumps(after))
