"""What Codex, Gemini CLI and Claude Code's sub-agents report, in the shapes that real runs had.

Recorded from Codex 0.169.0, Gemini CLI 0.61.0 and Claude Code 2.1.331; `tests/runtimes` runs them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.records import Entry
from memtier_plugin.hooks.coding_agents import AgentHooks, TurnFile
from memtier_plugin.memory import MemTier
from memtier_plugin.trust.escaping import FENCE, remove_blocks
from tests.hooks.test_coding_agents import ResidentHere, event

ENDED = {  # a command of Codex as the file of its session has it, by what the hook got of it
    "item": lambda code: {
        "type": "event_msg",
        "payload": {
            "type": "item_completed",
            "item": {"type": "CommandExecution", "id": "call_1", "exit_code": code},
        },
    },
    "head": lambda code: {
        "type": "response_item",
        "payload": {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": f"Chunk ID: 9\nWall time: 0.1 seconds\nProcess exited with code {code}\n"
            "Original token count: 9\nOutput:\nProcess exited with code 9\n",
        },
    },
}


def recorded(home: Path, agent: str) -> Iterator[Entry]:
    """Yield the entries of an agent."""
    with MemTier.open(home, "p", agent) as memory:
        yield from [e for e in memory.entries(agent=agent) if e.agent_id == agent]


def outcome(home: Path, agent: str) -> tuple[bool | None, int | None]:
    """Return how the only call of an agent fared."""
    [tool] = [e.tool for e in recorded(home, agent) if e.role == "tool" and e.tool]
    return tool.ok, tool.exit_code


def take_codex_turn(
    home: Path, lines: list[Any], output: str = "", *, compacted: bool = False
) -> None:
    """Pass a turn of Codex with one command on, whose session's file has some lines."""
    rollout = home.parent / "rollout.jsonl"
    rollout.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    more = {"turn_id": "t1", "transcript_path": str(rollout)}
    hooks = AgentHooks(ResidentHere(home), "codex", "p")
    hooks.pass_event(event("UserPromptSubmit", prompt="Build the heron release.", **more))
    call = {"tool_name": "Bash", "tool_use_id": "call_1", "tool_input": {"command": "make"}}
    hooks.pass_event(event("PostToolUse", tool_response=output, **call, **more))
    if compacted:
        hooks.pass_event(event("PreCompact", trigger="auto", **more))
    hooks.pass_event(event("Stop", last_assistant_message="Done.", **more))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("code", [0, 2, 127])
@pytest.mark.parametrize("form", ENDED)
def test_codex_commands(home: Path, form: str, code: int) -> None:
    """A command of Codex fared as the session's file says, whatever it printed itself."""
    other = {"payload": {"item": {"id": "call_0", "exit_code": 9}}}
    take_codex_turn(home, ["{", "[]", '{"payload": 5, "exit_code": 1}', other, ENDED[form](code)])
    assert outcome(home, "codex.main") == (code == 0, code)


def test_codex_that_compacts_in_a_turn(home: Path) -> None:
    """What is recorded when a conversation is compacted has its outcome, too."""
    take_codex_turn(home, [ENDED["item"](5)], compacted=True)
    assert outcome(home, "codex.main") == (False, 5)


@pytest.mark.parametrize("lines", [[], [ENDED["item"](None)], ["{}"]])
def test_codex_says_nothing(home: Path, lines: list[Any]) -> None:
    """Nobody knows how a command ended that no line tells of."""
    take_codex_turn(home, lines, "fine\n")
    assert outcome(home, "codex.main") == (None, None)


GEMINI = {
    "Output: (empty)\nExit Code: 3\nProcess Group PGID: 25206": (False, 3),
    "Output: fine\nProcess Group PGID: 25334": (True, 0),
    "Output: Exit Code: 9\nfine\nProcess Group PGID: 25334": (True, 0),
    "Output: half\nExit Code: 1\nSignal: 15\nProcess Group PGID: 7": (False, 1),
    "Output: half\nSignal: 9\nProcess Group PGID: 7": (False, None),
    "Output: up\nBackground PIDs: 8, 9\nProcess Group PGID: 7": (True, 0),
    "Command was cancelled by user before it could complete.": (None, None),
    "Command moved to background (PID: 5). Output hidden. Press Ctrl+B to view.": (None, None),
}


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("text", GEMINI)
def test_gemini_commands(home: Path, text: str, wrapped: bool) -> None:
    """Gemini CLI names an exit code unless it is 0, below the output; the rest is unknown."""
    hooks = AgentHooks(ResidentHere(home), "gemini", "p")
    content = f"<untrusted_context>\n{text}\n</untrusted_context>" if wrapped else text
    call = {"tool_name": "run_shell_command", "tool_input": {"command": "make"}}
    hooks.pass_event(event("BeforeAgent", prompt="Build the heron release."))
    hooks.pass_event(event("AfterTool", tool_response={"llmContent": content}, **call))
    hooks.pass_event(event("AfterAgent", prompt="Build it.", prompt_response="Done."))
    assert outcome(home, "gemini.main") == GEMINI[text]


