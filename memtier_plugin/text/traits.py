"""Traits of a text that the index keeps: standing instructions, quotable lines."""

from __future__ import annotations

import re
from typing import Final

from memtier_plugin.core.records import Entry

_STANDING: Final = re.compile(
    r"(?im)^\W*(?:please[ ,]+)?(?:always|never|do not ever|don['’]?t ever|from now on|whenever i|"
    r"every time i|in (?:the )?future)\b|\b(?:when|whenever|every time|if) i ask (?:you )?(?:about|"
    r"for|to|how|what)\b|\bfrom now on\b"
)
_STANDING_HINTS: Final = ("always", "ever", "now on", "future", "i ask")  # each match has one
_BEGINNING: Final = 400  # characters within which an instruction is stated


def is_standing_instruction(text: str) -> bool:
    """Check whether a user's words are a standing instruction (English)."""
    beginning = text[:_BEGINNING]
    lower = beginning.lower()
    hinted = any(hint in lower for hint in _STANDING_HINTS)
    return hinted and bool(_STANDING.search(beginning))


TOOL_CALL_MARK: Final = "[tool call:"


def is_quotable(entry: Entry) -> bool:
    """Check whether an entry may be quoted in a summary: a user's or the assistant's own words."""
    return (
        entry.role in ("user", "assistant")
        and entry.origin in ("user", "assistant")
        and not entry.tainted
        and entry.retrievable
        and not entry.content.lstrip().startswith(TOOL_CALL_MARK)
    )
