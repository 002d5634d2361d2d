"""A project: its index, pause switch, health and repair, and the services that work in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import Closed, EndpointError, LedgerError, Paused
from memtier_plugin.core.events import HookFailedEvent
from memtier_plugin.core.files import remove_private_file, write_private_file
from memtier_plugin.core.formats import Clock, to_iso
from memtier_plugin.core.records import Entry, UsageEvent
from memtier_plugin.core.results import RecallRequest
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.structs import check_methods
from memtier_plugin.ingest.messages import Session
from memtier_plugin.providers.embedding.load import RemoteEmbedder
from memtier_plugin.storage.opening import open_store
from memtier_plugin.storage.sessions import from_new_index
from memtier_plugin.storage.store import Actor, Store
from memtier_plugin.trust.redaction import Redactor

if TYPE_CHECKING:
    from memtier_plugin.answering.store_search import StoreSearch
    from memtier_plugin.credit.regression import RegressionGate
    from memtier_plugin.facts.persons import People
    from memtier_plugin.facts.service import FactService
    from memtier_plugin.facts.summaries.job import Summariser
    from memtier_plugin.facts.summaries.working import WorkingMemory
    from memtier_plugin.ingest.origins import Confidences
    from memtier_plugin.ingest.recorder import Recorder
    from memtier_plugin.lifecycle.edit import Editor
    from memtier_plugin.lifecycle.history import History
    from memtier_plugin.lifecycle.purge.machines import PurgeReach
    from memtier_plugin.lifecycle.purge.purge import Purger
    from memtier_plugin.operations.background import HealthFinding
    from memtier_plugin.operations.checks import Repair
    from memtier_plugin.operations.reembed import Reembedder
    from memtier_plugin.retrieval.recall import Recaller
    from memtier_plugin.retrieval.visibility import Viewer

_REFRESH_MS: Final = 50  # how long a bounded catch-up waits for the index's write lock


@check_methods
class Project:
    """Maintains one project on behalf of one of its agents."""

    def __init__(
        self,
        home: Path,
        project: str,
        agent_id: str,
        settings: Settings,
        clock: Clock,
        *,
        everybody: bool = False,
        workspace: Path | None = None,
    ) -> None:
        self.home = home
        self.project = project
        self.agent_id = agent_id
        self.settings = settings
        self._store = open_store(home, project, settings)
        if self._store.sharing:
            self._store.sharing.purges = lambda: self._reach
        self._is_closed = False
        self._clock = clock
        self._everybody = everybody
        self._workspace = workspace

    @property
    def store(self) -> Store:
        """The project's storage.

        Raises:
            Closed: this memory was closed.
        """
        if self._is_closed:
            raise Closed("this memory was closed: open another with `MemTier.open`")
        return self._store

    @cached_property
    def _redactor(self) -> Redactor:
        redaction = self.settings.redaction
        return Redactor(
            redaction.allow,
            redaction.enabled,
            plugins.find_secret_spans,
            personal_numbers=redaction.personal_numbers,
        )

    @cached_property
    def actor(self) -> Actor:
        """This agent acting on the project."""
        return Actor(
            *(self.store, self.agent_id, self._clock, self._redactor),
            everybody=self._everybody,
            workspace=self._workspace,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index for good; ledgers need no closing.  Closing twice is harmless."""
        self._is_closed = True
        for name in [*vars(self)]:  # the services, which hold the store
            if isinstance(getattr(type(self), name, None), cached_property):
                delattr(self, name)
        self._store.close()

    def release(self) -> None:
        """Close the files that this thread has open; they are reopened on demand."""
        self._store.release()

    @property
    def folder(self) -> Path:
        """The project's folder."""
        return self._store.project_folder.path

    def status(self) -> dict[str, Any]:
        """Return the project's status: the latest activity, and what is degraded."""
        from memtier_plugin.operations import status

        return status.collect_status(self.store, self._clock())

    @from_new_index
    def why(
        self,
        text: str,
        prompt: str | None = None,
        *,
        agent: str | None = None,
        sender: str | None = None,
    ) -> dict[str, Any]:
        """Return at which ``stage`` a text failed to reach a prompt; nothing is journalled.

        Args:
            text: words of the line, or its id.
            prompt: by default that of the newest recall; if it had none, one is simulated.
            agent: whose prompt it was; only the person at the machine (``everybody``) may name
                another agent.
            sender: the person whose prompt it was.
        """
        from memtier_plugin.operations.why import Inquiry

        return Inquiry(self.actor, text, prompt, agent, self.actor.mask_name(sender)).answer()

    def doctor(self) -> list[HealthFinding]:
        """Check the home, the ledgers, the index and the settings; each finding has a remedy."""
        from memtier_plugin.operations import checks

        return [
            *checks.run_checks(self.store, self._clock()),
            *checks.find_leftovers(self.store),
        ]

    def repair(self, progress: Callable[[int, int], None]) -> Iterator[Repair]:
        """Make every lossless repair, yielding each once it is done.

        Raises:
            LedgerError, IndexProblem: the remaining repairs were not made.
        """
        from memtier_plugin.operations.checks import repair

        return repair(self.actor, progress)

    def note_hook(
        self,
        host_agent: str,
        hook: str,
        ok: bool,
        error: str | None = None,
        ms: int | None = None,
    ) -> None:
        """Record for `status` when a hook ran for an agent, its duration, and any error.

        Raises:
            LedgerWriteError: the home cannot be written.
        """
        from memtier_plugin.operations import hook_calls

        failure = None if ok else error or "it failed"
        hook_calls.note_hook(self.store, host_agent, hook, failure, ms, self._clock())
        if failure:
            failed = HookFailedEvent(host_agent=host_agent, hook=hook, error=failure[:500])
            self.store.append_events([self.actor.event(failed)], timeout=1.0)

    def note_hook_begun(self, host_agent: str, hook: str) -> None:
        """Record for `status` that a host called a hook for an agent, before it finishes.

        Raises:
            LedgerWriteError: the home cannot be written.
        """
        from memtier_plugin.operations import hook_calls

        hook_calls.note_begun(self.store, host_agent, hook)

    def follow(self, stop: threading.Event) -> None:
        """Follow the server of a shared project until ``stop`` is set; otherwise return at once.

        Raises:
            LedgerError: the server is unreachable, or refuses; call again.
        """
        if self.store.sharing:
            self.store.sharing.follow(stop)

    def synchronise(self) -> None:
        """Fetch a shared project's new lines, and deliver pending ones.

        Raises:
            LedgerError: the server is unreachable, or refuses.
        """
        if self.store.sharing:
            self.store.sharing.sync()

    @cached_property
    def _reach(self) -> PurgeReach:
        from memtier_plugin.lifecycle.purge.machines import require_reach

        return require_reach(self.actor)

    def purges(self) -> list[dict[str, Any]]:
        """Return which machines of a shared project each purge has reached, as JSON.

        Raises:
            LedgerError: the project is not shared, or the server is unreachable.
        """
        return self._reach.receipts()

    def catch_up(self, full: bool = True) -> int:
        """Update the index and return the number of lines read, limited unless ``full``."""
        if full:
            lines = self.store.catch_up_all()
            if not self.settings.embedding.is_remote:  # remote embedding may cost money
                with suppress(LedgerError):  # another process is doing it
                    self.reembedding.run()
            return lines
        self.store.refresh(self.agent_id, wait_ms=_REFRESH_MS)
        return 0

    @property
    def reembedding(self) -> Reembedder:
        """The service that computes the missing vectors of the current model."""
        from memtier_plugin.operations.reembed import Reembedder

        return Reembedder(self.store, self.agent_id, self._clock)

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Rebuild the index from the ledgers and swap it in.

        Args:
            progress: called with the bytes done and the total.
        """
        lines = self.store.reindex(progress)
        return {"lines": lines, **self.store.reader().counts()}

    def expire_recalls(self) -> int:
        """Drop journalled recalls older than `journal.retention_days`; return how many."""
        from memtier_plugin.operations import checks

        return checks.expire_recalls(self.store, self._clock())

    @property
    def paused(self) -> bool:
        """Whether `memtier off` is in effect for this project."""
        return self.store.paused

    def pause(self) -> None:
        """Pause recording and recall in this project."""
        write_private_file(self.folder / "OFF", f"switched off at {to_iso(self._clock())}\n")

    def resume(self) -> None:
        """Resume recording and recall.

        Raises:
            LedgerWriteError: the project's folder cannot be written.
        """
        remove_private_file(self.folder / "OFF")

    def _refuse_when_paused(self) -> None:
        if self.paused:
            raise Paused(f"project {self.project!r} is off; `memtier on` switches it on")


# -- The services of one agent in the project, imported and made when first asked for


@check_methods
class Services(Project):
    """The services of one agent in one project; each uses the project's store."""

    if not TYPE_CHECKING:  # a type checker still reports attributes that do not exist

        def __getattr__(self, name: str) -> Any:
            """Return a service added by a plugin."""
            from memtier_plugin.core import plugins

            if name.startswith("_") or (make := plugins.find_services().get(name)) is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__dict__[name] = service = make(self)
            return service

    @cached_property
    def _recaller(self) -> Recaller:
        from memtier_plugin.retrieval.recall import Recaller

        return Recaller(self.actor)

    @cached_property
    def knowledge(self) -> FactService:
        """The service for the project's facts: search, review, consolidate, roll back."""
        from memtier_plugin.facts.service import FactService

        return FactService(self.actor, lambda: self._recaller)

    def warm_up(self) -> None:
        """Prepare for the first prompt, which would otherwise take eight times as long."""
        from memtier_plugin.core import plugins

        embedder = self.store.embedder
        if isinstance(embedder, RemoteEmbedder):
            with suppress(EndpointError):  # the first recall's label says why it uses words only
                embedder.warm_up()
        plugins.warm_up(self.settings)
        with self.store.session():
            text = self._recaller.redact("Where was it last?")
            self._recaller.plan(text, self.viewer(None), RecallRequest(purpose="inject"))
        self.refresh_workspace(wait=False)

    def refresh_workspace(self, *, wait: bool = True) -> None:
        """Read anew which files, symbols, branches and commands the workspace's git knows.

        Recalls mark the lines that name what is gone, or has another name now.  Without a workspace
        or git nothing is read.

        Args:
            wait: off reads in the background.
        """
        if workspace := self._recaller.workspace:
            workspace.refresh() if wait else workspace.refresh_soon()

    def viewer(self, sender: str | None) -> Viewer:
        """Return this agent's view for a sender, with the permissions that the project grants."""
        return self._recaller.viewer(sender, self._clock())

    def search_stores(self, sender: str | None, shown: set[str]) -> StoreSearch:
        """Return the single-store searches of a sender; they add what they show to ``shown``."""
        from memtier_plugin.answering.store_search import StoreSearch

        return StoreSearch(self.store, self._recaller, self.viewer(sender), shown=shown)

    def record_sessions(self, sessions: Iterable[Session]) -> Iterator[list[Entry]]:
        """Record whole sessions, as an import does, many runs at once.

        Yields the new entries of each batch of runs once written; see `record`.
        """
        self._refuse_when_paused()
        return self._recorder.record_sessions(sessions)

    def record_again(
        self, agent: str, entries: Sequence[Entry], *, dry_run: bool = False
    ) -> tuple[int, dict[str, str]]:
        """Write exported entries; see `reimporting`."""
        from memtier_plugin.ingest.recorder import Recorder

        self._refuse_when_paused()
        recorder = Recorder(replace(self.actor, agent=agent))
        return recorder.reimport(entries, dry_run=dry_run)

    def count_new(self, sessions: Iterable[Session]) -> int:
        """Return how many messages `record_sessions` would write, without writing."""
        return self._recorder.count_new(sessions)

    def has_session(self, agent: str, session: str) -> bool:
        """Return whether anything of an agent's session is recorded."""
        with self.store.session() as reader:
            return bool(reader.ids_in_session(agent, session))

    def note_usage(self, usage: Sequence[UsageEvent], run_id: str | None = None) -> None:
        """Journal the token usage of a run's model calls, for `memtier bill`.

        Raises:
            LedgerError: nothing was written.
        """
        run = self.actor.mask_name(run_id)
        self.store.append_events([self.actor.event(each, run=run) for each in usage])

    @cached_property
    def people(self) -> People:
        """The people of the project, and which senders are the same person."""
        from memtier_plugin.facts.persons import People

        return People(self.actor)

    @cached_property
    def history(self) -> History:
        """The project over time: recall as of a time, compare two times, undo runs."""
        from memtier_plugin.lifecycle.history import History

        return History(self.actor, self.knowledge.person)

    @cached_property
    def editor(self) -> Editor:
        """The service that turns a person's edits of a memory text into events."""
        from memtier_plugin.lifecycle.edit import Editor

        return Editor(self.actor, self.knowledge.person)

    @property
    def regression(self) -> RegressionGate:
        """The gate that checks whether a change makes answers worse."""
        from memtier_plugin.credit.regression import RegressionGate

        return RegressionGate(self.actor)

    @cached_property
    def summariser(self) -> Summariser:
        """The job that summarises sessions and days, and writes timelines."""
        from memtier_plugin.facts.summaries.job import Summariser

        return Summariser(self.actor)

    @cached_property
    def working(self) -> WorkingMemory:
        """The running summaries of sessions."""
        from memtier_plugin.facts.summaries.working import WorkingMemory

        return WorkingMemory(self.actor)

    @cached_property
    def purger(self) -> Purger:
        """The service that purges items, and completes an interrupted purge."""
        from memtier_plugin.lifecycle.purge.purge import Purger

        return Purger(self.actor)

    @cached_property
    def _confidences(self) -> Confidences:
        from memtier_plugin.ingest.origins import Confidences

        return Confidences(self.actor)

    @cached_property
    def _recorder(self) -> Recorder:
        from memtier_plugin.ingest.recorder import Recorder

        return Recorder(self.actor)
