"""Find the range of days that a statement names by two dates.  Pure.

"From March to June 2025", "between 2009 and 2013", "vom 4. bis 9. Mai", "June 8-11, 2026": either
date may leave to the other what both share, the month or the year.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Final, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.dates.mentions import DateMention
from memtier_plugin.text.dates.periods import Period

_REACH: Final = 24  # characters before a date in which the word that opens a range stands
_OPENS: Final = regex.compile(
    r"(?i)(?:(?<between>\bbetween|\bzwischen|\bentre)|\bfrom|\bvo[nm]|\bdel?|\bdesde|\bdu|[从自])"
    r"(?: the| dem| el| le)?\s*\Z"
)
_TO: Final = regex.compile(
    r"(?i)\s*(?:to|bis(?: zum)?|al?|hasta(?: el)?|au|à|through|thru|[-–]|[到至])(?: the)?\s*\Z"
)
_UNTIL: Final = regex.compile(r"(?i)\s*(?:until|till?|up to|jusqu['’](?:au|en|à))(?: the)?\s*\Z")
_AND: Final = regex.compile(r"(?i)\s*(?:and|und|y|et)\s*\Z")
_YEARS: Final = regex.compile(
    r"(?i)\b(?:from|between|von|zwischen|entre|desde|del?)\s+(?<a>(?:1[6-9]|20)\d\d)\s*"
    r"(?<to>to|until|till|through|and|bis|und|al?|y|et|à|hasta|[-–])\s*(?<b>(?:1[6-9]|20)\d\d)\b"
    r"(?![-/.:,]?\d)"
)
_DAY_BEFORE: Final = regex.compile(
    r"(?i)(?:\bfrom|\bbetween|\bvo[nm]|\bzwischen|\bdel?|\bdu|\bentre)\s+(?:the |dem |el |le )?"
    r"(?<d>\d{1,2})(?:st|nd|rd|th|er|\.)?\s*(?:to|until|through|and|bis|und|al?|y|et|au|[-–])"
    r"\s*(?:the |zum |el |le )?\Z"
)
_DAY_AFTER: Final = regex.compile(
    r"(?i)(?:st|nd|rd|th)?\s?(?:[-–]|to|through)\s?(?<d>\d{1,2})(?:st|nd|rd|th)?\b"
    r"(?:,? (?<y>(?:1[6-9]|20)\d\d)\b)?(?!\s*(?:[:%]|[ap]\.?m\b))"
)

Resolve = Callable[[DateMention], Period | None]


class DateRange(NamedTuple):
    """The first and the last day of a range, and where it stands in its text."""

    first: date
    last: date
    start: int
    end: int


def find_range(text: str, mentions: Sequence[DateMention], resolve: Resolve) -> DateRange | None:
    """Return the first range that a text names; None where it names none, or none for certain.

    Args:
        mentions: the dates in the text, in order.
        resolve: returns the days of a date, also of one that leaves its year open.
    """
    for first, last, inclusive in _pairs(text, mentions):
        end = resolve(last)
        if end is None:
            continue
        begin = first.period or resolve(_dated_before(first, end[0]))
        if begin is not None and begin[0] <= end[0]:
            closing = end[1] if inclusive else end[0]
            return DateRange(begin[0], closing, first.start, last.end)
    return None


def _pairs(
    text: str, mentions: Sequence[DateMention]
) -> Iterator[tuple[DateMention, DateMention, bool]]:
    """Yield the two dates of each range, and whether the whole of the second belongs to it."""
    for match in _YEARS.finditer(text):
        first = DateMention(match.start("a"), match.end("a"), int(match["a"]))
        last = DateMention(match.start("b"), match.end("b"), int(match["b"]))
        yield first, last, match["to"].casefold() not in ("until", "till")
    for number, mention in enumerate(mentions):
        before = text[max(0, mention.start - _REACH) : mention.start]
        if mention.day and mention.month:
            if opened := _DAY_BEFORE.search(before):
                yield replace(mention, day=int(opened["d"])), mention, True
            elif following := _DAY_AFTER.match(text, mention.end):
                year = int(following["y"]) if following["y"] else mention.year
                last = replace(mention, day=int(following["d"]), year=year, end=following.end())
                yield replace(mention, year=year), last, True
        opens = _OPENS.search(before)
        if opens is None or number + 1 == len(mentions):
            continue
        last = mentions[number + 1]
        between = text[mention.end : last.start]
        if opens["between"]:
            if _AND.fullmatch(between):
                yield mention, last, True
        elif _TO.fullmatch(between):
            yield mention, last, True
        elif _UNTIL.fullmatch(between):
            yield mention, last, False


def _dated_before(mention: DateMention, end: date) -> DateMention:
    """Return a date without a year in the year that lets it precede the end of its range."""
    if mention.month is None:
        return mention
    later = (mention.month, mention.day or 1) > (end.month, end.day)
    return replace(mention, year=end.year - later)
