"""The hooks: those that hosts call, and those that third-party plugins may implement.

A plugin is a module or an object with functions marked ``hookimpl``, named by an entry point of the
group ``memtier``, or ``memtier.commands`` if it only adds commands. The shipped handlers
(``memtier_plugin.hooks``) implement the same specs. Every implementation is called on its own: if
one raises, the error is reported and the others still run. Wrappers are not supported.
"""
# The bodies are empty on purpose: pluggy reads the signatures and never calls these functions.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import pluggy

from memtier_plugin.core.entry_points import CommandSpec

if TYPE_CHECKING:  # a plugin that only adds commands needs none of these
    from memtier_plugin.core.records import (
        Entry,
        EventPayload,
        Fact,
        FactDraft,
        JournalEvent,
        Message,
        Origin,
        Source,
    )
    from memtier_plugin.core.results import (
        CallReminder,
        Hit,
        PromptAddition,
        PromptEvent,
        RecallRequest,
        RunContext,
        RunEvent,
        Signal,
        ToolCallEvent,
    )
    from memtier_plugin.core.settings.schema import Settings
    from memtier_plugin.core.structs import Record

ENTRY_POINT_GROUP: Final = "memtier"
Hook = TypeVar("Hook", bound=Callable[..., Any])

hookspec = pluggy.HookspecMarker(ENTRY_POINT_GROUP)
hookimpl = pluggy.HookimplMarker(ENTRY_POINT_GROUP)


def off_while(section: type[Record], **values: Any) -> Callable[[Hook], Hook]:
    """Turn a hook implementation off while a section of settings has these values.

    It is then not called at all, so a disabled mechanism adds nothing to a prompt's latency.

    Args:
        section: a section that the plugin declares (`memtier_settings`).
    """

    def mark(function: Hook) -> Hook:
        vars(function)["off_while"] = section, values
        return function

    return mark


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; ``name`` and ``dimensions`` identify the vector space."""

    @property
    def name(self) -> str:
        """The name stored with the vectors; a new name makes MemTier recompute them."""

    @property
    def dimensions(self) -> int:
        """The length of every vector."""

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector per text, in the same order."""


class JobSpec(NamedTuple):
    """A background job of a project.

    Attributes:
        name: the job's name in `status`.
        group: returns, from the settings, when it runs: "local" (each interval), "endpoint" (the
            same, in parallel with the local ones, as it waits for a server), "daily"; None if it
            is off.
        run: does the work on a memory (`MemTier`), for a run (`daemon.jobs.JobRun`) whose ``stop``
            is set when it should end early; raises MemTierError on failure.
    """

    name: str
    group: Callable[[Settings], str | None]
    run: Callable[[Any, Any], None]


class SearchedAnswer(NamedTuple):
    """An answer found by a plugin's own search.

    Attributes:
        answer: an `answering.llm.ModelAnswer`; None if nothing was found.
        why: notes for the route shown with the answer.
        problem: what was unavailable during the search.
    """

    answer: Any
    why: tuple[str, ...] = ()
    problem: str = ""


# Called with an `answering.store_search.StoreSearch`, an `answering.llm.AnsweringModel`, the
# question and its time.
AskMode = Callable[[Any, Any, str, datetime], SearchedAnswer]


class ModelPass(NamedTuple):
    """A plugin's way of asking the consolidation's chat model.

    Attributes:
        extractor: makes the extractor of claims, given the tokens per request
            (`memtier_plugin.facts.extraction.llm.ChatExtractor`).
        judge: makes the judge that relates new facts to known ones
            (`memtier_plugin.facts.extraction.llm.ChatEvolution`).
        look_again: takes the model, the verified drafts and their entries by id; returns the
            revised drafts, and the model's reply if it was asked.
    """

    extractor: Callable[[Any, int], Any]
    judge: Callable[[Any], Any]
    look_again: Callable[[Any, Sequence[Any], Mapping[str, Entry]], tuple[list[Any], Any]] | None


class OverviewText(NamedTuple):
    """The text that a recall shows for an overview, and the lines and facts it draws on."""

    text: str
    sources: tuple[Source, ...]
    origin: Origin


class Overview(NamedTuple):
    """A summary that a plugin writes for one agent and sender.

    Attributes:
        subject: its subject.
        value: identifies its input; another value triggers a rewrite.
        at: the time since which it holds.
        write: returns its text; None if there is nothing to say.
    """

    agent: str
    sender: str
    subject: str
    value: str
    at: datetime
    write: Callable[[], OverviewText | None]


class OverviewKind(NamedTuple):
    """A kind of overviews, stored as facts with one relation.

    Attributes:
        list_due: yields those that a store (`memtier_plugin.storage.store.Store`) should have.
    """

    relation: str
    list_due: Callable[[Any], Iterable[Overview]]


