"""The journal events of importance, persona and tiers; `events` lists them with all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from memtier_plugin.core.event_payload import EventPayload, optional


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceEvent(EventPayload):
    """Entries of an agent and a sender were rated, each once (HMO, eq. 3).

    ``scores`` holds the importance, 1 to 10, by entry; ``defaulted`` counts those to which the
    model answered no number. The first rating of an entry stands.
    """

    KIND: ClassVar[str] = "importance"

    sender: str = ""
    by: str = "rules"
    scores: Mapping[str, int]
    defaulted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaEvent(EventPayload):
    """The persona of a sender, as an agent knows it, rests on these items now.  It has no text.

    ``number`` orders the passes of an agent, as a clock may be set back.  ``drift`` is the distance
    from the anchor, None where there was none; ``anchor`` says that it became the anchor itself
    (HMO, eq. 6).
    """

    KIND: ClassVar[str] = "persona"

    number: int = 0
    sender: str = ""
    items: tuple[str, ...] = ()
    anchor: bool = False
    drift: float | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the priority of an entry rests on besides its importance, and its tier (HMO, eq. 4).

    ``used`` is the time of its last use, None before the first.
    """

    item: str
    tier: int
    alignment: float = 0.0
    uses: int = 0
    used: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrioritiseEvent(EventPayload):
    """The headers of entries of an agent and a sender changed.

    ``number`` is that of the pass, ``cursors`` up to which line of each journal file the uses were
    counted, ``rescored`` how many alignments were computed again because the persona had drifted.
    """

    KIND: ClassVar[str] = "prioritise"

    number: int = 0
    sender: str = ""
    headers: tuple[Header, ...] = ()
    cursors: Mapping[str, int] | None = optional()
    rescored: int = 0
