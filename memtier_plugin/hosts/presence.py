"""Find this machine's hosts, their projects, and hosts that went silent."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.paths import resolve_home
from memtier_plugin.hosts import install, yaml_settings
from memtier_plugin.hosts.coding_agents import find_files
from memtier_plugin.hosts.config_files import load_json, section
from memtier_plugin.hosts.install import HOSTS, hermes_home, openclaw_config_path, openclaw_state
from memtier_plugin.hosts.project import (
    CODING_AGENTS,
    DEFAULT_PROJECT,
    INSTALLED_FILE,
    read_installed,
)
from memtier_plugin.operations.background import HealthFinding
from memtier_plugin.operations.hook_calls import last_calls

# -- Find the project in a host's configuration, before its first turn
#
# A host can load the plugin without `memtier install` (`openclaw plugins install`, a folder among
# Hermes' plugins). Then only its configuration names the project.


def configured_project(home: Path) -> str | None:
    """Return the project of the first host whose MemTier plugin uses this home, or None."""
    for config in _plugin_configs():
        with suppress(SettingsError):
            named = config.get("home")
            if resolve_home(named if isinstance(named, str) else None) == home:
                project = config.get("project")
                return project if isinstance(project, str) and project else DEFAULT_PROJECT
    return None


def _plugin_configs() -> Iterator[Mapping[str, Any]]:
    """Yield the plugin's configuration in each host set up to load it."""
    plugins = section(load_json(install.openclaw_config_path()), "plugins")
    entry = section(plugins, "entries", "memtier")
    if entry.get("enabled") is True:
        yield section(entry, "config")
    if hermes_selects_memtier():
        yield section(load_json(install.hermes_home() / "memtier.json"))


def hermes_selects_memtier() -> bool:
    """Return whether Hermes' configuration can be read and names MemTier as its memory."""
    path = install.hermes_home() / "config.yaml"
    with suppress(OSError, UnicodeDecodeError, SettingsError):
        text = path.read_text("utf-8")
        return bool(yaml_settings.read_value(text, str(path), *yaml_settings.PROVIDER) == "memtier")
    return False


# -- Find this machine's hosts and which of them have MemTier, without starting any

_PROGRAMS: Final = {"claude-code": "claude", "vscode": "code"}  # the other hosts by their names


class HostPresence(NamedTuple):
    """A host on this machine: the evidence for it, and its project if set up."""

    host: str
    seen: str
    project: str | None


def find_hosts(home: Path) -> Iterator[HostPresence]:
    """Yield each host whose command or folder exists."""
    records = read_installed(home).values()
    projects = {record.get("host"): record.get("project") or DEFAULT_PROJECT for record in records}
    for host in (*HOSTS, *CODING_AGENTS):
        seen = shutil.which(_PROGRAMS.get(host, host)) or _find_folder(host)
        if seen or host in projects:
            yield HostPresence(host, seen or "no longer here", projects.get(host))


def find_connected(home: Path) -> dict[str, datetime | None]:
    """Return when each host that has MemTier last called it, or None if it never did."""
    installed = {record.get("host") for record in read_installed(home).values()}
    calls = last_calls(home)
    return {
        host: calls.get(host)
        for host in (*HOSTS, *CODING_AGENTS)
        if host in installed or (host in calls and _configures_memtier(host))
    }


def find_places(host: str) -> tuple[Path, list[Path]]:
    """Return a host's folder, and its files that name MemTier once set up."""
    if host == "hermes":
        return hermes_home(), [hermes_home() / "config.yaml"]
    if host == "openclaw":
        return openclaw_state(), [openclaw_config_path()]
    files = find_files(host)
    return (files.hooks or files.servers).parent, [p for p in (files.hooks, files.servers) if p]


def _find_folder(host: str) -> str | None:
    folder, files = find_places(host)
    return next((str(path) for path in (*files, folder) if path.exists()), None)


# -- Notice that a host no longer calls MemTier while its session files keep changing
#
# A host whose hooks were dropped, by an update or for want of trust, cannot say so.

SILENCE: Final = timedelta(days=1)  # longer than any turn, as hosts call at its start
_MOST_FILES: Final = 2_000  # files checked per host, newest folders first
# Patterns below a host's folder: session folders, and the files in each.
_SESSIONS: Final = {
    "claude-code": ("projects/*", "*.jsonl"),
    "codex": ("sessions/*/*/*", "*.jsonl"),
    "gemini": ("tmp/*/chats", "*.json*"),
    "hermes": ("", "state.db"),
    "openclaw": ("agents/*/agent", "openclaw-agent.sqlite"),
}
# Queries for a database's last turn, as its files change even without one.
_LAST_TURN: Final = {
    "hermes": "SELECT max(timestamp) FROM messages",
    "openclaw": "SELECT max(last_interaction_at) / 1000.0 FROM session_nodes",
}


def describe_silent_hosts(home: Path, now: datetime) -> list[str]:
    """Describe each silent host in one line."""
    return [
        f"{finding.what}; `memtier doctor` finds the cause, `{finding.remedy}` sets it up again"
        for finding in find_silent_hosts(home, now)
    ]


def find_silent_hosts(home: Path, now: datetime) -> Iterator[HealthFinding]:
    """Yield each host with MemTier that had sessions a day after its last call."""
    if not (home / "hosts").is_dir():
        return  # none was set up, or called MemTier
    calls = last_calls(home)
    installed = {record.get("host") for record in read_installed(home).values()}
    for host in _SESSIONS:
        called = calls.get(host)
        since = called or (_installed_at(home) if host in installed else None)
        if since is None or now - since < SILENCE:
            continue

        top, _ = find_places(host)
        if host not in installed and not _configures_memtier(host):
            continue  # it was uninstalled
        used = last_use(host)
        if used and used > since + SILENCE:
            silent = f"last called MemTier on {called:%Y-%m-%d}" if called else "never called it"
            message = f"{host} {silent} and was used on {used:%Y-%m-%d}: none of that is remembered"
            yield HealthFinding("error", message, str(top), f"memtier install {host}")


def _installed_at(home: Path) -> datetime | None:
    with suppress(OSError):
        return _time_of(home / INSTALLED_FILE)
    return None


def _configures_memtier(host: str) -> bool:
    """Return whether a host's configuration names MemTier."""
    for path in find_places(host)[1]:
        with suppress(OSError):
            if b"memtier" in path.read_bytes():
                return True
    return False


def last_use(host: str) -> datetime | None:
    """Return the last change of a host's session files, if known."""
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
    """Query a foreign database without leaving files beside it, unless it is in use."""
    used = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{used}", uri=True)) as database:
        [seconds] = database.execute(query).fetchone()
    return datetime.fromtimestamp(seconds, UTC)


def _time_of(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
