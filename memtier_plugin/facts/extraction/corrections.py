"""Make rules of a user's corrections, and find the words that take one back.  Pure.

A correction answers what the assistant has just done or said; it becomes a fact in the user's own
words.  Which request it corrected is read from its session when a prompt is compared with it
(`retrieval.corrections`), so that no other line's words are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from memtier_plugin.core.records import CORRECTED, Entry, FactDraft
from memtier_plugin.ingest.user_acts import tells_act
from memtier_plugin.retrieval.corrections import BY_ACT
from memtier_plugin.retrieval.dialogue_acts import ends_rule, sets_rule
from memtier_plugin.retrieval.duplicates import DENIES

EXTRACTOR: Final = "correction"


def find_corrections(entries: Sequence[Entry], before: Iterable[Entry] = ()) -> Iterator[FactDraft]:
    """Yield a draft for each rule that the user set, and for the words that end one.

    Args:
        entries: of one session and sender, in order.
        before: what was said there before them.
    """
    answered = next((e for e in reversed([*before]) if not _is_between(e)), None)
    for index, entry in enumerate(entries):
        if tells_act(entry) and not entry.tainted:
            words = (e.content for e in entries[index:] if e.role == e.origin == "user")
            if not sets_rule(next(words, "")):  # else their words say it
                yield draft_of(entry, CORRECTED, BY_ACT, entry.content)
        if _is_between(entry):
            continue
        if entry.role == entry.origin == "user" and not entry.tainted and entry.retrievable:
            if ends_rule(entry.content):
                yield draft_of(entry, DENIES, EXTRACTOR, entry.content.strip())
            elif answered and answered.role == "assistant" and sets_rule(entry.content):
                yield draft_of(entry, CORRECTED, EXTRACTOR, entry.content.strip())
        answered = entry


def _is_between(entry: Entry) -> bool:
    return entry.role == "tool" or tells_act(entry)


def draft_of(entry: Entry, relation: str, extractor: str, words: str) -> FactDraft:
    """Return a draft of a user's own words in an entry."""
    start = entry.content.index(words)
    return FactDraft(
        subject=entry.speaker or "user",
        relation=relation,
        value=words,
        text=words,
        sources=(entry.source,),
        quote=words,
        span=(start, start + len(words)),
        extractor=extractor,
        valid_from=entry.observed_at,
    )
