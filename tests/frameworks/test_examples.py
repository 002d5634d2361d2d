"""The page on frameworks is true: each example runs with the real package, and remembers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier
from memtier_plugin.hooks import host_hooks
from memtier_plugin.ingest.messages import flatten_content
from memtier_plugin.trust.escaping import FENCE
from tests.console_examples import blocks
from tests.frameworks.models import MODELS
from tests.loopback import Loopback
from tests.processes import PATIENCE

pytestmark = pytest.mark.framework

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
# By the framework's module: its examples, each one block of the page.
EXAMPLES: dict[str, list[str]] = {}
for _block in blocks(PAGE.read_text("utf-8")):
    if _block.language == "python":
        for _name in re.findall(r"from memtier_plugin\.frameworks\.(\w+)", _block.text):
            EXAMPLES.setdefault(_name, []).append(_block.text)


def answer(body: dict[str, Any]) -> str:
    """Answer a request with the first line of its block."""
    text = "\n".join(flatten_content(message.get("content")) for message in body["messages"])
    block = text.partition(f"<{FENCE}")[2]
    return block.split("\n- ")[1].partition("] ")[2].partition("\n")[0] if block else "Noted."


@pytest.fixture
def server() -> Iterator[Loopback]:
    """Give the loopback model."""
    with Loopback(native_calls=True) as loopback:
        loopback.answers(answer)
        yield loopback
    host_hooks.workers.drain(PATIENCE)


def run(name: str, server: Loopback) -> dict[str, Any]:
    """Run the example of a framework that is installed, and return what it defined."""
    try:
        import_module(f"memtier_plugin.frameworks.{name}")
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    made = {"model": MODELS[name](server)} if name in MODELS else {}
    exec(compile(EXAMPLES[name][0], name, "exec"), made)
    if "hooks" in made:  # CrewAI's hold for the process
        made["hooks"].unregister()
    return made


def prompts(server: Loopback) -> list[str]:
    """Return all that each request to the model said, as one text."""
    return [json.dumps(seen["body"], ensure_ascii=False) for seen in server.requests]


@pytest.mark.parametrize("name", MODELS)
def test_the_example_of_a_framework(
    name: str, server: Loopback, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second conversation's prompt has once what the first one said, and the answer it."""
    run(name, server)
    monday, tuesday = prompts(server)
    assert FENCE not in monday
    assert tuesday.count(f"<{FENCE}") == 1
    assert "dockctl flush" in tuesday
    assert "dockctl flush" in capsys.readouterr().out
    host_hooks.workers.drain(PATIENCE)
    host = name.replace("_", "-")
    with MemTier.open(home, "harbor", f"{host}.main") as memory:
        entries = [entry for entry in memory.entries() if entry.role != "system"]
        assert [entry.role for entry in entries] == ["user", "assistant"] * 2
        assert len({entry.run_id for entry in entries}) == 2
        assert not any(FENCE in entry.content for entry in entries)


def test_the_example_of_langgraph(server: Loopback, capsys: pytest.CaptureFixture[str]) -> None:
    """A store finds by words what was put into it."""
    run("langgraph", server)
    assert capsys.readouterr().out == "queue To restart the queue we run dockctl flush.\n"
