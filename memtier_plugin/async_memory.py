"""MemTier for asyncio: the same calls, awaited, on a few threads that all memories share.

SQLite and files have no asynchronous interface, so each call runs in a thread.  A pool has as many
workers as may have files open at a time, and further calls wait in a queue that costs neither
threads nor descriptors.  Calls that may take minutes (a model answers, a backlog is consolidated)
have workers of their own, so that no recall waits behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from memtier_plugin.core.errors import Closed
from memtier_plugin.core.results import RunContext
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import MemoryPool

P = ParamSpec("P")
T = TypeVar("T")

DESCRIPTORS: Final = 64  # shared by all memories of one set of workers
_SLOW_WORKERS: Final = 2


class Workers:
    """The threads and the pool of memories that many `AsyncMemTier` share.

    Args:
        descriptors: the most file descriptors that their memories have open at a time.
        settings: overrides of single keys ("retrieval.k": 8), for every memory.
    """

    def __init__(
        self, descriptors: int = DESCRIPTORS, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.pool = MemoryPool(descriptors, settings)
        self._calls = self.pool.calls or 1

    @cached_property
    def _quick(self) -> ThreadPoolExecutor:
        # Slow calls count towards the pool's limit too, so that both together never exceed it.
        number = max(1, self._calls - _SLOW_WORKERS)
        return ThreadPoolExecutor(number, thread_name_prefix="memtier")

    @cached_property
    def _slow(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_SLOW_WORKERS, thread_name_prefix="memtier-slow")

    async def run(self, context: RunContext, call: Callable[[MemTier], T], *, slow: bool) -> T:
        """Run a call on the memory of a context; a call cancelled in the queue never runs."""
        executor = self._slow if slow else self._quick
        return await asyncio.get_running_loop().run_in_executor(
            executor, partial(self._use, context, call)
        )

    def _use(self, context: RunContext, call: Callable[[MemTier], T]) -> T:
        with self.pool.use(context) as memory:
            return call(memory)

    def close(self) -> None:
        """Wait for running calls, drop queued ones, and close every memory."""
        for name in ("_quick", "_slow"):
            executor = self.__dict__.pop(name, None)
            if executor is not None:
                executor.shutdown(wait=True, cancel_futures=True)
        self.pool.close()


def _awaited(
    method: Callable[Concatenate[MemTier, P], T], *, slow: bool = False
) -> Callable[Concatenate[AsyncMemTier, P], Coroutine[Any, Any, T]]:
    """Return an awaitable form of a method of `MemTier`."""

    @wraps(method)
    async def call(self: AsyncMemTier, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(lambda memory: method(memory, *args, **kwargs), slow=slow)

    return call


class AsyncMemTier:
    """The memory of one agent in one project, for asyncio; while idle it holds no thread or file.

    Its methods are those of `MemTier` with the same names, arguments and errors.
    """

    def __init__(self, context: RunContext, workers: Workers) -> None:
        self._context = context
        self._workers = workers
        self._is_closed = False
        self._is_owner = False

    @classmethod
    async def open(
        cls,
        home: str | Path | None = None,
        project: str = "default",
        agent_id: str = "main",
        settings: Mapping[str, Any] | None = None,
        *,
        workers: Workers | None = None,
    ) -> Self:
        """Open a project's memory for an agent, creating it if missing.

        Args:
            settings: overrides of single keys; with ``workers``, pass them to the workers instead.
            workers: threads shared with other memories, as in a server with many users; None for
                its own.

        Raises:
            MemTierError: it cannot be opened.
        """
        context = RunContext(agent_id=agent_id, project=project, home=str(home) if home else None)
        memory = cls(context, workers or Workers(settings=settings))
        memory._is_owner = workers is None
        await memory._run(lambda opened: opened.folder, slow=False)
        return memory

    async def _run(self, call: Callable[[MemTier], T], *, slow: bool) -> T:
        if self._is_closed:
            raise Closed("this memory was closed: open another with `AsyncMemTier.open`")
        return await self._workers.run(self._context, call, slow=slow)

    record = _awaited(MemTier.record)
    recall = _awaited(MemTier.recall)
    acknowledge = _awaited(MemTier.acknowledge)
    end_run = _awaited(MemTier.end_run)
    remember = _awaited(MemTier.remember)
    add_facts = _awaited(MemTier.add_facts)
    facts = _awaited(MemTier.facts)
    fact = _awaited(MemTier.fact)
    explain = _awaited(MemTier.explain)
    why = _awaited(MemTier.why)
    make_private = _awaited(MemTier.make_private)
    forget = _awaited(MemTier.forget)
    unforget = _awaited(MemTier.unforget)
    status = _awaited(MemTier.status)
    ask = _awaited(MemTier.ask, slow=True)
    consolidate = _awaited(MemTier.consolidate, slow=True)
    purge = _awaited(MemTier.purge, slow=True)
    doctor = _awaited(MemTier.doctor, slow=True)

    async def close(self) -> None:
        """Close this memory and its own workers; shared ones stay for the others."""
        if not self._is_closed:
            self._is_closed = True
            if self._is_owner:
                await asyncio.to_thread(self._workers.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
