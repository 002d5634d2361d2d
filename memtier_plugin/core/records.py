"""Frozen records with a JSON form: entries, facts, messages and journal events.

Times are aware UTC datetimes in memory and ``2026-11-21T22:30:00.123Z`` on disk.
Unknown fields, written by a newer MemTier, are ignored on reading; fields that an older one did not
write take their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, Final, Literal, Self

from memtier_plugin.core.fast_init import fast_init
from memtier_plugin.core.self_checking import self_checking, strict_names
from memtier_plugin.core.times import to_iso

SCHEMA: Final = 2  # 0: the paper's eight fields; 2: its line has a checksum

Role = Literal["user", "assistant", "tool", "system"]
Origin = Literal["user", "assistant", "tool", "system", "external"]
Tier = Literal["episodic", "semantic", "procedural"]
Status = Literal["active", "proposed"]
Purpose = Literal["search", "inject", "offer", "preview", "ask"]
Extractor = Literal["rules", "model"]
INJECTING: Final[frozenset[Purpose]] = frozenset({"inject", "offer"})  # for a run's prompt
FOR_PROMPTS: Final[frozenset[Purpose]] = INJECTING | {"preview"}  # whose block is a prompt's
SHARED: Final = ("", "")  # the audience of facts that everybody in a project shares
# What is found only by a query that asks for it; see `Fact.shelf`.
ON_DEMAND_KINDS: Final = ("summary", "timeline", "working", "profile")


def person_audience(person: str) -> tuple[str, str]:
    """Return the audience of a person's own facts: of every agent, for that person."""
    return "", f"@{person}"


def count_tokens(text: str) -> int:
    """Estimate tokens as ceil(UTF-8 bytes / 4); every budget counts this way."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4)


@strict_names
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call and its outcome; ``ok`` is None where the outcome is unknown."""

    name: str
    call_id: str | None = None
    ok: bool | None = None
    exit_code: int | None = None
    arguments: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; arguments are left out when empty."""
        record: dict[str, Any] = {
            "name": self.name,
            "call_id": self.call_id,
            "ok": self.ok,
            "exit_code": self.exit_code,
        }
        if self.arguments:
            record["arguments"] = self.arguments
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        from memtier_plugin.core import codecs

        return codecs.convert(record, cls)


@strict_names
@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a run as the caller gives it: plain text, who said it and when.

    ``tool`` is set on a tool's result, ``tool_calls`` on the assistant message that asked for them.
    """

    role: Role
    content: str
    speaker: str | None = None
    observed_at: datetime | None = None
    origin: Origin | None = None
    tool: ToolCall | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of an episodic ledger (MemTier, section 3.1, and the fields in docs/files.md).

    ``private`` is a confidence: it leaves the agent's own ledger in no form.
    """

    schema: int = SCHEMA
    id: str
    timestamp: datetime
    session_id: str
    project: str
    content: str
    tokens: int
    promoted: bool = False
    cognitive_weight: float = 0.0
    agent_id: str
    run_id: str
    turn: int
    role: Role
    origin: Origin
    observed_at: datetime
    sender: str | None = None
    speaker: str | None = None
    parent: str | None = None
    tool: ToolCall | None = None
    tainted: bool = False
    truncated: bool = False
    private: bool = False
    key: str

    @property
    def retrievable(self) -> bool:
        """True unless it is the system's or MemTier's own, which no recall returns.

        MemTier, section 3.1.
        """
        if "system" in (self.role, self.origin):
            return False
        return not self.content.lstrip().startswith("[system]")

    @property
    def text(self) -> str:
        """The content, by the name that facts have for theirs."""
        return self.content

    @property
    def source(self) -> Source:
        """The entry as what a fact rests on, without its ledger line."""
        return Source(agent=self.agent_id, session=self.session_id, entry=self.id)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, keys in the order of the fields."""
        record: dict[str, Any] = {name: getattr(self, name) for name in _names(Entry)}
        record["timestamp"] = to_iso(self.timestamp)
        record["observed_at"] = to_iso(self.observed_at)
        record["tool"] = self.tool.to_json() if self.tool else None
        if not self.private:
            del record["private"]
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any], *, owner: str | None = None) -> Entry:
        """Read the JSON form, also of the paper's own eight fields (``schema`` 0).

        Args:
            owner: the agent whose ledger it stands in, for lines that do not name one.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or has the wrong type.
        """
        from memtier_plugin.core import codecs  # here: hosts import this module without msgspec

        return codecs.entry_from(record, owner=owner)


