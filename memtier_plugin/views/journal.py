"""Views of a day's log and of one recall, for people.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any, Final

from memtier_plugin.core.events import (
    ChatEvent,
    ConsolidateEvent,
    CreditEvent,
    DeliverEvent,
    EmbedEvent,
    RecallEvent,
    payload_of,
)
from memtier_plugin.core.records import INJECTING, Entry, JournalEvent
from memtier_plugin.core.structs import Record
from memtier_plugin.providers.pricing import format_cost
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.retrieval.journal import LATE, RECOMPUTED
from memtier_plugin.storage.index.item_reader import SessionSpan
from memtier_plugin.storage.readers import Reader

# -- The log of a day for people: entries, interleaved with events.  Pure

LogLine = dict[str, Any]
_LIMIT: Final = 60  # characters of a query
_NEWEST: Final = 50  # recalls, of which the last for a prompt is sought


class LogSummary(Record, frozen=True):
    """The counts of a part of the log; ``hours`` has the entries of each UTC hour of the day."""

    entries: int
    recalls: int
    silent: int
    credits: int
    hours: tuple[int, ...]


def summarise(lines: Iterable[Mapping[str, Any]]) -> LogSummary:
    """Count the lines of a log by kind."""
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
    """Return the UTC days of sessions, oldest first, including days within long sessions."""
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
    """Return a key that sorts lines by the time of the statement or event."""
    moment = line["observed_at"] if line["kind"] == "entry" else line["timestamp"]
    return str(moment), str(line["id"])


def by_id(line: Mapping[str, Any]) -> str:
    """Return a key that sorts lines by the time of writing."""
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


# -- The view of one recall: what was injected and why, near misses, and why it was silent  Built
# from the document of `MemTier.explain`, which has the figures journalled at the time.  Pure.

Document = Mapping[str, Any]


class Bar(Record, frozen=True):
    """The contribution of a signal to a score: weight × value.

    Attributes:
        share: relative to the largest contribution in this recall, from 0 to 1.
        weight: None for a signal that did not count, or a combination of signals.
    """

    name: str
    added: float
    share: float
    weight: float | None
    value: float


class RankedRow(Record, frozen=True):
    """A ranked line of a recall; without ``text`` it was forgotten, or is not visible.

    Attributes:
        behind: how far the score of a near miss is below that of the last injected line.
        recomputed: its signals were computed now; the journal keeps only the score.
        said: what plugins add about it.
    """

    id: str
    rank: int
    score: float
    tier: str
    text: str | None
    file: str | None
    line: int | None
    weight: float
    weight_now: float
    note: str
    proof: str
    bars: tuple[Bar, ...]
    behind: float | None
    recomputed: bool
    said: tuple[str, ...]


class RecallView(Record, frozen=True):
    """A recall for people.

    Attributes:
        silence: why the prompt got no line; "" if it got one.
        depth: its depth, its route and the time of each step, if worth reporting.
        notes: what plugins add (`memtier_explain`), by key.
        block: the injected block: ``text``, its ``tokens``, and whether this is ``exact``.
    """

    id: str
    at: str
    agent: str
    query: str
    purpose: str
    session: str | None
    run: str | None
    label: str
    ms: float
    tokens: int
    token_budget: int | None
    postings: int
    vectors: int
    probability: float | None
    silence: str
    depth: tuple[tuple[str, str], ...]
    notes: Mapping[str, Mapping[str, Any]]
    injected: tuple[RankedRow, ...]
    near_misses: tuple[RankedRow, ...]
    credits: tuple[Mapping[str, Any], ...]
    block: Mapping[str, Any] | None

    @property
    def recomputed(self) -> bool:
        """Whether the signals of near misses were computed now."""
        return any(row.recomputed for row in self.near_misses)


def recall_view(document: Document) -> RecallView:
    """Return the view of a recall's explanation (`MemTier.explain`)."""
    rows = [*document["injected"], *document["near_misses"]]
    added = [abs(value) for row in rows for value in row["contributions"].values()]
    largest = max(added, default=0.0)
    weights = document.get("weights", {})
    values = {name: value for name, value in document.items() if isinstance(value, Mapping)}
    last = min((row["score"] for row in document["injected"]), default=None)

    def ranked(row: Document, least: float | None) -> RankedRow:
        return RankedRow(
            id=row["id"],
            rank=row["rank"],
            score=row["score"],
            tier=row["tier"],
            text=row["text"],
            file=row["file"],
            line=row["line"],
            weight=row["weight"],
            weight_now=row.get("weight_now", row["weight"]),
            note=row.get("note") or "",
            proof=row.get("proof") or "",
            bars=tuple(bars_of(row, weights, largest)),
            behind=None if least is None else round(least - row["score"], 6),
            recomputed=row["signals_from"] == RECOMPUTED,
            said=tuple(each[row["id"]]["said"] for each in values.values() if row["id"] in each),
        )

    return RecallView(
        id=document["id"],
        at=document["timestamp"],
        agent=document["agent_id"],
        query=document["query"],
        purpose=document["purpose"],
        session=document.get("session_id"),
        run=document.get("run_id"),
        label=document["label"],
        ms=document["ms"],
        tokens=document["tokens"],
        token_budget=document.get("token_budget"),
        postings=document["postings"],
        vectors=document["vectors"],
        probability=document.get("probability"),
        silence=why_silent(document),
        depth=tuple(describe_depth(document)),
        notes={name: value for name, value in values.items() if "said" in value},
        injected=tuple(ranked(row, None) for row in document["injected"]),
        near_misses=tuple(ranked(row, last) for row in document["near_misses"]),
        credits=tuple(document["credits"]),
        block=document.get("block"),
    )


