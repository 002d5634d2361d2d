"""From a run's outcome to the journal's credits: once for each attempt (design 4.3, 7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from memtier_plugin.core.records import Entry, Fact, JournalEvent, Message
from memtier_plugin.learning.attribution import affinity, answer_words, normalise_shares
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.state import last_attempts
from memtier_plugin.storage.store import Store
from memtier_plugin.text.tokenizer import plain_words
from memtier_plugin.trust import origins


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a finished run: the new entries, its reward, and each item's credit."""

    entries: list[Entry]
    reward: float
    credits: Mapping[str, float]


class EventFactory(Protocol):
    """Makes a journal event of the agent, now."""

    def __call__(self, kind: str, run: str | None, **data: Any) -> JournalEvent: ...


def assign_credit(
    store: Store,
    new_event: EventFactory,
    run: str,
    outcome: float,
    recalls: Sequence[JournalEvent],
    messages: Sequence[Message],
) -> list[JournalEvent]:
    """Return the credits of a run's injected items, to be journalled (eq. 1).

    Nothing when they would repeat the last attempt's: a run delivered twice is credited once.
    """
    items = list(dict.fromkeys(hit["item"] for e in recalls for hit in e.data["injected"]))
    if not items:
        return []
    agent = recalls[0].agent_id
    reader, settings = store.reader(), store.settings.attribution
    stored = [*reader.items_by_row([*reader.rows_of(items).values()]).values()]
    words = {
        one.item.id: plain_words(one.item.text if isinstance(one.item, Fact) else one.item.content)
        for one in stored
    }
    answer = answer_words(messages)
    given = normalise_shares(
        [affinity(words.get(item, ()), answer, settings.proxy) for item in items]
    )
    share = dict(zip(items, given, strict=True))
    deltas = {i: settings.alpha * outcome * s for i, s in share.items() if outcome and s}
    earlier = reader.events_of_run(agent, run, "credit")
    if store.settings.trust.defence:
        # A run that is given again is bounded as it was the first time.
        now = earlier[0].timestamp if earlier else new_event("credit", run).timestamp
        doubted = {one.item.id for one in stored if origins.is_doubtful(one.item)}
        deltas = _cap_deltas(reader, agent, now, deltas, doubted)
    attempt = max((int(e.data["attempt"]) for e in earlier), default=0)
    last = {e.data["item"]: e.data["delta"] for e in earlier if e.data["attempt"] == attempt}
    last = {item: delta for item, delta in last.items() if delta}
    if deltas == last:
        return []
    return [
        new_event(
            "credit",
            run,
            item=item,
            attempt=attempt + 1,
            reward=outcome,
            share=share.get(item, 0.0),
            # What an earlier attempt credited and this one does not is taken back by a 0.
            delta=deltas.get(item, 0.0),
        )
        for item in dict.fromkeys([*deltas, *last])
    ]


def _cap_deltas(
    reader: IndexReader,
    agent: str,
    now: datetime,
    deltas: Mapping[str, float],
    doubted: Collection[str],
) -> dict[str, float]:
    """Return the credits that count: none for doubtful text, and so much for an item in a day."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    found = {}
    for item, delta in deltas.items():
        others = last_attempts(reader.credits(item, agent, day, now))
        bounded = origins.cap_daily_credit(delta, [float(one.data["delta"]) for one in others])
        if bounded and (bounded < 0 or item not in doubted):
            found[item] = bounded
    return found
