"""Install MemTier into hosts, and uninstall it.

Every file is copied before it is changed.  `uninstall_host` restores the original bytes of files
unchanged since; from others it removes only what `install_host` added.  The data, and the hosts'
own memory files, are never touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.core.errors import SettingsError, Unsupported
from memtier_plugin.core.files import remove_private_file, write_private_file
from memtier_plugin.core.paths import make_private_folder
from memtier_plugin.hosts import coding_agents, yaml_settings
from memtier_plugin.hosts.coding_agents import require_mcp, require_writable
from memtier_plugin.hosts.config_files import (
    format_json,
    load_json,
    open_section,
    parse_json,
    read_json,
    read_text,
    section,
)
from memtier_plugin.hosts.project import (
    CODING_AGENTS,
    EVENTS,
    INSTALLED_FILE,
    launch_command,
    read_installed,
)

HOSTS: Final = ("openclaw", "hermes")
COPY_SUFFIX: Final = ".before-memtier"  # suffix of a copy

_BY_HAND: Final = (
    "or set plugins.entries.memtier, plugins.slots.memory and plugins.load.paths by hand "
    "as `memtier install openclaw --dry-run` shows for an empty file"
)
_HERMES_IMPORT: Final = '''\
"""MemTier in Hermes Agent: the code stands where it was installed."""

import importlib.util
import sys

if "memtier_plugin" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("memtier_plugin", {init!r})
    sys.modules["memtier_plugin"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["memtier_plugin"])

'''
_HERMES_PLUGIN: Final = f"""{_HERMES_IMPORT}\
from memtier_plugin import register  # calls register_memory_provider

__all__ = ["register"]
"""
_HERMES_CLI: Final = f"""{_HERMES_IMPORT}\
from memtier_plugin.hooks.hermes_commands import memtier_command, register_cli

__all__ = ["memtier_command", "register_cli"]
"""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A planned change of one file; ``text`` None removes it."""

    path: Path
    text: str | None
    why: str

    @property
    def before(self) -> str | None:
        """The file's present text, None if it is not there."""
        return read_text(self.path)


def plan_changes(
    host: str,
    home: Path,
    project: str,
    *,
    use_host_model: bool | None = None,
    call_reminders: bool | None = None,
) -> list[FileChange]:
    """Return the changes that connect a host to MemTier; empty if it is connected.

    Args:
        use_host_model: whether MemTier may use the host's model; None keeps the project's setting.
        call_reminders: whether the host asks before each tool call for a rule that it may break;
            None keeps the host's setting.

    Raises:
        Unsupported: the host is unknown, or a requirement is not installed.
        SettingsError: a host's file cannot be edited; the message names it and the remedy.
    """
    known = (*HOSTS, *CODING_AGENTS)
    if host not in known:
        raise Unsupported(f"there is no host {host!r}; there are {', '.join(known)}")
    asks = host == "openclaw" or "call" in EVENTS.get(host, {}).values()
    if call_reminders is not None and not asks:
        raise Unsupported(f"{host} has no hook before a tool call that MemTier knows")
    if host in CODING_AGENTS:
        if use_host_model:
            raise Unsupported(f"{host} does not offer its model")
        require_mcp()
        files = coding_agents.plan_files(
            host, launch_command(), home, project, reminds=call_reminders
        )
        changes = [FileChange(path, text, why) for path, text, why in files]
        return [change for change in changes if change.before != change.text]
    plan = _plan_hermes if host != "openclaw" else partial(_plan_openclaw, reminds=call_reminders)
    selected = yaml_settings.is_consented(home, project)
    if use_host_model is None:
        planned = plan(home, project, selected)
    else:
        planned = plan(home, project, use_host_model)
        path = yaml_settings.settings_path(home, project)
        text = yaml_settings.select_model(
            read_text(path) or "", str(path), use=use_host_model, selected=selected
        )
        if text or read_text(path) is not None:
            planned.append(FileChange(path, text, "whether facts are found by the host's model"))
    return [change for change in planned if read_text(change.path) != change.text]


def install_host(host: str, home: Path, project: str, **options: bool | None) -> list[FileChange]:
    """Connect a host to MemTier; return the changes made. Changed files are copied first.

    Args:
        options: those of `plan_changes`.

    Raises:
        Unsupported: the host is unknown, or a requirement is not installed; nothing was changed.
        SettingsError: a host's file cannot be edited; nothing was changed.
    """
    changes = plan_changes(host, home, project, **options)
    require_writable(_target(change.path) for change in changes)
    installed = read_installed(home)
    for change in changes:
        key = str(change.path)
        before = read_text(change.path)
        if key not in installed:
            installed[key] = {
                "host": host,
                "before": before is not None,
                "folder": _topmost_new_folder(change),
            }
            if before is not None:
                _write(_copy_path(change.path), before, change.path)
        installed[key]["after"] = _digest(change.text or "")
    for record in installed.values():
        if record["host"] == host:
            record["project"] = project
    _write_installed(home, installed)  # first, so that an interrupted installation can be undone
    for change in changes:
        _write(change.path, change.text or "")
    return changes


