"""`memtier` alone and `memtier status`: what a person sees first, whatever is missing or broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.cli.views import format_age
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.hosts.install import install_host
from memtier_plugin.hosts.project import INSTALLED_FILE
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import HookWait, note_waits
from tests.builders import say
from tests.cases import each_case
from tests.processes import run_memtier, run_python

MOST_LINES = 10
NOON = datetime(2026, 3, 18, 12, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, of a user without hosts, whose project is `yard`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MEMTIER_PROJECT", "yard")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def yard(home: Path, folder: Path) -> Iterator[MemTier]:
    """Return the memory of a project with one line."""
    with MemTier.open(home, "yard", "deckhand") as memory:
        say(memory, "The crane is greased on Fridays.", session_id="crane-1")
        yield memory


def overview() -> dict[str, str]:
    """Return the rows of `memtier` alone by name, and check their number and width."""
    shown = run_memtier().stdout.splitlines()
    assert len(shown) <= MOST_LINES
    return {line[:14].rstrip(): line[14:] for line in shown}


def document(*arguments: str) -> dict[str, Any]:
    """Return the JSON document of a command."""
    loaded: dict[str, Any] = json.loads(run_memtier(*arguments, "--json").stdout)
    return loaded


def test_without_a_home(home: Path, folder: Path) -> None:
    """Before anything is set up it names the first command, and creates nothing."""
    rows = overview()
    assert rows["project"] == f"yard, in {home}: not set up yet"
    assert rows["next"] == "memtier init" and rows["all commands"] == "memtier --help"
    assert not home.exists()


def test_where_one_stands(home: Path, yard: MemTier) -> None:
    """It shows the project, hosts, last run, last recall and what waits, in ten lines."""
    install_host("gemini", home, "yard")
    yard.recall("When is the crane greased?", purpose="inject", session_id="crane-2")
    now = datetime.now(UTC)
    note_waits(home, "gemini", [HookWait("yard", "deckhand", "agent_end", 3)], now)
    rows = overview()
    assert rows["project"] == f"yard, in {home}"
    assert rows["stored"] == "1 entry, 0 facts"
    assert rows["hosts"] == "gemini (called just now)"
    assert rows["last run"] == "just now, by deckhand"
    assert rows["last recall"].startswith("just now, for a prompt of deckhand: 1 line, ")
    assert rows["waiting"] == "1 entry to become facts"
    assert rows["next"] == "memtier log"
    yard.recall("What is the weather on Mars?", purpose="inject", session_id="crane-2")
    assert "deckhand: silent: nothing found" in overview()["last recall"]


def test_a_recall_for_a_prompt_comes_first(yard: MemTier) -> None:
    """The last recall is the last for a prompt; searches count only where there is none."""
    yard.recall("When is the crane greased?")
    assert document()["last_recall"]["purpose"] == "search"
    assert "by command of deckhand" in overview()["last recall"]
    yard.recall("When is the crane greased?", purpose="offer", session_id="crane-2")
    yard.recall("Who greases the crane?")
    shown = document()["last_recall"]
    assert (shown["purpose"], shown["lines"], shown["agent"]) == ("offer", 1, "deckhand")
    [event] = (e for e in yard.store.reader().events(["recall"]) if e.id == shown["id"])
    assert RecallEvent.of(event).query == "When is the crane greased?"


def test_the_next_command(home: Path, folder: Path) -> None:
    """It is the one that helps most: set up, connect, look at a problem, switch on, review."""
    assert document()["next"] == "memtier init"
    with MemTier.open(home, "yard") as memory:
        assert document()["next"] == "memtier install"
        say(memory, "Hello.")
        assert document()["next"] == "memtier log"
        memory.remember("The pump hums at night.", by="assistant")
    assert document()["next"] == "memtier review"
    run_memtier("off")
    assert document()["next"] == "memtier on" and "switched off" in overview()["stored"]
    run_memtier("on")
    waits = [HookWait("yard", "main", "agent_end", 3, answered=False)]
    note_waits(home, "hermes", waits, datetime.now(UTC))
    assert document()["next"] == "memtier status"
    assert overview()["problem"].startswith("main agent_end: the last of 1 calls got no answer")


def broken_settings(home: Path) -> None:
    """Leave settings that cannot be read."""
    home.mkdir()
    (home / "config.yaml").write_text("retrieval: [\n")


def home_is_a_file(home: Path) -> None:
    """Leave a file where the home should be."""
    home.write_text("")


def settings_are_a_folder(home: Path) -> None:
    """Leave settings that no one can open, the superuser included."""
    (home / "config.yaml").mkdir(parents=True)


@pytest.mark.parametrize("damage", [broken_settings, home_is_a_file, settings_are_a_folder])
def test_what_is_broken_is_said(home: Path, folder: Path, damage: Any) -> None:
    """A home or settings that cannot be read is a problem with a next command, not a failure."""
    damage(home)
    rows = overview()
    assert str(home) in rows["problem"] or "config.yaml" in rows["problem"]
    assert rows["next"].startswith("memtier ")
    assert document()["problems"]


def test_an_index_that_cannot_be_used_is_said(home: Path, yard: MemTier) -> None:
    """Both show the problem, and what the files tell, where the index cannot be opened."""
    yard.close()
    [index] = home.rglob("index.sqlite3")
    for path in index.parent.glob("index.sqlite3*"):
        path.unlink()
    index.mkdir()
    assert overview()["problem"].startswith("index: ")
    shown = run_memtier("status").stdout
    assert shown.startswith("✗ index: ") and f"project       yard, in {home}" in shown


def test_status_names_problems_first(home: Path, yard: MemTier) -> None:
    """Problems come before what is stored, and none of it is a dump of names and values."""
    waits = [HookWait("yard", "deckhand", "before_prompt_build", 3, answered=False)]
    note_waits(home, "hermes", waits, datetime.now(UTC))
    run_memtier("off")
    shown = run_memtier("status").stdout.splitlines()
    assert shown[0].startswith("! The project is off") and "`memtier on`" in shown[0]
    assert shown[1].startswith("✗ deckhand before_prompt_build: the last of 1 calls")
    assert shown[3] == f"project       yard, in {home}"
    assert "bad_lines" not in "\n".join(shown)
    run_memtier("on")
    run_memtier("consolidate")
    shown = run_memtier("status").stdout.splitlines()
    rows = {line[:14].rstrip(): line[14:] for line in shown}
    assert rows["waiting"] == "nothing"
    assert rows["consolidated"] == "just now; no daemon; the next session starts one"
    assert rows["last report"].startswith("1 entry read, ")


@each_case(
    ("age", "shown"),
    [
        (timedelta(seconds=-5), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=59), "59 minutes ago"),
        (timedelta(hours=23), "23 hours ago"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=47), "1 day ago"),
        (timedelta(days=40), "40 days ago"),
    ],
)
def test_an_age(age: timedelta, shown: str) -> None:
    """An age is in the largest unit that it fills; a clock set back gives no negative one."""
    assert format_age(to_iso(NOON - age), NOON) == shown
    assert format_age(None, NOON) == "never"


def test_the_overview_loads_no_more_than_status(yard: MemTier) -> None:
    """It imports nothing that `memtier status` does not need as well."""
    code = (
        "import sys\n"
        "from memtier_plugin.__main__ import run\n"
        "sys.argv = ['memtier', *sys.argv[1:]]\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "print('\\n', *sys.modules)\n"
    )
    alone, status = (
        {*run_python(code, *words).splitlines()[-1].split()} for words in ([], ["status"])
    )
    assert alone - status == set() and "http.server" not in alone


def test_the_next_command_after_an_installation(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first turn, a folder in the hosts' common project is offered one of its own."""
    monkeypatch.delenv("MEMTIER_PROJECT")
    MemTier.open(home, "default").close()
    (home / "hosts").mkdir(mode=0o700)
    record = {"/user/settings.json": {"host": "claude-code", "project": "default"}}
    (home / INSTALLED_FILE).write_text(json.dumps(record))
    assert (document()["project"], document()["next"]) == ("default", "memtier init")
    run_memtier("init", "--project", "yard")
    assert (document()["project"], document()["next"]) == ("yard", "memtier doctor")
