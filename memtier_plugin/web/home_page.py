"""Serve the first page, which answers whether the memory works."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.hosts.presence import describe_silent_hosts
from memtier_plugin.hosts.project import read_installed, serves
from memtier_plugin.views.project_overview import read_overview
from memtier_plugin.web.rendering import PagePart


class HomePage(PagePart):
    """Shows the state of the project at a glance."""

    @property
    def routes(self) -> list[Route]:
        """The address of the first page."""
        return [Route("/", self.home)]

    def home(self, request: Request) -> Response:
        """Show whether it works, the last run and recall, and what waits for review."""
        memory = self._memory
        hosts = {
            str(record["host"])
            for record in read_installed(memory.home).values()
            if serves(record, memory.project)
        }
        silent = describe_silent_hosts(memory.home, memory.actor.clock())
        overview = read_overview(memory, self._pages.read_spans(), sorted(hosts), silent)
        return self._pages.page(request, "home.html", title="Home", overview=overview)
