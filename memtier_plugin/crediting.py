"""From a run's outcome to the journal's credits: once for each attempt (design 4.3, 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memtier_plugin.attribution import affinity, answer_side, shares
from memtier_plugin.records import Entry, Fact, JournalEvent, Message
from memtier_plugin.store import Store
from memtier_plugin.tokens import plain_words


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a finished run: the new entries, its reward, and each item's credit."""

    entries: list[Entry]
    reward: float
    credits: Mapping[str, float]


class NewEvent(Protocol):
    """Makes a journal event of the agent, now."""

    def __call__(self, kind: str, run: str | None, **data: Any) -> JournalEvent: ...


def settle(
    store: Store,
    new_event: NewEvent,
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
    stored = reader.stored([*reader.rows_of(items).values()]).values()
    words = {
        one.item.id: plain_words(one.item.text if isinstance(one.item, Fact) else one.item.content)
        for one in stored
    }
    answer = answer_side(messages)
    given = shares([affinity(words.get(item, ()), answer, settings.proxy) for item in items])
    share = dict(zip(items, given, strict=True))
    deltas = {i: settings.alpha * outcome * s for i, s in share.items() if outcome and s}
    earlier = reader.events_of_run(agent, run, "credit")
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
