"""Keep, per agent, when each hook last succeeded or failed.

A hook leaves one small file per agent behind, so that "loaded, healthy, nothing stored" shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import (
    decode_file_name,
    encode_file_name,
    make_private_folder,
    write_private_file,
)
from memtier_plugin.core.times import to_iso
from memtier_plugin.operations import hook_latency
from memtier_plugin.storage.store import Store

MAX_UNSTORED_TURNS = 3  # turns with a recall and no run stored, after which something is wrong
MAX_UNRECALLED_RUNS = 10  # runs stored without a recall before them; announcements are such
_PAIRED = {"before_prompt_build": "agent_end", "agent_end": "before_prompt_build"}


def note_hook(
    store: Store, agent: str, hook: str, error: str | None, ms: int | None, now: datetime
) -> None:
    """Keep when a hook last went well for an agent and how long, and when and why it failed."""
    folder = make_private_folder(store.home, "projects", store.folder.name, "hooks")
    path = folder / f"{encode_file_name(agent)}.json"
    with hold_lock(folder / ".lock", 1.0):  # hosts of the same agent note at the same time
        seen = _load(path)
        new = {"last_ok": None, "last_error": None, "error": None, "runs": 0}
        mine = seen.setdefault(hook, new)
        mine["runs"] += 1
        mine |= hook_latency.add_timing(mine, ms, now) if ms is not None else {}
        if error is None:
            mine |= {"last_ok": to_iso(now), "missed": 0}
            if hook in _PAIRED:
                other = seen.setdefault(_PAIRED[hook], dict(new))
                other["missed"] = other.get("missed", 0) + 1
        else:
            mine |= {"last_error": to_iso(now), "error": error[:500]}
        write_private_file(path, json.dumps(seen, indent=1))


def describe_silence(store: Store, agent: str) -> str | None:
    """Return what goes wrong without an error for an agent of a host, or None."""
    return silence_of(agent, _load(store.folder / "hooks" / f"{encode_file_name(agent)}.json"))


def silence_of(agent: str, hooks: Mapping[str, Any]) -> str | None:
    def missed(hook: str) -> int:
        return int(hooks.get(hook, {}).get("missed", 0))

    if missed("agent_end") >= MAX_UNSTORED_TURNS:
        number = missed("agent_end")
        return f"{agent}: {number} turns passed and none was stored; `memtier doctor` looks why"
    if missed("before_prompt_build") >= MAX_UNRECALLED_RUNS:
        number = missed("before_prompt_build")
        return f"{agent}: {number} runs were stored without a recall; `memtier doctor` looks why"
    return None


def read_hook_marks(store: Store) -> dict[str, dict[str, Any]]:
    folder = store.folder / "hooks"
    try:
        names = sorted(e.name for e in os.scandir(folder) if e.name.endswith(".json"))
    except OSError:
        return {}
    return {decode_file_name(folder, n.removesuffix(".json")): _load(folder / n) for n in names}


def _load(path: Path) -> dict[str, Any]:
    try:
        seen = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return seen if isinstance(seen, dict) else {}


def count_queued_runs(home: Path) -> tuple[int, int]:
    """Return how many runs wait to be delivered by the hosts, and how many were refused."""
    try:
        names = os.listdir(home / "queue")
    except OSError:
        return 0, 0
    return (
        sum(name.endswith(".json") and not name.startswith(".") for name in names),
        sum(name.endswith(".refused") for name in names),
    )
