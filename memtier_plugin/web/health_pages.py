"""Health: hooks and their latency, jobs, what is degraded, disk; the metrics for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.core.mutex import Mutex
from memtier_plugin.hosts.silence import describe_silent_hosts
from memtier_plugin.memory import MemTier
from memtier_plugin.telemetry.journal_metrics import CONTENT_TYPE, JournalMetrics
from memtier_plugin.web.rendering import PagePart, Pages


class HealthPages(PagePart):
    """Shows the status of the project."""

    def __init__(self, memory: MemTier, pages: Pages) -> None:
        super().__init__(memory, pages)
        self._metrics = JournalMetrics(memory.store)
        self._mutex = Mutex()

    @property
    def routes(self) -> list[Route]:
        """The addresses of the project's health."""
        return [Route("/health", self.health), Route("/metrics", self.metrics)]

    def metrics(self, _request: Request) -> Response:
        """Answer Prometheus, which sends the token as a bearer."""
        with self._mutex:
            return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    def health(self, request: Request) -> Response:
        """Show what `memtier status` does."""
        status = self._memory.status()
        now = self._memory.actor.clock()
        status["degraded"] += describe_silent_hosts(self._memory.home, now)
        noted, waits = status["hooks"], status["waits"]
        latency = []
        for agent in sorted({*noted, *waits}):
            own = {hook: mark for hook, mark in noted.get(agent, {}).items() if "last_ms" in mark}
            for hook, mark in {**own, **waits.get(agent, {})}.items():
                latency.append({"agent": agent, "hook": hook, **mark})
        return self._pages.page(
            request, "health.html", title="Health", status=status, latency=latency
        )
