"""How a shared project follows its server: synchronised when either has changed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.paths import write_private_file
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.project_index import ProjectIndex
from memtier_plugin.storage.shared.engines import address
from memtier_plugin.storage.shared.leases import LEASE_SECONDS
from memtier_plugin.storage.shared.marker import FOLDER, shared_name
from memtier_plugin.storage.shared.protocol import SharedLedger
from memtier_plugin.storage.shared.replica import Replica
from memtier_plugin.storage.shared.synced import Synced

_STATE: Final = "state.json"  # in `.shared`: how the last synchronisation went
_LOOK_SECONDS: Final = 1.0  # between two looks at the server and the spool without a notification


class FollowedPurges(Protocol):
    """What other machines purged, to be removed here from what only this one has."""

    def is_waiting(self) -> bool:
        """Return whether a purge is to be applied before anything is delivered."""

    def follow(self) -> list[str]:
        """Apply what was not applied yet; return the ids of those purges."""

    def confirm(self, purges: Sequence[str]) -> None:
        """Note, and tell the others, that nothing is left here of these purges."""


class Sharing:
    """The server of a shared project, this machine's copy, and how both are kept the same."""

    def __init__(self, index: ProjectIndex, ledger: SharedLedger, replica: Replica) -> None:
        self.ledger = ledger
        self.replica = replica
        self.purges: Callable[[], FollowedPurges] | None = None
        self._index = index
        self._folder = index.project_folder.path

    def sync(self, stop: Callable[[], bool] = lambda: False) -> Synced:
        """Fetch what is new, deliver what waits, index both, and note how it went.

        Raises:
            LedgerError: the server is away, or refuses; or a file cannot be written.
        """
        begun = time.time()
        try:
            synced = self.replica.fetch(stop)
            purges = self.purges() if self.purges else None
            applied = purges.follow() if purges else []
            self.replica.deliver_waiting(synced, stop)
        except LedgerError as error:
            self._note(error=str(error))
            raise
        if synced.purged or applied:
            self._index.reindex()
            if self._index.scrub_index(LEASE_SECONDS) and purges and applied:
                purges.confirm(applied)
        elif synced.files:
            self._index.catch_up([*synced.files.values()], wait_ms=2000)
        self._note(ok=begun, error=synced.refused)
        return synced

    def follow(self, stop: threading.Event) -> None:
        """Synchronise whenever something changed here or there, until ``stop`` is set.

        Raises:
            LedgerError: as `sync`.
        """
        while not stop.is_set():
            self.sync(stop.is_set)
            self.ledger.wait(_LOOK_SECONDS)

    def _note(self, *, ok: float | None = None, error: str | None = None) -> None:
        path = self._folder / FOLDER / _STATE
        state = self._state()
        if ok is not None:
            if state.get("error") == error and ok - state.get("ok", 0.0) < 1.0:
                return  # often enough
            state = {"ok": ok, "error": error}
        elif state.get("error") is None:
            state |= {"error": error, "since": time.time()}
        else:
            state |= {"error": error}
        with suppress(LedgerError):
            write_private_file(path, json.dumps(state))

    def _state(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            return dict(parse_json_text((self._folder / FOLDER / _STATE).read_text("utf-8")))
        return {}

    def shared_status(self) -> dict[str, Any]:
        """Return, without asking the server, how far this machine follows it."""
        state = self._state()
        ok, files = state.get("ok"), self.replica.spooled()
        return {
            "server": address(self._index.settings.ledger.shared),
            "project": shared_name(self._folder),
            "synced": None if ok is None else to_iso(datetime.fromtimestamp(ok, UTC)),
            "age_s": None if ok is None else round(max(0.0, time.time() - ok), 1),
            "error": state.get("error"),
            "waiting": sum(file.path.read_bytes().count(b"\n") for file in files),
        }
