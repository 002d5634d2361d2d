"""What a server of shared ledgers must provide, with deadlines and leases."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from memtier_plugin.core.errors import LedgerError

# -- What a server must provide to hold the ledgers of a project that many machines share
#
# A stream is one ledger of one owner.  Its lines have dense offsets, from 1, in the order in which
# they were committed: whoever has read up to an offset has missed nothing before it.  A purge
# replaces lines where they stand and raises the stream's epoch.

BATCH: Final = 1000  # lines sent or read at a time


class Unreachable(LedgerError):
    """The server does not answer; whether it did what was asked is not known."""


class Untrusted(Unreachable):
    """Whoever answers does not prove to be the server; nothing was sent to it."""


class Refused(LedgerError):
    """The server will not do this for this machine, however often it is asked."""


class Moved(LedgerError):
    """The stream does not end where the writer believes: others were faster, or it lost its end."""


class LeaseLost(LedgerError):
    """Another machine does this work now; nothing was written."""


class Stream(NamedTuple):
    """One ledger of one owner of a project; the shared tiers have no owner."""

    ledger: str
    owner: str | None = None


class Head(NamedTuple):
    """The offset of a stream's last line, and how often lines of it were replaced."""

    offset: int
    epoch: int


NO_LINES: Final = Head(0, 0)


class SharedLine(NamedTuple):
    """A line with its place: its offset in the stream, and the day of the file it belongs to."""

    offset: int
    day: str
    data: bytes


class NewLine(NamedTuple):
    """A line to be appended; no stream has two with the same key."""

    day: str
    key: bytes
    data: bytes


class AppendResult(NamedTuple):
    """Where a stream ends, and whether the lines were appended now rather than there already."""

    head: int
    now: bool


class Purged(NamedTuple):
    """Lines that were replaced, and the stream's epoch since then."""

    epoch: int
    offsets: tuple[int, ...]
    reason: str


class Pending(NamedTuple):
    """A machine that has not confirmed the last purge of a stream, and when it was last there."""

    machine: str
    stream: Stream
    seen: datetime


class Machine(NamedTuple):
    """A machine that takes part in a project; ``seen`` is when it was last there, if ever."""

    name: str
    writes: bool
    seen: datetime | None


class MachineGrant(NamedTuple):
    """What a machine may do in a project; ``agent`` is None for all agents."""

    machine: str
    project: str
    agent: str | None = None
    read_only: bool = False


class Part(NamedTuple):
    """Lines for one of several streams; ``expected`` is where it ends."""

    stream: Stream
    expected: int
    lines: Sequence[NewLine]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to do some work alone; a later holder has a higher fence."""

    job: str
    fence: int


class SharedLedger(Protocol):
    """The ledgers of one project on a server; every method raises `Unreachable` or `Refused`."""

    is_transactional: bool  # whether it can append to several streams at once

    def heads(self) -> dict[Stream, Head]:
        """Return where each stream ends that this machine may read."""

    def read(self, stream: Stream, after: int, limit: int = BATCH) -> Sequence[SharedLine]:
        """Return lines after an offset; the first has the next offset, and so on."""

    def append(
        self,
        stream: Stream,
        expected: int,
        lines: Sequence[NewLine],
        leases: Sequence[Lease] = (),
    ) -> AppendResult:
        """Append lines to a stream that ends at ``expected``; return where it ends now.

        All or none are appended.  If all are there already, nothing is.

        Raises:
            Moved: it ends elsewhere, or some of the lines are there already.
            LeaseLost: one of the leases is no longer this machine's.
        """

    def append_all(self, parts: Sequence[Part], leases: Sequence[Lease] = ()) -> bool:
        """Append to several streams, all or none; return whether it was now, not before.

        Only called where `is_transactional`.

        Raises:
            Moved: a stream ends elsewhere, or some of the lines are there already.
            LeaseLost: one of the leases is no longer this machine's.
        """

    def may_read(self, stream: Stream) -> bool:
        """Return whether this machine may read a stream, whether the server has it or not."""

    def delivered(self, stream: Stream, keys: Sequence[bytes]) -> set[bytes]:
        """Return those of the keys that a line of the stream has."""

    def wait(self, timeout: float) -> bool:
        """Wait until a stream has changed, or for a time (in seconds); return whether one has."""

    def day_lines(self, stream: Stream, day: str) -> Iterator[SharedLine]:
        """Yield the lines of one day's file, in order."""

    def purge(
        self,
        stream: Stream,
        replaced: Sequence[tuple[int, bytes]],
        reason: str,
        epoch: int | None = None,
    ) -> int:
        """Replace lines by others, by their offsets; return the new epoch.

        Args:
            epoch: that of the lines which the others were made of.

        Raises:
            Moved: lines were replaced since that epoch; nothing was.
        """

    def purged(self, stream: Stream, since_epoch: int) -> Sequence[Purged]:
        """Return the purges after an epoch, in order."""

    def days_of(self, stream: Stream, offsets: Collection[int]) -> set[str]:
        """Return the days of lines."""

    def acknowledge(self, stream: Stream, offset: int, epoch: int) -> None:
        """Record how far this machine has followed a stream."""

    def pending(self) -> Sequence[Pending]:
        """Return the machines on which purged lines may still be."""

    def machines(self) -> Sequence[Machine]:
        """Return the machines that take part in the project, this one among them."""

    def machine(self) -> str:
        """Return this machine's name."""

    def leave(self) -> None:
        """Take part no longer: nobody waits for this machine, nor for what it began."""

    def lease(self, job: str, ttl: float) -> Lease | None:
        """Take the lease of a job for some seconds; None while another holds it."""

    def renew(self, lease: Lease, ttl: float) -> bool:
        """Keep a lease for some seconds more; return whether it is still this machine's."""

    def release(self, lease: Lease) -> None:
        """Give a lease back."""

    def close(self) -> None:
        """Close the connections."""


def line_key(data: bytes) -> bytes:
    """Return what makes a line the same one when it is delivered again, 16 bytes.

    An entry has the key of its message, everything else its id.  What is not a record is its own
    key.
    """
    try:
        record = json.loads(data)
        name = record.get("key") or record.get("id")
    except (ValueError, AttributeError, RecursionError):
        name = None
    kind, text = ("record", str(name)) if name else ("line", data.decode("utf-8", "replace"))
    return hashlib.blake2b(
        f"{kind}:{text}".encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


# -- How long a caller waits for the server, by a deadline that all calls within it share
#
# Writing needs no server: what it does not take in time waits in the spool.  So whoever holds up a
# run sets a short deadline, whatever is called below; the daemon, which holds up nobody, sets none.

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def answer_within(seconds: float) -> Iterator[None]:
    """Give all calls to a server in here, together, so many seconds; an outer limit holds too."""
    before, until = _deadline.get(), time.monotonic() + seconds
    token = _deadline.set(until if before is None else min(before, until))
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left(default: float) -> float:
    """Return how long a call may take, at most ``default`` seconds; 0.0 when the time is over."""
    until = _deadline.get()
    return default if until is None else max(0.0, min(default, until - time.monotonic()))


# -- The leases that a machine holds: each is renewed until it is given back

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
