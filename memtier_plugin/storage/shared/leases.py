"""The leases that a machine holds: each is renewed until it is given back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.protocol import Lease, SharedLedger

LEASE_SECONDS: Final = 60.0  # after which a machine that does not renew its lease loses it


class Leases(threading.local):
    """The leases that this thread holds; each is renewed until it is given back."""

    def __init__(self) -> None:
        self.held: tuple[Lease, ...] = ()

    @contextmanager
    def holding(self, ledger: SharedLedger, lease: Lease) -> Iterator[None]:
        """Hold a lease that was taken."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(LEASE_SECONDS / 3):
                with suppress(LedgerError):
                    ledger.renew(lease, LEASE_SECONDS)

        threading.Thread(target=renew, name="memtier-lease", daemon=True).start()
        before, self.held = self.held, (*self.held, lease)
        try:
            yield
        finally:
            self.held = before
            done.set()
            with suppress(LedgerError):
                ledger.release(lease)
