"""The journal events of causes: what a run was given or not, how it ended, what followed."""

from __future__ import annotations

from memtier_plugin.core.event_payload import EventPayload, EventRecord, StateEvent


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
