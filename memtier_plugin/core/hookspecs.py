"""The hooks: what hosts call, and what plugins of third parties may add.

A plugin is a module or an object with functions marked ``hookimpl``, named by an entry point of the
group ``memtier``, or ``memtier.commands`` if it only adds commands. The shipped handlers
(``memtier_plugin.hooks``) implement the same specs. Every implementation is called on its own: one
that raises is reported and passed over, and wrappers are not supported.
"""
# The bodies are empty on purpose: pluggy reads the signatures and never calls these functions.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

import pluggy

from memtier_plugin.core.entry_points import CommandSpec

if TYPE_CHECKING:  # a plugin that only adds commands needs none of them
    from memtier_plugin.core.records import (
        Entry,
        EventPayload,
        Fact,
        FactDraft,
        JournalEvent,
        Origin,
        Source,
    )
    from memtier_plugin.core.results import (
        Hit,
        PromptAddition,
        PromptEvent,
        RecallRequest,
        RunContext,
        RunEvent,
        Signal,
    )
    from memtier_plugin.core.settings.schema import Settings
    from memtier_plugin.core.structs import Record

ENTRY_POINT_GROUP: Final = "memtier"

hookspec = pluggy.HookspecMarker(ENTRY_POINT_GROUP)
hookimpl = pluggy.HookimplMarker(ENTRY_POINT_GROUP)


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; ``name`` and ``dimensions`` identify the vector space."""

    @property
    def name(self) -> str:
        """The name stored with the vectors; a new name has them computed again."""

    @property
    def dimensions(self) -> int:
        """The length of every vector."""

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector for each text, in their order."""


class JobSpec(NamedTuple):
    """A background job of a project.

    Attributes:
        name: by which `status` tells how it went.
        group: of settings, when it runs: "local" (each interval), "endpoint" (the same, beside the
            local ones, as it waits for a server), "daily"; None where it is off.
        run: does the work on a memory (`MemTier`), for a run (`daemon.jobs.JobRun`) whose ``stop``
            is set when it is to end early; raises MemTierError where it failed.
    """

    name: str
    group: Callable[[Settings], str | None]
    run: Callable[[Any, Any], None]


class SearchedAnswer(NamedTuple):
    """An answer that a plugin searched for.

    Attributes:
        answer: an `answering.llm.ModelAnswer`; None where nothing was found.
        why: notes for the route that the answer shows.
        problem: what it had to do without.
    """

    answer: Any
    why: tuple[str, ...] = ()
    problem: str = ""


# Called with an `answering.store_search.StoreSearch`, an `answering.llm.AnsweringModel`, the
# question and its time.
AskMode = Callable[[Any, Any, str, datetime], SearchedAnswer]


class ModelPass(NamedTuple):
    """How the consolidation asks a chat model.

    Attributes:
        extractor: makes what extracts claims with a model, in requests of so many tokens
            (`memtier_plugin.facts.extraction.llm.ChatExtractor`).
        judge: makes what relates a new fact to known ones by a model
            (`memtier_plugin.facts.extraction.llm.ChatEvolution`).
        look_again: takes the model, drafts as they were verified and their entries by id; returns
            the drafts as they are to be, and the model's reply if it was asked.
    """

    extractor: Callable[[Any, int], Any]
    judge: Callable[[Any], Any]
    look_again: Callable[[Any, Sequence[Any], Mapping[str, Entry]], tuple[list[Any], Any]] | None


class OverviewText(NamedTuple):
    """What a recall shows of an overview: its text, and the lines and facts that it shows."""

    text: str
    sources: tuple[Source, ...]
    origin: Origin


class Overview(NamedTuple):
    """Something that a plugin sums up for one agent and sender.

    Attributes:
        subject: what it is about.
        value: what it is made of; another value makes a new text.
        at: since when it holds.
        write: returns its text; None where there is nothing to say.
    """

    agent: str
    sender: str
    subject: str
    value: str
    at: datetime
    write: Callable[[], OverviewText | None]


class OverviewKind(NamedTuple):
    """A kind of overviews, kept as facts of a relation.

    Attributes:
        list_due: yields those that a store (`memtier_plugin.storage.store.Store`) should have.
    """

    relation: str
    list_due: Callable[[Any], Iterable[Overview]]


