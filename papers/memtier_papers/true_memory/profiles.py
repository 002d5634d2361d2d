"""Build the profile of a person: what is known about them, with counts, sources and times.  Pure.

After True Memory (entity profiles): attributes of each speaker with counts.  Relations, preferences
and other attributes come from current facts about them, topics from recurring words in their lines.
What a recall shows of it (`format_profile`) rests only on facts and quoted lines, so that it
disappears with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal
from zlib import crc32

from memtier_papers.true_memory.style import StyleVector
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.hookspecs import Overview, OverviewText
from memtier_plugin.core.records import (
    SHARED,
    Entry,
    Fact,
    Origin,
    Source,
    count_tokens,
    person_audience,
)
from memtier_plugin.core.structs import Record
from memtier_plugin.facts.persons import USER
from memtier_plugin.facts.summaries import selection
from memtier_plugin.facts.summaries.selection import SourceSentence
from memtier_plugin.storage.index.overviews import LineGroup
from memtier_plugin.storage.store import Store
from memtier_plugin.text.lexicon import KINSHIP, words_of
from memtier_plugin.text.tokenizer import normalise, plain_words

RELATION: Final = "profile"
MAX_TOKENS: Final = 150  # of the text that a recall shows
_TOPICS: Final = 12  # most characteristic topics of a profile
_MIN_MENTIONS: Final = 3  # lines that mention a topic
_MIN_LETTERS: Final = 4  # of a topic
_KEPT_SOURCES: Final = 5  # newest sources of an attribute
_PREFERENCES: Final = frozenset({"likes", "dislikes", "prefers", "favorite", "wants"})

Kind = Literal["attribute", "preference", "relation", "topic"]


class Attribute(Record, frozen=True):
    """An attribute of a person: its value, count, source lines and time span."""

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
        sources: the unforgotten source lines of each fact, by its id.
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
    """Return the words that recur in a person's lines, most valuable first.

    Args:
        lines: the person's, in chronological order.
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
    """Return the sentences in which a person speaks about themselves, without questions."""
    pronouns = words_of("first_person") | words_of("first_possessive")
    return [
        sentence
        for sentence in sentences
        if not sentence.quote.rstrip().endswith(("?", "？"))
        and not pronouns.isdisjoint(normalise(sentence.quote)[0].split())
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
    """Return the basis of a profile, as part of its key: another value triggers a rewrite.

    The number of lines is rounded, or each new line would trigger one.
    """
    stated = "\n".join(sorted(fact.id for fact in facts))
    return f"{selection.step_of(lines)} lines, facts {crc32(stated.encode()):08x}"


def _kind(fact: Fact) -> Kind:
    if fact.relation in _PREFERENCES:
        return "preference"
    related = not KINSHIP.isdisjoint(plain_words(f"{fact.relation} {fact.value}"))
    return "relation" if related else "attribute"


# -- Read a person's data in one scope: their lines, and the facts about them

_FACTS: Final = 12  # in the text of a profile, preferences first
_WEAKEST: Final[tuple[Origin, ...]] = ("assistant", "user")


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything known about a person to one agent and sender."""

    person: str
    agent: str
    sender: str
    lines: int
    first: datetime
    last: datetime
    attributes: tuple[Attribute, ...]
    style: StyleVector

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "person": self.person,
            "agent": self.agent,
            "sender": self.sender,
            "lines": self.lines,
            "first": to_iso(self.first),
            "last": to_iso(self.last),
            "attributes": [attribute.to_json() for attribute in self.attributes],
            "style": {"lines": self.style.lines, "mean": [round(v, 6) for v in self.style.mean]},
        }


class PeopleReader:
    """Reads people from a project's index."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = store.reader()

    def profiles(self, name: str | None = None) -> list[Profile]:
        """Return the profiles of the people in every scope, or of those with a name."""
        wanted = None if name is None else normalise(name)[0]
        return [
            self._profile(group)
            for group in self._reader.overviews.line_groups("speaker", selection.MIN_PERSON_LINES)
            if wanted in (None, *normalise(group.name or USER, group.sender))
        ]

    def facts_about(self, group: LineGroup) -> list[Fact]:
        """Return the current facts about a group's person that its scope may see."""
        name, sender, user = normalise(group.name, group.sender, USER)
        facts = [
            fact
            for audience in (SHARED, person_audience(group.sender))
            for subject in sorted({name, sender, user} - {""})
            for stored in self._reader.facts(subject=subject, standing="current", audience=audience)
            if isinstance(fact := stored.item, Fact) and not fact.shelf
        ]
        spoken = self._reader.items({s.entry for fact in facts for s in fact.sources})
        speakers = {i: s.item.speaker or "" for i, s in spoken.items() if isinstance(s.item, Entry)}
        shares_name = len(self._senders_called(group.name)) > 1
        return [
            fact
            for fact in facts
            if any(speakers.get(source.entry) == group.name for source in fact.sources)
            or (normalise(fact.subject)[0] == name and not shares_name)
        ]

    def text_of(self, group: LineGroup, facts: Sequence[Fact]) -> OverviewText | None:
        """Return the text of a profile; None if there is nothing to say."""
        sources = self._reader.overviews.remaining_sources(fact.id for fact in facts)
        attributes = fact_attributes(facts, sources)[:_FACTS]
        lines = self._lines(group)
        sentences = own_sentences(selection.find_sentences(lines))
        tokenize = self._store.tokenizer.words
        words = {word for sentence in sentences for word in tokenize(sentence.quote)}
        rarity = self._reader.overviews.word_rarity(group.agent, group.sender, words)
        room = MAX_TOKENS - selection.HEADING_TOKENS
        stated = format_profile(group.name or USER, attributes, ())
        room -= count_tokens(stated)
        quoted = selection.select_sentences(sentences, tokenize, rarity, room)
        if not attributes and not quoted:
            return None
        shown = {attribute.value for attribute in attributes}
        cited = [sentence.entry.source for sentence in quoted]
        for fact in facts:
            if fact.value in shown and (stood_on := sources.get(fact.id)):
                first = stood_on[0]
                itself = Source(agent=first.agent, session=first.session, entry=fact.id)
                cited += [*stood_on[:1], itself]
        origins = {sentence.entry.origin for sentence in quoted} | {"user"}
        return OverviewText(
            format_profile(group.name or USER, attributes, quoted),
            tuple({source.entry: source for source in cited}.values()),
            next(origin for origin in _WEAKEST if origin in origins),
        )

    def overviews(self) -> Iterator[Overview]:
        """Yield the profile of everybody who has spoken often enough."""
        for group in self._reader.overviews.line_groups("speaker", selection.MIN_PERSON_LINES):
            facts = self.facts_about(group)
            yield Overview(
                group.agent,
                group.sender,
                group.name or USER,
                profile_value(group.lines, facts),
                datetime.fromtimestamp(group.last, UTC),
                partial(self.text_of, group, facts),
            )

    def _senders_called(self, name: str) -> set[str]:
        groups = self._reader.overviews.line_groups("speaker", 1)
        return {group.sender for group in groups if normalise(group.name) == normalise(name)}

    def _profile(self, group: LineGroup) -> Profile:
        lines, facts = self._lines(group), self.facts_about(group)
        tokenize = self._store.tokenizer.words
        words = {word for line in lines for word in tokenize(line.content)}
        overviews = self._reader.overviews
        rarity = overviews.word_rarity(group.agent, group.sender, words)
        stated = fact_attributes(facts, overviews.remaining_sources(fact.id for fact in facts))
        topics = topic_attributes(lines, tokenize, rarity)
        return Profile(
            person=group.name or USER,
            agent=group.agent,
            sender=group.sender,
            lines=group.lines,
            first=lines[0].observed_at,
            last=lines[-1].observed_at,
            attributes=(*stated, *topics),
            style=StyleVector.of(line.content for line in lines),
        )

    def _lines(self, group: LineGroup) -> list[Entry]:
        overviews = self._reader.overviews
        rows = overviews.group_rows(group, selection.MAX_LINES, speaker=group.name)
        stored = self._reader.items_by_row(rows)
        items = [stored[row].item for row in rows if row in stored]
        return [item for item in items if isinstance(item, Entry)]
