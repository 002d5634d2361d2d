"""Every setting with its key, default, type and limits, as frozen records.

This is the only list of keys; `keys.py` reads it, and `load.py` checks configuration files against
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal, NamedTuple, TypeVar, cast

from memtier_plugin.core.installation import install_command
from memtier_plugin.core.results import Depth, FloorLevel
from memtier_plugin.core.structs import Record

Section = TypeVar("Section", bound=Record)
Language = Literal[
    "none", "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "esperanto",
    "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish",
    "italian", "lithuanian", "nepali", "norwegian", "portuguese", "romanian", "russian", "serbian",
    "spanish", "swedish", "tamil", "turkish", "yiddish",
]  # fmt: skip
NOWHERE: Final = "none"  # placeholder: no server configured
ENDPOINT_PREFIX: Final = "endpoint:"  # prefix of a model's name: "endpoint:NAME/MODEL"


NO_KEYS: Final = ("plugins", "unserved")  # fields of `Settings` that are no keys


class Within(NamedTuple):
    """The allowed range of a number."""

    low: float
    high: float


class Weights(Record, frozen=True, kw_only=True):
    """Weights of the signals of the `recall_first` profile: see `scripts/fit_weights.py`."""

    words: Annotated[float, Within(0, 100)] = 1.0
    grams: Annotated[float, Within(0, 100)] = 1.0
    previous: Annotated[float, Within(0, 100)] = 0.4
    next: Annotated[float, Within(0, 100)] = 0.1
    window: Annotated[float, Within(0, 100)] = 1.9
    speaker: Annotated[float, Within(0, 100)] = 2.2
    user: Annotated[float, Within(0, 100)] = 2.0
    session: Annotated[float, Within(0, 100)] = 0.2
    session_words: Annotated[float, Within(0, 100)] = 1.3
    source: Annotated[float, Within(0, 100)] = 0.5
    dense: Annotated[float, Within(0, 100)] = 1.8
    dense_window: Annotated[float, Within(0, 100)] = 2.1
    dense_previous: Annotated[float, Within(0, 100)] = 0.0
    standing: Annotated[float, Within(0, 100)] = 1.5
    time: Annotated[float, Within(0, 100)] = 1.6
    decay: Annotated[float, Within(0, 100)] = 0.1
    weight: Annotated[float, Within(0, 100)] = 2.5
    tier: Annotated[float, Within(0, 100)] = 2.0
    overview: Annotated[float, Within(0, 100)] = 4.0


class Retrieval(Record, frozen=True, kw_only=True):
    """Limits on what a recall reads, ranks and injects."""

    profile: Literal["recall_first"] = "recall_first"
    search: Literal["flat"] = "flat"
    depth: Depth = "mixed"
    facts: bool = True
    experiences: bool = True
    floor: FloorLevel = "balanced"
    k: Annotated[int, Within(1, 1000)] = 16
    token_budget: Annotated[int, Within(16, 100_000)] = 600
    passage_tokens: Annotated[int, Within(10, 100_000)] = 60
    candidates: Annotated[int, Within(1, 10_000)] = 100
    postings_cap: Annotated[int, Within(1_000, 10_000_000)] = 10_000
    vectors_cap: Annotated[int, Within(1_000, 10_000_000)] = 100_000
    sessions: Annotated[int, Within(1, 1000)] = 5
    episode_hours: Annotated[float, Within(0, 8_760)] = 0.0
    decay_lambda: Annotated[float, Within(0, 10)] = 0.05
    decay_bypass: Annotated[float, Within(0, 1000)] = 2.0
    weights: Weights = Weights()

    @property
    def ranker(self) -> str | None:
        """The name of a plugin's ranker, if one is chosen; None for MemTier's own."""
        if self.profile != "recall_first":
            return self.profile
        return None if self.search == "flat" else self.search


class Embedding(Record, frozen=True, kw_only=True):
    """The model behind the vectors of the dense signal, and its spending limit."""

    model: str = "default"
    max_cost: Annotated[float, Within(0, 1_000_000)] = 0.0

    @property
    def is_remote(self) -> bool:
        """Whether an endpoint computes the vectors."""
        return self.model.startswith(ENDPOINT_PREFIX)


class Attribution(Record, frozen=True, kw_only=True):
    """How outcomes move the weights of the injected items (MemTier, eq. 1)."""

    alpha: Annotated[float, Within(0, 1)] = 0.1
    proxy: Literal["call"] = "call"


class Trust(Record, frozen=True, kw_only=True):
    """How far statements are trusted."""

    defence: bool = True
    local_tools: tuple[str, ...] = ()


class Ledger(Record, frozen=True, kw_only=True):
    """Durability of the ledgers, and the server of the shared ones."""

    durability: Literal["sync", "os"] = "sync"
    shared: Annotated[str, "server"] = NOWHERE
    tool_result_chars: Annotated[int, Within(100, 1_000_000)] = 4000


class Journal(Record, frozen=True, kw_only=True):
    """Retention of recall events; credits are kept forever."""

    retention_days: Annotated[int, Within(1, 36_500)] = 90


class Limits(Record, frozen=True, kw_only=True):
    """Limits on what is recorded; 0 means no limit where that is allowed."""

    entry_chars: Annotated[int, Within(1_000, 1_000_000_000)] = 20_000_000
    run_messages: Annotated[int, Within(10, 1_000_000)] = 10_000
    day_mb: Annotated[float, Within(0, 1_000_000)] = 1_000.0
    project_mb: Annotated[float, Within(0, 10_000_000)] = 20_000.0


class Retention(Record, frozen=True, kw_only=True):
    """How long entries are kept; 0, the default, keeps all."""

    days: Annotated[int, Within(0, 36_500)] = 0
    entries: Annotated[int, Within(0, 1_000_000_000)] = 0
    mb: Annotated[float, Within(0, 10_000_000)] = 0.0
    keep_sources: bool = True
    purge: bool = False


class Redaction(Record, frozen=True, kw_only=True):
    """How secrets are masked before they are written, and which false alarms are let through."""

    enabled: bool = True
    personal_numbers: bool = False
    allow: tuple[str, ...] = ()


class Hooks(Record, frozen=True, kw_only=True):
    """Deadlines of the hooks, and the reminder of pending reviews."""

    prompt_deadline_ms: Annotated[int, Within(10, 600_000)] = 1_500
    end_deadline_ms: Annotated[int, Within(10, 600_000)] = 10_000
    session_deadline_ms: Annotated[int, Within(10, 600_000)] = 5_000
    review_reminder: bool = True


class Consolidation(Record, frozen=True, kw_only=True):
    """The schedule, model and budget of background consolidation."""

    enabled: bool = True
    interval_minutes: Annotated[float, Within(0.01, 10_080)] = 5.0
    batch: Annotated[int, Within(1, 100_000)] = 500
    session_cap: Annotated[int, Within(1, 100_000)] = 40
    probes: Annotated[int, Within(0, 1_000)] = 24
    model: str = "none"
    batch_tokens: Annotated[int, Within(100, 1_000_000)] = 4000
    max_calls_per_day: Annotated[int, Within(0, 1_000_000)] = 200
    max_tokens_per_day: Annotated[int, Within(0, 1_000_000_000)] = 2_000_000
    max_cost_per_day: Annotated[float, Within(0, 1_000_000)] = 0.0


class HostModel(Record, frozen=True, kw_only=True):
    """The deadline and the price of the host's own model (`consolidation.model: host`)."""

    timeout_s: Annotated[float, Within(0.1, 3600)] = 120.0
    price_per_million_tokens: Annotated[float, Within(0, 1_000_000)] = 0.0
    price_per_million_output_tokens: Annotated[float, Within(0, 1_000_000)] = 0.0


