"""Credit or blame what was injected into a run by how its tools fared (MemTier, eq. 1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from memtier_plugin.core.events import CreditEvent, RecallEvent
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Message
from memtier_plugin.learning.attribution import (
    affinity,
    answer_words,
    compute_reward,
    normalise_shares,
)
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.state import last_attempts
from memtier_plugin.text.tokenizer import plain_words
from memtier_plugin.trust import origins


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
    reader: IndexReader,
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
    words = {
        hit.item.id: plain_words(hit.item.text if isinstance(hit.item, Fact) else hit.item.content)
        for hit in stored
    }
    answer, proxy = answer_words(messages), settings.attribution.proxy
    affinities = [affinity(words.get(item, ()), answer, proxy) for item in items]
    shares = dict(zip(items, normalise_shares(affinities), strict=True))
    alpha = settings.attribution.alpha
    deltas = {item: alpha * reward * share for item, share in shares.items() if reward and share}
    journalled = reader.events(agent=agent, run=run, kinds=[CreditEvent.KIND])
    if settings.trust.defence:
        # A run that is delivered again has the limits of its first delivery.
        now = journalled[0].timestamp if journalled else actor.clock()
        doubtful = {hit.item.id for hit in stored if origins.is_doubtful(hit.item)}
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
    reader: IndexReader,
    agent: str,
    now: datetime,
    deltas: Mapping[str, float],
    doubtful: Collection[str],
) -> dict[str, float]:
    """Limit credits: no reward for doubtful text, and a daily maximum for each item."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    capped = {}
    for item, delta in deltas.items():
        others = last_attempts(
            reader.events(item=item, agent=agent, kinds=[CreditEvent.KIND], since=day, before=now)
        )
        allowed = origins.cap_daily_credit(delta, [CreditEvent.of(e).delta for e in others])
        if allowed and (allowed < 0 or item not in doubtful):
            capped[item] = allowed
    return capped
