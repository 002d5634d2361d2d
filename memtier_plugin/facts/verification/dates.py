"""Whether the dates of a claim are those of its source.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time
from typing import Final

import regex

from memtier_plugin.facts.verification.alignment import Passage, Verdict
from memtier_plugin.text import dates, time_spans
from memtier_plugin.text.dates import Dated

_SAID_ON: Final = regex.compile(r"(?i)\b(?:said on|as of|asked on)\s*$")
DIFFERS: Final = Verdict("rejected", "date differs")


def dated(text: str, value: str, passage: Passage) -> Verdict | None:
    """Return what is wrong with the dates of a claim."""
    day = Dated(0, 0, passage.said.year, passage.said.month, passage.said.day)
    ours, told = [], False
    for one, where in [
        *((one, text) for one in dates.stated(text)),
        *((one, value) for one in dates.stated(value)),
    ]:
        if _SAID_ON.search(where[: one.begin]) and one.times == day.times:
            told = True  # "(said on ...)": from there "last week" can be read
        else:
            ours.append((one, where))
    if verdict := _loose(text, passage, told):
        return verdict
    known = [*dates.stated(passage.sentence), *dates.relative(passage.sentence, passage.said)]
    if ours and not known:
        known = _understood(passage)
    born = regex.search(r"(?i)\b(?:born|birthday|anniversary)\b", passage.sentence)
    for one, _ in ours:
        if any(
            dates.supported(one, other, passage.said)
            and not (born and other.year is None and other.span is None and one.year)
            for other in known
        ):
            continue
        if one.month is None and regex.search(rf"(?<!\d){one.year}(?!\d)", passage.sentence):
            continue
        return DIFFERS if known else Verdict("proposed", "its date is not in the passage")
    if ours and len({other.times or other for other in known}) > 1:
        return _mixed(text, [one for one, where in ours if where is text], passage, known)
    return None


def _loose(text: str, passage: Passage, told: bool) -> Verdict | None:
    """Return what is wrong with a claim that says "last week", which nobody can read later.

    Args:
        told: it also says when that was said; then the words must be the source's.
    """
    for one in dates.relative(text, passage.said):
        phrase = text[one.begin : one.end].casefold()
        if not told:
            return Verdict("proposed", "its date is not absolute")
        if phrase not in passage.sentence.casefold():
            return DIFFERS
    return None


def _understood(passage: Passage) -> list[Dated]:
    """Return the times that the phrases of a question about time would mean in the passage."""
    if passage.language != "english":
        return []
    now = datetime.combine(passage.said, time(12), UTC)
    spans = time_spans.spans(passage.sentence, now)
    return [Dated(0, 0, span=(span.start.date(), span.end.date())) for span in spans]


def _mixed(
    text: str, ours: Sequence[Dated], passage: Passage, known: Sequence[Dated]
) -> Verdict | None:
    """Return what is wrong with a claim that takes one of several dates: it must be the nearest.

    The words before its date must stand just before that date in the passage too.
    """
    for one in ours:
        before = regex.findall(r"\w{3,}", text[: one.begin].casefold())[-3:]
        for other in known:
            if not dates.supported(one, other, passage.said):
                continue
            start = max((k.end for k in known if k.end <= other.begin), default=0)
            near = regex.findall(r"\w{3,}", passage.sentence[start : other.begin].casefold())
            if {word[:4] for word in before} & {word[:4] for word in near}:
                break
        else:
            return Verdict("proposed", "not clear which date is meant")
    return None
