"""The schema of the journal: one frozen record for each kind of event, tagged with its kind.

A journal line holds the common fields of a `JournalEvent` plus those of its kind, which are
declared only here. Writers pass an instance to `Actor.event`; readers call `CreditEvent.of(event)`
to get typed fields.
Fields are written in declaration order, None only if `NULLS` lists them. Unknown fields are
ignored; fields missing from old lines have defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, Self

from memtier_plugin.core import event_lines
from memtier_plugin.core.formats import new_id
from memtier_plugin.core.records import (
    EventPayload,
    EventRecord,
    JournalEvent,
    StateEvent,
    UsageEvent,
)

# -- recall and learning ---------------------------------------------------------------------------


class RankedItem(EventRecord, frozen=True, kw_only=True):
    """A recalled item: its rank among all hits, and the signals behind its score."""

    item: str
    rank: int = 0
    tier: str = "episodic"
    score: float = 0.0
    weight: float = 0.0
    signals: Mapping[str, float] = {}
    note: str | None = None
    proof: str | None = None


class RecallEvent(EventPayload, frozen=True, kw_only=True, tag="recall"):
    """A query was answered; ``injected`` are the items whose lines are in the block.

    ``probability``: how likely the best hits answer the query; ``silent``: why none is injected.
    ``at`` is "" at the event's time; ``everybody``: asked by the person at this machine;
    ``withheld``: what the plugin that packed the block (`memtier_pack`) records about it.
    """

    NULLS = frozenset({"session_id", "sender", "k", "token_budget"})

    query: str = ""
    purpose: str = "search"
    profile: str = ""
    weights: Mapping[str, float] = {}
    session_id: str | None = None
    at: str = ""
    sender: str | None = None
    everybody: bool | None = None
    k: int | None = None
    token_budget: int | None = None
    repeats: tuple[str, ...] = ()
    depth: str = "mixed"
    route: Mapping[str, Any] | None = None
    steps: tuple[Mapping[str, Any], ...] = ()
    label: str = ""
    ms: float = 0.0
    postings: int = 0
    vectors: int = 0
    tokens: int = 0
    probability: float | None = None
    silent: str | None = None
    withheld: Mapping[str, Any] | None = None
    injected: tuple[RankedItem, ...] = ()
    near_misses: tuple[RankedItem, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return the JSON form, packed."""
        return event_lines.pack(self.to_json())

    @classmethod
    def of(cls, event: JournalEvent) -> Self:
        """Read the fields of a recall's line, packed or in the full form of earlier versions."""
        return cls.from_json(event_lines.unpack(event.data))


_SHOWN_CALL: Final = 60  # characters


class CreditEvent(EventPayload, frozen=True, kw_only=True, tag="credit"):
    """The outcome of a run changed the weight of an item (MemTier, eq. 1)."""

    item: str
    attempt: int
    reward: float = 0.0
    share: float = 0.0
    delta: float
    confidence: float | None = None  # set where the tools' results judged it
    recalls: tuple[str, ...] | None = None  # of other runs, named when this one ended
    proxy: str | None = None  # the proxy model whose job computed the share
    tool: str | None = None  # where one call decided
    call: str | None = None  # its arguments
    ok: bool | None = None  # how that call ended; None where it teaches nothing
    exit_code: int | None = None


class CallEvent(StateEvent, frozen=True, kw_only=True, tag="call"):
    """The call that entries record, or that lines were the basis of before, ended so."""

    tool: str
    call: str = ""  # its arguments
    ok: bool
    exit_code: int | None = None
    why: str | None = None  # what outside the memory made it fail


def describe_call(credit: Mapping[str, Any]) -> str:
    """Return the call that decided a credit, and how it ended; "" where a run did."""
    if credit.get("ok") is None:
        return ""
    code = credit.get("exit_code")
    ended = "worked" if credit["ok"] else "failed" if code is None else f"failed, exit {code}"
    call = " ".join(f"{credit.get('tool') or ''} {credit.get('call') or ''}".split())
    return f"{call[:_SHOWN_CALL]}: {ended}"


class DeliverEvent(EventPayload, frozen=True, kw_only=True, tag="deliver"):
    """The host reported that a prompt contains the block of an offered recall."""

    recall: str


# -- facts -----------------------------------------------------------------------------------------


