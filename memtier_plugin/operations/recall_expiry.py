"""Drop recalls from the journal when they are older than the retention."""

from __future__ import annotations

from datetime import datetime, timedelta

from memtier_plugin.core.cause_events import DeliverEvent
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.storage.store import Store


def expire_recalls(store: Store, now: datetime) -> int:
    """Remove recalls from the journal that are older than the retention; return how many."""
    days = timedelta(days=store.settings.journal.retention_days)
    dropped = store.expire_events(RecallEvent.KIND, now - days)
    store.expire_events(DeliverEvent.KIND, now - days)
    return dropped
