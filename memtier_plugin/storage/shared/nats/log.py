"""The logs of a project's streams in NATS: where they end, their lines, and the keys of these."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.nats.link import Behind, Link, StoredMessage
from memtier_plugin.storage.shared.nats.messages import (
    HEADER,
    LineBatch,
    Names,
    Patch,
    PurgeRecord,
    Tip,
    parse_lines,
    parse_purge,
    parse_tip,
    stream_of,
    unpack_keys,
)
from memtier_plugin.storage.shared.protocol import BATCH, NewLine, Refused, Stream

EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence"
_BLOCK: Final = 4096  # keys that are stored together
_NEAR: Final = 500  # lines that are read past rather than searched for a better start
_MESSAGES: Final = 256  # asked for at a time


class _Gap(Exception):
    """Lines are not where they were: a purge moved them, or the server has another past."""


@dataclass(slots=True)
class Known:
    """What this process knows of a stream."""

    tip: Tip = field(default_factory=Tip)
    purges: list[PurgeRecord] = field(default_factory=list)
    keys: set[bytes] | None = None  # of the lines up to the tip
    loose: list[bytes] = field(default_factory=list)  # those of them that are in no block
    block: int = 0  # sequence number of the last block of keys
    # Lines from an offset on are in messages from a sequence number on.
    points: list[tuple[int, int]] = field(default_factory=lambda: [(1, 1)])

    def patches(self) -> list[Patch]:
        """Return where the lines of erased messages are, by offset."""
        return sorted({patch.first: patch for p in self.purges for patch in p.patches}.values())


class Logs:
    """The logs that a machine may read, and what this process knows of them; not thread-safe."""

    def __init__(self, link: Link, names: Names) -> None:
        self._link = link
        self._names = names
        self._known: dict[Stream, Known] = {}
        self._stores_keys = True

    def forget(self, stream: Stream) -> None:
        """Forget a stream whose last message is not known."""
        self._known.pop(stream, None)

    def last(self, pattern: str, *, headers: bool = False) -> list[StoredMessage]:
        with self._link.reader(pattern, headers=headers, last=True) as reader:
            return reader.take(reader.left)

    def tips(self, pattern: str) -> dict[Stream, Tip]:
        return {
            stream_of(message.subject): parse_tip(message.seq, message.headers)
            for message in self.last(pattern, headers=True)
        }

    def note(self, stream: Stream, tip: Tip) -> Known:
        """Note where a stream ends; what is known of another past is forgotten."""
        known = self._known.setdefault(stream, Known())
        if (tip.seq, tip.tag) == (known.tip.seq, known.tip.tag):
            return known
        rewritten = tip.epoch == known.tip.epoch and tip.purge != known.tip.purge
        if rewritten or tip.seq <= known.tip.seq or tip.epoch < known.tip.epoch:
            known = self._known[stream] = Known()
        if known.keys is None:
            known.tip = tip
        elif tip.epoch != known.tip.epoch:
            self._known[stream] = known = Known(tip, points=known.points)
        return known

    def _look(self, stream: Stream) -> Tip:
        """Return where a stream ends now."""
        return self.tips(self._names.of("line", stream)).get(stream, Tip())

    def purges_of(self, stream: Stream) -> Known:
        """Return what is known of a stream, with all purges up to its tip."""
        known = self._known.get(stream) or self.note(stream, self._look(stream))
        news: list[PurgeRecord] = []
        number = known.tip.purge
        done = known.purges[-1].purged.epoch if known.purges else 0
        epoch = known.tip.epoch
        while epoch > done and number:
            with self._link.reader(self._names.of("line", stream), number) as reader:
                [message] = reader.take(1)
            record = parse_purge(message.data)
            news.insert(0, record)
            number, epoch = record.before, record.purged.epoch - 1
        known.purges += news
        return known

    def batches(self, stream: Stream, offset: int, lines: int) -> Iterator[LineBatch]:
        """Yield the appended lines from the message on that has an offset.

        Args:
            lines: how many are likely wanted.
        """
        try:
            yield from self._from(stream, offset, lines)
        except _Gap as gap:
            self._known.pop(stream, None)
            again = int(str(gap))
            try:
                yield from self._from(stream, again, lines)
            except _Gap as error:
                raise LedgerError(
                    f"lines of {stream} from {again} on are not on the server"
                ) from error

    def _from(self, stream: Stream, offset: int, lines: int) -> Iterator[LineBatch]:
        known = self.purges_of(stream)
        patches = known.patches()
        moved = {patch.first for patch in patches}
        wanted, start = 4, self._seek(stream, known, offset)
        with self._link.reader(self._names.of("line", stream), start) as reader:
            while messages := reader.take(wanted):
                before = offset
                for message in messages:
                    tip = parse_tip(message.seq, message.headers)
                    while offset < tip.first:
                        patch = _patch_of(patches, offset)
                        yield LineBatch(patch.new, patch.first, self._lines_again(stream, patch))
                        offset = patch.last + 1
                    if not tip.number or tip.head < offset or tip.first in moved:
                        continue
                    yield LineBatch(message.seq, tip.first, parse_lines(message.data))
                    offset = tip.head + 1
                    if offset - known.points[-1][0] > _NEAR // 4:
                        insort(known.points, (offset, message.seq + 1))
                each = max(1, (offset - before) // len(messages))
                wanted = min(_MESSAGES, 1 + lines // each)

    def _lines_again(self, stream: Stream, patch: Patch) -> list[NewLine]:
        """Return the lines that are stored again."""
        with self._link.reader(self._names.of("again", stream), patch.new) as reader:
            for message in reader.take(1):
                if message.seq == patch.new:
                    return parse_lines(message.data)
        raise _Gap(patch.first)

    def days(self, stream: Stream, day: str) -> Iterator[LineBatch]:
        """Yield messages, among them all with lines of a day; the headers tell where these are."""
        spans = [(p.first, p.last) for p in self.purges_of(stream).patches() if day in p.days]
        with self._link.reader(self._names.of("line", stream), headers=True) as reader:
            while messages := reader.take(_MESSAGES):
                tips = [parse_tip(message.seq, message.headers) for message in messages]
                spans += [(tip.first, tip.head) for tip in tips if day in tip.days]
        if spans:
            last = max(end for _, end in spans)
            for batch in self.batches(stream, min(start for start, _ in spans), BATCH):
                if batch.first > last:
                    break
                yield batch

    def touched(self, stream: Stream, offsets: set[int]) -> Iterator[LineBatch]:
        """Yield the messages that have any of these lines."""
        left = sorted(offsets, reverse=True)
        while left:
            for batch in self.batches(stream, left[-1], len(left)):
                end = batch.first + len(batch.lines)
                some = bool(left) and left[-1] < end
                while left and left[-1] < end:
                    left.pop()
                if some:
                    yield batch
                if not left or left[-1] - end > _NEAR:
                    break
            else:
                return

    def _seek(self, stream: Stream, known: Known, offset: int) -> int:
        """Return a sequence number from which on the messages with these lines are."""
        points, subject = known.points, self._names.of("line", stream)
        index = bisect_right(points, (offset, inf)) - 1
        first, low = points[index]
        high = points[index + 1][1] if index + 1 < len(points) else known.tip.seq + 1
        if offset - first <= _NEAR:
            return low
        while high - low > 1 and offset - first > _NEAR:
            middle = (low + high) // 2
            with self._link.reader(subject, middle, headers=True) as reader:
                messages = reader.take(1)
            tip = parse_tip(messages[0].seq, messages[0].headers) if messages else Tip()
            if not messages or tip.seq >= high or tip.first > offset:
                high = middle
            else:
                first, low = tip.first, tip.seq
        if (first, low) not in points:
            insort(points, (first, low))
        return low

    # -- keys ----------------------------------------------------------------------------------

    def loaded(self, stream: Stream) -> tuple[Known, bool]:
        """Return what is known of a stream with its keys, and whether it was read just now."""
        known = self._known.get(stream)
        if known is not None and known.keys is not None:
            return known, False
        return self.refresh(stream), True

    def refresh(self, stream: Stream) -> Known:
        """Read what a stream has that is not known yet; return it with all keys."""
        while True:
            tip = self._look(stream)
            known = self.note(stream, tip)
            if known.keys is None:
                self._load_keys(stream, known)
            elif known.tip != tip and not self._same_past(stream, known):
                self._known.pop(stream)
                continue
            elif known.tip != tip:
                keys = self._keys_between(stream, known.tip.head + 1, tip)
                known.tip = tip
                self.add_keys(stream, known, keys)
            if known.keys is not None:
                return known

    def _same_past(self, stream: Stream, known: Known) -> bool:
        """Return whether the message that was the last one is still there."""
        if not known.tip.seq:
            return True
        subject = self._names.of("line", stream)
        with self._link.reader(subject, known.tip.seq, headers=True) as reader:
            messages = reader.take(1)
        return bool(messages) and parse_tip(messages[0].seq, messages[0].headers) == known.tip

    def _keys_between(self, stream: Stream, offset: int, tip: Tip) -> list[bytes]:
        """Return the keys of the lines from an offset to the tip."""
        keys: list[bytes] = []
        if offset <= tip.head:
            for batch in self.batches(stream, offset, BATCH):
                lines = [*enumerate(batch.lines, batch.first)]
                keys += [line.key for n, line in lines if offset <= n <= tip.head]
                if batch.first + len(lines) > tip.head:
                    break
        return keys

    def _load_keys(self, stream: Stream, known: Known) -> None:
        """Read the keys of all lines: those in blocks, and those of the lines since."""
        known.keys, known.loose, upto = set(), [], 0
        with self._link.reader(self._names.of("keys", stream)) as reader:
            while messages := reader.take(_MESSAGES):
                for message in messages:
                    known.keys.update(unpack_keys(message.data))
                    upto, known.block = int(message.headers[HEADER]), message.seq
        self.add_keys(stream, known, self._keys_between(stream, upto + 1, known.tip))

    def add_keys(self, stream: Stream, known: Known, keys: Sequence[bytes]) -> None:
        """Note the keys of the last lines up to the tip; store them where they fill a block."""
        if known.keys is None:
            return
        known.keys.update(keys)
        known.loose += keys
        subject = self._names.of("keys", stream)
        while len(known.loose) >= _BLOCK and self._stores_keys:
            upto = known.tip.head - len(known.loose) + _BLOCK
            headers = {HEADER: str(upto), EXPECTED_SUBJECT: str(known.block)}
            try:
                block = b"".join(known.loose[:_BLOCK])
                known.block = self._link.publish(subject, block, headers)
            except Behind:  # another stored one: read all again
                known.keys = None
                return
            except Refused:  # it may read only
                self._stores_keys = False
            else:
                del known.loose[:_BLOCK]


def _patch_of(patches: Sequence[Patch], offset: int) -> Patch:
    """Return where a line is now.

    Raises:
        _Gap: with the offset, if no purge that is known moved it.
    """
    index = bisect_right(patches, offset, key=lambda patch: patch.first) - 1
    if index < 0 or patches[index].last < offset:
        raise _Gap(offset)
    return patches[index]
