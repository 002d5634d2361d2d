"""The last lines of a session, for a prompt that means them and does not show them.

A follow-up ("make it shorter") shares no word with what it is about.  While the conversation is in
sight it needs nothing; after a compaction, or in a resumed session, it needs what was said last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.hits import entry_hit
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store

MAX_LINES: Final = 4  # of a session that lead a block: two exchanges
_REFRESH_MS: Final = 50  # how long a recall waits for the index's write lock
_READ: Final = 12  # entries of it that are read; some may not stand in a prompt


def refresh_for(store: Store, viewer: Viewer) -> str | None:
    """Bring the index up to date for a viewer; return why some lines are still missing."""
    return store.refresh(
        viewer.agent, wait_ms=_REFRESH_MS, read_all=viewer.read_all, leave_recalls=True
    )


def newest_of_session(reader: Reader, viewer: Viewer, session: str) -> list[Hit]:
    """Return the newest entries of a viewer's own session, the last one first."""
    scopes = reader.scopes(viewer.agent, viewer.sender)
    rows = reader.newest_in_session(viewer.agent, session, scopes, _READ)
    stored = reader.items_by_row(rows)
    return [entry_hit(stored[row], 0.0, {}) for row in rows if row in stored]


def select_last(hits: Sequence[Hit], prompt: str, shown: Collection[str], k: int) -> list[Hit]:
    """Return the last lines of a session in the order said; none if its last one is in sight.

    Args:
        hits: the last one first.
        prompt: whose own entry, if it was recorded already, is no line.
        shown: ids of what the conversation shows.
        k: how many lines a block may have.
    """
    if hits and hits[0].text.strip() == prompt.strip():
        hits = hits[1:]
    if not hits or hits[0].id in shown:
        return []
    last = [hit for hit in hits if hit.id not in shown]
    return last[: min(k, MAX_LINES)][::-1]
