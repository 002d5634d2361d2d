"""Who spoke, which lines help, and what the memory costs: what is known across all lines."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.core.errors import NotFound
from memtier_plugin.telemetry.bill import read_bill
from memtier_plugin.web.log_pages import parse_page
from memtier_plugin.web.rendering import PagePart

MOST_DAYS: Final = 36_500  # that a bill goes back
LINES: Final = 100  # of those that were withheld from some runs


class InsightPages(PagePart):
    """Shows people, uplift and the bill."""

    @property
    def routes(self) -> list[Route]:
        """The addresses of people, uplift and the bill."""
        return [
            Route("/people", self.people),
            Route("/uplift", self.uplift),
            Route("/bill", self.bill),
        ]

    def people(self, request: Request) -> Response:
        """Show who spoke, what they are called, and which senders are one person."""
        everybody = self._memory.people.everybody()
        return self._pages.page(request, "people.html", title="People", people=everybody)

    def uplift(self, request: Request) -> Response:
        """Show what showing a line changes, by the runs that went without it."""
        causes = getattr(self._memory, "causes", None)  # a plugin brings it
        if causes is None:
            raise NotFound("this page needs a package that is missing: pip install memtier-papers")
        report = causes.uplift()
        return self._pages.page(
            request,
            "uplift.html",
            title="What lines change",
            report=report,
            kinds=dict(report.kinds or {}),
            lines=report.lines[:LINES],
            withhold=self._memory.settings.causes.withhold,
        )

    def bill(self, request: Request) -> Response:
        """Show what `memtier bill` does: tokens and money, against all of it in every prompt."""
        days = parse_page(request.query_params.get("days"))
        start = self._memory.actor.clock() - timedelta(days=min(days, MOST_DAYS)) if days else None
        bill = read_bill(self._memory.store, start).to_json()
        return self._pages.page(request, "bill.html", title="The bill", bill=bill, days=days)
