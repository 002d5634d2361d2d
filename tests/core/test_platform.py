"""On a system without POSIX, MemTier refuses to start; what would have to be ported is listed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, child_environment

SENTENCE = "MemTier needs POSIX file locks: it runs on Linux and macOS; on Windows use WSL"
# Python as it is on Windows, as far as MemTier could notice.
WINDOWS = """
import os, shutil, socket, subprocess, sys
sys.platform = "win32"
sys.modules |= dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios"))
for name in ("fork", "register_at_fork", "geteuid", "getuid", "O_NOFOLLOW", "O_NONBLOCK"):
    delattr(os, name)
del socket.AF_UNIX
"""
POSIX = re.compile(
    r"\b(import fcntl|import resource|os\.register_at_fork|os\.get(?:e?uid|pgid)|os\.kill|"
    r"socket\.AF_UNIX|SIGKILL|set_wakeup_fd|start_new_session|pass_fds|O_NOFOLLOW|O_NONBLOCK)\b"
    r"|[\"']/proc/"
)


def on_windows(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that looks like Windows."""
    command = [sys.executable, "-c", WINDOWS + code, *map(str, arguments)]
    return subprocess.run(
        command, env=child_environment(), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", ["--version", "--help", "status", "record", "hook", "serve"])
def test_a_command_refuses(home: Path, command: str) -> None:
    """Each command ends with one sentence that names the remedy, and makes no home."""
    code = "sys.argv[0] = 'memtier'\nfrom memtier_plugin.__main__ import run\nrun()"
    refused = on_windows(code, *(("--home", home) if command[0] != "-" else ()), command)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"memtier: {SENTENCE}\n"
    assert not home.exists()


@pytest.mark.parametrize(
    "code",
    [
        "from memtier_plugin import MemTier",
        "from memtier_plugin import MemTierError",
        "import memtier_plugin.core.formats",
        "from memtier_plugin.hooks import resident",
    ],
)
def test_a_program_gets_the_same_sentence(code: str) -> None:
    """A host that imports any part gets an ImportError, whichever part it is."""
    refused = on_windows(code)
    assert refused.returncode == 1 and refused.stderr.endswith(f"ImportError: {SENTENCE}\n")


def test_what_a_port_needs_is_listed() -> None:
    """Every module that calls what Windows lacks is in the table of docs/contributing.md."""
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    listed = set(re.findall(r"`([\w/]+\.py)`", page.partition("## Porting to Windows")[2]))
    needing = {
        path.relative_to(ROOT).as_posix().removeprefix("memtier_plugin/")
        for room in ("memtier_plugin", "hooks", "daemon")
        for path in (ROOT / room).rglob("*.py")
        if POSIX.search(path.read_text("utf-8"))
    }
    assert listed >= needing, needing - listed
    assert {name for name in listed if not (ROOT / "memtier_plugin" / name).exists()} <= needing
