"""Convert ledger records to spans and measurements.  Pure.

Every operation of a memory ends in a record: a recall in a journal line, a run in entries, a forget
in an event. Nothing else needs instrumentation. Names follow OpenTelemetry's GenAI semantic
conventions (semantic-conventions-genai, docs/gen-ai/gen-ai-spans.md, memory operations), which
define no memory metrics: those are named ``memtier.*``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from memtier_plugin.core.events import (
    AcceptEvent,
    ChatEvent,
    ConsolidateEvent,
    CreditEvent,
    EmbedEvent,
    ForgetEvent,
    HookFailedEvent,
    PurgeEvent,
    RecallEvent,
    RejectEvent,
    RetainEvent,
    RetractEvent,
    SupersedeEvent,
    UnforgetEvent,
    WithdrawEvent,
)
from memtier_plugin.core.records import INJECTING, Entry, Fact, JournalEvent, StateEvent

Record = Entry | Fact | JournalEvent
Attributes = Mapping[str, str | int | float]

STORE: Final = "gen_ai.memory.store.id"
AGENT: Final = "gen_ai.agent.id"
COUNT: Final = "gen_ai.memory.record.count"
ERROR: Final = "error.type"
QUERY_TEXT: Final = "gen_ai.memory.query.text"  # opt-in, like the next one
RECORDS: Final = "gen_ai.memory.records"
_SESSION: Final = "gen_ai.conversation.id"
# In seconds; the conventions' buckets begin at 10 ms, too coarse for a recall.
_RECALL_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15)
_DELETIONS: Final[tuple[type[StateEvent], ...]] = (ForgetEvent, RejectEvent, WithdrawEvent)
_UPDATES: Final[tuple[type[StateEvent], ...]] = (
    *(SupersedeEvent, RetractEvent),
    *(AcceptEvent, UnforgetEvent),
)
_CHANGES: Final = {event.KIND: event for event in _DELETIONS + _UPDATES}
_MOST_CHARS: Final = 4000  # of a record's text
_OPERATION_OF_HOOK: Final = {
    "before_prompt_build": "search_memory",
    "agent_end": "create_memory",
    "before_compaction": "create_memory",
}


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric: its name, kind, unit (UCUM) and meaning; ``buckets`` are a histogram's bounds."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    meaning: str
    buckets: tuple[float, ...] = ()


RECALL_DURATION: Final = Instrument(
    "memtier.recall.duration", "histogram", "s", "How long recalls took.", _RECALL_BUCKETS
)
TOKENS: Final = Instrument("memtier.recall.tokens", "counter", "{token}", "Tokens injected.")
LINES: Final = Instrument("memtier.recall.lines", "counter", "{line}", "Lines injected.")
REPEATS: Final = Instrument(
    "memtier.recall.repeats", "counter", "{line}", "Lines left out as the prompt had them."
)
SILENCE: Final = Instrument(
    "memtier.recall.silence", "counter", "{recall}", "Recalls that injected nothing, by why."
)
STORED: Final = Instrument("memtier.stored", "counter", "{record}", "Entries and facts written.")
CREDITS: Final = Instrument("memtier.credits", "counter", "{credit}", "Credits, by their sign.")
ENDPOINT_COST: Final = Instrument(
    "memtier.endpoint.cost", "counter", "{currency}", "What endpoints cost, as priced."
)
ENDPOINT_TOKENS: Final = Instrument(
    "memtier.endpoint.tokens", "counter", "{token}", "Tokens that endpoints read and wrote."
)
FAILURES: Final = Instrument("memtier.hook.failures", "counter", "{call}", "Failed hooks.")
QUEUE_DEPTH: Final = Instrument(
    "memtier.queue.depth", "gauge", "{run}", "Runs of hosts that wait on disk to be stored."
)
UNCAPTURED: Final = Instrument(
    "memtier.turns_since_capture", "gauge", "{turn}", "Recalls for prompts since a run was stored."
)
DROPPED: Final = Instrument(
    "memtier.telemetry.dropped", "counter", "{record}", "Records that telemetry had no room for."
)
INSTRUMENTS: Final = (
    *(RECALL_DURATION, TOKENS, LINES, REPEATS, SILENCE, STORED, CREDITS),
    *(ENDPOINT_COST, ENDPOINT_TOKENS, FAILURES, QUEUE_DEPTH, UNCAPTURED, DROPPED),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """One value of an instrument."""

    instrument: Instrument
    value: float
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Operation:
    """A span: its name, duration and attributes."""

    name: str
    ms: float
    attributes: Attributes


def operations_of(
    project: str, records: Sequence[Record], ms: float, *, texts: bool = False
) -> Iterator[Operation]:
    """Yield the spans of records written together.

    Args:
        ms: the duration of the write, for records without their own.
        texts: include queries and contents, which the conventions make opt-in.
    """
    entries = [record for record in records if isinstance(record, Entry)]
    if entries:
        named = {_SESSION: entries[0].session_id, "memtier.run.id": entries[0].run_id}
        named |= {AGENT: entries[0].agent_id}
        yield _created(project, entries, ms, named, texts=texts)
    if facts := [record for record in records if isinstance(record, Fact)]:
        yield _created(project, facts, ms, {"memtier.tier": facts[0].tier}, texts=texts)
    for record in records:
        if isinstance(record, JournalEvent) and (
            operation := _operation(project, record, ms, texts=texts)
        ):
            yield operation


def measures_of(project: str, records: Sequence[Record]) -> Iterator[Measure]:
    """Yield the measurements of records."""
    base = {STORE: project}
    kinds = (
        ("entry", [r for r in records if isinstance(r, Entry)]),
        (
            "fact",
            [r for r in records if isinstance(r, Fact)],
        ),
    )
    for kind, stored in kinds:
        if stored:
            yield Measure(STORED, len(stored), {**base, "memtier.kind": kind})
    for record in records:
        if not isinstance(record, JournalEvent):
            continue
        if record.kind == RecallEvent.KIND:
            yield from _measure_recall(base, RecallEvent.of(record))
        elif record.kind == CreditEvent.KIND:
            delta = CreditEvent.of(record).delta
            sign = "positive" if delta > 0 else "negative" if delta < 0 else "zero"
            yield Measure(CREDITS, 1, {**base, "memtier.credit": sign})
        elif record.kind in (ChatEvent.KIND, EmbedEvent.KIND):
            yield from _measure_endpoint(base, record)
        elif record.kind == HookFailedEvent.KIND:
            failed = HookFailedEvent.of(record)
            named = {"memtier.hook": failed.hook, ERROR: _error_type(failed.error)}
            yield Measure(FAILURES, 1, {**base, **named})


def turns_after(records: Sequence[Record], turns: Mapping[str, int]) -> dict[str, int]:
    """Return the recalls for prompts since a run was stored, by agent, after more records."""
    after = {**turns}
    for record in records:
        if isinstance(record, Entry):
            after[record.agent_id] = 0
        elif isinstance(record, JournalEvent) and record.kind == RecallEvent.KIND:
            injected = record.data.get("purpose") in INJECTING
            after[record.agent_id] = after.get(record.agent_id, 0) + injected
    return after


def _created(
    project: str,
    records: Sequence[Entry] | Sequence[Fact],
    ms: float,
    named: Attributes,
    *,
    texts: bool,
) -> Operation:
    attributes = {**named, COUNT: len(records)}
    if len(records) == 1:
        attributes["gen_ai.memory.record.id"] = records[0].id
    if texts:
        contents = [
            {"id": r.id, "content": (r.content if isinstance(r, Entry) else r.text)[:_MOST_CHARS]}
            for r in records
        ]
        attributes[RECORDS] = json.dumps(contents, ensure_ascii=False)
    return _simple("create_memory", project, ms, attributes)


def _operation(project: str, event: JournalEvent, ms: float, *, texts: bool) -> Operation | None:
    named: dict[str, str | int | float] = {AGENT: event.agent_id}
    if event.kind == RecallEvent.KIND:
        return _search(project, event, named, texts=texts)
    if payload := _CHANGES.get(event.kind):
        named |= {COUNT: len(payload.of(event).items), "memtier.event": event.kind}
        deleted = payload in _DELETIONS
        return _simple("delete_memory" if deleted else "update_memory", project, ms, named)
    if event.kind in (PurgeEvent.KIND, RetainEvent.KIND):
        return _simple("delete_memory", project, ms, {**named, "memtier.event": event.kind})
    if event.kind == ConsolidateEvent.KIND:
        done = ConsolidateEvent.of(event)
        figures = {"read": done.read, "facts": done.facts, "cost": done.cost}
        named |= {f"memtier.consolidate.{k}": v for k, v in figures.items() if v is not None}
        if done.problem:
            named[ERROR] = _error_type(done.problem)
        return _simple("consolidate", project, done.ms or ms, named)
    if event.kind == HookFailedEvent.KIND:
        failed = HookFailedEvent.of(event)
        named |= {AGENT: failed.host_agent, ERROR: _error_type(failed.error)}
        name = _OPERATION_OF_HOOK.get(failed.hook)
        return (
            name and _simple(name, project, 0.0, {**named, "memtier.hook": failed.hook})
        ) or None
    return None


def _search(project: str, event: JournalEvent, named: Attributes, *, texts: bool) -> Operation:
    recall = RecallEvent.of(event)
    optional = {
        _SESSION: recall.session_id,
        "gen_ai.request.top_k": recall.k,
        "memtier.run.id": event.run_id,
        "memtier.recall.silence": _reason(recall),
        QUERY_TEXT: recall.query if texts else None,
    }
    attributes = {
        **named,
        COUNT: len(recall.injected),
        "memtier.recall.id": event.id,
        "memtier.recall.purpose": recall.purpose,
        "memtier.recall.label": recall.label,
        "memtier.recall.tokens": recall.tokens,
        "memtier.recall.postings": recall.postings,
        "memtier.recall.vectors": recall.vectors,
        **{name: value for name, value in optional.items() if value},
    }
    return _simple("search_memory", project, recall.ms, attributes)


def _simple(name: str, project: str, ms: float, named: Attributes) -> Operation:
    return Operation(name, ms, {"gen_ai.operation.name": name, STORE: project, **named})


def _measure_recall(base: Attributes, recall: RecallEvent) -> Iterator[Measure]:
    how = {
        **base,
        "memtier.recall.purpose": recall.purpose,
        "memtier.recall.label": recall.label.partition(":")[0],
    }
    yield Measure(RECALL_DURATION, recall.ms / 1000, how)
    if recall.purpose not in INJECTING:
        return
    yield Measure(TOKENS, recall.tokens if recall.injected else 0, base)
    yield Measure(LINES, len(recall.injected), base)
    yield Measure(REPEATS, len(recall.repeats), base)
    if not recall.injected:
        reason = _reason(recall) or recall.label.partition(":")[0]
        yield Measure(SILENCE, 1, {**base, "memtier.recall.silence": reason})


def _measure_endpoint(base: Attributes, event: JournalEvent) -> Iterator[Measure]:
    """Yield the cost of requests once they are settled, not while it is only reserved."""
    used = ChatEvent.of(event) if event.kind == ChatEvent.KIND else EmbedEvent.of(event)
    if used.settles is None and used.cost is None:
        return
    purpose = used.purpose if isinstance(used, ChatEvent) else "embedding"
    named = {**base, "gen_ai.request.model": used.model, "memtier.purpose": purpose}
    yield Measure(ENDPOINT_COST, used.cost or 0.0, named)
    written = used.output_tokens or 0 if isinstance(used, ChatEvent) else 0
    yield Measure(ENDPOINT_TOKENS, (used.tokens or 0) + written, named)


def _reason(recall: RecallEvent) -> str:
    """Return why a recall was silent, without the figures."""
    return (recall.silent or "").partition(":")[0]


def _error_type(text: str) -> str:
    """Return the class of an error whose text is ``Class: message``, else ``_OTHER``."""
    name = text.partition(":")[0]
    return name if name.isidentifier() else "_OTHER"
