"""Check the command by which a host starts this MemTier."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.operations.health.finding import HealthFinding

COMMAND_SECONDS: Final = 20.0  # limit for `memtier --version` as a host runs it


def check_command(
    plugin_config: Mapping[str, Any], home: Path, where: str, again: str
) -> Iterator[HealthFinding]:
    """Yield the reasons why a host would not reach this MemTier."""
    theirs = Path(str(plugin_config.get("home") or home)).expanduser()
    if theirs != home:
        yield HealthFinding(
            "warn",
            f"the host writes to the home {theirs}, and this is {home}",
            where,
            f"memtier --home {theirs} status shows its memory; or {again}",
        )
    command = plugin_config.get("command") or ["memtier"]
    if not isinstance(command, list) or not all(isinstance(part, str) for part in command):
        yield HealthFinding(
            "error", f"the command is {command!r}, not a list of texts", where, again
        )
        return
    if shutil.which(command[0]) is None:
        yield HealthFinding(
            "error", f"the host cannot start {command[0]}: it is not there", where, again
        )
        return
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        yield HealthFinding("error", f"the host cannot start {command[0]}: {error}", where, again)
        return
    version = done.stdout.strip()
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        yield HealthFinding(
            "error", f"{' '.join(command)} ends with {done.returncode}: {last}", where, again
        )
    elif version.rpartition(" ")[2] != memtier_plugin.__version__:
        yield HealthFinding(
            "error",
            f"the host starts {version}, and this is {memtier_plugin.__version__}",
            where,
            again,
        )
