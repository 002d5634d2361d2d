"""Record how long hosts waited for hooks, measured on the host's side of the pipe.

Only that side notices a resident that is slow, hangs or is gone. So each host's client
(`hooks/resident.py`, `hooks/openclaw/waits.js`) writes a small file of its own into the home, which
`status` reads. Standard library only, as Hermes provides nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import make_private_folder, write_private_file

MAX_NOTED: Final = 200  # agents and hooks in a file; the least recent are dropped
SLOWEST_DAYS: Final = 30  # how long the slowest call is reported
_SUFFIX: Final = ".waits.json"
_KEY: Final = ("project", "agent", "hook")
_LOCK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class HookWait:
    """One call of a hook: how long the host waited, and whether it got an answer.

    ``project`` is None if the host's working directory decides.
    """

    project: str | None
    agent: str
    hook: str
    ms: int
    answered: bool = True


def note_waits(home: Path, host: str, waits: Sequence[HookWait], now: datetime) -> None:
    """Record how long a host waited; its processes may write concurrently.

    Raises:
        UnsafePath: the file is not the user's own, and was left alone.
        LedgerWriteError: the file could not be written.
    """
    folder = make_private_folder(home, "hosts")
    path = folder / f"{host}{_SUFFIX}"
    with hold_lock(folder / f".{host}.waits.lock", _LOCK_SECONDS):
        marks = _read(path)
        for wait in waits:
            marks = _add_wait(marks, wait, now)
        write_private_file(path, json.dumps(marks, indent=1))


def add_timing(mark: Mapping[str, Any], ms: int, now: datetime) -> dict[str, Any]:
    """Add a call to a mark: the duration of the last call, and of the slowest recent one."""
    timed = {**mark, "last_ms": ms}
    is_old = str(mark.get("slowest_at") or "") < to_iso(now - timedelta(days=SLOWEST_DAYS))
    if is_old or ms >= mark.get("slowest_ms", 0):
        timed |= {"slowest_ms": ms, "slowest_at": to_iso(now)}
    return timed


def read_waits(home: Path, project: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return per agent and hook how long the hosts of a project waited."""
    waits: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted((home / "hosts").glob(f"*{_SUFFIX}")):
        for mark in _read(path):
            if mark["project"] in (None, project):
                timing = {k: v for k, v in mark.items() if k not in _KEY}
                waits.setdefault(mark["agent"], {})[mark["hook"]] = timing
    return waits


def count_prompts(home: Path, project: str) -> dict[str, dict[str, Any]]:
    """Return per host the number of a project's prompts, and the share without an answer."""
    counts: dict[str, dict[str, Any]] = {}
    for path in sorted((home / "hosts").glob(f"*{_SUFFIX}")):
        marks = [
            mark
            for mark in _read(path)
            if mark["project"] in (None, project) and mark["hook"] == "before_prompt_build"
        ]
        if prompts := sum(mark["calls"] for mark in marks):
            failed = sum(mark["failed"] for mark in marks)
            share = round(failed / prompts, 3)
            counts[path.name.removesuffix(_SUFFIX)] = {
                "prompts": prompts,
                "unanswered": failed,
                "share": share,
            }
    return counts


def used_projects(home: Path) -> list[str]:
    """Return the projects that hosts called hooks for, most recent first."""
    marks = [mark for path in (home / "hosts").glob(f"*{_SUFFIX}") for mark in _read(path)]
    marks.sort(key=lambda mark: str(mark["last"]), reverse=True)
    return list(dict.fromkeys(mark["project"] for mark in marks if mark["project"]))


def last_calls(home: Path) -> dict[str, datetime]:
    """Return when each host last called a hook, in any project."""
    calls = {}
    for path in (home / "hosts").glob(f"*{_SUFFIX}"):
        times = [mark["last"] for mark in _read(path)]
        with suppress(ValueError):
            calls[path.name.removesuffix(_SUFFIX)] = from_iso(max(times))
    return calls


def describe_unanswered(waits: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Describe the hooks whose last call got no answer, which the resident cannot notice."""
    return [
        f"{agent} {hook}: the last of {mark['calls']} calls got no answer, {mark['failed']} in all;"
        " see the host's log"
        for agent, hooks in waits.items()
        for hook, mark in hooks.items()
        if hook in ("before_prompt_build", "agent_end") and mark["last_failed"] == mark["last"]
    ]


def _add_wait(
    marks: Sequence[dict[str, Any]], wait: HookWait, now: datetime
) -> list[dict[str, Any]]:
    key = {k: v for k, v in asdict(wait).items() if k in _KEY}
    before = [mark for mark in marks if {k: mark[k] for k in key} == key]
    mark: dict[str, Any] = {"calls": 0, "failed": 0, "last_failed": None, **dict(*before[-1:])}
    mark = add_timing(
        {**key, **mark, "calls": mark["calls"] + 1, "last": to_iso(now)}, wait.ms, now
    )
    if not wait.answered:
        mark |= {"failed": mark["failed"] + 1, "last_failed": to_iso(now)}
    return [*(earlier for earlier in marks if earlier not in before), mark][-MAX_NOTED:]


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
    """Return the marks of a file, none if it cannot be parsed."""
    try:
        content = parse_json_text(path.read_text("utf-8"))
    except (OSError, ValueError):
        return []
    marks = content if isinstance(content, list) else []
    return [
        {name: mark[name] for name in _FIELDS}
        for mark in marks
        if isinstance(mark, dict)
        and all(isinstance(mark.get(name, ...), kinds) for name, kinds in _FIELDS.items())
    ]
