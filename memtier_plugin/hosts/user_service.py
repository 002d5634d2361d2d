"""A user service that starts a home's resident at login: systemd, or launchd on macOS."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import LedgerWriteError, SettingsError
from memtier_plugin.core.files import check_replaceable, remove_private_file, write_private_file
from memtier_plugin.core.paths import open_process_log
from memtier_plugin.hosts.project import launch_command

_UNIT: Final = """\
[Unit]
Description=MemTier's resident, for all hosts of {home}

[Service]
ExecStart={command}
Environment=MEMTIER_RESIDENT__IDLE_MINUTES=0
Restart=on-failure

[Install]
WantedBy=default.target
"""
_LABEL: Final = "org.memtier.resident"
_SECONDS: Final = 30.0  # limit for the service manager


@dataclass(frozen=True, slots=True)
class UserService:
    """A service's file, and the service manager's commands for it.

    Attributes:
        start: commands to run after writing the file.
        stop: commands to run before removing the file.
    """

    path: Path
    text: str
    start: Sequence[Sequence[str]]
    stop: Sequence[Sequence[str]]


def describe_service(home: Path) -> UserService:
    """Return the service that starts a home's resident."""
    command = [*launch_command(), "--home", str(home), "serve"]
    if sys.platform == "darwin":
        path = Path.home() / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
        entries = {
            "Label": _LABEL,
            "ProgramArguments": command,
            "EnvironmentVariables": {"MEMTIER_RESIDENT__IDLE_MINUTES": "0"},
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardErrorPath": str(home / "logs" / "resident.log"),
        }
        domain = f"gui/{os.geteuid()}"
        return UserService(
            path,
            plistlib.dumps(entries).decode("utf-8"),
            [["launchctl", "bootstrap", domain, str(path)]],
            [["launchctl", "bootout", f"{domain}/{_LABEL}"]],
        )
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = config / "systemd" / "user" / "memtier.service"
    manager = ["systemctl", "--user"]
    return UserService(
        path,
        _UNIT.format(home=_escape(str(home)), command=" ".join(map(_quote, command))),
        [[*manager, "daemon-reload"], [*manager, "enable", "--now", path.name]],
        [[*manager, "disable", "--now", path.name]],
    )


def install_service(home: Path) -> str:
    """Write the service's file and start it; return what remains to be done, if anything.

    Raises:
        SettingsError: the file cannot be written.
    """
    service = describe_service(home)
    os.close(open_process_log(home, "resident"))  # launchd does not create the folder
    try:
        service.path.parent.mkdir(parents=True, exist_ok=True)
        write_private_file(service.path, service.text)
    except (OSError, LedgerWriteError) as error:
        raise SettingsError(f"{service.path} cannot be written: {error}") from error
    return _run(service.start)


def uninstall_service(home: Path) -> str:
    """Stop the service and remove its file; return what remains to be done, if anything.

    Raises:
        SettingsError: the file cannot be removed.
    """
    service = describe_service(home)
    if not os.path.lexists(service.path):
        return ""
    try:
        check_replaceable(service.path)
        left = _run(service.stop)
        remove_private_file(service.path)
    except LedgerWriteError as error:
        raise SettingsError(f"{service.path} cannot be removed: {error}") from error
    return left


def _run(commands: Sequence[Sequence[str]]) -> str:
    """Run the service manager's commands; return the first failure with a manual remedy."""
    for command in commands:
        by_hand = f"`{' '.join(command)}` by hand"
        if shutil.which(command[0]) is None:
            return f"{command[0]} is not available here; where it is, run {by_hand}"
        try:
            done = subprocess.run(
                [*command], capture_output=True, text=True, check=False, timeout=_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{error}; run {by_hand}"
        if done.returncode:
            why = (done.stderr or done.stdout).strip()[-200:]
            return f"{command[0]} ended with {done.returncode} ({why}); run {by_hand}"
    return ""


def _quote(argument: str) -> str:
    """Quote an argument for systemd."""
    text = _escape(argument).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{text}"'


def _escape(text: str) -> str:
    return text.replace("%", "%%")
