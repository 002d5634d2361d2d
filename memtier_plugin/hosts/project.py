"""Find the hosts' project, the command that hosts run, and the names of their events."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.operations.hook_calls import used_projects

# -- Find the project that a home's hosts use.
#
# Standard library only

DEFAULT_PROJECT: Final = "default"  # of every host, unless another is named
INSTALLED_FILE: Final = "hosts/installed.json"


def read_installed(home: Path) -> dict[str, dict[str, Any]]:
    """Return the record of what was installed into hosts, by changed file."""
    try:
        installed = parse_json_text((home / INSTALLED_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    records = installed.items() if isinstance(installed, dict) else ()
    return {path: record for path, record in records if isinstance(record, dict)}


def hosts_project(home: Path) -> str | None:
    """Return the project that hosts were installed for, the most recent of several.

    If nothing was installed, as with a plugin that the host itself loads, it is the project that a
    host used last; None if none ever did.
    """
    installed = [
        project
        for record in read_installed(home).values()
        if isinstance(project := record.get("project"), str)
    ]
    used = used_projects(home)
    among = [project for project in used if project in installed] if installed else used
    return next(iter([*among, *reversed(installed)]), None)


def project_in(home: Path, project: str, folder: object) -> str:
    """Return the project for a coding agent's work in a folder.

    Args:
        project: the one that the agent was installed for. Unless it is the default, it applies in
            every folder; the default applies where the user bound no folder (`memtier init`).

    Raises:
        SettingsError: the user's settings cannot be read.
    """
    if project != DEFAULT_PROJECT or not isinstance(folder, str) or not os.path.isabs(folder):
        return project
    with suppress(OSError):  # a cheap look: parsing YAML costs each hook a quarter of its time
        if b"workspaces" not in (home / "config.yaml").read_bytes():
            return project
    from memtier_plugin.core.settings.load import bound_project

    return bound_project(home, Path(folder)) or project


def serves(record: Mapping[str, Any], project: str) -> bool:
    """Return whether a host of `read_installed` may work in a project.

    A coding agent set up for the default project serves each that a folder is bound to.
    """
    host, named = record.get("host"), record.get("project")
    return bool(host) and (
        named in (None, project) or (named == DEFAULT_PROJECT and host in CODING_AGENTS)
    )


# -- The command that runs this MemTier.  Standard library only, as hooks import it


def launch_command() -> list[str]:
    """Return the command that runs this `memtier` from any working directory."""
    program = Path(sys.executable).with_name("memtier")
    if program.is_file() and os.access(program, os.X_OK):
        return [str(program)]
    return [sys.executable, "-m", "memtier_plugin"]


# -- The events of coding agents' hooks, and each agent's name for them

CODING_AGENTS: Final = (
    *("claude-code", "codex", "cursor", "gemini", "goose", "opencode", "vscode", "windsurf", "zed"),
)
# The meaning of each hook event; unlisted events are ignored. Those of a call yet to be made are
# passed on only where the user wants reminders (`memtier install --call-reminders`).
EVENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "claude-code": {
        "SessionStart": "session_start",
        "UserPromptSubmit": "prompt",
        "PreToolUse": "call",
        "PostToolUse": "tool",
        "PostToolUseFailure": "tool",
        "PreCompact": "compaction",
        "SubagentStop": "subagent_end",
        "Stop": "turn_end",
        "SessionEnd": "session_end",
    },
    "codex": {
        "SessionStart": "session_start",
        "UserPromptSubmit": "prompt",
        "PostToolUse": "tool",
        "PreCompact": "compaction",
        "Stop": "turn_end",
    },
    "gemini": {
        "SessionStart": "session_start",
        "BeforeAgent": "prompt",
        "BeforeTool": "call",
        "AfterTool": "tool",
        "PreCompress": "compaction",
        "AfterAgent": "turn_end",
        "SessionEnd": "session_end",
    },
}
# Required values of an event's fields.  Gemini CLI calls PreCompress before every request of a
# turn, whether it compresses or not; only a manual trigger means real compression.
MATCHERS: Final[Mapping[str, str]] = {
    "PreToolUse": "Bash|Edit|MultiEdit|Write|NotebookEdit|mcp__.*",
    "BeforeTool": "run_shell_command|replace|write_file|mcp_.*",
    "PostToolUse": "*",
    "PostToolUseFailure": "*",
    "AfterTool": "*",
    "PreCompress": "manual",
}


def agent_of(host: str) -> str:
    """Return MemTier's name for an agent."""
    return f"{host}.main"
