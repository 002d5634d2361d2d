"""Extend a purge to every machine that shares the project, and report which it has not reached.

The purge's own event describes what it removed, without the words.  Each machine applies it to the
data only it has (lines waiting for the server, lines delivered meanwhile, other files), cleans its
index, and confirms by an event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core import formats
from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.events import PurgeEvent, PurgeReachedEvent
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import new_id, parse_json_text, to_iso
from memtier_plugin.core.paths import PROJECT_JOURNAL, SHARED_FOLDER
from memtier_plugin.core.records import JournalEvent, decode_event
from memtier_plugin.lifecycle.purge.criteria import Criteria
from memtier_plugin.lifecycle.purge.files import edit_file, find_in_file, untouchable
from memtier_plugin.lifecycle.purge.scan import CopyScan, key_of_purged
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.storage.home_files import iter_other_files
from memtier_plugin.storage.ledger.jsonl import LedgerFile
from memtier_plugin.storage.shared.protocol import Machine, Refused
from memtier_plugin.storage.shared.sharing import Sharing
from memtier_plugin.storage.store import Actor

_NOTES: Final = "purges.json"  # in `.shared`: the purges that this machine has applied
_MARK: Final = b'"kind": "purge'  # in the lines of both kinds of events
_SLACK: Final = 3600.0  # seconds by which clocks may differ


class PurgeReach:
    """Which machines each purge of a shared project has reached."""

    def __init__(self, actor: Actor, sharing: Sharing) -> None:
        self._actor = actor
        self._store = actor.store
        self._sharing = sharing
        self._read: dict[str, tuple[tuple[int, int], list[JournalEvent]]] = {}  # by file

    # -- on the machine that purges ------------------------------------------------------------

    def describe(self, target: Selection | str, scan: CopyScan) -> dict[str, Any]:
        """Return the description of a purge that other machines need, and their names."""
        ledger, plan = self._sharing.ledger, scan.plan
        here = ledger.machine()
        text = target if isinstance(target, str) else None
        chosen = None if isinstance(target, str) or target.query else target
        names = ("agent", "sender", "session", "run", "since", "until")
        conditions = {name: getattr(chosen, name) for name in names} if chosen else {}
        criteria = Criteria.make(
            plan.id,
            self._actor.clock(),
            new_id(),
            items=plan.stubs,
            runs=scan.runs,
            texts=[text] if text else scan.needles,
            conditions=conditions if any(conditions.values()) else None,
        )
        others = [m for m in ledger.machines() if m.name != here and m.seen]
        return {
            "by": here,
            "machines": [machine.name for machine in others],
            "criteria": criteria.to_json(),
        }

    def pending(self, event: JournalEvent) -> list[dict[str, Any]]:
        """Return the machines that have not confirmed a purge, as JSON."""
        states = self.states([event], self._events())[0]["machines"]
        return [
            {"machine": name, "seen": state["seen"]}
            for name, state in states.items()
            if state["state"] == "pending"
        ]

    def receipts(self) -> list[dict[str, Any]]:
        """Return the progress of each purge of the project, oldest first, as JSON.

        A complete purge drops the criteria that recognised its copies.

        Raises:
            LedgerError: the server is unreachable.
        """
        events = self._events()
        purges = [e for e in events if e.kind == PurgeEvent.KIND and PurgeEvent.of(e).shared]
        states = self.states(purges, events)
        for event, state in zip(purges, states, strict=True):
            if state["complete"] and (PurgeEvent.of(event).shared or {}).get("criteria"):
                self._forget_criteria(event)
        return states

    def states(
        self, purges: Sequence[JournalEvent], events: Sequence[JournalEvent]
    ) -> list[dict[str, Any]]:
        """Return each machine's state for each of these purges, as JSON."""
        ledger = self._sharing.ledger
        now: dict[str, Machine] = {machine.name: machine for machine in ledger.machines()}
        behind = {pending.machine for pending in ledger.pending()}
        reached = [e for e in events if e.kind == PurgeReachedEvent.KIND]
        documents = []
        for event in purges:
            payload = PurgeEvent.of(event)
            identity, shared = payload.receipt["purge"], payload.shared or {}
            at = {
                PurgeReachedEvent.of(e).machine: to_iso(e.timestamp)
                for e in reversed(reached)
                if identity in PurgeReachedEvent.of(e).purges
            }
            machines = {name: _state(name, now, at, behind) for name in shared["machines"]}
            documents.append(
                {
                    "purge": identity,
                    "at": to_iso(event.timestamp),
                    "by": shared["by"],
                    "machines": machines,
                    "complete": all(m["state"] != "pending" for m in machines.values()),
                }
            )
        return documents

    def _forget_criteria(self, event: JournalEvent) -> None:
        payload = PurgeEvent.of(event)
        done = {**(payload.shared or {}), "criteria": None}
        old, new = (
            formats.seal({**event.to_json(), **more}) + b"\n" for more in ({}, {"shared": done})
        )
        for file in self._store.log.segments("journal", PROJECT_JOURNAL):
            if file.day == f"{event.timestamp:%Y-%m-%d}" and not file.provisional:
                with suppress(Refused):
                    self._sharing.replica.replace_lines(
                        file, lambda line: new if line == old else line, "expire"
                    )

    # -- on every other machine ----------------------------------------------------------------

    def follow(self) -> list[str]:
        """Apply other machines' purges not yet applied here; return their ids.

        Call `confirm` with the ids once the index is clean too.

        Raises:
            LedgerError: the server is unreachable, or a file cannot be written.
        """
        purges = self._waiting()
        if not purges:
            return []
        # Everything that a purge removed on the server before it was announced
        self._sharing.replica.fetch()
        here = self._sharing.ledger.machine()
        for event in purges:
            shared = PurgeEvent.of(event).shared or {}
            if shared.get("by") != here and shared.get("criteria"):
                purge = event.data["receipt"]["purge"]
                self._apply(Criteria.from_json(purge, event.timestamp, shared["criteria"]))
        return [event.data["receipt"]["purge"] for event in purges]

    def is_waiting(self) -> bool:
        """Return whether a purge must be applied before anything is delivered."""
        return bool(self._waiting())

    def confirm(self, purges: Sequence[str]) -> None:
        """Record that this machine holds nothing more of these purges, and tell the others.

        Raises:
            LedgerError: it could not be recorded.
        """
        here = self._sharing.ledger.machine()
        others = [
            event.data["receipt"]["purge"]
            for event in self._purges()
            if event.data["receipt"]["purge"] in purges
            and here in (PurgeEvent.of(event).shared or {}).get("machines", ())
        ]
        if others:
            reached = PurgeReachedEvent(purges=tuple(others), machine=here)
            with suppress(Refused):  # a read-only machine is known by its progress
                self._store.append_events([self._actor.event(reached)], shared=True)
        notes = sorted({*self._applied(), *purges})
        write_private_file(self._notes, json.dumps(notes), durable=True)

    def _apply(self, criteria: Criteria) -> None:
        """Apply a purge to everything that only this machine may still hold."""
        newest = criteria.at.timestamp() - _SLACK
        for segment in self._store.log.recent(newest):

            def rewrite(line: bytes, segment: LedgerFile = segment) -> bytes:
                return criteria.rewrite(line, segment.owner, key_of_purged)

            if any(rewrite(line) != line for line in self._store.log.records(segment)):
                self._store.log.rewrite(segment, rewrite)
        for file in iter_other_files(self._store):
            if SHARED_FOLDER in file.parts or untouchable(self._store, file):
                continue
            if edit := find_in_file(file, criteria.find):
                edit_file(edit)

    # -- notes ---------------------------------------------------------------------------------

    @property
    def _notes(self) -> Path:
        return self._store.project_folder.path / SHARED_FOLDER / _NOTES

    def _applied(self) -> list[str]:
        try:
            return [str(name) for name in parse_json_text(self._notes.read_text("utf-8"))]
        except (OSError, ValueError, TypeError):
            return []

    def _waiting(self) -> list[JournalEvent]:
        applied = self._applied()
        return [e for e in self._purges() if e.data["receipt"]["purge"] not in applied]

    def _purges(self) -> list[JournalEvent]:
        return [
            event
            for event in self._events()
            if event.kind == PurgeEvent.KIND and PurgeEvent.of(event).shared
        ]

    def _events(self) -> list[JournalEvent]:
        """Return the purge events from the files, as the index may be behind."""
        events = []
        for file in self._store.log.segments("journal", PROJECT_JOURNAL):
            with suppress(FileNotFoundError):
                status = file.path.stat()
                version = status.st_size, status.st_mtime_ns
                before, read = self._read.get(file.name, ((-1, -1), []))
                if before != version:
                    read = _events_of(file.path.read_bytes())
                    self._read[file.name] = version, read
                events += read
        return events


