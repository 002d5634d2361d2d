"""Pool of open memories, one for each home, project, agent and workspace.

Hosts and RPC clients name a memory in every call; it is opened once and shared by threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memtier_plugin.core.host import RunContext
from memtier_plugin.core.settings.load import load_settings, resolve_home, resolve_project
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.memory import MemTier

_Key = tuple[Path, str | None, str, str | None]


@dataclass(slots=True, eq=False)
class _PooledMemory:
    """One memory, who uses it now, and for which sessions it is kept open."""

    home: Path
    project: str
    settings: Settings
    memory: MemTier | None = None
    users: int = 0
    sessions: set[str] = field(default_factory=set)
    over: bool = False
    opening: threading.Lock = field(default_factory=threading.Lock)


class MemoryPool:
    """Opens memories on first use and closes each when the last of its sessions has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[_Key, _PooledMemory] = {}
        # A thread that held a lock when the process forked does not exist in the child.
        os.register_at_fork(after_in_child=self._unlock)

    def settings(self, context: RunContext) -> Settings:
        """Return the settings that hold for a context; waits for no lock of a store.

        Raises:
            SettingsError: a configuration file is wrong.
        """
        return self._find(context, _key(context)).settings

    def locate(self, context: RunContext) -> tuple[Path, str]:
        """Return the home and the project that a context means.

        Raises:
            SettingsError: a configuration file is wrong.
        """
        opened = self._find(context, _key(context))
        return opened.home, opened.project

    @contextmanager
    def use(self, context: RunContext) -> Iterator[MemTier]:
        """Return the memory of a context, kept open for the context's session.

        Raises:
            MemTierError: it cannot be opened.
        """
        key = _key(context)
        opened = self._find(context, key)
        with self._lock:
            # Another thread may just have closed this one: put it back, it opens again.
            opened = self._opened.setdefault(key, opened)
            opened.users += 1
            if context.session_id is not None:
                opened.sessions.add(context.session_id)
                opened.over = False
        try:
            with opened.opening:
                if opened.memory is None:
                    opened.memory = MemTier.open(
                        opened.home, opened.project, context.agent_id, opened.settings
                    )
                memory = opened.memory
            yield memory
        finally:
            self._leave(key, opened)

    def end_session(self, context: RunContext) -> None:
        """Release a session; the last release closes the memory as soon as no call uses it."""
        with self._lock:
            opened = self._opened.get(_key(context))
            if opened is not None:
                opened.sessions.discard(context.session_id or "")
                opened.over = not opened.sessions

    def close(self) -> None:
        """Close every memory that nobody uses at the moment."""
        with self._lock:
            idle = [(key, opened) for key, opened in self._opened.items() if not opened.users]
            for key, _ in idle:
                del self._opened[key]
        for _, opened in idle:
            if opened.memory is not None:
                opened.memory.close()

    def _find(self, context: RunContext, key: _Key) -> _PooledMemory:
        with self._lock:
            opened = self._opened.get(key)
        if opened is not None:
            return opened
        home = resolve_home(context.home)
        workspace = Path(context.workspace) if context.workspace else None
        project = context.project or os.environ.get("MEMTIER_PROJECT")
        project = project or resolve_project(home, workspace)
        fresh = _PooledMemory(home, project, load_settings(home, project, workspace))
        with self._lock:
            return self._opened.setdefault(key, fresh)

    def _leave(self, key: _Key, opened: _PooledMemory) -> None:
        with self._lock:
            opened.users -= 1
            if opened.users or not opened.over:
                return
            self._opened.pop(key, None)
            memory, opened.memory = opened.memory, None
        if memory is not None:
            memory.close()

    def _unlock(self) -> None:
        self._lock = threading.Lock()
        for opened in self._opened.values():
            opened.opening, opened.users = threading.Lock(), 0


def _key(context: RunContext) -> _Key:
    return resolve_home(context.home), context.project, context.agent_id, context.workspace


memory_pool = MemoryPool()
