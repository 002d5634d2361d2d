"""How a shared project follows its server: which one, its log, when it is synchronised."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import parse_json_text, to_iso
from memtier_plugin.core.paths import SHARED_FOLDER, shared_name
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import LedgerFile
from memtier_plugin.storage.ledger.log import FileLog
from memtier_plugin.storage.project_index import ProjectIndex
from memtier_plugin.storage.shared.copied_files import Synced
from memtier_plugin.storage.shared.protocol import LEASE_SECONDS, MachineGrant, SharedLedger
from memtier_plugin.storage.shared.replica import Replica

# -- Which server holds the shared ledger: the scheme of its address says so


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
    """Return an address without its user and options, for messages."""
    if is_nats(url):
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or 4222}"
    from memtier_plugin.storage.shared.postgres import server

    return server.address(url)


def prepare(url: str, project: str) -> dict[str, Any]:
    """Make, or bring up to date, what the ledger needs on a server; return what was done.

    PostgreSQL's tables are for all projects, a stream of JetStream is for one.

    Raises:
        LedgerError: it is unreachable, or this user may not.
    """
    if is_nats(url):
        from memtier_plugin.storage.shared.nats import ledger as nats_ledger

        return {"project": project, "new_stream": nats_ledger.prepare(url, project)}
    from memtier_plugin.storage.shared.postgres import server

    return {"migrations": server.migrate(url)}


def grant(url: str, machine_grant: MachineGrant, password: str | None = None) -> dict[str, Any]:
    """Let a machine take part in a project; return what was done, or is left to do.

    NATS has its users in its configuration: this says what to write there.

    Raises:
        LedgerError: the server is unreachable, or this user may not.
    """
    if is_nats(url):
        from memtier_plugin.storage.shared.nats import ledger as nats_ledger

        text = nats_ledger.snippet(
            machine_grant.project,
            machine_grant.machine,
            machine_grant.agent,
            read_only=machine_grant.read_only,
        )
        return {**machine_grant._asdict(), "add_to_users": text}
    from memtier_plugin.storage.shared.postgres import server

    return {**machine_grant._asdict(), "new_role": server.grant(url, machine_grant, password)}


def revoke(url: str, machine: str, project: str, agent: str | None = None) -> dict[str, Any]:
    """Take a machine's rights in a project away; return what was done, or is left to do.

    Raises:
        LedgerError: the server is unreachable, or this user may not.
    """
    done: dict[str, Any] = {"machine": machine, "project": project}
    if is_nats(url):
        from memtier_plugin.storage.shared.nats import ledger as nats_ledger

        forgotten = nats_ledger.forget(url, project, machine)
        return {**done, "forgotten": forgotten, "remove_from_users": machine}
    from memtier_plugin.storage.shared.postgres import server

    return {**done, "revoked": server.revoke(url, machine, project, agent)}


# -- The log of a shared project: this machine's files, rewritten on every machine


class SharedLog(FileLog):
    """The ledger files of a shared project; what is replaced is replaced on the server first."""

    def __init__(self, folder: Path, replica: Replica) -> None:
        super().__init__(folder)
        self._replica = replica

    def rewrite(self, file: LedgerFile, replace: Callable[[bytes], bytes]) -> bool:
        """Replace each line of a file, on every machine; return whether that changed it."""
        if file.provisional:
            return super().rewrite(file, replace)
        return self._replica.replace_lines(file, replace, "purge") > 0

    def drop_events(self, kind: str, before: datetime) -> Iterator[tuple[LedgerFile, int]]:
        """Empty the lines of a kind of event; they keep their places."""

        def empty(line: bytes) -> bytes:
            with suppress(ValueError):
                if jsonl.parse_line(jsonl.LedgerLine(1, 0, line)).get("kind") == kind:
                    return b"\n"
            return line

        for file in self.segments("journal"):
            number = sum(empty(line) != line for line in self.records(file))
            if file.day < f"{before:%Y-%m-%d}" and number:
                if file.provisional:
                    super().rewrite(file, empty)
                else:
                    self._replica.replace_lines(file, empty, "expire")
                yield file, number


# -- How a shared project follows its server: synchronised when either has changed

_STATE: Final = "state.json"  # in `.shared`: how the last synchronisation went
_LOOK_SECONDS: Final = 1.0  # between two looks at the server and the spool without a notification


class Sharing:
    """The server of a shared project, this machine's copy, and how both are kept the same."""

    def __init__(self, index: ProjectIndex, ledger: SharedLedger, replica: Replica) -> None:
        self.ledger = ledger
        self.replica = replica
        # Makes what applies the purges of other machines (`lifecycle.purge`, above this package).
        self.purges: Callable[[], Any] | None = None
        self._index = index
        self._folder = index.project_folder.path

    def sync(self, stop: Callable[[], bool] = lambda: False) -> Synced:
        """Fetch what is new, deliver what waits, index both, and note how it went.

        Raises:
            LedgerError: the server is away, or refuses; or a file cannot be written.
        """
        begun = time.time()
        try:
            synced = self.replica.fetch(stop)
            purges = self.purges() if self.purges else None
            applied = purges.follow() if purges else []
            self.replica.deliver_waiting(synced, stop)
        except LedgerError as error:
            self._note(error=str(error))
            raise
        if synced.purged or applied:
            self._index.reindex()
            if self._index.scrub_index(LEASE_SECONDS) and purges and applied:
                purges.confirm(applied)
        elif synced.files:
            self._index.catch_up([*synced.files.values()], wait_ms=2000)
        self._note(ok=begun, error=synced.refused)
        return synced

    def follow(self, stop: threading.Event) -> None:
        """Synchronise whenever something changed here or there, until ``stop`` is set.

        Raises:
            LedgerError: as `sync`.
        """
        while not stop.is_set():
            self.sync(stop.is_set)
            self.ledger.wait(_LOOK_SECONDS)

    def _note(self, *, ok: float | None = None, error: str | None = None) -> None:
        path = self._folder / SHARED_FOLDER / _STATE
        state = self._state()
        if ok is not None:
            if state.get("error") == error and ok - state.get("ok", 0.0) < 1.0:
                return  # often enough
            state = {"ok": ok, "error": error}
        elif state.get("error") is None:
            state |= {"error": error, "since": time.time()}
        else:
            state |= {"error": error}
        with suppress(LedgerError):
            write_private_file(path, json.dumps(state))

    def _state(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            return dict(parse_json_text((self._folder / SHARED_FOLDER / _STATE).read_text("utf-8")))
        return {}

    def shared_status(self) -> dict[str, Any]:
        """Return, without asking the server, how far this machine follows it."""
        state = self._state()
        ok, files = state.get("ok"), self.replica.spooled()
        return {
            "server": address(self._index.settings.ledger.shared),
            "project": shared_name(self._folder),
            "synced": None if ok is None else to_iso(datetime.fromtimestamp(ok, UTC)),
            "age_s": None if ok is None else round(max(0.0, time.time() - ok), 1),
            "error": state.get("error"),
            "waiting": sum(file.path.read_bytes().count(b"\n") for file in files),
        }
