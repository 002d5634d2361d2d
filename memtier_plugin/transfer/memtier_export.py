"""Export a project's memory, and import such an export: JSON Lines, or Markdown to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from memtier_plugin import __version__
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.facts.views import FactView
from memtier_plugin.memory import MemTier
from memtier_plugin.transfer.importers.formats import EXPORT_KEY
from memtier_plugin.transfer.importers.reading import SkipCallback, TimeLimit, read_json_lines

# -- Export a project's memory: JSON Lines that can be imported again, or Markdown to read
#
# Both contain the entries and facts that are not forgotten.  Weights, recalls and summaries (which
# are generated again) are left out; a backup has everything.

SCHEMA: Final = 1


def export_jsonl(
    memory: MemTier, agent: str | None = None, session: str | None = None
) -> Iterator[str]:
    """Yield the lines of an export: a header, the entries, and the facts with their states.

    Args:
        agent: only this agent's memory [every agent's].
        session: only this session [all].
    """
    head = {EXPORT_KEY: SCHEMA, "version": __version__, "project": memory.project}
    yield _json_line({**head, "agent": agent, "session": session})
    entries = set()
    for entry in memory.entries(agent=agent, session=session):
        entries.add(entry.id)
        yield _json_line({"record": "entry", **entry.to_json()})
    for view in _exported_facts(memory, agent, session, entries):
        yield _json_line({"record": "fact", **view.to_json()})


def export_markdown(
    memory: MemTier, agent: str | None = None, session: str | None = None
) -> Iterator[str]:
    """Yield the lines of a Markdown export; the arguments are those of `export_jsonl`."""
    yield f"# {_collapse_spaces(memory.project)}\n\n"
    entries, last = set(), ("", "", "")
    for entry in memory.entries(agent=agent, session=session):
        entries.add(entry.id)
        heading = (entry.agent_id, to_iso(entry.observed_at)[:10], entry.session_id)
        if heading[0] != last[0]:
            yield f"## {_collapse_spaces(heading[0])}\n\n"
        if heading != last:
            yield f"### {heading[1]}, {_collapse_spaces(heading[2])}\n\n"
        last = heading
        yield _entry_line(entry)
    facts = [
        view
        for view in _exported_facts(memory, agent, session, entries)
        if view.state != "rejected"
    ]
    if facts:
        yield "\n## Facts\n\n"
    for view in facts:
        state = "" if view.state == "active" else f", {view.state}"
        since = to_iso(view.fact.valid_from)[:10] if view.fact.valid_from else "?"
        text = _indent_continuation(view.fact.text)
        yield f"- {text} *(since {since}, from {view.fact.origin}{state})*\n"


def _exported_facts(
    memory: MemTier, agent: str | None, session: str | None, entries: set[str]
) -> Iterator[FactView]:
    """Yield the facts derived from exported entries; for a whole project, every fact."""
    for view in memory.knowledge.person.facts(include_superseded=True, shelves=False):
        is_cited = any(source.entry in entries for source in view.fact.sources)
        if is_cited or (agent is None and session is None):
            yield view


def _json_line(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=True) + "\n"


def _entry_line(entry: Entry) -> str:
    speaker = entry.speaker or entry.sender or (entry.tool.name if entry.tool else entry.role)
    marks = [mark for mark in ("tainted", "truncated") if getattr(entry, mark)]
    if entry.origin != entry.role:
        marks.insert(0, entry.origin)
    note = f" *({', '.join(marks)})*" if marks else ""
    when = to_iso(entry.observed_at)[11:16]
    return (
        f"- **{_collapse_spaces(speaker)}** {when}{note}: {_indent_continuation(entry.content)}\n"
    )


def _indent_continuation(text: str) -> str:
    """Indent the continuation lines of a text, so that they stay within its list item."""
    return text.strip().replace("\r", "").replace("\n", "\n  ")


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


# -- Import MemTier's own exports: entries under their original delivery keys, then their facts
#
# Importing one again, or into the project it came from, therefore changes nothing.  A fact stays
# active only if its quote appears in an imported line of the user; others wait for review.

_BATCH_SIZE: Final = 1000  # entries per batch
_EXAMPLES: Final = 3
_IMPORTED_STATES: Final = ("active", "proposed")  # states of facts that are imported


@dataclass(slots=True)
class ReimportReport:
    """The result of an import: entries and facts in the file, and how many were new."""

    entries: int = 0
    facts: int = 0
    recorded: int = 0
    new_facts: int = 0
    sessions: set[tuple[str, str]] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)


def import_memtier_export(
    memory: MemTier,
    path: Path,
    skip: SkipCallback,
    limit: TimeLimit,
    *,
    agent: str | None = None,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> ReimportReport:
    """Import an export; unreadable lines are skipped and reported.

    Args:
        agent: record everything as this agent's [as each line's own agent's].
        dry_run: count without writing.
        progress: called with the number of records read.

    Raises:
        ImportFileError: the file is not an export, or cannot be read.
        LedgerError, IndexProblem, ImportStopped: only a part was written; importing again
            completes it.
    """
    importer = _Importer(memory, _cited_entries(path, limit), dry_run)
    report, facts = importer.report, list[tuple[str, Fact]]()
    for number, (location, record) in enumerate(_read_records(path, skip), start=1):
        if isinstance(record, Entry):
            if importer.add(replace(record, agent_id=agent or record.agent_id)):
                progress(number)
                limit.check(report.recorded)
        else:
            facts.append((location, record))
    importer.flush()
    report.facts = len(facts)
    drafts = [
        fact
        for location, fact_there in facts
        if (fact := _localise_fact(location, fact_there, importer.ids, memory, skip))
    ]
    if dry_run:
        with memory.store.session() as reader:
            existing = reader.items(fact.id for fact in drafts)
        report.new_facts = len(drafts) - len(existing)
    elif drafts:
        report.new_facts = len(memory.add_facts(drafts))
    return report


def _cited_entries(path: Path, limit: TimeLimit) -> set[str]:
    """Return the ids of the entries that an export's facts cite as sources."""
    return {
        source.entry
        for _, record in limit.read(_read_records(path, lambda *_: None))
        if isinstance(record, Fact)
        for source in record.sources
    }


