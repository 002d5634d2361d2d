"""The events of coding agents' hooks, and the name that each agent has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CODING_AGENTS: Final = (
    *("claude-code", "codex", "cursor", "gemini", "goose", "opencode", "vscode", "windsurf", "zed"),
)
# What each event of an agent with hooks means; events that are not named are ignored.
EVENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "claude-code": {
        "SessionStart": "session_start",
        "UserPromptSubmit": "prompt",
        "PostToolUse": "tool",
        "PostToolUseFailure": "tool",
        "PreCompact": "compaction",
        "SubagentStop": "subagent_end",
        "Stop": "turn_end",
        "SessionEnd": "session_end",
    },
    "codex": {
        "SessionStart": "session_start",
        "UserPromptSubmit": "prompt",
        "PostToolUse": "tool",
        "PreCompact": "compaction",
        "Stop": "turn_end",
    },
    "gemini": {
        "SessionStart": "session_start",
        "BeforeAgent": "prompt",
        "AfterTool": "tool",
        "PreCompress": "compaction",
        "AfterAgent": "turn_end",
        "SessionEnd": "session_end",
    },
}
# What an event is asked for alone.  Gemini CLI calls PreCompress before every request of a turn,
# whether it compresses or not; only by hand does it mean what it says.
MATCHERS: Final[Mapping[str, str]] = {
    "PostToolUse": "*",
    "PostToolUseFailure": "*",
    "AfterTool": "*",
    "PreCompress": "manual",
}


def agent_of(host: str) -> str:
    """Return the name by which MemTier knows the agent."""
    return f"{host}.main"
