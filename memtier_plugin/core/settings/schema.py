"""Declare every setting with its key, default, type and limits, as frozen dataclasses.

This is the only list of keys; `keys.py` reads it, and `load.py` checks configuration files by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import (
    Final,
    Literal,
    Protocol,
    TypeVar,
)

from memtier_plugin.core.results import Depth, FloorLevel

Language = Literal[
    "none", "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "esperanto",
    "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish",
    "italian", "lithuanian", "nepali", "norwegian", "portuguese", "romanian", "russian", "serbian",
    "spanish", "swedish", "tamil", "turkish", "yiddish",
]  # fmt: skip
NOWHERE: Final = "none"  # placeholder: no server configured
ENDPOINT_PREFIX: Final = "endpoint:"  # of a model's name: "endpoint:NAME/MODEL"
T = TypeVar("T")


def _within(default: T, low: float, high: float) -> T:
    """Declare a number with its default and the limits it must keep."""
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of the signals of the `recall_first` profile: see `scripts/fit_weights.py`."""

    words: float = _within(1.0, 0, 100)
    grams: float = _within(1.0, 0, 100)
    previous: float = _within(0.4, 0, 100)
    next: float = _within(0.1, 0, 100)
    window: float = _within(1.9, 0, 100)
    speaker: float = _within(2.2, 0, 100)
    user: float = _within(2.0, 0, 100)
    session: float = _within(0.2, 0, 100)
    session_words: float = _within(1.3, 0, 100)
    source: float = _within(0.5, 0, 100)
    dense: float = _within(1.8, 0, 100)
    dense_window: float = _within(2.1, 0, 100)
    dense_previous: float = _within(0.0, 0, 100)
    hypothetical: float = _within(1.0, 0, 100)
    standing: float = _within(1.5, 0, 100)
    time: float = _within(1.6, 0, 100)
    decay: float = _within(0.1, 0, 100)
    weight: float = _within(2.5, 0, 100)
    tier: float = _within(2.0, 0, 100)
    surprise: float = _within(0.0, 0, 100)
    overview: float = _within(4.0, 0, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterDoubts:
    """How much each doubt in the facts counts, and the sum up to which the facts alone answer."""

    unsaid: float = _within(0.5, -100, 100)
    uncarried: float = _within(0.5, -100, 100)
    no_fact: float = _within(0.3, -100, 100)
    kind: float = _within(0.3, -100, 100)
    disagree: float = _within(0.3, -100, 100)
    ended: float = _within(0.3, -100, 100)
    foreign: float = _within(0.5, -100, 100)
    blamed: float = _within(0.3, -100, 100)
    limit: float = _within(0.2, -100, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """Limits on what a recall reads, ranks and injects."""

    profile: Literal["recall_first", "paper", "rrf"] = "recall_first"
    search: Literal["flat", "tiers"] = "flat"
    depth: Depth = "mixed"
    facts: bool = True
    experiences: bool = True
    floor: FloorLevel = "balanced"
    k: int = _within(16, 1, 1000)
    token_budget: int = _within(600, 16, 100_000)
    passage_tokens: int = _within(60, 10, 100_000)
    candidates: int = _within(100, 1, 10_000)
    postings_cap: int = _within(10_000, 1_000, 10_000_000)
    vectors_cap: int = _within(100_000, 1_000, 10_000_000)
    sessions: int = _within(5, 1, 1000)
    episode_hours: float = _within(0.0, 0, 8_760)
    decay_lambda: float = _within(0.05, 0, 10)
    decay_bypass: float = _within(2.0, 0, 1000)
    weights: Weights = Weights()
    router: RouterDoubts = RouterDoubts()

    @property
    def ranker(self) -> str | None:
        """The name of the plugin's ranker that is chosen; None for MemTier's own."""
        if self.profile != "recall_first":
            return self.profile
        return None if self.search == "flat" else self.search


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """The model for the vectors of the dense signal, and its spending limit."""

    model: str = "default"
    max_cost: float = _within(0.0, 0, 1_000_000)

    @property
    def is_remote(self) -> bool:
        """Whether an endpoint computes the vectors."""
        return self.model.startswith(ENDPOINT_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperWeights:
    """The weights of the published score (MemTier eq. 2)."""

    semantic: float = _within(0.0, 0, 100)
    bm25: float = _within(0.35, 0, 100)
    decay: float = _within(0.25, 0, 100)
    cw: float = _within(0.25, 0, 100)
    tier: float = _within(0.15, 0, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The `paper` profile's own size, variants and weights."""

    k: int = _within(4, 1, 1000)
    token_budget: int = _within(300, 16, 100_000)
    scope: Literal["sessions", "none"] = "sessions"
    stage_one: Literal["bm25", "dense", "rrf"] = "bm25"
    normalise: Literal["raw", "log1p", "minmax", "zscore"] = "raw"
    weights: PaperWeights = PaperWeights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rrf:
    """The `rrf` profile's own size, and its salience guard (True Memory, stages 8 and 9)."""

    k: int = _within(10, 1, 1000)
    token_budget: int = _within(600, 16, 100_000)
    guard: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerank:
    """The model that reads the query and what was found together."""

    model: str = "none"

    @property
    def is_on(self) -> bool:
        """Whether a model is configured."""
        return self.model != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Sharing of a run's reward among the injected items (MemTier, section 3.3, eq. 1)."""

    alpha: float = _within(0.1, 0, 1)
    proxy: Literal["jaccard", "overlap", "logprob"] = "jaccard"
    model: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """Lines that are left out by chance, to measure what they do, and what follows from it."""

    withhold: float = _within(0.0, 0, 0.5)
    weigh: bool = False
    propose: bool = False
    retire_after: int = _within(30, 5, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Settings of how far a statement is trusted."""

    defence: bool = True
    local_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Durability of the ledgers, and the server of those that machines share."""

    durability: Literal["sync", "os"] = "sync"
    shared: str = field(default=NOWHERE, metadata={"server": True})
    tool_result_chars: int = _within(4000, 100, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Retention of recall events; credits are kept forever."""

    retention_days: int = _within(90, 1, 36_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on what is recorded; 0 means no limit where it is allowed."""

    entry_chars: int = _within(20_000_000, 1_000, 1_000_000_000)
    run_messages: int = _within(10_000, 10, 1_000_000)
    day_mb: float = _within(1_000.0, 0, 1_000_000)
    project_mb: float = _within(20_000.0, 0, 10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention of entries; 0, the default, keeps all."""

    days: int = _within(0, 0, 36_500)
    entries: int = _within(0, 0, 1_000_000_000)
    mb: float = _within(0.0, 0, 10_000_000)
    keep_sources: bool = True
    purge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """Settings of the masking of secrets before they are written, and of its false alarms."""

    enabled: bool = True
    personal_numbers: bool = False
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Deadlines of the hooks, and the reminder of what waits for review."""

    prompt_deadline_ms: int = _within(1_500, 10, 600_000)
    end_deadline_ms: int = _within(10_000, 10, 600_000)
    session_deadline_ms: int = _within(5_000, 10, 600_000)
    review_reminder: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """The schedule, model and budget of background consolidation."""

    enabled: bool = True
    interval_minutes: float = _within(5.0, 0.01, 10_080)
    batch: int = _within(500, 1, 100_000)
    session_cap: int = _within(40, 1, 100_000)
    probes: int = _within(24, 0, 1_000)
    model: str = "none"
    second_look: bool = False
    tools: bool = False
    batch_tokens: int = _within(4000, 100, 1_000_000)
    max_calls_per_day: int = _within(200, 0, 1_000_000)
    max_tokens_per_day: int = _within(2_000_000, 0, 1_000_000_000)
    max_cost_per_day: float = _within(0.0, 0, 1_000_000)


class Price(Protocol):
    """The price of a model, per million tokens read and written."""

    @property
    def price_per_million_tokens(self) -> float:
        """Of tokens read, and of those written where they have no price of their own."""

    @property
    def price_per_million_output_tokens(self) -> float:
        """Of tokens written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostModel:
    """The deadline and the price of the host's own model (`consolidation.model: host`)."""

    timeout_s: float = _within(120.0, 0.1, 3600)
    price_per_million_tokens: float = _within(0.0, 0, 1_000_000)
    price_per_million_output_tokens: float = _within(0.0, 0, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """Settings of summaries, and of when a session is over; ``long``: also of months and people."""

    enabled: bool = True
    long: bool = False
    idle_hours: float = _within(6.0, 0.01, 8_760)
    working: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """The rating of entries, and the sizes of the tiers that follow from it (HMO)."""

    enabled: bool = False
    model: str = "none"
    sessions: int = _within(3, 0, 100)
    cache: int = _within(20, 0, 1_000)
    buffer: int = _within(200, 0, 10_000)
    drift: float = _within(0.15, 0, 2)
    importance_share: float = _within(0.5, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Whether profiles of people are written, and recalled by questions about somebody."""

    profiles: bool = False


GateMode = Literal["off", "tag", "index"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Whether the encoding gate judges entries, and leaves those it rejects out of the index."""

    mode: GateMode = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """How much worse a change may make recall on the project's own history, and what is asked."""

    tolerance: float = _within(0.02, 0, 1)
    questions: int = _within(200, 10, 10_000)


FactMode = Literal["auto", "review", "explicit"]
SensitiveMode = Literal["review", "share", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What becomes a fact by itself, and the relations with one current value per subject."""

    mode: FactMode = "auto"
    sensitive: SensitiveMode = "review"
    single_valued: tuple[str, ...] = (
        "name",
        "lives_in",
        "works_at",
        "birthday",
        "age",
        "favorite",
        "version_of",
        "runs_on_port",
        "located_at",
        "scheduled_for",
        "ends_on",
        "owned_by",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The model that answers questions, its search limits, and the write-back of findings."""

    model: str = "none"
    mode: Literal["pages", "tools"] = "pages"
    planner: str = "model"
    rounds: int = _within(3, 1, 10)
    pages: int = _within(5, 1, 100)
    write_back: bool = True
    hypothetical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """What a million tokens of a host's model cost, for `memtier bill`."""

    input: float = _within(0.0, 0, 1_000_000)
    cached: float = _within(0.0, 0, 1_000_000)
    cache_write: float = _within(0.0, 0, 1_000_000)
    output: float = _within(0.0, 0, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """For how long the process that serves a home stays when no host needs it."""

    idle_minutes: float = _within(30.0, 0, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Whether spans and metrics are exported by OTLP, and to which collector."""

    enabled: bool = False
    endpoint: str = field(default="http://127.0.0.1:4318", metadata={"url": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRights:
    """The permissions of one agent beyond its own ledger."""

    read_all: bool = False
    read_people: bool = False
    promote: Literal["all", "propose", "none"] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible server; the key is in the environment variable ``key_env``."""

    base_url: str = field(metadata={"url": True})
    key_env: str = "none"
    timeout_s: float = _within(30.0, 0.1, 3600)
    price_per_million_tokens: float = _within(0.0, 0, 1_000_000)
    price_per_million_output_tokens: float = _within(0.0, 0, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, with MemTier's defaults."""

    language: Language = "english"
    retrieval: Retrieval = Retrieval()
    embedding: Embedding = Embedding()
    paper: Paper = Paper()
    rrf: Rrf = Rrf()
    rerank: Rerank = Rerank()
    attribution: Attribution = Attribution()
    causes: Causes = Causes()
    trust: Trust = Trust()
    ledger: Ledger = Ledger()
    journal: Journal = Journal()
    limits: Limits = Limits()
    retention: Retention = Retention()
    redaction: Redaction = Redaction()
    hooks: Hooks = Hooks()
    consolidation: Consolidation = Consolidation()
    host_model: HostModel = HostModel()
    summaries: Summaries = Summaries()
    priority: Priority = Priority()
    people: People = People()
    gate: Gate = Gate()
    regression: Regression = Regression()
    facts: Facts = Facts()
    ask: Ask = Ask()
    resident: Resident = Resident()
    telemetry: Telemetry = Telemetry()
    agents: Mapping[str, AgentRights] = field(default_factory=dict)
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    prices: Mapping[str, ModelPrice] = field(default_factory=dict)