class IndexTables(NamedTuple):
    """Tables of a project's index that a plugin derives from journal events.

    All functions take the connection to the index (an `apsw.Connection`), within a transaction.

    Attributes:
        name: identifies this version of the tables; a new name makes MemTier rebuild them.
        kinds: the kinds of events they are derived from.
        create: creates missing tables.
        clear: empties them.
        add: applies an event; the result must not depend on the order of events.
    """

    name: str
    kinds: frozenset[str]
    create: Callable[[Any], None]
    clear: Callable[[Any], None]
    add: Callable[[Any, JournalEvent], None]


class WebPage(NamedTuple):
    """A page of `memtier web`.

    Attributes:
        path: its path, such as `/uplift`.
        title: its title in the browser.
        link: the text of its link on the health page.
        template: the file of its Jinja template, which extends `base.html`.
        values: returns the template's variables for a memory (`MemTier`).
    """

    path: str
    title: str
    link: str
    template: Path
    values: Callable[[Any], Mapping[str, Any]]


@hookspec(firstresult=True)
def before_prompt_build(event: PromptEvent, context: RunContext) -> PromptAddition | None:
    """Return the text to add before the user's message, or None.

    A host calls it once per prompt and waits; it is kept to ``hooks.prompt_deadline_ms``.
    """


@hookspec(firstresult=True)
def before_tool_call(event: ToolCallEvent, context: RunContext) -> CallReminder | None:
    """Return the user's rule for the agent to consider before a tool call, or None.

    Hosts call it only where the user asked for reminders, and wait for the answer.
    """


@hookspec
def agent_end(event: RunEvent, context: RunContext) -> None:
    """Record a finished run and credit what was injected into it.

    The event holds the run's own messages only. Delivering a run again adds only what is new.
    """


@hookspec
def session_start(context: RunContext) -> None:
    """Prepare a session: a host calls it before the session's first prompt."""


@hookspec
def session_end(context: RunContext) -> None:
    """Flush what a session has not yet written: a host calls it after the session's last run."""


@hookspec
def before_compaction(event: RunEvent, context: RunContext) -> None:
    """Record what is not yet stored, before the host compacts its transcript."""


@hookspec(firstresult=True)
def memtier_embedder() -> Embedder | None:
    """Return an embedder to use instead of the shipped one, or None."""


@hookspec
def memtier_redact(text: str) -> Iterable[tuple[int, int, str]]:
    """Return further spans (start, end, kind) to redact in a text.

    Called before a message reaches its ledger; each span becomes ``[redacted:kind]``.
    """


@hookspec
def memtier_signals(query: str, items: Sequence[Entry | Fact]) -> Iterable[Signal]:
    """Return ranking signals: each a name, a weight and one value in [0, 1] per item.

    Called once per recall with the candidates, before they are ranked.
    """


@hookspec
def memtier_extract(entries: Sequence[Entry]) -> Iterable[FactDraft]:
    """Return further facts found in entries, each with its sources.

    Called by the consolidation, never while a prompt waits.
    """


@hookspec(firstresult=True)
def memtier_model_pass(settings: Settings) -> ModelPass | None:
    """Return how the consolidation should ask its model; None for one JSON object per request."""


@hookspec(firstresult=True)
def memtier_rerank(
    query: str,
    hits: Sequence[Hit],
    deadline: float,
    settings: Settings,
    redact: Callable[[str], str],
) -> Sequence[Hit] | None:
    """Return the ranked hits, the best hundred, in another order, or None to leave them.

    Hits may be dropped but not added. ``deadline`` is a value of ``time.monotonic()``; ``redact``
    masks secrets in text that leaves the machine.  A plugin without an answer in time raises
    `RerankUnavailable`, which the recall's label then reports.
    """


@hookspec(firstresult=True)
def memtier_order_pages(
    question: str,
    pages: Sequence[Any],
    reader: Any,
    settings: Settings,
    redact: Callable[[str], str],
) -> Sequence[Any] | None:
    """Return the pages that `ask` reads in another order, or None; as `memtier_rerank`.

    ``reader`` is a `memtier_plugin.retrieval.visibility.PageReader`: its `hits_on` returns the
    lines of a page.
    """


@hookspec
def memtier_warm_up(settings: Settings) -> None:
    """Prepare for the first prompt, such as by loading a model."""


@hookspec(firstresult=True)
def memtier_ranker(profile: str) -> Any | None:
    """Return the ranker (`memtier_plugin.retrieval.search.Ranker`) of a profile, or None.

    ``profile`` is `retrieval.profile`, or `retrieval.search` with the default profile.  Not called
    while both have their defaults.
    """


@hookspec(firstresult=True)
def memtier_route(recaller: Any, query: Any, candidates: Any, selection: Any) -> Any | None:
    """Choose the hits of a recall of depth ``auto``, and search further for what they leave open.

    Called with the `retrieval.recall.Recaller` and its records of the steps so far; returns a
    `memtier_plugin.retrieval.plan.Routed`, or None.
    """


@hookspec(firstresult=True)
def memtier_expand(
    actor: Any, text: str, request: RecallRequest, viewer: Any, until: float | None
) -> Any | None:
    """Return another text to search for (`memtier_plugin.retrieval.candidates.Expansion`), or None.

    ``until`` is the recall's deadline, a value of ``time.monotonic()``.
    """


