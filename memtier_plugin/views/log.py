"""The log of a day as a person reads it: entries, and between them what happened.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any, Final

from memtier_plugin.core.cause_events import DeliverEvent
from memtier_plugin.core.events import (
    ChatEvent,
    ConsolidateEvent,
    CreditEvent,
    EmbedEvent,
    RecallEvent,
    payload_of,
)
from memtier_plugin.core.records import INJECTING, Entry, JournalEvent
from memtier_plugin.core.structs import Record
from memtier_plugin.providers.pricing import format_cost
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.storage.index.item_reader import SessionSpan

LogLine = dict[str, Any]
_LIMIT: Final = 60  # characters shown of a query


class LogSummary(Record, frozen=True):
    """The counts of a part of the log; ``hours`` has the entries of each UTC hour of the day."""

    entries: int
    recalls: int
    silent: int
    credits: int
    hours: tuple[int, ...]


def summarise(lines: Iterable[Mapping[str, Any]]) -> LogSummary:
    """Count what is in some lines of the log."""
    hours = [0] * 24
    entries = recalls = silent = credits = 0
    for line in lines:
        if line["kind"] == "entry":
            entries += 1
            hours[int(line["observed_at"][11:13])] += 1
        elif line["kind"] == RecallEvent.KIND:
            recalls += 1
            silent += not line.get("injected")
        elif line["kind"] == CreditEvent.KIND:
            credits += 1
    return LogSummary(entries, recalls, silent, credits, tuple(hours))


def list_days(spans: Sequence[SessionSpan]) -> list[str]:
    """Return the UTC days on which sessions spoke, oldest first; of long ones all in between."""
    days = set()
    for span in spans:
        first, last = span.first.astimezone(UTC).date(), span.last.astimezone(UTC).date()
        days |= {first + timedelta(days=n) for n in range((last - first).days + 1)}
    return [day.isoformat() for day in sorted(days)]


def entry_line(entry: Entry) -> LogLine:
    """Return an entry as a line of the log."""
    return {"kind": "entry", **entry.to_json()}


def event_line(event: JournalEvent) -> LogLine:
    """Return an event of the journal as a line of the log, with a ``text`` that describes it."""
    return {**event.to_json(), "text": describe_event(event)}


def add_headings(lines: Iterator[LogLine], *, written: bool = False) -> Iterator[LogLine]:
    """Insert a heading wherever the day, session or agent changes."""
    last = ""
    time_of_entry = "timestamp" if written else "observed_at"
    for line in lines:
        heading = day = line[time_of_entry if line["kind"] == "entry" else "timestamp"][:10]
        if line["kind"] == "entry":
            heading = f"{day}  session {line['session_id']}  agent {line['agent_id']}"
        if heading != last and (line["kind"] == "entry" or not last.startswith(day)):
            yield {"kind": "heading", "text": heading}
            last = heading
        yield line


def by_time_said(line: Mapping[str, Any]) -> tuple[str, str]:
    """Return a key that sorts lines by the time when something was said or happened."""
    moment = line["observed_at"] if line["kind"] == "entry" else line["timestamp"]
    return str(moment), str(line["id"])


def by_id(line: Mapping[str, Any]) -> str:
    """Return a key that sorts lines by the time when they were written."""
    return str(line["id"])


def describe_event(event: JournalEvent) -> str:
    """Describe an event of the journal in a line."""
    try:
        payload = payload_of(event)
    except (KeyError, ValueError):
        payload = None  # a damaged event is listed by its kind
    match payload:
        case RecallEvent():
            name = "recall" if payload.purpose in INJECTING else "search"
            query, lines = _one_line(payload.query), len(payload.injected)
            outcome = f"{payload.label}, {payload.ms:.0f} ms"
            outcome += ", late" * (payload.purpose == "offer")
            return f"{name} {_short_id(event.id)} for “{query}”: {lines} lines ({outcome})"
        case DeliverEvent():
            return f"recall {_short_id(payload.recall)} is in the prompt"
        case CreditEvent():
            verb = "credited" if payload.delta > 0 else "blamed"
            return f"{_short_id(payload.item)} {verb} {payload.delta:+.3f} by {event.run_id}"
        case ConsolidateEvent():
            return f"consolidation read {payload.read} entries"
        case EmbedEvent():
            return _describe_embedding(payload)
        case ChatEvent():
            return _describe_chat(payload)
    items = ", ".join(_short_id(item) for item in event.data.get("items", ()))
    return f"{event.kind} {items}".rstrip()


def _describe_chat(event: ChatEvent) -> str:
    by = f"{event.purpose} by {event.model}"
    if event.reserves is not None:
        return f"{by}: asked, for up to {format_cost(event.reserves)}"
    tokens = f"{event.tokens or 0} tokens read, {event.output_tokens or 0} written"
    return f"{by}: {tokens}, for {format_cost(event.cost or 0.0)}"


def _describe_embedding(event: EmbedEvent) -> str:
    by = f"embedding by {event.model}"
    if event.approved is not None:
        return f"{by}: up to {format_cost(event.approved)} allowed"
    if event.reserves is not None:
        return f"{by}: up to {format_cost(event.reserves)} for the next requests"
    return f"{by}: {event.embedded or 0} items for {format_cost(event.cost or 0.0)}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LIMIT else line[: _LIMIT - 1] + "…"


def _short_id(item_id: str) -> str:
    return item_id[-SHORT_ID_CHARS:]