class ConsolidateEvent(EventPayload, frozen=True, kw_only=True, tag="consolidate"):
    """A consolidation read a window of entries, or ended early with a problem.

    ``cursors``: how many bytes of each ledger file were read.
    """

    extractor: str = "rules"
    number: int | None = None
    cursors: Mapping[str, int] | None = None
    read: int = 0
    facts: int | None = None
    proposed: int | None = None
    promoted: int | None = None
    superseded: int | None = None
    updated: int | None = None
    ignored: int | None = None
    rejected: Mapping[str, int] | None = None
    tokens: int | None = None
    cost: float | None = None
    ms: float | None = None
    unread: tuple[str, ...] | None = None
    problem: str | None = None


class PromoteEvent(StateEvent, frozen=True, kw_only=True, tag="promote"):
    """A consolidation derived facts from entries."""

    facts: tuple[str, ...] = ()
    agent: str = ""
    session: str = ""


class ProposeEvent(EventPayload, frozen=True, kw_only=True, tag="propose"):
    """Facts were written that await review."""

    items: tuple[str, ...]
    reason: str = ""


class RemindEvent(StateEvent, frozen=True, kw_only=True, tag="remind"):
    """A prompt's block reminded of intentions, as their event or their day had come."""

    recall: str


class CallReminderEvent(StateEvent, frozen=True, kw_only=True, tag="call_reminder"):
    """An agent was reminded of a rule before a tool call; ``again``: it made the call again."""

    session_id: str
    tool: str
    call: str = ""  # its arguments
    again: bool = False


class SupersedeEvent(StateEvent, frozen=True, kw_only=True, tag="supersede"):
    """A newer fact replaced others, which were true until ``valid_to``."""

    NULLS = frozenset({"valid_to"})

    by: str
    valid_to: str | None = None


class RetractEvent(StateEvent, frozen=True, kw_only=True, tag="retract"):
    """An entry retracted facts without a replacement, from ``valid_to`` on."""

    NULLS = frozenset({"valid_to"})

    entry: str
    agent: str = ""
    session: str = ""
    valid_to: str | None = None


class AcceptEvent(StateEvent, frozen=True, kw_only=True, tag="accept"):
    """A reviewer accepted proposed facts."""


class RejectEvent(StateEvent, frozen=True, kw_only=True, tag="reject"):
    """A reviewer rejected proposed facts."""

    why: str = ""


class SummariseEvent(EventPayload, frozen=True, kw_only=True, tag="summarise"):
    """A pass wrote summaries, timelines and profiles."""

    sessions: int = 0
    days: int = 0
    timelines: int = 0
    months: int | None = None
    people: int | None = None
    profiles: int | None = None
    superseded: int = 0
    problem: str = ""


class LinkPeopleEvent(EventPayload, frozen=True, kw_only=True, tag="link_people"):
    """A person linked these senders as one; "" is the user where the host names no sender."""

    people: tuple[str, ...] = ()


class UnlinkPeopleEvent(LinkPeopleEvent, frozen=True, kw_only=True, tag="unlink_people"):
    """A person separated these senders again."""


class RevertEvent(StateEvent, frozen=True, kw_only=True, tag="revert"):
    """A consolidation was rolled back.

    ``probes``, ``before`` and ``after`` are the figures of a recall regression check that failed.
    """

    why: str = ""
    probes: int | None = None
    before: int | None = None
    after: int | None = None
    run: str


class RestoreEvent(StateEvent, frozen=True, kw_only=True, tag="restore"):
    """A consolidation was rolled back: items have their earlier state again."""

    facts: tuple[str, ...] = ()
    run: str


class UndoEvent(StateEvent, frozen=True, kw_only=True):
    """Base of the events that undo a recorded run of an agent, or restore it."""

    run: str
    agent: str


class WithdrawEvent(UndoEvent, frozen=True, kw_only=True, tag="withdraw"):
    """The entries of a run, and the facts that rest on them alone, were hidden."""


class UncreditEvent(UndoEvent, frozen=True, kw_only=True, tag="uncredit"):
    """The credits of a run were reversed."""


class ReinstateEvent(UndoEvent, frozen=True, kw_only=True, tag="reinstate"):
    """A withdrawn run was restored, with its credits."""


# -- forgetting ------------------------------------------------------------------------------------


class ForgetEvent(StateEvent, frozen=True, kw_only=True, tag="forget"):
    """Items were hidden; with ``session``, the whole session."""

    NULLS = frozenset({"session"})

    session: str | None = None


