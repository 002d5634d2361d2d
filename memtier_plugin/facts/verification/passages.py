"""Find a claim's quote in the entries, build its passage, and check its dates.  Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry
from memtier_plugin.facts.verification.alignment import Passage, Verdict
from memtier_plugin.text.dates.mentions import DateMention, is_date_supported
from memtier_plugin.text.dates.reading import find_stated_dates
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.dates.spans import period_to_add
from memtier_plugin.text.languages import (
    detect_language,
    detect_language_in_context,
    find_sentence,
)

# -- Find a quote in the recorded entries, whatever a model says about its place.  Pure
#
# Quote and text are compared in a normal form (NFKC, casefolded, single spaces, straight quotation
# marks and dashes, no zero-width characters); the span refers to the original.

MAX_SPANS_PER_ENTRY: Final = 8  # of one quote: a more frequent one is no evidence
_MAX_TRIES: Final = 500  # of one quote in one entry, including matches within words
_MAX_CHARS: Final = 200_000  # of one entry

_EDGE: Final = (
    " \t\"'`*_.,;:!?()[]{}\u2026\u3002\u3001\uff0c\uff1b\uff1a\uff01\uff1f\u300c\u300d\u300e\u300f"
)
_STRAIGHT: Final = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4`\u2039\u203a"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"), '"'),
    **dict.fromkeys([*range(0x2010, 0x2016), 0x2212, 0x2043], "-"),
}
_CLUSTER: Final = regex.compile(r"\X")
_NO_WIDTH: Final = regex.compile(r"[\p{Cf}\p{Cc}--\s]", regex.V1)
_SPACES: Final = regex.compile(r"\s+")
_UNSPACED: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}]")
_WORD: Final = regex.compile(r"[\p{L}\p{M}\p{N}_]")


@dataclass(frozen=True, slots=True)
class QuoteSpan:
    """The location of a quote: an entry, and the span in its content."""

    entry: Entry
    start: int
    end: int

    @property
    def text(self) -> str:
        """The quote as it was written."""
        return self.entry.content[self.start : self.end]


def normalise_quote(text: str) -> str:
    """Return the form in which quotes are compared, without punctuation at the ends."""
    return _plain(text)[0].strip(_EDGE)


def find_quotes(
    quote: str, entries: Sequence[Entry], hint: str | None = None
) -> Iterator[QuoteSpan]:
    """Yield the locations of a quote: first in the hinted entry, then in the others in order.

    A quote begins and ends with whole words; system entries are not searched.
    """
    normal = normalise_quote(quote)
    if not normal:
        return
    for entry in sorted(entries, key=lambda entry: entry.id != hint):
        if entry.retrievable:
            for start, end in _spans(normal, entry.content[:_MAX_CHARS]):
                yield QuoteSpan(entry, start, end)


def find_quote(quote: str, entries: Sequence[Entry], hint: str | None = None) -> QuoteSpan | None:
    """Return the first location of a quote, or None."""
    return next(find_quotes(quote, entries, hint), None)


def _spans(normal: str, content: str) -> Iterator[tuple[int, int]]:
    plain, begins, ends = _plain(content)
    position, count, tries = plain.find(normal), 0, 0
    while position >= 0 and count < MAX_SPANS_PER_ENTRY and tries < _MAX_TRIES:
        tries += 1
        last = position + len(normal) - 1
        if _is_whole(plain, position, last + 1, begins, ends):
            start, end = begins[position], ends[last]
            count += 1
            yield start, end
        position = plain.find(normal, position + 1)


def _is_whole(plain: str, start: int, end: int, begins: Sequence[int], ends: Sequence[int]) -> bool:
    """Return whether a span of a normal form begins and ends with whole words and characters."""
    if start and (begins[start - 1] == begins[start] or _continues(plain, start)):
        return False
    return end == len(plain) or not (ends[end] == ends[end - 1] or _continues(plain, end))


def _continues(plain: str, position: int) -> bool:
    """Return whether a word, a number or a compound continues across a position."""
    left, right = plain[position - 1], plain[position]
    if _UNSPACED.match(left) or _UNSPACED.match(right):
        return False
    if _WORD.match(left) and _WORD.match(right):
        return True
    # 5 is not in 1.5, can not in can't, sugar not in sugar-free, and a sign belongs to its number.
    before, after = plain[position - 2 : position - 1], plain[position + 1 : position + 2]
    if right in "-'.,:/@%" and _WORD.match(left) and after and _WORD.match(after):
        return right not in ".,:" or (left.isdigit() and after.isdigit())
    if left in "-'.,:/@" and _WORD.match(right):
        if before and _WORD.match(before):
            return left not in ".,:" or (before.isdigit() and right.isdigit())
        return left == "-" and right.isdigit()
    return False


@lru_cache(256)  # every claim about a batch searches its entries
def _plain(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """Return the normal form, and the span in the original of each of its characters."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.lower().replace("`", "'"), range(len(text)), range(1, len(text) + 1)
    pieces: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    spaced = False
    for cluster in _CLUSTER.finditer(text):
        form = _SPACES.sub(" ", unicodedata.normalize("NFKC", cluster[0]).translate(_STRAIGHT))
        form = unicodedata.normalize("NFKC", _NO_WIDTH.sub("", form).casefold())
        if form == " " and spaced:
            continue
        if form:
            spaced = form == " "
            pieces.append(form)
            begins.extend([cluster.start()] * len(form))
            ends.extend([cluster.end()] * len(form))
    return "".join(pieces), begins, ends


# -- Build the passage of a quote: its sentence, its context, and who speaks to whom.  Pure

Voice = tuple[str | None, str]  # speaker and role

_MAX_CONTEXT_CHARS: Final = (
    4_000  # of an entry, and of one voice, by which languages and names are read
)
_MAX_SHARE: Final = 1_000  # characters of one entry in the text of its voice
_AFTER: Final = 80  # characters after a sentence that may retract it
_NAME: Final = regex.compile(r"\p{Lu}[\p{L}\p{M}]+")
_INTRODUCTION: Final = regex.compile(
    r"(?:[Mm]y name(?: is|['’]s)|[Cc]all me|[Ii]ch heiße|[Mm]e llamo|[Jj]e m['’]appelle"
    r"|[Мм]еня зовут)\s+(\p{Lu}[\p{L}\p{M}'’-]+)"
)


def passage_of(span: QuoteSpan, entries: Sequence[Entry]) -> Passage:
    """Return the sentence that contains a quote, with its context.

    Args:
        entries: the session of the quote, in order.
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
        language=detect_language(content[:_MAX_CONTEXT_CHARS])
        or detect_language_in_context(content, voices.texts.get(voice, "")),
        speaker_names=voices.speakers.get(voice, frozenset()),
        addressee_names=voices.addressees.get(voice, frozenset()),
        known_names=voices.names,
    )


def _next_words(entry: Entry, entries: Sequence[Entry]) -> str:
    """Return the beginning of the same voice's next entry, which may retract its statement."""
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
        if len(texts.setdefault(voice, "")) < _MAX_CONTEXT_CHARS:
            texts[voice] += f"{content[:_MAX_SHARE]}\n"
        names.update(word[0].casefold() for word in _NAME.finditer(content[:_MAX_CONTEXT_CHARS]))
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
    """Return the names of the other participant in a conversation of two."""
    others = [other for other in speakers if other != voice and other[1] in ("user", "assistant")]
    if len(others) == 1:
        return speakers[others[0]] - speakers[voice]
    if not others and voice[1] in ("user", "assistant"):
        return frozenset(("assistant" if voice[1] == "user" else "user",))
    return frozenset()


# -- Check the dates of a claim against those of its source.  Pure

DATE_DIFFERS: Final = Verdict("rejected", "date differs")

_SAID_ON: Final = regex.compile(r"(?i)\b(?:said on|as of|asked on)\s*$")
_REACH: Final = 40  # characters before a date searched for a note
_BORN: Final = regex.compile(r"(?i)\b(?:born|birthday|anniversary)\b")
_LONG_WORD: Final = regex.compile(r"\w{3,}")


def check_dates(text: str, value: str, passage: Passage) -> Verdict | None:
    """Check that each date of a claim is one of its source, or a longer period around it."""
    in_text, text_notes = _claimed_dates(text, passage)
    in_value, value_notes = _claimed_dates(value, passage)
    if verdict := _check_relative(text, passage, resolvable=text_notes or value_notes):
        return verdict
    claimed = [*in_text, *in_value]
    if not claimed:
        return None
    sentence, said_on = passage.sentence, passage.said_on
    passage_dates = [*find_stated_dates(sentence), *find_relative_dates(sentence, said_on)]
    if not all(_is_stated(date, passage_dates, passage) for date in claimed):
        return (
            DATE_DIFFERS if passage_dates else Verdict("proposed", "its date is not in the passage")
        )
    if len({date.period or date for date in passage_dates}) > 1:
        return _check_nearest(text, in_text, passage, passage_dates)
    return None


def _claimed_dates(text: str, passage: Passage) -> tuple[list[DateMention], bool]:
    """Return the dates of a text, and whether it states its own day: "(said on ...)"."""
    said_on = passage.said_on
    today = DateMention(0, 0, said_on.year, said_on.month, said_on.day).period
    dates = find_stated_dates(text)
    claimed = [
        date
        for date in dates
        if date.period != today
        or not _SAID_ON.search(text[max(0, date.start - _REACH) : date.start])
    ]
    return claimed, len(claimed) < len(dates)


def _check_relative(text: str, passage: Passage, *, resolvable: bool) -> Verdict | None:
    """Check the relative dates of a claim: they must be the source's words, and get a date.

    Args:
        resolvable: the claim states the day of the utterance, so a later reader can date "soon".
    """
    for date in find_relative_dates(text, passage.said_on):
        if not (resolvable or period_to_add(date, passage.said_on)):
            return Verdict("proposed", "its date is not absolute")
        if text[date.start : date.end].casefold() not in passage.sentence.casefold():
            return DATE_DIFFERS
    return None


def _is_stated(date: DateMention, passage_dates: Sequence[DateMention], passage: Passage) -> bool:
    """Return whether the passage states a date, or at least its year."""
    birthday = _BORN.search(passage.sentence)  # without a year it is not a date of birth
    for other in passage_dates:
        open_year = other.year is None and other.span is None and date.year
        if is_date_supported(date, other, passage.said_on) and not (birthday and open_year):
            return True
    year = regex.search(rf"(?<!\d){date.year}(?!\d)", passage.sentence)
    return date.month is None and year is not None


def _check_nearest(
    text: str,
    claimed: Sequence[DateMention],
    passage: Passage,
    passage_dates: Sequence[DateMention],
) -> Verdict | None:
    """Check that a claim uses the right one of several dates.

    The words before its date must directly precede that date in the passage too.
    """
    for date in claimed:
        before = _LONG_WORD.findall(text[: date.start].casefold())[-3:]
        for other in passage_dates:
            if not is_date_supported(date, other, passage.said_on):
                continue
            start = max((d.end for d in passage_dates if d.end <= other.start), default=0)
            near = _LONG_WORD.findall(passage.sentence[start : other.start].casefold())
            if {word[:4] for word in before} & {word[:4] for word in near}:
                break
        else:
            return Verdict("proposed", "not clear which date is meant")
    return None
