"""Tell which lines state nothing: acknowledgements, questions, MemTier's own tool calls.  Pure.

They share words with a prompt without answering it, and earn no credit for an answer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

import regex

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.text.speech import MAX_ASKED, only_acknowledges, only_asks
from memtier_plugin.text.traits import TOOL_CALL_MARK, is_standing_instruction
from memtier_plugin.trust.fence import FENCE
from memtier_plugin.trust.tool_calls import called_tool, is_own_tool

NoStatement = Literal["", "call", "receipt", "question"]

_CALL: Final = regex.compile(rf"(?m)^{regex.escape(TOOL_CALL_MARK)}[ ]*([^\s\]]+)")


def missing_statement(item: Entry | Fact) -> NoStatement:
    """Return why a line states nothing, or "" for one that states something.

    ``call``: it is a call of MemTier's own tools, or what they answered; ``receipt``: it only
    acknowledges; ``question``: it only asks.
    """
    if isinstance(item, Fact):
        return ""
    if item.role == "tool":
        return "call" if _is_own_result(item) else ""
    words, calls = _split_calls(item.content)
    if calls and not all(map(_is_own_call, calls)):
        return ""
    talk = _talk(words) if len(words) <= MAX_ASKED or words.isspace() else ""
    if calls:
        return "call" if talk == "receipt" else ""
    return talk


@lru_cache(4096)
def _talk(words: str) -> NoStatement:
    """Return what words do that state nothing; kept, as the same lines are recalled again."""
    if not words.strip() or only_acknowledges(words):
        return "receipt"
    return "question" if only_asks(words) and not is_standing_instruction(words) else ""


def _is_own_result(entry: Entry) -> bool:
    named = entry.tool is not None and is_own_tool(entry.tool.name)
    return named or f"<{FENCE} " in entry.content


def _split_calls(text: str) -> tuple[str, list[str]]:
    """Return the words before an entry's tool calls, and each call."""
    starts = [call.start() for call in _CALL.finditer(text)] if TOOL_CALL_MARK in text else []
    if not starts:
        return text, []
    ends = [*starts[1:], len(text)]
    return text[: starts[0]], [text[s:e] for s, e in zip(starts, ends, strict=True)]


def _is_own_call(call: str) -> bool:
    match = _CALL.match(call)
    assert match is not None  # it was split there
    return is_own_tool(called_tool(match[1], call[match.end() :].strip().removesuffix("]")))
