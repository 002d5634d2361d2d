"""A pool of open memories, one for each home, project, agent and workspace.

Hosts and RPC clients name a memory in every call; it is opened once and shared by threads.  A
server with many users can limit the file descriptors of the whole pool.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.concurrency import Turns
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.paths import resolve_home
from memtier_plugin.core.results import RunContext
from memtier_plugin.core.settings.load import load_settings, resolve_project
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.structs import check_arguments, check_fields, check_methods
from memtier_plugin.memory import MemTier

# The most descriptors that one call opens: the index, its log and its shared memory, a ledger, a
# folder being synced, and a margin.
_DESCRIPTORS_A_CALL: Final = 8
_MOST_IDLE: Final = 256  # memories without open descriptors that a bounded pool keeps

_Key = tuple[Path, str | None, str, str | None]


@dataclass(slots=True, eq=False)
class _PooledMemory:
    """One memory, how many calls use it, and the sessions that keep it open."""

    home: Path
    project: str
    settings: Settings
    workspace: Path | None = None
    memory: MemTier | None = None
    users: int = 0
    sessions: set[str] = field(default_factory=set)
    over: bool = False
    opening: threading.Lock = field(default_factory=threading.Lock)


class _Depth(threading.local):
    """How many nested uses of the pool this thread is in."""

    count = 0


@check_methods
class MemoryPool:
    """Opens memories on first use and closes each when the last of its sessions has ended.

    Args:
        descriptors: the most file descriptors that all memories together may have open; further
            callers wait for their turn, and unused memories have none open.  None for no limit.
        settings: overrides of single keys ("retrieval.k": 8), for every memory.
    """

    @check_arguments
    def __init__(
        self, descriptors: int | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        if descriptors is not None and descriptors < _DESCRIPTORS_A_CALL:
            raise MessageError(f"descriptors must be {_DESCRIPTORS_A_CALL} or more")
        self.calls = descriptors // _DESCRIPTORS_A_CALL if descriptors else None
        self._overrides = settings
        self._depth = _Depth()
        self._turns = self._new_turns()
        self._most = _MOST_IDLE if descriptors else None
        self._lock = threading.Lock()
        self._opened: dict[_Key, _PooledMemory] = {}
        # The thread that held a lock at the fork does not exist in the child.
        os.register_at_fork(after_in_child=self._unlock)

    def settings(self, context: RunContext) -> Settings:
        """Return the effective settings of a context, without waiting for a store's lock.

        Raises:
            SettingsError: a configuration file is wrong.
        """
        return self._find(context, _key(context)).settings

    def locate(self, context: RunContext) -> tuple[Path, str]:
        """Return the home and the project of a context.

        Raises:
            SettingsError: a configuration file is wrong.
        """
        opened = self._find(context, _key(context))
        return opened.home, opened.project

    @contextmanager
    def use(self, context: RunContext) -> Iterator[MemTier]:
        """Return the memory of a context, kept open for the context's session.

        With a bounded pool the call may wait for other threads to finish, and the memory must not
        be used after the block.

        Raises:
            MemTierError: it cannot be opened.
        """
        with self._take_turn(), self._use(context) as memory:
            yield memory

    @contextmanager
    def _take_turn(self) -> Iterator[None]:
        """Wait until another call may open descriptors; a nested call already may."""
        if self._turns is None or self._depth.count:
            yield
            return
        with self._turns:
            self._depth.count += 1
            try:
                yield
            finally:
                self._depth.count -= 1

    @contextmanager
    def _use(self, context: RunContext) -> Iterator[MemTier]:
        key = _key(context)
        opened = self._find(context, key)
        with self._lock:
            # Another thread may just have closed it: put it back, and it reopens on use.
            opened = self._opened.setdefault(key, opened)
            opened.users += 1
            if context.session_id is not None:
                opened.sessions.add(context.session_id)
                opened.over = False
        try:
            with opened.opening:
                if opened.memory is None:
                    opened.memory = MemTier.open(
                        *(opened.home, opened.project, context.agent_id, opened.settings),
                        workspace=opened.workspace,
                    )
                memory = opened.memory
            try:
                yield memory
            finally:
                if self._turns is not None:
                    memory.release()
        finally:
            self._leave(key, opened)

    def keep_at_most(self, memories: int) -> None:
        """Close the least recently used memories beyond this number, except those in use."""
        self._most = memories

    def end_session(self, context: RunContext) -> None:
        """Release a session; the last release closes the memory once no call uses it."""
        with self._lock:
            opened = self._opened.get(_key(context))
            if opened is not None:
                opened.sessions.discard(context.session_id or "")
                opened.over = not opened.sessions

    def close(self) -> None:
        """Close every memory that is not in use."""
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
        settings = load_settings(home, project, workspace, self._overrides)
        fresh = _PooledMemory(home, project, settings, workspace)
        with self._lock:
            return self._opened.setdefault(key, fresh)

    def _leave(self, key: _Key, opened: _PooledMemory) -> None:
        with self._lock:
            opened.users -= 1
            closing = [] if opened.users or not opened.over else [(key, opened)]
            if self._most is not None:
                # A dictionary keeps its order: the least recently used comes first.
                self._opened[key] = self._opened.pop(key, opened)
                idle = [pair for pair in self._opened.items() if not pair[1].users]
                closing += idle[: max(0, len(self._opened) - self._most)]
            for pair in closing:
                self._opened.pop(pair[0], None)
            memories = [pair[1].memory for pair in closing]
            for pair in closing:
                pair[1].memory = None
        for memory in memories:
            if memory is not None:
                memory.close()

    def _new_turns(self) -> Turns | None:
        return Turns(self.calls) if self.calls else None

    def _unlock(self) -> None:
        self._lock, self._depth, self._turns = threading.Lock(), _Depth(), self._new_turns()
        for opened in self._opened.values():
            opened.opening, opened.users = threading.Lock(), 0


def _key(context: RunContext) -> _Key:
    check_fields(context)
    return resolve_home(context.home), context.project, context.agent_id, context.workspace


memory_pool = MemoryPool()
