"""The results of a recall: ranked hits, the block made of them, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Self, TypedDict, Unpack

from memtier_plugin.core.host import Shown
from memtier_plugin.core.records import Entry, Fact, Purpose, Source, Tier

# mixed: facts and entries ranked together; facts: facts only; raw: entries only; auto: routed.
Depth = Literal["mixed", "facts", "raw", "auto"]
Action = Literal["S", "R"]  # answer from the summary tier (facts), or go back to the raw log


class RecallOptions(TypedDict, total=False):
    """The options of a recall as keywords; the fields of `RecallRequest`."""

    session_id: str | None
    run_id: str | None
    purpose: Purpose
    k: int | None
    token_budget: int | None
    at: datetime | None
    sender: str | None
    deadline_ms: float | None
    depth: Depth | None
    shown: Shown | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """The options of a recall; None takes what the settings say.

    Attributes:
        session_id: the session whose prompt is built.
        run_id: the run that is credited for what is injected.
        purpose: ``inject`` is credited when its run ends, and leaves tool and external text out of
            the block.
        k: how many lines may be injected.
        token_budget: how many tokens the block may have.
        at: what "now" is, for ages; the clock's when None.
        sender: on a shared channel, whose entries may be seen.
        deadline_ms: answer by then with what is ready, labelled.
        depth: mixed, facts, raw or auto, see `retrieval.depth`.
        shown: what of the session the prompt has already; it is not injected again.
    """

    session_id: str | None = None
    run_id: str | None = None
    purpose: Purpose = "search"
    k: int | None = None
    token_budget: int | None = None
    at: datetime | None = None
    sender: str | None = None
    deadline_ms: float | None = None
    depth: Depth | None = None
    shown: Shown | None = None

    def with_options(self, **options: Unpack[RecallOptions]) -> Self:
        """Return the request with some options changed."""
        return replace(self, **options) if options else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a router decided: ``S`` for the facts alone, ``R`` for the raw log.

    ``doubt`` is how far the facts are from being enough (0: not at all), ``why`` says it in words,
    ``by`` names the router: "features", or the model.
    """

    action: Action
    doubt: float
    why: tuple[str, ...]
    by: str = "features"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "action": self.action,
            "doubt": round(self.doubt, 6),
            "why": list(self.why),
            "by": self.by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step took: milliseconds, and the tokens that a reader gets to read or writes.

    ``read`` counts what was looked at to do it: items, or the pages of a research round.
    """

    name: str
    ms: float
    tokens: int = 0
    read: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "ms": round(self.ms, 3),
            "tokens": self.tokens,
            "read": self.read,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One ranked item with every signal that made its score.

    Each signal lies in [0, 1], but for the `paper` profile's raw BM25.

    ``sources`` holds the entry itself, or a fact's source entries, in a fixed order.
    ``note`` says what a reader must know of it (for example that an older fact exists).
    """

    item: Entry | Fact
    score: float
    signals: Mapping[str, float]
    sources: tuple[Source, ...]
    weight: float = 0.0
    note: str = ""

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
        """What the item says."""
        return self.item.text if isinstance(self.item, Fact) else self.item.content


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The answer to one query.

    ``hits`` are ranked, before packing; ``injected`` are those whose lines stand in ``text``.
    ``label`` says how it was made: ``hybrid``, ``lexical``, ``empty`` or ``degraded: why``.
    ``postings`` and ``vectors`` count what was read, ``ms`` is the wall time, ``steps`` its parts.
    ``route`` is what the router decided, where ``depth`` is "auto".
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """An extension's own ranking signal: one value in [0, 1] for each item, in their order."""

    name: str
    weight: float
    values: tuple[float, ...]
