"""Find every copy of purged text: ledger lines, files and derived rows of a project.

A scan has four steps: find the matching records, add dependent ones, count the copies by kind, and
plan what to do with each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from memtier_plugin.core.formats import new_id
from memtier_plugin.core.records import ON_DEMAND_KINDS, Entry
from memtier_plugin.ingest.messages import key_after
from memtier_plugin.lifecycle.purge.files import FileScan, scan_files
from memtier_plugin.lifecycle.purge.plan import (
    PURGED_MARK,
    ItemFinder,
    PurgePlan,
    SpanFinder,
    Spans,
    TextFinder,
    TextPath,
    find_edits,
    iter_texts,
    line_digest,
    parse_line,
    word_set,
)
from memtier_plugin.lifecycle.selection import expand_to_dependents
from memtier_plugin.storage.ledger.jsonl import LedgerFile
from memtier_plugin.storage.store import Store

_NEEDLES: Final = 64  # texts that files are searched for at the end
_MIN_NEEDLE_CHARS: Final = 8  # of such a text
# Fields that hold an item's text
_TEXT_FIELDS: Final = ("content", "tool", "text", "value", "quote")
_STATEMENT_FIELDS: Final = ("text", "value", "subject")  # without them a fact is empty
_COUNTED_AS: Final = {"semantic": "facts", "procedural": "experiences"}

Record = dict[str, Any]
RunKey = tuple[str, str]  # agent and run


@dataclass(slots=True)
class Copies:
    """The number of copies by kind; ``exports`` lists each file with its treatment.

    ``left`` lists untreated files and folders with the reason.
    """

    entries: int = 0
    facts: int = 0
    experiences: int = 0
    summaries: int = 0
    answers: int = 0
    quotes: int = 0
    journal: int = 0
    unreadable: int = 0
    vectors: int = 0
    ngrams: int = 0
    pages: int = 0
    queue: int = 0
    files: list[str] = field(default_factory=list)
    exports: list[dict[str, str]] = field(default_factory=list)
    left: list[dict[str, str]] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)

    @property
    def found(self) -> int:
        """The total number of copies."""
        counts = [value for value in asdict(self).values() if isinstance(value, int)]
        treated = ("rewritten", "deleted", "left")
        waiting = [export for export in self.exports if export["what"] in treated]
        return sum(counts) + len(self.files) + len(waiting) + len(self.left)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "found": self.found}


@dataclass(frozen=True, slots=True)
class CopyScan:
    """The result of a scan: the plan, the copies, and the means to search for them again.

    ``queries`` has, by agent and sender, texts whose recall must afterwards find nothing.
    """

    plan: PurgePlan
    copies: Copies
    needles: Sequence[str]
    queries: Sequence[tuple[str, str, str]]
    finder: SpanFinder
    runs: Collection[RunKey] = ()


@dataclass(frozen=True, slots=True)
class _Target:
    """What a scan searches for.

    ``stubs`` are items removed as a whole, ``texts`` their texts; ``runs`` those whose query was
    one of these items; ``partly`` facts that rest on other items too.  Without ``names`` the names
    of sessions, runs and senders are not searched.
    """

    finder: SpanFinder
    needles: Sequence[str]
    names: bool = False
    stubs: Collection[str] = ()
    texts: Sequence[str] = ()
    runs: Collection[RunKey] = ()
    partly: Collection[str] = ()


@dataclass(slots=True)
class _CopyMatches:
    """The matching records by id, and the edits that remove the match from each."""

    stubs: set[str]
    records: dict[str, tuple[LedgerFile, Record]] = field(default_factory=dict)
    edits: dict[str, list[tuple[TextPath, Spans]]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)  # digests of lines

    @property
    def items(self) -> list[str]:
        """The ids of entries and facts."""
        return [i for i, (file, _) in self.records.items() if file.ledger != "journal"]


class CopyScanner:
    """Scans one project for text to purge."""

    def __init__(self, store: Store, *, delete_exports: bool = False) -> None:
        self._store = store
        self._delete_exports = delete_exports
        self._segments = store.log.segments()

    def scan_text(self, text: str) -> CopyScan:
        """Find the copies of a text."""
        return self._scan(_Target(TextFinder(text), [text.strip()], names=True))

    def scan_items(self, entries: Collection[str], facts: Collection[str]) -> CopyScan:
        """Find the copies of entries and facts, and everything that rests on or repeats them."""
        dependents, partly = expand_to_dependents(self._store, entries, facts)
        stubs = {*entries, *dependents}
        texts_by_item = self._texts_of(stubs)
        words, needles = self._distinctive_words(stubs, partly, texts_by_item)
        texts = [text for texts in texts_by_item.values() for text in texts]
        finder, runs = ItemFinder(texts, words), self._runs_of(entries)
        return self._scan(
            _Target(finder, needles, stubs=stubs, texts=texts, runs=runs, partly=partly)
        )

    def rescan(self, first: CopyScan) -> CopyScan:
        """Search again for the targets of an earlier scan."""
        names = isinstance(first.finder, TextFinder)
        target = _Target(first.finder, first.needles, names=names, stubs=first.plan.stubs)
        return self._scan(target)

    def _scan(self, target: _Target) -> CopyScan:
        matches = self._find(target)
        self._widen(target, matches)
        files = scan_files(
            self._store, target.finder, target.needles, delete_exports=self._delete_exports
        )
        copies = self._count(matches, files)
        plan = _plan(matches, files)
        queries = _queries(matches)
        return CopyScan(plan, copies, target.needles, queries, target.finder, target.runs)

    # -- the four steps ------------------------------------------------------------------------

    def _find(self, target: _Target) -> _CopyMatches:
        """Find the records to purge as a whole, and those that contain purged text."""
        matches = _CopyMatches({*target.stubs})
        for file, data, record in self._records():
            if record is None:
                if target.finder(data.decode("utf-8", "replace")):
                    matches.unreadable.append(line_digest(data))
                continue
            identity = str(record.get("id"))
            edits = [] if identity in matches.stubs else _edits(target, file, record)
            is_fact = file.ledger in _COUNTED_AS and isinstance(target.finder, ItemFinder)
            if is_fact and any(path[0] in _STATEMENT_FIELDS for path, _ in edits):
                matches.stubs.add(identity)
            is_stub = identity in matches.stubs
            was_purged = is_stub and "purged" in record and not _has_text(record)
            if (is_stub or edits) and not was_purged:
                matches.edits[identity] = edits
                matches.records[identity] = file, record
        return matches

    def _widen(self, target: _Target, matches: _CopyMatches) -> None:
        """Add the facts that rest on a match and share words with the purged text."""
        finder = target.finder
        if not isinstance(finder, TextFinder) or not finder.words:
            return
        _, dependents = expand_to_dependents(self._store, list(matches.records), ())
        candidates = dependents - matches.records.keys()
        for file, _, record in self._records():
            if record is None or file.ledger not in _COUNTED_AS:
                continue
            texts = iter_texts(record, names=False)
            if record.get("id") in candidates and any(
                not finder.words.isdisjoint(word_set(text)) for _, text in texts
            ):
                matches.records[str(record["id"])] = file, record
                matches.stubs.add(str(record["id"]))

    def _count(self, matches: _CopyMatches, files: FileScan) -> Copies:
        """Count the copies by kind."""
        copies = Copies(
            unreadable=len(matches.unreadable),
            queue=files.queued,
            files=files.names,
            exports=files.exports,
            left=files.left,
        )
        agents = set()
        for identity, (file, record) in matches.records.items():
            if file.ledger == "episodic":
                agents.add(str(file.owner))
            elif file.ledger != "journal" and record.get("quote"):
                edits = matches.edits.get(identity, ())
                is_quote = any(path[0] == "quote" for path, _ in edits)
                copies.quotes += is_quote or identity in matches.stubs
            name = _counted_as(file, record)
            setattr(copies, name, getattr(copies, name) + 1)
        copies.agents = sorted(agents)
        with self._store.session() as reader:
            derived = reader.derived_counts(matches.items)
            copies.pages = reader.count_sessions(matches.items)
        copies.vectors, copies.ngrams = derived["vectors"], derived["ngrams"]
        return copies

    # -- the texts of purged items -------------------------------------------------------------

    def _records(self) -> Iterator[tuple[LedgerFile, bytes, Record | None]]:
        """Yield every ledger line with its record; None for an unreadable one."""
        for file in self._segments:
            for data in self._store.log.records(file):
                if data.strip():
                    yield file, data, parse_line(data)

    def _texts_of(self, items: Collection[str]) -> dict[str, list[str]]:
        """Return the texts of items by id, without names."""
        texts = {}
        for file, _, record in self._records():
            if record and file.ledger != "journal" and record.get("id") in items:
                texts[str(record["id"])] = [
                    text
                    for path, text in iter_texts(record, names=False)
                    if path[0] in _TEXT_FIELDS
                ]
        return texts

    def _runs_of(self, entries: Collection[str]) -> set[RunKey]:
        """Return the runs whose query was one of these entries."""
        return {
            _run_of(record)
            for file, _, record in self._records()
            if record
            and file.ledger == "episodic"
            and record.get("id") in entries
            and record.get("role") == "user"
        }

    def _distinctive_words(
        self,
        stubs: Collection[str],
        partly: Collection[str],
        texts_by_item: Mapping[str, Sequence[str]],
    ) -> tuple[set[str], list[str]]:
        """Return the words that only purged items have, and texts for the final search."""
        texts = {text for texts in texts_by_item.values() for text in texts}
        # The mark of an earlier purge is not searched for.
        unmarked = {text: text.replace(PURGED_MARK, " ").strip() for text in texts}
        words = {word for text in unmarked.values() for word in word_set(text)}
        needles = {text for text, rest in unmarked.items() if len(rest) >= _MIN_NEEDLE_CHARS}
        needles = {*sorted(needles, key=lambda text: (-len(text), text))[:_NEEDLES]}
        for file, _, record in self._records():
            if file.ledger == "journal" or record is None:
                continue
            if record.get("id") in stubs or record.get("id") in partly:
                continue
            for _, text in iter_texts(record, names=True):
                words -= word_set(text)
                words.difference_update(self._store.tokenizer.words(text))
                needles -= {needle for needle in needles if needle in text}
        strong = [
            word for word in words if len(word) >= _MIN_NEEDLE_CHARS and any(map(str.isdigit, word))
        ]
        return words, [*sorted(needles), *sorted(strong)[:_NEEDLES]]


def _edits(target: _Target, file: LedgerFile, record: Record) -> list[tuple[TextPath, Spans]]:
    """Return the edits that remove all matches from a record."""
    finder = target.finder
    edits = find_edits(record, finder, names=target.names)
    if file.ledger != "journal" and isinstance(finder, ItemFinder):
        # A text that others repeat stays; a text unique to the purged items goes.
        edits = [edit for edit in edits if finder.has_unique_word(_value_at(record, edit[0]))]
    query = record.get("query")
    if record.get("kind") == "recall" and query and _run_of(record) in target.runs:
        edits.append((("query",), [(0, len(query))]))
    quote = str(record.get("quote") or "")
    if quote and record.get("id") in target.partly and any(quote in t for t in target.texts):
        edits = [edit for edit in edits if edit[0] != ("quote",)]
        edits.append((("quote",), [(0, len(quote))]))
    return edits


def _plan(matches: _CopyMatches, files: FileScan) -> PurgePlan:
    """Plan what to do with each match: replace it by a stub, or edit it."""
    return PurgePlan(
        id=new_id(),
        stubs=frozenset(matches.stubs & matches.records.keys()),
        keys={
            identity: key_of_purged(record, file.owner)
            for identity, (file, record) in matches.records.items()
            if file.ledger == "episodic"
        },
        edits={i: e for i, e in matches.edits.items() if e and i not in matches.stubs},
        lines=frozenset(matches.unreadable),
        plain=files.edits,
        files=files.deletions,
    )


def _queries(matches: _CopyMatches) -> list[tuple[str, str, str]]:
    """Return the texts of the matches, with the agent and sender that may recall each."""
    queries = []
    for file, record in matches.records.values():
        if file.ledger == "episodic":
            sender = str(record.get("sender") or "")
            queries.append((str(file.owner), sender, str(record["content"])))
        elif file.ledger != "journal":
            queries.append(("", "", str(record.get("text", ""))))
    return queries


def _counted_as(file: LedgerFile, record: Mapping[str, Any]) -> str:
    """Return the field of `Copies` that counts a record."""
    if file.ledger in ("episodic", "journal"):
        return "entries" if file.ledger == "episodic" else "journal"
    if record.get("extractor") in ON_DEMAND_KINDS:
        return "summaries"
    return "answers" if record.get("extractor") == "ask" else _COUNTED_AS[file.ledger]


def key_of_purged(record: Mapping[str, Any], owner: str | None) -> str:
    """Return a purged record's new key, which depends only on its position."""
    try:
        entry = Entry.from_json(record, owner=owner)
    except (ValueError, TypeError, KeyError):
        return str(record.get("key", ""))
    return key_after(entry)


def _run_of(record: Mapping[str, Any]) -> RunKey:
    return str(record.get("agent_id")), str(record.get("run_id"))


def _value_at(record: Any, path: TextPath) -> str:
    for step in path:
        record = record[step]
    return str(record)


def _has_text(record: Mapping[str, Any]) -> bool:
    return bool(record.get("content") or record.get("text"))
