"""Frozen records with a JSON form: entries, facts, messages and journal events.

Times are aware UTC datetimes in memory and ``2026-11-21T22:30:00.123Z`` on disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self

import msgspec

from memtier_plugin.core import formats
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import from_iso, to_iso
from memtier_plugin.core.structs import (
    MOST,
    CheckedRecord,
    GivenRecord,
    Record,
    Tagged,
    check_fields,
    convert,
    decode,
    parse_json,
)

SCHEMA: Final = 2  # 0: the paper's eight fields; 2: lines carry a checksum
_FIRST_SCHEMA: Final = 1  # the first that MemTier itself wrote
_SPLIT: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # what tokenizers take one by one
# Shared by all events
_COMMON: Final = ("id", "timestamp", "kind", "agent_id", "run_id", "schema")

Role = Literal["user", "assistant", "tool", "system"]
Origin = Literal["user", "assistant", "tool", "system", "external"]
Tier = Literal["episodic", "semantic", "procedural"]
Status = Literal["active", "proposed"]
Purpose = Literal["search", "inject", "offer", "preview", "ask"]
Extractor = Literal["rules", "model"]
INJECTING: Final = frozenset[Purpose]({"inject", "offer"})  # their block goes into a run's prompt
FOR_PROMPTS: Final[frozenset[Purpose]] = INJECTING | {"preview"}  # a block in a prompt's form
FROM_GIT: Final = "git"  # the extractor of facts that a team shares in a repository
REVIEWED: Final = "review"  # the extractor of a fact in a reviewer's own words
SHARED: Final = ("", "")  # the audience of facts visible to everybody in a project
# Kinds found only by a query that asks for them; see `Fact.shelf`.
ON_DEMAND_KINDS: Final = ("summary", "timeline", "working", "profile")
CORRECTED: Final = "corrected"  # the relation of a rule that a user set by a correction
INTENDED: Final = "intended"  # the relation of what a user wants to be reminded of
OWN_WORDS: Final = frozenset({CORRECTED, INTENDED})  # relations of what a user's words set


def person_audience(person: str) -> tuple[str, str]:
    """Return the audience of a person's own facts: that person, with every agent."""
    return "", f"@{person}"


def count_tokens(text: str) -> int:
    """Estimate tokens; every token budget is counted this way.

    Tokenizers split dates and ids: a digit or a capital letter is a token, as are four bytes of
    UTF-8 of anything else (docs/evaluation.md).  So all ids cost the same.
    """
    data = text.encode("utf-8", "surrogatepass")
    others = len(data.translate(None, _SPLIT))
    return len(data) - others + math.ceil(others / 4)


class ToolCall(GivenRecord, frozen=True, kw_only=True):
    """A tool call and its outcome; ``ok`` is None where the outcome is unknown."""

    SPARSE = frozenset({"arguments"})

    name: str
    call_id: str | None = None
    ok: bool | None = None
    exit_code: int | None = None
    arguments: str = ""


class CallHistory(Record, frozen=True, kw_only=True):
    """How the tool calls went that rested on an item, or that an entry recorded.

    ``failures`` counts those since one last worked; ``exit_code`` is the last failed one's,
    ``call`` has the arguments of the last one, unless it failed for a reason outside the memory.
    """

    failures: int = 0
    failed_at: datetime | None = None
    exit_code: int | None = None
    worked_at: datetime | None = None
    call: str = ""

    @property
    def works(self) -> bool:
        """Whether the last of them worked."""
        return self.worked_at is not None and not self.failures

    @property
    def last(self) -> datetime | None:
        """The time of the last of them."""
        return max(filter(None, (self.failed_at, self.worked_at)), default=None)


NO_CALLS: Final = CallHistory()


