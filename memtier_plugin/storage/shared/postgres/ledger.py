"""The shared ledger in PostgreSQL 15 or newer, by psycopg 3.

A connection is made when it is first needed and again after it broke.  Each call is one statement
of its own transaction, so that a pooler between (in its transaction mode) does no harm.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.postgres.server import (
    ANSWER_SECONDS,
    address,
    close_late,
    connect,
    cut_off_after,
    decode_owner,
    encode_owner,
    first_line,
    open_later,
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

if TYPE_CHECKING:
    import psycopg

AWAY_SECONDS: Final = 5.0  # after a failure to connect or to answer, in which it is not tried again
_POLL_SECONDS: Final = 1.0  # between two looks where notifications do not arrive


class PostgresLedger:
    """One project's `SharedLedger`, for one machine; may be used from many threads."""

    is_transactional = True

    def __init__(self, url: str, project: str, *, durable: bool = True) -> None:
        self.url = url
        self.project = project
        self._durable = durable
        self._name = encode_owner(project)
        self._lock = Mutex()
        self._process = os.getpid()
        self._held: psycopg.Connection[Any] | None = None
        self._listener: psycopg.Connection[Any] | None = None
        self._opening: Future[psycopg.Connection[Any]] | None = None
        self._away: tuple[float, str] | None = None  # since when, and why

    # -- reading -------------------------------------------------------------------------------

    def heads(self) -> dict[Stream, Head]:
        rows = self._rows(
            "SELECT ledger, owner, head, epoch FROM memtier.streams WHERE project = %s",
            (self._name,),
        )
        return {
            Stream(ledger, decode_owner(owner)): Head(head, epoch)
            for ledger, owner, head, epoch in rows
        }

    def read(self, stream: Stream, after: int, limit: int = BATCH) -> Sequence[SharedLine]:
        rows = self._rows(
            f"""SELECT "offset", day::text, data FROM memtier.lines
                WHERE stream = {_STREAM} AND "offset" > %s ORDER BY "offset" LIMIT %s""",  # noqa: S608
            (*self._stream_key(stream), after, limit),
        )
        return [SharedLine(*row) for row in rows]

    def may_read(self, stream: Stream) -> bool:
        [(granted,)] = self._rows("SELECT memtier.may(%s, %s, %s, false)", self._stream_key(stream))
        return bool(granted)

    def delivered(self, stream: Stream, keys: Sequence[bytes]) -> set[bytes]:
        rows = self._rows(
            f"SELECT key FROM memtier.lines WHERE stream = {_STREAM} AND key = ANY(%s)",  # noqa: S608
            (*self._stream_key(stream), list(keys)),
        )
        return {bytes(key) for (key,) in rows}

    def day_lines(self, stream: Stream, day: str) -> Iterator[SharedLine]:
        after = 0
        while True:
            rows = self._rows(
                f"""SELECT "offset", day::text, data FROM memtier.lines
                    WHERE stream = {_STREAM} AND day = %s AND "offset" > %s
                    ORDER BY "offset" LIMIT {BATCH}""",  # noqa: S608
                (*self._stream_key(stream), day, after),
            )
            yield from (SharedLine(*row) for row in rows)
            if len(rows) < BATCH:
                return
            after = rows[-1][0]

    def days_of(self, stream: Stream, offsets: Collection[int]) -> set[str]:
        rows = self._rows(
            f"""SELECT DISTINCT day::text FROM memtier.lines
                WHERE stream = {_STREAM} AND "offset" = ANY(%s)""",  # noqa: S608
            (*self._stream_key(stream), list(offsets)),
        )
        return {day for (day,) in rows}

    # -- writing -------------------------------------------------------------------------------

    def append(
        self,
        stream: Stream,
        expected: int,
        lines: Sequence[NewLine],
        leases: Sequence[Lease] = (),
    ) -> AppendResult:
        [(state, head)] = self._rows(
            """SELECT state, new_head FROM memtier.append_at(
                 %s, %s, %s, %s, %s::date[], %s::bytea[], %s::bytea[], %s::text[], %s::bigint[],
                 %s)""",
            (
                *self._stream_key(stream),
                expected,
                [line.day for line in lines],
                [line.key for line in lines],
                [line.data for line in lines],
                [lease.job for lease in leases],
                [lease.fence for lease in leases],
                self._durable,
            ),
        )
        if state == "moved":
            raise Moved(f"{stream} ends at {head}, not at {expected}")
        if state == "fenced":
            raise LeaseLost("another machine does this work now")
        return AppendResult(int(head), state == "appended")

    def append_all(self, parts: Sequence[Part], leases: Sequence[Lease] = ()) -> bool:
        numbered = [(n, line) for n, part in enumerate(parts, 1) for line in part.lines]
        [(state,)] = self._rows(
            """SELECT memtier.append_all(
                 %s, %s::text[], %s::text[], %s::bigint[], %s::int[], %s::date[], %s::bytea[],
                 %s::bytea[], %s::text[], %s::bigint[], %s)""",
            (
                self._name,
                [part.stream.ledger for part in parts],
                [encode_owner(part.stream.owner) for part in parts],
                [part.expected for part in parts],
                [number for number, _ in numbered],
                [line.day for _, line in numbered],
                [line.key for _, line in numbered],
                [line.data for _, line in numbered],
                [lease.job for lease in leases],
                [lease.fence for lease in leases],
                self._durable,
            ),
        )
        if state == "moved":
            raise Moved("others were faster")
        if state == "fenced":
            raise LeaseLost("another machine does this work now")
        return bool(state == "appended")

    def purge(
        self,
        stream: Stream,
        replaced: Sequence[tuple[int, bytes]],
        reason: str,
        epoch: int | None = None,
    ) -> int:
        [(after,)] = self._rows(
            "SELECT memtier.purge_lines(%s, %s, %s, %s::bigint[], %s::bytea[], %s, %s::int)",
            (
                *self._stream_key(stream),
                [offset for offset, _ in replaced],
                [data for _, data in replaced],
                reason,
                epoch,
            ),
        )
        if after is None:
            raise Moved(f"lines of {stream} were replaced meanwhile")
        return int(after)

    def purged(self, stream: Stream, since_epoch: int) -> Sequence[Purged]:
        rows = self._rows(
            f"""SELECT epoch, offsets, reason FROM memtier.purges
                WHERE stream = {_STREAM} AND epoch > %s ORDER BY epoch""",  # noqa: S608
            (*self._stream_key(stream), since_epoch),
        )
        return [Purged(epoch, tuple(offsets), reason) for epoch, offsets, reason in rows]

    def acknowledge(self, stream: Stream, offset: int, epoch: int) -> None:
        self._rows(
            "SELECT memtier.acknowledge(%s, %s, %s, %s, %s)",
            (*self._stream_key(stream), offset, epoch),
        )

    def pending(self) -> Sequence[Pending]:
        rows = self._rows(
            """SELECT f.machine::text, s.ledger, s.owner, f.seen
               FROM memtier.followers f JOIN memtier.streams s ON s.id = f.stream
               WHERE s.project = %s AND f.epoch < s.epoch ORDER BY f.machine, s.id""",
            (self._name,),
        )
        return [
            Pending(machine, Stream(ledger, decode_owner(owner)), seen)
            for machine, ledger, owner, seen in rows
        ]

    def machines(self) -> Sequence[Machine]:
        rows = self._rows("SELECT machine, writes, seen FROM memtier.machines(%s)", (self._name,))
        return [Machine(*row) for row in rows]

    def machine(self) -> str:
        [(name,)] = self._rows("SELECT session_user::text", ())
        return str(name)

    def leave(self) -> None:
        self._rows("SELECT memtier.leave(%s)", (self._name,))

    # -- leases --------------------------------------------------------------------------------

    def lease(self, job: str, ttl: float) -> Lease | None:
        [(fence,)] = self._rows("SELECT memtier.take_lease(%s, %s, %s)", (self._name, job, ttl))
        return None if fence is None else Lease(job, fence)

    def renew(self, lease: Lease, ttl: float) -> bool:
        [(kept,)] = self._rows(
            "SELECT memtier.renew_lease(%s, %s, %s, %s)",
            (self._name, lease.job, lease.fence, ttl),
        )
        return bool(kept)

    def release(self, lease: Lease) -> None:
        self._rows("SELECT memtier.release_lease(%s, %s, %s)", (self._name, lease.job, lease.fence))

    # -- waiting -------------------------------------------------------------------------------

    def wait(self, timeout: float) -> bool:
        # A notification that a pooler keeps back is missed: whoever waits looks at the heads, too.
        import psycopg

        self._leave_inherited()
        try:
            if self._listener is None or self._listener.closed:
                self._listener = connect(self.url)
                channel = hashlib.md5(self._name.encode(), usedforsecurity=False).hexdigest()
                with cut_off_after(self._listener, ANSWER_SECONDS):
                    self._listener.execute(f"LISTEN memtier_{channel}")
                return True  # what came before is not notified
            notices = self._listener.notifies(timeout=min(timeout, _POLL_SECONDS), stop_after=1)
            return any(True for _ in notices)
        except psycopg.Error as error:
            self._drop_listener()
            raise Unreachable(f"the shared ledger at {address(self.url)}: {error}") from error

    def close(self) -> None:
        self._leave_inherited()
        self._drop_listener()
        with self._lock:
            self._drop()
            if self._opening is not None:
                self._opening.add_done_callback(close_late)
                self._opening = None

    def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(Exception):
                listener.close()

    # -- the connection ------------------------------------------------------------------------

    def _stream_key(self, stream: Stream) -> tuple[str, str, str]:
        return self._name, stream.ledger, encode_owner(stream.owner)

    def _rows(self, query: str, values: Sequence[object]) -> list[Any]:
        with self._alone(), self._errors():
            connection = self._connection()
            with self._time_limit(connection):
                return connection.execute(query.encode(), values, binary=True).fetchall()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads out; one of them may wait for a server that stands still."""
        self._leave_inherited()
        if not self._lock.acquire(timeout=seconds_left(2 * ANSWER_SECONDS)):
            raise self._unreachable("another thread waits for its answer")
        try:
            yield
        finally:
            self._lock.release()

    def _leave_inherited(self) -> None:
        """Forget the connections of a parent that forked: to use or to end one would break its."""
        if self._process != os.getpid():
            self._held = self._listener = self._opening = None
            self._process = os.getpid()

    def _connection(self) -> psycopg.Connection[Any]:
        if self._held is not None and not self._held.closed:
            return self._held
        if self._away and time.monotonic() - self._away[0] < AWAY_SECONDS:
            raise Unreachable(self._away[1])
        opening = self._opening or open_later(self.url)
        try:
            self._held = opening.result(seconds_left(ANSWER_SECONDS))
        except TimeoutError:
            self._opening = opening  # it may be there at the next call
            raise self._stay_away("it lets nobody in yet") from None
        except Unreachable as error:
            self._opening = None
            self._away = time.monotonic(), str(error)
            raise
        except BaseException:
            self._opening = None
            raise
        self._opening = self._away = None
        return self._held

    def _stay_away(self, why: str) -> Unreachable:
        error = self._unreachable(why)
        self._away = time.monotonic(), str(error)
        return error

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"the shared ledger at {address(self.url)} does not answer: {why}")

    @contextmanager
    def _time_limit(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Cut a connection off whose server does not answer in time, and stay away for a while."""
        import psycopg

        seconds = seconds_left(ANSWER_SECONDS)
        with cut_off_after(connection, seconds) as was_cut:
            try:
                yield
            except psycopg.Error as error:
                if not was_cut.is_set():
                    raise
                self._drop()
                raise self._stay_away(f"nothing came for {seconds:.1f} s") from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate errors; the next call replaces a broken connection.

        Whatever is wrong with the server itself (it ends, its disk is full, it only reads) makes it
        unreachable: what was to be written waits.
        """
        import psycopg

        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            raise Refused(f"the shared ledger refuses this: {first_line(error)}") from error
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
            self._drop()
            raise self._unreachable(first_line(error)) from error
        except psycopg.Error as error:
            raise LedgerError(f"the shared ledger: {first_line(error)}") from error

    def _drop(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            with suppress(Exception):
                held.close()


# A scalar subquery, which row-level security filters.
_STREAM: Final = """(SELECT id FROM memtier.streams
                     WHERE (project, ledger, owner) = (%s, %s, %s))"""


if TYPE_CHECKING:

    def _check(ledger: PostgresLedger) -> SharedLedger:
        """Let the type checker verify that this implements the protocol."""
        return ledger
