"""Tell what a host says in its user's place from what a person typed: notices, loops, retries.

Hosts begin turns of their own with a message of the role ``user``: a background process ended, a
goal is worked on, an answer was cut off.  Nobody said that, so it is no one's statement, and nobody
asked, so no recall answers it.  The openings are those of OpenClaw 2026.9 and Hermes Agent 0.19.
"""

from __future__ import annotations

from typing import Final

# Openings of messages that a host makes up as a whole.
_OPENINGS: Final = {
    "openclaw": (
        "A background task completed. Use this result to reply to the user",
        "A scheduled automation delivered this message to this channel:",
        "A scheduled cron event was triggered",
        "A scheduled reminder has been triggered. The reminder content is:",
        "An async command completion event was triggered",
        "Follow the heartbeat monitor scratch context when provided.",
        "Your previous reply was not delivered to the conversation",
        "Your previous response was only an acknowledgement",
        "Your previous turn was interrupted by a gateway restart",
    ),
    "hermes": (
        "[ASYNC DELEGATION ",
        "[Background process ",
        "[Continuing toward this kanban task",
        "[Continuing toward your standing goal]",
        "[IMPORTANT: Background process ",
        "[IMPORTANT: MCP servers have been reloaded",
        "[IMPORTANT: Watch ",
        "[Your active task list was preserved across context compression]",
    ),
}
# Openings by which OpenClaw goes on with a turn that it began before; they begin no turn.
_CONTINUATIONS: Final = (
    "Continue the current task from the existing transcript",
    "Continue the current task from the transcript using the updated tools",
    "Continue the current task using the updated permissions",
    "Continue the current task with the updated tools and permissions",
    "[System note: Tool-loop warning",
)
# Notes that a host puts before a person's message, or in place of one.
_NOTES: Final = ("[System note: ", "[System: ", "[SYSTEM: ")
_MAX_NOTES: Final = 8  # notes before one message


def is_continuation(text: str) -> bool:
    """Tell whether a host's message goes on with a turn, instead of beginning one."""
    return text.startswith(_CONTINUATIONS)


def user_words(text: str, host: str) -> str:
    """Return what a person typed in a message of the role ``user``; empty if nobody did."""
    words = text.lstrip()
    for _ in range(_MAX_NOTES):
        if not words.startswith(_NOTES):
            break
        _, separator, rest = words.partition("]\n")
        words = rest.lstrip() if separator else ""
    else:
        return ""
    if words.startswith((*_CONTINUATIONS, *_OPENINGS[host])):
        return ""
    return text if len(words) == len(text.lstrip()) else words
