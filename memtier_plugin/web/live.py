"""Tell open pages that something was written, by server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import StreamingResponse

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.memory import MemTier

LOOK_SECONDS: Final = 1.0  # between two looks, whatever the number of pages
_HEARTBEAT_SECONDS: Final = 15.0


def ledger_sizes(memory: MemTier) -> object:
    """Return what is other than before once a project's ledgers changed; None without any."""
    try:
        usage = memory.store.measure_usage(datetime.now(UTC))
    except (MemTierError, OSError):
        return None
    return (usage.tiers, usage.files)


class Watch:
    """Knows when a project's ledgers last changed, by their sizes."""

    def __init__(self, memory: MemTier, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._memory = memory
        self._is_ending = is_ending
        self._sizes: object = None
        self._looked_at = -LOOK_SECONDS
        self._lock = asyncio.Lock()
        self.version = 0

    async def look(self) -> int:
        """Return a number that grows with each change; looks once a second, however many ask."""
        async with self._lock:
            if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                sizes = await asyncio.to_thread(ledger_sizes, self._memory)
                self.version += sizes != self._sizes
                self._sizes, self._looked_at = sizes, time.monotonic()
        return self.version

    async def stream(self, _request: Request) -> StreamingResponse:
        """Send the event ``changed`` after each change, as long as the page is open."""
        return StreamingResponse(
            self._events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def _events(self) -> AsyncIterator[str]:
        seen, sent = await self.look(), time.monotonic()
        yield "retry: 3000\n: open\n\n"
        while not self._is_ending():  # or it is cancelled, when the page is closed
            await asyncio.sleep(LOOK_SECONDS)
            if (version := await self.look()) != seen:
                seen, sent = version, time.monotonic()
                yield f"event: changed\ndata: {version}\n\n"
            elif time.monotonic() - sent > _HEARTBEAT_SECONDS:
                sent = time.monotonic()
                yield ": still here\n\n"
