"""Journal events of upkeep: outcomes and their causes, purges, limits and use."""

from __future__ import annotations

from memtier_plugin.core.event_lines import EventPayload, EventRecord, StateEvent

# -- The journal events of causes: what a run was given or not, how it ended, what followed


class Withholding(EventRecord, frozen=True, kw_only=True):
    """The lottery of a recall: each of its lines might have been withheld with probability ``p``.

    ``item`` is the line that was, None where none was; ``exempt`` are injected items that took no
    part in it.
    """

    p: float
    item: str | None = None
    exempt: tuple[str, ...] | None = None


class DeliverEvent(EventPayload, frozen=True, kw_only=True):
    """The host said that a prompt has the block of a recall that was offered to it."""

    KIND = "deliver"

    recall: str


class OutcomeEvent(EventPayload, frozen=True, kw_only=True):
    """A run ended with a reward, of which its recalls have a part; a later ``attempt`` counts."""

    KIND = "outcome"

    attempt: int
    reward: float
    confidence: float | None = None  # where it was judged by what the tools returned
    recalls: tuple[str, ...] = ()


class UpliftEvent(StateEvent, frozen=True, kw_only=True):
    """The weight of an item is bounded by its measured uplift from now on.

    Not by an interval (``low``, ``high``) that includes zero, which takes back an earlier bound.
    """

    KIND = "uplift"

    mean: float = 0.0
    low: float = 0.0
    high: float = 0.0
    shown: int = 0
    withheld: int = 0


# -- The journal event by which a machine confirms a purge; `events` lists it with all others


class PurgeReachedEvent(EventPayload, frozen=True, kw_only=True):
    """A machine that shares the project has nothing left of these purges of others."""

    KIND = "purge_reached"

    purges: tuple[str, ...]
    machine: str


# -- The journal events of limits, and of what hosts' models took; `events` lists them with all


class LimitEvent(EventPayload, frozen=True, kw_only=True):
    """A limit cut something (``entries``, ``runs``), or is near (``near``)."""

    KIND = "limit"

    limit: str = ""
    most: int = 0
    entries: tuple[str, ...] | None = None
    near: int | None = None
    runs: tuple[str, ...] | None = None


class UsageEvent(EventPayload, frozen=True, kw_only=True):
    """The tokens that a run's calls of one model took, as its host reports them.

    ``input`` was read anew, ``cached`` came from the provider's prompt cache and ``cache_write``
    went into it; a prompt is all three. A later event of the same run and model replaces it.
    """

    KIND = "usage"

    model: str = ""
    calls: int = 1
    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
