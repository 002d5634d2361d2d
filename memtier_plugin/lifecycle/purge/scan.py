"""Where copies of what is to be purged are: every ledger line, file and derived row of a project.

What to do about each becomes a plan (`erasure`); what was found is counted by what it is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.ids import new_id
from memtier_plugin.core.paths import decode_file_name
from memtier_plugin.core.records import ON_DEMAND_KINDS, Entry
from memtier_plugin.ingest.delivery_keys import key_after
from memtier_plugin.ingest.recorder import delivery_key_at
from memtier_plugin.lifecycle.purge.plan import (
    ItemFinder,
    PlainFileEdit,
    PurgePlan,
    Spans,
    TextFinder,
    TextPath,
    find_edits,
    iter_texts,
    line_digest,
    parse_line,
    word_set,
)
from memtier_plugin.lifecycle.purge.rewrite import read_lines, text_digest
from memtier_plugin.lifecycle.selection import expand_to_dependents
from memtier_plugin.storage import export_register as exports
from memtier_plugin.storage import recovery
from memtier_plugin.storage.index.scrub import unneeded_files
from memtier_plugin.storage.index.selection import IndexSelect
from memtier_plugin.storage.index.writer import LedgerFile, ledger_files
from memtier_plugin.storage.store import Store

MAX_PLAIN_BYTES: Final = (
    64 * 1024 * 1024
)  # bytes; a larger file that is no ledger is only looked at
_NEEDLES: Final = 64  # texts that files are searched for in the end
_MIN_NEEDLE_CHARS: Final = 8  # characters of such a text
_TEXT_FIELDS: Final = ("content", "tool", "text", "value", "quote")  # what an item says
_EDITABLE_EXPORTS: Final = ("jsonl", "markdown")  # kinds of exports that can be changed
_COUNTED_AS: Final = {"semantic": "facts", "procedural": "experiences"}

SpanFinder = Callable[[str], Spans]


@dataclass(slots=True)
class Copies:
    """What was found, by what it is; ``exports`` names each file and what becomes of it.

    ``left`` names files and folders that nothing is done about, and why.
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
        """How many copies there are in all."""
        counts = [value for value in asdict(self).values() if isinstance(value, int)]
        waiting = [one for one in self.exports if one["what"] in ("rewritten", "deleted", "left")]
        return sum(counts) + len(self.files) + len(waiting) + len(self.left)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "found": self.found}


@dataclass(frozen=True, slots=True)
class CopyScan:
    """What there is to purge: the plan, what was found, and by what it is looked for again.

    ``queries`` has, by agent and sender, texts whose recall must find nothing afterwards.
    """

    plan: PurgePlan
    copies: Copies
    items: Collection[str]
    needles: Sequence[str]
    queries: Sequence[tuple[str, str, str]]
    finder: SpanFinder