class Summaries(Record, frozen=True, kw_only=True):
    """When a session is over, and how it is summarised; ``long``: months and people too."""

    enabled: bool = True
    long: bool = False
    idle_hours: Annotated[float, Within(0.01, 8_760)] = 6.0
    working: bool = True


class RegressionSettings(Record, frozen=True, kw_only=True):
    """How far a change may worsen recall on the project's own history, and the test queries."""

    tolerance: Annotated[float, Within(0, 1)] = 0.02
    questions: Annotated[int, Within(10, 10_000)] = 200


FactMode = Literal["auto", "review", "explicit"]
SensitiveMode = Literal["review", "share", "drop"]


class Facts(Record, frozen=True, kw_only=True):
    """Which facts are accepted automatically, and which relations have one value at a time."""

    mode: FactMode = "auto"
    sensitive: SensitiveMode = "review"
    corrections: bool = True
    intentions: bool = True
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


class Share(Record, frozen=True, kw_only=True):
    """Whether sessions bring in the facts that a team keeps in its repository."""

    git: bool = False


class Ask(Record, frozen=True, kw_only=True):
    """The model that answers questions, its search limits, and the write-back of findings."""

    model: str = "none"
    mode: Literal["pages"] = "pages"
    rounds: Annotated[int, Within(1, 10)] = 3
    pages: Annotated[int, Within(1, 100)] = 5
    write_back: bool = True


