"""Check the dates of a claim against those of its source.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.facts.verification.alignment import Passage, Verdict
from memtier_plugin.text.dates.mentions import DateMention, is_date_supported
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.dates.stated import find_stated_dates

DATE_DIFFERS: Final = Verdict("rejected", "date differs")

_SAID_ON: Final = regex.compile(r"(?i)\b(?:said on|as of|asked on)\s*$")
_REACH: Final = 40  # characters before a date in which a note is looked for
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
    """Return the dates of a text, and whether it notes its own day: "(said on ...)"."""
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
    """Check the relative dates of a claim: "last week" means nothing to a later reader.

    Args:
        resolvable: the claim notes the day of the utterance; then the words must be the source's.
    """
    for date in find_relative_dates(text, passage.said_on):
        if not resolvable:
            return Verdict("proposed", "its date is not absolute")
        if text[date.start : date.end].casefold() not in passage.sentence.casefold():
            return DATE_DIFFERS
    return None


def _is_stated(date: DateMention, passage_dates: Sequence[DateMention], passage: Passage) -> bool:
    """Check whether the passage states a date, or at least its year."""
    birthday = _BORN.search(passage.sentence)  # without a year it is no day of birth
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
    """Check that a claim takes the right one of several dates.

    The words before its date must stand just before that date in the passage too.
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
