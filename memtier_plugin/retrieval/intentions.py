"""Find what a user wanted to be reminded of, when its event or its day has come.

"Remind me to rotate the certificate when we next touch the gateway" waits for a prompt about the
gateway, "by 3 October" for that day, or for a question about what is due.  It is shown once, and
not again before it is said again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import cache, lru_cache
from itertools import chain
from typing import Final

from msgspec import Struct

from memtier_plugin.core.events import RemindEvent
from memtier_plugin.core.records import INTENDED, Entry, Fact
from memtier_plugin.core.results import DUE, REMINDS, Hit
from memtier_plugin.retrieval.corrections import OwnWords, content
from memtier_plugin.retrieval.dialogue_acts import (
    UNSPACED,
    find_phrase,
    has_phrase,
    intends,
    nearness_weights,
    odds,
    phrases,
)
from memtier_plugin.retrieval.signals import ScoredRow
from memtier_plugin.retrieval.standing import stems
from memtier_plugin.retrieval.visibility import Viewer, read_hits
from memtier_plugin.retrieval.worth import cosine, unit
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.dates.mentions import DateMention, Period
from memtier_plugin.text.dates.reading import read_dates
from memtier_plugin.text.lexicon import words_of

MAX_REMINDERS: Final = 2  # in a block, where nobody asks what is due
MAX_DUE: Final = 6  # where somebody does
NOTE: Final = "to be reminded of"
_MAX_CHARS: Final = 600  # of a prompt
_AHEAD: Final = timedelta(days=3)  # before a day, when it is brought up by itself
_AFTER: Final = timedelta(days=7)  # after it, when it is too late to
_SOON: Final = timedelta(days=14)  # what is due where no time is named
_UNTELLING: Final = ("next_time", "once", "when", "before", "remind", "happens", "session")
_CLOSED: Final = ("function_words", "first_person", "second_person", "third_person", "copulas")
_CLAUSE_END: Final = re.compile(r"[,;:.!?](?!\d)|[，。；！？、]")
_CUES: Final = ("next_time", "once", "when", "before")  # what opens a trigger, the surest first
_A_DATE: Final = " \u2022 "  # stands for one
_DATED: Final = re.compile(r"(?:\s+\w+){0,2}\s*\u2022")
# In a script without spaces these stand before what they open; all others after it.
_LEADING: Final = ("下", "次", "今度", "等", "如果", "要是")


class Trigger(Struct, frozen=True):
    """What an intention waits for.

    ``event`` are the words that name it, and ``words`` those that tell; ``rest`` are those of what
    is to be done.  ``due`` are the days that are named, ``start`` whether it is any next session.
    """

    event: str
    words: frozenset[str]
    rest: frozenset[str]
    due: Period | None = None
    start: bool = False

    @property
    def can_come(self) -> bool:
        """Whether there is anything that it waits for."""
        return bool(self.event or self.due or self.start)


class Intention(Struct, frozen=True):
    """A user's intention that nobody closed, with what it waits for."""

    row: int
    item: Entry | Fact
    trigger: Trigger


class Moment(Struct, frozen=True):
    """A prompt's session and run: both "" where the host names none.

    What was said in the session does not come back within ``idle``; what was shown before the same
    run may be shown again.
    """

    session: str
    run: str
    idle: timedelta


def find_reminders(
    reader: Reader, viewer: Viewer, prompt: str, own_words: Sequence[OwnWords], by: Moment
) -> list[Hit]:
    """Return what a user is to be reminded of before a prompt, the likeliest first."""
    intentions = _read_intentions(own_words)
    if not intentions:
        return []
    asked = asks_what_is_due(prompt)
    ranked = select_due(prompt, intentions, viewer.at) if asked else []
    items = {each.row: each.item for each in intentions}
    if not asked:
        waiting = [each for each in intentions if not _is_echo(each.item, viewer.at, by)]
        likely = select_intentions(prompt, waiting, viewer.at)
        ranked = [each for each in likely if is_open(reader, items[each[0]], by.run)]
    hits = read_hits(reader, ranked[: MAX_DUE if asked else MAX_REMINDERS], viewer, {})
    return [hit.with_note(NOTE) for hit in hits]


def _read_intentions(own_words: Sequence[OwnWords]) -> list[Intention]:
    """Return the intentions among a user's own words, each with what it waits for."""
    return [
        Intention(each.row, each.item, read_trigger(each.item.text, _said(each.item).date()))
        for each in own_words
        if (
            each.item.relation == INTENDED
            if isinstance(each.item, Fact)
            else intends(each.item.text)
        )
    ]


def _said(item: Entry | Fact) -> datetime:
    return item.observed_at if isinstance(item, Entry) else item.valid_from or item.timestamp


def is_open(reader: Reader, item: Entry | Fact, run: str = "") -> bool:
    """Return whether an intention was not shown since it was last said, but before this run."""
    shown = reader.events([RemindEvent.KIND], item=item.id)
    last = max((event.id for event in shown if not run or event.run_id != run), default="")
    lines = [item.id] if isinstance(item, Entry) else [s.entry for s in reader.sources(item.id)]
    return last < max(lines, default="")  # ids sort by time


