"""The results of a recall, and what hosts exchange with the hooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Self, TypedDict, Unpack

from msgspec.structs import replace

from memtier_plugin.core.records import (
    NO_CALLS,
    CallHistory,
    Entry,
    Fact,
    Message,
    Purpose,
    Source,
    Tier,
    UsageEvent,
)
from memtier_plugin.core.structs import (
    CheckedRecord,
    GivenRecord,
    Lines,
    Milliseconds,
    Record,
    Tokens,
)

# -- Records of the hooks: what a host reports about a run, and what it gets back

REMINDS: Final = "reminds"  # the signal of a hit whose event or day has come
DUE: Final = "due"  # the same, where the prompt asks what is due
# Kinds of prompts: small talk, a command of the host, a generic task or question that needs no
# memory, pasted text or code, a follow-up to this session, or a question to the memory: about the
# user, the assistant's words, a time, a list of things.
PromptKind = Literal[
    "chat",
    "command",
    "task",
    "question",
    "log",
    "follow_up",
    "personal",
    "assistant",
    "time",
    "list",
]


class RunContext(GivenRecord, frozen=True, kw_only=True):
    """The agent, session and run that a hook call belongs to, as the host knows them.

    ``agent_id`` is ``<host>.<agent>``; with ``project`` None the workspace decides. Everything said
    in a ``private`` run is a confidence.
    """

    agent_id: str
    session_id: str | None = None
    run_id: str | None = None
    project: str | None = None
    home: str | None = None
    workspace: str | None = None
    sender: str | None = None
    parent: str | None = None
    private: bool = False


class PromptEvent(GivenRecord, frozen=True, kw_only=True):
    """A prompt about to be built: the user's newest message, and the conversation so far.

    ``visible_since``: the prompt already contains the session from then on, so its lines are not
    injected again, nor, with ``keeps_injected``, those injected since.
    ``kind`` is the kind of prompt, if the host knows it; otherwise rules decide.
    ``caution`` opens the block, for hosts that frame it in their own words.
    ``acknowledges``: the host will confirm that the prompt has the block (`MemTier.acknowledge`).
    """

    prompt: str
    messages: tuple[Message, ...] = ()
    visible_since: datetime | None = None
    keeps_injected: bool = False
    kind: PromptKind | None = None
    caution: str = ""
    acknowledges: bool = False


class Shown(GivenRecord, frozen=True, kw_only=True):
    """The part of a conversation that the prompt already contains: everything since a moment.

    With ``injected`` the lines of earlier recalls are still there too.
    """

    since: datetime
    injected: bool = False


class PromptAddition(Record, frozen=True, kw_only=True):
    """The text that a hook adds before the user's message."""

    prepend_context: str
    recall_id: str


class RunEvent(GivenRecord, frozen=True, kw_only=True):
    """A finished run: its own messages only, not the session's.

    ``seen`` is external text of earlier runs still visible in the conversation; the assistant's
    words are compared with it. ``usage`` is the token usage of the host's models.
    """

    messages: tuple[Message, ...]
    success: bool = True
    error: str | None = None
    seen: tuple[str, ...] = ()
    usage: tuple[UsageEvent, ...] = ()


class ToolCallEvent(GivenRecord, frozen=True, kw_only=True):
    """A tool call about to be made; ``arguments`` as the host writes them, mostly JSON."""

    tool: str
    arguments: str


class CallReminder(Record, frozen=True, kw_only=True):
    """What an agent is told instead of a tool call's result; it may make the call again."""

    text: str


HookEvent = PromptEvent | RunEvent | ToolCallEvent


class HookCall(Record, frozen=True):
    """The hook call decoded from a host's payload."""

    hook: str
    context: RunContext
    event: HookEvent | None = None


# -- The results of a recall: ranked hits, the block packed from them, and how it was made

# mixed: facts and entries ranked together; facts: facts only; raw: entries only; auto: routed.
Depth = Literal["mixed", "facts", "raw", "auto"]
# How likely a block must help before it is injected; see `retrieval.floor`.
FloorLevel = Literal["off", "careful", "balanced", "quiet"]
_SHOWN_QUERY: Final = 60  # characters of the query in the repr of its recall
Action = Literal["S", "R"]  # answer from the summary tier (facts), or go back to the raw log


class RecallOptions(TypedDict, total=False):
    """The options of a recall as keywords; the fields of `RecallRequest`."""

    session_id: str | None
    run_id: str | None
    purpose: Purpose
    k: Lines | None
    token_budget: Tokens | None
    at: datetime | None
    sender: str | None
    deadline_ms: Milliseconds | None
    depth: Depth | None
    shown: Shown | None
    kind: PromptKind | None


class RecallRequest(CheckedRecord, frozen=True, kw_only=True):
    """The options of a recall; None takes the value from the settings.

    Attributes:
        session_id: the session whose prompt is built.
        run_id: the run to credit for what is injected.
        purpose: ``inject`` is credited when its run ends, and leaves tool and external text out of
            the block; ``offer`` does the same for a host that may exit before: it counts as
            ``inject`` once `MemTier.acknowledge` is called, and is nothing until then; ``preview``
            shows a person the same block, and is not credited; ``ask`` keeps only lines that may
            answer a question.
        k: how many lines may be injected.
        token_budget: how many tokens the block may have.
        at: the "now" that ages are measured from; None for the clock.
        sender: whose entries may be seen on a shared channel.
        deadline_ms: answer by then with what is ready, labelled.
        depth: mixed, facts, raw or auto; see `retrieval.depth`.
        shown: the part of the session already in the prompt; it is not injected again.
        kind: the kind of prompt, if the host knows it; otherwise rules decide.
    """

    session_id: str | None = None
    run_id: str | None = None
    purpose: Purpose = "search"
    k: Lines | None = None
    token_budget: Tokens | None = None
    at: datetime | None = None
    sender: str | None = None
    deadline_ms: Milliseconds | None = None
    depth: Depth | None = None
    shown: Shown | None = None
    kind: PromptKind | None = None

    def with_options(self, **options: Unpack[RecallOptions]) -> Self:
        """Return the request with some options changed."""
        # The constructor checks them
        return dataclasses.replace(self, **options) if options else self


