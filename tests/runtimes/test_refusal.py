"""The real Claude Code in a terminal, in which a user refuses a call and says why."""

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

REASON = "Never use yarn here, use pnpm."
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


def test_why_a_user_refused_a_call_is_remembered(ground: Ground) -> None:
    """The reason is the user's word and becomes a rule; the call has no outcome."""
    if not (RUNTIMES / ClaudeCode.name).exists():
        pytest.skip(f"{ClaudeCode.name} is not in {RUNTIMES}; `make test-runtimes` puts it there")
    agent = ClaudeCode(ground)
    skip_first_questions(agent)
    agent.install()
    with terminal(agent, ["claude", "--permission-mode", "default"]) as screen:
        screen.wait_for("manualmode")
        screen.type("Add lodash. RUN: yarn add lodash :END", ENTER)
        screen.wait_for("Doyouwanttoproceed?")
        number = _NO.findall(screen.drawn)[-1]
        screen.type(*[DOWN] * (int(number) - 1), TAB, REASON, ENTER)
        wait_until(lambda: REASON in ground.said(agent.agent))
    [call] = [entry.tool for entry in ground.entries(agent.agent) if entry.tool]
    assert (call.name, call.ok, call.exit_code) == ("Bash", None, None)
    with ground.memory(agent.agent) as memory:
        memory.consolidate()
        assert [rule.fact.text for rule in memory.knowledge.rules()] == [REASON]
