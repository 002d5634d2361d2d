"""Rate the importance of an entry from 1 to 10, by rules or a model's answer.  Pure.

HMO, section 3.1 and table 6: 9 to 10 for identity, hard limits and milestones, 7 to 8 for
preferences, habits and technical decisions, 4 to 6 for information, 1 to 3 for the ephemeral.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from memtier_papers.hmo.formula import DEFAULT_IMPORTANCE, HIGHEST, LOWEST
from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry
from memtier_plugin.text.phrases import is_standing_instruction, only_acknowledges, only_asks

MAX_CHARS: Final = 2_000  # of an entry
STANDING, PREFERENCE, FACT, STATEMENT, TALK = 9, 8, 6, DEFAULT_IMPORTANCE, 2

LIMIT_RELATIONS: Final = frozenset({"always", "never", "allergic_to", "remember"})
PREFERENCE_RELATIONS: Final = frozenset(
    {"likes", "dislikes", "prefers", "favorite", "diet", "usually", "decided", "considers"}
)
_INTEGER: Final = regex.compile(r"\d+")


def rate_by_rules(entry: Entry, relations: Collection[str] = ()) -> int:
    """Return the importance of an entry.

    Args:
        relations: the relations of facts that rest on it.
    """
    by_user = entry.role == entry.origin == "user"
    text = entry.content[:MAX_CHARS]
    if not LIMIT_RELATIONS.isdisjoint(relations) or (by_user and is_standing_instruction(text)):
        return STANDING
    if not PREFERENCE_RELATIONS.isdisjoint(relations):
        return PREFERENCE
    if relations:
        return FACT
    return TALK if only_acknowledges(text) or only_asks(text) else STATEMENT


def parse_importance(answer: str) -> int | None:
    """Return the first integer from 1 to 10 in a model's answer; None without one."""
    match = _INTEGER.search(answer)
    # For long numbers the first few digits suffice to tell that they are out of range.
    return min(max(int(match[0][:4]), LOWEST), HIGHEST) if match else None
