"""The schema of the journal: one frozen dataclass for each kind of event.

A journal line holds the common fields of a `JournalEvent` and, beside them, the fields of its kind.
Here is the only place that names these fields. Writers pass an instance to `Actor.event`; readers
call `CreditEvent.of(event)` and get the typed fields of a line.
Fields are written in the order in which they are declared, `optional` ones only where not None.
Unknown fields of a line are ignored; those that old lines lack have defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, Self

from memtier_plugin.core import (
    cause_events,
    event_payload,
    priority_events,
    purge_events,
    recall_lines,
    usage_events,
)
from memtier_plugin.core.cause_events import Withholding
from memtier_plugin.core.event_payload import EventPayload, StateEvent, fields_of, optional
from memtier_plugin.core.fast_init import fast_init
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.purge_events import PurgeReachedEvent as PurgeReachedEvent
from memtier_plugin.core.records import JournalEvent

# -- recall and learning ---------------------------------------------------------------------------


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class RankedItem:
    """An item of a recall: its rank among all hits, and the signals that made its score."""

    item: str
    rank: int = 0
    tier: str = "episodic"
    score: float = 0.0
    weight: float = 0.0
    signals: Mapping[str, float] = field(default_factory=dict)
    note: str | None = optional()
    proof: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallEvent(EventPayload):
    """A query was answered; ``injected`` are the items whose lines stand in the block.

    ``probability``: that the best hits hold what is needed; ``silent``: why none is injected.
    ``at`` is "" at the event's time; ``everybody``: the person at the machine asked.
    """

    KIND: ClassVar[str] = "recall"

    query: str = ""
    purpose: str = "search"
    profile: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    session_id: str | None = None
    at: str = ""
    sender: str | None = None
    everybody: bool | None = optional()
    k: int | None = None
    token_budget: int | None = None
    repeats: tuple[str, ...] = ()
    depth: str = "mixed"
    route: Mapping[str, Any] | None = optional()
    steps: tuple[Mapping[str, Any], ...] = ()
    label: str = ""
    ms: float = 0.0
    postings: int = 0
    vectors: int = 0
    tokens: int = 0
    probability: float | None = optional()
    silent: str | None = optional()
    withheld: Withholding | None = optional()
    injected: tuple[RankedItem, ...] = ()
    near_misses: tuple[RankedItem, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return the JSON form, packed."""
        return recall_lines.pack(self.in_full())

    def in_full(self) -> dict[str, Any]:
        """Return the JSON form of every field."""
        return fields_of(self)

    @classmethod
    def of(cls, event: JournalEvent) -> Self:
        """Read the fields of a recall's line, packed or written in full by an earlier version."""
        return cls.from_data(recall_lines.unpack(event.data))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditEvent(EventPayload):
    """The outcome of a run moved the weight of an item (MemTier, eq. 1)."""

    KIND: ClassVar[str] = "credit"

    item: str
    attempt: int
    reward: float = 0.0
    share: float = 0.0
    delta: float
    confidence: float | None = optional()  # where it was judged by what the tools returned
    recalls: tuple[str, ...] | None = optional()  # of other runs, named when this one ended
    proxy: str | None = optional()  # that made the share, where a job did


# -- facts -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidateEvent(EventPayload):
    """A consolidation read a window of entries, or ended early with a problem.

    ``cursors`` is how many bytes of each ledger file were read.
    """

    KIND: ClassVar[str] = "consolidate"

    extractor: str = "rules"
    number: int | None = optional()
    cursors: Mapping[str, int] | None = optional()
    read: int = 0
    facts: int | None = optional()
    proposed: int | None = optional()
    promoted: int | None = optional()
    superseded: int | None = optional()
    updated: int | None = optional()
    ignored: int | None = optional()
    rejected: Mapping[str, int] | None = optional()
    tokens: int | None = optional()
    cost: float | None = optional()
    ms: float | None = optional()
    unread: tuple[str, ...] | None = optional()
    problem: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteEvent(StateEvent):
    """A consolidation derived facts from entries."""

    KIND: ClassVar[str] = "promote"

    facts: tuple[str, ...] = ()
    agent: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeEvent(EventPayload):
    """Facts were written that await review."""

    KIND: ClassVar[str] = "propose"

    items: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersedeEvent(StateEvent):
    """A newer fact took the place of others, which were true until ``valid_to``."""

    KIND: ClassVar[str] = "supersede"

    by: str
    valid_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetractEvent(StateEvent):
    """An entry took back what facts said, with nothing in their place, from ``valid_to`` on."""

    KIND: ClassVar[str] = "retract"

    entry: str
    agent: str = ""
    session: str = ""
    valid_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptEvent(StateEvent):
    """A reviewer accepted proposed facts."""

    KIND: ClassVar[str] = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectEvent(StateEvent):
    """A reviewer rejected proposed facts."""

    KIND: ClassVar[str] = "reject"

    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummariseEvent(EventPayload):
    """A pass wrote summaries, timelines and profiles."""

    KIND: ClassVar[str] = "summarise"

    sessions: int = 0
    days: int = 0
    timelines: int = 0
    months: int | None = optional()
    people: int | None = optional()
    profiles: int | None = optional()
    superseded: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPeopleEvent(EventPayload):
    """Somebody said that these senders are one person; "" is the user where none is named."""

    KIND: ClassVar[str] = "link_people"

    people: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlinkPeopleEvent(LinkPeopleEvent):
    """Somebody said that these senders are not whom they were linked with."""

    KIND: ClassVar[str] = "unlink_people"