def uninstall_host(host: str, home: Path, *, dry_run: bool = False) -> list[FileChange]:
    """Undo the changes of `install_host`; return the changes made, or planned.

    Raises:
        SettingsError: a file was since changed in a way that cannot be undone.
    """
    installed = read_installed(home)
    undone: list[FileChange] = []
    # In reverse: a folder is recorded with the first file created in it.
    for key in reversed([key for key, record in installed.items() if record["host"] == host]):
        path, record = Path(key), installed[key]
        now = read_text(path)
        as_left = now is not None and _digest(now) == record["after"]
        if now is None:
            text = None
        elif as_left:
            text = read_text(_copy_path(path)) if record["before"] else None
        else:
            text = _without_memtier(path, now)
        undone.append(FileChange(path, text, "as it was" if as_left else "without MemTier"))
    if not dry_run:
        for change in undone:
            if change.text is None:
                _remove_file(change.path, installed[str(change.path)].get("folder"))
            else:
                _write(change.path, change.text, change.path)
            remove_private_file(_copy_path(change.path))
            installed.pop(str(change.path))
        _write_installed(home, installed)
    return undone


# -- OpenClaw -----------------------------------------------------------------------------------


def openclaw_config_path() -> Path:
    """Return the path of OpenClaw's configuration, which need not exist."""
    if named := os.environ.get("OPENCLAW_CONFIG_PATH"):
        return Path(named)
    return Path(os.environ.get("OPENCLAW_STATE_DIR") or Path.home() / ".openclaw") / "openclaw.json"


def openclaw_state() -> Path:
    """Return the folder of OpenClaw's plugins and sessions."""
    return Path(os.environ.get("OPENCLAW_STATE_DIR") or openclaw_config_path().parent)


def openclaw_copy() -> Path:
    """Return OpenClaw's own copy of the plugin, if any."""
    return openclaw_state() / "extensions" / "memtier"


def openclaw_plugin_folder() -> Path:
    """Return the folder of the plugin for OpenClaw."""
    package = Path(memtier_plugin.__file__).parent
    nested = package / "hooks" / "openclaw"
    return nested if nested.is_dir() else package.parent / "hooks" / "openclaw"


def read_plugin_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest in a plugin's folder, or {}."""
    return {**section(load_json(folder / "openclaw.plugin.json"))}


def expand_user(path: object) -> Path:
    """Expand ``~`` in a path of a host's configuration; leave an unknown user's as it is."""
    return Path(os.path.expanduser(str(path)))  # that of `Path` raises there


def leads_to_plugin(path: object) -> bool:
    """Return whether a path in OpenClaw's configuration is, or was, our plugin."""
    folder = expand_user(path)
    named = folder.parts[-2:] == ("hooks", "openclaw")
    return named or read_plugin_manifest(folder).get("id") == "memtier"


def _plan_openclaw(
    home: Path, project: str, consented: bool, reminds: bool | None = None
) -> list[FileChange]:
    path = openclaw_config_path()
    config = read_json(path, _BY_HAND)
    plugins = open_section(config, "plugins", path)
    if isinstance(plugins.get("allow"), list) and "memtier" not in plugins["allow"]:
        plugins["allow"] = [*plugins["allow"], "memtier"]
    if "memtier" in plugins.get("deny", ()):
        raise SettingsError(f"{path}: plugins.deny names memtier; remove it first")
    load = open_section(plugins, "load", path)
    shipped = openclaw_plugin_folder()
    load["paths"] = [p for p in load.get("paths", ()) if not leads_to_plugin(p)]
    # A second copy would stand beside one that `openclaw plugins install` made.
    if read_plugin_manifest(openclaw_copy()) != read_plugin_manifest(shipped):
        load["paths"].append(str(shipped))
    open_section(plugins, "slots", path)["memory"] = "memtier"
    entry = open_section(open_section(plugins, "entries", path), "memtier", path)
    entry["enabled"] = True
    # Without this OpenClaw ignores the hooks, and `agent --local` does not report it.
    open_section(entry, "hooks", path)["allowConversationAccess"] = True
    entry["hooks"].pop("allowPromptInjection", None)
    plugin_config = open_section(entry, "config", path)
    plugin_config |= {"command": launch_command(), "home": str(home), "project": project}
    if reminds is not None:
        plugin_config["callReminders"] = reminds
    models = yaml_settings.openclaw_models(config, str(path)) if consented else None
    yaml_settings.permit_openclaw(entry, models)
    why = "loads the plugin, selects the memory slot and permits the hooks"
    return [FileChange(path, format_json(config, read_text(path)), why)]


