"""Notice from outside that a host no longer calls MemTier: its own session files go on without.

A host whose hooks were dropped, by an update or for want of trust, cannot say so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from memtier_plugin.hosts.project import INSTALLED_FILE, read_installed
from memtier_plugin.operations.health.finding import HealthFinding
from memtier_plugin.operations.hook_latency import last_calls

SILENCE: Final = timedelta(days=1)  # longer than any turn: a host calls when one begins
_MOST_FILES: Final = 2_000  # of a host that are looked at; those of the newest folders first
# Below a host's folder, where it keeps its sessions: their folders, and the files in each.
_SESSIONS: Final = {
    "claude-code": ("projects/*", "*.jsonl"),
    "codex": ("sessions/*/*/*", "*.jsonl"),
    "gemini": ("tmp/*/chats", "*.json*"),
    "hermes": ("", "state.db"),
    "openclaw": ("agents/*/agent", "openclaw-agent.sqlite"),
}
# When a database last had a turn: the host, or who only reads it, touches its files without one.
_LAST_TURN: Final = {
    "hermes": "SELECT max(timestamp) FROM messages",
    "openclaw": "SELECT max(last_interaction_at) / 1000.0 FROM session_nodes",
}


def describe_silent_hosts(home: Path, now: datetime) -> list[str]:
    """Describe each silent host in one line."""
    return [
        f"{finding.what}; `memtier doctor` looks why, `{finding.remedy}` sets it up again"
        for finding in find_silent_hosts(home, now)
    ]


def find_silent_hosts(home: Path, now: datetime) -> Iterator[HealthFinding]:
    """Yield each host that has MemTier, and had sessions a day after it last called."""
    calls = last_calls(home)
    installed = {record.get("host") for record in read_installed(home).values()}
    for host in _SESSIONS:
        called = calls.get(host)
        since = called or (_installed_at(home) if host in installed else None)
        if since is None or now - since < SILENCE:
            continue
        from memtier_plugin.hosts.presence import find_places  # what only a silent host needs

        top, configs = find_places(host)
        if host not in installed and not any(map(_names_memtier, configs)):
            continue  # it was taken out
        used = last_use(host)
        if used and used > since + SILENCE:
            silent = f"last called MemTier on {called:%Y-%m-%d}" if called else "never called it"
            message = (
                f"{host} {silent} and was used on {used:%Y-%m-%d}: nothing of it is remembered"
            )
            yield HealthFinding("error", message, str(top), f"memtier install {host}")


def _installed_at(home: Path) -> datetime | None:
    with suppress(OSError):
        return _time_of(home / INSTALLED_FILE)
    return None


def _names_memtier(path: Path) -> bool:
    with suppress(OSError):
        return b"memtier" in path.read_bytes()
    return False


def last_use(host: str) -> datetime | None:
    """Return when a session of a host was last written to, as far as its own files tell."""
    from memtier_plugin.hosts.presence import find_places

    folders, files = _SESSIONS[host]
    top, _ = find_places(host)
    return max(islice(_times(host, top, folders, files), _MOST_FILES), default=None)


def _times(host: str, top: Path, folders: str, files: str) -> Iterator[datetime]:
    dated = []
    for folder in top.glob(folders) if folders else [top]:
        with suppress(OSError):
            dated.append((_time_of(folder), folder))
    for _, folder in sorted(dated, reverse=True):
        for path in folder.glob(files):
            with suppress(OSError, ValueError, TypeError, OverflowError, sqlite3.Error):
                yield _read_time(path, _LAST_TURN[host]) if host in _LAST_TURN else _time_of(path)


def _read_time(path: Path, query: str) -> datetime:
    """Ask a database of somebody else's, and leave no file beside it unless it is in use."""
    used = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{used}", uri=True)) as database:
        [seconds] = database.execute(query).fetchone()
    return datetime.fromtimestamp(seconds, UTC)


def _time_of(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