def _is_echo(item: Entry | Fact, now: datetime, by: Moment) -> bool:
    """Return whether an intention was said in the prompt's own session, and not long ago."""
    sources = item.sources if isinstance(item, Fact) else (item.source,)
    return now - _said(item) < by.idle and any(each.session == by.session for each in sources)


def asks_what_is_due(prompt: str) -> bool:
    """Return whether a prompt asks what there is to be done, or what deadlines there are."""
    return len(prompt) <= _MAX_CHARS and has_phrase("due", prompt) and _asks(prompt)


def _asks(prompt: str) -> bool:
    return prompt.rstrip().endswith(("?", "？")) or has_phrase("plain_question", prompt)


def select_due(prompt: str, intentions: Sequence[Intention], now: datetime) -> list[ScoredRow]:
    """Return what is due in the time that a prompt asks about, the first due first."""
    today = now.date()
    period = next(iter(_periods(prompt, today)), None)
    last = max(period[1] if period else today + _SOON, today + _AFTER)
    due = [
        (days[1], each.row)
        for each in intentions
        if (days := each.trigger.due) and today - _AFTER <= days[1] and days[0] <= last
    ]
    return [(row, 1.0, {DUE: 1.0}) for _, row in sorted(due)]


def select_intentions(
    prompt: str, intentions: Sequence[Intention], now: datetime
) -> list[ScoredRow]:
    """Return the intentions whose event or day has come, the likeliest first."""
    prompt, today = prompt[:_MAX_CHARS], now.date()
    standard = nearness_weights()
    ranked = list[tuple[float, int]]()
    for each in intentions:
        values = nearness(prompt, each).items()
        near = standard["bias"] + sum(standard[name] * value for name, value in values)
        due = each.trigger.due
        if near > standard["least"] and each.trigger.event:
            ranked.append((1 / (1 + math.exp(-near)), each.row))
        elif due and due[0] - _AHEAD <= today <= due[1] + _AFTER and not each.trigger.event:
            ranked.append((0.5, each.row))
        elif each.trigger.start:
            ranked.append((0.4, each.row))
    ranked.sort(key=lambda pair: (-pair[0], -pair[1]))
    return [(row, score, {REMINDS: round(score, 4)}) for score, row in ranked]


def nearness(prompt: str, intention: Intention) -> dict[str, float]:
    """Return what speaks for an intention's event before a prompt."""
    trigger, words = intention.trigger, content(prompt)
    shared = words & trigger.words
    return {
        "event": len(shared) / max(1, len(trigger.words)),
        "some": float(bool(shared)),
        "rest": len(words & trigger.rest) / max(1, len(trigger.rest)),
        "of prompt": len(shared) / max(1, len(words)),
        "cosine": cosine(unit(prompt), unit(trigger.event)),
        "like": cosine(unit(prompt), unit(intention.item.text)),
        "work": odds("work", prompt) / 3,
        "asks": float(_asks(prompt)),
    }


# -- what an intention waits for -------------------------------------------------------------------


@lru_cache(256)
def read_trigger(text: str, said_on: date) -> Trigger:
    """Return what an intention waits for: the clause that names its event, and the days named."""
    due = next(iter(_periods(text, said_on)), None)
    text = _without_dates(text, said_on)
    event = _event(text)
    if has_phrase("session", event):
        return Trigger("", frozenset(), _telling(text), due, start=True)
    words = _telling(event)
    return Trigger(event if words else "", words, _telling(text) - words, due)


def _event(text: str) -> str:
    """Return the clause that says when; "" where there is none."""
    for name in _CUES:
        if not (match := find_phrase(name, text)):
            continue
        start, end = match.span()
        if _DATED.match(text, end):  # "by 3 October"
            continue
        if UNSPACED.match(match[0]) and not match[0].startswith(_LEADING):
            before = [each.end() for each in _CLAUSE_END.finditer(text, 0, start)]
            return text[before[-1] if before else 0 : end]
        ends = [closing.start() for closing in _CLAUSE_END.finditer(text, end)]
        clauses = (text[start:at] for at in (*ends, len(text)))
        return next((clause for clause in clauses if _telling(clause)), "")
    return ""


def _periods(text: str, day: date) -> list[Period]:
    """Return the days that a text names, as seen from a day; those to come."""
    dates = read_dates(text, day, lambda mention: "future")
    return [dated.period for dated in dates if dated.period and dated.period[1] >= day]


def _without_dates(text: str, day: date) -> str:
    for dated in reversed(read_dates(text, day, lambda mention: "future")):
        mention: DateMention = dated.mention
        text = f"{text[: mention.start]}{_A_DATE}{text[mention.end :]}"
    return text


def _telling(text: str) -> frozenset[str]:
    """Return the words of content by which one event is told from another."""
    return content(text) - _untelling()


@cache
def _untelling() -> frozenset[str]:
    """Return the stems of the words that open a trigger, or that any event may have."""
    opening = [re.sub(r'["*]', " ", phrases()[name]) for name in _UNTELLING]
    return stems(" ".join([*opening, *chain.from_iterable(map(words_of, _CLOSED))]))
