"""Roll back one consolidation, as `rollback_plan` plans it."""

from __future__ import annotations

from memtier_plugin.facts.recall_check import Regression
from memtier_plugin.facts.rollback_plan import Rollback, RollbackPlanner
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.storage.actor import Actor


def roll_back(
    actor: Actor,
    run: str,
    *,
    why: str = "",
    regression: Regression | None = None,
    dry_run: bool = False,
) -> Rollback:
    """Undo one consolidation and no later one; a second time changes nothing.

    Args:
        why: the reason that the journal keeps.
        regression: the fall of recall that is the reason, if it is.

    Raises:
        NotFound: no consolidation has this id.
        LedgerError: it is not, or not completely, undone; repeat it.
    """
    store = actor.store
    with FactWriter(actor).exclusive():
        now = actor.clock()
        planner = RollbackPlanner(actor, run, now)
        plan = planner.plan(why, regression)
        if not dry_run:
            store.append_facts(plan.facts, now)
            store.append_events(plan.events, shared=True)
            store.catch_up_all()
    return plan.rollback