class Message(GivenRecord, frozen=True, kw_only=True):
    """One message of a run as the caller gives it: plain text, its author and time.

    ``tool`` is set on a tool's result, ``tool_calls`` on the assistant message that asked for them.
    """

    role: Role
    content: str
    speaker: str | None = None
    observed_at: datetime | None = None
    origin: Origin | None = None
    tool: ToolCall | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class Entry(Record, frozen=True, kw_only=True):
    """A line of an episodic ledger (MemTier, section 3.1, and the fields in docs/files.md).

    ``private`` marks a confidence: nothing of it leaves the agent's own ledger.
    """

    SPARSE = frozenset({"private"})

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
        """Whether a recall may return it: false for system messages and MemTier's own output.

        MemTier, section 3.1.
        """
        if "system" in (self.role, self.origin):
            return False
        return not self.content.lstrip().startswith("[system]")

    @property
    def text(self) -> str:
        """The content, under the name that facts use."""
        return self.content

    @property
    def source(self) -> Source:
        """The entry as the source of a fact, without its ledger line."""
        return Source(agent=self.agent_id, session=self.session_id, entry=self.id)

    @classmethod
    def from_json(cls, record: Mapping[str, Any], *, owner: str | None = None) -> Entry:
        """Read the JSON form, or the paper's own eight fields (``schema`` 0).

        Args:
            owner: the agent whose ledger holds the line, for lines that do not name one.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or has the wrong type.
        """
        document = {**_mapping(record, cls)}
        if document.get("schema", 0) < _FIRST_SCHEMA:
            document = {
                "agent_id": owner or "main",
                "run_id": document["id"],
                "turn": 0,
                "role": "user",
                "origin": "user",
                "key": f"id:{document['id']}",
                **document,
                "schema": _FIRST_SCHEMA,
            }
        document["timestamp"] = _time(document["timestamp"])
        document["observed_at"] = _time(document.get("observed_at") or record["timestamp"])
        document["tool"] = document.get("tool") or None
        return _in_range(convert(document, cls))


class Source(GivenRecord, frozen=True, kw_only=True):
    """A reference to a source entry, and its ledger line once it is indexed."""

    agent: str
    session: str
    entry: str
    file: str | None = None
    line: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form stored in a fact: agent, session, entry."""
        return {"agent": self.agent, "session": self.session, "entry": self.entry}


class Fact(Record, frozen=True, kw_only=True):
    """A line of the semantic or procedural ledger; every fact has a source.

    ``reason`` says why a proposed fact waits for review; ``run`` is the consolidation that made it;
    only the agent and sender ("" for none) in ``private_to`` may see it.  ``person`` is the sender
    who stated it ("" if the host names none); a ``personal`` fact is visible to that person only.
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
        """Who may see it: an agent's sender, a person, or everybody (`SHARED`)."""
        if self.private_to:
            return self.private_to
        return person_audience(self.person or "") if self.personal else SHARED

    @property
    def shelf(self) -> str:
        """The kind that a query must ask for, of `ON_DEMAND_KINDS`; "" for any query."""
        return self.extractor if self.extractor in ON_DEMAND_KINDS else ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, keys in the order of the fields."""
        record = Record.to_json(self)
        if self.person is None:  # facts that belong to nobody keep their original format
            del record["person"], record["personal"]
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Fact:
        """Read the JSON form.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or has the wrong type.
        """
        document = {**_mapping(record, cls)}
        document["timestamp"] = _time(document["timestamp"])
        for name in ("valid_from", "valid_to"):
            document[name] = _time(document[name]) if document.get(name) else None
        for name in ("span", "private_to"):
            document[name] = document.get(name) or None
        fact = convert(document, cls)
        if not fact.sources:
            raise ValueError("a fact without a source")
        return fact


class FactDraft(CheckedRecord, frozen=True, kw_only=True):
    """A fact proposed by an extractor; it becomes a `Fact` once validated and written."""

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


class JournalEvent(Record, frozen=True, kw_only=True):
    """A line of the journal; `core/events.py` declares the fields of each kind in ``data``."""

    id: str
    timestamp: datetime
    kind: str
    agent_id: str
    run_id: str | None = None
    schema: int = SCHEMA
    data: Mapping[str, Any] = {}

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
        if not isinstance(record, dict):
            record = _mapping(record, cls)
        data = dict(record)
        common = {name: data.pop(name) for name in _COMMON if name in data}
        common["timestamp"] = _time(common["timestamp"])
        data.pop(formats.FIELD, None)
        common["data"] = data
        return convert(common, cls)


class EventRecord(Record, frozen=True):
    """A record inside a journal line; it omits fields that are None unless `NULLS` lists them."""

    NULLS = frozenset[str]()


class EventPayload(EventRecord, frozen=True, metaclass=Tagged):
    """The fields that a kind of event adds to the common ones."""

    KIND = ""

    def to_data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.to_json()

    @classmethod
    def of(cls, event: JournalEvent) -> Self:
        """Read the fields of an event of this kind.

        Raises:
            KeyError: a field is missing.
            ValueError: a field has the wrong type; names it.
        """
        return cls.from_json(event.data)


class StateEvent(EventPayload, frozen=True, kw_only=True):
    """An event that changes the state of entries or facts."""

    items: tuple[str, ...]

    @property
    def words_only(self) -> bool | None:
        """Whether its items are found only by their words from now on; None changes nothing."""
        return None

    @property
    def weight_bounds(self) -> tuple[float, float] | None:
        """The bounds of its items' weights from now on; None changes nothing."""
        return None


