"""The configuration of Hermes' memory provider: `memtier.json`, next to Hermes' own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.paths import write_private_file

NAME: Final = "memtier"
HOST: Final = "hermes"


def agent_of(context: Mapping[str, Any]) -> str:
    """Return the name by which MemTier knows the agent."""
    return f"{HOST}.{context.get('agent_identity') or 'default'}"


def config_path(hermes_home: str | Path | None = None) -> Path:
    """Return the path of the provider's configuration, next to Hermes' own."""
    home = hermes_home or os.environ.get("HERMES_HOME") or Path.home() / ".hermes"
    return Path(home) / f"{NAME}.json"


def read_config(hermes_home: str | Path | None = None) -> dict[str, Any]:
    """Return the configuration: command, home, project, environment; all have defaults."""
    config: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        config = dict(parse_json_text(config_path(hermes_home).read_text("utf-8")))
    config.setdefault("command", _command())
    config.setdefault("home", os.environ.get("MEMTIER_HOME") or str(Path.home() / ".memtier"))
    config.setdefault("project", "default")
    return config


def list_setup_fields() -> list[dict[str, Any]]:
    """Return the fields that `hermes memory setup` asks for."""
    defaults = read_config()
    return [
        {
            "key": "project",
            "description": "The project whose memory this is",
            "default": defaults["project"],
        },
        {
            "key": "home",
            "description": "Where MemTier keeps everything",
            "default": defaults["home"],
        },
        {
            "key": "command",
            "description": "How `memtier` is run, in its own environment",
            "default": shlex.join(defaults["command"]),
        },
    ]


def save_config(values: Mapping[str, Any], hermes_home: str) -> None:
    """Write the chosen configuration (mode 0600)."""
    config = {**read_config(hermes_home), **values}
    if isinstance(config["command"], str):
        config["command"] = shlex.split(config["command"])
    write_private_file(config_path(hermes_home), json.dumps(config, indent=1))


def _command() -> list[str]:
    """Return the command that runs `memtier`: this checkout's, one on PATH, or install.sh's."""
    checkout = str(Path(__file__).resolve().parents[1] / ".venv" / "bin")
    path = os.pathsep.join(
        [checkout, os.environ.get("PATH", ""), str(Path.home() / ".local" / "bin")]
    )
    return [shutil.which("memtier", path=path) or "memtier"]


def installer() -> Path | None:
    """Return the script that installs MemTier, where this is a checkout."""
    script = Path(__file__).resolve().parents[1] / "install.sh"
    return script if script.is_file() else None
