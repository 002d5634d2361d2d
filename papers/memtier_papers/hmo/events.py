"""The journal events of importance, personas and tiers."""

from __future__ import annotations

from collections.abc import Mapping

from memtier_plugin.core.records import EventPayload, EventRecord


class ImportanceEvent(EventPayload, frozen=True, kw_only=True):
    """Entries of an agent and a sender were rated, each once (HMO, eq. 3).

    ``scores`` maps entries to their importance, 1 to 10; ``defaulted`` counts those for which the
    model gave no number. The first rating of an entry is final.
    """

    KIND = "importance"

    sender: str = ""
    by: str = "rules"
    scores: Mapping[str, int]
    defaulted: int = 0


class PersonaEvent(EventPayload, frozen=True, kw_only=True):
    """The sources of an agent's persona of a sender changed.  It contains no text.

    ``number`` orders an agent's passes, as the clock may be set back.  ``drift`` is the distance
    from the anchor, None without one; ``anchor`` says that this persona became the anchor (HMO, eq.
    6).
    """

    KIND = "persona"

    number: int = 0
    sender: str = ""
    items: tuple[str, ...] = ()
    anchor: bool = False
    drift: float | None = None


class Header(EventRecord, frozen=True, kw_only=True):
    """An entry's tier, and the inputs of its priority besides importance (HMO, eq. 4).

    ``used`` is the time of its last use; None if never used.
    """

    item: str
    tier: int
    alignment: float = 0.0
    uses: int = 0
    used: str | None = None


class PrioritiseEvent(EventPayload, frozen=True, kw_only=True):
    """The headers of an agent's and sender's entries changed.

    ``number`` is the pass, ``cursors`` the journal lines up to which uses were counted,
    ``rescored`` the number of alignments recomputed because the persona had drifted.
    """

    KIND = "prioritise"

    number: int = 0
    sender: str = ""
    headers: tuple[Header, ...] = ()
    cursors: Mapping[str, int] | None = None
    rescored: int = 0
