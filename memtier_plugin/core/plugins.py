"""The plugin manager: the shipped handlers, then third-party plugins, isolated from each other.

A third-party hook that raises or returns an invalid value is logged once, counted in
``load_errors()`` and skipped. This is one of the two places with a catch-all: the code called is
not ours.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pluggy

from memtier_plugin.core import hookspecs
from memtier_plugin.core.entry_points import find_entry_points, load_entry_point
from memtier_plugin.core.errors import RerankUnavailable, SettingsError
from memtier_plugin.core.hook_answers import CHECKS
from memtier_plugin.core.hookspecs import (
    ENTRY_POINT_GROUP,
    AskMode,
    Embedder,
    IndexTables,
    JobSpec,
    ModelPass,
    OverviewKind,
    WebPage,
)
from memtier_plugin.core.installation import install_command

if TYPE_CHECKING:
    from memtier_plugin.core.records import Entry, EventPayload, Fact, FactDraft, JournalEvent
    from memtier_plugin.core.results import Hit, RecallRequest, Signal
    from memtier_plugin.core.settings.schema import Settings
    from memtier_plugin.core.structs import Record

# By name: nothing in this package imports the edges (hooks/, daemon/) statically.
HOST_HANDLERS: Final = ("memtier_plugin.hooks.host_hooks",)
SHIPPED_PLUGINS: Final = ("memtier_plugin.telemetry.watch",)

_log = logging.getLogger("memtier")
_lock = threading.RLock()


def _renew_after_fork() -> None:
    """Give a forked child a new lock: the thread that held the old one does not exist there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_after_fork)


@dataclass(frozen=True, slots=True)
class PluginError:
    """How often a plugin failed in one hook (or in ``load``), and the last error message."""

    plugin: str
    hook: str
    error: str
    count: int = 1


_watching: ContextVar[list[BaseException]] = ContextVar("memtier_failures")
_errors: dict[tuple[str, str], PluginError] = {}


def manager() -> pluggy.PluginManager:
    """Return this process's plugin manager with the handlers of the host hooks."""
    with _lock:
        _with_shipped(SHIPPED_PLUGINS)
        return _with_shipped(HOST_HANDLERS)


@functools.cache  # asked for every text that is redacted
def _extensions() -> pluggy.PluginManager:
    """Return the same manager with the handlers of MemTier's own extension hooks."""
    with _lock:
        return _with_shipped(SHIPPED_PLUGINS)


def _hook(name: str, settings: Settings) -> Callable[..., Any]:
    """Return the caller of a hook, without implementations that the settings turn off."""
    manager = _extensions()
    caller = getattr(manager.hook, name)
    off = []
    for implementation in caller.get_hookimpls():
        if marked := getattr(implementation.function, "off_while", None):
            section, values = marked
            chosen = settings.of(section)
            if all(getattr(chosen, field) == value for field, value in values.items()):
                off.append(implementation.plugin)
    return manager.subset_hook_caller(name, off) if off else caller


def load_errors() -> list[PluginError]:
    """Return the plugins that failed to load or in a hook, for `status` and `doctor`."""
    with _lock:
        return list(_errors.values())


@contextmanager
def watch_failures() -> Iterator[list[BaseException]]:
    """Collect the errors of our own hooks while the context is open."""
    seen: list[BaseException] = []
    token = _watching.set(seen)
    try:
        yield seen
    finally:
        _watching.reset(token)


def record_failure(plugin: str, hook: str, error: BaseException) -> None:
    """Count a failure of a plugin's hook, and log it unless it repeats the last one."""
    if plugin == ENTRY_POINT_GROUP:
        _watching.get([]).append(error)
    text = f"{type(error).__name__}: {error}"
    with _lock:
        previous = _errors.get((plugin, hook))
        _errors[plugin, hook] = (
            replace(previous, error=text, count=previous.count + 1)
            if previous
            else PluginError(plugin, hook, text)
        )
    if previous is None or previous.error != text:
        _log.warning("%r failed in %s and is skipped", plugin, hook, exc_info=error)


def find_secret_spans(text: str) -> list[tuple[int, int, str]]:
    """Return the spans (start, end, kind) that plugins want redacted in a text."""
    hook = _extensions().hook.memtier_redact
    if not hook.get_hookimpls():  # runs for every message that is written
        return []
    answers = hook(text=text)
    return [span for spans in answers for span in spans]


def gives_signals() -> bool:
    """Return whether any plugin adds ranking signals."""
    return bool(_extensions().hook.memtier_signals.get_hookimpls())


def collect_signals(query: str, items: Sequence[Entry | Fact]) -> list[Signal]:
    """Return the plugins' ranking signals, each with one value for every item."""
    answers = _extensions().hook.memtier_signals(query=query, items=items)
    return [signal for answer in answers for signal in answer]


def offers(hook: str) -> bool:
    """Return whether a plugin implements a hook."""
    return bool(getattr(_extensions().hook, hook).get_hookimpls())


def route_hits(recaller: Any, query: Any, candidates: Any, selection: Any) -> Any:
    """Return the hits that the first router among the plugins chooses; else None."""
    return _extensions().hook.memtier_route(
        recaller=recaller, query=query, candidates=candidates, selection=selection
    )


