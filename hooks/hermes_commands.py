"""`hermes memtier status|search|log|doctor|review`: run `memtier` for Hermes' project."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any, Final

from .hermes_settings import config_path, read_config

COMMANDS: Final = ("status", "search", "log", "doctor", "review")


def register_cli(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `hermes memtier`."""
    parser.add_argument("command", choices=COMMANDS, nargs="?", default="status")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="what to search for, or options")


def memtier_command(args: Any) -> None:
    """Run the command in MemTier's own environment and exit with its code."""
    config = read_config()
    scope = ["--home", config["home"], "--project", config["project"], "--agent", "hermes.default"]
    command = [*config["command"], *scope, args.command, *args.words]
    try:
        sys.exit(subprocess.run(command, check=False).returncode)
    except OSError as error:
        remedy = f"put it on the path, or set `command` in {config_path()}"
        sys.exit(f"memtier: cannot start {command[0]}: {error.strerror}; {remedy}")