@dataclass(slots=True)
class _Importer:
    """Records the entries of an export in batches, and maps cited entries to their ids here."""

    memory: MemTier
    cited: set[str]
    dry_run: bool
    report: ReimportReport = field(default_factory=ReimportReport)
    ids: dict[str, tuple[str, Entry]] = field(default_factory=dict)  # by former id
    _batch: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> bool:
        """Add an entry; return whether a batch was written."""
        self.report.entries += 1
        self.report.sessions.add((entry.agent_id, entry.session_id))
        if len(self.report.examples) < _EXAMPLES:
            self.report.examples.append(entry.content)
        self._batch.append(entry)
        if len(self._batch) < _BATCH_SIZE:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Write the entries added since the last batch."""
        for owner, together in groupby(self._batch, key=lambda entry: entry.agent_id):
            entries = list(together)
            added, ids_by_key = self.memory.record_again(owner, entries, dry_run=self.dry_run)
            self.report.recorded += added
            for entry in entries:
                if entry.id in self.cited and entry.key in ids_by_key:
                    self.ids[entry.id] = ids_by_key[entry.key], entry
        self._batch.clear()


def _localise_fact(
    location: str,
    fact: Fact,
    ids: dict[str, tuple[str, Entry]],
    memory: MemTier,
    skip: SkipCallback,
) -> Fact | None:
    """Map a fact's sources to the entries here; propose it unless its quote is proven."""
    sources_here = [(s, *ids[s.entry]) for s in fact.sources if s.entry in ids]
    if not sources_here:
        skip(location, f"the fact {fact.id} rests on no entry of this file")
        return None
    proven = fact.origin == "user" and any(
        entry.origin == "user" and (fact.quote or fact.text) in entry.content
        for _, _, entry in sources_here
    )
    sources = tuple(
        replace(source, agent=entry.agent_id, entry=identity, file=None, line=None)
        for source, identity, entry in sources_here
    )
    fact = replace(fact, project=memory.project, sources=sources, run=None)
    return fact if proven else replace(fact, status="proposed", reason=fact.reason or "imported")


def _read_records(path: Path, skip: SkipCallback) -> Iterator[tuple[str, Entry | Fact]]:
    lines = read_json_lines(path, skip)
    location, head = next(lines, (str(path), None))
    if not isinstance(head, dict) or EXPORT_KEY not in head:
        raise ImportFileError(
            f"{location}: expected the first line of an export, found {head!r:.60}"
        )
    if head[EXPORT_KEY] != 1:
        raise ImportFileError(
            f"{location}: an export of the form {head[EXPORT_KEY]!r}: upgrade MemTier"
        )
    for location, record in lines:
        try:
            parsed = _parse_record(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            skip(location, f"neither an entry nor a fact: {error}")
            continue
        if parsed:
            yield location, parsed


def _parse_record(record: Any) -> Entry | Fact | None:
    kind = record["record"]
    if kind == "entry":
        return Entry.from_json(record)
    if kind != "fact":
        raise ValueError(f"a record of the kind {kind!r}")
    return Fact.from_json(record) if record.get("state") in _IMPORTED_STATES else None