def find_ranker(profile: str) -> Any:
    """Return the ranker that a plugin provides for a profile; else None."""
    return _extensions().hook.memtier_ranker(profile=profile)


def expand_query(
    actor: Any, text: str, request: RecallRequest, viewer: Any, until: float | None
) -> Any:
    """Return an additional search text for a query, from the first plugin that has one."""
    return _hook("memtier_expand", actor.store.settings)(
        actor=actor, text=text, request=request, viewer=viewer, until=until
    )


def find_pool_signals(settings: Settings) -> dict[str, Callable[[Any, Any, Any], Sequence[float]]]:
    """Return the candidate signals that plugins add, by name."""
    answers = _hook("memtier_pool_signals", settings)(settings=settings)
    return {name: signal for answer in answers for name, signal in answer.items()}


def pack_block(plan: Any, recall_id: str, actor: Any, journal: Any) -> Any:
    """Return the block of a plan from the first plugin that packs it; else None."""
    return _hook("memtier_pack", actor.store.settings)(
        plan=plan, recall_id=recall_id, actor=actor, journal=journal
    )


def credit_run(run: Any, reader: Any, messages: Any, reward: float, confidence: float) -> Any:
    """Return what the first plugin that credits runs makes of one; else None."""
    return _extensions().hook.memtier_credit_run(
        run=run, reader=reader, messages=messages, reward=reward, confidence=confidence
    )


def explain_recall(
    recall: JournalEvent, items: Mapping[str, Any], reader: Any, settings: Settings, now: datetime
) -> dict[str, Any]:
    """Return what plugins add to `explain` of a recall, by key."""
    answers = _extensions().hook.memtier_explain(
        recall=recall, items=items, reader=reader, settings=settings, now=now
    )
    return {key: value for answer in answers for key, value in answer.items()}


def describe_status(
    recalls: Sequence[JournalEvent], reader: Any, settings: Settings
) -> dict[str, Any]:
    """Return what plugins add to `status`, by key."""
    answers = _extensions().hook.memtier_status(recalls=recalls, reader=reader, settings=settings)
    return {key: value for answer in answers for key, value in answer.items()}


def explain_absence(recall: JournalEvent, item_id: str) -> tuple[str, str] | None:
    """Return why an item has no line in a recall (reason, message), if a plugin is the cause."""
    return cast(
        "tuple[str, str] | None",
        _extensions().hook.memtier_why(recall=recall, item_id=item_id),
    )


def collect_drafts(entries: Sequence[Entry]) -> list[FactDraft]:
    """Return the facts that plugins find in entries."""
    answers = _extensions().hook.memtier_extract(entries=entries)
    return [draft for drafts in answers for draft in drafts]


def find_model_pass(settings: Settings) -> ModelPass | None:
    """Return a plugin's way of asking the consolidation's model; else None."""
    answer = _extensions().hook.memtier_model_pass(settings=settings)
    return cast("ModelPass | None", answer)


def tell_written(
    home: Path,
    project: str,
    records: Sequence[Entry | Fact | JournalEvent],
    started: float,
    settings: Settings,
) -> None:
    """Tell plugins what was written since ``started`` (`time.monotonic`), if any listens."""
    hook = _extensions().hook.memtier_written
    if settings.telemetry.enabled or len(hook.get_hookimpls()) > 1:  # more than the shipped one
        ms = 1000 * (time.monotonic() - started)
        hook(home=home, project=project, records=records, ms=ms, settings=settings)


def rerank_hits(
    query: str,
    hits: Sequence[Hit],
    deadline: float,
    settings: Settings,
    redact: Callable[[str], str] = str,
) -> Sequence[Hit]:
    """Return the hits as the first plugin reranks them, else unchanged.

    Raises:
        RerankUnavailable: a plugin had no answer in time.
    """
    answer = _hook("memtier_rerank", settings)(
        query=query, hits=hits, deadline=deadline, settings=settings, redact=redact
    )
    return hits if answer is None else cast("Sequence[Hit]", answer)


def order_pages(
    question: str,
    pages: Sequence[Any],
    reader: Any,
    settings: Settings,
    redact: Callable[[str], str],
) -> Sequence[Any] | None:
    """Return pages in the order of the first plugin that orders them for a question; else None.

    Raises:
        RerankUnavailable: a plugin had no answer in time.
    """
    answer = _hook("memtier_order_pages", settings)(
        question=question, pages=pages, reader=reader, settings=settings, redact=redact
    )
    return cast("Sequence[Any] | None", answer)


def warm_up(settings: Settings) -> None:
    """Let plugins prepare for the first prompt."""
    _hook("memtier_warm_up", settings)(settings=settings)


def find_jobs() -> list[JobSpec]:
    """Return the background jobs that plugins add."""
    return [job for answer in _extensions().hook.memtier_jobs() for job in answer]


def find_event_kinds() -> dict[str, type[EventPayload]]:
    """Return the payloads of the journal events that plugins write, by kind."""
    answers = _extensions().hook.memtier_event_kinds()
    return {payload.KIND: payload for answer in answers for payload in answer}


