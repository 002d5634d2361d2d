"""What only a terminal gets: a pager for what is longer than it, sparklines, spans of time."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier
from tests.builders import make_draft, say, say_each
from tests.cli.test_cli import START
from tests.processes import child_environment, fork_python, run_memtier
from tests.views.test_models import run_with

ROWS, COLUMNS = 24, 120


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of one's own, in the default project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMTIER_PROJECT", "default")


def on_a_terminal(*arguments: str, pager: str = "sed s/^/paged:/", typed: str = "") -> str:
    """Run the real command on a terminal of 24 lines, and return what it shows."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = fork_python(
        "-c",
        START,
        *arguments,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=child_environment(PAGER=pager, TERM="xterm"),
    )
    os.close(slave)
    os.write(master, typed.encode())
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the last process that had the terminal is gone
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait(timeout=60) == 0, shown.decode()
    return shown.decode()


def test_long_output_is_paged_on_a_terminal_only(home: Path) -> None:
    """What does not fit on the terminal goes through $PAGER, all of it.

    `--no-pager` and `--json` are never paged, nor is what goes into a pipe.
    """
    with MemTier.open(home) as memory:
        say_each(memory, *(f"Line number {number}." for number in range(ROWS)))
    paged = on_a_terminal("log")
    assert paged.count("paged:") >= ROWS
    assert all(f"Line number {number}." in paged for number in range(ROWS))
    assert "paged:" not in on_a_terminal("log", "--no-pager")
    assert "paged:" not in on_a_terminal("log", "--json")
    assert run_memtier("log").stdout.count("Line number") == ROWS


@pytest.mark.slow
def test_a_pager_that_ends_early_is_no_error(home: Path) -> None:
    """Who has read enough leaves the pager, and the command ends well."""
    with MemTier.open(home) as memory:
        say_each(memory, *(f"Line number {number}. {'x' * 400}" for number in range(300)))
    shown = on_a_terminal("log", pager="head -3")
    assert "Traceback" not in shown and shown.count("\n") <= 4


def test_the_log_ends_with_its_figures(home: Path) -> None:
    """On a terminal the log ends with what it held, and the hours at which it was said."""
    with MemTier.open(home) as memory:
        say(memory, "The ferry to Skagen leaves from pier nine.")
        memory.recall("thanks!", session_id="t", purpose="inject")
    shown = on_a_terminal("log")
    assert "paged:" not in shown  # it fits
    assert "1 entries, 1 recalls, 1 of them silent  00 " in shown and "█" in shown
    assert "█" not in run_memtier("log").stdout


def test_a_timeline_is_drawn_on_a_line_of_time(home: Path) -> None:
    """On a terminal each fact has the stretch of time that it held; in a pipe it has not."""
    with MemTier.open(home) as memory:
        line = say(memory, "The fox works at Acme, and later at Bolt.")
        memory.add_facts([make_draft(line, "Acme", valid_from=line.timestamp.replace(year=2020))])
        memory.add_facts([make_draft(line, "Bolt", valid_from=line.timestamp.replace(year=2024))])
    drawn = on_a_terminal("facts", "timeline", "the fox")
    old, new = (row for row in drawn.splitlines() if "the fox works at" in row)
    assert "━·" in old and "·━" in new and "Acme" in old
    assert "━" not in run_memtier("facts", "timeline", "the fox").stdout


def test_a_line_is_explained_with_its_curve(home: Path) -> None:
    """`explain` takes a line's id, too: its weight, credits and recalls; drawn on a terminal."""
    with MemTier.open(home) as memory:
        line = say(memory, "The ferry to Skagen leaves from pier nine.", session_id="old")
        recall = run_with(memory, "Which pier is the ferry to Skagen at?", "r1", ok=True)
    shown = on_a_terminal("explain", line.id[-8:], "--no-pager")
    assert "▅█" in shown
    text = run_memtier("explain", line.id).stdout
    assert "credits" in text and recall[-8:] in text and "injected" in text and "▅" not in text
    assert "▅" in on_a_terminal("explain", recall, "--no-pager", "--agent", "main")
    assert "no recall" in run_memtier("explain", "ZZZZZZZZ", code=1).stderr


def test_each_host_is_offered(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`install` alone asks for each host that has no MemTier yet, and sets up the chosen ones."""
    programs, user = tmp_path / "programs", tmp_path / "user"
    programs.mkdir()
    user.mkdir()
    for name in ("cursor", "gemini"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HOME", str(user))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "HERMES_HOME", "OPENCLAW_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    shown = on_a_terminal("install", "--no-canary", typed="y\nn\n")
    assert "Set up cursor?" in shown and "Set up gemini?" in shown
    assert (user / ".cursor/mcp.json").exists() and not (user / ".gemini").exists()
    assert "Set up cursor?" not in on_a_terminal("install", typed="n\n")
