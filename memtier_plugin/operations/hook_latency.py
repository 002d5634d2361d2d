"""How long hooks held their host, as the host's own side of the pipe knows it.

Only that side knows it when the resident is slow, hangs or is not there.  So the client of each
host (`hooks/resident.py`, `hooks/openclaw/waits.js`) keeps a small file of its own in the home, and
`status` reads it, resident or not.  Of the standard library alone: Hermes has nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import make_private_folder, write_private_file
from memtier_plugin.core.times import to_iso

MAX_NOTED: Final = 200  # agents and hooks in a file; those not heard of for longest go first
SLOWEST_DAYS: Final = 30  # that the slowest call is told of
_SUFFIX: Final = ".waits.json"
_LOCK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class HookWait:
    """One call of a hook: whose it was, how long the host waited, and whether for nothing.

    ``project`` None: the folder that the host works in decides.
    """

    project: str | None
    agent: str
    hook: str
    ms: int
    answered: bool = True


def note_waits(home: Path, host: str, waits: Sequence[HookWait], now: datetime) -> None:
    """Keep how long a host waited; several processes of it may do so at once.

    Raises:
        UnsafePath, LedgerWriteError: nothing of it was kept.
    """
    folder = make_private_folder(home, "hosts")
    path = folder / f"{host}{_SUFFIX}"
    with hold_lock(folder / f".{host}.waits.lock", _LOCK_SECONDS):
        known = _read(path)
        for wait in waits:
            known = _folded(known, wait, now)
        write_private_file(path, json.dumps(known, indent=1))


def add_timing(mark: Mapping[str, Any], ms: int, now: datetime) -> dict[str, Any]:
    """Return a mark with one more call: the last one's milliseconds, and the slowest's of late."""
    found = {**mark, "last_ms": ms}
    long_ago = str(mark.get("slowest_at") or "") < to_iso(now - timedelta(days=SLOWEST_DAYS))
    if long_ago or ms >= mark.get("slowest_ms", 0):
        found |= {"slowest_ms": ms, "slowest_at": to_iso(now)}
    return found


def read_waits(home: Path, project: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return per agent and hook how long the hosts of a project waited, as far as it is kept."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted((home / "hosts").glob(f"*{_SUFFIX}")):
        for one in _read(path):
            if one["project"] in (None, project):
                mark = {k: v for k, v in one.items() if k not in ("project", "agent", "hook")}
                found.setdefault(one["agent"], {})[one["hook"]] = mark
    return found


def describe_unanswered(waited: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Say of which hooks a host's last call got no answer, though nobody here saw it fail."""
    return [
        f"{agent} {hook}: the last of {mark['calls']} calls got no answer, {mark['failed']} in all;"
        " the host's log says why"
        for agent, hooks in waited.items()
        for hook, mark in hooks.items()
        if hook in ("before_prompt_build", "agent_end") and mark["last_failed"] == mark["last"]
    ]


def _folded(known: Sequence[dict[str, Any]], wait: HookWait, now: datetime) -> list[dict[str, Any]]:
    key = {k: v for k, v in asdict(wait).items() if k in ("project", "agent", "hook")}
    before = [one for one in known if {k: one[k] for k in key} == key]
    mine: dict[str, Any] = {"calls": 0, "failed": 0, "last_failed": None, **dict(*before[-1:])}
    mine = add_timing(
        {**key, **mine, "calls": mine["calls"] + 1, "last": to_iso(now)}, wait.ms, now
    )
    if not wait.answered:
        mine |= {"failed": mine["failed"] + 1, "last_failed": to_iso(now)}
    return [*(one for one in known if one not in before), mine][-MAX_NOTED:]


_FIELDS: Final[Mapping[str, tuple[type, ...]]] = {
    "project": (str, type(None)),
    "agent": (str,),
    "hook": (str,),
    "calls": (int,),
    "last": (str,),
    "last_ms": (int,),
    "slowest_ms": (int,),
    "slowest_at": (str,),
    "failed": (int,),
    "last_failed": (str, type(None)),
}


def _read(path: Path) -> list[dict[str, Any]]:
    """Return what a file holds; what cannot be read is begun anew."""
    try:
        lines = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return []
    whole = [one for one in lines if isinstance(one, dict)] if isinstance(lines, list) else []
    return [
        {name: one[name] for name in _FIELDS}
        for one in whole
        if all(isinstance(one.get(name, ...), kinds) for name, kinds in _FIELDS.items())
    ]