class CopyScanner:
    """Looks for what is to be purged in one project."""

    def __init__(self, store: Store, *, delete_exports: bool = False) -> None:
        self._store = store
        self._delete = delete_exports
        self._files = ledger_files(store.folder)

    def scan_text(self, text: str) -> CopyScan:
        """Return where a text stands."""
        finder = TextFinder(text)
        return self._scan(finder, (), {}, frozenset(), names=True, needles=[text.strip()])

    def scan_items(self, entries: Collection[str], facts: Collection[str]) -> CopyScan:
        """Return where entries and facts, and what rests on them or repeats them, stand."""
        gone, partly = expand_to_dependents(self._store, entries, facts)
        stubs = {*entries, *gone}
        said = self._texts_of(stubs)
        only, needles = self._distinctive_words(stubs, partly, said)
        every = [text for texts_ in said.values() for text in texts_]
        finder, runs = ItemFinder(every, only), self._runs(entries)
        return self._scan(finder, stubs, runs, partly, names=False, needles=needles, said=every)

    def rescan(self, first: CopyScan) -> Copies:
        """Return what is found once more of what was to go."""
        names = isinstance(first.finder, TextFinder)
        stubs, needles = first.plan.stubs, first.needles
        return self._scan(first.finder, stubs, {}, (), names=names, needles=needles).copies

    # -- what purged items say -----------------------------------------------------------------

    def _records(self) -> Iterator[tuple[LedgerFile, bytes, dict[str, Any] | None]]:
        for file in self._files:
            for data in read_lines(file):
                if data.strip():
                    yield file, data, parse_line(data)

    def _texts_of(self, stubs: Collection[str]) -> dict[str, list[str]]:
        """Return the texts of items, by their ids: all that is said there, but for names."""
        found = {}
        for file, _, record in self._records():
            if record and file.ledger != "journal" and record.get("id") in stubs:
                found[str(record["id"])] = [
                    value
                    for where, value in iter_texts(record, names=False)
                    if where[0] in _TEXT_FIELDS
                ]
        return found

    def _runs(self, entries: Collection[str]) -> dict[tuple[str, str], None]:
        """Return the runs in which a user said one of these entries: its words were the query."""
        found: dict[tuple[str, str], None] = {}
        for file, _, record in self._records():
            mine = record and file.ledger == "episodic" and record.get("id") in entries
            if record and mine and record.get("role") == "user":
                found[_run_of(record)] = None
        return found

    def _distinctive_words(
        self, stubs: Collection[str], partly: Collection[str], said: Mapping[str, Sequence[str]]
    ) -> tuple[set[str], list[str]]:
        """Return the words that only purged items have, and texts to look for in the end."""
        own = {word for texts_ in said.values() for text in texts_ for word in word_set(text)}
        needles = {
            text for texts_ in said.values() for text in texts_ if len(text) >= _MIN_NEEDLE_CHARS
        }
        needles = {*sorted(needles, key=lambda text: (-len(text), text))[:_NEEDLES]}
        for file, _, record in self._records():
            if file.ledger == "journal" or record is None:
                continue
            if record.get("id") in stubs or record.get("id") in partly:
                continue
            for _, value in iter_texts(record, names=True):
                own -= word_set(value)
                own.difference_update(self._store.tokenizer.words(value))
                needles -= {needle for needle in needles if needle in value}
        strong = [
            word
            for word in own
            if len(word) >= _MIN_NEEDLE_CHARS and any(c.isdigit() for c in word)
        ]
        return own, [*sorted(needles), *sorted(strong)[:_NEEDLES]]

    # -- looking -------------------------------------------------------------------------------

    def _scan(
        self,
        finder: SpanFinder,
        stubs: Collection[str],
        runs: Mapping[tuple[str, str], None],
        partly: Collection[str],
        *,
        names: bool,
        needles: Sequence[str],
        said: Sequence[str] = (),
    ) -> CopyScan:
        copies, stubs = Copies(), set(stubs)
        edits: dict[str, list[tuple[TextPath, Spans]]] = {}
        keys: dict[str, str] = {}
        unreadable: list[str] = []
        asked: dict[str, tuple[str, str, str]] = {}
        touched: dict[str, LedgerFile] = {}
        agents: Counter[str] = Counter()
        records: list[tuple[LedgerFile, dict[str, Any]]] = []
        for file, data, record in self._records():
            if record is None:
                if finder(data.decode("utf-8", "replace")):
                    unreadable.append(line_digest(data))
                continue
            identity = str(record.get("id"))
            found = [] if identity in stubs else find_edits(record, finder, names=names)
            if file.ledger != "journal" and isinstance(finder, ItemFinder):
                # What says the same on other grounds stays; what says what nothing else does, not.
                found = [one for one in found if finder.has_unique_word(_value_at(record, one[0]))]
            if record.get("kind") == "recall" and record.get("query") and _run_of(record) in runs:
                found.append((("query",), [(0, len(record["query"]))]))
            quote = str(record.get("quote") or "")
            if identity in partly and quote and any(quote in text for text in said):
                found = [one for one in found if one[0] != ("quote",)]
                found.append((("quote",), [(0, len(quote))]))
            says = any(where[0] in ("text", "value", "subject") for where, _ in found)
            if says and file.ledger in _COUNTED_AS and isinstance(finder, ItemFinder):
                stubs.add(identity)
            if identity in stubs or found:
                if "purged" in record and identity in stubs and not _has_text(record):
                    continue  # it was purged before
                touched[identity] = file
                edits[identity] = found
                records.append((file, record))
        rests_on = set(expand_to_dependents(self._store, [i for i in touched if i in edits], ())[1])
        records += self._find_paraphrases(finder, touched, rests_on)
        for file, record in records:
            identity = str(record["id"])
            touched[identity] = file
            if identity in rests_on and identity not in edits:
                stubs.add(identity)
            if file.ledger == "episodic":
                agents[str(file.owner)] += 1
                asked[identity] = (
                    str(file.owner), str(record.get("sender") or ""), str(record["content"])
                )  # fmt: skip
                keys[identity] = _key_after(record, file.owner)
            elif file.ledger != "journal":
                quoted = any(where[0] == "quote" for where, _ in edits.get(identity, ()))
                copies.quotes += bool(record.get("quote")) and (quoted or identity in stubs)
                asked[identity] = ("", "", str(record.get("text", "")))
            _count(copies, file, record)
        copies.unreadable = len(unreadable)
        copies.agents = sorted(agents)
        self._count_derived(copies, [i for i in touched if touched[i].ledger != "journal"])
        plain, files = self._scan_other_files(finder, needles, copies)
        for identity in stubs:
            edits.pop(identity, None)
        plan = PurgePlan(
            id=new_id(),
            stubs=frozenset(stubs & touched.keys()),
            keys=keys,
            edits={i: found for i, found in edits.items() if found},
            lines=frozenset(unreadable),
            plain=plain,
            files=files,
        )
        items = [i for i, file in touched.items() if file.ledger != "journal"]
        return CopyScan(plan, copies, items, needles, [*asked.values()], finder)

    def _find_paraphrases(
        self, finder: SpanFinder, touched: Mapping[str, LedgerFile], rests_on: Collection[str]
    ) -> list[tuple[LedgerFile, dict[str, Any]]]:
        """Return the facts that rest on an entry that changes and have other words of the text."""
        if not (isinstance(finder, TextFinder) and finder.words):
            return []
        return [
            (file, record)
            for file, _, record in self._records()
            if record
            and file.ledger in _COUNTED_AS
            and record.get("id") in rests_on
            and record.get("id") not in touched
            and any(
                not finder.words.isdisjoint(word_set(v)) for _, v in iter_texts(record, names=False)
            )
        ]

    def _count_derived(self, copies: Copies, items: Collection[str]) -> None:
        with self._store.session():
            chosen = IndexSelect(self._store.index.connection())
            counts = chosen.derived_counts(items)
            copies.pages = chosen.count_sessions(items)
        copies.vectors, copies.ngrams = counts["vectors"], counts["ngrams"]

    # -- other files ---------------------------------------------------------------------------

    def _scan_other_files(
        self, finder: SpanFinder, needles: Sequence[str], copies: Copies
    ) -> tuple[list[PlainFileEdit], list[str]]:
        """Return what is to be done about files that are no ledgers."""
        plain: list[PlainFileEdit] = []
        half = [path for path in recovery.find_unfinished(self._store) if path.is_file()]
        gone = sorted({str(path) for path in (*unneeded_files(self._store.index), *half)})
        copies.files += gone
        spans_in = make_file_finder(finder, needles)
        for path in self._other_files():
            spans, end = _locate_in_file(path, spans_in)
            if not spans:
                continue
            if why := self._untouchable(path):
                copies.left.append({"path": str(path), "why": why})
                continue
            if "queue" in _parts_below(path, self._store.home):
                copies.queue += 1
            else:
                copies.files.append(str(path))
            plain.append(PlainFileEdit(str(path), spans, end))
        for folder in sorted(self._store.folder.glob("*/*/")):
            name = decode_file_name(folder.parent, folder.name)
            if isinstance(finder, TextFinder) and finder(name):
                copies.left.append({"path": str(folder), "why": "the name of an agent"})
        for one in exports.list_exports(self._store.folder):
            if not one.exists:
                told = {"path": str(one.path), "what": "moved away or deleted: not looked at"}
                copies.exports.append(told)
                continue
            spans, end = (
                _locate_in_file(one.path, spans_in) if one.kind in _EDITABLE_EXPORTS else ((), "")
            )
            if one.kind in _EDITABLE_EXPORTS and not spans:
                continue  # it does not hold it
            what = "left"
            if self._delete and one.unchanged:
                gone.append(str(one.path))
                what = "deleted"
            elif spans and one.unchanged:
                plain.append(PlainFileEdit(str(one.path), spans, end))
                what = "rewritten"
            copies.exports.append({"path": str(one.path), "kind": one.kind, "what": what})
        return plain, gone

    def _untouchable(self, path: Path) -> str:
        if path.suffix == ".yaml":
            return "your settings: edit them"
        if path.name == ".names":
            return "the name of an agent or a project"
        if self._store.folder not in path.parents and "projects" in _parts_below(
            path, self._store.home
        ):
            return "another project's: purge it there too"
        return ""

    def _other_files(self) -> Iterator[Path]:
        """Yield the files of the home that are no ledgers of this project and no index."""
        own = {file.path for file in self._files}
        for path in sorted(self._store.home.rglob("*")):
            if path in own or path.is_symlink() or not path.is_file():
                continue
            if ".sqlite3" in path.name or path.name == exports.REGISTER_FILE:
                continue
            yield path


