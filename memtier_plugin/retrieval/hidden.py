"""Tell why nobody finds a line: it was forgotten, superseded, rejected, undone, or waits."""

from __future__ import annotations

from msgspec import Struct

from memtier_plugin.core.events import ProposeForgetEvent, WithdrawEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import describe_state


class Hidden(Struct, frozen=True):
    """Why no query finds an item, and whether that arose only after the recall."""

    reason: str
    message: str
    since_recall: bool = False


def find_hidden(reader: Reader, recall: JournalEvent, stored: Stored) -> Hidden | None:
    """Return why an item cannot be found by anybody; None where it can."""
    item, state = stored.item, stored.state
    if isinstance(item, Entry) and not item.retrievable:
        return Hidden("system", "the system's own text is kept for the log but never found")
    if isinstance(item, Fact) and describe_state(state, item.status == "active") == "proposed":
        why = f": {item.reason}" if item.reason else ""
        return Hidden("proposed", f"the fact waits for review, and is found once accepted{why}")
    if reader.candidates([stored.row]):
        return None
    if not state.forgotten and (state.reverted or state.reviewed == "rejected"):
        return _undone(reader, recall, item.id)
    kinds = ("forget", "withdraw") if state.forgotten else ("supersede",)
    events = [e for e in reader.events(item=item.id) if e.kind in kinds]
    since = bool(events) and events[-1].timestamp > recall.timestamp
    on = f" on {to_iso(events[-1].timestamp)[:10]}" if events else ""
    if state.forgotten and events and events[-1].kind == "withdraw":
        run = WithdrawEvent.of(events[-1]).run
        return Hidden("withdrawn", f"it was withdrawn{on} with the run {run}", since)
    if state.forgotten:
        why = f": {evidence}" if (evidence := _evidence_against(reader, item.id)) else ""
        return Hidden("forgotten", f"it was forgotten{on}{why}", since)
    if state.superseded_by:
        return Hidden("superseded", f"it was superseded{on} by {state.superseded_by}", since)
    if isinstance(item, Fact) and item.shelf:
        return Hidden("forgotten", f"something that the {item.shelf} shows was withdrawn")
    if isinstance(item, Fact):
        return Hidden("forgotten", "every source of the fact was forgotten")
    return Hidden("unindexed", "the index does not hold it yet")


def _evidence_against(reader: Reader, item_id: str) -> str:
    """Return why it was last proposed to forget an item; empty where no evidence says so."""
    proposals = map(ProposeForgetEvent.of, reader.events(kinds=[ProposeForgetEvent.KIND]))
    reasons = [each.evidence for each in proposals if each.fact == item_id and each.evidence]
    return reasons[-1] if reasons else ""


def _undone(reader: Reader, recall: JournalEvent, item_id: str) -> Hidden:
    events = reader.events(item=item_id)
    last = [undo for undo in events if undo.kind in ("revert", "reject")][-1]
    on, since = to_iso(last.timestamp)[:10], last.timestamp > recall.timestamp
    why = f": {reason}" if (reason := last.data.get("why")) else ""
    if last.kind == "reject":
        return Hidden("rejected", f"it was rejected on {on}{why}", since)
    return Hidden("reverted", f"the consolidation that made it was undone on {on}{why}", since)
