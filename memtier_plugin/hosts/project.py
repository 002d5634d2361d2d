"""Find the project that the hosts of a home use.  Uses the standard library alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.operations.hook_latency import used_projects

INSTALLED_FILE: Final = "hosts/installed.json"


def read_installed(home: Path) -> dict[str, dict[str, Any]]:
    """Return what was installed into hosts, by the path of the changed file."""
    try:
        installed = parse_json_text((home / INSTALLED_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    records = installed.items() if isinstance(installed, dict) else ()
    return {path: record for path, record in records if isinstance(record, dict)}


def hosts_project(home: Path) -> str | None:
    """Return the project that hosts were installed for, of several the one used last.

    Where nothing was installed, as with a plugin that the host itself loads, it is the project that
    a host used last; None if none ever did.
    """
    installed = [
        project
        for record in read_installed(home).values()
        if isinstance(project := record.get("project"), str)
    ]
    used = used_projects(home)
    among = [project for project in used if project in installed] if installed else used
    return next(iter([*among, *reversed(installed)]), None)