def bars_of(row: Document, weights: Mapping[str, float], largest: float) -> Sequence[Bar]:
    """Return the contributions to a row's score: each signal, largest first, then the rest.

    Args:
        weights: the weight of each signal, by name.
        largest: the contribution that fills a bar.
    """
    signals = row["signals"]

    def share(added: float) -> float:
        return round(min(1.0, abs(added) / largest), 4) if largest else 0.0

    bars = [
        Bar(name, added, share(added), weights.get(name), signals.get(name, 0.0))
        for name, added in row["contributions"].items()
    ]
    bars += [
        Bar(name, 0.0, 0.0, None, value)
        for name, value in signals.items()
        if value and name not in weights
    ]
    if row["other"]:
        bars.append(Bar("other", row["other"], share(row["other"]), None, 0.0))
    return bars


def newest_recall(reader: Reader) -> tuple[JournalEvent, RecallEvent] | None:
    """Return the newest recall for a prompt, or else the newest of all."""
    newest = None
    for event in reader.events([RecallEvent.KIND], newest=_NEWEST):
        recall = RecallEvent.of(event)
        if recall.purpose in INJECTING:
            return event, recall
        newest = newest or (event, recall)
    return newest


def why_silent(document: Document) -> str:
    """Return why a prompt got no line from a recall, in words; "" if it got one."""
    if document["purpose"] == "offer":
        return LATE
    if document["injected"]:
        return ""
    if reason := document.get("silent"):
        return str(reason)
    if document.get("repeats"):
        return "the conversation already shows what was found"
    label = str(document["label"])
    if label.startswith("degraded"):
        return label
    for value in document.values():
        if isinstance(value, Mapping) and value.get("item") and "said" in value:
            return f"its only line: {value['said']}"
    if label == "empty":
        return "nothing was found"
    if label == "silent":
        return "the prompt is small talk or a command, and needs no memory"
    return "no line found is allowed in a prompt, or fits into its budget"


def describe_depth(document: Document) -> list[tuple[str, str]]:
    """Describe a recall's depth, its route and the time of each step."""
    rows = []
    if document.get("depth", "mixed") != "mixed":
        rows.append(("depth", str(document["depth"])))
    if route := document.get("route"):
        went = {"S": "answered from the facts", "R": "went to the log"}[route["action"]]
        rows.append(("route", f"{went}, doubt {route['doubt']:.2f}: {'; '.join(route['why'])}"))
    if steps := document.get("steps"):
        rows.append(("steps", ", ".join(f"{step['name']} {step['ms']:.1f} ms" for step in steps)))
    return rows
