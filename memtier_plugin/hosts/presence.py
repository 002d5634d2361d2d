"""Find the hosts on this machine, and which of them have MemTier.  Starts none of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from memtier_plugin.hosts.agent_events import CODING_AGENTS
from memtier_plugin.hosts.coding_agents import find_files
from memtier_plugin.hosts.configured import DEFAULT_PROJECT
from memtier_plugin.hosts.install import HOSTS, hermes_home, openclaw_config_path, openclaw_state
from memtier_plugin.hosts.project import read_installed

_PROGRAMS: Final = {"claude-code": "claude", "vscode": "code"}  # the others by their own names


class HostPresence(NamedTuple):
    """A host of this machine: what shows that it is here, and the project it was set up for."""

    host: str
    seen: str
    project: str | None


def find_hosts(home: Path) -> Iterator[HostPresence]:
    """Yield each host whose command or whose folder is there."""
    records = read_installed(home).values()
    projects = {record.get("host"): record.get("project") or DEFAULT_PROJECT for record in records}
    for host in (*HOSTS, *CODING_AGENTS):
        seen = shutil.which(_PROGRAMS.get(host, host)) or _find_folder(host)
        if seen or host in projects:
            yield HostPresence(host, seen or "not here any more", projects.get(host))


def find_places(host: str) -> tuple[Path, list[Path]]:
    """Return a host's folder, and its files that name MemTier once it is set up."""
    if host == "hermes":
        return hermes_home(), [hermes_home() / "config.yaml"]
    if host == "openclaw":
        return openclaw_state(), [openclaw_config_path()]
    files = find_files(host)
    return (files.hooks or files.servers).parent, [p for p in (files.hooks, files.servers) if p]


def _find_folder(host: str) -> str | None:
    folder, files = find_places(host)
    return next((str(path) for path in (*files, folder) if path.exists()), None)
