"""Tell which lines state nothing: acknowledgements and questions.  Pure.

They share words with a prompt without answering it, and earn no credit for an answer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.text.speech import MAX_ASKED, only_acknowledges, only_asks
from memtier_plugin.text.traits import TOOL_CALL_MARK, is_standing_instruction

NoStatement = Literal["", "receipt", "question"]


def missing_statement(item: Entry | Fact) -> NoStatement:
    """Return why a line states nothing, or "" for one that states something.

    ``receipt``: it only acknowledges; ``question``: it only asks.
    """
    if isinstance(item, Fact) or item.role == "tool" or TOOL_CALL_MARK in item.content:
        return ""
    words = item.content
    return _talk(words) if len(words) <= MAX_ASKED or words.isspace() else ""


@lru_cache(4096)
def _talk(words: str) -> NoStatement:
    """Return what words do that state nothing; kept, as the same lines are recalled again."""
    if not words.strip() or only_acknowledges(words):
        return "receipt"
    return "question" if only_asks(words) and not is_standing_instruction(words) else ""
