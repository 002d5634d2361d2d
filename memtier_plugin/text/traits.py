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


_STANDING_HINTS: Final = ("always", "ever", "now on", "future", "i ask")  # one is in any match


_BEGINNING: Final = 400  # characters in which an instruction is stated


def is_standing_instruction(text: str) -> bool:
    """Tell whether a user's words are an instruction for all times to come (English)."""
    beginning = text[:_BEGINNING]
    lower = beginning.lower()
    for hint in _STANDING_HINTS:
        if hint in lower:
            return bool(_STANDING.search(beginning))
    return False


TOOL_CALL_MARK: Final = "[tool call:"


def is_quotable(entry: Entry) -> bool:
    """Tell whether an entry may be quoted in a summary: a user's or the assistant's own words."""
    return (
        entry.role in ("user", "assistant")
        and entry.origin in ("user", "assistant")
        and not entry.tainted
        and entry.retrievable
        and not entry.content.lstrip().startswith(TOOL_CALL_MARK)
    )
