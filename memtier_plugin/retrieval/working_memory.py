"""The running summary of a session, for a prompt whose session is out of sight.

It stands in the first prompt after a compaction, or after a session was left alone for long, and
in a vague follow-up ("go on") while what it sums up is out of sight.  A plain prompt of a session
that is going on gets none.  (Mem-T's working memory, 3.1.)
"""

from __future__ import annotations

from typing import Final

from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.hits import read_hits
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.search import RankedRow
from memtier_plugin.storage.readers import Reader

SHELF: Final = "working"
RELATION: Final = "working_summary"
AT_COMPACTION: Final = "compaction_summary"  # the same, written when a host compacted the session
NOTE: Final = "of this session, out of sight"


def read_working(reader: Reader, viewer: Viewer, session: str) -> Hit | None:
    """Return the current summary of a viewer's own session; None if there is none."""
    about = viewer.agent, viewer.sender or "", session
    facts = reader.overviews.shelved_facts(SHELF, about)
    current = [fact.id for fact in facts if fact.in_place and fact.indexed][-1:]
    rows: list[RankedRow] = [(item.row, 0.0, {}) for item in reader.items(current).values()]
    return next(iter(read_hits(reader, rows, viewer, {})), None)


def is_left_behind(hit: Hit, *, resumed: bool) -> bool:
    """Return whether any prompt needs a summary: after a compaction, or in a resumed session."""
    assert isinstance(hit.item, Fact)
    return resumed or hit.item.relation == AT_COMPACTION
