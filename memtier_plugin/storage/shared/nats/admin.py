"""Set up a project in NATS, as a user who may: its users are in the server's own configuration."""

from __future__ import annotations

from typing import Any, Final

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.nats.link import Link, ServerAddress, check_driver
from memtier_plugin.storage.shared.nats.messages import KINDS, Names, encode, permissions

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
