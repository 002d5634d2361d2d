"""Propose forgetting what never helped, judged by the runs in which it was shown.

Two kinds of evidence count: a fact or a log line was shown in many runs and used in none (no run
credited or blamed it), or runs that withheld it earned more, by an interval that excludes zero. A
proposal waits in the review queue until a person decides; an accepted one can be undone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from memtier_papers.memtier.settings import CauseSettings
from memtier_papers.memtier.trials import report_uplift
from memtier_plugin.core.events import CreditEvent, RecallEvent
from memtier_plugin.core.records import Fact
from memtier_plugin.core.structs import check_methods
from memtier_plugin.facts.filters import is_essential
from memtier_plugin.facts.forgetting import propose_forget
from memtier_plugin.retrieval.standing import is_standing
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import UNDO_KINDS, undone_runs
from memtier_plugin.storage.store import Actor

Reason = Literal["unused", "harmful"]

_WHY: Final = {
    "unused": "it was shown in at least {runs} runs, and none used it",
    "harmful": "runs that were not given it fared better",
}


@dataclass(frozen=True, slots=True)
class RetirementCandidate:
    """A fact or entry that did not help, and in how many runs it was shown."""

    item: str
    reason: Reason
    runs: int


@check_methods
class Retirement:
    """Proposes, on behalf of one agent, what the person at the machine might forget."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def candidates(self) -> list[RetirementCandidate]:
        """Return the facts and entries that did not help, harmful ones first.

        Standing instructions are excluded.

        Raises:
            IndexProblem, LedgerError: the journal cannot be read.
        """
        self._store.catch_up_all()
        with self._store.session() as reader:
            harmful = {
                line.id: RetirementCandidate(line.id, "harmful", line.uplift.shown)
                for line in report_uplift(reader).lines
                if line.uplift.verdict == "harms"
            }
            least = self._store.settings.of(CauseSettings).retire_after
            unused = {
                item: RetirementCandidate(item, "unused", runs)
                for item, runs in _never_used(reader).items()
                if runs >= least and item not in harmful
            }
            candidates = [*harmful.values(), *unused.values()]
            items = {
                row.item.id
                for row in reader.items([each.item for each in candidates]).values()
                if _may_go(reader, row)
                and not is_standing(row.item)
                and not (row.item.id in unused and is_essential(row.item))
            }
        return [candidate for candidate in candidates if candidate.item in items]

    def propose(self) -> tuple[str, ...]:
        """Propose the candidates for review; return all pending proposals.

        Raises:
            LedgerError, IndexProblem: not all was proposed.
        """
        candidates, least = self.candidates(), self._store.settings.of(CauseSettings).retire_after
        waiting: list[str] = []
        for reason, why in _WHY.items():
            items = [each.item for each in candidates if each.reason == reason]
            waiting += propose_forget(self._actor, items, why.format(runs=least))
        return tuple(waiting)


def _may_go(reader: Reader, row: Stored) -> bool:
    """Return whether an item is visible now, and can be forgotten on its own.

    A summary or timeline would be rewritten from its sources, and forgetting a fact's source would
    also remove the fact, which has evidence of its own.
    """
    if isinstance(row.item, Fact):
        return row.state.is_retrievable(row.item.status == "active") and not row.item.shelf
    return row.state.is_retrievable(row.item.retrievable) and not reader.dependent_facts(
        [row.item.id]
    )


def _never_used(reader: Reader) -> dict[str, int]:
    """Return the items that no run used, with the number of runs that were shown them.

    Only a run that credited or blamed some line reveals which lines it used.
    """
    hidden, uncredited = undone_runs(reader.events(kinds=[*UNDO_KINDS]))
    runs: set[tuple[str, str | None]] = set()
    used: set[str] = set()
    by_recall: dict[str, tuple[str, str | None]] = {}
    for event in reader.events(kinds=[CreditEvent.KIND]):
        credit, run = CreditEvent.of(event), (event.agent_id, event.run_id)
        if credit.share and run not in hidden | uncredited:
            runs.add(run)
            used.add(credit.item)
            by_recall |= dict.fromkeys(credit.recalls or (), run)
    shown: Counter[str] = Counter()
    seen: set[tuple[str, tuple[str, str | None]]] = set()
    for event in reader.events(kinds=[RecallEvent.KIND]):
        recall, run = RecallEvent.of(event), by_recall.get(event.id, (event.agent_id, event.run_id))
        if run not in runs or recall.purpose != "inject":
            continue
        for ranked in recall.injected:
            if ranked.item not in used and (ranked.item, run) not in seen:
                seen.add((ranked.item, run))
                shown[ranked.item] += 1
    return dict(shown)
