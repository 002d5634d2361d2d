"""Set up coding agents: requirements, MemTier as their tool server, and hooks."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import SettingsError, Unsupported
from memtier_plugin.core.installation import install_command
from memtier_plugin.hosts import yaml_settings
from memtier_plugin.hosts.config_files import (
    format_json,
    open_section,
    parse_json,
    read_json,
    read_text,
)
from memtier_plugin.hosts.project import CODING_AGENTS, EVENTS, MATCHERS, agent_of

# -- Check the requirements of a setup before writing anything


def require_mcp() -> None:
    """Check that the MCP SDK is installed, which coding agents' access needs.

    Raises:
        Unsupported: it is not installed.
    """
    if find_spec("mcp") is None or find_spec("mcp_types") is None:  # mcp_types: since SDK 2
        raise Unsupported(
            "`memtier mcp` needs the MCP SDK 2, which is missing: "
            f"run `{install_command('memtier[mcp]')}`"
        )


def require_writable(paths: Iterable[Path]) -> None:
    """Check that each of these files can be written.

    Raises:
        SettingsError: names the folder.
    """
    for path in paths:
        folder = path
        while not os.path.lexists(folder := folder.parent):
            pass
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise SettingsError(f"{path} cannot be written; see {folder}: {error}") from None


# -- Set up coding agents: MemTier as their tool server and, where supported, hooks
#
# Each agent has its own user-level files and format.  Other entries in them are left unchanged.

SERVER: Final = "memtier"
_KEYS: Final = ("mcpServers", "servers", "mcp", "context_servers")  # sections of JSON files
_SECONDS: Final = {"prompt": 10, "call": 10, "tool": 10}  # timeout of a hook; the others get 30
_BY_HAND: Final = "or add the server and the hooks by hand, as --dry-run shows for an empty file"
# Codex' table of our server, and tables inside it.
_TOML_TABLE: Final = re.compile(
    rf"(?:^|(?<=\n))\[mcp_servers\.{SERVER}(?:\.[^\]\n]*)?\][^\n]*(?:\n(?!\[)[^\n]*)*"
)


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """Where an agent keeps its servers and hooks; the files need not exist.

    Attributes:
        key: the section of the servers.
        fixed: the fields of a server's entry beside its command.
        command: the key of the command in an entry; without ``args`` it holds the whole command.
        second: the agent's unit of a second.
    """

    servers: Path
    hooks: Path | None = None
    key: str = "mcpServers"
    fixed: tuple[tuple[str, Any], ...] = ()
    command: str = "command"
    args: str = "args"
    second: int = 1

    def entry(self, server: Sequence[str]) -> dict[str, Any]:
        """Return the entry of a server."""
        command = {self.command: server[0], self.args: [*server[1:]]}
        return {**dict(self.fixed), **(command if self.args else {self.command: [*server]})}


_TYPED: Final = (("type", "stdio"),)
_GOOSE: Final = (*_TYPED, ("name", SERVER), ("enabled", True), ("timeout", 300))
_OPENCODE: Final = (("type", "local"), ("enabled", True))


def find_files(host: str) -> AgentFiles:
    """Return the files of a coding agent."""
    home = Path.home()
    configs = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    mac = sys.platform == "darwin"
    programs = home / "Library/Application Support" if mac else configs
    if host == "claude-code":
        folder = os.environ.get("CLAUDE_CONFIG_DIR")
        top = Path(folder or home)
        settings = top / ("settings.json" if folder else ".claude/settings.json")
        return AgentFiles(top / ".claude.json", settings, fixed=_TYPED)
    if host == "codex":
        top = Path(os.environ.get("CODEX_HOME") or home / ".codex")
        return AgentFiles(top / "config.toml", top / "hooks.json")
    if host == "gemini":
        settings = home / ".gemini/settings.json"
        return AgentFiles(settings, settings, second=1000)
    return {  # has no hook that could add to a prompt
        "cursor": AgentFiles(home / ".cursor/mcp.json"),
        "goose": AgentFiles(
            configs / "goose/config.yaml", key="extensions", fixed=_GOOSE, command="cmd"
        ),
        "opencode": AgentFiles(
            configs / "opencode/opencode.json", key="mcp", fixed=_OPENCODE, args=""
        ),
        "vscode": AgentFiles(programs / "Code/User/mcp.json", key="servers", fixed=_TYPED),
        "windsurf": AgentFiles(home / ".codeium/windsurf/mcp_config.json"),
        "zed": AgentFiles(
            (home / ".config" if mac else configs) / "zed/settings.json", key="context_servers"
        ),
    }[host]


def is_config(path: Path) -> bool:
    """Return whether `plan_files` writes a file."""
    return any(path in (f.servers, f.hooks) for f in map(find_files, CODING_AGENTS))


def plan_files(
    host: str, command: Sequence[str], home: Path, project: str, *, reminds: bool | None = None
) -> list[tuple[Path, str, str]]:
    """Return each file to write, its new text, and the purpose.

    Args:
        reminds: whether a hook before each tool call reminds of rules; None keeps what is there.

    Raises:
        SettingsError: a file cannot be edited.
    """
    files = find_files(host)
    scope = [*command, "--home", str(home), "--project", project]
    server = [*scope, "--agent", agent_of(host), "mcp"]
    planned: dict[Path, tuple[str, str]] = {}
    if files.servers.suffix == ".toml":
        text = _add_table(files.servers, server)
    elif files.servers.suffix == ".yaml":
        before, where = read_text(files.servers) or "", str(files.servers)
        text = yaml_settings.set_value(before, where, files.key, SERVER, files.entry(server))
    else:
        config = read_json(files.servers, _BY_HAND)
        open_section(config, files.key, files.servers)[SERVER] = files.entry(server)
        if files.hooks == files.servers:
            _add_hooks(config, files, host, scope, reminds)
        text = format_json(config, read_text(files.servers))
    planned[files.servers] = text, "the tools of the memory"
    if files.hooks is not None and files.hooks != files.servers:
        config = read_json(files.hooks, _BY_HAND)
        _add_hooks(config, files, host, scope, reminds)
        text = format_json(config, read_text(files.hooks))
        planned[files.hooks] = text, "recalls before a prompt and records after a turn"
    return [(path, text, why) for path, (text, why) in planned.items()]


def without_memtier(path: Path, before: str | None) -> str:
    """Return a since-modified file's text without what `plan_files` added.

    Args:
        before: the original text; a server of our name in it is restored.
    """
    if path.suffix == ".toml":
        former_table = _TOML_TABLE.search(before or "")
        text = _TOML_TABLE.sub("", read_text(path) or "").rstrip("\n") + "\n"
        return f"{text}\n{former_table[0]}" if former_table else text
    if path.suffix == ".yaml":
        key = find_files("goose").key
        return yaml_settings.restore_value(
            read_text(path) or "", str(path), key, SERVER, before or ""
        )
    config, former = read_json(path, _BY_HAND), parse_json(before or "{}")
    for key in _KEYS:
        servers = config.get(key)
        if isinstance(servers, dict):
            servers.pop(SERVER, None)
            if SERVER in former.get(key, {}):
                servers[SERVER] = former[key][SERVER]
            if not servers and key not in former:
                del config[key]
    hooks = config.get("hooks")
    if isinstance(hooks, dict):
        for host in EVENTS:
            _remove_hooks(hooks, host)
        if not hooks and "hooks" not in former:
            del config["hooks"]
    return format_json(config, read_text(path))


def read_server(host: str) -> list[str]:
    """Return the command in an agent's file that starts our server.

    Raises:
        OSError, ValueError, KeyError: the file has none.
    """
    files = find_files(host)
    text = files.servers.read_text("utf-8")
    if files.servers.suffix == ".toml":
        server = tomllib.loads(text)["mcp_servers"][SERVER]
    elif files.servers.suffix == ".yaml":
        server = yaml_settings.read_value(text, str(files.servers), files.key, SERVER) or {}
    else:
        server = parse_json(text)[files.key][SERVER]
    command = server[files.command]
    return [command, *server[files.args]] if files.args else [*command]


def read_hooks(host: str) -> dict[str, list[str]]:
    """Return our hook commands in an agent's file, by event; empty without hooks.

    Raises:
        OSError, ValueError, KeyError: the file has none.
    """
    path = find_files(host).hooks
    if path is None:
        return {}
    hooks = {
        event: [
            command["command"]
            for group in groups
            for command in group["hooks"]
            if is_ours(command, host)
        ]
        for event, groups in parse_json(path.read_text("utf-8"))["hooks"].items()
        if event in EVENTS[host]
    }
    return {event: ours for event, ours in hooks.items() if ours}


def _add_table(path: Path, server: Sequence[str]) -> str:
    """Return Codex' configuration with our server's table appended.

    Raises:
        SettingsError: it is not TOML, or lists its servers in another form.
    """
    text = _TOML_TABLE.sub("", read_text(path) or "").rstrip("\n")
    strings = [json.dumps(argument, ensure_ascii=False) for argument in server]
    table = f"[mcp_servers.{SERVER}]\ncommand = {strings[0]}\nargs = [{', '.join(strings[1:])}]\n"
    text = f"{text}\n\n{table}" if text else table
    try:
        parsed = tomllib.loads(text)["mcp_servers"][SERVER]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise SettingsError(f"{path}: a table cannot be added ({error}); {_BY_HAND}") from None
    if [parsed["command"], *parsed["args"]] != [*server]:
        raise SettingsError(f"{path}: a table cannot be added; {_BY_HAND}")
    return text


def _add_hooks(
    config: dict[str, Any],
    files: AgentFiles,
    host: str,
    scope: Sequence[str],
    reminds: bool | None,
) -> None:
    assert files.hooks is not None
    hooks = open_section(config, "hooks", files.hooks)
    if reminds is None:
        of_calls = [hooks.get(event) for event, kind in EVENTS[host].items() if kind == "call"]
        reminds = f" hook {host}" in json.dumps(of_calls)
    _remove_hooks(hooks, host)
    run = shlex.join([*scope, "hook", host])
    for event, kind in EVENTS[host].items():
        if kind == "call" and not reminds:
            continue
        seconds = _SECONDS.get(kind, 30)
        our = {"type": "command", "command": run, "timeout": seconds * files.second}
        matcher = {"matcher": MATCHERS[event]} if event in MATCHERS else {}
        hooks[event] = [*hooks.get(event, ()), {**matcher, "hooks": [our]}]


def _remove_hooks(hooks: dict[str, Any], host: str) -> None:
    """Remove our commands, and groups and events left empty."""
    for event, groups in list(hooks.items()):
        if not isinstance(groups, list):
            continue
        foreign_groups = []
        for group in groups:
            commands = group.get("hooks") if isinstance(group, Mapping) else None
            others = [c for c in commands or () if not is_ours(c, host)]
            if not commands or others:
                foreign_groups.append({**group, "hooks": others} if commands else group)
        if foreign_groups:
            hooks[event] = foreign_groups
        elif groups:
            del hooks[event]


def is_ours(command: Any, host: str) -> bool:
    """Return whether an agent's hook runs MemTier."""
    text = command.get("command") if isinstance(command, Mapping) else None
    return isinstance(text, str) and "memtier" in text and text.endswith(f" hook {host}")
