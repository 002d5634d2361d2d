"""Build the profile of a person: what is known of them, counted, with sources and times.  Pure.

After True Memory (entity profiles): attributes of each speaker with counts.  Relations, preferences
and other attributes come from current facts about them, topics from the words that return in their
lines.  What a recall shows of it (`format_profile`) rests on facts and quoted lines alone, so that
it goes when one of them does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal
from zlib import crc32

from memtier_plugin.core.records import Entry, Fact, Source
from memtier_plugin.core.structs import Record
from memtier_plugin.facts.summaries.selection import SourceSentence
from memtier_plugin.text.claim_lexicon import KINSHIP
from memtier_plugin.text.lexicon import words_of
from memtier_plugin.text.normalise import normalise
from memtier_plugin.text.tokenizer import plain_words

RELATION: Final = "profile"
MIN_LINES: Final = 10  # of a person who has a profile, and a summary
MAX_TOKENS: Final = 150  # of the text that a recall shows
_TOPICS: Final = 12  # of a profile, the most telling
_MIN_MENTIONS: Final = 3  # lines that make a topic
_MIN_LETTERS: Final = 4  # of a topic
_KEPT_SOURCES: Final = 5  # of an attribute, the newest
_STEP: Final = 1.25  # a text is written anew when there are so many times the lines
_PREFERENCES: Final = frozenset({"likes", "dislikes", "prefers", "favorite", "wants"})

Kind = Literal["attribute", "preference", "relation", "topic"]


class Attribute(Record, frozen=True):
    """Something of a person: what, how often it was said, by which lines, and from when to when."""

    kind: Kind
    name: str
    value: str
    count: int
    sources: tuple[Source, ...]
    first: datetime
    last: datetime


def fact_attributes(
    facts: Iterable[Fact], sources: Mapping[str, Sequence[Source]]
) -> list[Attribute]:
    """Return the attributes that facts about a person state, preferences first.

    Args:
        sources: the lines that each fact rests on and that are not forgotten, by its id.
    """
    attributes = []
    for fact in facts:
        lines = sources.get(fact.id, ())
        if not lines:
            continue
        since = fact.valid_from or fact.timestamp
        attributes.append(
            Attribute(
                kind=_kind(fact),
                name=fact.relation,
                value=fact.value,
                count=len(lines),
                sources=tuple(lines[-_KEPT_SOURCES:]),
                first=since,
                last=max(since, fact.timestamp),
            )
        )
    order = ("preference", "relation", "attribute")
    return sorted(attributes, key=lambda a: (order.index(a.kind), -a.count, a.name, a.value))


def topic_attributes(
    lines: Sequence[Entry], words: Callable[[str], Sequence[str]], rarity: Mapping[str, float]
) -> list[Attribute]:
    """Return the words that a person returns to, those worth most first.

    Args:
        lines: the person's, in the order in which they were said.
        words: the tokenizer.
        rarity: the idf of each of its words.
    """
    mentions: dict[str, list[Entry]] = {}
    surfaces: dict[str, Counter[str]] = {}
    stems: dict[str, str] = {}
    functional = words_of("function_words")
    for line in lines:
        inside: set[str] = set()
        for surface in plain_words(line.content):
            if surface not in stems:
                is_word = len(surface) >= _MIN_LETTERS or not surface.isascii()
                stem = words(surface) if is_word and surface not in functional else ()
                stems[surface] = stem[0] if stem and not surface.isdecimal() else ""
            if stem := stems[surface]:
                surfaces.setdefault(stem, Counter())[surface] += 1
                inside.add(stem)
        for stem in inside:
            mentions.setdefault(stem, []).append(line)
    speakers = {word for line in lines for word in words(line.speaker or "")}
    topics = [
        (len(entries) * rarity.get(stem, 0.0), stem)
        for stem, entries in mentions.items()
        if len(entries) >= _MIN_MENTIONS and stem not in speakers
    ]
    return [
        Attribute(
            kind="topic",
            name="talks_of",
            value=max(surfaces[stem], key=lambda word: (surfaces[stem][word], word)),
            count=len(mentions[stem]),
            sources=tuple(entry.source for entry in mentions[stem][-_KEPT_SOURCES:]),
            first=mentions[stem][0].observed_at,
            last=mentions[stem][-1].observed_at,
        )
        for _, stem in sorted(topics, key=lambda topic: (-topic[0], topic[1]))[:_TOPICS]
    ]


def own_sentences(sentences: Iterable[SourceSentence]) -> list[SourceSentence]:
    """Return the sentences in which somebody speaks of themself, questions left out."""
    own = words_of("first_person") | words_of("first_possessive")
    return [
        sentence
        for sentence in sentences
        if not sentence.quote.rstrip().endswith(("?", "？"))
        and not own.isdisjoint(normalise(sentence.quote)[0].split())
    ]


def format_profile(
    person: str, attributes: Sequence[Attribute], quoted: Sequence[SourceSentence]
) -> str:
    """Return the text of a profile that a recall shows."""
    stated: dict[str, list[str]] = {}
    for attribute in attributes:
        stated.setdefault(attribute.name.replace("_", " "), []).append(attribute.value)
    parts = [f"{name} {', '.join(values)}" for name, values in stated.items()]
    if quoted:
        words = " | ".join(" ".join(sentence.quote.split()) for sentence in quoted)
        parts.append(f"in their own words: {words}")
    return f"{person}: {'; '.join(parts)}"


def profile_value(lines: int, facts: Iterable[Fact]) -> str:
    """Return what a profile was made of, as part of its key: another value makes a new one.

    The number of lines counts in steps, or each line would make a new text.
    """
    stated = "\n".join(sorted(fact.id for fact in facts))
    return f"{step_of(lines)} lines, facts {crc32(stated.encode()):08x}"


def step_of(lines: int) -> int:
    """Return the largest step up to a number of lines: 10, 12, 15, 19, 24 and so on."""
    step, following = MIN_LINES, float(MIN_LINES)
    while int(following) <= lines:
        step, following = int(following), following * _STEP
    return step


def _kind(fact: Fact) -> Kind:
    if fact.relation in _PREFERENCES:
        return "preference"
    related = not KINSHIP.isdisjoint(plain_words(f"{fact.relation} {fact.value}"))
    return "relation" if related else "attribute"
