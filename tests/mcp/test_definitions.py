"""What clients of the Model Context Protocol are offered, and what is refused before a resident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.installation import install_command
from memtier_plugin.hooks import tools
from memtier_plugin.mcp.definitions import INSTRUCTIONS, MAX_QUERY_CHARS, TOOLS
from memtier_plugin.mcp.server import (
    Binding,
    MemoryCalls,
    build_server,
    check_arguments,
    read_token,
)
from tests.processes import run_memtier

NAMES = ("search", "get", "store", "forget", "explain", "status")
LONG = "x" * (5 * 1024 * 1024)


class NoResident:
    """A resident that must not be asked."""

    def call(self, method: str, *_: Any) -> Any:
        raise AssertionError(f"{method} reached the resident")


def calls(home: Path) -> MemoryCalls:
    """Return calls that fail the test where they go further than their checks."""
    return MemoryCalls(NoResident(), Binding(home, "p", "mcp.main"))  # type: ignore[arg-type]


def test_tools_are_few_and_short() -> None:
    """There are six tools, and all that a client lists of them fits in 6 kB."""
    assert tuple(TOOLS) == tuple(f"memory_{name}" for name in NAMES)
    assert len(json.dumps([*TOOLS.values()], separators=(",", ":"))) + len(INSTRUCTIONS) <= 6_000


def test_every_tool_sets_all_hints() -> None:
    """All four hints are said of every tool; only a forget is destructive."""
    for name, tool in TOOLS.items():
        hints = tool["annotations"]
        assert set(hints) == {
            "readOnlyHint",
            "destructiveHint",
            "idempotentHint",
            "openWorldHint",
        }
        assert hints["destructiveHint"] is (name == "memory_forget")
        assert hints["readOnlyHint"] is (name not in ("memory_forget", "memory_store"))


def test_every_tool_is_one_of_the_hosts() -> None:
    """A tool of a client is implemented where those of the hosts are: there is no second way."""
    known = {**tools.TOOLS, **tools.CLIENT_TOOLS}
    assert {name.replace("memory_", "memtier_") for name in TOOLS} <= set(known)
    assert build_server(calls(Path("/nowhere"))).name == "memtier"


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("memory_search", {}, "query"),
        ("memory_search", {"query": 3}, "string"),
        ("memory_search", {"query": ""}, "minLength"),
        ("memory_search", {"query": None}, "string"),
        ("memory_search", {"query": ["a"]}, "string"),
        ("memory_search", {"query": LONG}, str(MAX_QUERY_CHARS)),
        ("memory_search", {"query": "a", "limit": 0}, "minimum"),
        ("memory_search", {"query": "a", "limit": 10**30}, "maximum"),
        ("memory_search", {"query": "a", "limit": "3"}, "integer"),
        ("memory_search", {"query": "a", "sender": "you"}, "additionalProperties"),
        ("memory_search", {"query": "a", "store": "all"}, "facts"),
        ("memory_search", {"query": "a", "store": ["facts"]}, "enum"),
        ("memory_get", {"id": "ABC"}, "minLength"),
        ("memory_get", {"ids": ["ABCDEF"]}, "required"),
        ("memory_store", {"text": LONG}, "maxLength"),
        ("memory_store", {"text": {"a": LONG}}, "string"),
        ("memory_forget", {"ids": []}, "minItems"),
        ("memory_forget", {"ids": "ABCDEF"}, "array"),
        ("memory_forget", {"ids": ["ABCDEF"] * 101}, "maxItems"),
        ("memory_forget", {"ids": [LONG]}, "maxLength"),
        ("memory_explain", {"recall": 7}, "string"),
        ("memory_status", {"project": "other"}, "additionalProperties"),
        ("memory_purge", {}, "there is no tool"),
        (LONG, {}, "there is no tool"),
    ],
)
def test_bad_arguments(home: Path, tool: str, arguments: dict[str, Any], named: str) -> None:
    """Wrong arguments are a short error that names the rule; the resident never sees them."""
    answer = calls(home).call_tool(tool, arguments)
    assert answer.failed and named in answer.text and len(answer.text) < 500


def test_good_arguments() -> None:
    """What the definitions allow passes."""
    for tool, arguments in {
        "memory_search": {"query": "where is the key?", "limit": 50, "store": "turns"},
        "memory_get": {"id": "5VPWBP01"},
        "memory_store": {"text": "The key is under the mat."},
        "memory_forget": {"ids": ["5VPWBP01"]},
        "memory_explain": {},
        "memory_status": {},
    }.items():
        assert check_arguments(tool, arguments) is None


@pytest.mark.parametrize(
    "uri",
    [
        *("memtier://", "memtier://log/", "memtier://entry/", "memtier://entry/x"),
        *("memtier://facts/1", "file:///etc/passwd", "memtier://entry/" + "x" * 100),
        *("memtier://journal/today", "log/today"),
    ],
)
def test_bad_resources(home: Path, uri: str) -> None:
    """An address of no resource is an error; the resident never sees it."""
    assert calls(home).read_resource(uri).failed


def test_the_command_refuses(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No project, a relative home or a missing SDK is one line that says what to do."""
    assert "--project NAME" in run_memtier("--home", home, "mcp", code=1).output
    relative = run_memtier("--home", "here", "--project", "p", "mcp", code=1).output
    assert "relative" in relative
    monkeypatch.setattr("memtier_plugin.hosts.coding_agents.find_spec", lambda name: None)
    missing = run_memtier("--home", home, "--project", "p", "mcp", code=1).output
    assert missing.count("\n") == 1 and install_command("memtier[mcp]") in missing


def test_the_token_is_private_and_kept(home: Path) -> None:
    """The token for HTTP is made once, for the user alone."""
    token = read_token(home)
    assert read_token(home) == token and len(token) >= 32
    assert (home / "mcp-token").stat().st_mode & 0o777 == 0o600
