"""Credit or blame what was injected into a run by how its tools fared (MemTier, eq. 1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from memtier_plugin.core.events import CreditEvent, RecallEvent
from memtier_plugin.core.records import Entry, JournalEvent, Message
from memtier_plugin.learning.attribution import (
    answer_words,
    compute_reward,
    share_reward,
)
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import last_attempts
from memtier_plugin.trust import origins
from memtier_plugin.trust.statements import missing_statement


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of a finished run: its new entries, its reward, and the credit of each item."""

    entries: list[Entry]
    reward: float
    credits: Mapping[str, float]


def assign_credit(
    actor: Actor,
    run: str,
    messages: Sequence[Message],
    recalls: Sequence[JournalEvent],
    *,
    failed: bool,
) -> tuple[float, Mapping[str, float]]:
    """Reward a run by the outcome of its tools, and journal the credit of each injected item.

    A run that is delivered again is credited once: nothing is journalled when the credits would
    repeat those of the last attempt.

    Args:
        recalls: the recalls whose blocks the run had in its prompt.
        failed: the run ended with an error; it earns no reward.

    Returns:
        The reward, and the change of each item's weight that was journalled.

    Raises:
        IndexProblem: the index cannot be used.
        LedgerError: the credits were not written.
    """
    reward = compute_reward([message.tool for message in messages if message.tool])
    reward = min(reward, 0.0) if failed else reward
    with actor.store.session() as reader:
        credits = _credits(actor, reader, run, reward, recalls, messages)
    actor.store.append_events([actor.event(credit, run=run) for credit in credits])
    return reward, {credit.item: credit.delta for credit in credits}


def _credits(
    actor: Actor,
    reader: Reader,
    run: str,
    reward: float,
    recalls: Sequence[JournalEvent],
    messages: Sequence[Message],
) -> list[CreditEvent]:
    injected = [ranked.item for event in recalls for ranked in RecallEvent.of(event).injected]
    items = list(dict.fromkeys(injected))
    if not items:
        return []
    agent, settings = recalls[0].agent_id, actor.store.settings
    stored = [*reader.items(items).values()]
    # Acknowledgements, questions and calls of the memory's own tools answer nothing.
    stating = (row.item for row in stored if not missing_statement(row.item))
    texts = {item.id: item.text for item in stating}
    answer, proxy = answer_words(messages), settings.attribution.proxy
    values = share_reward([texts.get(item, "") for item in items], answer, proxy)
    shares = dict(zip(items, values, strict=True))
    alpha = settings.attribution.alpha
    deltas = {item: alpha * reward * share for item, share in shares.items() if reward and share}
    journalled = reader.events(agent=agent, run=run, kinds=[CreditEvent.KIND])
    if settings.trust.defence:
        # A run that is delivered again has the limits of its first delivery.
        now = journalled[0].timestamp if journalled else actor.clock()
        credited = [hit.item for hit in stored if hit.item.id in deltas]
        doubtful = {item.id for item in credited if origins.is_doubtful(item)}
        deltas = _cap_deltas(reader, agent, now, deltas, doubtful)
    earlier = [CreditEvent.of(event) for event in journalled]
    attempt = max((credit.attempt for credit in earlier), default=0)
    last = {c.item: c.delta for c in earlier if c.attempt == attempt and c.delta}
    if deltas == last:
        return []
    return [
        CreditEvent(
            item=item,
            attempt=attempt + 1,
            reward=reward,
            share=shares.get(item, 0.0),
            # A delta of 0 takes back what an earlier attempt credited and this one does not.
            delta=deltas.get(item, 0.0),
        )
        for item in dict.fromkeys([*deltas, *last])
    ]


def _cap_deltas(
    reader: Reader,
    agent: str,
    now: datetime,
    deltas: Mapping[str, float],
    doubtful: Collection[str],
) -> dict[str, float]:
    """Limit credits: no reward for doubtful text, and a daily maximum for each item."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    others: dict[str, list[JournalEvent]] = {}
    for event in reader.events(
        items=deltas, agent=agent, kinds=[CreditEvent.KIND], since=day, before=now
    ):
        others.setdefault(CreditEvent.of(event).item, []).append(event)
    capped = {}
    for item, delta in deltas.items():
        today = [credit.delta for _, credit in last_attempts(others.get(item, ()))]
        allowed = origins.cap_daily_credit(delta, today)
        if allowed and (allowed < 0 or item not in doubtful):
            capped[item] = allowed
    return capped
