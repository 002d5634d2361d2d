"""One project at other moments: what a recall found then, what changed since, and undoing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from memtier_plugin.core.results import Depth, Recall, RecallRequest
from memtier_plugin.core.times import aware, to_iso
from memtier_plugin.facts.rollback import Rollback
from memtier_plugin.facts.service import FactService
from memtier_plugin.lifecycle import diff as differences
from memtier_plugin.lifecycle.as_of import open_as_of
from memtier_plugin.lifecycle.diff import ProjectDiff
from memtier_plugin.lifecycle.undo_run import RunUndoer, UndoneRun
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.selection import IndexSelect
from memtier_plugin.storage.state import CONSOLIDATION_KINDS
from memtier_plugin.storage.store import Store
from memtier_plugin.trust.redaction import Redactor

Progress = Callable[[int, int], None]


class History:
    """What was, and what may be undone, of one project, for the person at the machine."""

    def __init__(
        self,
        store: Store,
        person: FactService,
        agent: str,
        redactor: Redactor,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._person = person
        self._agent = agent
        self._redactor = redactor
        self._clock = clock

    def recall(
        self,
        query: str,
        moment: datetime,
        *,
        sender: str | None = None,
        k: int | None = None,
        token_budget: int | None = None,
        depth: Depth | None = None,
        progress: Progress | None = None,
    ) -> Recall:
        """Answer a query as it would have been answered at a moment, from what was written by then.

        With the facts that held and the weights that counted then, but today's settings; what was
        forgotten since stays forgotten.  Reads every ledger, and journals nothing.

        Raises:
            IndexProblem, LedgerError: it cannot be read.
        """
        moment = aware(moment) or moment
        with open_as_of(self._store, moment, progress) as past:
            recaller = Recaller(Actor(past, self._agent, self._clock, self._redactor))
            request = RecallRequest(
                at=moment, sender=sender, k=k, token_budget=token_budget, depth=depth
            )
            found = recaller.recall(query, request)
        return replace(found, label=f"as of {to_iso(moment)}: {found.label}")

    def diff(self, since: datetime, until: datetime | None = None) -> ProjectDiff:
        """Return what was said, learned, forgotten and weighed anew between two moments."""
        self._store.catch_up_all()
        end = aware(until) or self._clock()
        with self._store.session() as reader:
            chosen = IndexSelect(self._store.index.connection())
            return differences.diff_project(reader, chosen, aware(since) or since, end)

    def is_consolidation(self, run: str) -> bool:
        """Tell whether a consolidation left anything under this id."""
        self._store.catch_up_all()
        with self._store.session() as reader:
            return bool(reader.facts_of_run(run) or reader.events_in_run(run, CONSOLIDATION_KINDS))

    def revert(
        self,
        run: str,
        *,
        agent: str | None = None,
        undo: bool = False,
        dry_run: bool = False,
        why: str = "asked for",
    ) -> Rollback | UndoneRun:
        """Take one run back, be it a consolidation or a recorded one, and nothing later.

        Weights go too; facts that rest on other entries stay.

        Args:
            agent: whose recorded run, where more than one agent has one of this id.
            undo: bring it back instead; the facts of a consolidation are settled like new.

        Raises:
            NotFound: there is no such run.
            LedgerError: it is not, or not wholly, done; do it again.
        """
        if not self.is_consolidation(run):
            retractor = RunUndoer(self._store, self._agent, self._clock)
            return retractor.undo(run, agent=agent, undo=undo, dry_run=dry_run)
        if not undo:
            return self._person.revert(run, dry_run=dry_run, why=why)
        with self._store.session() as reader:
            gone = [one.item.id for one in reader.facts_of_run(run) if one.state.reverted]
        if not dry_run:
            self._person.accept(gone)
        return Rollback(run, restored=tuple(gone))