class IndexTables(NamedTuple):
    """Tables of a project's index that a plugin keeps by events of the journal.

    All functions take the connection to the index (an `apsw.Connection`), within a transaction.

    Attributes:
        name: of the tables as they are; where it is new to an index, they are filled anew.
        kinds: of the events that they are made of.
        create: makes those that are missing.
        clear: empties them.
        add: folds an event into them; they must not depend on the order of events.
    """

    name: str
    kinds: frozenset[str]
    create: Callable[[Any], None]
    clear: Callable[[Any], None]
    add: Callable[[Any, JournalEvent], None]


class WebPage(NamedTuple):
    """A page of `memtier web`.

    Attributes:
        path: its address, such as `/uplift`.
        title: its heading in the browser.
        link: the words of the link to it, on the page of health.
        template: the file of its Jinja template, which extends `base.html`.
        values: makes what the template shows, of a memory (`MemTier`).
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
    """Finish what is unwritten of a session: a host calls it after the session's last run."""


@hookspec
def before_compaction(event: RunEvent, context: RunContext) -> None:
    """Record what is not yet stored, before the host shortens its transcript."""


@hookspec(firstresult=True)
def memtier_embedder() -> Embedder | None:
    """Return the embedder to use instead of the shipped one, or None to leave it."""


@hookspec
def memtier_redact(text: str) -> Iterable[tuple[int, int, str]]:
    """Return the spans (start, end, kind) to redact in a text, besides those found already.

    Called before a message reaches its ledger; each span becomes ``[redacted:kind]``.
    """


@hookspec
def memtier_signals(query: str, items: Sequence[Entry | Fact]) -> Iterable[Signal]:
    """Return ranking signals: for each a name, a weight and one value in [0, 1] for every item.

    Called once per recall with the candidates, before they are ranked.
    """


@hookspec
def memtier_extract(entries: Sequence[Entry]) -> Iterable[FactDraft]:
    """Return the facts found in entries, each with its sources, besides those of the rules.

    Called by the consolidation, never on the way to a prompt.
    """


@hookspec(firstresult=True)
def memtier_model_pass(settings: Settings) -> ModelPass | None:
    """Return how the consolidation is to ask its model, or None for one JSON object a request."""


@hookspec(firstresult=True)
def memtier_rerank(
    query: str,
    hits: Sequence[Hit],
    deadline: float,
    settings: Settings,
    redact: Callable[[str], str],
) -> Sequence[Hit] | None:
    """Return the ranked hits, the best hundred, in another order, or None to leave them.

    Hits may be left out but not added. ``deadline`` is a value of ``time.monotonic()``; ``redact``
    masks secrets in a text that leaves the machine.  A plugin that has no answer in time raises
    `RerankUnavailable`; the recall's label then says so.
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

    ``reader`` returns the lines of a page (`memtier_plugin.retrieval.hits.PageReader.hits_on`).
    """


@hookspec
def memtier_warm_up(settings: Settings) -> None:
    """Prepare for the first prompt, such as by loading a model."""


@hookspec(firstresult=True)
def memtier_ranker(profile: str) -> Any | None:
    """Return the ranker (`memtier_plugin.retrieval.search.Ranker`) of a profile, or None.

    ``profile`` is `retrieval.profile`, or `retrieval.search` with the default profile.  Nobody is
    asked where both are as by default.
    """


