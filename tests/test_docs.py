"""The README is true: its commands run, and everything public is in it."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from memtier_plugin.cli.main import main
from memtier_plugin.core import hookspecs
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.server.methods import METHODS
from memtier_plugin.trust.fence import FENCE
from tests.loopback import Loopback

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
# These install, or run the tests themselves; `.ci/run` runs them in a fresh clone.
FROM_OUTSIDE = re.compile(r"pip install \.|make \w+")


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def shell_lines() -> list[str]:
    """Return the commands of the console blocks, in order."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ")]


def leaves(group: click.Group, path: str) -> Iterator[str]:
    """Yield the words of every command that is no group."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def hooks() -> Iterator[str]:
    """Yield every hook as `name(argument: type, ...) -> type`."""
    for name, function in vars(hookspecs).items():
        if hasattr(function, f"{hookspecs.ENTRY_POINT_GROUP}_spec"):
            yield name + str(inspect.signature(function)).replace("'", "")


@pytest.mark.parametrize("started", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_readme_commands_run(
    started: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of the README ends with exit 0, in the order in which it stands there.

    Here those that need no shell are called, and in the slow tests all are started.
    """
    folder = tmp_path / "reader"
    folder.mkdir()
    tools = tmp_path / "bin"
    tools.mkdir()
    script = tools / "memtier"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memtier_plugin "$@"\n')
    script.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", os.pathsep.join((str(tools), os.environ["PATH"])))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    commands = [line for line in shell_lines() if not FROM_OUTSIDE.match(line)]
    assert len(commands) > 15
    for command in commands:
        program, *words = shlex.split(command)
        if program == "memtier" and not started:
            result = CliRunner().invoke(main, words)
            code, told = result.exit_code, result.output
        else:
            done = subprocess.run(
                command, shell=True, capture_output=True, text=True, timeout=120,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            code, told = done.returncode, done.stdout + done.stderr
        assert code == 0 and "Traceback" not in told, f"{command}\n{told}"


def test_readme_shows_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's output in the README is the real one; when it fails, paste the new one."""
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(main, ["demo"]).stdout
    assert masked(shown) == masked(blocks("text")[0])


def masked(text: str) -> list[str]:
    """Return the lines without what differs from run to run: ids, days, numbers."""
    text = re.sub(r"\b[0-9A-Z]{26}\b|\b[0-9A-Z]{8}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d", "DAY", text)
    text = re.sub(r"[-+]?\d+\.\d+|\d+ lines", "NUMBER", text)
    return [line.rstrip() for line in text.strip().splitlines()]


def test_readme_makes_what_the_makefile_has() -> None:
    """Every `make` of the README is a goal of the Makefile."""
    goals = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for goal in re.findall(r"make (demo|test|lint|fmt)\b", README):
        assert goal in goals


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_readme_python_runs(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every Python block of the README runs, each on its own, with a model where it asks one."""
    monkeypatch.chdir(tmp_path)
    with Loopback() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        exec(compile(blocks("python")[number], f"README.md, block {number}", "exec"), {})
    assert "Traceback" not in capsys.readouterr().err


def test_readme_agent_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's own agent is told in a later session what was said in an earlier one."""
    [agent] = [block for block in blocks("python") if "OpenAI" in block]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with Loopback() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        for _ in range(2):
            exec(compile(agent, "README.md", "exec"), {})
        prompts = [seen["body"]["messages"][-1]["content"] for seen in server.requests]
    memory = [FENCE in prompt for prompt in prompts]
    assert memory == [False, False, True, True]
    assert "pelican" in prompts[3]


def test_readme_configuration_is_valid(home: Path) -> None:
    """Every YAML block of the README is a project's configuration that is accepted."""
    from memtier_plugin.core.settings.load import load_settings

    folder = home / "projects" / "p"
    folder.mkdir(parents=True, mode=0o700)
    for block in blocks("yaml"):
        (folder / "project.yaml").write_text(block)
        assert load_settings(home, "p") != Settings()


def test_readme_names_every_command() -> None:
    """Every command stands in the README, and `memtier bench` with each data set."""
    for words in leaves(main, "memtier"):
        *group, name = words.split()
        assert f"`{words}" in README or (group[-1] == "bench" and f"`{name}`" in README), words


def test_readme_names_every_hook_with_its_signature() -> None:
    """Every hook stands in the README exactly as it is declared."""
    found = list(hooks())
    assert len(found) == 10
    for signature in found:
        assert f"`{signature}`" in README, signature


@pytest.mark.parametrize("name", [*METHODS, *(field.name for field in fields(Settings))])
def test_readme_names_methods_and_sections(name: str) -> None:
    """Every RPC method and every section of the settings stands in the README."""
    assert f"`{name}`" in README