@strict_names
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The entry that something rests on, and its ledger line once it is indexed."""

    agent: str
    session: str
    entry: str
    file: str | None = None
    line: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form kept in a fact: agent, session, entry."""
        return {"agent": self.agent, "session": self.session, "entry": self.entry}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        from memtier_plugin.core import codecs

        return codecs.convert(record, cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A line of the semantic or procedural ledger; every fact has a source.

    ``reason`` says why a proposed one waits; ``run`` is the consolidation that made it;
    ``private_to`` names the agent and the sender ("" for none) who alone may see it.  ``person`` is
    the sender who said it ("" where the host names none), and alone may see it if ``personal``.
    """

    schema: int = SCHEMA
    id: str
    timestamp: datetime
    project: str
    subject: str
    relation: str
    value: str
    text: str
    sources: tuple[Source, ...]
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    quote: str = ""
    span: tuple[int, int] | None = None
    extractor: str = "given"
    model: str | None = None
    prompt_hash: str | None = None
    confidence: float = 1.0
    origin: Origin = "user"
    status: Status = "active"
    reason: str = ""
    run: str | None = None
    private_to: tuple[str, str] | None = None
    person: str | None = None
    personal: bool = False
    tier: Literal["semantic", "procedural"] = "semantic"

    @property
    def audience(self) -> tuple[str, str]:
        """Whose scope it stands in: an agent's and sender's, a person's, or `SHARED`."""
        if self.private_to:
            return self.private_to
        return person_audience(self.person or "") if self.personal else SHARED

    @property
    def shelf(self) -> str:
        """What must be asked for to be found: of `ON_DEMAND_KINDS`, or ""."""
        return self.extractor if self.extractor in ON_DEMAND_KINDS else ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, keys in the order of the fields."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        record["timestamp"] = to_iso(self.timestamp)
        for name in ("valid_from", "valid_to"):
            record[name] = to_iso(record[name]) if record[name] else None
        record["sources"] = [source.to_json() for source in self.sources]
        record["span"] = list(self.span) if self.span else None
        record["private_to"] = list(self.private_to) if self.private_to else None
        if self.person is None:  # what is nobody's own is written as it always was
            del record["person"], record["personal"]
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Fact:
        """Read the JSON form.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or has the wrong type.
        """
        from memtier_plugin.core import codecs

        return codecs.fact_from(record)


@self_checking
@dataclass(frozen=True, slots=True, kw_only=True)
class FactDraft:
    """A candidate fact of an extractor; it becomes a `Fact` when it is validated and written."""

    subject: str
    relation: str
    value: str
    text: str
    sources: tuple[Source, ...]
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    quote: str = ""
    span: tuple[int, int] | None = None
    extractor: str = "rules"
    model: str | None = None
    prompt_hash: str | None = None
    confidence: float = 0.8
    origin: Origin = "user"
    status: Status = "active"
    reason: str = ""
    private_to: tuple[str, str] | None = None
    person: str | None = None
    personal: bool = False
    tier: Literal["semantic", "procedural"] = "semantic"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEvent:
    """A line of the journal; `core/events.py` declares the fields of each kind in ``data``."""

    id: str
    timestamp: datetime
    kind: str
    agent_id: str
    run_id: str | None = None
    schema: int = SCHEMA
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the common fields first, then the event's own."""
        return {
            "schema": self.schema,
            "id": self.id,
            "timestamp": to_iso(self.timestamp),
            "kind": self.kind,
            "agent_id": self.agent_id,
            "run_id": self.run_id,
            **self.data,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> JournalEvent:
        """Read the JSON form.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or has the wrong type.
        """
        from memtier_plugin.core import codecs

        return codecs.event_from(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The agent, session, run and sender to which messages belong; ``private`` as in `Entry`.

    ``seen`` is external text of earlier runs that the conversation still shows; it is not written.
    """

    agent: str
    session: str
    run: str
    sender: str | None = None
    parent: str | None = None
    observed_at: datetime | None = None
    private: bool = False
    seen: tuple[str, ...] = ()


@cache
def _names(cls: type) -> dict[str, None]:
    return dict.fromkeys(f.name for f in fields(cls))