def make_file_finder(finder: SpanFinder, needles: Sequence[str]) -> SpanFinder:
    """Return what finds, in the text of a whole file, what is to go."""
    if isinstance(finder, TextFinder):
        return finder
    found = [TextFinder(needle) for needle in needles if needle]

    def spans(text: str) -> Spans:
        every = sorted(span for one in found for span in one.find_all(text))
        merged: list[tuple[int, int]] = []
        for start, end in every:
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    return spans


def _locate_in_file(path: Path, spans_in: SpanFinder) -> tuple[Spans, str]:
    try:
        if path.stat().st_size > MAX_PLAIN_BYTES:
            return (), ""
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return (), ""
    spans = spans_in(text)
    return spans, text_digest(text, spans[-1][1]) if spans else ""


def _parts_below(path: Path, home: Path) -> Iterable[str]:
    return path.relative_to(home).parts if path.is_relative_to(home) else ()


def _key_after(record: Mapping[str, Any], owner: str | None) -> str:
    try:
        entry = Entry.from_json(record, owner=owner)
    except (ValueError, TypeError, KeyError):
        return str(record.get("key", ""))
    return key_after(entry, lambda place: delivery_key_at(entry, place))


def _run_of(record: Mapping[str, Any]) -> tuple[str, str]:
    return str(record.get("agent_id")), str(record.get("run_id"))