class ModelPrice(Record, frozen=True, kw_only=True):
    """The price of a host's model per million tokens, for `memtier bill`."""

    input: Annotated[float, Within(0, 1_000_000)] = 0.0
    cached: Annotated[float, Within(0, 1_000_000)] = 0.0
    cache_write: Annotated[float, Within(0, 1_000_000)] = 0.0
    output: Annotated[float, Within(0, 1_000_000)] = 0.0


class Resident(Record, frozen=True, kw_only=True):
    """How long the resident of a home stays when no host needs it."""

    idle_minutes: Annotated[float, Within(0, 1_000_000)] = 30.0


class Telemetry(Record, frozen=True, kw_only=True):
    """Whether to export spans and metrics by OTLP, and to which collector."""

    enabled: bool = False
    endpoint: Annotated[str, "url"] = "http://127.0.0.1:4318"


class AgentRights(Record, frozen=True, kw_only=True):
    """The permissions of one agent beyond its own ledger."""

    read_all: bool = False
    read_people: bool = False
    promote: Literal["all", "propose", "none"] = "all"


class Endpoint(Record, frozen=True, kw_only=True):
    """An OpenAI-compatible server; the environment variable ``key_env`` holds the key."""

    base_url: Annotated[str, "url"]
    key_env: str = "none"
    timeout_s: Annotated[float, Within(0.1, 3600)] = 120.0
    price_per_million_tokens: Annotated[float, Within(0, 1_000_000)] = 0.0
    price_per_million_output_tokens: Annotated[float, Within(0, 1_000_000)] = 0.0


class Settings(Record, frozen=True, kw_only=True):
    """All settings, with MemTier's defaults.

    ``plugins`` are the sections of installed plugins; ``unserved`` are keys whose package is not
    installed, each with the place that set it.
    """

    language: Language = "english"
    retrieval: Retrieval = Retrieval()
    embedding: Embedding = Embedding()
    attribution: Attribution = Attribution()
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
    regression: RegressionSettings = RegressionSettings()
    facts: Facts = Facts()
    share: Share = Share()
    ask: Ask = Ask()
    resident: Resident = Resident()
    telemetry: Telemetry = Telemetry()
    agents: Mapping[str, AgentRights] = {}
    endpoints: Mapping[str, Endpoint] = {}
    prices: Mapping[str, ModelPrice] = {}
    plugins: Mapping[type[Record], Record] = {}
    unserved: tuple[str, ...] = ()

    def of(self, section: type[Section]) -> Section:
        """Return a section that a plugin declares, with defaults for unset keys."""
        return cast("Section", self.plugins.get(section)) or section()

    def having(self, section: Record) -> Settings:
        """Return the settings with a plugin's section replaced."""
        return replace(self, plugins={**self.plugins, type(section): section})

    def missing(self, *names: str) -> list[str]:
        """Return which packages to install for unserved keys, of these names or all."""
        keys = [key for key in self.unserved if not names or key.partition(" ")[0] in names]
        remedy = f"run `{install_command('memtier-papers')}`" if keys else ""
        return [f"{key} needs memtier-papers, which is missing: {remedy}" for key in keys]
