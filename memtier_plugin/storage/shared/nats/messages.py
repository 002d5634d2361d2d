"""What the messages of a shared ledger in NATS contain.  Pure."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.storage.shared.protocol import NewLine, Purged

HEADER: Final = "MemTier"
KEY_BYTES: Final = 16


class Tip(NamedTuple):
    """A message of a stream's log, by its header; the last one says where the stream ends.

    ``first`` and ``number`` are of its lines, ``purge`` is the sequence number of the last purge up
    to here, and ``tag`` tells it from another message with the same number, of another past.
    """

    seq: int = 0
    tag: str = ""
    first: int = 1
    number: int = 0
    epoch: int = 0
    purge: int = 0
    days: tuple[str, ...] = ()

    @property
    def head(self) -> int:
        """The offset of the last line up to here."""
        return self.first + self.number - 1

    def header(self) -> dict[str, str]:
        """Return the message's header."""
        values = (self.tag, self.first, self.number, self.epoch, self.purge, self.days)
        return {HEADER: json.dumps(values, separators=(",", ":"))}


def parse_tip(seq: int, headers: Mapping[str, str]) -> Tip:
    """Return what the header of a message says; a purge's names itself as the last.

    Raises:
        LedgerError: it is not one of a shared ledger.
    """
    try:
        tag, first, number, epoch, purge, days = parse_json_text(headers[HEADER])
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            f"message {seq} on the server is none of MemTier's: remove it with `nats stream rmm`"
        ) from error
    return Tip(seq, tag, first, number, epoch, purge if number else seq, tuple(days))


class LineBatch(NamedTuple):
    """Lines that were appended together, and the sequence number of the message they are in."""

    seq: int
    first: int
    lines: Sequence[NewLine]


def pack_lines(lines: Sequence[NewLine]) -> bytes:
    """Return the body of a message with lines."""
    days = [[day, len([*group])] for day, group in groupby(line.day for line in lines)]
    keys = b64encode(b"".join(line.key for line in lines)).decode()
    sizes = [len(line.data) for line in lines]
    top = json.dumps([days, keys, sizes], separators=(",", ":")).encode()
    return b"\n".join((top, b"".join(line.data for line in lines)))


def parse_lines(body: bytes) -> list[NewLine]:
    """Return the lines in the body of a message."""
    top, _, data = body.partition(b"\n")
    groups, packed, sizes = json.loads(top)
    days = [day for day, number in groups for _ in range(number)]
    keys = unpack_keys(b64decode(packed))
    ends = pairwise(accumulate(sizes, initial=0))
    return [
        NewLine(day, key, data[start:end])
        for day, key, (start, end) in zip(days, keys, ends, strict=True)
    ]


def unpack_keys(packed: bytes) -> list[bytes]:
    """Return keys that were joined."""
    return [packed[n : n + KEY_BYTES] for n in range(0, len(packed), KEY_BYTES)]


class Patch(NamedTuple):
    """Where lines are now whose message a purge erased, and where they were."""

    first: int
    number: int
    old: int
    new: int
    days: tuple[str, ...]

    @property
    def last(self) -> int:
        """The offset of its last line."""
        return self.first + self.number - 1


class PurgeRecord(NamedTuple):
    """A purge as the log has it: ``before`` is the sequence number of the one before it."""

    purged: Purged
    before: int
    patches: Sequence[Patch]


def pack_purge(record: PurgeRecord) -> bytes:
    """Return the body of a purge's message."""
    return json.dumps([*record.purged, record.before, record.patches]).encode()


def parse_purge(body: bytes) -> PurgeRecord:
    """Return the purge that a body tells of."""
    values: list[Any] = json.loads(body)
    epoch, offsets, reason, before, patches = values
    return PurgeRecord(
        Purged(epoch, tuple(offsets), reason),
        before,
        [Patch(first, count, old, new, tuple(days)) for first, count, old, new, days in patches],
    )