def _value_at(record: Any, where: TextPath) -> str:
    for step in where:
        record = record[step]
    return str(record)


def _has_text(record: Mapping[str, Any]) -> bool:
    return bool(record.get("content") or record.get("text"))


def _count(copies: Copies, file: LedgerFile, record: Mapping[str, Any]) -> None:
    if file.ledger in ("episodic", "journal"):
        name = "entries" if file.ledger == "episodic" else "journal"
    elif record.get("extractor") in ON_DEMAND_KINDS:
        name = "summaries"
    elif record.get("extractor") == "ask":
        name = "answers"
    else:
        name = _COUNTED_AS[file.ledger]
    setattr(copies, name, getattr(copies, name) + 1)


def count_in_files(paths: Iterable[Path], needles: Sequence[str]) -> dict[str, int]:
    """Return how often files hold one of these texts, byte for byte, in any case."""
    forms = [form for needle in needles for form in _forms(needle)]
    if not forms:
        return {}
    longest = sorted(forms, key=lambda form: (-len(form), form))
    pattern = re.compile(b"|".join(map(re.escape, longest)))
    found = {}
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if count := len(pattern.findall(data.lower())):
            found[str(path)] = count
    return found


def _forms(needle: str) -> set[bytes]:
    plain = needle.strip()
    return {
        form.encode("utf-8", "surrogatepass").lower()
        for form in (plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1])
        if form
    }