class Route(Record, frozen=True, kw_only=True):
    """The decision of a router: ``S`` for the facts alone, ``R`` for the raw log.

    ``doubt`` is how insufficient the facts are (0: not at all), ``why`` the reason in words, ``by``
    the router: "features", or the model; ``amounts`` has its doubts by name, each 0 to 1, and is
    not journalled.
    """

    action: Action
    doubt: float
    why: tuple[str, ...]
    by: str = "features"
    amounts: Mapping[str, float] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        document = {"action": self.action, "doubt": round(self.doubt, 6)}
        return {**document, "why": list(self.why), "by": self.by}


class Step(Record, frozen=True, kw_only=True):
    """The cost of one step: milliseconds, and the tokens that a reader reads or writes.

    ``read`` counts the items read, or the pages of a research round.
    """

    name: str
    ms: float
    tokens: int = 0
    read: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**super().to_json(), "ms": round(self.ms, 3)}


class Evidence(Record, frozen=True, kw_only=True):
    """The evidence for one line, independent of all others.

    Attributes:
        coverage: the share of the query's words, by idf, found in the line, its date, and the turns
            directly before and after it.
        own_coverage: the same for the line and its date alone.
        matched: the summed idf of the words in ``coverage``.
        cosine: of the line's vector and the query's; 0 without vectors.
        time: how near the line is to a time that the query names; 0 if it names none.
        speaker: whether the query names the line's speaker.
    """

    coverage: float = 0.0
    own_coverage: float = 0.0
    matched: float = 0.0
    cosine: float = 0.0
    time: float = 0.0
    speaker: bool = False

    @classmethod
    def best_of(cls, lines: Sequence[Evidence]) -> Evidence:
        """Return the maximum of each kind of evidence over these lines."""
        return cls(
            coverage=max(line.coverage for line in lines),
            own_coverage=max(line.own_coverage for line in lines),
            matched=max(line.matched for line in lines),
            cosine=max(line.cosine for line in lines),
            time=max(line.time for line in lines),
            speaker=any(line.speaker for line in lines),
        )


class Hit(Record, frozen=True, kw_only=True):
    """One ranked item with every signal behind its score.

    Each signal lies in [0, 1], except the `paper` profile's raw BM25.

    ``sources`` holds the entry itself, or a fact's source entries, in a fixed order.
    ``note`` is a caveat for the reader (for example that an older fact exists), ``proof`` its
    basis.
    ``calls`` holds the outcomes of tool calls that rested on it; rankings ignore it.
    ``evidence`` is its absolute evidence, and ``probability`` how likely it is part of what the
    query needs; None if not judged.
    """

    item: Entry | Fact
    score: float
    signals: Mapping[str, float]
    sources: tuple[Source, ...]
    weight: float = 0.0
    note: str = ""
    evidence: Evidence | None = None
    probability: float | None = None
    proof: str = ""
    calls: CallHistory = NO_CALLS

    @property
    def id(self) -> str:
        """The id of the entry or fact."""
        return self.item.id

    @property
    def tier(self) -> Tier:
        """The tier the item lives in."""
        return self.item.tier if isinstance(self.item, Fact) else "episodic"

    @property
    def text(self) -> str:
        """The text of the item."""
        return self.item.text

    def with_probability(self, probability: float) -> Hit:
        """Return the hit with its probability set."""
        return replace(self, probability=probability)

    def with_note(self, note: str, proof: str = "") -> Hit:
        """Return the hit with one more note and the note's basis."""
        note = f"{self.note}; {note}" if self.note else note
        return replace(self, note=note, proof=proof or self.proof)


class Recall(Record, frozen=True, kw_only=True):
    """The answer to one query.

    ``hits`` are ranked, before packing; ``injected`` are those whose lines are in ``text``.
    ``label`` says how it was made: ``hybrid``, ``lexical``, ``empty``, ``silent`` (no hit is worth
    showing, or the prompt needs none) or ``degraded: why``.
    ``probability`` is how likely the best hits hold what the query needs, ``silent`` why nothing is
    injected despite hits, or without a search.
    ``postings`` and ``vectors`` count what was read, ``ms`` is the wall time, ``steps`` its parts.
    ``route`` is the router's decision if ``depth`` is "auto"; ``withheld`` is what a plugin that
    packed the block records about it.
    """

    id: str
    query: str
    label: str
    hits: tuple[Hit, ...]
    injected: tuple[Hit, ...]
    text: str
    tokens: int
    ms: float
    postings: int
    vectors: int
    depth: Depth = "mixed"
    route: Route | None = None
    steps: tuple[Step, ...] = ()
    probability: float | None = None
    silent: str = ""
    withheld: Any = None

    def __repr__(self) -> str:
        """Return a line that fits on a screen, without `hits` and `text`."""
        query = self.query if len(self.query) <= _SHOWN_QUERY else f"{self.query[:_SHOWN_QUERY]}…"
        counts = f"{len(self.hits)} hits, {len(self.injected)} injected, {self.tokens} tokens"
        return f"<Recall {self.id} of {query!r}: {self.label}, {counts}>"


class Signal(GivenRecord, frozen=True, kw_only=True):
    """An extension's own ranking signal: one value in [0, 1] for each item, in their order."""

    name: str
    weight: float
    values: tuple[float, ...]
