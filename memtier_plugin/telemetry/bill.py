"""The bill: the tokens that memory adds to prompts, and the usage of hosts' models.

Hosts report tokens (`usage` events), and settings give the prices. The first call of a run reads a
block uncached; later calls read it from the provider's cache. The bill compares this with a system
prompt that holds every line of users and assistants that the agent's recalls draw on, at its
cheapest: new lines are read uncached once, and the rest always comes from the cache.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any

from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.records import Entry, JournalEvent, UsageEvent
from memtier_plugin.core.settings.schema import ModelPrice
from memtier_plugin.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """The totals of all calls of one model; ``cost`` is None if it has no price."""

    model: str
    runs: int
    calls: int
    input: int
    cached: int
    cache_write: int
    output: int
    cost: float | None

    @property
    def cached_share(self) -> float:
        """The share of prompt tokens read from the provider's cache."""
        return self.cached / max(1, self.input + self.cached + self.cache_write)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The bill of a project.  Amounts are None if no run's model has a price.

    ``injected`` counts each block once; ``memory_tokens`` and ``system_prompt_tokens`` count it in
    every call of a run.
    """

    turns: int = 0
    blocks: int = 0
    injected: int = 0
    lines: int = 0
    repeats: int = 0
    repeats_tokens: int = 0
    models: tuple[ModelUsage, ...] = ()
    memory_tokens: int = 0
    memory_cost: float | None = None
    system_prompt_tokens: int = 0
    system_prompt_cost: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        models = [
            {**asdict(model), "cached_share": round(model.cached_share, 4)} for model in self.models
        ]
        return {**asdict(self), "models": models}


def read_bill(store: Store, since: datetime | None) -> Bill:
    """Return the bill of a project.

    Args:
        since: count only later turns.

    Raises:
        IndexProblem, LedgerError: the journal cannot be read.
    """
    with store.session() as reader:
        store.catch_up(store.files_behind(), wait_ms=200)
        events = reader.events([RecallEvent.KIND, UsageEvent.KIND], since=since)
    entries = (logged.entry for logged in store.log.entries())
    lines = [entry for entry in entries if entry is not None]
    return make_bill(events, lines, store.settings.prices)


def make_bill(
    events: Iterable[JournalEvent], entries: Sequence[Entry], prices: Mapping[str, ModelPrice]
) -> Bill:
    """Compute a bill from recalls and usage."""
    recalls: list[tuple[JournalEvent, RecallEvent]] = []
    usage: dict[tuple[str, str, str], UsageEvent] = {}
    for event in events:
        if event.kind == UsageEvent.KIND:
            reported = UsageEvent.of(event)  # the last report of a run and model counts
            usage[event.agent_id, event.run_id or event.id, reported.model] = reported
        elif (recall := RecallEvent.of(event)).purpose == "inject":
            recalls.append((event, recall))
    shown = [recall for _, recall in recalls if recall.injected]
    injected, lines = sum(r.tokens for r in shown), sum(len(r.injected) for r in shown)
    repeats = sum(len(recall.repeats) for _, recall in recalls)
    return Bill(
        turns=len(recalls),
        blocks=len(shown),
        injected=injected,
        lines=lines,
        repeats=repeats,
        repeats_tokens=round(repeats * injected / lines) if lines else 0,
        models=_models(usage, prices),
        **_compare(recalls, usage, entries, prices),
    )


def _models(
    usage: Mapping[tuple[str, str, str], UsageEvent], prices: Mapping[str, ModelPrice]
) -> tuple[ModelUsage, ...]:
    by_model: dict[str, list[UsageEvent]] = defaultdict(list)
    for (_, _, model), reported in sorted(usage.items(), key=lambda item: item[0]):
        by_model[model].append(reported)
    return tuple(_model(model, reports, prices.get(model)) for model, reports in by_model.items())


def _model(model: str, reports: Sequence[UsageEvent], price: ModelPrice | None) -> ModelUsage:
    names = ("calls", "input", "cached", "cache_write", "output")
    total = Counter({name: sum(getattr(r, name) for r in reports) for name in names})
    cost = sum(total[name] * getattr(price, name) for name in names[1:]) / 1e6 if price else None
    return ModelUsage(model=model, runs=len(reports), cost=cost, **total)


def _compare(
    recalls: Sequence[tuple[JournalEvent, RecallEvent]],
    usage: Mapping[tuple[str, str, str], UsageEvent],
    entries: Sequence[Entry],
    prices: Mapping[str, ModelPrice],
) -> dict[str, Any]:
    """Return the cost of the blocks, and that of a system prompt with all lines instead."""
    by_run = {(agent, run): reported for (agent, run, _), reported in usage.items()}
    logs = _logs(entries)
    tokens, costs, before = [0, 0], [0.0, 0.0], Counter[str]()
    priced = False
    for event, recall in recalls:
        reported = by_run.get((event.agent_id, event.run_id or ""))
        calls = reported.calls if reported else 1
        price = prices.get(reported.model) if reported else None
        everything = _tokens_before(logs.get(event.agent_id, ([], [])), event.timestamp)
        fresh = everything - before[event.agent_id]
        before[event.agent_id] = everything
        block = recall.tokens if recall.injected else 0
        for number, (size, new) in enumerate(((block, block), (everything, fresh))):
            tokens[number] += size * calls
            if price:
                priced = True
                costs[number] += (new * price.input + (size * calls - new) * price.cached) / 1e6
    return {
        "memory_tokens": tokens[0],
        "memory_cost": costs[0] if priced else None,
        "system_prompt_tokens": tokens[1],
        "system_prompt_cost": costs[1] if priced else None,
    }


_Log = tuple[list[datetime], list[int]]


def _logs(entries: Sequence[Entry]) -> dict[str, _Log]:
    """Return the times of each agent's lines with cumulative tokens."""
    by_agent: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.origin in ("user", "assistant") and entry.retrievable:
            by_agent[entry.agent_id].append(entry)
    logs: dict[str, _Log] = {}
    for agent, lines in by_agent.items():
        lines.sort(key=lambda entry: entry.timestamp)
        sums = [*accumulate(entry.tokens for entry in lines)]
        logs[agent] = ([entry.timestamp for entry in lines], sums)
    return logs


def _tokens_before(log: _Log, moment: datetime) -> int:
    times, sums = log
    number = bisect_left(times, moment)
    return sums[number - 1] if number else 0
