"""The shared ledger in NATS JetStream, server 2.9 or newer, and its setup.

What is appended together is one message, so that all of it is stored or none.  It is stored only
if the subject's last message is the one that the writer knows, and says at which offset its lines
begin.  A message cannot be changed: a purge stores what remains of it anew, says so in the log,
which is when it takes effect, and has the server overwrite the old one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.nats.link import (
    Behind,
    Link,
    ServerAddress,
    check_driver,
)
from memtier_plugin.storage.shared.nats.log import EXPECTED_SUBJECT, Logs
from memtier_plugin.storage.shared.nats.messages import (
    KINDS,
    LineBatch,
    Names,
    Patch,
    PurgeRecord,
    Tip,
    decode,
    encode,
    pack_lines,
    pack_purge,
    permissions,
    stream_of,
)
from memtier_plugin.storage.shared.protocol import (
    BATCH,
    AppendResult,
    Head,
    Lease,
    LeaseLost,
    Machine,
    Moved,
    NewLine,
    Part,
    Pending,
    Purged,
    Refused,
    SharedLedger,
    SharedLine,
    Stream,
    Unreachable,
    seconds_left,
)

_EXPECTED_STREAM: Final = "Nats-Expected-Last-Sequence"
_ROLLUP: Final = {"Nats-Rollup": "sub"}  # of a subject only the last message is kept
_POLL_SECONDS: Final = 1.0
_LOCK_SECONDS: Final = 30.0
_TRY_SECONDS: Final = 8.0  # of writing under a lease, where every other writer is in the way


class _Record(NamedTuple):
    """A lease as it is stored."""

    machine: str
    fence: int
    expired: bool
    seq: int


class _Follower(NamedTuple):
    """How far a machine has followed a stream, and when it said so."""

    machine: str
    stream: Stream
    epoch: int
    seen: datetime


class NatsLedger:
    """One project's `SharedLedger`, for one machine; may be used from many threads."""

    is_transactional = False

    def __init__(self, url: str, project: str, *, durable: bool = True) -> None:
        check_driver()
        self.url = url
        self.project = project
        self._durable = durable
        self._checked = False
        address = ServerAddress.of(url)
        self._machine = encode(address.user)
        self._names = Names(project, address.options.get("agent"))
        self._link = Link(address, self._names.stream)
        self._lock = Mutex()
        self._logs = Logs(self._link, self._names)

    # -- reading -------------------------------------------------------------------------------

    def heads(self) -> dict[Stream, Head]:
        with self._alone():
            tips: dict[Stream, Tip] = {}
            for pattern in self._names.all_of("line"):
                tips |= self._logs.tips(pattern)
            for stream, tip in tips.items():
                self._logs.note(stream, tip)
        return {stream: Head(tip.head, tip.epoch) for stream, tip in tips.items()}

    def read(self, stream: Stream, after: int, limit: int = BATCH) -> Sequence[SharedLine]:
        lines: list[SharedLine] = []
        with self._alone():
            for batch in self._logs.batches(stream, after + 1, limit):
                lines += [line for line in _numbered(batch) if line.offset > after]
                if len(lines) >= limit:
                    break
        return lines[:limit]

    def may_read(self, stream: Stream) -> bool:
        return self._names.may_read(stream)

    def delivered(self, stream: Stream, keys: Sequence[bytes]) -> set[bytes]:
        with self._alone():
            known = self._logs.refresh(stream)
            return {*keys} & (known.keys or set())

    def day_lines(self, stream: Stream, day: str) -> Iterator[SharedLine]:
        with self._alone():
            batches = [*self._logs.days(stream, day)]
        yield from (line for batch in batches for line in _numbered(batch) if line.day == day)

    def days_of(self, stream: Stream, offsets: Collection[int]) -> set[str]:
        with self._alone():
            wanted = {*offsets}
            return {
                line.day
                for batch in self._logs.touched(stream, wanted)
                for line in _numbered(batch)
                if line.offset in wanted
            }

    # -- writing -------------------------------------------------------------------------------

    def append(
        self,
        stream: Stream,
        expected: int,
        lines: Sequence[NewLine],
        leases: Sequence[Lease] = (),
    ) -> AppendResult:
        keys, until = [line.key for line in lines], time.monotonic() + _TRY_SECONDS
        subject = self._names.of("line", stream)
        with self._alone():
            self._check_durable()
            known, fresh = self._logs.loaded(stream)
            while time.monotonic() < until:
                there = sum(key in (known.keys or ()) for key in keys)
                if there == len(keys):
                    return AppendResult(known.tip.head, False)
                if there or known.tip.head != expected:
                    if fresh:
                        raise Moved(f"{stream} ends at {known.tip.head}, not at {expected}")
                    known, fresh = self._logs.refresh(stream), True
                    continue
                tip = Tip(
                    tag=_tag(),
                    first=expected + 1,
                    number=len(lines),
                    epoch=known.tip.epoch,
                    purge=known.tip.purge,
                    days=tuple(dict.fromkeys(line.day for line in lines)),
                )
                conditions = {EXPECTED_SUBJECT: str(known.tip.seq), **self._fence(leases)}
                try:
                    seq = self._link.publish(subject, pack_lines(lines), tip.header() | conditions)
                except Behind:
                    known, fresh = self._logs.refresh(stream), True
                    continue
                except LedgerError:
                    self._logs.forget(stream)  # whether it was stored is not known
                    raise
                known.tip = tip._replace(seq=seq)
                self._logs.add_keys(stream, known, keys)
                self._announce()
                return AppendResult(known.tip.head, True)
        raise Unreachable(f"{stream} was written by others all the time")

    def append_all(self, parts: Sequence[Part], leases: Sequence[Lease] = ()) -> bool:
        raise NotImplementedError  # JetStream stores one message at a time

    def purge(
        self,
        stream: Stream,
        replaced: Sequence[tuple[int, bytes]],
        reason: str,
        epoch: int | None = None,
    ) -> int:
        fresh = dict(replaced)
        while True:
            with self._alone():
                tip = self._logs.refresh(stream).tip
                if epoch is not None and tip.epoch != epoch:
                    raise Moved(f"lines of {stream} were replaced meanwhile")
                patches = [
                    self._store_again(stream, batch, fresh)
                    for batch in [*self._logs.touched(stream, {*fresh})]
                ]
                purged = Purged(tip.epoch + 1, tuple(sorted(fresh)), reason)
                record = PurgeRecord(purged, tip.purge, patches)
                new = Tip(0, _tag(), tip.head + 1, 0, purged.epoch, tip.purge)
                condition = {EXPECTED_SUBJECT: str(tip.seq)}
                subject = self._names.of("line", stream)
                try:
                    self._link.publish(subject, pack_purge(record), new.header() | condition)
                except Behind:
                    self._erase([patch.new for patch in patches])
                    continue
                self._logs.forget(stream)  # it ends elsewhere now, and has lines elsewhere
                self._erase([patch.old for patch in patches])
                self._announce()
                return purged.epoch

    def _store_again(self, stream: Stream, batch: LineBatch, fresh: Mapping[int, bytes]) -> Patch:
        """Store what a message will be after a purge; return where."""
        lines = [
            line._replace(data=fresh.get(batch.first + n, line.data))
            for n, line in enumerate(batch.lines)
        ]
        seq = self._link.publish(self._names.of("again", stream), pack_lines(lines), {})
        days = tuple(dict.fromkeys(line.day for line in lines))
        return Patch(batch.first, len(lines), batch.seq, seq, days)

    def purged(self, stream: Stream, since_epoch: int) -> Sequence[Purged]:
        # Whoever asks also erases what a machine left that was killed before it had.
        with self._alone():
            records = self._logs.purges_of(stream).purges
            news = [record for record in records if record.purged.epoch > since_epoch]
            self._erase([patch.old for record in news for patch in record.patches])
        return [record.purged for record in news]

    def _erase(self, numbers: Sequence[int]) -> None:
        """Erase messages, if this machine may."""
        with suppress(Refused):
            self._link.erase(numbers)

    def acknowledge(self, stream: Stream, offset: int, epoch: int) -> None:
        tokens = self._names.of("line", stream).split(".")[-2:]
        subject = self._names.subject("at", self._machine, *tokens)
        with self._alone():
            self._link.publish(subject, json.dumps([offset, epoch]).encode(), _ROLLUP)

    def pending(self) -> Sequence[Pending]:
        heads = self.heads()
        return sorted(
            Pending(follower.machine, follower.stream, follower.seen)
            for follower in self._followers()
            if follower.stream in heads and follower.epoch < heads[follower.stream].epoch
        )

    def machines(self) -> Sequence[Machine]:
        # Those that have followed the project: NATS tells nobody of its users.
        seen: dict[str, datetime | None] = {self.machine(): None}
        for follower in self._followers():
            seen[follower.machine] = max(seen.get(follower.machine) or follower.seen, follower.seen)
        return [Machine(name, True, when) for name, when in sorted(seen.items())]

    def leave(self) -> None:
        with self._alone():
            for pattern in self._names.all_of("at", self._machine):
                for message in self._logs.last(pattern):
                    self._link.publish(message.subject, b"null", _ROLLUP)
            for message in self._logs.last(self._names.subject("lease", "*")):
                job = decode(message.subject.split(".")[-1])
                held = self._lease_record(job)
                if held.machine == self._machine:
                    self._put_lease(Lease(job, held.fence + 1), 0.0, held.seq)

    def _followers(self) -> list[_Follower]:
        followers = []
        with self._alone():
            for pattern in self._names.all_of("at", "*"):
                for message in self._logs.last(pattern):
                    if marks := json.loads(message.data):
                        machine = decode(message.subject.split(".")[-3])
                        stream = stream_of(message.subject)
                        followers.append(_Follower(machine, stream, marks[1], message.stored))
        return followers

    def machine(self) -> str:
        return decode(self._machine)

    # -- leases --------------------------------------------------------------------------------

    def lease(self, job: str, ttl: float) -> Lease | None:
        with self._alone():
            held = self._lease_record(job)
            if not held.expired:
                return None
            lease = Lease(job, held.fence + 1)
            return lease if self._put_lease(lease, ttl, held.seq) else None

    def renew(self, lease: Lease, ttl: float) -> bool:
        with self._alone():
            held = self._lease_record(lease.job)
            mine = (held.machine, held.fence) == (self._machine, lease.fence)
            return mine and self._put_lease(lease, ttl, held.seq)

    def release(self, lease: Lease) -> None:
        self.renew(lease, 0.0)

    def _put_lease(self, lease: Lease, ttl: float, expected: int) -> bool:
        body = json.dumps([self._machine, lease.fence, ttl]).encode()
        subject = self._names.subject("lease", encode(lease.job))
        try:
            self._link.publish(subject, body, {EXPECTED_SUBJECT: str(expected), **_ROLLUP})
        except Behind:
            return False
        return True

    def _lease_record(self, job: str) -> _Record:
        """Return who has a lease; the server's clock alone says for how long."""
        subject = self._names.subject("lease", encode(job))
        with self._link.reader(subject, last=True) as reader:
            for message in reader.take(1):
                machine, fence, ttl = json.loads(message.data)
                expired = reader.now - message.stored >= timedelta(seconds=ttl)
                return _Record(machine, fence, expired, message.seq)
        return _Record("", 0, True, 0)

    def _fence(self, leases: Sequence[Lease]) -> dict[str, str]:
        """Return the condition under which leases are still held: that nothing was stored since.

        A lease is a message of the same stream: whoever takes it moves the stream's end.
        """
        if not leases:
            return {}
        end = self._link.ask("STREAM.INFO")["state"]["last_seq"]
        for lease in leases:
            held = self._lease_record(lease.job)
            if (held.machine, held.fence) != (self._machine, lease.fence):
                raise LeaseLost("another machine does this work now")
        return {_EXPECTED_STREAM: str(end)}

    # -- waiting -------------------------------------------------------------------------------

    def wait(self, timeout: float) -> bool:
        # A writer that was killed tells nobody: whoever waits looks at the heads, too.
        return self._link.wait(self._names.changed, min(timeout, _POLL_SECONDS))

    def _announce(self) -> None:
        with suppress(LedgerError):
            self._link.tell(self._names.changed)

    def close(self) -> None:
        self._link.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads out; one of them may wait for a server that stands still."""
        if not self._lock.acquire(timeout=seconds_left(_LOCK_SECONDS)):
            raise Unreachable(f"another thread waits for {self._link.address.server}")
        try:
            yield
        finally:
            self._lock.release()

    # -- the log of a stream -------------------------------------------------------------------

    def _check_durable(self) -> None:
        """Refuse to promise more than this server keeps.

        Raises:
            Refused: one server answers before its disk has the line, and the disk is asked for.
        """
        if self._durable and not self._checked:
            if int(self._link.ask("STREAM.INFO")["config"].get("num_replicas", 1)) < 3:
                raise Refused(
                    "a single NATS server acknowledges before its disk has the line: set "
                    "ledger.durability: os, or keep the stream on three servers "
                    "(docs/shared.md)"
                )
            self._checked = True


def _numbered(batch: LineBatch) -> list[SharedLine]:
    return [SharedLine(n, line.day, line.data) for n, line in enumerate(batch.lines, batch.first)]


def _tag() -> str:
    return os.urandom(6).hex()


if TYPE_CHECKING:

    def _check(ledger: NatsLedger) -> SharedLedger:
        """Let the type checker verify that this implements the protocol."""
        return ledger


# -- Set up a project in NATS, as a user who may: its users are in the server's own configuration

_VERSION: Final = "MemTier's shared ledger, 1"


def prepare(url: str, project: str) -> bool:
    """Make the stream of a project, or bring its settings up to date; return whether it is new.

    The address may say on how many servers of a cluster it is kept: ``?replicas=3``.

    Raises:
        LedgerError: the server is unreachable, or this user may not.
    """
    link, names = _open(url, project)
    kinds = [names.subject(kind, ">") for kind in KINDS]
    config = {
        "name": names.stream,
        "description": _VERSION,
        "subjects": kinds,
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": int(link.address.options.get("replicas", "1")),
        "duplicate_window": 0,
        "allow_rollup_hdrs": True,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
    }
    try:
        try:
            there = link.ask("STREAM.INFO")["config"].get("description")
        except LedgerError:
            link.ask("STREAM.CREATE", **config)
            return True
        if there != _VERSION:
            raise LedgerError(f"{names.stream} was made by another version: {there!r}")
        link.ask("STREAM.UPDATE", **config)
        return False
    finally:
        link.close()


def snippet(
    project: str, machine: str, agent: str | None = None, *, read_only: bool = False
) -> str:
    """Return what to add to the users in the server's configuration."""
    return permissions(Names(project, agent), machine, read_only=read_only)


def forget(url: str, project: str, machine: str) -> int:
    """Wait for a machine no longer; return for how many streams it was waited.

    Raises:
        LedgerError: the server is unreachable, or this user may not.
    """
    link, names = _open(url, project)
    try:
        pattern = names.subject("at", encode(machine), ">")
        done: dict[str, Any] = link.ask("STREAM.PURGE", filter=pattern)
        return int(done["purged"])
    finally:
        link.close()


def _open(url: str, project: str) -> tuple[Link, Names]:
    check_driver()
    names = Names(project)
    return Link(ServerAddress.of(url), names.stream), names
