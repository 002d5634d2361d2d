"""Making a host use MemTier, and taking that back: which files change, and how.

Nothing is changed before a copy of it stands beside it.  What `uninstall_host` finds as
`install_host` left it gets its old bytes back; what was changed since loses only what
`install_host` put in.  The data, and the hosts' own memory files, are never touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.core.errors import SettingsError, Unsupported
from memtier_plugin.core.paths import make_private_folder, write_private_file
from memtier_plugin.hosts import hermes_config

HOSTS: Final = ("openclaw", "hermes")
COPY_SUFFIX: Final = ".before-memtier"  # ends the name of a copy
_INSTALLED_FILE: Final = "hosts/installed.json"

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
    """One file as it is to be; ``text`` None: it is to be gone."""

    path: Path
    text: str | None
    why: str


def launch_command() -> list[str]:
    """Return how this very `memtier` is run, wherever a host starts it from."""
    beside = Path(sys.executable).with_name("memtier")
    if beside.is_file() and os.access(beside, os.X_OK):
        return [str(beside)]
    return [sys.executable, "-m", "memtier_plugin"]


def plan_changes(host: str, home: Path, project: str) -> list[FileChange]:
    """Return what has to change for a host to use MemTier; nothing where it does already.

    Raises:
        Unsupported: there is no such host.
        SettingsError: a file of the host is not as expected; names it and the remedy.
    """
    if host not in HOSTS:
        raise Unsupported(f"there is no host {host!r}; there are {', '.join(HOSTS)}")
    found = _plan_openclaw(home, project) if host == "openclaw" else _plan_hermes(home, project)
    return [change for change in found if _read(change.path) != change.text]


def install_host(host: str, home: Path, project: str) -> list[FileChange]:
    """Make the changes, each file with a copy beside it; return them (raises as `plan_changes`)."""
    made = plan_changes(host, home, project)
    known = _read_installed(home)
    for change in made:
        key = str(change.path)
        before = _read(change.path)
        if key not in known:
            known[key] = {
                "host": host,
                "before": before is not None,
                "folder": _topmost_new_folder(change),
            }
            if before is not None:
                _write(_copy_path(change.path), before, change.path)
        _write(change.path, change.text or "")
        known[key]["after"] = _digest(change.text or "")
    _write_installed(home, known)
    return made


def uninstall_host(host: str, home: Path, *, dry_run: bool = False) -> list[FileChange]:
    """Take back what `install_host` changed; return what was, or would be, changed.

    Raises:
        SettingsError: a file was changed since so that nothing can be taken out of it.
    """
    known = _read_installed(home)
    undone: list[FileChange] = []
    # The last first: the first of a folder is the one that it was made for.
    for key in reversed([key for key, told in known.items() if told["host"] == host]):
        path, told = Path(key), known[key]
        now = _read(path)
        as_left = now is not None and _digest(now) == told["after"]
        if now is None:
            text = None
        elif as_left:
            text = _read(_copy_path(path)) if told["before"] else None
        else:
            text = _without_memtier(path, now)
        undone.append(FileChange(path, text, "as it was" if as_left else "without MemTier"))
    if not dry_run:
        for change in undone:
            if change.text is None:
                _remove_file(change.path, known[str(change.path)].get("folder"))
            else:
                _write(change.path, change.text, change.path)
            _copy_path(change.path).unlink(missing_ok=True)
            known.pop(str(change.path))
        _write_installed(home, known)
    return undone


# -- OpenClaw -----------------------------------------------------------------------------------


def openclaw_config_path() -> Path:
    """Return where OpenClaw's configuration is, or would be."""
    if named := os.environ.get("OPENCLAW_CONFIG_PATH"):
        return Path(named)
    return Path(os.environ.get("OPENCLAW_STATE_DIR") or Path.home() / ".openclaw") / "openclaw.json"


def openclaw_plugin_folder() -> Path:
    """Return the folder of the plugin that OpenClaw loads."""
    package = Path(memtier_plugin.__file__).parent
    nested = package / "hooks" / "openclaw"
    return nested if nested.is_dir() else package.parent / "hooks" / "openclaw"


def _plan_openclaw(home: Path, project: str) -> list[FileChange]:
    path = openclaw_config_path()
    config = _read_json(path)
    plugins = _section(config, "plugins", path)
    if isinstance(plugins.get("allow"), list) and "memtier" not in plugins["allow"]:
        plugins["allow"] = [*plugins["allow"], "memtier"]
    if "memtier" in plugins.get("deny", ()):
        raise SettingsError(f"{path}: plugins.deny names memtier; take it out first")
    load = _section(plugins, "load", path)
    others = [p for p in load.get("paths", ()) if not str(p).endswith("hooks/openclaw")]
    load["paths"] = [*others, str(openclaw_plugin_folder())]
    _section(plugins, "slots", path)["memory"] = "memtier"
    entry = _section(_section(plugins, "entries", path), "memtier", path)
    entry["enabled"] = True
    # Without this OpenClaw drops the hooks, and `agent --local` does not even say so.
    _section(entry, "hooks", path)["allowConversationAccess"] = True
    entry["hooks"].pop("allowPromptInjection", None)
    told = _section(entry, "config", path)
    told |= {"command": launch_command(), "home": str(home), "project": project}
    why = "loads the plugin, selects the memory slot and permits the hooks"
    return [FileChange(path, json.dumps(config, indent=2) + "\n", why)]


