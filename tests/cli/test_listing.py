"""`projects`, `sessions` and `agents` list what there is; each command's help has an example."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click
import pytest

from memtier_plugin.cli.commands import find_commands
from memtier_plugin.cli.main import main
from memtier_plugin.cli.scope import example_of
from memtier_plugin.memory import MemTier
from tests.builders import START, say
from tests.processes import run_json, run_memtier


def test_projects_of_a_home(home: Path) -> None:
    """Every project of the home is listed with its agents and size; the current one is marked."""
    assert run_json("projects")["projects"] == []
    assert "No projects yet" in run_memtier("projects").stdout
    for project in ("shop", "Yard/ü"):
        with MemTier.open(home, project) as memory:
            say(memory, "The till is red.")
    rows = {row["project"]: row for row in run_json("projects", "--project", "shop")["projects"]}
    assert {*rows} == {"shop", "Yard/ü"}
    assert [rows[name]["current"] for name in ("shop", "Yard/ü")] == [True, False]
    assert rows["shop"]["agents"] == 1 and rows["shop"]["bytes"] > 100 and rows["shop"]["written"]
    assert "▸" in run_memtier("projects", "--project", "shop").stdout


def test_sessions_and_agents_of_a_project(home: Path) -> None:
    """Sessions and agents are listed by what was said last in them; what was forgotten is not."""
    for number, agent in enumerate(("one", "two")):
        with MemTier.open(home, "shop", agent) as memory:
            for day in range(2):
                at = START + timedelta(days=2 * day + number)
                say(memory, f"Line {day}.", session_id=f"s{day}", observed_at=at)
            gone = say(memory, "Never mind.", session_id="gone")
            memory.forget(ids=[gone.id])
    rows = run_json("sessions", "--project", "shop")["sessions"]
    assert [(row["agent"], row["session"], row["entries"]) for row in rows] == [
        ("two", "s1", 1),
        ("one", "s1", 1),
        ("two", "s0", 1),
        ("one", "s0", 1),
    ]
    assert rows[0]["last"][:10] == "2026-01-08"
    newest = ("sessions", "--project", "shop", "--agent", "one", "--limit", "1")
    mine = run_json(*newest)
    assert [row["session"] for row in mine["sessions"]] == ["s1"] and mine["in_all"] == 2
    assert "1 more" in run_memtier(*newest).stdout
    agents = run_json("agents", "--project", "shop")["agents"]
    assert [(row["agent"], row["sessions"], row["entries"]) for row in agents] == [
        ("two", 2, 2),
        ("one", 2, 2),
    ]
    assert "first said" in run_memtier("agents", "--project", "shop").stdout


def all_commands(
    group: click.Group = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command and group with its words."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from all_commands(command, (*words, name))


@pytest.mark.parametrize(("words", "command"), [*all_commands()], ids=lambda value: str(value))
def test_help_has_an_example_that_the_command_takes(
    words: tuple[str, ...], command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The help of each command shows one example, which its own parser accepts."""
    example = example_of(command, " ".join(words))
    assert f"Example:\n  {example}" in run_memtier(*words, "--help").stdout
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(example)[1 + len(words) :]
    for name in arguments:  # what an example reads is there
        path = Path(name)
        if path.suffix in (".json", ".jsonl", ".gz"):
            path.write_text("[]")
        elif name in ("sets", "judgement", "beam/100K"):
            path.mkdir(parents=True)
    context = click.Context(main, info_name="memtier")
    with command.make_context(" ".join(words), arguments, parent=context):
        pass


def test_every_example_has_its_command() -> None:
    """No plugin has an example of a command that it does not add."""
    added = {words for spec in find_commands().values() for words in spec.examples}
    assert added <= {" ".join(words) for words, _ in all_commands()}
