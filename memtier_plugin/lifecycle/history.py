"""The history of a project: recall as of a time, differences between two times, undoing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from memtier_plugin.core.codecs import check_methods
from memtier_plugin.core.records import Purpose
from memtier_plugin.core.results import Depth, Recall, RecallRequest
from memtier_plugin.core.times import aware, to_iso
from memtier_plugin.facts.rollback_plan import Rollback
from memtier_plugin.facts.service import FactService
from memtier_plugin.lifecycle.diff import ProjectDiff, diff_project
from memtier_plugin.lifecycle.undo_run import RunUndoer, UndoneRun
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.as_of import open_as_of
from memtier_plugin.storage.state import CONSOLIDATION_KINDS

Progress = Callable[[int, int], None]


@check_methods
class History:
    """The past of one project, and what may be undone, for the person at the machine."""

    def __init__(self, actor: Actor, person: FactService) -> None:
        self._actor = actor
        self._store = actor.store
        self._person = person

    def recall(
        self,
        query: str,
        moment: datetime,
        *,
        sender: str | None = None,
        k: int | None = None,
        token_budget: int | None = None,
        depth: Depth | None = None,
        purpose: Purpose = "search",
        written: bool = False,
        progress: Progress | None = None,
    ) -> Recall:
        """Answer a query as it would have been answered at a time, from what was said by then.

        Uses the facts that held and the weights that counted then, but today's settings; what was
        forgotten since stays forgotten.  Reads every ledger, and journals nothing.

        Args:
            written: from what was written by then, which an import may be long after it was said.

        Raises:
            IndexProblem, LedgerError: it cannot be read.
        """
        moment = aware(moment) or moment
        with open_as_of(self._store, moment, progress, written=written) as view:
            recaller = Recaller(replace(self._actor, store=view))
            request = RecallRequest(
                at=moment,
                sender=sender,
                k=k,
                token_budget=token_budget,
                depth=depth,
                purpose=purpose,
            )
            recall = recaller.recall(query, request)
        return replace(recall, label=f"as of {to_iso(moment)}: {recall.label}")

    def diff(
        self, since: datetime, until: datetime | None = None, *, written: bool = False
    ) -> ProjectDiff:
        """Return what was said, learned, forgotten and weighted differently between two times.

        Args:
            written: count what was written in between, whenever it was said.
        """
        self._store.catch_up_all()
        end = aware(until) or self._actor.clock()
        with self._store.session() as reader:
            return diff_project(reader, aware(since) or since, end, written=written)

    def is_consolidation(self, run: str) -> bool:
        """Return whether a run is a consolidation that wrote something."""
        self._store.catch_up_all()
        with self._store.session() as reader:
            return bool(reader.facts(run=run) or reader.events(run=run, kinds=CONSOLIDATION_KINDS))

    def revert(
        self,
        run: str,
        *,
        agent: str | None = None,
        undo: bool = False,
        dry_run: bool = False,
        why: str = "asked for",
    ) -> Rollback | UndoneRun:
        """Undo one run and no later one: a consolidation or a recorded run, with its credits.

        Facts that rest on other entries stay.

        Args:
            agent: whose recorded run, if more than one agent has one of this id.
            undo: bring it back instead; the facts of a consolidation are resolved like new.

        Raises:
            NotFound: there is no such run.
            LedgerError: it is not, or not completely, done; repeat it.
        """
        if not self.is_consolidation(run):
            undoer = RunUndoer(self._actor)
            return undoer.undo(run, agent=agent, redo=undo, dry_run=dry_run)
        if not undo:
            return self._person.revert(run, dry_run=dry_run, why=why)
        with self._store.session() as reader:
            removed = [fact.item.id for fact in reader.facts(run=run) if fact.state.reverted]
        outcomes = [] if dry_run else self._person.accept(removed)
        pairs = ((old, outcome.id) for outcome in outcomes for old in outcome.superseded)
        return Rollback(run, restored=tuple(removed), superseded=tuple(pairs))