def test_gemini_gets_a_fence_without_angles(home: Path) -> None:
    """No angle bracket is left for Gemini CLI to escape, and the block is still taken out."""
    hooks = AgentHooks(ResidentHere(home), "gemini", "p")
    hooks.pass_event(event("BeforeAgent", prompt="The a<b> crate goes to the heron <dock>."))
    hooks.pass_event(event("AfterAgent", prompt="x", prompt_response="Noted."))
    asked = event("BeforeAgent", "s2", prompt="Where does the crate go?")
    block = hooks.pass_event(asked)["hookSpecificOutput"]["additionalContext"]
    assert "heron" in block and not {*"<>"} & {*block}
    assert block.startswith(f"[{FENCE} recall=") and block.endswith(f"[/{FENCE}]\n")
    for shown in (block, f"<hook_context>{block}</hook_context>"):
        assert "heron" not in remove_blocks(f"Where does it go?\n{shown}\nThank you.")
    assert remove_blocks(f"Before.\n{block}\nAfter.") == "Before.\n\nAfter."


def test_gemini_compresses_only_when_asked(home: Path) -> None:
    """The event that comes before every request of a turn is no compaction; `/compress` is."""
    hooks = AgentHooks(ResidentHere(home), "gemini", "p")
    hooks.pass_event(event("BeforeAgent", prompt="The heron build is red."))
    hooks.pass_event(event("PreCompress", trigger="auto"))
    assert not [*recorded(home, "gemini.main")]
    hooks.pass_event(event("PreCompress", trigger="manual"))
    assert [e.content for e in recorded(home, "gemini.main")] == ["The heron build is red."]


def test_sub_agents(home: Path) -> None:
    """A sub-agent's calls are in a log of its own, each agent's in a session; they make no turn."""
    hooks = AgentHooks(ResidentHere(home), "claude-code", "p")
    hooks.pass_event(event("UserPromptSubmit", prompt="Have the herons counted.", prompt_id="p1"))
    for name, code in (("a1", 0), ("a2", 4)):
        sub = {"agent_id": name, "agent_type": "counter", "prompt_id": "p1"}
        call = {"tool_name": "Bash", "tool_use_id": f"t{name}", "tool_input": {"command": "count"}}
        how = {"error": f"Exit code {code}"} if code else {"tool_response": {"stdout": "7"}}
        kind = "PostToolUseFailure" if code else "PostToolUse"
        hooks.pass_event(event(kind, **call, **how, **sub))
        hooks.pass_event(event("SubagentStop", last_assistant_message=f"{name} is done.", **sub))
    own = {"agent_id": "a3", "agent_type": ""}  # that of Claude Code itself, which compacts
    hooks.pass_event(event("SubagentStop", last_assistant_message="A summary.", **own))
    hooks.pass_event(event("Stop", last_assistant_message="Counted."))
    entries = [*recorded(home, "claude-code.main.subagent")]
    assert {(e.session_id, e.parent, e.run_id) for e in entries} == {
        ("s1.a1", "s1", "a1"),
        ("s1.a2", "s1", "a2"),
    }
    tools = [e.tool for e in entries if e.role == "tool" and e.tool]
    assert [(t.ok, t.exit_code) for t in tools] == [(True, None), (False, 4)]
    assert [e.content for e in entries if e.content.endswith("done.")] == [
        "a1 is done.",
        "a2 is done.",
    ]
    lines = [e.content for e in recorded(home, "claude-code.main")]
    assert lines == ["Have the herons counted.", "Counted."]
    assert [path.name for path in (home / "queue" / "turns").rglob("*.jsonl")] == ["s1.jsonl"]


def test_a_call_before_any_prompt(home: Path) -> None:
    """A session that began without MemTier has each call once, and the run's own id."""
    hooks = AgentHooks(ResidentHere(home), "claude-code", "p")
    call = {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "ls"}}
    hooks.pass_event(event("PostToolUse", tool_response={"stdout": "x"}, prompt_id="p9", **call))
    [first, second] = TurnFile.of(home, "claude-code", "s1").events()
    assert "tool_name" not in first and second["tool_name"] == "Bash"
    hooks.pass_event(event("Stop", last_assistant_message="Listed."))
    entries = [*recorded(home, "claude-code.main")]
    assert [e.role for e in entries] == ["assistant", "tool", "assistant"]
    assert {e.run_id for e in entries} == {"p9"}
