"""Whether the dates of a claim are those of its source.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time
from typing import Final

import regex

from memtier_plugin.facts.verification.alignment import Passage, Verdict
from memtier_plugin.text import dates, time_spans
from memtier_plugin.text.dates import DateMention

_SAID_ON: Final = regex.compile(r"(?i)\b(?:said on|as of|asked on)\s*$")
DATE_DIFFERS: Final = Verdict("rejected", "date differs")


def check_dates(text: str, value: str, passage: Passage) -> Verdict | None:
    """Return what is wrong with the dates of a claim."""
    day = DateMention(0, 0, passage.said_on.year, passage.said_on.month, passage.said_on.day)
    ours, told = [], False
    for one, where in [
        *((one, text) for one in dates.find_stated_dates(text)),
        *((one, value) for one in dates.find_stated_dates(value)),
    ]:
        if _SAID_ON.search(where[: one.start]) and one.period == day.period:
            told = True  # "(said on ...)": from there "last week" can be read
        else:
            ours.append((one, where))
    if verdict := _loose(text, passage, told):
        return verdict
    known = [
        *dates.find_stated_dates(passage.sentence),
        *dates.find_relative_dates(passage.sentence, passage.said_on),
    ]
    if ours and not known:
        known = _understood(passage)
    born = regex.search(r"(?i)\b(?:born|birthday|anniversary)\b", passage.sentence)
    for one, _ in ours:
        if any(
            dates.is_date_supported(one, other, passage.said_on)
            and not (born and other.year is None and other.span is None and one.year)
            for other in known
        ):
            continue
        if one.month is None and regex.search(rf"(?<!\d){one.year}(?!\d)", passage.sentence):
            continue
        return DATE_DIFFERS if known else Verdict("proposed", "its date is not in the passage")
    if ours and len({other.period or other for other in known}) > 1:
        return _mixed(text, [one for one, where in ours if where is text], passage, known)
    return None


def _loose(text: str, passage: Passage, told: bool) -> Verdict | None:
    """Return what is wrong with a claim that says "last week", which nobody can read later.

    Args:
        told: it also says when that was said; then the words must be the source's.
    """
    for one in dates.find_relative_dates(text, passage.said_on):
        phrase = text[one.start : one.end].casefold()
        if not told:
            return Verdict("proposed", "its date is not absolute")
        if phrase not in passage.sentence.casefold():
            return DATE_DIFFERS
    return None


def _understood(passage: Passage) -> list[DateMention]:
    """Return the times that the phrases of a question about time would mean in the passage."""
    if passage.language != "english":
        return []
    now = datetime.combine(passage.said_on, time(12), UTC)
    spans = time_spans.find_time_spans(passage.sentence, now)
    return [DateMention(0, 0, span=(span.start.date(), span.end.date())) for span in spans]


def _mixed(
    text: str, ours: Sequence[DateMention], passage: Passage, known: Sequence[DateMention]
) -> Verdict | None:
    """Return what is wrong with a claim that takes one of several dates: it must be the nearest.

    The words before its date must stand just before that date in the passage too.
    """
    for one in ours:
        before = regex.findall(r"\w{3,}", text[: one.start].casefold())[-3:]
        for other in known:
            if not dates.is_date_supported(one, other, passage.said_on):
                continue
            start = max((k.end for k in known if k.end <= other.start), default=0)
            near = regex.findall(r"\w{3,}", passage.sentence[start : other.start].casefold())
            if {word[:4] for word in before} & {word[:4] for word in near}:
                break
        else:
            return Verdict("proposed", "not clear which date is meant")
    return None
