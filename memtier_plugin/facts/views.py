"""What people look at: the log as it was written, and the facts, with their current values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from memtier_plugin.core.codecs import decode_entry
from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.paths import iter_ledger_folders
from memtier_plugin.core.records import Entry, Fact, Source
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.retrieval.visibility import redact_for
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.state import describe_state
from memtier_plugin.storage.store import Store


@dataclass(frozen=True, slots=True)
class Review:
    """What somebody decided on a fact: ``accept``, ``reject`` or ``revert``, who, when and why."""

    what: str
    agent: str
    at: datetime
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"what": self.what, "agent": self.agent, "at": to_iso(self.at), "why": self.why}


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line that a fact rests on; without ``entry`` it is another agent's, or gone.

    ``span`` is where the quote stands in it.
    """

    source: Source
    entry: Entry | None = None
    span: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the source, and the entry where it may be seen."""
        at = {"file": self.source.file, "line": self.source.line}
        entry = self.entry.to_json() if self.entry else None
        mark = list(self.span) if self.span else None
        return {**self.source.to_json(), **at, "mark": mark, "line_of": entry}


@dataclass(frozen=True, slots=True)
class FactView:
    """A fact as it stands now, with its ``valid_to``.

    ``state`` is active, proposed, superseded, rejected, reverted, or held back when that was
    because recall fell.  ``reviews`` and ``lines`` are there when one fact is asked for.
    """

    fact: Fact
    state: str
    superseded_by: str | None = None
    reviews: tuple[Review, ...] = ()
    lines: tuple[SourceLine, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the fact's own fields, and how it stands."""
        return {
            **self.fact.to_json(),
            "state": self.state,
            "superseded_by": self.superseded_by,
        }

    def to_document(self) -> dict[str, Any]:
        """Return all of it: the fact, the lines it rests on, and what was decided on it."""
        return {
            "fact": self.to_json(),
            "sources": [line.to_json() for line in self.lines],
            "reviews": [review.to_json() for review in self.reviews],
        }


def read_entries(
    store: Store,
    *,
    agent: str | None = None,
    date: str | None = None,
    session: str | None = None,
    after_id: str | None = None,
) -> Iterator[Entry]:
    """Yield entries from the ledgers in the order written; see `MemTier.entries`."""
    reader = store.reader()
    for kind, owner, folder in iter_ledger_folders(store.folder):
        if kind != "episodic" or (agent is not None and owner != agent):
            continue
        for path in jsonl.list_day_files(folder):
            if date is not None and path.stem != date:
                continue
            for line in jsonl.read_lines(path)[0]:
                try:
                    entry = decode_entry(line.data, owner=owner)
                except (ValueError, TypeError, KeyError):
                    continue  # `doctor` names it
                if (session is not None and entry.session_id != session) or (
                    after_id is not None and entry.id <= after_id
                ):
                    continue
                state = reader.state(entry.id)
                if not state.forgotten:
                    yield replace(entry, promoted=state.promoted, cognitive_weight=state.weight)


def list_facts(
    reader: IndexReader, viewer: str | None, *, everything: bool = False, shelves: bool = True
) -> list[FactView]:
    """Return the facts that an agent may see, oldest first.

    Args:
        viewer: the agent; None is the person at the machine, or who reads everybody's entries.
        everything: those too that do not hold now.
        shelves: summaries and timelines too.
    """
    found = reader.all_facts(include_superseded=everything, agent=viewer)
    return [one for one in view_facts(reader, found, viewer) if shelves or not one.fact.shelf]


def view_facts(reader: IndexReader, stored: Iterable[Stored], viewer: str | None) -> list[FactView]:
    """Return of these facts those that an agent may see, as they stand now."""
    seen = [
        one
        for one in stored
        if isinstance(one.item, Fact)
        and not one.state.forgotten
        and (viewer is None or not one.item.private_to or one.item.private_to[0] == viewer)
    ]
    held = {fact for event in reader.reverts_after_recall_drop() for fact in event.data["items"]}
    return [_view(one, viewer, held) for one in seen]


def show_fact(reader: IndexReader, fact_id: str, viewer: str | None) -> FactView:
    """Return a fact with what was decided on it, and the lines it rests on that may be seen.

    Raises:
        NotFound: there is no such fact that this agent may see.
    """
    stored = reader.items_by_row([*reader.rows_of([fact_id]).values()]).values()
    for one in view_facts(reader, stored, viewer):
        decided = [
            Review(event.kind, event.agent_id, event.timestamp, str(event.data.get("why") or ""))
            for event in reader.events_of_item(fact_id)
            if event.kind in ("accept", "reject", "revert")
        ]
        return replace(one, reviews=tuple(decided), lines=_source_lines(reader, one.fact, viewer))
    raise NotFound(f"there is no fact {fact_id!r}; `memtier facts list` shows them")


def _view(one: Stored, viewer: str | None, held: Collection[str]) -> FactView:
    item, state = one.item, one.state
    assert isinstance(item, Fact)
    word = describe_state(state, item.status == "active")
    if word == "reverted" and item.id in held:
        word = "held back"
    until = from_iso(state.valid_to) if state.valid_to else item.valid_to
    return FactView(replace(redact_for(item, viewer), valid_to=until), word, state.superseded_by)


def _source_lines(reader: IndexReader, fact: Fact, viewer: str | None) -> tuple[SourceLine, ...]:
    sources = reader.sources(fact.id)
    rows = reader.rows_of(source.entry for source in sources)
    stored = {one.item.id: one for one in reader.items_by_row([*rows.values()]).values()}
    lines = []
    for place, source in enumerate(sources):
        one = stored.get(source.entry)
        private = viewer is not None and source.agent != viewer
        if private or one is None or one.state.forgotten or not isinstance(one.item, Entry):
            lines.append(SourceLine(replace(source, file=None, line=None)))
            continue
        lines.append(
            SourceLine(source, one.item, _quote_span(fact, one.item.content, first=not place))
        )
    return tuple(lines)


def _quote_span(fact: Fact, content: str, *, first: bool) -> tuple[int, int] | None:
    """Return where a line has the words that a fact quotes; its span is of its first source."""
    if first and fact.span and content[slice(*fact.span)] == fact.quote:
        return fact.span
    at = content.find(fact.quote) if fact.quote else -1
    return (at, at + len(fact.quote)) if at >= 0 else None
