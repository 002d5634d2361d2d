"""Read what there is of a person in one scope: their lines, and the facts about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from memtier_plugin.core.records import (
    SHARED,
    Entry,
    Fact,
    Origin,
    Source,
    count_tokens,
    person_audience,
)
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts.persons import USER
from memtier_plugin.facts.summaries import profiles, selection
from memtier_plugin.facts.summaries.profiles import Attribute
from memtier_plugin.storage.index.overviews import LineGroup
from memtier_plugin.storage.store import Store
from memtier_plugin.text.normalise import normalise
from memtier_plugin.text.style import StyleVector

_FACTS: Final = 12  # in the text of a profile, the preferences first
_WEAKEST: Final[tuple[Origin, ...]] = ("assistant", "user")


@dataclass(frozen=True, slots=True)
class ProfileText:
    """What a recall shows of a profile, and the lines and facts that it shows."""

    text: str
    sources: tuple[Source, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Profile:
    """All that is known of a person to one agent and sender."""

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
    """Reads people out of the index of a project."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = store.reader()

    def profiles(self, name: str | None = None) -> list[Profile]:
        """Return the profiles of the people of every scope, or of those with a name."""
        wanted = None if name is None else normalise(name)[0]
        return [
            self._profile(group)
            for group in self._reader.overviews.line_groups("speaker", profiles.MIN_LINES)
            if wanted in (None, *normalise(group.name or USER, group.sender))
        ]

    def facts_about(self, group: LineGroup) -> list[Fact]:
        """Return the current facts about the person of a group that its scope may see."""
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

    def text_of(self, group: LineGroup, facts: Sequence[Fact]) -> ProfileText | None:
        """Return the text of a profile; None where there is nothing to say."""
        sources = self._reader.overviews.remaining_sources(fact.id for fact in facts)
        attributes = profiles.fact_attributes(facts, sources)[:_FACTS]
        lines = self._lines(group)
        own = profiles.own_sentences(selection.find_sentences(lines))
        tokenize = self._store.tokenizer.words
        words = {word for sentence in own for word in tokenize(sentence.quote)}
        rarity = self._reader.overviews.word_rarity(group.agent, group.sender, words)
        room = profiles.MAX_TOKENS - selection.HEADING_TOKENS
        stated = profiles.format_profile(group.name or USER, attributes, ())
        room -= count_tokens(stated)
        quoted = selection.select_sentences(own, tokenize, rarity, room)
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
        return ProfileText(
            profiles.format_profile(group.name or USER, attributes, quoted),
            tuple({source.entry: source for source in cited}.values()),
            next(origin for origin in _WEAKEST if origin in origins),
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
        stated = profiles.fact_attributes(
            facts, overviews.remaining_sources(fact.id for fact in facts)
        )
        topics = profiles.topic_attributes(lines, tokenize, rarity)
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
