"""The log as a person reads it: entries and, between them, what the memory did with them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from heapq import merge
from typing import Any

from memtier_plugin.cli.views import one_line, short
from memtier_plugin.core.paths import ledger_folders
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.pricing import money
from memtier_plugin.storage.ledger.jsonl import day_files, parse, read

Line = dict[str, Any]


def newest_day(memory: MemTier, agent: str | None) -> str | None:
    """Return the newest day on which an agent, or any, wrote an entry."""
    days = [
        path.stem
        for ledger, owner, folder in ledger_folders(memory.folder)
        if ledger == "episodic" and agent in (None, owner)
        for path in day_files(folder)
    ]
    return max(days, default=None)


def log_lines(
    memory: MemTier,
    *,
    agent: str | None = None,
    date: str | None = None,
    session: str | None = None,
    after_id: str | None = None,
) -> Iterator[Line]:
    """Yield entries and what happened to them, oldest first; the ids are in order of time.

    A line has ``kind`` ("entry", or the journal's) and the fields of its record; the lines of the
    journal have their ``text`` in words.
    """
    entries = [
        {"kind": "entry", **entry.to_json()}
        for entry in memory.entries(agent=agent, date=date, session=session, after_id=after_id)
    ]
    runs = {entry["run_id"] for entry in entries} if session else None
    happened = (
        event
        for event in _events(memory, agent, date)
        if (after_id is None or event["id"] > after_id)
        and (runs is None or event["run_id"] in runs)
    )
    return merge(sorted(entries, key=_by_id), sorted(happened, key=_by_id), key=_by_id)


def headed(lines: Iterator[Line]) -> Iterator[Line]:
    """Put a heading wherever the day, the session or the agent of the entries changes."""
    last = ""
    for line in lines:
        heading = day = line["observed_at" if line["kind"] == "entry" else "timestamp"][:10]
        if line["kind"] == "entry":
            heading = f"{day}  session {line['session_id']}  agent {line['agent_id']}"
        if heading != last and (line["kind"] == "entry" or not last.startswith(day)):
            yield {"kind": "heading", "text": heading}
            last = heading
        yield line


def follow(memory: MemTier, last: str | None, **chosen: str | None) -> Iterator[Line]:
    """Yield what is written from now on, for as long as the caller listens."""
    looked = _today()
    while True:
        for day in sorted({looked, looked := _today()}):  # two days just after midnight
            for line in log_lines(memory, date=day, after_id=last, **chosen):
                last = line["id"]
                yield line
        time.sleep(0.5)


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _by_id(line: Mapping[str, Any]) -> str:
    return str(line["id"])


def _events(memory: MemTier, agent: str | None, date: str | None) -> Iterator[Line]:
    for ledger, _, folder in ledger_folders(memory.folder):
        if ledger != "journal":
            continue
        for path in day_files(folder):
            if date not in (None, path.stem):
                continue
            for raw in read(path)[0]:
                try:
                    event = JournalEvent.from_json(parse(raw))
                except (ValueError, KeyError, TypeError):
                    continue  # doctor names it
                if agent in (None, event.agent_id):
                    yield {**event.to_json(), "text": _in_words(event)}


def _in_words(event: JournalEvent) -> str:
    data = event.data
    if event.kind == "recall":
        what = "recall" if data.get("purpose") == "inject" else "search"
        made = f"{data.get('label')}, {data.get('ms', 0):.0f} ms"
        query, lines = one_line(data.get("query", ""), 60), len(data.get("injected", ()))
        return f"{what} {event.id} for “{query}”: {lines} lines ({made})"
    if event.kind == "credit":
        delta = data.get("delta", 0.0)
        verb = "credited" if delta > 0 else "blamed"
        return f"{short(data.get('item'))} {verb} {delta:+.3f} by {event.run_id}"
    if event.kind == "consolidate":
        return f"consolidation read {data.get('read', 0)} entries"
    if event.kind == "embed":
        return _of_embedding(data)
    if event.kind == "chat":
        return _of_chat(data)
    items = ", ".join(short(item) for item in data.get("items", ()))
    return f"{event.kind} {items}".rstrip()


def _of_chat(data: Mapping[str, Any]) -> str:
    by = f"{data.get('purpose')} by {data.get('model')}"
    if "reserves" in data:
        return f"{by}: asked, for up to {money(data['reserves'])}"
    read, written = data.get("tokens", 0), data.get("output_tokens", 0)
    return f"{by}: {read} tokens read, {written} written, for {money(data.get('cost', 0.0))}"


def _of_embedding(data: Mapping[str, Any]) -> str:
    by = f"embedding by {data.get('model')}"
    if "approved" in data:
        return f"{by}: up to {money(data['approved'])} allowed"
    if "reserves" in data:
        return f"{by}: up to {money(data['reserves'])} for the next requests"
    return f"{by}: {data.get('embedded', 0)} items for {money(data.get('cost', 0.0))}"