class UsageEvent(EventPayload, frozen=True, kw_only=True, tag="usage"):
    """The tokens that a run used of one model, as its host reports them.

    The prompt's tokens are ``input`` (uncached), ``cached`` (read from the provider's cache) and
    ``cache_write`` (written to it) together. A later event of the same run and model replaces this
    one.
    """

    model: str = ""
    calls: int = 1
    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0


class Run(Record, frozen=True, kw_only=True):
    """The agent, session, run and sender that messages belong to; ``private`` as in `Entry`.

    ``seen`` is external text of earlier runs still visible in the conversation; it is not written.
    """

    agent: str
    session: str
    run: str
    sender: str | None = None
    parent: str | None = None
    observed_at: datetime | None = None
    private: bool = False
    seen: tuple[str, ...] = ()


def check_fact(fact: Fact | FactDraft) -> None:
    """Check a caller's fact: its types, that it has sources, and that it is valid UTF-8.

    Raises:
        MessageError: as `check_fields`.
    """
    check_fields(fact)
    try:
        msgspec.json.encode(fact)
    except UnicodeEncodeError as error:
        raise MessageError(f"the fact cannot be encoded as UTF-8: {error}") from None
    if not fact.sources:
        raise MessageError("sources: a fact needs at least one source")
    if not math.isfinite(fact.confidence):
        raise MessageError(f"confidence: {fact.confidence} is not a number")


def decode_entry(line: bytes, *, owner: str | None = None) -> Entry:
    """Read a line of an episodic ledger; see `Entry.from_json`."""
    entry = decode(line, Entry)
    if (
        entry
        and entry.schema >= _FIRST_SCHEMA
        and entry.timestamp.tzinfo is entry.observed_at.tzinfo is UTC
    ):
        return entry if abs(entry.turn) <= MOST >= abs(entry.tokens) else _in_range(entry)
    return Entry.from_json(_object(line), owner=owner)


def decode_fact(line: bytes, *, tier: str = "semantic") -> Fact:
    """Read a line of a semantic or procedural ledger; see `Fact.from_json`.

    Args:
        tier: the ledger's tier, for a line that does not name one.
    """
    fact = decode(line, Fact)
    if fact and fact.sources and (fact.tier == tier or b'"tier"' in line):
        moments = (fact.timestamp, fact.valid_from, fact.valid_to)
        if all(moment is None or moment.tzinfo is UTC for moment in moments):
            return fact
    return Fact.from_json({"tier": tier, **_object(line)})


def decode_event(line: bytes) -> JournalEvent:
    """Read a line of a journal; see `JournalEvent.from_json`."""
    return JournalEvent.from_json(parse_json(line))


def _in_range(entry: Entry) -> Entry:
    for number in (entry.turn, entry.tokens):
        if abs(number) > MOST:
            raise ValueError(f"a number is out of range: {number}")
    return entry


def _object(line: bytes) -> dict[str, Any]:
    record = parse_json(line)
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__}, not an object")
    return record


def _mapping(record: object, cls: type) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise TypeError(f"a {type(record).__name__} in the place of a {cls.__name__}")
    return record


def _time(text: object) -> datetime:
    if not isinstance(text, str):
        raise TypeError(f"a {type(text).__name__} in the place of a time")
    return from_iso(text)
