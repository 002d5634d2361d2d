"""Which server holds the shared ledger: the scheme of its address says so."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from memtier_plugin.storage.shared.protocol import MachineGrant, SharedLedger


def is_nats(url: str) -> bool:
    """Return whether an address is that of a NATS server."""
    return urlsplit(url).scheme in ("nats", "tls")


def open_ledger(url: str, name: str, *, durable: bool = True) -> SharedLedger:
    """Return a project's ledger on the server of an address.

    Args:
        durable: a line counts as written when the server's disk has it.

    Raises:
        Unsupported: the engine's driver is not installed.
    """
    if is_nats(url):
        from memtier_plugin.storage.shared.nats.ledger import NatsLedger

        return NatsLedger(url, name, durable=durable)
    from memtier_plugin.storage.shared.postgres.ledger import PostgresLedger

    return PostgresLedger(url, name, durable=durable)


def address(url: str) -> str:
    """Return an address without what it says of users and options, for messages."""
    if is_nats(url):
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or 4222}"
    from memtier_plugin.storage.shared.postgres import connection

    return connection.address(url)


def prepare(url: str, project: str) -> dict[str, Any]:
    """Make, or bring up to date, what the ledger needs on a server; return what was done.

    PostgreSQL's tables are for all projects, a stream of JetStream is for one.

    Raises:
        LedgerError: it is unreachable, or this user may not.
    """
    if is_nats(url):
        from memtier_plugin.storage.shared.nats import admin as nats_admin

        return {"project": project, "new_stream": nats_admin.prepare(url, project)}
    from memtier_plugin.storage.shared.postgres import admin

    return {"migrations": admin.migrate(url)}


def grant(url: str, given: MachineGrant, password: str | None = None) -> dict[str, Any]:
    """Let a machine take part in a project; return what was done, or is left to do.

    NATS has its users in its configuration: this says what to write there.

    Raises:
        LedgerError: the server is unreachable, or this user may not.
    """
    if is_nats(url):
        from memtier_plugin.storage.shared.nats import admin as nats_admin

        text = nats_admin.snippet(
            given.project, given.machine, given.agent, read_only=given.read_only
        )
        return {**given._asdict(), "add_to_users": text}
    from memtier_plugin.storage.shared.postgres import admin

    return {**given._asdict(), "new_role": admin.grant(url, given, password)}


def revoke(url: str, machine: str, project: str, agent: str | None = None) -> dict[str, Any]:
    """Take a machine's rights in a project away; return what was done, or is left to do.

    Raises:
        LedgerError: the server is unreachable, or this user may not.
    """
    done: dict[str, Any] = {"machine": machine, "project": project}
    if is_nats(url):
        from memtier_plugin.storage.shared.nats import admin as nats_admin

        forgotten = nats_admin.forget(url, project, machine)
        return {**done, "forgotten": forgotten, "remove_from_users": machine}
    from memtier_plugin.storage.shared.postgres import admin

    return {**done, "revoked": admin.revoke(url, machine, project, agent)}