def _events_of(data: bytes) -> list[JournalEvent]:
    events = []
    for line in data.split(b"\n") if _MARK in data else ():
        if _MARK in line[:200]:
            with suppress(ValueError, TypeError, KeyError):
                events.append(decode_event(line))
    return events


def _state(
    name: str, now: Mapping[str, Machine], at: Mapping[str, str], behind: set[str]
) -> dict[str, Any]:
    machine = now.get(name)
    seen = to_iso(machine.seen) if machine and machine.seen else None
    if name in at:
        return {"state": "reached", "at": at[name], "seen": seen}
    if machine is None:
        return {"state": "revoked", "at": None, "seen": None}
    if machine.seen is None:
        return {"state": "left", "at": None, "seen": None}
    follows = not machine.writes and name not in behind
    return {"state": "reached" if follows else "pending", "at": None, "seen": seen}


def reach_of(actor: Actor) -> PurgeReach | None:
    """Return a shared project's `PurgeReach`; None for a project of this machine only."""
    return PurgeReach(actor, actor.store.sharing) if actor.store.sharing else None


def require_reach(actor: Actor) -> PurgeReach:
    """Return a shared project's `PurgeReach`.

    Raises:
        LedgerError: the project is not shared.
    """
    purge_reach = reach_of(actor)
    if purge_reach is None:
        raise LedgerError("this project is not shared from this machine: `memtier shared join`")
    return purge_reach
