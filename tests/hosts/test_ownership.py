"""What the hosts themselves answer about whose the memory tools and hooks are."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.hosts import install
from memtier_plugin.hosts.doctor import ask_hosts
from memtier_plugin.hosts.ownership import OPENCLAW_HOOKS, TOOLS

INSPECTED: dict[str, Any] = {
    "tools": [{"names": [tool]} for tool in TOOLS],
    "typedHooks": [{"name": hook} for hook in OPENCLAW_HOOKS],
}
CATALOG: dict[str, Any] = {
    "groups": [
        {"tools": [{"id": "read", "source": "core"}]},
        {"tools": [{"id": "memory_get", "source": "plugin", "pluginId": "memory-core"}]},
        {"tools": [{"id": tool, "source": "plugin", "pluginId": "memtier"} for tool in TOOLS]},
    ]
}
LISTENERS: list[socket.socket] = []
GRANTED = {"grants": {"hooks": {"allowConversationAccess": {"effective": True}}}}


@pytest.fixture(autouse=True)
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Point both hosts into a folder, with commands of its own on the path."""
    top = tmp_path / "hosts"
    monkeypatch.setenv("HERMES_HOME", str(top / "hermes"))
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", str(top / "openclaw" / "openclaw.json"))
    (top / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{top / 'bin'}:/usr/bin:/bin")
    yield top
    while LISTENERS:
        LISTENERS.pop().close()


def openclaw_answers(hosts: Path, answers: dict[str, Any]) -> None:
    """Put a command in OpenClaw's place that answers by its words, and fails for all else."""
    path = hosts / "bin" / "openclaw"
    port = 1  # at which nothing listens
    if "tools.catalog" in answers:
        listener = socket.create_server(("127.0.0.1", 0))
        LISTENERS.append(listener)
        port = listener.getsockname()[1]
    config = hosts / "openclaw/openclaw.json"
    if config.exists():
        document = json.loads(config.read_text())
        config.write_text(json.dumps(document | {"gateway": {"port": port}}))
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"answers = json.loads({json.dumps(answers)!r})\n"
        "key = next((key for key in answers if key in sys.argv), None)\n"
        "print('a warning'); key or sys.exit(1); print(json.dumps(answers[key]))\n"
    )
    path.chmod(0o755)


def found(level: str) -> list[str]:
    """Return what the hosts say, of one level."""
    return [finding.what for finding in ask_hosts() if finding.level == level]


def test_a_host_without_memtier_is_not_asked(hosts: Path, home: Path) -> None:
    """A host that has nothing of ours, or that is not on the path, is not asked."""
    openclaw_answers(hosts, {})
    assert ask_hosts() == []
    (hosts / "bin/openclaw").unlink()
    install.install_host("openclaw", home, "p")
    install.install_host("hermes", home, "p")
    assert ask_hosts() == []


@pytest.mark.parametrize("running", [True, False])
def test_what_is_ours(hosts: Path, home: Path, running: bool) -> None:
    """Tools and hooks that are MemTier's are said to be, and who says so."""
    install.install_host("openclaw", home, "p")
    gateway = {"tools.catalog": CATALOG, "plugins.inspect": GRANTED} if running else {}
    openclaw_answers(hosts, {**gateway, "inspect": INSPECTED})
    assert found("error") == found("warn") == []
    tools, *others, hooks = found("ok")
    assert others == ["beside them OpenClaw offers memory_get of memory-core"][:running]
    assert "memtier_search" in tools and "before_prompt_build" in hooks
    assert ("the running Gateway" in tools) is running


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (
            {"tools.catalog": {"groups": [{"tools": [{"id": "memtier_get", "pluginId": "x"}]}]}},
            "memtier_get belongs to x in OpenClaw, says the running Gateway",
        ),
        ({"tools.catalog": {"groups": []}}, "memtier_store is not offered to the model"),
        (
            {"inspect": {**INSPECTED, "typedHooks": []}},
            "does not call MemTier's before_prompt_build",
        ),
        (
            {"plugins.inspect": json.loads(json.dumps(GRANTED).replace("true", "false"))},
            "does not show conversations to MemTier",
        ),
    ],
)
def test_what_is_another_s(hosts: Path, home: Path, answers: dict[str, Any], says: str) -> None:
    """A tool that another plugin owns, a dropped hook, a grant not in force: each is an error."""
    install.install_host("openclaw", home, "p")
    usual = {"tools.catalog": CATALOG, "plugins.inspect": GRANTED, "inspect": INSPECTED}
    openclaw_answers(hosts, {**usual, **answers})
    assert any(says in what for what in found("error"))


def test_asking_leaves_nothing(hosts: Path, home: Path) -> None:
    """The host that is asked writes to a state of its own, which is gone afterwards."""
    install.install_host("openclaw", home, "p")
    install.install_host("hermes", home, "p")
    for name, variable in (("openclaw", "OPENCLAW_STATE_DIR"), ("python", "HERMES_HOME")):
        program = hosts / "bin" / name
        program.write_text(
            f"#!/bin/sh\nmkdir -p ${variable}\necho x > ${variable}/left\n"
            f"echo ${variable} >> {hosts}/asked\n"
        )
        program.chmod(0o755)
    (hosts / "bin/hermes").write_text(f"#!{hosts / 'bin/python'}\n")
    (hosts / "bin/hermes").chmod(0o755)
    before = {path for folder in ("openclaw", "hermes") for path in (hosts / folder).rglob("*")}
    ask_hosts()
    states = (hosts / "asked").read_text().split()
    assert len(states) == 2 and not any(Path(state).exists() for state in states)
    after = {path for folder in ("openclaw", "hermes") for path in (hosts / folder).rglob("*")}
    assert after == before


@pytest.mark.parametrize("answer", [{}, {"inspect": []}])
def test_a_host_that_does_not_answer(hosts: Path, home: Path, answer: dict[str, Any]) -> None:
    """A host that fails, or answers something else, is a warning and no traceback."""
    install.install_host("openclaw", home, "p")
    openclaw_answers(hosts, answer)
    assert found("warn") == ["OpenClaw did not report who owns the memory tools"]


def test_hermes_is_asked_by_its_own_python(hosts: Path, home: Path) -> None:
    """What Hermes answers is what its memory manager holds, in the Python of its command."""
    install.install_host("hermes", home, "p")
    python = hosts / "bin" / "python"
    program = hosts / "bin" / "hermes"
    program.write_text(f"#!{python}\n")
    program.chmod(0o755)
    owners = dict.fromkeys(TOOLS, "memtier")
    for provider, tools, level, says in (
        ("memtier", owners, "ok", "are MemTier's in Hermes"),
        ("memtier", owners | {"memtier_get": "mem0"}, "error", "memtier_get belongs to mem0"),
        ("memtier", {}, "error", "memtier_get is not offered"),
        ("mem0", {}, "error", "the memory that Hermes loads is mem0"),
    ):
        answer = json.dumps({"provider": provider, "tools": tools})
        python.write_text(f"#!/bin/sh\nprintf '%s' '{answer}'\n")
        python.chmod(0o755)
        assert any(says in what for what in found(level))
