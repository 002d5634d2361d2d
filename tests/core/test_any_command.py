"""The terminal and MCP are strict too: drawn commands and tool calls are answered or refused."""

from __future__ import annotations

import gc
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from memtier_plugin import MemTier
from memtier_plugin.cli.main import main
from memtier_plugin.mcp.definitions import TOOLS
from memtier_plugin.mcp.server import Binding, MemoryCalls
from memtier_plugin.server.dispatch import Dispatcher
from tests.builders import user_message
from tests.proofs.checks import show

SEED = int(os.environ.get("TEST_MEMTIER_SEED", "1"))
CALLS = int(os.environ.get("TEST_MEMTIER_CALLS", "1000"))
SETTINGS = {"embedding.model": "none", "consolidation.probes": 0, "ledger.durability": "os"}
# They serve until they are stopped, change a host or the settings of all, or measure for minutes.
LEFT_OUT = frozenset(
    {
        *(
            "bench",
            "daemon",
            "demo",
            "distill",
            "edit",
            "embed",
            "gate",
            "hook",
            "install",
            "learn",
        ),
        *(
            "mcp",
            "off",
            "self-check",
            "serve",
            "shared",
            "tui",
            "uplift",
            "web",
            "config",
            "reindex",
        ),
    }
)
WORDS = [
    *("", "x", "main", "p", "../../x", "/dev/null/x", "-1", "0", "3", "1e9", "1e400", "nan"),
    *("9" * 5_000, "\udcff", "a\u202eb\x1b[31m", "x" * 900, "2026-01-05", "9999-99-99"),
    *("yesterday", "10000000w", "{}", "[" * 900, "s1", "Lisbon?", "*", "%00"),
    '{"role": "user", "content": "The gate is green."}',
]
VALUES: list[Any] = [
    *WORDS, None, True, 0, -1, 10**30, 1.5, [], [1], {}, {"a": {"b": []}}, ["x"], "\ud800", "\x00",
]  # fmt: skip


# click opens the files of a command line before it finds that another part of it is wrong.
FILES_STAY_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def memory(home: Path) -> Iterator[MemTier]:
    """Return a memory with a line and a fact."""
    with MemTier.open(home, "p", settings=SETTINGS) as memory:
        memory.record([user_message("I live in Lisbon.")], session_id="s1", run_id="r1")
        memory.remember("The gate is green.")
        yield memory


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the commands that end by themselves, with those of groups."""
    context = click.Context(group)
    for name in group.list_commands(context):
        if path or name not in LEFT_OUT:
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from commands(command, (*path, name))
            else:
                yield (*path, name)


def drawn_line(rng: random.Random, path: tuple[str, ...], files: list[str]) -> list[str]:
    """Return a command line: some options and arguments, of any kind."""
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        inner = command.get_command(click.Context(command), name)
        assert inner is not None
        command = inner
    line = [*path, "--yes"] if any(p.name == "yes" for p in command.params) else [*path]
    for parameter in command.params:
        value = rng.choice([*WORDS, *files])
        if isinstance(parameter, click.Argument):
            line += [value] * (1 if parameter.required else rng.randrange(2))
        elif rng.random() < 0.25 and parameter.opts and parameter.name not in ("as_json", "follow"):
            flag = isinstance(parameter, click.Option) and parameter.is_flag
            line += [parameter.opts[-1]] if flag else [parameter.opts[-1], value]
    return line


def assert_lines_are_read(memory: MemTier) -> None:
    """Look whether every line can be read."""
    assert [f for f in memory.doctor() if ".jsonl" in f.where and f.level != "ok"] == []


def run_commands(memory: MemTier, folder: Path, number: int) -> None:
    """Run so many drawn commands: each ends with a code, and none with a traceback."""
    rng, refused = random.Random(SEED), 0
    files = []
    for name, content in (("deep.json", "[" * 50_000), ("bytes", "\udcff\udcfe\x00"), ("none", "")):
        (folder / name).write_text(content, "utf-8", "surrogateescape")
        files.append(str(folder / name))
    paths = [*commands(main)]
    assert len(paths) > 30 and {*main.list_commands(click.Context(main))} > LEFT_OUT
    for _ in range(number):
        line = drawn_line(rng, rng.choice(paths), files)
        given = rng.choice([*WORDS, '[{"role": "user", "content": "The gate is green."}]'])
        scope = ["--home", str(memory.home), "--project", "p"]
        done = CliRunner().invoke(main, [*scope, *line], input=given.encode("utf-8", "replace"))
        raw = done.exception and not isinstance(done.exception, SystemExit)
        assert not raw, f"{[word[:80] for word in line]}: {done.exception!r}"
        refused += done.exit_code != 0
    gc.collect()  # the files that click left open, before a test that forgives none
    assert_lines_are_read(memory)
    show("any command", {"commands": number, "refused": refused, "raw exceptions": 0})


class Resident:
    """The resident in this process: requests go to the real server as lines of JSON."""

    def __init__(self, home: Path) -> None:
        self.server = Dispatcher(home, scheduler=False)

    def call(self, method: str, params: dict[str, Any], seconds: float) -> Any:
        """Answer a request as the socket would."""
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = self.server.answer(json.loads(line), self.server.methods)
        assert isinstance(answer, dict)
        assert "error" not in answer, answer
        return json.loads(json.dumps(answer["result"]))


def call_tools(memory: MemTier, number: int) -> None:
    """Make so many drawn calls of tools and resources: each has an answer with a text."""
    rng, refused = random.Random(SEED), 0
    resident = Resident(memory.home)
    calls = MemoryCalls(resident, Binding(memory.home, "p", "main"))  # type: ignore[arg-type]
    for _ in range(number):
        if rng.random() < 0.2:
            kind = rng.choice(["entry/", "fact/", "log/", "facts", "", "x/"])
            answer = calls.read_resource(f"memtier://{kind}{rng.choice(WORDS)}")
        else:
            name = rng.choice([*TOOLS, "nosuch", "\ud800"])
            properties = TOOLS.get(name, {}).get("inputSchema", {}).get("properties", {})
            names = [key for key in (*properties, "nosuch") if rng.random() < 0.7]
            drawn = {key: rng.choice([*VALUES, "gate", "Lisbon"]) for key in names}
            answer = calls.call_tool(name, drawn)
        assert isinstance(answer.text, str) and answer.text
        refused += answer.failed
    resident.server.close()
    assert_lines_are_read(memory)
    show("any tool of MCP", {"calls": number, "refused": refused, "raw exceptions": 0})


@FILES_STAY_OPEN
def test_any_command(memory: MemTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with arguments of any kind; a sample."""
    monkeypatch.chdir(tmp_path)
    run_commands(memory, tmp_path, 25)


def test_any_tool(memory: MemTier) -> None:
    """Calls of MCP's tools with arguments of any kind; a sample."""
    call_tools(memory, 60)


@pytest.mark.slow
@FILES_STAY_OPEN
def test_thousands_of_commands(
    memory: MemTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TEST_MEMTIER_CALLS [1000] commands, drawn by TEST_MEMTIER_SEED [1]."""
    monkeypatch.chdir(tmp_path)
    run_commands(memory, tmp_path, CALLS)


@pytest.mark.slow
def test_thousands_of_tool_calls(memory: MemTier) -> None:
    """TEST_MEMTIER_CALLS [1000] calls of MCP's tools, drawn by TEST_MEMTIER_SEED [1]."""
    call_tools(memory, CALLS)
