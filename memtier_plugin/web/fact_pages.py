"""Facts: the list, how a subject changed over time, and what waits for a decision."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.facts.views import FactView
from memtier_plugin.views.reading import read_timeline
from memtier_plugin.web.log_pages import parse_page
from memtier_plugin.web.rendering import PagePart

PAGE_FACTS: Final = 100
PAGE_WAITING: Final = 50
STATES: Final = ("current", "proposed", "superseded", "rejected", "all")


class FactPages(PagePart):
    """Shows facts and the review queue to the person at the machine."""

    @property
    def routes(self) -> list[Route]:
        """The addresses of facts and of the review."""
        return [
            Route("/facts", self.list_facts),
            Route("/facts/about/{subject:path}", self.timeline),
            Route("/review", self.review),
        ]

    def list_facts(self, request: Request) -> Response:
        """Show facts in one state, the newest first, or those that a query asks for."""
        chosen = request.query_params
        query, state = chosen.get("query", "").strip(), chosen.get("state", "current")
        facts = self._search(query) if query else self._facts(state)
        page = parse_page(chosen.get("page")) or 1
        start = (page - 1) * PAGE_FACTS
        return self._pages.page(
            request,
            "facts.html",
            title="Facts",
            facts=[view.to_json() for view in facts[start : start + PAGE_FACTS]],
            total=len(facts),
            query=query,
            state=state,
            states=STATES,
            page=page,
            pages=-(-len(facts) // PAGE_FACTS),
        )

    def _search(self, query: str) -> list[FactView]:
        person = self._memory.knowledge.person
        hits = [hit.id for hit in person.search(query, PAGE_FACTS).hits]
        views = {view.fact.id: view for view in person.facts_by_id(hits)}
        return [views[identity] for identity in hits if identity in views]

    def _facts(self, state: str) -> list[FactView]:
        person = self._memory.knowledge.person
        if state == "proposed":
            return person.proposals()[::-1]
        views = person.facts(include_superseded=state != "current", shelves=state == "all")
        if state not in ("current", "all"):
            views = [view for view in views if view.state == state]
        return views[::-1]

    def timeline(self, request: Request) -> Response:
        """Show what holds and once held of a subject."""
        subject = request.path_params["subject"]
        return self._pages.page(
            request,
            "timeline.html",
            title=subject,
            timeline=read_timeline(self._memory, subject),
        )

    def review(self, request: Request) -> Response:
        """Show what waits for a decision, alike things together."""
        waiting = self._memory.knowledge.person.review_queue()
        return self._pages.page(
            request,
            "review.html",
            title="Review",
            items=[item.to_json() for item in waiting[:PAGE_WAITING]],
            total=len(waiting),
            decided=(),
        )
