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
from memtier_plugin.retrieval.intentions import read_trigger
from memtier_plugin.text.languages import iter_sentences

EXTRACTOR: Final = "intention"


def find_intentions(entries: Sequence[Entry]) -> Iterator[FactDraft]:
    """Yield a draft for each sentence in which the user wants something later, or closes it."""
    for entry in entries:
        if not entry.role == entry.origin == "user" or entry.tainted or not entry.retrievable:
            continue
        for sentence in iter_sentences(entry.content):
            words = sentence.strip()
            if intends(words) and read_trigger(words, entry.observed_at.date()).can_come:
                yield draft_of(entry, INTENDED, EXTRACTOR, words)
            elif closes(words):
                yield draft_of(entry, DENIES, EXTRACTOR, words)