Verdict = Literal["admitted", "rejected", "left_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEvent(StateEvent):
    """The encoding gate judged entries (True Memory, eq. 1).

    ``signals`` are of each item its novelty, salience and prediction error, none where an earlier
    verdict was only brought to the mode; what is ``left_out`` has no vectors and n-grams.
    """

    KIND: ClassVar[str] = "gate"

    verdict: Verdict
    signals: tuple[tuple[float | None, ...], ...] = ()


# -- undo ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertEvent(StateEvent):
    """A consolidation was rolled back.

    ``probes``, ``before`` and ``after`` are the figures of a recall regression check that failed.
    """

    KIND: ClassVar[str] = "revert"

    why: str = ""
    probes: int | None = optional()
    before: int | None = optional()
    after: int | None = optional()
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreEvent(StateEvent):
    """A consolidation was rolled back: items have the state from before it again."""

    KIND: ClassVar[str] = "restore"

    facts: tuple[str, ...] = ()
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreByUndoEvent(RestoreEvent):
    """The same, written by the undo of a recorded run, which puts the run first."""

    def to_data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"run": self.run, **fields_of(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoEvent(StateEvent):
    """An event that undoes a recorded run of an agent, or brings it back."""

    run: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawEvent(UndoEvent):
    """The entries of a run, and the facts that rest on them alone, were hidden."""

    KIND: ClassVar[str] = "withdraw"


@dataclass(frozen=True, slots=True, kw_only=True)
class UncreditEvent(UndoEvent):
    """The credits of a run were taken back."""

    KIND: ClassVar[str] = "uncredit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinstateEvent(UndoEvent):
    """A withdrawn run was brought back, with its credits."""

    KIND: ClassVar[str] = "reinstate"


# -- forgetting ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetEvent(StateEvent):
    """Items were hidden; with ``session``, all of that session."""

    KIND: ClassVar[str] = "forget"

    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnforgetEvent(StateEvent):
    """Items that had been hidden were brought back."""

    KIND: ClassVar[str] = "unforget"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfideEvent(StateEvent):
    """Entries became confidences; with ``session``, what its sender (None: anybody) says there."""

    KIND: ClassVar[str] = "confide"

    session: str | None = None
    sender: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeForgetEvent(EventPayload):
    """A model asked to forget a fact, or ``evidence`` did; ``proposal``: a person decided.

    ``fact`` may be an entry, too, where evidence asks.
    """

    KIND: ClassVar[str] = "propose_forget"

    fact: str
    proposal: str | None = optional()
    accepted: bool | None = optional()
    why: str | None = optional()
    evidence: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainEvent(EventPayload):
    """The retention policy hid so many entries and facts."""

    KIND: ClassVar[str] = "retain"

    entries: int = 0
    facts: int = 0
    days: int = 0
    most: int = 0
    mb: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeEvent(EventPayload):
    """A purge is complete; its receipt holds counts only, none of the words.

    In a shared project ``shared`` has what the other machines need to remove it too: who they are,
    and criteria without words, until all have.
    """

    KIND: ClassVar[str] = "purge"

    receipt: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, Any] | None = optional()


# -- models and questions --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEvent(EventPayload):
    """A chat request was reserved (``reserves``), or what it took was settled (``settles``)."""

    KIND: ClassVar[str] = "chat"

    settles: str | None = optional()
    model: str = ""
    purpose: str = ""
    reserves: float | None = optional()
    calls: int = 0
    tokens: int | None = optional()
    output_tokens: int | None = optional()
    cost: float | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedEvent(EventPayload):
    """Embedding requests were approved, reserved or settled."""

    KIND: ClassVar[str] = "embed"

    settles: str | None = optional()
    model: str = ""
    approved: float | None = optional()
    reserves: float | None = optional()
    tokens: int | None = optional()
    embedded: int | None = optional()
    cost: float | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskEvent(EventPayload):
    """A question was answered."""

    KIND: ClassVar[str] = "ask"

    question: str = ""
    by: str = ""
    answered: bool = False
    route: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    pages: tuple[str, ...] = ()
    citations: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    rejected: int = 0
    problem: str = ""
    tokens: int = 0
    steps: tuple[Mapping[str, Any], ...] = ()


# -- operations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailedEvent(EventPayload):
    """A hook of a host failed."""

    KIND: ClassVar[str] = "hook_failed"

    host_agent: str = ""
    hook: str = ""
    error: str = ""


_MODULES: Final = (cause_events, priority_events, purge_events, usage_events)
PAYLOADS: Final[Mapping[str, type[EventPayload]]] = {
    payload.KIND: payload
    for module in (globals(), *map(vars, _MODULES))
    for payload in module.values()
    if isinstance(payload, type) and issubclass(payload, EventPayload) and "KIND" in vars(payload)
}


def new_event(
    payload: EventPayload,
    *,
    agent: str,
    at: datetime,
    run: str | None = None,
    event_id: str | None = None,
) -> JournalEvent:
    """Build a journal event in an agent's name.

    Args:
        run: the run that it belongs to.
        event_id: a new id, unless given.
    """
    return JournalEvent(
        id=event_id or new_id(),
        timestamp=at,
        kind=payload.KIND,
        agent_id=agent,
        run_id=run,
        data=payload.to_data(),
    )


def payload_of(event: JournalEvent) -> EventPayload | None:
    """Return the typed fields of an event; None where nothing installed knows its kind.

    Raises:
        KeyError, ValueError: a field is missing or has the wrong type; names it.
    """
    payload = PAYLOADS.get(event.kind) or event_payload.plugin_payload(event.kind)
    return payload.of(event) if payload else None
