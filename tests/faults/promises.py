"""What must hold after a fault: each promise is looked at, and what is broken is named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from memtier_plugin.core.events import RetractEvent
from memtier_plugin.core.paths import iter_ledger_folders
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.background import HealthFinding
from memtier_plugin.storage.ledger import jsonl
from tests.faults.workload import AGENT, BESIDE, COPY, LONG, PROJECT, REMEMBERED, START, VAULT
from tests.proofs.checks import assert_equal_to_rebuild, bad_lines

QUERIES = ("how is the bread?", "where does the user live?", "the oven")


@dataclass
class Acknowledged:
    """What the processes of a case acknowledged, raised and logged."""

    entries: dict[str, str] = field(default_factory=dict)
    credits: set[tuple[str, str]] = field(default_factory=set)
    facts: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    expired: bool = False
    purged: str = ""
    backed_up: dict[str, str] = field(default_factory=dict)  # the entries of then
    restored: bool = False
    done: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)  # raised or logged, as they should be
    broken: list[str] = field(default_factory=list)  # what the process itself found wrong

    @classmethod
    def read(cls, path: Path) -> Acknowledged:
        """Read the acknowledgements in a file; a kill may have cut off its last line."""
        acknowledged = cls()
        for line in path.read_bytes().split(b"\n") if path.exists() else ():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            acknowledged.entries |= record.get("entries", {})
            acknowledged.credits |= {(run, item) for run, item in record.get("credits", ())}
            acknowledged.facts |= set(record.get("facts", ()))
            acknowledged.forgotten |= set(record.get("forgotten", ()))
            acknowledged.expired |= "expired" in record
            acknowledged.purged = record.get("purged", acknowledged.purged)
            acknowledged.backed_up = (
                {**acknowledged.entries} if "backing_up" in record else acknowledged.backed_up
            )
            acknowledged.restored |= "restored" in record
            acknowledged.done |= {record["done"]} if "done" in record else set()
            acknowledged.errors += [record["error"]] if "error" in record else []
            acknowledged.broken += [record["broken"]] if "broken" in record else []
        return acknowledged


def state_of(home: Path) -> dict[str, Any]:
    """Return what a home remembers, without the ids and times that every run makes anew.

    Without summaries and profiles, too: they tell of the lines that were there when a job ran,
    and a job that failed, or that another process did meanwhile, runs at another time; of timelines
    the newest alone counts.  And without what is made of the line that is purged: where a job runs
    before the purge is done, a fact keeps the words around what was erased (docs/forgetting.md).
    """
    with MemTier.open(home, PROJECT, AGENT) as memory:
        memory.catch_up()
        reader = memory.store.reader()
        stored = list(reader.facts(standing="remembered"))
        text = {row.item.id: row.item.text for row in stored if isinstance(row.item, Fact)}
        entries = Counter(
            (entry.agent_id, entry.session_id, entry.run_id, entry.role, entry.content)
            for entry in memory.entries()
            # What is remembered has no run's id: again is not the same.
            if entry.content != REMEMBERED and entry.session_id != BESIDE
        )
        facts = sorted(
            (
                row.item.text,
                row.item.status,
                row.state.forgotten,
                text.get(row.state.superseded_by or "", ""),
            )
            for row in stored
            if isinstance(row.item, Fact)
            and row.item.shelf not in ("summary", "profile")
            and not (row.item.shelf == "timeline" and row.state.superseded_by)
            and all(source.session != VAULT for source in row.item.sources)
        )
        promoted = sorted(
            entry.content
            for entry in memory.entries()
            if entry.promoted and entry.session_id != VAULT
        )
        return {
            "entries": entries,
            "facts": facts,
            "promoted": sorted(set(promoted)),
            **_judged(memory),
        }


def _judged(memory: MemTier) -> dict[str, Any]:
    """Return what was judged of the entries: verdicts of the gate, importance, retractions.

    Without what was stored after the background had run, which another process may judge.  Of the
    importance and the verdicts that there is one: what they are depends on the facts that there
    were by then.
    """
    stored = memory.store.reader().items(entry.id for entry in memory.entries(limit=1_000))
    texts = {
        identity: row.item.content
        for identity, row in stored.items()
        if isinstance(row.item, Entry) and row.item.session_id not in (BESIDE, VAULT)
    }
    connection = memory.store.index.connection()
    verdicts = {item for (item,) in connection.execute("SELECT item FROM verdicts")}
    rated = {item for (item,) in connection.execute("SELECT item FROM importance")}
    facts = {fact.id: fact.text for fact in memory.facts(include_superseded=True)}
    retracted = [RetractEvent.of(event) for event in memory.events(kinds=[RetractEvent.KIND])]
    return {
        "verdicts": sorted((text, i in verdicts) for i, text in texts.items()),
        "rated": sorted((text, i in rated) for i, text in texts.items()),
        "retracted": sorted(facts[i] for event in retracted for i in event.items),
    }


def broken(home: Path, acknowledged: Acknowledged, calm: Mapping[str, Any]) -> list[str]:
    """Return which promises do not hold; the work was done to its end by a process of its own."""
    problems = [*acknowledged.broken]
    folder = home / "projects" / PROJECT
    problems += _leftovers(folder)
    with MemTier.open(home, PROJECT, AGENT) as memory:
        memory.catch_up()
        facts = {fact.id for fact in memory.facts(include_superseded=True)}
        reported = [(n, line) for n, line, _ in memory.store.reader().bad_lines(limit=1000)]
        findings = memory.doctor()
        hits = memory.recall("green safe", at=START + timedelta(days=300)).hits
    problems += [f"doctor: {finding.what}" for finding in findings if finding.level == "error"]
    problems += unreported(folder, reported, findings)
    # From the ledgers, where also what is forgotten stays.
    entries = [*lines(folder, "episodic")]
    problems += lost(
        folder, acknowledged, {entry["id"]: entry["content"] for entry in entries}, facts
    )
    if shown := acknowledged.forgotten & {hit.id for hit in hits}:
        problems.append(f"forgotten, but found: {sorted(shown)}")
    problems += doubled(folder, entries)
    problems += purged(home, acknowledged) if acknowledged.purged else []
    if acknowledged.restored:
        copy = {
            entry["id"]: entry["content"] for entry in lines(folder.with_name(COPY), "episodic")
        }
        missing = [i for i, text in acknowledged.backed_up.items() if copy.get(i) != text]
        problems += [f"not restored: {i}" for i in missing]
    now = state_of(home)
    for name, expected in calm.items():
        if now[name] != expected:
            problems.append(f"{name} {_difference(now[name], expected)}")
    try:
        assert_equal_to_rebuild(home, PROJECT, [AGENT, LONG], QUERIES, START + timedelta(days=300))
    except AssertionError as error:
        problems.append(f"not as a rebuild: {str(error).splitlines()[0][:300]}")
    return problems


def unreported(
    folder: Path, read: Iterable[tuple[str, int]], findings: Iterable[HealthFinding]
) -> Iterator[str]:
    """Tell whether the lines that are torn are those that MemTier names.

    Args:
        read: those that the index has read and refused.
        findings: `doctor`'s, which alone names the last line of a file while nothing follows it.
    """
    reported = [*read]
    for finding in findings:
        if finding.what.startswith("the last line is torn"):
            name, _, line = finding.where.rpartition(":")
            reported.append((str(Path(name).relative_to(folder)), int(line)))
    if sorted(reported) != (torn := bad_lines(folder)):
        yield f"torn lines {torn}, reported {sorted(reported)}"


def lost(
    folder: Path, acknowledged: Acknowledged, entries: Mapping[str, str], facts: set[str]
) -> Iterator[str]:
    """Name what was acknowledged and is not there."""
    missing = [text for i, text in acknowledged.entries.items() if entries.get(i) != text]
    if missing:
        yield f"lost entries: {missing}"
    events = [*lines(folder, "journal")]
    credited = {(e["run_id"], e["item"]) for e in events if e["kind"] == "credit"}
    if acknowledged.credits - credited:
        yield f"lost credits: {sorted(acknowledged.credits - credited)}"
    forgotten = {i for e in events if e["kind"] == "forget" for i in e["items"]}
    if missing_facts := acknowledged.facts - facts - forgotten:
        yield f"lost facts: {sorted(missing_facts)}"
    old = [e["id"] for e in events if e["kind"] == "recall" and e["timestamp"] < "2026-04"]
    if acknowledged.expired and old:
        yield f"recalls that were dropped are there: {old}"


def purged(home: Path, acknowledged: Acknowledged) -> Iterator[str]:
    """Name the files in which something stands that was purged."""
    for path in home.rglob("*"):
        if path.is_file() and acknowledged.purged.encode() in path.read_bytes():
            yield f"purged, but in {path.relative_to(home)}"


def lines(folder: Path, requested_kind: str) -> Iterator[dict[str, Any]]:
    """Yield what stands in the ledgers of a kind, as anybody may read it."""
    for kind, _, where in iter_ledger_folders(folder):
        for path in jsonl.list_day_files(where) if kind == requested_kind else ():
            for line in jsonl.read_lines(path)[0]:
                try:
                    yield jsonl.parse_line(line)
                except ValueError:
                    continue


def doubled(folder: Path, entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Name what stands there twice: entries, events, turns."""
    events = Counter(event["id"] for event in lines(folder, "journal"))
    if twice := [event for event, number in events.items() if number > 1]:
        yield f"events written twice: {twice}"
    rated = Counter(
        i for e in lines(folder, "journal") if e["kind"] == "importance" for i in e["scores"]
    )
    if twice := [entry for entry, number in rated.items() if number > 1]:
        yield f"entries rated twice: {twice}"
    keys = Counter(entry["key"] for entry in entries)
    if twice := [key for key, number in keys.items() if number > 1]:
        yield f"entries stored twice: {twice}"
    sessions: dict[tuple[str, str], dict[str, list[int]]] = {}
    for entry in entries:
        days = sessions.setdefault((entry["agent_id"], entry["session_id"]), {})
        days.setdefault(entry["timestamp"][:10], []).append(entry["turn"])
    for (agent, session), days in sessions.items():
        turns = sorted(turn for day in days.values() for turn in day)
        in_order = all(day == sorted(day) for day in days.values())
        if turns != list(range(1, len(turns) + 1)) or not in_order:
            yield f"turns of {agent} {session}: {days}"


def _leftovers(folder: Path) -> Iterator[str]:
    """Name what nobody will read again: a plan not done, half an index, a file not renamed."""
    for path in sorted(folder.rglob("*")):
        name = path.name
        if name == ".settling.json" or name.startswith("index.new") or name.endswith(".new"):
            yield f"left behind: {path.relative_to(folder)}"


def _difference(now: Any, expected: Any) -> str:
    missing = [row for row in expected if row not in now]
    more = [row for row in now if row not in expected]
    if isinstance(now, Counter):
        more += [row for row, number in now.items() if number > expected.get(row, number)]
    return f"differ from an undisturbed run: missing {missing}, more {more}"