@hookspec(firstresult=True)
def memtier_route(recaller: Any, query: Any, candidates: Any, selection: Any) -> Any | None:
    """Choose the hits of a recall of depth ``auto``, and search on for what they leave open.

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
    """Return signals that are in use, by the name of their weight in `retrieval.weights`.

    Each is a function of the candidates (`memtier_plugin.retrieval.signals.Pool`), an index reader
    and the scopes of the entries in sight; it returns one value in [0, 1] for every candidate.
    """


@hookspec(firstresult=True)
def memtier_pack(plan: Any, recall_id: str, actor: Any, journal: Any) -> Any | None:
    """Fill the block of a recall's plan otherwise than by rank, or return None.

    Returns the injected hits, the block's text, and what the journal is to keep of it as
    ``withheld`` (an `EventRecord`), or None.
    """


@hookspec
def memtier_explain(
    recall: JournalEvent, items: Mapping[str, Any], reader: Any, settings: Settings, now: datetime
) -> Mapping[str, Any]:
    """Return what to add to `explain` of a recall, by key.

    ``items`` are those that the recall's event names, as stored, by id.  A value with ``said`` is
    shown to people in these words, with the line ``item`` and its ``text`` if it has them; so is
    one by the id of an item, beside that item.
    """


@hookspec(firstresult=True)
def memtier_why(recall: JournalEvent, item_id: str) -> tuple[str, str] | None:
    """Return why an item has no line in a recall, as a reason and a message, or None."""


@hookspec
def memtier_status(
    recalls: Sequence[JournalEvent], reader: Any, settings: Settings
) -> Mapping[str, Any]:
    """Return what to add to `status`, by key.

    ``recalls`` are the newest events of recalls.  A value with ``said`` is a row for people, in
    these words; ``preview`` is printed below a preview of what a prompt would get.
    """


@hookspec
def memtier_written(
    home: Path,
    project: str,
    records: Sequence[Entry | Fact | JournalEvent],
    ms: float,
    settings: Settings,
) -> None:
    """Take note of what was just written to a project's ledgers, and how long that took.

    Called by the thread that wrote it, maybe with a prompt waiting: return at once.
    """


@hookspec
def memtier_commands() -> Mapping[str, CommandSpec]:
    """Return commands to add to `memtier`, by name.

    The entry point is of the group ``memtier.commands``, and its module is called without pluggy:
    `memtier --help` loads nothing else of a package.
    """


@hookspec
def memtier_jobs() -> Sequence[JobSpec]:
    """Return background jobs to run for every project, after the consolidation."""


@hookspec
def memtier_event_kinds() -> Sequence[type[EventPayload]]:
    """Return the payloads of the journal events that the plugin writes, each with its ``KIND``.

    Without the plugin such lines are kept, exported and purged like all others; only their fields
    are not looked at.
    """


@hookspec
def memtier_index_tables() -> Sequence[IndexTables]:
    """Return tables to keep in the index of every project, by events of the journal.

    Called whenever an index is opened. Read them by `Reader.plugin_tables`.
    """


@hookspec
def memtier_ask_modes() -> Mapping[str, AskMode]:
    """Return ways of searching for the answer of a question, by the value of `ask.mode`."""


@hookspec
def memtier_overviews(settings: Settings) -> Sequence[OverviewKind]:
    """Return kinds of overviews to write beside summaries and timelines."""


@hookspec
def memtier_find_overviews(query: Any, search: Any) -> Mapping[int, str]:
    """Return the overviews that a query asks for, as rows of the index and their kinds.

    ``query`` is a `memtier_plugin.retrieval.query.ParsedQuery`, ``search`` what it is asked of
    (`memtier_plugin.retrieval.candidates.SearchView`).
    """


@hookspec(firstresult=True)
def memtier_annotate(hits: Sequence[Hit]) -> Sequence[Hit] | None:
    """Return the hits of a recall with notes for the reader, in the same order, or None."""


@hookspec(firstresult=True)
def memtier_profiles(store: Any, name: str | None) -> Sequence[Any] | None:
    """Return what is known of the people of a project, or of those of a name (`memtier people`)."""


@hookspec
def memtier_settings() -> Mapping[type[Record], str]:
    """Return sections of settings, each a record whose fields have defaults, with their paths.

    A path may be that of a section that there is: its keys are added to that section's, and a key
    of both, a choice, takes the values of either.  Keys added to `retrieval.weights` weigh the
    plugin's signals of the same names.  Read them by `Settings.of`.
    """


@hookspec
def memtier_web_pages() -> Sequence[WebPage]:
    """Return pages to add to `memtier web`; they only read."""


@hookspec
def memtier_services() -> Mapping[str, Callable[[Any], Any]]:
    """Return services to add to a memory, by the attribute: each is made of it when first used."""