def find_ask_mode(name: str) -> AskMode | None:
    """Return the plugin search strategy for a value of `ask.mode`; else None."""
    answers = _extensions().hook.memtier_ask_modes()
    return next((modes[name] for modes in answers if name in modes), None)


def find_services() -> dict[str, Callable[[Any], Any]]:
    """Return the factories of services that plugins add to a memory, by name."""
    answers = _extensions().hook.memtier_services()
    return {name: make for services in answers for name, make in services.items()}


def find_index_tables() -> Sequence[IndexTables]:
    """Return the tables that plugins keep in the index."""
    return _index_tables(_extensions())


@functools.cache  # looked up for every index opened, and for every event applied
def _index_tables(manager: pluggy.PluginManager) -> list[IndexTables]:
    return [tables for answer in manager.hook.memtier_index_tables() for tables in answer]


def find_overviews(settings: Settings) -> list[OverviewKind]:
    """Return the kinds of overviews that plugins write."""
    answers = _hook("memtier_overviews", settings)(settings=settings)
    return [kind for answer in answers for kind in answer]


def find_overview_rows(query: Any, search: Any) -> dict[int, str]:
    """Return the plugins' overviews that a query asks for: index rows with their kinds."""
    answers = _hook("memtier_find_overviews", search.settings)(query=query, search=search)
    return {row: kind for answer in answers for row, kind in answer.items()}


def annotate_hits(hits: list[Hit], settings: Settings) -> list[Hit]:
    """Return the hits of a recall with plugins' notes added."""
    noted = _hook("memtier_annotate", settings)(hits=hits)
    return hits if noted is None else [*noted]


def find_profiles(store: Any, name: str | None) -> Sequence[Any]:
    """Return plugins' profiles of a project's people.

    Raises:
        SettingsError: no installed plugin writes profiles.
    """
    profiles = _extensions().hook.memtier_profiles(store=store, name=name)
    if profiles is None:
        raise SettingsError(
            "profiles of people need memtier-papers, which is missing: "
            f"run `{install_command('memtier-papers')}`"
        )
    return cast("Sequence[Any]", profiles)


def find_web_pages() -> list[WebPage]:
    """Return the pages that plugins add to `memtier web`."""
    return [page for answer in _extensions().hook.memtier_web_pages() for page in answer]


def find_settings() -> dict[type[Record], str]:
    """Return the sections of settings that plugins declare, with their paths."""
    answers = _extensions().hook.memtier_settings()
    return {section: path for sections in answers for section, path in sections.items()}


def find_embedder() -> Embedder | None:
    """Return a plugin's embedder; else None."""
    return cast("Embedder | None", _extensions().hook.memtier_embedder())


@functools.cache
def _with_shipped(modules: tuple[str, ...]) -> pluggy.PluginManager:
    """Return the manager with these modules of MemTier registered."""
    manager = _with_third_parties()
    for name in modules:
        manager.register(importlib.import_module(name), name)
    return manager


@functools.cache
def _with_third_parties() -> pluggy.PluginManager:
    """Return the manager with the installed plugins registered."""
    manager = pluggy.PluginManager(ENTRY_POINT_GROUP)
    manager.add_hookspecs(hookspecs)
    for name, reference in find_entry_points(ENTRY_POINT_GROUP).items():
        try:
            _register(manager, name, load_entry_point(reference))
        except Exception as error:  # third-party code may raise anything
            record_failure(name, "load", error)
    return manager


class _GuardedPlugin:
    """A plugin's hooks, each behind its own guard."""


def _register(manager: pluggy.PluginManager, name: str, plugin: Any) -> None:
    """Register a plugin's hooks, each behind its own guard.

    Raises:
        pluggy.PluginValidationError: a hook is unknown, a wrapper, or takes unknown arguments.
    """
    guarded = _GuardedPlugin()
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            continue
        hook = options.get("specname") or attribute
        if not hasattr(manager.hook, hook):
            near = get_close_matches(hook, vars(manager.hook), 1)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise pluggy.PluginValidationError(plugin, f"there is no hook {hook!r}{hint}")
        if options["wrapper"] or options["hookwrapper"]:
            raise pluggy.PluginValidationError(
                plugin, f"{hook!r} is a wrapper: every plugin is called on its own, use a plain one"
            )
        setattr(guarded, attribute, _guard(name, hook, getattr(plugin, attribute)))
    try:
        manager.register(guarded, name)
    except pluggy.PluginValidationError:
        manager.unregister(name=name)  # older versions of pluggy leave half of it
        raise


def _guard(plugin: str, hook: str, function: Callable[..., Any]) -> Callable[..., Any]:
    names = tuple(inspect.signature(function).parameters)
    check = CHECKS.get(hook)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            answer = function(*arguments)
            if answer is None or check is None:
                return answer
            return check(answer, dict(zip(names, arguments, strict=False)))
        except RerankUnavailable:  # the recall's label reports it
            raise
        except Exception as error:  # third-party code may raise anything
            record_failure(plugin, hook, error)
            return None

    return call
