"""Collect the words that a project shares: a vocabulary for its own embedding model.

The vocabulary of a model can be read by whoever has the model's files, so a word must not betray
what one person said once: it counts only if it recurs in several sessions and, where the project
has several people or agents, is used by at least two of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry
from memtier_plugin.text.traits import is_quotable

MIN_SESSIONS: Final = 3
MIN_PEOPLE: Final = 2  # pairs of agent and sender, if the project has as many
MAX_WORDS: Final = 5_000

# Letters alone: no number, key or identifier. Scripts that do not separate words are left out.
_WORD: Final = regex.compile(
    r"(?<![\p{L}\p{M}\p{N}_])[[\p{L}\p{M}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]]{3,30}"
    r"(?![\p{L}\p{M}\p{N}_])",
    regex.V1,
)


@dataclass(slots=True)
class _Usage:
    sessions: set[tuple[str, str]] = field(default_factory=set)
    people: set[tuple[str, str | None]] = field(default_factory=set)
    forms: Counter[str] = field(default_factory=Counter)


def collect_shared_words(entries: Iterable[Entry]) -> list[str]:
    """Return the words used in at least three sessions and by two people, most frequent first.

    A person is a pair of agent and sender; in a project of only one, that one suffices. Only what
    users and assistants said themselves counts: no tool output, nothing tainted by it.
    """
    usages: defaultdict[str, _Usage] = defaultdict(_Usage)
    people: set[tuple[str, str | None]] = set()
    for entry in entries:
        if not is_quotable(entry):
            continue
        person = (entry.agent_id, entry.sender)
        people.add(person)
        for word in _WORD.findall(entry.content):
            usage = usages[word.casefold()]
            usage.sessions.add((entry.agent_id, entry.session_id))
            usage.people.add(person)
            usage.forms[word] += 1
    enough = min(MIN_PEOPLE, len(people))
    shared = [
        usage
        for usage in usages.values()
        if len(usage.sessions) >= MIN_SESSIONS and len(usage.people) >= enough
    ]
    shared.sort(key=lambda usage: (-usage.forms.total(), min(usage.forms)))
    return [usage.forms.most_common(1)[0][0] for usage in shared[:MAX_WORDS]]
