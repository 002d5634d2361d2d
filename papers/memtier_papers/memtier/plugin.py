"""The plugin of MemTier's paper: the profile `paper`, and the lottery of `causes.withhold`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.settings.schema import Settings

if TYPE_CHECKING:
    from memtier_plugin.retrieval.rankers import Ranker


@hookimpl
def memtier_ranker(profile: str) -> Ranker | None:
    """Return the ranker of the profile `paper`."""
    if profile != "paper":
        return None
    from memtier_papers.memtier.ranker import PAPER

    return PAPER


@hookimpl
def memtier_pack(plan: Any, recall_id: str, actor: Any, journal: Any) -> Any | None:
    """Fill a block without a line where the lottery says so."""
    if not actor.store.settings.causes.withhold:
        return None
    from memtier_papers.memtier.withholding import pack_without_a_line

    return pack_without_a_line(plan, recall_id, actor, journal)


@hookimpl
def memtier_explain(
    recall: JournalEvent, items: Mapping[str, Any], reader: Any, settings: Settings, now: datetime
) -> Mapping[str, Any]:
    """Return what a recall withheld."""
    from memtier_papers.memtier.withholding import explain_withheld

    return {"withheld": explain_withheld(recall, reader)}


@hookimpl
def memtier_why(recall: JournalEvent, item_id: str) -> tuple[str, str] | None:
    """Return that a line was withheld."""
    lottery = RecallEvent.of(recall).withheld
    if lottery is None or lottery.item != item_id:
        return None
    from memtier_papers.memtier.withholding import describe_withheld

    return "withheld", describe_withheld(lottery)
