"""`memtier tui`: what a person sees and decides on a full screen, by keys alone."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, OptionList, Static

from memtier_plugin.memory import MemTier
from memtier_plugin.tui.app import MemTierApp
from tests.builders import START, say
from tests.facts.test_service import TEA, WAITS, World
from tests.processes import child_environment
from tests.views.test_models import run_with

Steps = Callable[[Pilot[None]], Awaitable[None]]
NASTY = "tide \x1b[2J\x1b]0;owned\x07 [bold red]loud[/] @click=app.quit end"


def drive(memory: MemTier, steps: Steps) -> None:
    """Run the application on a screen of its own, and take these steps."""

    async def run() -> None:
        async with MemTierApp(memory).run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            await steps(pilot)

    asyncio.run(run())


def shown(pilot: Pilot[None], name: str) -> str:
    """Return what a part of the screen shows."""
    return str(pilot.app.query_one(f"#{name}", Static).content)


@pytest.fixture
def world(home: Path) -> World:
    """Return a project in which two facts wait."""
    world = World(home)
    world.consolidate("r1", WAITS, TEA._replace(status="proposed", origin="external"))
    return world


def test_what_waits_is_decided_by_keys(world: World) -> None:
    """`a` accepts and `r` rejects the item at hand, which is written at once; the next follows."""
    memory = world.memory()

    async def steps(pilot: Pilot[None]) -> None:
        queue = pilot.app.query_one("#queue", OptionList)
        assert queue.has_focus and queue.option_count == 2 and shown(pilot, "waits") == "2 wait"
        first = queue.highlighted
        assert "Ines" in shown(pilot, "item") and first == 0
        await pilot.press("a")
        assert queue.option_count == 1 and shown(pilot, "waits") == "1 wait"
        await pilot.press("r")
        assert shown(pilot, "waits") == "Nothing awaits review." and shown(pilot, "item") == ""
        await pilot.press("a", "r", "e")  # nothing is at hand

    drive(memory, steps)
    states = {view.state for view in memory.knowledge.person.facts(include_superseded=True)}
    assert states == {"active", "rejected"}


def test_another_wording_is_asked_for(world: World) -> None:
    """`e` takes another wording; escape keeps the old one."""
    memory = world.memory()

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("e")
        await pilot.press("escape")
        assert shown(pilot, "waits") == "2 wait"
        await pilot.press("e")
        words = pilot.app.screen.query_one(Input)
        words.value = "Ines lives in Faro."
        await pilot.press("enter")
        await pilot.pause()
        assert shown(pilot, "waits") == "1 wait"

    drive(memory, steps)
    assert [fact.text for fact in memory.facts()] == ["Ines lives in Faro."]


def test_what_was_decided_elsewhere_is_no_crash(world: World) -> None:
    """A decision on what somebody else decided meanwhile says so, and the list is read again."""
    memory = world.memory()

    async def steps(pilot: Pilot[None]) -> None:
        person = memory.knowledge.person
        person.reject([item.id for item in person.review_queue()])
        await pilot.press("a")
        assert shown(pilot, "waits") == "Nothing awaits review."

    drive(memory, steps)


def test_the_log_shows_what_became_of_a_line(home: Path) -> None:
    """With nothing to review the log is there; the line at hand is told with its weight.

    `p` and `n` go to the days on which something was said; a recall is told with its block.
    """
    with MemTier.open(home) as memory:
        say(memory, "Bread rises for two hours.", run_id="0", observed_at=START)
        line = say(memory, "The ferry to Skagen leaves from pier nine.", session_id="old")
        run_with(memory, "Which pier is the ferry to Skagen at?", "r1", ok=True)

        async def steps(pilot: Pilot[None]) -> None:
            table = pilot.app.query_one("#lines", DataTable)
            await pilot.pause(0.3)
            assert table.has_focus and "recalls" in shown(pilot, "day")
            assert line.id in shown(pilot, "line") and "weight   +" in shown(pilot, "line")
            await pilot.press("down")
            await pilot.pause(0.3)
            recall = shown(pilot, "line")
            assert "injected" in recall and "the block" in recall and "█" in recall
            await pilot.press("p")
            assert shown(pilot, "day").startswith("2026-01-05") and table.row_count == 1
            await pilot.press("p", "n")
            assert table.row_count > 1
            await pilot.press("1")
            assert shown(pilot, "waits") == "Nothing awaits review."
            await pilot.press("2", "g")
            assert table.has_focus

        drive(memory, steps)


def test_remembered_text_cannot_drive_the_screen(home: Path) -> None:
    """Neither control characters nor markup of a remembered line do anything but show."""
    with MemTier.open(home) as memory:
        say(memory, NASTY)

        async def steps(pilot: Pilot[None]) -> None:
            await pilot.pause(0.3)
            text = shown(pilot, "line")
            assert "\x1b" not in text and "\x07" not in text
            assert "[bold red]loud[/]" in text
            screen = pilot.app.export_screenshot()
            assert "owned" in screen and "\x1b" not in screen

        drive(memory, steps)


def test_without_a_terminal_it_is_refused(home: Path) -> None:
    """Where nobody can press a key, the commands that do without are named."""
    from tests.processes import run_memtier

    with MemTier.open(home, "default"):
        pass
    assert "memtier review" in run_memtier("--project", "default", "tui", code=2).stderr


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return what runs a command of a tmux server of its own."""
    if not shutil.which("tmux"):
        pytest.skip("there is no tmux here")
    socket = tmp_path / "tmux"

    def call(*words: str) -> str:
        command = ["tmux", "-S", str(socket), "-f", "/dev/null", *words]
        environment = child_environment(TERM="xterm-256color", LANG="C.UTF-8")
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    yield call
    subprocess.run(["tmux", "-S", str(socket), "kill-server"], capture_output=True, check=False)


@pytest.mark.slow
def test_it_runs_in_a_real_terminal(world: World, tmux: Callable[..., str]) -> None:
    """In tmux it draws, takes keys, and leaves the terminal as it was."""
    world.close()
    command = shlex.join([sys.executable, "-m", "memtier_plugin", "--project", "default", "tui"])
    tmux("-u", "new-session", "-d", "-x", "120", "-y", "40", f"{command}; echo left with $?; cat")

    def wait_for(words: str) -> str:
        until = time.monotonic() + 60
        while words not in (screen := tmux("capture-pane", "-p")):
            assert time.monotonic() < until, screen
            time.sleep(0.2)
        return screen

    wait_for("2 wait")
    assert "Ines" in wait_for("Accept")
    tmux("send-keys", "a")
    wait_for("1 wait")
    tmux("send-keys", "2")
    wait_for("Day before")
    tmux("send-keys", "q")
    assert "left with 0" in wait_for("left with")
    with MemTier.open(world.home) as memory:
        assert len(memory.facts()) == 1
