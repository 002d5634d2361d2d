"""Set up coding agents: MemTier as a server of the Model Context Protocol, and as their hooks.

Claude Code reads servers from `~/.claude.json` and hooks from `~/.claude/settings.json`; with
CLAUDE_CONFIG_DIR both lie in that folder.  What is there beside ours stays as it is.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memtier_plugin.hosts.agent_events import EVENTS, agent_of
from memtier_plugin.hosts.json_files import format_json, open_section, read_json, read_text

SERVER: Final = "memtier"
_SECONDS: Final = {"prompt": 10, "tool": 10}  # that an agent gives a hook; the others 30
_BY_HAND: Final = "or add the server and the hooks by hand, as --dry-run shows for an empty file"


def config_paths() -> tuple[Path, Path]:
    """Return where Claude Code reads its hooks, and its servers; neither need exist."""
    if folder := os.environ.get("CLAUDE_CONFIG_DIR"):
        return Path(folder) / "settings.json", Path(folder) / ".claude.json"
    return Path.home() / ".claude" / "settings.json", Path.home() / ".claude.json"


def plan_files(
    host: str, command: Sequence[str], home: Path, project: str
) -> list[tuple[Path, str, str]]:
    """Return each file to write, its new text, and what that is for.

    Raises:
        SettingsError: a file cannot be edited.
    """
    scope = [*command, "--home", str(home), "--project", project]
    settings_path, servers_path = config_paths()
    servers = read_json(servers_path, _BY_HAND)
    open_section(servers, "mcpServers", servers_path)[SERVER] = {
        "type": "stdio",
        "command": scope[0],
        "args": [*scope[1:], "--agent", agent_of(host), "mcp"],
        "env": {},
    }
    settings = read_json(settings_path, _BY_HAND)
    hooks = open_section(settings, "hooks", settings_path)
    _remove_hooks(hooks, host)
    for event, kind in EVENTS[host].items():
        run = shlex.join([*scope, "hook", host])
        ours = {"type": "command", "command": run, "timeout": _SECONDS.get(kind, 30)}
        matcher = {"matcher": "*"} if kind == "tool" else {}
        hooks[event] = [*hooks.get(event, ()), {**matcher, "hooks": [ours]}]
    return [
        (servers_path, format_json(servers, read_text(servers_path)), "the tools of the memory"),
        (
            settings_path,
            format_json(settings, read_text(settings_path)),
            "recalls before a prompt and records after a turn",
        ),
    ]


def without_memtier(path: Path, before: str | None) -> str:
    """Return a file that was changed since, without what `plan_files` added.

    Args:
        before: what it held at first; a server of our name in there comes back.
    """
    config, former = read_json(path, _BY_HAND), json.loads(before or "{}")
    servers = config.get("mcpServers")
    if isinstance(servers, dict):
        servers.pop(SERVER, None)
        if SERVER in former.get("mcpServers", {}):
            servers[SERVER] = former["mcpServers"][SERVER]
        if not servers and "mcpServers" not in former:
            del config["mcpServers"]
    hooks = config.get("hooks")
    if isinstance(hooks, dict):
        for host in EVENTS:
            _remove_hooks(hooks, host)
        if not hooks and "hooks" not in former:
            del config["hooks"]
    return format_json(config, read_text(path))


def _remove_hooks(hooks: dict[str, Any], host: str) -> None:
    """Remove our own commands, and the groups and events that nothing is left of."""
    for event, groups in list(hooks.items()):
        if not isinstance(groups, list):
            continue
        kept = []
        for group in groups:
            commands = group.get("hooks") if isinstance(group, Mapping) else None
            others = [c for c in commands or () if not _is_ours(c, host)]
            if not commands or others:
                kept.append({**group, "hooks": others} if commands else group)
        if kept:
            hooks[event] = kept
        elif groups:
            del hooks[event]


def _is_ours(command: Any, host: str) -> bool:
    text = command.get("command") if isinstance(command, Mapping) else None
    return isinstance(text, str) and "memtier" in text and text.endswith(f" hook {host}")
