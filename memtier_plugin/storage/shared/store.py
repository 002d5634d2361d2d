"""A project whose ledgers many machines share: `Store`, written through a server.

Reading is as with files alone, from this machine's copy.  While the server is away entries and
events wait in the spool, and are read from there; work that must not be done twice waits itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.core.files import hold_lock, pass_point
from memtier_plugin.core.paths import PROJECT_JOURNAL, make_ledger_folder
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import LedgerFile, spool_file
from memtier_plugin.storage.ledger.log import parse_entries
from memtier_plugin.storage.ledger.transaction import kind_order
from memtier_plugin.storage.protocol import LOCK_SECONDS, NewRun
from memtier_plugin.storage.shared.copied_files import has_lines
from memtier_plugin.storage.shared.protocol import (
    LEASE_SECONDS,
    Leases,
    Moved,
    NewLine,
    SharedLedger,
    Stream,
    Unreachable,
    answer_within,
    line_key,
)
from memtier_plugin.storage.shared.replica import Replica
from memtier_plugin.storage.shared.sharing import SharedLog, Sharing
from memtier_plugin.storage.store import Store

# Of what each machine does for itself: vectors, its files, its settings.
_LOCAL_LOCKS: Final = ("embed", "purging", "learn")
# For which a writer waits for the server before it lets the spool keep what it writes.
_WAIT_SECONDS: Final = 1.0
_WAIT_SECONDS_A_LINE: Final = 0.001
_INLINE_BYTES: Final = 256 * 1024  # of spool that an append delivers first


class SharedStore(Store):
    """The ledgers of a shared project, and this machine's index of them."""

    def __init__(self, home: Path, project: str, settings: Settings, ledger: SharedLedger) -> None:
        super().__init__(home, project, settings)
        durability = settings.ledger.durability
        self.ledger = ledger
        self.replica = Replica(self.project_folder, project, ledger, durability, self._renumber)
        self.sharing: Sharing = Sharing(self, ledger, self.replica)
        self._leases = Leases()
        self._turns: dict[Stream, dict[str, int]] = {}  # of sessions, at the end of a delivery

    @cached_property
    def log(self) -> SharedLog:
        """The files of the ledgers, whose lines the server has too."""
        return SharedLog(self._folder, self.replica)

    # -- the index -----------------------------------------------------------------------------

    def catch_up(
        self,
        files: Sequence[LedgerFile],
        *,
        wait_ms: int,
        budget: int | None = None,
        ours: bool = False,
        leave_recalls: bool = False,
    ) -> str | None:
        """Index these files, each after the spool that its lines may have been in."""
        pairs = {pair.name: pair for file in files for pair in (file.spool, file.settled)}
        return super().catch_up(
            [*pairs.values()],
            wait_ms=wait_ms,
            budget=budget,
            ours=ours,
            leave_recalls=leave_recalls,
        )

    # -- writing -------------------------------------------------------------------------------

    def append_entries(
        self,
        agent: str,
        runs: Sequence[NewRun],
        clock: Callable[[], datetime],
        *,
        timeout: float = LOCK_SECONDS,
    ) -> list[Entry]:
        """Append the messages of an agent's runs that are not stored yet, all together.

        Turns are numbered after the last that this machine knows; where another machine was
        faster, its lines are fetched and they are numbered again.

        Raises:
            LedgerError: nothing was written.
        """
        started = time.monotonic()
        folder = make_ledger_folder(self.project_folder.home, self.project, "episodic", agent)
        stream = Stream("episodic", agent)
        number = sum(len(new.messages) for new in runs)
        with hold_lock(folder / ".lock", timeout), _short_wait(number):
            while True:
                now = clock()
                path = jsonl.day_file(folder, now)
                waiting = self._deliver_first(stream)
                offset = self.replica.offset(stream)
                files = self._files_of("episodic", agent)
                existing, turns = self._existing_keys(agent, runs, files)
                entries: list[Entry] = []
                for new in runs:
                    entries += new.make_entries(existing, turns, self.project, now)
                records = [entry.to_json() for entry in entries]
                try:
                    if waiting:
                        self.replica.spool(path, records, timeout)
                    elif entries:
                        self._put(path, records, expected=offset)
                    break
                except Moved:
                    continue
        if entries:
            self.catch_up_file(path)
            self._announce(entries, started)
        return entries

    def _deliver_first(self, stream: Stream) -> bool:
        """Deliver an agent's few waiting entries; return whether some still wait."""
        files = self._files_of("episodic", str(stream.owner))
        waiting = [file for file in files if file.provisional and has_lines(file.path)]
        if not waiting:
            return False
        if sum(file.path.stat().st_size for file in waiting) > _INLINE_BYTES:
            return True
        with suppress(Unreachable):
            self.replica.fetch_stream(Stream("journal", PROJECT_JOURNAL))
            if self.sharing.purges and self.sharing.purges().is_waiting():
                return True  # the next synchronisation applies it first
            self.catch_up([*self.replica.deliver(stream).files.values()], wait_ms=250)
        return any(has_lines(file.path) for file in waiting)

    def _append(
        self, path: Path, records: Iterable[dict[str, object]], timeout: float = LOCK_SECONDS
    ) -> None:
        self._put(path, [*records], timeout=timeout)

    def _append_later(self, path: Path, records: list[dict[str, object]], timeout: float) -> None:
        jsonl.append_records(spool_file(path), records, timeout=timeout)

    def _put(
        self,
        path: Path,
        records: Sequence[Mapping[str, Any]],
        *,
        expected: int | None = None,
        timeout: float = LOCK_SECONDS,
    ) -> None:
        """Append records on the server, or keep them for it while it is away."""
        stream, day = self.replica.stream_of(path)
        lines = [jsonl.to_line(record) for record in records]
        wait = nullcontext() if self._leases.held else _short_wait(len(lines))
        try:
            with wait:
                self.replica.append(
                    stream, day, lines, leases=self._leases.held, expected=expected, timeout=timeout
                )
        except Unreachable:
            if self._leases.held:  # delivered later, it would no longer be alone
                raise
            self.replica.spool(path, records, timeout)

    def commit(self, facts: Sequence[Fact], events: Sequence[JournalEvent]) -> None:
        """Write facts and events, all or nothing; the lock "facts" is held.

        Where the server can, in one commit of it: a machine that dies leaves nothing half-done.

        Raises:
            LedgerError: nothing was written; or it is not known, and then all of it or nothing.
        """
        if not self.ledger.is_transactional:
            super().commit(facts, events)
            return
        started = time.monotonic()
        lines: dict[Stream, list[NewLine]] = {}
        in_order = sorted(events, key=lambda event: kind_order(event.kind))
        records: list[Fact | JournalEvent] = [*facts, *in_order]
        for record in records:
            journal = Stream("journal", PROJECT_JOURNAL)
            stream = Stream(record.tier) if isinstance(record, Fact) else journal
            data = jsonl.to_line(record.to_json())
            new = NewLine(f"{record.timestamp.astimezone(UTC):%Y-%m-%d}", line_key(data), data)
            lines.setdefault(stream, []).append(new)
        if lines:
            pass_point("before shared commit")
            self.replica.append_all(lines, self._leases.held)
            pass_point("after shared commit")
            self.catch_up(self._days_of(lines), wait_ms=250)
            self._announce([*facts, *events], started)

    def _days_of(self, lines: Mapping[Stream, Sequence[NewLine]]) -> list[LedgerFile]:
        days = {(stream, line.day) for stream, new in lines.items() for line in new}
        return [self.replica.file(stream, day) for stream, day in sorted(days, key=str)]

    def _renumber(self, stream: Stream, lines: Sequence[NewLine], renew: bool) -> Sequence[NewLine]:
        """Give entries that waited the turns after those that were stored meanwhile.

        Args:
            renew: others may have written since the last call.
        """
        if stream.ledger != "episodic":
            return lines
        records = [_entry_record(line.data) for line in lines]
        sessions = {str(record["session_id"]) for record in records if "session_id" in record}
        turns = self._turns.setdefault(stream, {})
        if renew:
            turns.clear()
        turns |= self._stored_turns(str(stream.owner), sessions - {*turns}, renew)
        numbered = []
        for line, record in zip(lines, records, strict=True):
            session, turn = str(record.get("session_id")), record.get("turn")
            if session in turns and isinstance(turn, int):
                if turn <= turns[session]:
                    turn = turns[session] + 1
                    line = line._replace(data=jsonl.to_line({**record, "turn": turn}))
                turns[session] = turn
            numbered.append(line)
        return numbered

    def _stored_turns(self, agent: str, sessions: Iterable[str], renew: bool) -> dict[str, int]:
        files = self._files_of("episodic", agent)
        try:
            with self.session():
                if not renew or self.catch_up(files, wait_ms=2000) is None:
                    reader = self.reader()
                    return {name: reader.last_stored_turn(agent, name) for name in sessions}
        except IndexProblem:
            pass
        turns = dict.fromkeys(sessions, 0)
        for file in (file for file in files if not file.provisional):
            for entry in parse_entries(file, jsonl.read_lines(file.path)[0]):
                if entry.session_id in turns:
                    turns[entry.session_id] = max(turns[entry.session_id], entry.turn)
        return turns

    # -- locks ---------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self, name: str, timeout: float = LOCK_SECONDS) -> Iterator[None]:
        """Hold one of the project's locks, on this machine and, by a lease, among all.

        Raises:
            LedgerError: the lock was not released in time, or the server is away.
        """
        with super().exclusive(name, timeout):
            if name in _LOCAL_LOCKS:
                yield
                return
            deadline = time.monotonic() + timeout
            while (lease := self.ledger.lease(name, LEASE_SECONDS)) is None:
                if time.monotonic() >= deadline:
                    raise LedgerError(f"another machine holds the lock {name!r}")
                time.sleep(0.1)
            with self._leases.holding(self.ledger, lease):
                self.sharing.sync()  # what the last holder did
                yield

    @contextmanager
    def try_exclusive(self, name: str) -> Iterator[bool]:
        """Try to hold a lock without waiting for another holder; yield whether it is held.

        Raises:
            LedgerError: the server is away, or refuses.
        """
        with super().try_exclusive(name) as held:
            if not held or name in _LOCAL_LOCKS:
                yield held
                return
            lease = self.ledger.lease(name, LEASE_SECONDS)
            if lease is None:
                yield False
                return
            with self._leases.holding(self.ledger, lease):
                self.sharing.sync()  # what the last holder did
                yield True

    def close(self) -> None:
        """Close the index and the connection to the server."""
        super().close()
        self.ledger.close()


def _short_wait(lines: int) -> AbstractContextManager[None]:
    """Wait for the server no longer than a run may be held up by writing these lines."""
    return answer_within(_WAIT_SECONDS + lines * _WAIT_SECONDS_A_LINE)


def _entry_record(data: bytes) -> dict[str, Any]:
    try:
        return jsonl.parse_line(jsonl.LedgerLine(1, 0, data))
    except ValueError:
        return {}
