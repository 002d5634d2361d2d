"""This machine's copy of a shared project: the same ledger files, byte for byte.

Only this writes the day files of a shared project.  What waits for the server lies beside them in
spool files, which are read like ledgers, and leaves them once it was delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.files import hold_lock, pass_point
from memtier_plugin.core.paths import (
    SHARED_FOLDER,
    ProjectFolder,
    decode_file_name,
    make_ledger_folder,
)
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import LedgerFile, ledger_files, spool_file
from memtier_plugin.storage.shared.copied_files import (
    LOCK_SECONDS,
    Damaged,
    Mark,
    Synced,
    check_files,
    copied_streams,
    copy_start,
    digest,
    forget_seals,
    has_lines,
    hold_in_time,
    lost_records,
    mark_path,
    new_lines,
    read_mark,
    replace_file,
    set_aside,
    take_start,
    write_at,
    write_mark,
)
from memtier_plugin.storage.shared.protocol import (
    BATCH,
    NO_LINES,
    Head,
    Lease,
    Moved,
    NewLine,
    Part,
    Refused,
    SharedLedger,
    SharedLine,
    Stream,
    Unreachable,
    line_key,
)

_SPOOL_BYTES: Final = 1024 * 1024  # of a spool that are delivered at a time, at least
_SPOOL_PARTS: Final = 16  # of a large one, as after each what is left is written anew

# Numbers the turns of waiting lines; told whether others may have written since the last call.
Renumber = Callable[[Stream, Sequence[NewLine], bool], Sequence[NewLine]]


class Replica:
    """The local ledger files of one shared project, and their marks."""

    def __init__(
        self,
        folder: ProjectFolder,
        project: str,
        ledger: SharedLedger,
        durability: jsonl.Durability,
        renumber: Renumber,
    ) -> None:
        self.path = folder.path
        self.ledger = ledger
        self._home = folder.home
        self._project = project
        self._durability = durability
        self._renumber = renumber
        self._ended: dict[Stream, int] = {}  # where the last delivery ended
        self._rescued = 0  # times; each puts lines before those that wait
        self._compared: set[Stream] = set()  # with the server's, since it was last away
        self._known: set[Stream] | None = None  # what the server had, since it was last away
        self._looked: set[Stream] = set()  # whose files were, for what somebody else changed
        folder.make(SHARED_FOLDER)

    # -- streams and files ---------------------------------------------------------------------

    def stream_of(self, path: Path) -> tuple[Stream, str]:
        """Return the stream and the day of a ledger file."""
        ledger, *rest = path.relative_to(self.path).parts
        owner = decode_file_name(self.path / ledger, rest[0]) if len(rest) > 1 else None
        return Stream(ledger, owner), path.stem

    def offset(self, stream: Stream) -> int:
        """Return the offset up to which this machine has a stream."""
        return read_mark(self.path, stream).offset

    def spooled(self) -> list[LedgerFile]:
        """Return the files with lines that wait for the server."""
        return [f for f in ledger_files(self.path) if f.provisional and has_lines(f.path)]

    def file(self, stream: Stream, day: str) -> LedgerFile:
        """Return the file of a day's lines that have their place."""
        return self._file(stream, self._folder(stream) / f"{day}.jsonl")

    def _folder(self, stream: Stream) -> Path:
        return make_ledger_folder(self._home, self._project, stream.ledger, stream.owner)

    def _file(self, stream: Stream, path: Path) -> LedgerFile:
        return LedgerFile(path, str(path.relative_to(self.path)), stream.ledger, stream.owner)

    @contextmanager
    def _locked(self, stream: Stream, timeout: float = LOCK_SECONDS) -> Iterator[None]:
        """Keep other processes out; one of them may wait for a server that stands still."""
        path = mark_path(self.path, stream).with_suffix(".lock")
        with hold_in_time(path, timeout), self._watching():
            yield

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Notice when the server is away: what comes back may be another, which lost its end."""
        try:
            yield
        except Unreachable:
            self._compared.clear()
            self._known = None
            raise

    def copy_stream(self, stream: Stream, into: Path) -> Mark:
        """Copy a stream's files up to its mark below a folder; return the mark.

        Raises:
            LedgerError: a file is not what its mark says; the next synchronisation mends it.
        """
        with self._locked(stream):
            mark, folder = read_mark(self.path, stream), self._folder(stream)
            target = into / folder.relative_to(self.path)
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            for day, size in mark.sizes.items():
                copy_start(folder / f"{day}.jsonl", target / f"{day}.jsonl", size)
        return mark

    # -- writing -------------------------------------------------------------------------------

    def append(
        self,
        stream: Stream,
        day: str,
        lines: Sequence[bytes],
        *,
        leases: Sequence[Lease] = (),
        expected: int | None = None,
        timeout: float = LOCK_SECONDS,
    ) -> None:
        """Append lines on the server, and then here.

        Args:
            expected: the offset that the lines were made for; None if they fit anywhere.

        Raises:
            Moved: the stream has more lines than expected; they are here now.
            Unreachable: whether the lines were written is not known.
        """
        new = [NewLine(day, line_key(line), line) for line in lines]
        with self._locked(stream, timeout):
            while True:
                if stream not in self._compared:
                    self._pull(stream, self._head(stream), Synced())
                mark = read_mark(self.path, stream)
                if expected is not None and mark.offset != expected:
                    raise Moved(f"{stream} has grown")
                try:
                    done = self.ledger.append(stream, mark.offset, new, leases)
                except Moved:
                    self._pull(stream, self._head(stream), Synced())
                    if expected is not None:
                        raise
                    continue
                if done.now:
                    self._take(stream, mark, new)
                    return
                self._pull(stream, self._head(stream), Synced())
                if expected is not None:
                    raise Moved(f"{stream} has these lines already")
                return

    def append_all(
        self, lines: Mapping[Stream, Sequence[NewLine]], leases: Sequence[Lease] = ()
    ) -> None:
        """Append lines to several streams on the server, all or none, and then here.

        Raises:
            LeaseLost: nothing was written.
            Unreachable: whether the lines were written is not known.
        """
        streams = sorted(lines, key=lambda stream: (stream.ledger, stream.owner or ""))
        with ExitStack() as locks:
            for stream in streams:
                locks.enter_context(self._locked(stream))
            while True:
                marks = {stream: read_mark(self.path, stream) for stream in streams}
                parts = [Part(stream, marks[stream].offset, lines[stream]) for stream in streams]
                try:
                    now = self.ledger.append_all(parts, leases)
                    break
                except Moved:
                    for stream in streams:
                        self._pull(stream, self._head(stream), Synced())
            for stream in streams:
                if now:
                    self._take(stream, marks[stream], lines[stream])
                else:
                    self._pull(stream, self._head(stream), Synced())

    def spool(
        self, path: Path, records: Iterable[Mapping[str, Any]], timeout: float = LOCK_SECONDS
    ) -> None:
        """Keep records for the server, on the disk if the settings say so."""
        jsonl.append_records(
            spool_file(path), records, durability=self._durability, timeout=timeout
        )

    def _take(self, stream: Stream, mark: Mark, lines: Sequence[NewLine]) -> None:
        """Write here what the server has just appended."""
        pass_point("after shared append")
        numbered = [
            SharedLine(mark.offset + n, line.day, line.data) for n, line in enumerate(lines, 1)
        ]
        try:
            after = self._write(stream, mark, numbered, Synced())
            write_mark(self.path, stream, after)
            if not mark.offset:  # from now on a purge waits for this machine
                self.ledger.acknowledge(stream, after.offset, after.epoch)
        except Damaged:
            self._pull(stream, self._head(stream), Synced())

    # -- following -----------------------------------------------------------------------------

    def sync(self, stop: Callable[[], bool] = lambda: False) -> Synced:
        """Fetch what is new on the server and deliver what waits for it.

        Raises:
            Unreachable, Refused: the server; what was done stays done.
            LedgerError: a file cannot be written.
        """
        synced = self.fetch(stop)
        self.deliver_waiting(synced, stop)
        return synced

    def fetch(self, stop: Callable[[], bool] = lambda: False) -> Synced:
        """Fetch what is new on the server; raises as `sync` does."""
        with self._watching():
            heads, synced = self.ledger.heads(), Synced()
            if self._known is None or not self._known <= heads.keys():
                heads |= dict.fromkeys(self._missing(heads), NO_LINES)
        if not heads and (self._known or copied_streams(self.path)):
            raise Refused("this machine may not read the project any more: its copy stays as it is")
        self._known = {*heads}  # before they are copied: lines without a mark may stay, too
        for stream, head in heads.items():
            mark = read_mark(self.path, stream)
            if stop():
                return synced
            moved = (mark.offset, mark.epoch) != (head.offset, head.epoch)
            if moved or stream not in self._compared:
                with self._locked(stream):
                    self._pull(stream, self._head(stream), synced)
                    if stream not in self._looked:
                        self._mend(stream, synced)
                        self._looked.add(stream)
        return synced

    def _missing(self, heads: Container[Stream]) -> list[Stream]:
        """Return the streams that the server has lost whole, as a backup was older than them."""
        here = copied_streams(self.path)
        return [name for name in here if name not in heads and self.ledger.may_read(name)]

    def fetch_stream(self, stream: Stream) -> None:
        """Fetch what is new of one stream; raises as `sync` does."""
        with self._locked(stream):
            self._pull(stream, self._head(stream), Synced())

    def deliver_waiting(self, synced: Synced, stop: Callable[[], bool] = lambda: False) -> None:
        """Deliver what waits for the server; raises as `sync` does."""
        for stream in dict.fromkeys(Stream(f.ledger, f.owner) for f in self.spooled()):
            try:
                self._deliver(stream, synced, stop)
            except Refused as error:  # this machine may only read it
                synced.refused = str(error)

    def _head(self, stream: Stream) -> Head:
        """Return where a stream ends; a granted one that is new, or was lost, has no lines.

        Raises:
            Refused: it was here, and is not shown any more: what was copied is left as it is.
        """
        head = self.ledger.heads().get(stream)
        if head is None and self.offset(stream) and not self.ledger.may_read(stream):
            raise Refused(f"this machine may not read {stream.ledger} of {stream.owner} any more")
        return head or NO_LINES

    def _pull(self, stream: Stream, head: Head, synced: Synced) -> None:
        """Copy a locked stream up to its head."""
        before = read_mark(self.path, stream)
        try:
            mark = self._pull_from(stream, before, head, synced)
        except Damaged:
            mark = self._pull_from(stream, self._rescue(stream, head), head, synced)
        # Purges are confirmed again at each start: the last process may have ended before it did.
        if mark != before or (mark.epoch and stream not in self._compared):
            self.ledger.acknowledge(stream, mark.offset, mark.epoch)
        self._compared.add(stream)

    def _pull_from(self, stream: Stream, mark: Mark, head: Head, synced: Synced) -> Mark:
        if head.offset < mark.offset or head.epoch < mark.epoch:
            mark = self._rescue(stream, head)
        elif head.epoch > mark.epoch:
            mark = self._apply_purges(stream, mark, head, synced)
        while True:
            lines = self.ledger.read(stream, max(0, mark.offset - 1), BATCH)
            if mark.offset:
                if not lines or digest(lines[0].data) != mark.tail:
                    mark = self._rescue(stream, head)
                    continue
                lines = lines[1:]
            if not lines:
                break
            mark = self._write(stream, mark, lines, synced)
            write_mark(self.path, stream, mark)
            synced.pulled += len(lines)
        return mark

    def _write(
        self, stream: Stream, mark: Mark, lines: Sequence[SharedLine], synced: Synced
    ) -> Mark:
        """Write lines to the files of their days; return the mark after them.

        Raises:
            Damaged: a file is not what its mark says.
        """
        folder, sizes = self._folder(stream), dict(mark.sizes)
        for day, group in groupby(lines, key=lambda line: line.day):
            data = b"".join(line.data for line in group)
            path = folder / f"{day}.jsonl"
            with hold_lock(path, LOCK_SECONDS) as fd:
                write_at(path, fd, sizes.get(day, 0), data)
            sizes[day] = sizes.get(day, 0) + len(data)
            file = self._file(stream, path)
            synced.files[file.name] = file
        return Mark(mark.epoch, lines[-1].offset, digest(lines[-1].data), sizes)

    def _apply_purges(self, stream: Stream, mark: Mark, head: Head, synced: Synced) -> Mark:
        """Replace the days' files that a purge changed by what the server has."""
        purges = self.ledger.purged(stream, mark.epoch)
        offsets = {n for purge in purges for n in purge.offsets if n <= mark.offset}
        sizes = dict(mark.sizes)
        for day in sorted(self.ledger.days_of(stream, offsets)):
            sizes[day], file = self._restore_day(stream, day, mark.offset), self.file(stream, day)
            synced.files[file.name] = file
        synced.purged |= any(purge.reason == "purge" for purge in purges)
        last = self.ledger.read(stream, mark.offset - 1, 1) if mark.offset else ()
        tail = digest(last[0].data) if last else ""
        mark = replace(mark, epoch=head.epoch, tail=tail, sizes=sizes)
        write_mark(self.path, stream, mark)
        return mark

    def _restore_day(self, stream: Stream, day: str, offset: int) -> int:
        """Let a day's file be what the server has of it, up to an offset; return its size."""
        lines = (s.data for s in self.ledger.day_lines(stream, day) if s.offset <= offset)
        forget_seals(self._seals(stream), day)
        return replace_file(self.file(stream, day).path, lines)

    def _seals(self, stream: Stream) -> Path:
        return mark_path(self.path, stream).with_suffix(".seals")

    def _mend(self, stream: Stream, synced: Synced) -> None:
        """Mend what somebody else changed of a locked stream's files since the last look."""

        def mend(day: str) -> None:
            mark, file = read_mark(self.path, stream), self.file(stream, day)
            for lost in lost_records(file.path, partial(self.ledger.delivered, stream)):
                self.spool(file.path, lost)
            size = {day: self._restore_day(stream, day, mark.offset)}
            write_mark(self.path, stream, replace(mark, sizes={**mark.sizes, **size}))
            synced.files[file.name] = file

        before = read_mark(self.path, stream)
        check_files(self._folder(stream), before.sizes, self._seals(stream), mend)

    def _rescue(self, stream: Stream, head: Head) -> Mark:
        """Return the mark from which to copy all again, as this copy is not the server's.

        The server may have lost its end: a standby took over that lacked the last moments, or a
        backup was restored; or somebody changed the files here.  Lines that only this machine has
        may have been acknowledged: they are delivered again.
        """
        set_aside(self._folder(stream), partial(self.ledger.delivered, stream))
        self._rescued += 1
        write_mark(self.path, stream, mark := Mark(epoch=head.epoch))
        forget_seals(self._seals(stream))
        return mark

    # -- the spool -----------------------------------------------------------------------------

    def deliver(self, stream: Stream) -> Synced:
        """Deliver what waits of one stream; raises as `sync` does."""
        self._deliver(stream, synced := Synced(), lambda: False)
        return synced

    def _deliver(self, stream: Stream, synced: Synced, stop: Callable[[], bool]) -> None:
        """Send waiting lines, oldest first, each once, even after an interrupted sender."""
        files = [f for f in self.spooled() if (f.ledger, f.owner) == (stream.ledger, stream.owner)]
        for file in files:
            while not stop():
                with self._locked(stream):
                    left = self._deliver_some(stream, file, synced)
                synced.files[file.name] = file
                if not left:
                    break

    def _deliver_some(self, stream: Stream, file: LedgerFile, synced: Synced) -> bool:
        """Send a part of a spool and remove it from there; return whether more is there."""
        limit = max(_SPOOL_BYTES, file.path.stat().st_size // _SPOOL_PARTS)
        lines = jsonl.read_lines(file.path, None, limit)[0]
        rescued = self._rescued
        for start in range(0, len(lines), BATCH):
            sent = self._deliver_lines(stream, file, lines[start : start + BATCH], synced)
            if not sent or self._rescued != rescued:
                return True
        return take_start(file.path, sum(len(line.data) for line in lines))

    def _deliver_lines(
        self, stream: Stream, file: LedgerFile, lines: Sequence[jsonl.LedgerLine], synced: Synced
    ) -> bool:
        """Send lines of a spool; return whether the server has them now."""
        new = new_lines(lines, file.day)
        known = self.ledger.delivered(stream, [*new]) if new else set()
        rest = [line._replace(key=key) for key, line in new.items() if key not in known]
        if not rest:
            return True
        rescued = self._rescued
        self._pull(stream, self._head(stream), synced)
        if self._rescued != rescued:
            return False
        mark = read_mark(self.path, stream)
        rest = [*self._renumber(stream, rest, mark.offset != self._ended.get(stream))]
        try:
            if not self.ledger.append(stream, mark.offset, rest).now:
                return False
        except Moved:
            return False
        pass_point("after shared delivery")
        self._take(stream, mark, rest)
        self._ended[stream] = mark.offset + len(rest)
        synced.files[file.settled.name] = file.settled
        synced.delivered += len(rest)
        return True

    # -- replacing -----------------------------------------------------------------------------

    def replace_lines(self, file: LedgerFile, change: Callable[[bytes], bytes], reason: str) -> int:
        """Replace lines of a day's file on the server, and then here; return how many.

        Raises:
            Unreachable, Refused: nothing was replaced.
            LedgerError: this copy is not that of the server; the next synchronisation mends it.
        """
        stream = Stream(file.ledger, file.owner)
        with self._locked(stream):
            while True:
                self._pull(stream, self._head(stream), Synced())
                epoch = read_mark(self.path, stream).epoch
                changed = [
                    (line.offset, fresh)
                    for line in self.ledger.day_lines(stream, file.day)
                    if (fresh := change(line.data)) != line.data
                ]
                if not changed:
                    break
                try:
                    self.ledger.purge(stream, changed, reason, epoch)
                except Moved:  # else what another purge removed would come back
                    continue
                pass_point("after shared purge")
                self._pull(stream, self._head(stream), Synced())
                break
        return len(changed)
