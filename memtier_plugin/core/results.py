"""What a recall returns, and what hosts report to the hooks and get back from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, Self, TypedDict, Unpack

from msgspec.structs import replace

from memtier_plugin.core.records import (
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

# -- Records of the hooks: what a host reports of a run, and what it gets back

# What a prompt is: small talk, a command of the host, a task or a question that anybody could put,
# a pasted log or code, a follow-up that leans on this session, or a question to the memory: about
# whoever asks, the assistant's words, a time, a list of things.
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

    ``agent_id`` is ``<host>.<agent>``; ``project`` None lets the workspace decide. What is said in
    a ``private`` run is a confidence.
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
    """A prompt about to be built: the user's newest message, and what came before.

    ``visible_since`` is from when on the prompt has the session in it: what was said since is not
    injected again, and with ``keeps_injected`` what was injected since is not either.
    ``kind`` is what the host knows of the prompt; None leaves it to rules.
    ``caution`` stands first in the block, where the host frames it with words of its own.
    ``acknowledges`` is a promise to say when the prompt has the block (`MemTier.acknowledge`).
    """

    prompt: str
    messages: tuple[Message, ...] = ()
    visible_since: datetime | None = None
    keeps_injected: bool = False
    kind: PromptKind | None = None
    caution: str = ""
    acknowledges: bool = False


class Shown(GivenRecord, frozen=True, kw_only=True):
    """The part of a conversation that the prompt holds already: everything since a moment.

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

    ``seen`` is external text of earlier runs that the conversation still shows: what the assistant
    says is held against it. ``usage`` is what the host's models took for it.
    """

    messages: tuple[Message, ...]
    success: bool = True
    error: str | None = None
    seen: tuple[str, ...] = ()
    usage: tuple[UsageEvent, ...] = ()


class HookCall(Record, frozen=True):
    """The hook call that a host's payload translates to."""

    hook: str
    context: RunContext
    event: PromptEvent | RunEvent | None = None


# -- The results of a recall: ranked hits, the block made of them, and how it was made

# mixed: facts and entries ranked together; facts: facts only; raw: entries only; auto: routed.
Depth = Literal["mixed", "facts", "raw", "auto"]
# How sure it must be that a block helps before it is injected; see `retrieval.floor`.
FloorLevel = Literal["off", "careful", "balanced", "quiet"]
_SHOWN_QUERY: Final = 60  # characters of a query in the repr of its recall
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
    """The options of a recall; None takes what the settings say.

    Attributes:
        session_id: the session whose prompt is built.
        run_id: the run that is credited for what is injected.
        purpose: ``inject`` is credited when its run ends, and leaves tool and external text out of
            the block; ``offer`` does the same for a host that may be gone by then, and counts as
            ``inject`` from `MemTier.acknowledge` on, until then for nothing; ``preview`` has the
            same block, for a person to look at, and is not credited;
            ``ask`` has only lines in the block that may answer a question.
        k: how many lines may be injected.
        token_budget: how many tokens the block may have.
        at: what "now" is, for ages; the clock's when None.
        sender: on a shared channel, whose entries may be seen.
        deadline_ms: answer by then with what is ready, labelled.
        depth: mixed, facts, raw or auto, see `retrieval.depth`.
        shown: what of the session the prompt has already; it is not injected again.
        kind: what kind of prompt it is, where the host knows; rules tell it otherwise.
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
        return dataclasses.replace(self, **options) if options else self  # which checks them


class Route(Record, frozen=True, kw_only=True):
    """The decision of a router: ``S`` for the facts alone, ``R`` for the raw log.

    ``doubt`` is how far the facts are from being enough (0: not at all), ``why`` says it in words,
    ``by`` names the router: "features", or the model; ``amounts`` has its doubts by name, each
    0 to 1, and is not journalled.
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

    ``read`` counts what was looked at to do it: items, or the pages of a research round.
    """

    name: str
    ms: float
    tokens: int = 0
    read: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**super().to_json(), "ms": round(self.ms, 3)}


class Evidence(Record, frozen=True, kw_only=True):
    """What speaks for one line, whatever else was found.

    Attributes:
        coverage: the share of the query's words, by idf, in the line, its date, and the turns
            directly before and after it.
        own_coverage: the same of the line and its date alone.
        matched: the summed idf of the words in ``coverage``.
        cosine: of the line's vector and the query's; 0 without vectors.
        time: how near the line is to a time that the query names; 0 where it names none.
        speaker: whether the query names who said it.
    """

    coverage: float = 0.0
    own_coverage: float = 0.0
    matched: float = 0.0
    cosine: float = 0.0
    time: float = 0.0
    speaker: bool = False


class Hit(Record, frozen=True, kw_only=True):
    """One ranked item with every signal that made its score.

    Each signal lies in [0, 1], but for the `paper` profile's raw BM25.

    ``sources`` holds the entry itself, or a fact's source entries, in a fixed order.
    ``note`` says what a reader must know of it (for example that an older fact exists), ``proof``
    what a claim in the note rests on.
    ``evidence`` is what speaks for it in absolute terms, and ``probability`` how likely it is part
    of what the query needs; None where that was not judged.
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
        """Return the hit, judged."""
        return replace(self, probability=probability)

    def with_note(self, note: str, proof: str = "") -> Hit:
        """Return the hit with one more note, and what proves it."""
        note = f"{self.note}; {note}" if self.note else note
        return replace(self, note=note, proof=proof or self.proof)


class Recall(Record, frozen=True, kw_only=True):
    """The answer to one query.

    ``hits`` are ranked, before packing; ``injected`` are those whose lines stand in ``text``.
    ``label`` says how it was made: ``hybrid``, ``lexical``, ``empty``, ``silent`` (nothing of
    what was found is worth showing, or the prompt needs nothing) or ``degraded: why``.
    ``probability`` is how likely the best hits hold what the query needs, ``silent`` why nothing is
    injected although something was found, or without a search.
    ``postings`` and ``vectors`` count what was read, ``ms`` is the wall time, ``steps`` its parts.
    ``route`` is what the router decided, where ``depth`` is "auto"; ``withheld`` is what a plugin
    that filled the block keeps of it.
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
        """Return a line that fits on a screen; `hits` and `text` have the rest."""
        query = self.query if len(self.query) <= _SHOWN_QUERY else f"{self.query[:_SHOWN_QUERY]}…"
        counts = f"{len(self.hits)} hits, {len(self.injected)} injected, {self.tokens} tokens"
        return f"<Recall {self.id} of {query!r}: {self.label}, {counts}>"


class Signal(GivenRecord, frozen=True, kw_only=True):
    """An extension's own ranking signal: one value in [0, 1] for each item, in their order."""

    name: str
    weight: float
    values: tuple[float, ...]
