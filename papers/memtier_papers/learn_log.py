"""Learned settings of a project: apply, list, and undo them byte for byte.

The event is written first and the settings second, replaced as one file: if the process is killed
between the two, the log has an entry that is not in effect, but no half-made change. The file alone
determines what is in effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtier_papers.settings_edit import Edit, SectionValues, edit_section, undo_edit
from memtier_plugin.core.errors import LedgerError, NotFound, SettingsError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import MIN_ID_END, to_iso
from memtier_plugin.core.records import EventPayload, JournalEvent
from memtier_plugin.core.settings.yaml_file import read_config_text
from memtier_plugin.storage.store import Actor


class LearnEvent(EventPayload, frozen=True, kw_only=True):
    """Learned values were written to the project's settings, or (``reverts``) removed again.

    ``what`` names what was trained ("weights"), ``removed`` and ``inserted`` are the edit of
    project.yaml, so that it can be undone byte for byte, and ``figures`` is the reason.
    """

    KIND = "learn"

    what: str = ""
    removed: str = ""
    inserted: str = ""
    values: Mapping[str, Any] = {}
    figures: Mapping[str, Any] = {}
    reverts: str | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """An entry of the log: an event, and whether it is in effect now."""

    event: JournalEvent
    applied: bool

    @property
    def payload(self) -> LearnEvent:
        """The fields of the event."""
        return LearnEvent.of(self.event)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        payload = self.payload
        return {
            "id": self.event.id,
            "timestamp": to_iso(self.event.timestamp),
            "what": payload.what,
            "values": dict(payload.values),
            "figures": dict(payload.figures),
            "reverts": payload.reverts,
            "applied": self.applied,
        }


class LearnLog:
    """The log of what a project learned."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    @property
    def path(self) -> Path:
        """The file to which learned settings are written."""
        return self._store.project_folder.path / "project.yaml"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the project's lock for learners.

        Raises:
            LedgerError: another process is learning.
        """
        with self._store.try_exclusive("learn") as exclusive:
            if not exclusive:
                raise LedgerError(
                    f"another process is learning from the project {self._store.project!r} now"
                )
            yield

    def entries(self) -> list[Learned]:
        """Return the log's entries, newest first."""
        text = read_config_text(self.path) or ""
        self._store.catch_up_all()
        with self._store.session() as reader:
            events = reader.events(kinds=[LearnEvent.KIND])
        lines: list[Learned] = []
        for event in reversed(events):
            payload = LearnEvent.of(event)
            shown = bool(payload.inserted) and payload.inserted in text
            lines.append(Learned(event, shown and payload.reverts is None))
        return lines

    def apply(
        self,
        what: str,
        section: tuple[str, str],
        values: SectionValues,
        figures: Mapping[str, Any],
    ) -> str:
        """Write learned values to the project's settings; return the id of the log entry.

        Args:
            what: what was trained: "weights".
            section: the section to replace by the values, or a single setting.
            figures: the reason for applying it.

        Raises:
            SettingsError: the file cannot be edited safely; nothing was changed.
            LedgerError: it was not applied.
        """
        edit = edit_section(self.path, section, values)
        event = LearnEvent(
            what=what,
            removed=edit.removed,
            inserted=edit.inserted,
            values={section[1]: values} if isinstance(values, str) else dict(values),
            figures=dict(figures),
        )
        return self._write(event, edit)

    def revert(self, end: str | None = None) -> Learned:
        """Undo the last learned change, or the one whose id ends so.

        Raises:
            NotFound: nothing learned is in effect, or no entry has this id.
            SettingsError: the settings were changed by hand since; nothing was changed.
            LedgerError: it was not undone.
        """
        entry = self._find(end)
        payload = entry.payload
        if not entry.applied:
            raise SettingsError(f"{entry.event.id} is not in effect: there is nothing to undo")
        edit = undo_edit(self.path, payload.removed, payload.inserted)
        event = LearnEvent(
            what=payload.what,
            removed=edit.removed,
            inserted=edit.inserted,
            reverts=entry.event.id,
        )
        self._write(event, edit)
        return entry

    def _find(self, end: str | None) -> Learned:
        entries = self.entries()
        if end is None:
            for entry in entries:
                if entry.applied:
                    return entry
            raise NotFound("nothing that was learned is in effect")
        if len(end) < MIN_ID_END:
            raise NotFound(f"{end!r} is too short: give the last {MIN_ID_END} characters or more")
        matches = [entry for entry in entries if entry.event.id.endswith(end.upper())]
        if len(matches) != 1:
            raise NotFound(f"no line of `memtier learn log` has an id that ends in {end!r}")
        return matches[0]

    def _write(self, payload: LearnEvent, edit: Edit) -> str:
        event = self._actor.event(payload)
        self._store.append_events([event], shared=True)
        write_private_file(self.path, edit.after, durable=True)
        return event.id