class UnforgetEvent(StateEvent, frozen=True, kw_only=True, tag="unforget"):
    """Hidden items were restored."""


class ConfideEvent(StateEvent, frozen=True, kw_only=True, tag="confide"):
    """Entries became confidences; with ``session``, all its sender (None: anybody) says there."""

    NULLS = frozenset({"session"})

    session: str | None = None
    sender: str | None = None


class ProposeForgetEvent(EventPayload, frozen=True, kw_only=True, tag="propose_forget"):
    """A model, or ``evidence``, asked to forget a fact; ``proposal``: a person decided.

    ``fact`` may also be an entry where evidence asks.
    """

    fact: str
    proposal: str | None = None
    accepted: bool | None = None
    why: str | None = None
    evidence: str | None = None


class RetainEvent(EventPayload, frozen=True, kw_only=True, tag="retain"):
    """The retention policy hid so many entries and facts."""

    entries: int = 0
    facts: int = 0
    days: int = 0
    most: int = 0
    mb: float = 0.0


class PurgeEvent(EventPayload, frozen=True, kw_only=True, tag="purge"):
    """A purge is complete; its receipt holds counts and no text.

    In a shared project ``shared`` has what the other machines need to purge it too: their names and
    criteria without text, until all have done so.
    """

    receipt: Mapping[str, Any] = {}
    shared: Mapping[str, Any] | None = None


class PurgeReachedEvent(EventPayload, frozen=True, kw_only=True, tag="purge_reached"):
    """A machine that shares the project has removed everything that these purges cover."""

    purges: tuple[str, ...]
    machine: str


class ChatEvent(EventPayload, frozen=True, kw_only=True, tag="chat"):
    """A chat request was reserved (``reserves``), or its actual cost settled (``settles``)."""

    settles: str | None = None
    model: str = ""
    purpose: str = ""
    reserves: float | None = None
    calls: int = 0
    tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None


class EmbedEvent(EventPayload, frozen=True, kw_only=True, tag="embed"):
    """Embedding requests were approved, reserved or settled."""

    settles: str | None = None
    model: str = ""
    approved: float | None = None
    reserves: float | None = None
    tokens: int | None = None
    embedded: int | None = None
    cost: float | None = None


class AskEvent(EventPayload, frozen=True, kw_only=True, tag="ask"):
    """A question was answered."""

    question: str = ""
    by: str = ""
    answered: bool = False
    route: Mapping[str, Any] = {}
    rounds: int = 0
    pages: tuple[str, ...] = ()
    citations: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    rejected: int = 0
    problem: str = ""
    tokens: int = 0
    steps: tuple[Mapping[str, Any], ...] = ()


class HookFailedEvent(EventPayload, frozen=True, kw_only=True, tag="hook_failed"):
    """A hook of a host failed."""

    host_agent: str = ""
    hook: str = ""
    error: str = ""


class LimitEvent(EventPayload, frozen=True, kw_only=True, tag="limit"):
    """A limit cut something off (``entries``, ``runs``), or is close (``near``)."""

    limit: str = ""
    most: int = 0
    entries: tuple[str, ...] | None = None
    near: int | None = None
    runs: tuple[str, ...] | None = None


PAYLOADS: Final[Mapping[str, type[EventPayload]]] = {
    payload.KIND: payload
    for payload in (*globals().values(), UsageEvent)
    if isinstance(payload, type) and issubclass(payload, EventPayload) and payload.KIND
}


@cache
def plugin_payload(kind: str) -> type[EventPayload] | None:
    """Return the event payload that an installed plugin declares for a kind."""
    from memtier_plugin.core import plugins  # imported here because few journals have such events

    return plugins.find_event_kinds().get(kind)


def new_event(
    payload: EventPayload,
    *,
    agent: str,
    at: datetime,
    run: str | None = None,
    event_id: str | None = None,
) -> JournalEvent:
    """Build a journal event of an agent; see `Actor.event`."""
    return JournalEvent(
        id=event_id or new_id(),
        timestamp=at,
        kind=payload.KIND,
        agent_id=agent,
        run_id=run,
        data=payload.to_data(),
    )


def payload_of(event: JournalEvent) -> EventPayload | None:
    """Return the typed fields of an event; None if no installed package knows its kind.

    Raises:
        KeyError, ValueError: a field is missing or has the wrong type; names it.
    """
    payload = PAYLOADS.get(event.kind) or plugin_payload(event.kind)
    return payload.of(event) if payload else None