def _read_json(path: Path) -> dict[str, Any]:
    text = _read(path)
    try:
        found = json.loads(text) if text and text.strip() else {}
    except ValueError as error:
        raise SettingsError(
            f"{path}: not plain JSON ({error}); take out the comments and trailing commas, "
            "or set plugins.entries.memtier, plugins.slots.memory and plugins.load.paths by hand "
            "as `memtier install openclaw --dry-run` shows for an empty file"
        ) from None
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: expected an object")
    return found


def _section(config: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = config.setdefault(name, {})
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: {name} is {found!r:.40}, expected an object")
    return found


# -- Hermes -------------------------------------------------------------------------------------


def hermes_home() -> Path:
    """Return Hermes' folder."""
    return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")


def _plan_hermes(home: Path, project: str) -> list[FileChange]:
    top = hermes_home()
    plugin = top / "plugins" / "memtier"
    if plugin.is_symlink():
        raise SettingsError(f"{plugin} is a symlink; remove it, then install")
    init = Path(memtier_plugin.__file__).resolve()
    manifest = (
        f"name: memtier\nversion: {memtier_plugin.__version__}\n"
        "description: A memory for agents that learns from how their tools fared.\n"
    )
    config = {"command": launch_command(), "home": str(home), "project": project}
    settings = top / "config.yaml"
    return [
        FileChange(
            plugin / "__init__.py", _HERMES_PLUGIN.format(init=str(init)), "the memory provider"
        ),
        FileChange(plugin / "cli.py", _HERMES_CLI.format(init=str(init)), "`hermes memtier`"),
        FileChange(plugin / "plugin.yaml", manifest, "what it is"),
        FileChange(
            top / "memtier.json", json.dumps(config, indent=1) + "\n", "how it reaches MemTier"
        ),
        FileChange(
            settings,
            hermes_config.set_provider(_read(settings) or "", str(settings), "memtier"),
            "selects the memory provider",
        ),
    ]


# -- files --------------------------------------------------------------------------------------


def _without_memtier(path: Path, text: str) -> str | None:
    """Return a file that was changed since without what `install_host` put in."""
    if path.name != "openclaw.json" and path != openclaw_config_path():
        if path.name != "config.yaml":
            return None
        before = hermes_config.read_provider(_read(_copy_path(path)) or "", str(_copy_path(path)))
        return hermes_config.restore_provider(text, str(path), before)
    config = _read_json(path)
    plugins = config.get("plugins", {})
    before = json.loads(_read(_copy_path(path)) or "{}").get("plugins", {})
    paths = [
        p for p in plugins.get("load", {}).get("paths", ()) if p != str(openclaw_plugin_folder())
    ]
    _set_or_remove(plugins, "load", "paths", paths)
    if plugins.get("slots", {}).get("memory") == "memtier":
        _set_or_remove(plugins, "slots", "memory", before.get("slots", {}).get("memory"))
    _set_or_remove(plugins, "entries", "memtier", before.get("entries", {}).get("memtier"))
    if "memtier" not in before.get("allow", ()) and isinstance(plugins.get("allow"), list):
        plugins["allow"] = [name for name in plugins["allow"] if name != "memtier"]
    if not plugins:
        config.pop("plugins", None)
    return json.dumps(config, indent=2) + "\n"


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


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")  # its line ends are its own
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error


def _write(path: Path, text: str, like: Path | None = None) -> None:
    """Replace a file whole, with the mode of another where that is there, else the user's alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = like.stat().st_mode & 0o777 if like and like.exists() else None
    if mode is None and path.exists():
        mode = path.stat().st_mode & 0o777
    write_private_file(path, text)
    if mode is not None:
        path.chmod(mode)


def _topmost_new_folder(change: FileChange) -> str | None:
    """Return the topmost folder that has to be made for a file."""
    missing = [folder for folder in change.path.parents if not folder.exists()]
    return str(missing[-1]) if missing else None


def _remove_file(path: Path, made: str | None) -> None:
    """Remove a file, and the folders that were made for it once they are empty."""
    path.unlink(missing_ok=True)
    for folder in path.parents if made else ():
        if not folder.is_relative_to(str(made)):
            return
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        with suppress(OSError):  # something else is in it
            folder.rmdir()


def _read_installed(home: Path) -> dict[str, dict[str, Any]]:
    try:
        return dict(json.loads((home / _INSTALLED_FILE).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _write_installed(home: Path, known: Mapping[str, Any]) -> None:
    make_private_folder(home, "hosts")
    write_private_file(home / _INSTALLED_FILE, json.dumps(known, indent=1))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
