"""Build timelines: the values that were true of a subject, one after the other.  Pure.

Made of facts of one audience, the superseded ones and the one that holds now: who may see these may
see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from memtier_plugin.core.records import Fact, Source
from memtier_plugin.text.normalise import normalise

RELATION: Final = "timeline"
MAX_VALUES: Final = 12  # values of one line, the newest
_SOURCES_PER_VALUE: Final = 5  # sources of each value; the fact itself is one more
_MAX_VALUE_CHARS: Final = 80  # characters of a value


@dataclass(frozen=True, slots=True)
class PastValue:
    """A fact and the end of its validity; None for one that holds."""

    fact: Fact
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The values of one subject and relation, as a line with its sources."""

    about: tuple[str, ...]  # subject and relation, normalised
    audience: tuple[str, str]
    person: str | None
    personal: bool
    subject: str
    value: str
    text: str
    sources: tuple[Source, ...]
    since: datetime
    confidence: float


def build_timelines(
    pasts: Iterable[PastValue], sources: Mapping[str, Sequence[Source]]
) -> list[Timeline]:
    """Return the timeline of each subject and relation that had more than one value.

    Args:
        pasts: the presentable facts, in any order; of all that hold now the newest counts.
        sources: the sources of each fact, by its id.
    """
    together: dict[tuple[tuple[str, ...], tuple[str, str]], list[PastValue]] = {}
    for past in pasts:
        about = normalise(past.fact.subject, past.fact.relation)
        together.setdefault((about, past.fact.audience), []).append(past)
    return [
        line
        for about, audience in sorted(together)
        if (line := _build_timeline(about, together[about, audience], sources))
    ]


def is_about(value: str, relation: str) -> bool:
    """Return whether a (normalised) timeline's value is of this relation."""
    return value.startswith(f"{normalise(relation)[0]}:")


def _build_timeline(
    about: tuple[str, ...], pasts: Sequence[PastValue], sources: Mapping[str, Sequence[Source]]
) -> Timeline | None:
    steps: list[PastValue] = []
    ordered = sorted(pasts, key=lambda past: (_since(past.fact), past.fact.id))
    now = [past for past in ordered if past.until is None][-1:]
    for past in [*(past for past in ordered if past.until is not None), *now]:
        if steps and normalise(steps[-1].fact.value) == normalise(past.fact.value):
            steps[-1] = PastValue(steps[-1].fact, past.until)  # the same value continued
        else:
            steps.append(past)
    steps = steps[-MAX_VALUES:]
    if len(steps) < 2:
        return None
    newest = steps[-1].fact
    values = [_short(past.fact.value) for past in steps]
    periods = [_period(past, is_first=index == 0) for index, past in enumerate(steps)]
    dated = [f"{value} ({period})" for value, period in zip(values, periods, strict=True)]
    relation = newest.relation.replace("_", " ")
    cited = [
        source
        for past in steps
        for source in (
            *sources.get(past.fact.id, past.fact.sources)[:_SOURCES_PER_VALUE],
            _source_of_itself(past.fact),
        )
    ]
    return Timeline(
        about=about,
        audience=newest.audience,
        person=newest.person if newest.personal else None,
        personal=newest.personal,
        subject=newest.subject,
        value=f"{newest.relation}: {' > '.join(values)}",
        text=f"{newest.subject}, {relation} over time: {', then '.join(dated)}.",
        sources=tuple({source.entry: source for source in reversed(cited)}.values())[::-1],
        since=_since(steps[0].fact),
        confidence=min(past.fact.confidence for past in steps),
    )


def _source_of_itself(fact: Fact) -> Source:
    """Return a fact as a source of its timeline, which stands only while the fact does."""
    first = fact.sources[0]
    return Source(agent=first.agent, session=first.session, entry=fact.id)


def _period(past: PastValue, *, is_first: bool) -> str:
    if past.until is None:
        return f"since {_since(past.fact):%Y-%m-%d}"
    if is_first:
        return f"until {past.until:%Y-%m-%d}"
    return f"{_since(past.fact):%Y-%m-%d} to {past.until:%Y-%m-%d}"


def _since(fact: Fact) -> datetime:
    return fact.valid_from or fact.timestamp


def _short(value: str) -> str:
    flat = " ".join(value.split())
    return flat if len(flat) <= _MAX_VALUE_CHARS else f"{flat[: _MAX_VALUE_CHARS - 3].rstrip()}..."
