"""Export a project's memory: JSON Lines that can be imported again, or Markdown to read.

Both contain the entries and facts that are not forgotten.  Weights, recalls and summaries (which
are generated again) are left out; a backup has everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from memtier_plugin import __version__
from memtier_plugin.core.records import Entry
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts.views import FactView
from memtier_plugin.memory import MemTier
from memtier_plugin.transfer.importers.detect import EXPORT_KEY

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
        mine = any(source.entry in entries for source in view.fact.sources)
        if mine or (agent is None and session is None):
            yield view


def _json_line(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=True) + "\n"


def _entry_line(entry: Entry) -> str:
    who = entry.speaker or entry.sender or (entry.tool.name if entry.tool else entry.role)
    marks = [mark for mark in ("tainted", "truncated") if getattr(entry, mark)]
    if entry.origin != entry.role:
        marks.insert(0, entry.origin)
    note = f" *({', '.join(marks)})*" if marks else ""
    when = to_iso(entry.observed_at)[11:16]
    return f"- **{_collapse_spaces(who)}** {when}{note}: {_indent_continuation(entry.content)}\n"


def _indent_continuation(text: str) -> str:
    """Indent the continuation lines of a text, so that they stay within its list item."""
    return text.strip().replace("\r", "").replace("\n", "\n  ")


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())
