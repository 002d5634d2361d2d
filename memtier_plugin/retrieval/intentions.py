"""Find what a user wanted to be reminded of, when its event or its day has come.

"Remind me to rotate the certificate when we next touch the gateway" waits for a prompt about the
gateway, "by 3 October" for that day, or for a question about what is due.  It is shown once, and
not again before it is said again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

from msgspec import Struct

from memtier_plugin.core.events import RemindEvent
from memtier_plugin.core.records import INTENDED, Entry, Fact, Source
from memtier_plugin.core.results import DUE, REMINDS, Evidence, Hit
from memtier_plugin.retrieval.corrections import OwnWords
from memtier_plugin.retrieval.dialogue_acts import intends, is_act
from memtier_plugin.retrieval.session import opens_session
from memtier_plugin.retrieval.signals import ScoredRow
from memtier_plugin.retrieval.visibility import Viewer, read_hits
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.dates.mentions import Period
from memtier_plugin.text.dates.reading import read_dates

MAX_REMINDERS: Final = 2  # in a block, where nobody asks what is due
MAX_DUE: Final = 6  # where somebody does
NOTE: Final = "to be reminded of"
_MAX_CHARS: Final = 600  # of a prompt
_AHEAD: Final = timedelta(days=3)  # before a day, when it is brought up by itself
_AFTER: Final = timedelta(days=7)  # after it, when it is too late to
_SOON: Final = timedelta(days=14)  # what is due at least, whatever time is named
# What shows that a prompt is about a line: the summed idf of the words they share.  One rare word
# is enough if the two are similar, two otherwise.  In a small store even rare words have a low idf.
_RARE: Final = 3.0
_TWO_WORDS: Final = 1.8  # times that
_FEW: Final = 1 / 8  # of the lines have a rare word
_LIKE: Final = 0.3  # the cosine
_BY_ITSELF: Final = 0.5  # how likely a reminder is that waits for no event


class Moment(Struct, frozen=True):
    """A prompt's session and run: both "" where the host names none.

    What was said in the session does not come back within ``idle``; what was shown before the same
    run may be shown again.
    """

    session: str
    run: str
    idle: timedelta


def find_reminders(
    reader: Reader,
    viewer: Viewer,
    prompt: str,
    own_words: Sequence[OwnWords],
    by: Moment,
    near: Mapping[str, float],
) -> list[Hit]:
    """Return what a user is to be reminded of before a prompt, the likeliest first.

    Args:
        near: by entry, how likely the prompt is about it (`lines_about`).
    """
    intentions = [each for each in own_words if _is_intention(each.item)]
    asked = asks_what_is_due(prompt)
    due = select_due(prompt, intentions, viewer.at) if asked else []
    waiting = (each for each in intentions if not _is_echo(each.item, viewer.at, by))
    still_open = [each for each in waiting if is_open(reader, each.item, by.run)]
    opens = opens_session(reader, viewer, by.session, by.idle)
    come = select_intentions(still_open, near, viewer.at.date(), opens=opens)
    rows = {row for row, *_ in due}
    ranked = [*due, *(each for each in come if each[0] not in rows)]
    hits = read_hits(reader, ranked[: MAX_DUE if asked else MAX_REMINDERS], viewer, {})
    return [hit.with_note(NOTE) for hit in hits]


def lines_about(hits: Iterable[Hit], lines: int) -> dict[str, float]:
    """Return how likely a prompt is about each entry; leave out those that it is not about.

    Args:
        hits: what was found, also what is not worth showing.
        lines: how many lines the store has.
    """
    rare, near = min(_RARE, math.log1p(_FEW * max(0, lines - 1))), dict[str, float]()
    for hit in hits:
        seen = hit.evidence or Evidence()
        own = seen.matched * seen.own_coverage / (seen.coverage or 1.0)
        if own and own >= rare * (1.0 if seen.cosine >= _LIKE else _TWO_WORDS):
            for source in hit.sources:
                near[source.entry] = max(near.get(source.entry, 0.0), own / (own + rare))
    return near


def _is_intention(item: Entry | Fact) -> bool:
    return item.relation == INTENDED if isinstance(item, Fact) else intends(item.text)


def _said(item: Entry | Fact) -> datetime:
    return item.observed_at if isinstance(item, Entry) else item.valid_from or item.timestamp


def _sources(item: Entry | Fact) -> Sequence[Source]:
    return item.sources if isinstance(item, Fact) else (item.source,)


def is_open(reader: Reader, item: Entry | Fact, run: str = "") -> bool:
    """Return whether an intention was not shown since it was last said, but before this run."""
    shown = reader.events([RemindEvent.KIND], item=item.id)
    last = max((event.id for event in shown if not run or event.run_id != run), default="")
    lines = [item.id] if isinstance(item, Entry) else [s.entry for s in reader.sources(item.id)]
    return last < max(lines, default="")  # ids sort by time


def _is_echo(item: Entry | Fact, now: datetime, by: Moment) -> bool:
    """Return whether an intention was said in the prompt's own session, and not long ago."""
    return now - _said(item) < by.idle and any(s.session == by.session for s in _sources(item))


def asks_what_is_due(prompt: str) -> bool:
    """Return whether a prompt asks what there is to be done, or what deadlines there are."""
    return len(prompt) <= _MAX_CHARS and is_act("due", prompt)


def select_due(prompt: str, intentions: Sequence[OwnWords], now: datetime) -> list[ScoredRow]:
    """Return what is due in the time that a prompt asks about, the first due first."""
    today = now.date()
    period = read_due(prompt, today)
    last = max(period[1] if period else today, today + _SOON)
    due = [
        (days[1], each.row)
        for each in intentions
        if (days := find_due(each.item)) and today - _AFTER <= days[1] and days[0] <= last
    ]
    return [(row, 1.0, {DUE: 1.0}) for _, row in sorted(due)]


def select_intentions(
    intentions: Sequence[OwnWords], near: Mapping[str, float], today: date, *, opens: bool
) -> list[ScoredRow]:
    """Return the intentions whose event, day or session has come, the likeliest first.

    Args:
        near: by entry, how likely the prompt is about it.
        opens: whether it is the first prompt of its session, or the first in a while.
    """
    ranked = list[tuple[float, int]]()
    for each in intentions:
        likely = max((near.get(source.entry, 0.0) for source in _sources(each.item)), default=0.0)
        due = find_due(each.item) if opens else None
        is_due = due and due[0] - _AHEAD <= today <= due[1] + _AFTER
        if is_due or (opens and waits_for_session(each.item.text)):
            likely = max(likely, _BY_ITSELF)
        if likely:
            ranked.append((likely, each.row))
    ranked.sort(key=lambda pair: (-pair[0], -pair[1]))
    return [(row, score, {REMINDS: round(score, 4)}) for score, row in ranked]


def find_due(item: Entry | Fact) -> Period | None:
    """Return the first future period that an intention named when it was said."""
    return read_due(item.text, _said(item).date())


@lru_cache(256)
def waits_for_session(text: str) -> bool:
    """Return whether an intention waits for the next session, whatever that is about."""
    return is_act("session", text)


@lru_cache(256)
def read_due(text: str, day: date) -> Period | None:
    """Return the first period that a text names and that is not over on a day."""
    dates = read_dates(text, day, lambda mention: "future")
    return next((d.period for d in dates if d.period and d.period[1] >= day), None)
