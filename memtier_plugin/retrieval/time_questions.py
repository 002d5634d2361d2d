"""Decide whether a prompt asks by time: "what did I do yesterday?".  Pure.

Such a question has hardly a word of its own besides the time that it names: what was said then is
found by the time alone, and answers it.  A prompt that only mentions a date does not ask so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.retrieval.prompt_kind import prompt_kinds
from memtier_plugin.retrieval.prompt_words import split_words
from memtier_plugin.retrieval.query import asks_overview
from memtier_plugin.retrieval.topic_words import count_content
from memtier_plugin.text.dates.spans import TimeSpan
from memtier_plugin.text.lexicon import words_of

# In so few days little is said, so that a question may say more; one about oneself in a month.
_SHORT: Final = timedelta(days=3)
_MONTH: Final = timedelta(days=31)
_OWN_PAST: Final = regex.compile(
    r"(?i)\b(?:did|have|had|was|were)\W+(?:i|we)\b|\b(?:habe|haben|hatten?)\W+(?:ich|wir)\b"
    r"|\bj['’]ai\b|\bai-je\b|\bavons-nous\b|\b(?:he|hemos)\b|[了过]"
)
_OPENING: Final = 4  # words among which the one that asks stands


def words_beside_time(text: str, spans: Sequence[TimeSpan]) -> list[str] | None:
    """Return what a prompt asks for of what was said in these times: hardly a word, or none.

    Returns:
        None for a prompt that does not ask by time.
    """
    if not spans or not _is_question(text):
        return None
    rest = text
    for span in spans:
        rest = rest.replace(span.words, " ", 1)
    kinds, (count, words) = prompt_kinds(text), count_content(rest)
    longest = max(span.end - span.start for span in spans)
    most = 1 + (longest <= (_MONTH if kinds.personal else _SHORT))
    if kinds.task or kinds.general or count > most:
        return None
    if asks_overview(text):
        return []
    # "What could I eat tonight?" is about what is to come; without the asker it may be about the
    # world, about each winter, or about somebody whose lines are found by their name.
    ahead = any(span.open for span in spans) and not asks_own_past(text)
    habitual = any(span.may_recur for span in spans)
    of_others = not kinds.personal and (kinds.several or habitual or _names_any(words, text))
    return None if ahead or of_others else words


def asks_own_past(text: str) -> bool:
    """Return whether a prompt asks what its asker did: then, and not on a date that they named."""
    return _OWN_PAST.search(text) is not None


def _names_any(words: Sequence[str], text: str) -> bool:
    return any(word.title() in text[1:] for word in words if word.isascii())


def _is_question(text: str) -> bool:
    openers = words_of("question_openers")
    return any(mark in text for mark in "?？") or not openers.isdisjoint(
        split_words(text)[:_OPENING]
    )
