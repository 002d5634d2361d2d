"""Who spoke, and which lines help: what is known across the lines of a project."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.memory import MemTier
from memtier_plugin.web.rendering import Pages

LINES: Final = 100  # of those that were withheld from some runs


class InsightPages:
    """Shows people and uplift."""

    def __init__(self, memory: MemTier, pages: Pages) -> None:
        self._memory = memory
        self._pages = pages

    @property
    def routes(self) -> list[Route]:
        """The addresses of people and uplift."""
        return [Route("/people", self.people), Route("/uplift", self.uplift)]

    def people(self, request: Request) -> Response:
        """Show who spoke, what they are called, and which senders are one person."""
        everybody = self._memory.people.everybody()
        return self._pages.page(request, "people.html", title="People", people=everybody)

    def uplift(self, request: Request) -> Response:
        """Show what showing a line changes, by the runs that went without it."""
        report = self._memory.causes.uplift()
        return self._pages.page(
            request,
            "uplift.html",
            title="What lines change",
            report=report,
            kinds=dict(report.kinds or {}),
            lines=report.lines[:LINES],
            withhold=self._memory.settings.causes.withhold,
        )
