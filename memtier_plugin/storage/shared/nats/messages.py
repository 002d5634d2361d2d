"""Names and messages of a shared ledger in NATS, and a machine's permissions.  Pure."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.storage.shared.protocol import NewLine, Purged, Stream

# -- The names of a project in NATS, and the permissions of a machine's user.  Pure
#
# One JetStream stream holds a project.  Its subjects, after the project's own two tokens:
#
#     line.LEDGER.OWNER      what is appended, and where a purge took effect
#     again.LEDGER.OWNER     what replaced the messages that a purge erased
#     keys.LEDGER.OWNER      the keys of the lines so far, so that nobody reads all lines for them
#     at.MACHINE.LEDGER.OWNER  how far a machine has followed
#     lease.JOB              who does this work
#     changed                not stored: heard by those who wait

KINDS: Final = ("line", "again", "keys", "at", "lease")
_NOBODY: Final = "="  # the owner of a shared tier: no encoded name has this character


def encode(name: str) -> str:
    """Encode a name as one token of a subject."""
    return quote_from_bytes(name.encode("utf-8", "surrogatepass"), safe="").replace(".", "%2E")


def decode(token: str) -> str:
    """Return the name that `encode` encoded."""
    return unquote_to_bytes(token).decode("utf-8", "surrogatepass")


class Names(NamedTuple):
    """The names of a project; ``agent`` if the machine is limited to one agent's own ledgers."""

    project: str
    agent: str | None = None

    @property
    def stream(self) -> str:
        """The JetStream stream."""
        return f"memtier_{encode(self.project)}"

    @property
    def changed(self) -> str:
        """The subject on which a change is told."""
        return self.subject("changed")

    def subject(self, kind: str, *rest: str) -> str:
        """Return a subject of the project."""
        return ".".join(("memtier", encode(self.project), kind, *rest))

    def of(self, kind: str, stream: Stream) -> str:
        """Return the subject that a kind of message about a stream has."""
        return self.subject(kind, *_tokens(stream))

    def all_of(self, kind: str, *rest: str) -> list[str]:
        """Return the subjects of a kind that this machine may read, by patterns."""
        if self.agent is None:
            return [self.subject(kind, *rest, "*", "*")]
        return [self.subject(kind, *rest, *_tokens(stream)) for stream in self._streams()]

    def may_read(self, stream: Stream) -> bool:
        """Return whether this machine may read a stream."""
        return self.agent is None or stream in self._streams()

    def _streams(self) -> tuple[Stream, ...]:
        """Return what a machine that is limited to one agent may read."""
        return (
            *(Stream(ledger, self.agent) for ledger in ("episodic", "journal")),
            *(Stream(ledger) for ledger in ("semantic", "procedural")),
            Stream("journal", "_project"),
        )


def _tokens(stream: Stream) -> tuple[str, str]:
    return stream.ledger, _NOBODY if stream.owner is None else encode(stream.owner)


def stream_of(subject: str) -> Stream:
    """Return the stream that a subject is about."""
    *_, ledger, owner = subject.split(".")
    return Stream(ledger, None if owner == _NOBODY else decode(owner))


def inbox(user: str) -> str:
    """Return the prefix of what is answered to a user: no other may listen there."""
    return f"_INBOX_{encode(user)}"


def permissions(names: Names, user: str, *, read_only: bool = False) -> str:
    """Return what the server's configuration must say of a machine's user."""
    api = f"$JS.API.%s.{names.stream}"
    publish = [
        *names.all_of("at", encode(user)),
        api % "STREAM.INFO",
        f"{api % 'CONSUMER.MSG.NEXT'}.*",
        f"{api % 'CONSUMER.DELETE'}.*",
    ]
    readable = [pattern for kind in ("line", "again", "keys") for pattern in names.all_of(kind)]
    readable += [*names.all_of("at", "*"), names.subject("lease", "*")]
    publish += [f"{api % 'CONSUMER.CREATE'}.*.{subject}" for subject in readable]
    if not read_only:
        publish += [pattern for kind in ("line", "again", "keys") for pattern in names.all_of(kind)]
        publish += [names.subject("lease", "*"), names.changed]
        if names.agent is None:
            publish += [api % "STREAM.MSG.DELETE"]
    subscribe = [f"{inbox(user)}.>", names.changed]
    lines = [f'{{ user: "{user}", password: "...", permissions: {{']
    for verb, subjects in (("publish", publish), ("subscribe", subscribe)):
        lines += [f"    {verb}: [", *(f'      "{subject}",' for subject in subjects), "    ]"]
    return "\n".join([*lines, "} }"])


# -- What the messages of a shared ledger in NATS contain.  Pure

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
            f"message {seq} on the server is not MemTier's: remove it with `nats stream rmm`"
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
