"""A shell completes what is there: by click's own mechanism."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from memtier_plugin.cli.main import main
from memtier_plugin.cli.views import short_id
from memtier_plugin.memory import MemTier
from tests.builders import make_draft, say
from tests.processes import run_command

Complete = Callable[..., list[str]]


def asked(words: tuple[str, ...]) -> dict[str, str]:
    """Return what bash tells a command that is to complete a line; the last word is begun."""
    return {
        "_MEMTIER_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("memtier", *words)),
        "COMP_CWORD": str(len(words)),
    }


def offered(output: str) -> list[str]:
    """Return the words of an answer."""
    return [line.partition(",")[2] for line in output.splitlines() if line]


@pytest.fixture
def complete() -> Complete:
    """Return what completes a command line in bash's way."""

    def run(*words: str) -> list[str]:
        done = CliRunner().invoke(main, env=asked(words), prog_name="memtier")
        assert done.exit_code == 0, done.output
        return offered(done.output)

    return run


def test_projects_agents_sessions_and_ids(home: Path, complete: Complete) -> None:
    """What a shell offers is what the command takes, of the project that the line names."""
    with MemTier.open(home, "shop", "host.one") as memory:
        entry = say(memory, "The till is red.", session_id="monday")
        [fact] = memory.add_facts([make_draft(entry, "Lisbon")])
        recall = memory.recall("till")
        hidden = say(memory, "Never mind.", session_id="tuesday")
        memory.forget(ids=[hidden.id])
        memory.catch_up()
    MemTier.open(home, "yard").close()
    assert complete("recall", "--project", "") == ["shop", "yard"]
    assert complete("--project", "s") == ["shop"]
    assert complete("log", "--project", "shop", "--agent", "") == ["host.one"]
    assert complete("log", "--project", "shop", "--session", "m") == ["monday"]
    shop = ("--project", "shop")
    assert complete("facts", "show", *shop, "") == [short_id(fact.id)]
    assert complete("facts", "show", *shop, short_id(fact.id)[:3].lower()) == [short_id(fact.id)]
    assert {*complete("forget", *shop, "")} == {short_id(fact.id), short_id(entry.id)}
    assert complete("unforget", *shop, "") == [short_id(hidden.id)]
    assert complete("explain", *shop, "") == [short_id(recall.id)]


def test_what_cannot_be_read_completes_to_nothing(complete: Complete) -> None:
    """A missing home or project is no message on the user's command line."""
    assert complete("recall", "--project", "") == []
    assert complete("facts", "show", "--project", "nowhere", "") == []


def test_a_shell_is_answered_by_a_process(home: Path) -> None:
    """The command alone, as a shell starts it, prints what completes the line."""
    MemTier.open(home, "shop").close()
    program = "from memtier_plugin.cli.main import main; main(prog_name='memtier')"
    line = ("recall", "--project", "")
    done = run_command(sys.executable, "-c", program, env={**os.environ, **asked(line)})
    assert offered(done.stdout) == ["shop"]
