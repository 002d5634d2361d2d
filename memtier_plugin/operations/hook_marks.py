"""Record, per agent, when each hook last succeeded or failed.

A hook writes one small file per agent, which reveals a host that is "loaded, healthy, nothing
stored".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import (
    decode_file_name,
    encode_file_name,
    write_private_file,
)
from memtier_plugin.operations import hook_latency
from memtier_plugin.storage.store import Store

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
        mark |= hook_latency.add_timing(mark, ms, now) if ms is not None else {}
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


def _load(path: Path) -> dict[str, Any]:
    try:
        marks = parse_json_text(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return marks if isinstance(marks, dict) else {}
