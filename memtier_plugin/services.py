"""The services behind the façade, each imported and created on first use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memtier_plugin.core.errors import EndpointError
from memtier_plugin.core.records import Entry, UsageEvent
from memtier_plugin.core.results import RecallRequest
from memtier_plugin.core.structs import check_methods
from memtier_plugin.ingest.messages import Session
from memtier_plugin.project import Project
from memtier_plugin.providers.embedding.vectors import RemoteEmbedder

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
    from memtier_plugin.lifecycle.purge.purge import Purger
    from memtier_plugin.retrieval.recall import Recaller
    from memtier_plugin.retrieval.visibility import Viewer
    from memtier_plugin.storage.store import Actor


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

        return Recaller(self._actor)

    @cached_property
    def knowledge(self) -> FactService:
        """The service for the project's facts: search, review, consolidate, roll back."""
        from memtier_plugin.facts.service import FactService

        return FactService(self._actor, lambda: self._recaller)

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
        recorder = Recorder(replace(self._actor, agent=agent))
        return recorder.reimport(entries, dry_run=dry_run)

    def count_new(self, sessions: Iterable[Session]) -> int:
        """Return how many messages `record_sessions` would write, without writing."""
        return self._recorder.count_new(sessions)

    def note_usage(self, usage: Sequence[UsageEvent], run_id: str | None = None) -> None:
        """Journal the token usage of a run's model calls, for `memtier bill`.

        Raises:
            LedgerError: nothing was written.
        """
        run = self._actor.mask_name(run_id)
        self.store.append_events([self._actor.event(each, run=run) for each in usage])

    @cached_property
    def people(self) -> People:
        """The people of the project, and which senders are the same person."""
        from memtier_plugin.facts.persons import People

        return People(self._actor)

    @cached_property
    def history(self) -> History:
        """The project over time: recall as of a time, compare two times, undo runs."""
        from memtier_plugin.lifecycle.history import History

        return History(self._actor, self.knowledge.person)

    @cached_property
    def editor(self) -> Editor:
        """The service that turns a person's edits of a memory text into events."""
        from memtier_plugin.lifecycle.edit import Editor

        return Editor(self._actor, self.knowledge.person)

    @property
    def regression(self) -> RegressionGate:
        """The gate that checks whether a change makes answers worse."""
        from memtier_plugin.credit.regression import RegressionGate

        return RegressionGate(self._actor)

    @property
    def actor(self) -> Actor:
        """This agent acting on the project, for services that compare two projects."""
        return self._actor

    @cached_property
    def summariser(self) -> Summariser:
        """The job that summarises sessions and days, and writes timelines."""
        from memtier_plugin.facts.summaries.job import Summariser

        return Summariser(self._actor)

    @cached_property
    def working(self) -> WorkingMemory:
        """The running summaries of sessions."""
        from memtier_plugin.facts.summaries.working import WorkingMemory

        return WorkingMemory(self._actor)

    @cached_property
    def purger(self) -> Purger:
        """The service that purges items, and completes an interrupted purge."""
        from memtier_plugin.lifecycle.purge.purge import Purger

        return Purger(self._actor)

    @cached_property
    def _confidences(self) -> Confidences:
        from memtier_plugin.ingest.origins import Confidences

        return Confidences(self._actor)

    @cached_property
    def _recorder(self) -> Recorder:
        from memtier_plugin.ingest.recorder import Recorder

        return Recorder(self._actor)
