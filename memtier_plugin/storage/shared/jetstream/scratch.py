"""Projects that a benchmark makes on a NATS server, measures and removes.

All machines are the user of the address, who may do all: users are in the server's configuration.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Literal, Self

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.jetstream.admin import prepare
from memtier_plugin.storage.shared.jetstream.ledger import NatsLedger
from memtier_plugin.storage.shared.jetstream.link import Address, Link
from memtier_plugin.storage.shared.jetstream.names import Names
from memtier_plugin.storage.shared.scratch import StoredLines


class ScratchStreams:
    """New streams, one a project; use it in a ``with`` block."""

    durability: Literal["os", "sync"] = "os"  # the most that one server promises
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = f"bench-{secrets.token_hex(4)}-"
        self._ledgers: dict[str, NatsLedger] = {}

    def __enter__(self) -> Self:
        """Make nothing yet: a stream is made for its first machine."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the streams."""
        for project, ledger in self._ledgers.items():
            ledger.close()
            link = Link(Address.of(self._url), Names(project).stream)
            with suppress(LedgerError):
                link.ask("STREAM.DELETE")
            link.close()

    def project(self, name: str) -> str:
        """Return the name of a project of this run."""
        return self._prefix + name

    def add_machine(self, project: str) -> str:
        """Return a machine's address; the project is made for its first.

        Raises:
            LedgerError: the server is away, or this user may not.
        """
        if project not in self._ledgers:
            prepare(self._url, project)
            self._ledgers[project] = NatsLedger(self._url, project, durable=False)
        return self._url

    def count_lines(self) -> int:
        """Return how many lines all projects have."""
        heads = (head for ledger in self._ledgers.values() for head in ledger.heads().values())
        return sum(head.offset for head in heads)

    def measure_lines(self) -> StoredLines:
        """Return what the streams take on the disk: lines, keys and subjects are not told apart."""
        size = 0
        for project in self._ledgers:
            link = Link(Address.of(self._url), Names(project).stream)
            size += int(link.ask("STREAM.INFO")["state"]["bytes"])
            link.close()
        return StoredLines(self.count_lines(), size, size, 0)

    def count_connections(self) -> dict[str, int]:
        """Return nothing: the server tells its connections to its operator alone."""
        return {}

    def count_statements(self) -> None:
        """Return None: the server does not count what it is asked."""

    def process_id(self) -> None:
        """Return None: the server does not say which process it is."""

    def version(self) -> str:
        """Return what the server is, for a report."""
        return "NATS JetStream, one server"
