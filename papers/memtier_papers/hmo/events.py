"""The journal events of importance, personas and tiers."""

from __future__ import annotations

from collections.abc import Mapping

from memtier_plugin.core.records import EventPayload, EventRecord


class ImportanceEvent(EventPayload, frozen=True, kw_only=True):
    """Entries of an agent and a sender were rated, each once (HMO, eq. 3).

    ``scores`` holds the importance, 1 to 10, by entry; ``defaulted`` counts those to which the
    model answered no number. The first rating of an entry stands.
    """

    KIND = "importance"

    sender: str = ""
    by: str = "rules"
    scores: Mapping[str, int]
    defaulted: int = 0


class PersonaEvent(EventPayload, frozen=True, kw_only=True):
    """The persona of a sender, as an agent knows it, rests on these items now.  It has no text.

    ``number`` orders the passes of an agent, as a clock may be set back.  ``drift`` is the distance
    from the anchor, None where there was none; ``anchor`` says that it became the anchor itself
    (HMO, eq. 6).
    """

    KIND = "persona"

    number: int = 0
    sender: str = ""
    items: tuple[str, ...] = ()
    anchor: bool = False
    drift: float | None = None


class Header(EventRecord, frozen=True, kw_only=True):
    """What the priority of an entry rests on besides its importance, and its tier (HMO, eq. 4).

    ``used`` is the time of its last use, None before the first.
    """

    item: str
    tier: int
    alignment: float = 0.0
    uses: int = 0
    used: str | None = None


class PrioritiseEvent(EventPayload, frozen=True, kw_only=True):
    """The headers of entries of an agent and a sender changed.

    ``number`` is that of the pass, ``cursors`` up to which line of each journal file the uses were
    counted, ``rescored`` how many alignments were computed again because the persona had drifted.
    """

    KIND = "prioritise"

    number: int = 0
    sender: str = ""
    headers: tuple[Header, ...] = ()
    cursors: Mapping[str, int] | None = None
    rescored: int = 0
