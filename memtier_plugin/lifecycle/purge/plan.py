"""Plan a purge: replace a line by a stub, or make a part of its text unreadable.  Pure.

A plan refers to records by id and to texts by position, never by their words, as it is on disk
while the purge runs.  A line keeps its length, so that byte offsets (such as a consolidation's
cursors) stay valid.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from memtier_plugin.core import formats
from memtier_plugin.lifecycle.purge.encoded import EncodedFinder, merge_spans

PURGED_MARK: Final = "[purged]"
MIN_TEXT_CHARS: Final = 4  # characters of a text to be purged

Spans = Sequence[tuple[int, int]]
TextPath = tuple[str | int, ...]
SpanFinder = Callable[[str], Spans]

# Fields without text: ids, names that locate a line, and values written by code.
_STRUCTURE: Final = frozenset(
    {
        *("schema", "id", "timestamp", "kind", "agent_id", "key", "role", "origin", "status"),
        *("tier", "observed_at", "valid_from", "valid_to", "at", "purged", "item", "items"),
        *("facts", "by", "entry", "agent", "settles", "cursors", "signals", "weights"),
        *("prompt_hash", "extractor", formats.FIELD),
    }
)
_NAMES: Final = frozenset({"run_id", "session_id", "session", "run", "sender", "person", "people"})
_ENTRY: Final = (
    *("schema", "id", "timestamp", "session_id", "project", "content", "tokens", "agent_id"),
    *("run_id", "turn", "role", "origin", "observed_at", "key"),
)
_FACT: Final = (
    *("schema", "id", "timestamp", "project", "subject", "relation", "value", "text", "sources"),
    *("extractor", "origin", "status", "run", "private_to", "person", "personal", "tier"),
)
# Token counts stay, as pages depend on them; the line's length reveals as much anyway.
_EMPTY: Final = {"content": "", "subject": "", "relation": "", "value": "", "text": ""}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "promoted": False,
    "cognitive_weight": 0.0,
    "sender": None,
    "speaker": None,
    "parent": None,
    "tool": None,
    "tainted": False,
    "truncated": False,
    "valid_to": None,
    "model": None,
    "prompt_hash": None,
    "reason": "",
    "span": None,
}
_MIN_WHOLE_CHARS: Final = 8  # characters of a text that identifies an item
_REMEMBER_RUN: Final = "remember:"  # prefix of runs whose name contains the text or its hash


@dataclass(frozen=True, slots=True)
class PlainFileEdit:
    """An edit of a file other than a ledger: spans, and the digest of the text before."""

    path: str
    spans: Spans
    digest: str


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """The plan of one purge.

    ``stubs`` are items replaced by stubs; ``edits`` the spans to replace in other records; ``keys``
    the new delivery keys of entries among them; ``lines`` the digests of unreadable lines to
    remove; ``plain`` other files to edit; ``files`` those to delete.
    ``shared`` is what other machines of a shared project need to apply it too.
    """

    id: str
    stubs: Collection[str] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    edits: Mapping[str, Sequence[tuple[TextPath, Spans]]] = field(default_factory=dict)
    lines: Collection[str] = ()
    plain: Sequence[PlainFileEdit] = ()
    files: Sequence[str] = ()
    shared: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.stubs or self.edits or self.lines or self.plain or self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, which contains none of the purged words."""
        return {
            "id": self.id,
            "stubs": sorted(self.stubs),
            "keys": dict(self.keys),
            "edits": {i: [[list(w), list(s)] for w, s in e] for i, e in self.edits.items()},
            "lines": sorted(self.lines),
            "plain": [[file.path, list(file.spans), file.digest] for file in self.plain],
            "files": list(self.files),
            **({"shared": self.shared} if self.shared else {}),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PurgePlan:
        """Read the JSON form.

        Raises:
            KeyError, TypeError, ValueError: it is not the JSON form of a plan.
        """
        return cls(
            id=str(record["id"]),
            stubs=frozenset(record["stubs"]),
            keys=dict(record["keys"]),
            edits={
                i: [(tuple(where), _spans(spans)) for where, spans in edits]
                for i, edits in record["edits"].items()
            },
            lines=frozenset(record["lines"]),
            plain=[
                PlainFileEdit(path, _spans(spans), digest)
                for path, spans, digest in record["plain"]
            ],
            files=[str(path) for path in record["files"]],
            shared=record.get("shared"),
        )

    def rewrite_line(self, data: bytes) -> bytes:
        """Return the replacement for a ledger line, newline included."""
        record = parse_line(data)
        if record is None:
            return b"\n" if line_digest(data) in self.lines else data
        identity = record.get("id")
        if not isinstance(identity, str) or record.get("purged") == self.id:
            return data
        if identity in self.stubs:
            left = make_stub(record)
        elif identity in self.edits:
            left = record
            for where, spans in self.edits[identity]:
                left = _replace_in(left, where, spans)
            left = {k: v for k, v in left.items() if k not in _DEFAULTS or v != _DEFAULTS[k]}
        else:
            return data
        if str(left.get("run_id", "")).startswith(_REMEMBER_RUN):
            left["run_id"] = _REMEMBER_RUN.rstrip(":")
        if "key" in left and identity in self.keys:
            left["key"] = self.keys[identity]
        sealed = formats.FIELD in record  # older lines have no room for a checksum
        return _pad({**left, "purged": self.id}, len(data), sealed=sealed)


def make_stub(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stub of an entry or a fact: its existence, time and owner."""
    names = _ENTRY if "content" in record else _FACT
    return {name: _EMPTY.get(name, record[name]) for name in names if name in record}


def parse_line(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object on a line, or None."""
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def line_digest(data: bytes) -> str:
    """Return a digest that identifies an unreadable line."""
    return hashlib.blake2b(data.rstrip(b"\n"), digest_size=16).hexdigest()


def iter_texts(record: Any, where: TextPath = (), *, names: bool) -> Iterator[tuple[TextPath, str]]:
    """Yield every text in a record with its path.

    Args:
        names: include the names of sessions, runs and senders.
    """
    if isinstance(record, str):
        yield where, record
    elif isinstance(record, Mapping):
        for name, value in record.items():
            if name not in _STRUCTURE and (names or name not in _NAMES):
                yield from iter_texts(value, (*where, name), names=names)
    elif isinstance(record, list):
        for index, value in enumerate(record):
            yield from iter_texts(value, (*where, index), names=names)


def find_edits(
    record: Mapping[str, Any], finds: SpanFinder, *, names: bool
) -> list[tuple[TextPath, Spans]]:
    """Return the spans that a finder finds in a record's texts."""
    edits = []
    for where, value in iter_texts(record, names=names):
        if spans := finds(value):
            edits.append((where, spans))
    return edits


def _replace_in(record: dict[str, Any], where: TextPath, spans: Spans) -> dict[str, Any]:
    """Return a record with spans of one of its texts replaced."""
    copy = json.loads(json.dumps(record))
    holder: Any = copy
    for step in where[:-1]:
        holder = holder[step]
    holder[where[-1]] = replace_spans(holder[where[-1]], spans)
    if where == ("content",) and "tokens" in copy:
        copy["tokens"] = -(-len(copy["content"].encode("utf-8", "surrogatepass")) // 4)
    return dict(copy)


def replace_spans(text: str, spans: Spans) -> str:
    """Return a text with each span replaced by the purge mark."""
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], PURGED_MARK]
        at = end
    return "".join([*parts, text[at:]])


def _pad(record: Mapping[str, Any], length: int, *, sealed: bool) -> bytes:
    data = formats.seal(record) if sealed else formats.encode(record)
    return data.ljust(length - 1) + b"\n"


def _spans(pairs: Iterable[Sequence[int]]) -> Spans:
    return [(int(start), int(end)) for start, end in pairs]


# -- finding a text ---------------------------------------------------------------------------


class TextFinder:
    """Finds texts in any case and with any white space, in JSON escapes, and encoded.

    At a truncated end of a text it also finds the beginning of the first of them.
    """

    def __init__(self, *texts: str) -> None:
        patterns = [form for text in texts for form in _plain_patterns(text)]
        self._pattern = re.compile("|".join(dict.fromkeys(patterns)), re.IGNORECASE)
        self._text = texts[0].strip().casefold()
        self._least = max(MIN_TEXT_CHARS, min(8, len(self._text) // 2))
        self._encoded = EncodedFinder(texts)
        # Words by which a paraphrasing fact is recognised.
        self.words = frozenset(word_set(texts[0]) if len(texts[0].split()) > 1 else ())

    def find_plain(self, value: str) -> Spans:
        """Return the spans of the full texts, verbatim or joined as in a name."""
        return [match.span() for match in self._pattern.finditer(value)]

    def find_all(self, value: str) -> Spans:
        """Return the spans of the full texts in any form."""
        return merge_spans([*self.find_plain(value), *self._encoded.find_all(value)])

    def __call__(self, value: str) -> Spans:
        """Return the spans of the text, and of its beginning at a truncated end."""
        spans = [*self.find_all(value)]
        end = value.find("\n[... ")  # mark of a truncated tool result
        end = len(value) if end < 0 else end
        folded = value[:end].casefold()
        if len(folded) == end:
            for size in range(min(len(self._text) - 1, end), self._least - 1, -1):
                if folded.endswith(self._text[:size]):
                    if not spans or spans[-1][1] <= end - size:
                        spans.append((end - size, end))
                    break
        return spans


def _plain_patterns(text: str) -> list[str]:
    """Return patterns of a text with any white space, in JSON escapes, and joined as in a name."""
    plain = text.strip()
    forms = (
        plain,
        json.dumps(plain, ensure_ascii=False)[1:-1],
        json.dumps(plain, ensure_ascii=True)[1:-1],
    )
    spaced = r"(?:\s+|[-_.+/]|%20)".join(map(re.escape, plain.split()))
    return [spaced, *map(re.escape, forms)]


_WORD: Final = re.compile(r"[^\s\"'`,;:()\[\]{}<>|]+")


def word_set(text: str) -> set[str]:
    """Return the distinctive words of a text: long ones, and numbers."""
    words = (match.rstrip(".!?…").casefold() for match in _WORD.findall(text))
    return {
        word
        for word in words
        if len(word) >= 6 or (len(word) >= MIN_TEXT_CHARS and any(c.isdigit() for c in word))
    }


class ItemFinder:
    """Finds texts that repeat purged items: a full text, or a word unique to them."""

    def __init__(self, texts: Iterable[str], unique_words: Collection[str]) -> None:
        self._texts = {_flat(text) for text in texts if len(text.strip()) >= _MIN_WHOLE_CHARS}
        self.unique_words = frozenset(unique_words)

    def __call__(self, value: str) -> Spans:
        """Return the full span of a text that repeats an item."""
        if not value or value == PURGED_MARK:
            return []
        repeats = _flat(value) in self._texts or self.has_unique_word(value)
        return [(0, len(value))] if repeats else []

    def has_unique_word(self, value: str) -> bool:
        """Return whether a text has a word that occurs only in the purged items."""
        return not self.unique_words.isdisjoint(word_set(value))


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()
