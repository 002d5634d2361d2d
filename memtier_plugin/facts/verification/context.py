"""Build the passage of a quote: its sentence, its context, and who speaks to whom.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry
from memtier_plugin.facts.verification.alignment import Passage
from memtier_plugin.facts.verification.quotes import QuoteSpan
from memtier_plugin.text.languages import (
    detect_language,
    detect_language_in_context,
    find_sentence,
)

Voice = tuple[str | None, str]  # speaker and role

_MAX_CHARS: Final = 4_000  # of an entry, and of one voice, by which languages and names are read
_MAX_SHARE: Final = 1_000  # characters of one entry in the text of its voice
_AFTER: Final = 80  # characters after a sentence that may take it back
_NAME: Final = regex.compile(r"\p{Lu}[\p{L}\p{M}]+")
_INTRODUCTION: Final = regex.compile(
    r"(?:[Mm]y name(?: is|['’]s)|[Cc]all me|[Ii]ch heiße|[Mm]e llamo|[Jj]e m['’]appelle"
    r"|[Мм]еня зовут)\s+(\p{Lu}[\p{L}\p{M}'’-]+)"
)


def passage_of(span: QuoteSpan, entries: Sequence[Entry]) -> Passage:
    """Return the sentence that a quote stands in, with its context.

    Args:
        entries: the session of the quote, in its order.
    """
    entry, content = span.entry, span.entry.content
    start, end = find_sentence(content, span.start, span.end)
    before = find_sentence(content, start - 2, start - 1) if start > 2 else (0, 0)
    after = content[end : end + _AFTER]
    voices = _voices(tuple((e.speaker, e.role, e.content) for e in entries if e.retrievable))
    voice = (entry.speaker, entry.role)
    return Passage(
        sentence=content[start:end],
        quote=(span.start - start, span.end - start),
        said_on=entry.observed_at.date(),
        before=content[before[0] : before[1]],
        after=after if after.strip() else _next_words(entry, entries),
        language=detect_language(content[:_MAX_CHARS])
        or detect_language_in_context(content, voices.texts.get(voice, "")),
        speaker_names=voices.speakers.get(voice, frozenset()),
        addressee_names=voices.addressees.get(voice, frozenset()),
        known_names=voices.names,
    )


def _next_words(entry: Entry, entries: Sequence[Entry]) -> str:
    """Return the beginning of the same voice's next entry, which may take back what it said."""
    later = iter(entries)
    for other in later:
        if other.id == entry.id:
            break
    for other in later:
        if (other.speaker, other.role) == (entry.speaker, entry.role):
            return other.content[:_AFTER]
    return ""


@dataclass(frozen=True, slots=True)
class _Voices:
    """The speakers of a session, and the names mentioned in it."""

    texts: Mapping[Voice, str]
    speakers: Mapping[Voice, frozenset[str]]
    addressees: Mapping[Voice, frozenset[str]]
    names: frozenset[str]


@lru_cache(16)  # the claims of one session are verified one after the other
def _voices(lines: tuple[tuple[str | None, str, str], ...]) -> _Voices:
    texts: dict[Voice, str] = {}
    names: set[str] = set()
    for speaker, role, content in lines:
        voice = (speaker, role)
        if len(texts.setdefault(voice, "")) < _MAX_CHARS:
            texts[voice] += f"{content[:_MAX_SHARE]}\n"
        names.update(word[0].casefold() for word in _NAME.finditer(content[:_MAX_CHARS]))
        names.update((speaker or "").casefold().split())
    speakers = {voice: _speaker_names(voice, text) for voice, text in texts.items()}
    addressees = {voice: _addressee_names(voice, speakers) for voice in texts}
    return _Voices(texts, speakers, addressees, frozenset(names))


def _speaker_names(voice: Voice, text: str) -> frozenset[str]:
    speaker, role = voice
    names = {*(speaker or "").casefold().split(), role}
    if role == "user" and not speaker:
        names.update(name.casefold() for name in _INTRODUCTION.findall(text))
    return frozenset(names)


def _addressee_names(voice: Voice, speakers: Mapping[Voice, frozenset[str]]) -> frozenset[str]:
    """Return the names of the other one in a conversation of two."""
    others = [other for other in speakers if other != voice and other[1] in ("user", "assistant")]
    if len(others) == 1:
        return speakers[others[0]] - speakers[voice]
    if not others and voice[1] in ("user", "assistant"):
        return frozenset(("assistant" if voice[1] == "user" else "user",))
    return frozenset()
