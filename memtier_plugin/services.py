"""The services behind the façade: what does the work, made when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from memtier_plugin.answering.tool_search import ToolSearch
from memtier_plugin.core.codecs import check_methods
from memtier_plugin.core.results import RecallRequest
from memtier_plugin.core.usage_events import UsageEvent
from memtier_plugin.facts.gatekeeper import Gatekeeper
from memtier_plugin.facts.people import People
from memtier_plugin.facts.retirement import Retirement
from memtier_plugin.facts.service import FactService
from memtier_plugin.facts.summaries.job import Summariser
from memtier_plugin.facts.summaries.working import WorkingMemory
from memtier_plugin.ingest.confidences import Confidences
from memtier_plugin.ingest.recorder import Recorder
from memtier_plugin.learning.causes import Causes
from memtier_plugin.learning.log import LearnLog
from memtier_plugin.lifecycle.edit import Editor
from memtier_plugin.lifecycle.history import History
from memtier_plugin.lifecycle.purge.purge import Purger
from memtier_plugin.operations.logprob_credit import LogprobCreditor
from memtier_plugin.priority.job import Prioritiser
from memtier_plugin.project import Project
from memtier_plugin.regression.gate import RegressionGate
from memtier_plugin.retrieval.pasted_text import own_words
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.actor import Actor

if TYPE_CHECKING:
    from memtier_plugin.learning.weight_job import WeightLearner


@check_methods
class Services(Project):
    """The services of one agent in one project; each holds the project's store."""

    @cached_property
    def _recaller(self) -> Recaller:
        return Recaller(self._actor)

    @cached_property
    def knowledge(self) -> FactService:
        """The service for the project's facts: search, review, consolidate, roll back."""
        return FactService(self._actor, self._recaller)

    def warm_up(self) -> None:
        """Recall for a prompt that nobody wrote, as the first one takes eight times as long.

        Nothing is journalled.
        """
        with self.store.session():
            text = self._recaller.redact("Where was it last?")
            self._recaller.plan(text, self.viewer(None), RecallRequest(purpose="inject"))

    def viewer(self, sender: str | None) -> Viewer:
        """Return this agent as it asks for a sender, with what the project grants it."""
        return self._recaller.viewer(sender, self._clock())

    def search_stores(self, sender: str | None, shown: set[str]) -> ToolSearch:
        """Return the searches of single stores for a sender; ``shown`` grows by what they show."""
        return ToolSearch(self.store, self._recaller, self.viewer(sender), shown=shown)

    def note_usage(self, usage: Sequence[UsageEvent], run_id: str | None = None) -> None:
        """Journal what a run's calls of a model took, for `memtier bill`.

        Raises:
            LedgerError: nothing was written.
        """
        run = self._actor.mask_name(run_id)
        self.store.append_events([self._actor.event(each, run=run) for each in usage])

    @cached_property
    def people(self) -> People:
        """The people of the project, and which senders are one person."""
        return People(self._actor)

    @cached_property
    def history(self) -> History:
        """The project at other times: recall as of a time, compare two times, undo runs."""
        return History(self._actor, self.knowledge.person)

    @cached_property
    def editor(self) -> Editor:
        """What turns a person's changes to a text of memory into events."""
        return Editor(self._actor, self.knowledge.person)

    @property
    def weight_learner(self) -> WeightLearner:
        """What learns the ranking weights of the project.

        Raises:
            Unsupported: the profile has none.
        """
        from memtier_plugin.learning.weight_job import WeightLearner  # numpy

        return WeightLearner(self._actor)

    @cached_property
    def learned(self) -> LearnLog:
        """What was learned and put into the project's settings."""
        return LearnLog(self._actor)

    @property
    def regression(self) -> RegressionGate:
        """The gate that tells whether a change makes answers worse."""
        return RegressionGate(self._actor)

    @property
    def actor(self) -> Actor:
        """This agent at work on the project, for services that compare two projects."""
        return self._actor

    @cached_property
    def causes(self) -> Causes:
        """What lines change in the reward of runs, for the person at the machine."""
        return Causes(self._actor)

    @cached_property
    def retirement(self) -> Retirement:
        """The proposals to forget what never helped."""
        return Retirement(self._actor)

    @cached_property
    def summariser(self) -> Summariser:
        """The job that summarises sessions and days, and writes timelines."""
        return Summariser(self._actor)

    @cached_property
    def prioritiser(self) -> Prioritiser:
        """The job that rates entries, and keeps personas and tiers."""
        return Prioritiser(self._actor, own_words)

    @cached_property
    def gatekeeper(self) -> Gatekeeper:
        """The job that judges entries by the encoding gate."""
        return Gatekeeper(self._actor)

    @cached_property
    def logprob_creditor(self) -> LogprobCreditor:
        """The job that credits ended runs by a model's log-probabilities."""
        return LogprobCreditor(self._actor)

    @cached_property
    def working(self) -> WorkingMemory:
        """The running summaries of sessions."""
        return WorkingMemory(self._actor)

    @cached_property
    def purger(self) -> Purger:
        """The service that purges items, and completes an interrupted purge."""
        return Purger(self._actor)

    @cached_property
    def _confidences(self) -> Confidences:
        return Confidences(self._actor)

    @cached_property
    def _recorder(self) -> Recorder:
        return Recorder(self._actor)
