"""Make intentions of what a user wants to be reminded of, and find the words that close one.  Pure.

What an intention waits for is read from its words when a prompt is compared with it
(`retrieval.intentions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from memtier_plugin.core.records import INTENDED, Entry, FactDraft
from memtier_plugin.facts.extraction.corrections import draft_of
from memtier_plugin.retrieval.dialogue_acts import closes, intends
from memtier_plugin.retrieval.duplicates import DENIES
from memtier_plugin.text.languages import iter_sentences

EXTRACTOR: Final = "intention"
_SHORT: Final = 240  # characters of a message that is kept as it is: "it" needs what it refers to


def find_intentions(entries: Sequence[Entry]) -> Iterator[FactDraft]:
    """Yield a draft for what the user wants later, and for each sentence that closes something."""
    for entry in entries:
        if not entry.role == entry.origin == "user" or entry.tainted or not entry.retrievable:
            continue
        sentences = [sentence.strip() for sentence in iter_sentences(entry.content)]
        wanted = [words for words in sentences if intends(words)]
        is_short = len(entry.content.strip()) <= _SHORT
        for words in [entry.content.strip()] if wanted and is_short else wanted:
            yield draft_of(entry, INTENDED, EXTRACTOR, words)
        for words in sentences:
            if words not in wanted and closes(words):
                yield draft_of(entry, DENIES, EXTRACTOR, words)