# -- Hermes -------------------------------------------------------------------------------------


def hermes_home() -> Path:
    """Return Hermes' folder."""
    return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")


def _plan_hermes(home: Path, project: str, consented: bool) -> list[FileChange]:
    top = hermes_home()
    plugin = top / "plugins" / "memtier"
    if plugin.is_symlink():
        raise SettingsError(f"{plugin} is a symlink; remove it, then install")
    init = Path(memtier_plugin.__file__).resolve()
    manifest = (
        f"name: memtier\nversion: {memtier_plugin.__version__}\n"
        "description: A memory for agents that learns from how their tools fared.\n"
    )
    config: dict[str, Any] = {
        "command": launch_command(),
        "home": str(home),
        "project": project,
    }
    if consented:
        config["host_model"] = True
    settings = top / "config.yaml"
    return [
        FileChange(
            plugin / "__init__.py", _HERMES_PLUGIN.format(init=str(init)), "the memory provider"
        ),
        FileChange(plugin / "cli.py", _HERMES_CLI.format(init=str(init)), "`hermes memtier`"),
        FileChange(plugin / "plugin.yaml", manifest, "what it is"),
        FileChange(
            top / "memtier.json", json.dumps(config, indent=1) + "\n", "how to reach MemTier"
        ),
        FileChange(
            settings,
            yaml_settings.set_value(
                read_text(settings) or "", str(settings), *yaml_settings.PROVIDER, "memtier"
            ),
            "selects the memory provider",
        ),
    ]


# -- files --------------------------------------------------------------------------------------


def _without_memtier(path: Path, text: str) -> str | None:
    """Return a since-modified file's text without what `install_host` added."""
    if coding_agents.is_config(path):
        return coding_agents.without_memtier(path, read_text(_copy_path(path)))
    if path.name == "project.yaml":
        return yaml_settings.restore_model(text, str(path), read_text(_copy_path(path)) or "")
    if path.name != "openclaw.json" and path != openclaw_config_path():
        if path.name != "config.yaml":
            return None
        if yaml_settings.read_value(text, str(path), *yaml_settings.PROVIDER) != "memtier":
            return text
        former = read_text(_copy_path(path)) or ""
        return yaml_settings.restore_value(text, str(path), *yaml_settings.PROVIDER, former)
    config = read_json(path, _BY_HAND)
    plugins = config.get("plugins", {})
    before = parse_json(read_text(_copy_path(path)) or "{}").get("plugins", {})
    paths, former = (p.get("load", {}).get("paths", ()) for p in (plugins, before))
    foreign_paths = [p for p in paths if not leads_to_plugin(p)]
    _set_or_remove(plugins, "load", "paths", [*filter(leads_to_plugin, former), *foreign_paths])
    if plugins.get("slots", {}).get("memory") == "memtier":
        _set_or_remove(plugins, "slots", "memory", before.get("slots", {}).get("memory"))
    _set_or_remove(plugins, "entries", "memtier", before.get("entries", {}).get("memtier"))
    if "memtier" not in before.get("allow", ()) and isinstance(plugins.get("allow"), list):
        plugins["allow"] = [name for name in plugins["allow"] if name != "memtier"]
    if not plugins:
        config.pop("plugins", None)
    return format_json(config, text)


def _set_or_remove(config: dict[str, Any], section: str, name: str, value: Any) -> None:
    inner = config.get(section, {})
    if value:
        inner[name] = value
    else:
        inner.pop(name, None)
    if not inner:
        config.pop(section, None)


def _copy_path(path: Path) -> Path:
    return path.with_name(path.name + COPY_SUFFIX)


def _target(path: Path) -> Path:
    """Return the file to write, following symlinks to version-controlled configurations."""
    return Path(os.path.realpath(path))


def _write(path: Path, text: str, like: Path | None = None) -> None:
    """Replace a file, with another's mode if that exists, else private to the user."""
    path = _target(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = like.stat().st_mode & 0o777 if like and like.exists() else None
    if mode is None and path.exists():
        mode = path.stat().st_mode & 0o777
    write_private_file(path, text)
    if mode is not None:
        path.chmod(mode)


def _topmost_new_folder(change: FileChange) -> str | None:
    """Return the topmost folder to create for a file."""
    missing = [folder for folder in change.path.parents if not folder.exists()]
    return str(missing[-1]) if missing else None


def _remove_file(path: Path, new_folder: str | None) -> None:
    """Remove a file, and the folders created for it if empty."""
    remove_private_file(_target(path))
    for folder in path.parents if new_folder else ():
        if not folder.is_relative_to(str(new_folder)):
            return
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        with suppress(OSError):  # not empty
            folder.rmdir()


def _write_installed(home: Path, installed: Mapping[str, Any]) -> None:
    make_private_folder(home, "hosts")
    write_private_file(home / INSTALLED_FILE, json.dumps(installed, indent=1))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
