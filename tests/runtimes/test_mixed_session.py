"""Thirty mixed prompts in real hosts: needed lines are shown, and little else."""

from __future__ import annotations

import sys

import pytest

from tests.processes import wait_until
from tests.runtimes.hermes_chat import open_chat
from tests.runtimes.hosts import Ground, Hermes, OpenClaw
from tests.runtimes.mixed_session import MixedSession, Outcome, format_table


def check(outcomes: list[Outcome]) -> None:
    """Check that what is needed is shown, and that the other prompts get next to nothing."""
    needed = [outcome.needed for outcome in outcomes if not outcome.quiet]
    quiet = [outcome for outcome in outcomes if outcome.quiet]
    assert len(outcomes) == 30
    assert sum(map(bool, needed)) >= len(needed) - 1
    assert sum(bool(outcome.lines) for outcome in quiet) <= len(quiet) // 3
    assert sum(outcome.tokens for outcome in quiet) <= 80 * len(quiet)
    assert sum(outcome.in_sight for outcome in outcomes) == 0
    assert sum(outcome.stale for outcome in outcomes) == 0


def report(name: str, outcomes: list[Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    """Print the table."""
    with capsys.disabled():
        sys.stdout.write(f"\n{name}\n\n{format_table(outcomes)}\n")
        for number, outcome in enumerate(outcomes, 1):
            sys.stdout.writelines(f"  {number}: {line}\n" for line in outcome.lines)


def test_openclaw(ground: Ground, openclaw: OpenClaw, capsys: pytest.CaptureFixture[str]) -> None:
    """One session of a Gateway."""
    session = MixedSession(ground, openclaw.agent)
    session.plant()
    planted = len(ground.said(openclaw.agent))

    def say(text: str) -> None:
        openclaw.post(text, key="agent:main:mixed")
        count = planted + len(session.outcomes) + 1
        wait_until(lambda: len(ground.said(openclaw.agent)) == count)

    with openclaw.gateway():
        outcomes = session.play(say)
    report("OpenClaw", outcomes, capsys)
    check(outcomes)
    assert openclaw.errors() == []


def test_hermes(ground: Ground, hermes: Hermes, capsys: pytest.CaptureFixture[str]) -> None:
    """One conversation of one process, as its terminal interface has it."""
    session = MixedSession(ground, hermes.agent)
    session.plant()
    planted = len(ground.said(hermes.agent))
    with open_chat(hermes) as chat:

        def say(text: str) -> None:
            chat.say(text)
            count = planted + len(session.outcomes) + 1
            wait_until(lambda: len(ground.said(hermes.agent)) == count)

        outcomes = session.play(say)
    report("Hermes", outcomes, capsys)
    check(outcomes)
    assert hermes.errors() == []
