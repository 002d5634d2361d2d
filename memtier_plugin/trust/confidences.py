"""Recognise what is told in confidence, and what is sensitive by its kind.  Pure.

A message in which somebody says that it is not to go any further is a confidence as a whole,
whatever it tells: "between us, the port is 8443" is not to be published because of the port. By
what it points at, it makes one of what was said before, of what follows, or of all of a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from memtier_plugin.core.records import Entry
from memtier_plugin.text.lexicon import lexicons, words_of
from memtier_plugin.text.word_patterns import PatternTable, Words, pattern_table

SENSITIVE: Final = "is sensitive"  # begins the reason why a fact waits for review

_MAX_CHARS: Final = 10_000  # of a message that are read, from each of its ends
_BARE: Final = 1  # words with a meaning that a message has which only asks for discretion


@dataclass(frozen=True, slots=True)
class Confidence:
    """What a message makes a confidence, besides itself and the answer to it.

    ``before``: what was said before it; ``after``: what the speaker says next; ``whole``: all of
    the session.
    """

    before: bool = False
    after: bool = False
    whole: bool = False


@lru_cache(128)  # the next run of a session reads its last one again
def find_confidence(text: str) -> Confidence | None:
    """Return what a message makes a confidence; None where it is none itself."""
    if len(text) > 2 * _MAX_CHARS:
        text = f"{text[:_MAX_CHARS]}\n{text[-_MAX_CHARS:]}"
    words = Words.of(text)
    spans = [*_confidences().find(words)]
    if not spans:
        return None
    pointers = [*_pointers().find(words)]
    pointed = {span.name for span in pointers}
    outside = [word for word in words.outside([*spans, *pointers]) if word not in _empty_words()]
    bare = len(outside) <= _BARE
    if "whole" in pointed:
        return Confidence(whole=True)
    if "backward" in pointed or "forward" in pointed:
        return Confidence(before="backward" in pointed, after="forward" in pointed)
    return Confidence(before=bare, after=bare and text.rstrip().endswith(("?", "？")))


def sensitive_kind(text: str) -> str:
    """Return of which kind a text is sensitive, "" if of none: health, pay, belief and so on.

    Allergies and diets are not: who knows them protects the person.
    """
    first = min(_sensitive().find(Words.of(text)), key=lambda span: span.start, default=None)
    return first.name if first else ""


def confided_entries(entries: Sequence[Entry]) -> set[str]:
    """Return the ids of a session's entries that are confidences: whole runs, as answers repeat.

    Args:
        entries: of one agent, session and sender, in their order.
    """
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        runs.setdefault(entry.run_id, []).append(entry)
    order, private = [*runs], set[str]()
    for number, run in enumerate(order):
        for entry in runs[run]:
            spoken = entry.role == "user" and entry.origin == "user"
            confidence = find_confidence(entry.content) if spoken else None
            if confidence is None:
                continue
            if confidence.whole:
                return {entry.id for entry in entries}
            private.add(run)
            private.update(order[max(0, number - 1) : number] if confidence.before else ())
            private.update(order[number + 1 : number + 2] if confidence.after else ())
    return {entry.id for run in private for entry in runs[run]}


@cache
def _confidences() -> PatternTable:
    return pattern_table({"here": "confidences"})


@cache
def _sensitive() -> PatternTable:
    return PatternTable(
        (kind, language, patterns)
        for language in lexicons()
        for kind, patterns in language.sensitive.items()
    )


@cache
def _pointers() -> PatternTable:
    return pattern_table(
        {
            "backward": "confidence_backward",
            "forward": "confidence_forward",
            "whole": "confidence_whole",
        }
    )


@cache
def _empty_words() -> frozenset[str]:
    classes = ("stop_words", "function_words", "first_person", "second_person", "third_person")
    return frozenset[str]().union(*map(words_of, classes))
