"""Record the hooks' calls: how long hosts waited for them, and when each last succeeded or failed.

Standard library only, as Hermes provides nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.files import hold_lock, write_private_file
from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso
from memtier_plugin.core.paths import decode_file_name, encode_file_name, make_private_folder

if TYPE_CHECKING:
    from memtier_plugin.storage.store import Store

# -- How long hosts waited, measured on the host's side of the pipe
#
# Only that side notices a resident that is slow, hangs or is gone.  So each host's client
# (`hooks/resident.py`, `hooks/openclaw/waits.js`) writes a small file of its own into the home,
# which `status` reads.

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


# -- When each hook last succeeded or failed, per agent
#
# A hook writes one small file per agent, which reveals a host that is "loaded, healthy, nothing
# stored".

MAX_UNSTORED_TURNS: Final = 3  # recalls without a stored run; more are an error
MAX_UNRECALLED_RUNS: Final = 10  # stored runs without a recall, which announcements may cause
_COUNTERPART: Final = {"before_prompt_build": "agent_end", "agent_end": "before_prompt_build"}


def note_hook(
    store: Store, agent: str, hook: str, error: str | None, ms: int | None, now: datetime
) -> None:
    """Record an agent's hook call: its time, and the error if it failed."""
    folder = store.project_folder.make("hooks")
    path = folder / f"{encode_file_name(agent)}.json"
    with hold_lock(folder / ".lock", 1.0):  # several hosts may serve one agent
        marks = _load(path)
        unused = {"last_ok": None, "last_error": None, "error": None, "runs": 0}
        mark = marks.setdefault(hook, dict(unused))
        mark["runs"] += 1
        mark |= add_timing(mark, ms, now) if ms is not None else {}
        if error is None:
            mark |= {"last_ok": to_iso(now), "missed": 0}
            if hook in _COUNTERPART:
                counterpart = marks.setdefault(_COUNTERPART[hook], dict(unused))
                counterpart["missed"] = counterpart.get("missed", 0) + 1
                if counterpart["missed"] == 1:
                    counterpart["since"] = to_iso(now)
        else:
            mark |= {"last_error": to_iso(now), "error": error[:500]}
        write_private_file(path, json.dumps(marks, indent=1))


def note_begun(store: Store, agent: str, hook: str) -> None:
    """Record that a hook call began, as it may run long or fail: the host is not silent."""
    folder = store.project_folder.make("hooks")
    path = folder / f"{encode_file_name(agent)}.json"
    with hold_lock(folder / ".lock", 1.0):
        marks = _load(path)
        if marks.get(hook, {}).get("missed"):
            marks[hook]["missed"] = 0
            write_private_file(path, json.dumps(marks, indent=1))


def is_failing(mark: Mapping[str, Any]) -> bool:
    """Return whether the last call of a hook failed."""
    return bool(mark.get("last_error")) and mark["last_error"] > (mark.get("last_ok") or "")


def describe_silence(store: Store, agent: str) -> str | None:
    """Describe calls that an agent's host should make but does not; else None."""
    folder = store.project_folder.path / "hooks"
    return silence_of(store, agent, _load(folder / f"{encode_file_name(agent)}.json"))


def silence_of(store: Store, agent: str, hooks: Mapping[str, Any]) -> str | None:
    """Describe a missing counterpart: turns that are not stored, or runs without a recall.

    Missing runs are reported only if no call of the hook has begun since, and the agent's log
    confirms it, as the mark may be lost.
    """

    def missed(hook: str) -> int:
        return int(hooks.get(hook, {}).get("missed", 0))

    if (number := missed("agent_end")) >= MAX_UNSTORED_TURNS:
        since = hooks["agent_end"].get("since")
        begun = from_iso(since).timestamp() if since else None
        if store.reader().entries(agent=agent, since=begun):
            return None
        return f"{agent}: {number} turns passed and none was stored; `memtier doctor` finds out why"
    if (number := missed("before_prompt_build")) >= MAX_UNRECALLED_RUNS:
        return (
            f"{agent}: {number} runs were stored without a recall; `memtier doctor` finds out why"
        )
    return None


def read_hook_marks(store: Store) -> dict[str, dict[str, Any]]:
    """Return the marks of each agent and hook of a project."""
    folder = store.project_folder.path / "hooks"
    try:
        names = sorted(e.name for e in os.scandir(folder) if e.name.endswith(".json"))
    except OSError:
        return {}
    return {decode_file_name(folder, n.removesuffix(".json")): _load(folder / n) for n in names}


def list_calls(
    hooks: Mapping[str, Mapping[str, Any]], waits: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the mark of each agent's hook, with the latency that the host measured if it did.

    Args:
        hooks: what `read_hook_marks` returned.
        waits: what `read_waits` returned.
    """
    for agent in sorted({*hooks, *waits}):
        marks, waited = hooks.get(agent, {}), waits.get(agent, {})
        for hook in {**marks, **waited}:
            yield agent, hook, {**marks.get(hook, {}), **waited.get(hook, {})}


def _load(path: Path) -> dict[str, Any]:
    try:
        marks = parse_json_text(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return marks if isinstance(marks, dict) else {}