@hookspec
def memtier_pool_signals(settings: Settings) -> Mapping[str, Callable[[Any, Any, Any], Any]]:
    """Return the signals in use, keyed by their weight's name in `retrieval.weights`.

    Each is a function of the candidates (`memtier_plugin.retrieval.signals.Pool`), an index reader
    and the scopes of the visible entries; it returns one value in [0, 1] per candidate.
    """


@hookspec(firstresult=True)
def memtier_pack(plan: Any, recall_id: str, actor: Any, journal: Any) -> Any | None:
    """Fill the block of a recall's plan otherwise than by rank, or return None.

    Returns the injected hits, the text of the block, and the `EventRecord` or None that the journal
    stores as ``withheld``.
    """


@hookspec(firstresult=True)
def memtier_credit_run(
    run: Any, reader: Any, messages: Sequence[Message], reward: float, confidence: float
) -> Any | None:
    """Return what the injected items earn by a finished run, or None: by the calls they were for.

    ``run`` is a `memtier_plugin.credit.assignment.RunShares`, the result a `RunCredit` of there.
    """


@hookspec
def memtier_explain(
    recall: JournalEvent, items: Mapping[str, Any], reader: Any, settings: Settings, now: datetime
) -> Mapping[str, Any]:
    """Return additions to `explain` of a recall, by key.

    ``items`` are the stored items that the recall's event names, by id.  A value with ``said`` is
    displayed as that text, with the line ``item`` and its ``text`` if present; a value keyed by an
    item's id is displayed beside that item.
    """


@hookspec(firstresult=True)
def memtier_why(recall: JournalEvent, item_id: str) -> tuple[str, str] | None:
    """Return why a recall has no line for an item, as a reason and a message, or None."""


@hookspec
def memtier_status(
    recalls: Sequence[JournalEvent], reader: Any, settings: Settings
) -> Mapping[str, Any]:
    """Return additions to `status`, by key.

    ``recalls`` are the newest recall events.  A value with ``said`` is displayed as a row with that
    text; ``preview`` is printed below a preview of a prompt's block.
    """


@hookspec
def memtier_written(
    home: Path,
    project: str,
    records: Sequence[Entry | Fact | JournalEvent],
    ms: float,
    settings: Settings,
) -> None:
    """Observe records just written to a project's ledgers, and how long the write took.

    Called on the writing thread, possibly while a prompt waits: return at once.
    """


@hookspec
def memtier_commands() -> Mapping[str, CommandSpec]:
    """Return commands to add to `memtier`, by name.

    The entry point belongs to the group ``memtier.commands``, and its module is called without
    pluggy: `memtier --help` loads nothing else of a package.
    """


@hookspec
def memtier_jobs() -> Sequence[JobSpec]:
    """Return background jobs to run for every project, after the consolidation."""


@hookspec
def memtier_event_kinds() -> Sequence[type[EventPayload]]:
    """Return the payloads of the journal events that the plugin writes, each with its ``KIND``.

    Without the plugin, such lines are kept, exported and purged like all others; their fields are
    ignored.
    """


@hookspec
def memtier_index_tables() -> Sequence[IndexTables]:
    """Return tables to keep in every project's index, derived from journal events.

    Called whenever an index is opened. Read them by `Reader.plugin_tables`.
    """


@hookspec
def memtier_ask_modes() -> Mapping[str, AskMode]:
    """Return further search strategies for answering a question, by the value of `ask.mode`."""


@hookspec
def memtier_overviews(settings: Settings) -> Sequence[OverviewKind]:
    """Return kinds of overviews to write beside summaries and timelines."""


@hookspec
def memtier_find_overviews(query: Any, search: Any) -> Mapping[int, str]:
    """Return the overviews that a query asks for, as index rows with their kinds.

    ``query`` is a `memtier_plugin.retrieval.query.ParsedQuery`, ``search`` the searched view
    (`memtier_plugin.retrieval.candidates.SearchView`).
    """


@hookspec(firstresult=True)
def memtier_annotate(hits: Sequence[Hit]) -> Sequence[Hit] | None:
    """Return the hits of a recall with notes for the reader, in the same order, or None."""


@hookspec(firstresult=True)
def memtier_profiles(store: Any, name: str | None) -> Sequence[Any] | None:
    """Return profiles of a project's people, or of those with a name (`memtier people`)."""


@hookspec
def memtier_settings() -> Mapping[type[Record], str]:
    """Return sections of settings, each a record whose fields have defaults, with their paths.

    A path may be that of an existing section: the keys are merged, and a choice that both declare
    accepts the values of either.  Keys added to `retrieval.weights` weigh the plugin's signals of
    the same names.  Read them by `Settings.of`.
    """


@hookspec
def memtier_web_pages() -> Sequence[WebPage]:
    """Return read-only pages to add to `memtier web`."""


@hookspec
def memtier_services() -> Mapping[str, Callable[[Any], Any]]:
    """Return services to add to a memory, by attribute: each is a factory called on first use."""
