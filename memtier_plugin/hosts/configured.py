"""Find the project that a host is set up for by its own configuration, before its first turn.

A host can load the plugin without `memtier install` (`openclaw plugins install`, a folder among
Hermes' plugins). Then nothing but its configuration tells which project it will use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.paths import resolve_home
from memtier_plugin.hosts import hermes_config, install
from memtier_plugin.hosts.json_comments import parse_json

DEFAULT_PROJECT = "default"  # of every host, unless one is named


def configured_project(home: Path) -> str | None:
    """Return the project of the first host whose plugin of MemTier has this home, or None."""
    for config in _plugin_configs():
        with suppress(SettingsError):
            named = config.get("home")
            if resolve_home(named if isinstance(named, str) else None) == home:
                project = config.get("project")
                return project if isinstance(project, str) and project else DEFAULT_PROJECT
    return None


def _plugin_configs() -> Iterator[Mapping[str, Any]]:
    """Yield the plugin's own configuration in each host that is set up to load it."""
    plugins = section(read_json(install.openclaw_config_path()), "plugins")
    entry = section(plugins, "entries", "memtier")
    if entry.get("enabled") is True:
        yield section(entry, "config")
    with suppress(OSError, UnicodeDecodeError, SettingsError):
        path = install.hermes_home() / "config.yaml"
        if hermes_config.read_provider(path.read_text("utf-8"), str(path)) == "memtier":
            yield section(read_json(path.with_name("memtier.json")))


def read_json(path: Path) -> Any:
    """Return a JSON document, None if it cannot be read."""
    try:
        return parse_json(path.read_text("utf-8") or "{}")
    except (OSError, ValueError):
        return None


def section(config: Any, *names: str) -> Mapping[str, Any]:
    """Return a nested section, empty if it is missing or not a mapping."""
    for name in names:
        config = config.get(name) if isinstance(config, Mapping) else None
    return config if isinstance(config, Mapping) else {}
