"""Open a project's storage: its own, a shared one, or as of a past time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.events import (
    ForgetEvent,
    PromoteEvent,
    RetractEvent,
    SupersedeEvent,
    UnforgetEvent,
    payload_of,
)
from memtier_plugin.core.formats import from_iso, new_id
from memtier_plugin.core.paths import ProjectFolder, shared_name
from memtier_plugin.core.records import Entry, Fact, JournalEvent, StateEvent
from memtier_plugin.core.settings.schema import NOWHERE, Settings
from memtier_plugin.storage.index.connection import Index
from memtier_plugin.storage.index.sqlite import AS_OF_PREFIX, remove_index
from memtier_plugin.storage.index.vector_coverage import copy_vectors
from memtier_plugin.storage.index.writer import build_index
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store

# -- A project as of a past time, in a temporary index of its own
#
# By the time at which things were said, or by the time at which they were written: an imported
# conversation was said long before it was written.

_HIDING: Final = (ForgetEvent.KIND, UnforgetEvent.KIND)  # what is forgotten is so at any time


class AsOfView(Store):
    """The log, and an index of one moment: nothing new is read, nothing is written."""

    def __init__(self, store: Store, index: Index) -> None:
        super().__init__(store.project_folder.home, store.project, store.settings)
        self.index = index
        self.__dict__["embedder"] = store.embedder  # loaded once

    def refresh(
        self, agent: str, *, wait_ms: int, read_all: bool = False, leave_recalls: bool = False
    ) -> str | None:
        """Read nothing: later records do not count."""
        return None

    def append_events(
        self, events: Sequence[JournalEvent], *, shared: bool = False, timeout: float = 0.0
    ) -> None:
        """Write nothing: no run asked this question."""


@contextmanager
def open_as_of(
    store: Store,
    moment: datetime,
    progress: Callable[[int, int], None] | None = None,
    *,
    written: bool = False,
) -> Iterator[AsOfView]:
    """Yield a project as of a time; reads the whole log.

    Facts hold, and weights are, as in the journal by then.  Only what was forgotten or purged
    since is missing: forgetting holds for the past too.

    Args:
        written: go by the time of writing instead of the time at which things were said.

    Raises:
        IndexProblem, LedgerError: the index cannot be built.
    """
    path = store.index.path.with_name(f"{AS_OF_PREFIX}{new_id()}.sqlite3")
    if written:
        includes = _written_by(moment)
    else:
        store.catch_up_all()
        with store.session() as reader:
            includes = _said_by(reader, moment)
    try:
        building = build_index(
            path, store.project_folder.path, store.tokenizer, store.embedder, progress, includes
        )
        with building as (connection, _):
            copy_vectors(store.index, connection, store.embedder)
        view = AsOfView(store, Index(path))
        try:
            yield view
        finally:
            view.close()
    finally:
        remove_index(path)


def _written_by(moment: datetime) -> Callable[[Entry | Fact | JournalEvent], bool]:
    """Return what tells whether a record was written by then, or hides what was forgotten."""

    def includes(record: Entry | Fact | JournalEvent) -> bool:
        hides = isinstance(record, JournalEvent) and record.kind in _HIDING
        return hides or record.timestamp <= moment

    return includes


def _said_by(reader: Reader, moment: datetime) -> Callable[[Entry | Fact | JournalEvent], bool]:
    """Return what tells whether a record was said by then, or tells of what was.

    A fact was said when the last of its sources was.  Of a fact that was written later than that,
    as those of an import are, what is known today counts: it had no journal then.
    """
    times_said = reader.said_times()
    late = {
        stored.item.id
        for stored in reader.facts(written_since=moment)
        if times_said.get(stored.item.id, stored.item.timestamp) <= moment < stored.item.timestamp
    }

    def includes(record: Entry | Fact | JournalEvent) -> bool:
        if isinstance(record, Entry):
            return record.observed_at <= moment
        if isinstance(record, Fact):
            return times_said.get(record.id, record.timestamp) <= moment
        if record.kind in _HIDING:
            return True
        match payload_of(record):
            case SupersedeEvent(by=by):
                in_time = times_said.get(by, record.timestamp) <= moment
                return in_time and (record.timestamp <= moment or by in late)
            case RetractEvent(items=items, valid_to=until):
                in_time = until is None or from_iso(until) <= moment
                return in_time and (record.timestamp <= moment or late.issuperset(items))
            case PromoteEvent(facts=facts) if facts:
                return record.timestamp <= moment or late.issuperset(facts)
            case StateEvent(items=items):
                return record.timestamp <= moment or late.issuperset(items)
        return record.timestamp <= moment

    return includes


# -- Open a project's storage: its own, or one that it shares by a server


def open_store(home: Path, project: str, settings: Settings) -> Store:
    """Return a project's storage: shared, if this machine joined it.

    Raises:
        SettingsError: it is shared, and `ledger.shared` does not say where.
    """
    folder = ProjectFolder.of(home, project)
    name = shared_name(folder.path)
    if name is None:
        return Store(home, project, settings)
    if settings.ledger.shared == NOWHERE:
        raise SettingsError(
            f"project {project!r} is shared: set ledger.shared in {home / 'config.yaml'}"
        )
    # Here: a project of this machine alone needs no client of a server.
    from memtier_plugin.storage.shared.sharing import open_ledger
    from memtier_plugin.storage.shared.store import SharedStore

    url = settings.ledger.shared
    durable = settings.ledger.durability == "sync"
    return SharedStore(home, project, settings, open_ledger(url, name, durable=durable))
