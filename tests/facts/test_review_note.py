"""The reminder of what waits for review: once a day, to whom it concerns, through restarts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.results import Message, PromptEvent, RunContext, RunEvent
from memtier_plugin.facts.forgetting import FILE, Audience, take_reminder
from memtier_plugin.facts.review import note_waiting
from memtier_plugin.hooks import host_hooks
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool
from memtier_plugin.trust.escaping import remove_blocks
from tests.processes import PATIENCE

MONDAY = datetime(2026, 11, 23, 9, tzinfo=UTC)
MAIN = Audience("main")


class Clock:
    """A clock that a test moves, and memories of one project that go by it."""

    def __init__(self, home: Path) -> None:
        self.now = MONDAY
        self.home = home

    def open(self, agent: str = "main") -> MemTier:
        """Open an agent's memory as a new process does."""
        return MemTier.open(self.home, agent_id=agent, clock=lambda: self.now)

    def wait(self, text: str, agent: str = "main", sender: str | None = None) -> str:
        """Let one fact wait, and count what waits as the end of a run does."""
        with self.open(agent) as memory:
            fact = memory.remember(text, by="assistant", sender=sender)
            note_waiting(memory.store, Audience(agent, sender), memory.actor.clock())
        assert fact.status == "proposed"
        return fact.id

    def remind(self, agent: str = "main", sender: str | None = None) -> int:
        """Return of how many things a person is reminded, by a new process."""
        with self.open(agent) as memory:
            return take_reminder(memory.folder, Audience(agent, sender), memory.actor.clock())


@pytest.fixture
def clock(home: Path) -> Clock:
    """Return the clock of a project."""
    return Clock(home)


def test_once_a_day(clock: Clock) -> None:
    """A reminder comes once a day, whichever agent asks, and again the next day."""
    assert clock.remind() == 0
    clock.wait("The attic lamp is green.")
    clock.wait("The cellar door sticks.", agent="b")
    assert [clock.remind(), clock.remind(), clock.remind("b")] == [1, 0, 0]
    clock.now += timedelta(hours=14)
    assert clock.remind("b") == 0
    clock.now += timedelta(hours=2)
    assert [clock.remind("b"), clock.remind()] == [1, 0]


def test_only_whom_it_concerns(clock: Clock) -> None:
    """A person is reminded of what rests on their own lines alone."""
    clock.wait("The attic lamp is green.", sender="ana")
    assert clock.remind(sender="ben") == 0 and clock.remind() == 0
    assert clock.remind(sender="ana") == 1


def test_nothing_after_a_decision(clock: Clock) -> None:
    """What was decided is not counted any more, and what is new is."""
    first = clock.wait("The attic lamp is green.")
    with clock.open() as memory:
        memory.knowledge.accept([first])
    assert clock.remind() == 0
    clock.wait("The cellar door sticks.")
    assert clock.remind() == 1


@pytest.mark.parametrize("content", ["", "[]", '{"waiting": 3}', '{"waiting": {"x": []}}', "\x00"])
def test_a_broken_file_costs_the_reminder_only(clock: Clock, content: str) -> None:
    """A torn or foreign state file is one without content."""
    with clock.open() as memory:
        memory.folder.joinpath(FILE).write_text(content, "utf-8")
    clock.wait("The attic lamp is green.")
    assert clock.remind() == 1


def test_the_file_holds_no_names(clock: Clock) -> None:
    """No sender stands in the state file, so that a purge need not read it."""
    clock.wait("The attic lamp is green.", sender="ana-of-the-attic")
    clock.remind(sender="ana-of-the-attic")
    with clock.open() as memory:
        assert "ana" not in memory.folder.joinpath(FILE).read_text("utf-8")


@pytest.fixture
def hooked(home: Path) -> Iterator[RunContext]:
    """Return the context of a host's session."""
    yield RunContext(agent_id="test.main", session_id="s", run_id="r", project="p")
    host_hooks.workers.drain(PATIENCE)
    memory_pool.close()


def test_a_block_ends_with_the_reminder(hooked: RunContext) -> None:
    """The hook's block has the line once, in the fence; a prompt that needs nothing has none."""
    hook = plugins.manager().hook
    with memory_pool.use(hooked) as memory:
        memory.remember("The attic lamp is green.", by="assistant", session_id="old")
        memory.record([{"role": "user", "content": "My bag is in locker nine."}], session_id="old")
    message = Message(role="user", content="Where do I find the ladder?")
    hook.agent_end(event=RunEvent(messages=(message,)), context=hooked)
    assert hook.before_prompt_build(event=PromptEvent(prompt="thanks!"), context=hooked) is None
    asked = PromptEvent(prompt="Which locker has my bag?")
    first, second = (hook.before_prompt_build(event=asked, context=hooked) for _ in range(2))
    assert "1 of the facts noted here await" in first.prepend_context
    assert remove_blocks(first.prepend_context).strip() == ""
    assert second is None or "await the user's review" not in second.prepend_context
