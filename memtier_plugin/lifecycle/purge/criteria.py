"""A purge's criteria without its words, for lines that other machines still hold.  Pure.

Texts, names and conditions are represented by salted digests.  They suffice to recognise a copy,
and are removed from the journal once every machine has confirmed; until then, whoever reads the
journal can test guesses against them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from memtier_plugin.core.formats import from_iso
from memtier_plugin.lifecycle.purge.encoded import merge_spans
from memtier_plugin.lifecycle.purge.plan import (
    MIN_TEXT_CHARS,
    PurgePlan,
    Spans,
    find_edits,
    parse_line,
)

# Conditions of a selection, by the entry field that they test.
CONDITIONS: Final[Mapping[str, str]] = {
    "agent": "agent_id",
    "sender": "sender",
    "session": "session_id",
    "run": "run_id",
}
_PREFIX: Final = MIN_TEXT_CHARS - 1  # leading characters by which a text is searched
_BITS: Final = 0xFFFF  # bits of their checksum that are kept

KeyAfter = Callable[[Mapping[str, Any], str | None], str]


def digest(salt: str, text: str) -> str:
    """Return the salted digest of a text."""
    data = f"{salt}:{text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a purge removes from lines written until ``at``.

    ``items`` are ids; ``runs`` digests of agent and run whose query is removed; ``conditions``
    digests by entry field, all of which must match; ``texts`` have (length, checksum of the first
    characters, digest) of the text in lower case with single blanks as white space.
    """

    purge: str
    at: datetime
    salt: str
    items: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    conditions: Mapping[str, str] | None = None
    since: float | None = None
    until: float | None = None
    texts: tuple[tuple[int, int, str], ...] = ()

    @classmethod
    def make(
        cls,
        purge: str,
        at: datetime,
        salt: str,
        *,
        items: Collection[str],
        runs: Iterable[tuple[str, str]],
        texts: Iterable[str],
        conditions: Mapping[str, Any] | None,
    ) -> Criteria:
        """Make the criteria of a purge; ``conditions`` are its selection's, by name."""
        conditions_by_name = conditions or {}
        named = {
            CONDITIONS[k]: digest(salt, v)
            for k, v in conditions_by_name.items()
            if k in CONDITIONS and v
        }
        times = {
            k: v.timestamp() for k, v in conditions_by_name.items() if k in ("since", "until") and v
        }
        flat = {text for given_text in texts if len(text := _flatten(given_text)[0]) > _PREFIX}
        return cls(
            purge=purge,
            at=at,
            salt=salt,
            items=frozenset(items),
            runs=frozenset(digest(salt, f"{agent}\n{run}") for agent, run in runs),
            conditions=named if named or times else None,
            since=times.get("since"),
            until=times.get("until"),
            texts=tuple(
                sorted((len(t), _checksum(salt, t[:_PREFIX]), digest(salt, t)) for t in flat)
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "salt": self.salt,
            "items": sorted(self.items),
            "runs": sorted(self.runs),
            "conditions": self.conditions,
            "since": self.since,
            "until": self.until,
            "texts": [list(text) for text in self.texts],
        }

    @classmethod
    def from_json(cls, purge: str, at: datetime, record: Mapping[str, Any]) -> Criteria:
        """Read the JSON form.

        Raises:
            KeyError, TypeError, ValueError: it is not the JSON form.
        """
        return cls(
            purge=purge,
            at=at,
            salt=str(record["salt"]),
            items=frozenset(record["items"]),
            runs=frozenset(record["runs"]),
            conditions=record["conditions"],
            since=record["since"],
            until=record["until"],
            texts=tuple((int(n), int(c), str(d)) for n, c, d in record["texts"]),
        )

    # -- applying ------------------------------------------------------------------------------

    def rewrite(self, data: bytes, owner: str | None, key_after: KeyAfter) -> bytes:
        """Return a ledger line's replacement, newline included: unchanged, a stub, or edited."""
        record = parse_line(data)
        if record is None or record.get("kind") == "purge" or not self._is_earlier(record):
            return data
        identity = str(record.get("id"))
        if identity in self.items or self._meets_conditions(record):
            plan = PurgePlan(self.purge, frozenset({identity}), self._key(record, owner, key_after))
            return plan.rewrite_line(data)
        edits = find_edits(record, self.find, names=True)
        query = record.get("query")
        if query and record.get("kind") == "recall" and self._is_of_run(record):
            edits = [edit for edit in edits if edit[0] != ("query",)]
            edits.append((("query",), [(0, len(query))]))
        if not edits:
            return data
        keys = self._key(record, owner, key_after)
        return PurgePlan(self.purge, keys=keys, edits={identity: edits}).rewrite_line(data)

    def find(self, value: str) -> Spans:
        """Return the spans of purged text in a text."""
        if not self.texts:
            return ()
        flat, starts = _flatten(value)
        sizes_by_checksum: dict[int, list[tuple[int, str]]] = {}
        for size, checksum, hashed in self.texts:
            if size <= len(flat):
                sizes_by_checksum.setdefault(checksum, []).append((size, hashed))
        spans = []
        for at in range(len(flat) - _PREFIX if sizes_by_checksum else 0):
            for size, hashed in sizes_by_checksum.get(
                _checksum(self.salt, flat[at : at + _PREFIX]), ()
            ):
                text = flat[at : at + size]
                if len(text) == size and digest(self.salt, text) == hashed:
                    spans.append((starts[at], starts[at + size]))
        return merge_spans(spans)

    def _is_earlier(self, record: Mapping[str, Any]) -> bool:
        try:
            return from_iso(str(record["timestamp"])) <= self.at
        except (KeyError, ValueError):
            return True

    def _meets_conditions(self, record: Mapping[str, Any]) -> bool:
        if self.conditions is None or "content" not in record:
            return False
        when = from_iso(str(record.get("observed_at") or record["timestamp"])).timestamp()
        if (self.since and when < self.since) or (self.until and when > self.until):
            return False
        return all(
            digest(self.salt, str(record.get(name) or "")) == value
            for name, value in self.conditions.items()
        )

    def _is_of_run(self, record: Mapping[str, Any]) -> bool:
        return digest(self.salt, f"{record.get('agent_id')}\n{record.get('run_id')}") in self.runs

    def _key(
        self, record: Mapping[str, Any], owner: str | None, key_after: KeyAfter
    ) -> dict[str, str]:
        return {str(record["id"]): key_after(record, owner)} if "key" in record else {}


def _checksum(salt: str, text: str) -> int:
    return zlib.crc32(f"{salt}{text}".encode("utf-8", "surrogatepass")) & _BITS


def _flatten(value: str) -> tuple[str, Sequence[int]]:
    """Return a text in lower case with single blanks, and each character's original position."""
    parts: list[str] = []
    starts: list[int] = []
    end = 0
    for at, character in enumerate(value):
        folded = character.casefold()
        if character.isspace():
            if not parts or parts[-1] == " ":
                continue
            folded = " "
        else:
            end = len(parts) + len(folded)
        parts += folded
        starts += [at] * len(folded)
    boundary = starts[end] if end < len(starts) else len(value)
    return "".join(parts[:end]), [*starts[:end], min(boundary, len(value))]
