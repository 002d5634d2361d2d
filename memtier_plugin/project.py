"""Maintain a project: its index, its pause switch, its health and its repair."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import Closed, LedgerError, Paused
from memtier_plugin.core.events import HookFailedEvent
from memtier_plugin.core.formats import Clock, to_iso
from memtier_plugin.core.paths import remove_private_file, write_private_file
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.structs import check_methods
from memtier_plugin.storage.opening import open_store
from memtier_plugin.storage.store import Actor, Store
from memtier_plugin.trust.redaction import Redactor

if TYPE_CHECKING:
    from memtier_plugin.lifecycle.purge.machines import PurgeReach
    from memtier_plugin.operations.background import HealthFinding
    from memtier_plugin.operations.checks import Repair
    from memtier_plugin.operations.reembed import Reembedder

_REFRESH_MS: Final = 50  # how long a bounded catch-up waits for the index's write lock


@check_methods
class Project:
    """Maintains one project on behalf of one of its agents."""

    def __init__(
        self,
        home: Path,
        project: str,
        agent_id: str,
        settings: Settings,
        clock: Clock,
        *,
        everybody: bool = False,
    ) -> None:
        self.home = home
        self.project = project
        self.agent_id = agent_id
        self.settings = settings
        self._store = open_store(home, project, settings)
        if self._store.sharing:
            self._store.sharing.purges = lambda: self._reach
        self._is_closed = False
        self._clock = clock
        self._everybody = everybody

    @property
    def store(self) -> Store:
        """The project's storage.

        Raises:
            Closed: this memory was closed.
        """
        if self._is_closed:
            raise Closed("this memory was closed: open another with `MemTier.open`")
        return self._store

    @cached_property
    def _redactor(self) -> Redactor:
        redaction = self.settings.redaction
        return Redactor(
            redaction.allow,
            redaction.enabled,
            plugins.find_secret_spans,
            personal_numbers=redaction.personal_numbers,
        )

    @cached_property
    def _actor(self) -> Actor:
        return Actor(self.store, self.agent_id, self._clock, self._redactor, self._everybody)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index for good; ledgers need no closing.  Closing twice is harmless."""
        self._is_closed = True
        for name in [*vars(self)]:  # the services, which hold the store
            if isinstance(getattr(type(self), name, None), cached_property):
                delattr(self, name)
        self._store.close()

    def release(self) -> None:
        """Close the files that this thread has open; they are reopened on demand."""
        self._store.release()

    @property
    def folder(self) -> Path:
        """The project's folder."""
        return self._store.project_folder.path

    def status(self) -> dict[str, Any]:
        """Return the project's status: the latest activity, and what is degraded."""
        from memtier_plugin.operations import status

        return status.collect_status(self.store, self._clock())

    def doctor(self) -> list[HealthFinding]:
        """Check the home, the ledgers, the index and the settings; each finding has a remedy."""
        from memtier_plugin.operations import checks

        return [
            *checks.run_checks(self.store, self._clock()),
            *checks.find_leftovers(self.store),
        ]

    def repair(self, progress: Callable[[int, int], None]) -> Iterator[Repair]:
        """Make every lossless repair, yielding each once it is done.

        Raises:
            LedgerError, IndexProblem: the remaining repairs were not made.
        """
        from memtier_plugin.operations.checks import repair

        return repair(self._actor, progress)

    def note_hook(
        self,
        host_agent: str,
        hook: str,
        ok: bool,
        error: str | None = None,
        ms: int | None = None,
    ) -> None:
        """Record for `status` when a hook ran for an agent, its duration, and any error.

        Raises:
            LedgerWriteError: the home cannot be written.
        """
        from memtier_plugin.operations import hook_marks

        failure = None if ok else error or "it failed"
        hook_marks.note_hook(self.store, host_agent, hook, failure, ms, self._clock())
        if failure:
            failed = HookFailedEvent(host_agent=host_agent, hook=hook, error=failure[:500])
            self.store.append_events([self._actor.event(failed)], timeout=1.0)

    def note_hook_begun(self, host_agent: str, hook: str) -> None:
        """Record for `status` that a host called a hook for an agent, before it finishes.

        Raises:
            LedgerWriteError: the home cannot be written.
        """
        from memtier_plugin.operations import hook_marks

        hook_marks.note_begun(self.store, host_agent, hook)

    def follow(self, stop: threading.Event) -> None:
        """Follow the server of a shared project until ``stop`` is set; otherwise return at once.

        Raises:
            LedgerError: the server is unreachable, or refuses; call again.
        """
        if self.store.sharing:
            self.store.sharing.follow(stop)

    def synchronise(self) -> None:
        """Fetch a shared project's new lines, and deliver pending ones.

        Raises:
            LedgerError: the server is unreachable, or refuses.
        """
        if self.store.sharing:
            self.store.sharing.sync()

    @cached_property
    def _reach(self) -> PurgeReach:
        from memtier_plugin.lifecycle.purge.machines import require_reach

        return require_reach(self._actor)

    def purges(self) -> list[dict[str, Any]]:
        """Return which machines of a shared project each purge has reached, as JSON.

        Raises:
            LedgerError: the project is not shared, or the server is unreachable.
        """
        return self._reach.receipts()

    def catch_up(self, full: bool = True) -> int:
        """Update the index and return the number of lines read, limited unless ``full``."""
        if full:
            lines = self.store.catch_up_all()
            if not self.settings.embedding.is_remote:  # remote embedding may cost money
                with suppress(LedgerError):  # another process is doing it
                    self.reembedding.run()
            return lines
        self.store.refresh(self.agent_id, wait_ms=_REFRESH_MS)
        return 0

    @property
    def reembedding(self) -> Reembedder:
        """The service that computes the missing vectors of the current model."""
        from memtier_plugin.operations.reembed import Reembedder

        return Reembedder(self.store, self.agent_id, self._clock)

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Rebuild the index from the ledgers and swap it in.

        Args:
            progress: called with the bytes done and the total.
        """
        lines = self.store.reindex(progress)
        return {"lines": lines, **self.store.reader().counts()}

    def expire_recalls(self) -> int:
        """Drop journalled recalls older than `journal.retention_days`; return how many."""
        from memtier_plugin.operations import checks

        return checks.expire_recalls(self.store, self._clock())

    @property
    def paused(self) -> bool:
        """Whether `memtier off` is in effect for this project."""
        return self.store.paused

    def pause(self) -> None:
        """Pause recording and recall in this project."""
        write_private_file(self.folder / "OFF", f"switched off at {to_iso(self._clock())}\n")

    def resume(self) -> None:
        """Resume recording and recall.

        Raises:
            LedgerWriteError: the project's folder cannot be written.
        """
        remove_private_file(self.folder / "OFF")

    def _refuse_when_paused(self) -> None:
        if self.paused:
            raise Paused(f"project {self.project!r} is off; `memtier on` switches it on")
