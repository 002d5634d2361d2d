"""The real Claude Code in a terminal, in which a user refuses a call."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import PATIENCE, wait_until
from tests.runtimes.agents import ClaudeCode
from tests.runtimes.hosts import RUNTIMES, Ground

DOWN, TAB, ENTER = "\x1b[B", "\t", "\r"
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?<>=]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")
_NO = re.compile(r"(\d)\.\s*No\b")


class Terminal:
    """A program in a terminal of its own, typed to and read like a person does."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.drawn = ""

    def type(self, *keys: str) -> None:
        """Send keys one after another, as slowly as a person."""
        for key in keys:
            os.write(self._descriptor, key.encode())
            self._read(0.5)

    def wait_for(self, words: str) -> None:
        """Wait until words have been drawn, letters only: a screen skips spaces."""
        wait_until(lambda: self._read(0.2) or words in re.sub(r"\s+", "", self.drawn))

    def _read(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
            drawn = os.read(self._descriptor, 65536).decode("utf-8", "replace")
            self.drawn += _ESCAPE.sub(" ", drawn)


@contextmanager
def terminal(agent: ClaudeCode, command: Sequence[str]) -> Iterator[Terminal]:
    """Run a command in a terminal; kill it at the end."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 140, 0, 0))
    environment = {**agent.environment, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        command,
        cwd=agent.work,
        env=environment,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Terminal(ours)
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(ours)


def skip_first_questions(agent: ClaudeCode) -> None:
    """Answer what Claude Code asks at its first start."""
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": ["none"], "rejected": []},
        "projects": {str(agent.work): {"hasTrustDialogAccepted": True}},
    }
    Path(agent.user, ".claude.json").write_text(json.dumps(settings))


@pytest.fixture
def claude(ground: Ground) -> ClaudeCode:
    """Return Claude Code, installed."""
    if not (RUNTIMES / ClaudeCode.name).exists():
        pytest.skip(f"{ClaudeCode.name} is not in {RUNTIMES}; `make test-runtimes` puts it there")
    agent = ClaudeCode(ground)
    skip_first_questions(agent)
    agent.install()
    return agent


def rules(ground: Ground, agent: ClaudeCode) -> list[str]:
    """Return the rules that were set, after what was said has been read."""
    with ground.memory(agent.agent) as memory:
        memory.consolidate()
        return [rule.fact.text for rule in memory.knowledge.rules()]


@pytest.mark.parametrize("reason", ["Never use yarn here, use pnpm.", ""])
def test_a_refused_call_is_remembered(claude: ClaudeCode, ground: Ground, reason: str) -> None:
    """The reason is the user's word and becomes a rule, without it the act; no call failed."""
    with terminal(claude, ["claude", "--permission-mode", "default"]) as screen:
        screen.wait_for("manualmode")
        screen.type("Add lodash. RUN: yarn add lodash :END", ENTER)
        screen.wait_for("Doyouwanttoproceed?")
        number = _NO.findall(screen.drawn)[-1]
        screen.type(*[DOWN] * (int(number) - 1), *([TAB, reason] if reason else []), ENTER)
        last = reason
        if not reason:  # which ends the turn
            screen.wait_for("Interrupted")
            last = "What else is there?"
            screen.type(last, ENTER)
        wait_until(lambda: last in ground.said(claude.agent))
    [call] = [entry.tool for entry in ground.entries(claude.agent) if entry.tool]
    assert (call.name, call.ok, call.exit_code) == ("Bash", None, None)
    assert rules(ground, claude) == [reason or "The user refused `yarn add lodash`."]
