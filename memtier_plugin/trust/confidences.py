"""Recognise what is told in confidence, and what is sensitive by its kind.  Pure.

A message that asks that others do not hear, say or keep something is a confidence as a whole,
whatever it tells: "between us, the port is 8443" is not to be published because of the port. By
what it points at, it makes one of what was said before, of what follows, or of all of a session.

Where `discretion` is not sure, nobody but its speaker decides: its facts wait for review.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from memtier_plugin.core.records import Entry
from memtier_plugin.trust.discretion import score

SENSITIVE: Final = "is sensitive"  # the reason why a fact waits for review
DOUBTFUL: Final = "may be a confidence"  # another
WITHHELD: Final = (SENSITIVE, DOUBTFUL)

_MAX_CHARS: Final = 10_000  # of a message that are read, from each of its ends
_CONFIDED: Final = 0.7  # odds, as logarithms, from which a message is a confidence
_DOUBTFUL: Final = 0.0  # and from which it may be one
_SENSITIVE: Final = 0.0
_POINTS: Final = -1.25


@dataclass(frozen=True, slots=True)
class Confidence:
    """What a message makes a confidence, besides itself and the answer to it.

    ``before``: what was said before it; ``after``: what the speaker says next; ``whole``: all of
    the session.
    """

    before: bool = False
    after: bool = False
    whole: bool = False


@lru_cache(128)  # the next run of a session reads its last one again
def find_confidence(text: str) -> Confidence | None:
    """Return what a message makes a confidence; None where it is none itself."""
    if _odds(text) < _CONFIDED:
        return None
    text = _read(text)
    points = {kind: score(kind, text) for kind in ("before", "after", "whole")}
    best = max(points, key=points.__getitem__)
    return Confidence(**{best: True}) if points[best] > _POINTS else Confidence()


def may_be_confided(text: str) -> bool:
    """Return whether a message is a confidence, or may be one."""
    return _odds(text) >= _DOUBTFUL


@lru_cache(1024)  # a consolidation asks for both, and for the last prompts of a session again
def _odds(text: str) -> float:
    return score("confided", _read(text))


def rests_on_doubtful(sources: Collection[str], entries: Mapping[str, Entry]) -> bool:
    """Return whether somebody may have confided what one of these entries says.

    Args:
        sources: the ids of the entries.
        entries: of one agent, session and sender, by id.
    """
    resting = (entries[source] for source in sources if source in entries)
    return any(_is_spoken(entry) and may_be_confided(entry.content) for entry in resting)


def is_sensitive(text: str) -> bool:
    """Return whether a text is sensitive by its kind: health, pay, belief and so on.

    Allergies and diets are not: who knows them protects the person.
    """
    return score("sensitive", _read(text)) >= _SENSITIVE


def _read(text: str) -> str:
    if len(text) <= 2 * _MAX_CHARS:
        return text
    return f"{text[:_MAX_CHARS]}\n{text[-_MAX_CHARS:]}"


def confided_entries(entries: Sequence[Entry]) -> set[str]:
    """Return the ids of a session's entries that are confidences: whole runs, as answers repeat.

    Args:
        entries: of one agent, session and sender, in their order.
    """
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        runs.setdefault(entry.run_id, []).append(entry)
    order, private = [*runs], set[str]()
    for number, run in enumerate(order):
        for entry in runs[run]:
            confidence = find_confidence(entry.content) if _is_spoken(entry) else None
            if confidence is None:
                continue
            if confidence.whole:
                return {entry.id for entry in entries}
            private.add(run)
            private.update(order[max(0, number - 1) : number] if confidence.before else ())
            private.update(order[number + 1 : number + 2] if confidence.after else ())
    return {entry.id for run in private for entry in runs[run]}


def _is_spoken(entry: Entry) -> bool:
    return entry.role == "user" and entry.origin == "user"
