"""The journal events of causes: what a run was given or not, how it ended, what followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memtier_plugin.core.event_payload import EventPayload, StateEvent, optional


@dataclass(frozen=True, slots=True, kw_only=True)
class Withholding:
    """The lottery of a recall: each of its lines might have been withheld with probability ``p``.

    ``item`` is the line that was, None where none was; ``exempt`` are injected items that took no
    part in it.
    """

    p: float
    item: str | None = optional()
    exempt: tuple[str, ...] | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverEvent(EventPayload):
    """The host said that a prompt has the block of a recall that was offered to it."""

    KIND: ClassVar[str] = "deliver"

    recall: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeEvent(EventPayload):
    """A run ended with a reward, of which its recalls have a part; a later ``attempt`` counts."""

    KIND: ClassVar[str] = "outcome"

    attempt: int
    reward: float
    confidence: float | None = optional()  # where it was judged by what the tools returned
    recalls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpliftEvent(StateEvent):
    """The weight of an item is bounded by its measured uplift from now on.

    Not by an interval (``low``, ``high``) that includes zero, which takes back an earlier bound.
    """

    KIND: ClassVar[str] = "uplift"

    mean: float = 0.0
    low: float = 0.0
    high: float = 0.0
    shown: int = 0
    withheld: int = 0
