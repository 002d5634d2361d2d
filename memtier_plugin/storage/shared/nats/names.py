"""The names of a project in NATS, and the permissions of a machine's user.  Pure.

One JetStream stream holds a project.  Its subjects, after the project's own two tokens:

    line.LEDGER.OWNER      what is appended, and where a purge took effect
    again.LEDGER.OWNER     what replaced the messages that a purge erased
    keys.LEDGER.OWNER      the keys of the lines so far, so that nobody reads all lines for them
    at.MACHINE.LEDGER.OWNER  how far a machine has followed
    lease.JOB              who does this work
    changed                not stored: heard by those who wait
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from memtier_plugin.storage.shared.protocol import Stream

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
