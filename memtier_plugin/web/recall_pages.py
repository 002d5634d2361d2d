"""Serve the pages of recalls and of the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.core.errors import MessageError, NotFound
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import INJECTING, Entry
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.lifecycle.history import History
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.text.dates.spans import read_typed_time
from memtier_plugin.views.reading import read_recall
from memtier_plugin.web.rendering import Form, PagePart, read_form

# -- Recalls: the newest, why each chose its lines, and previews of new ones

RECALLS: Final = 100  # on the list
HITS: Final = 20  # of a search


class RecallPages(PagePart):
    """Shows recalls, and previews new ones."""

    @property
    def routes(self) -> list[Route]:
        """The addresses of recalls and of the search."""
        return [
            Route("/recalls", self.list_recalls),
            Route("/recalls/{recall}", self.show_recall),
            Route("/search", self.ask),
            Route("/search", self.search, methods=["POST"]),
        ]

    def list_recalls(self, request: Request) -> Response:
        """Show the newest recalls; by default those for prompts."""
        everything = request.query_params.get("all") == "yes"
        self._memory.store.catch_up_all()
        events = self._memory.events(kinds=[RecallEvent.KIND], limit=5 * RECALLS)
        rows = []
        for event in reversed(events):
            recall = RecallEvent.of(event)
            if everything or recall.purpose in INJECTING:
                rows.append(
                    {
                        "id": event.id,
                        "at": to_iso(event.timestamp),
                        "agent": event.agent_id,
                        "recall": recall,
                    }
                )
        return self._pages.page(
            request, "recalls.html", title="Recalls", rows=rows[:RECALLS], everything=everything
        )

    def show_recall(self, request: Request) -> Response:
        """Show why a recall chose its lines, what it narrowly missed, and what the prompt got."""
        identity = request.path_params["recall"]
        view = read_recall(self._memory, identity)
        return self._pages.page(request, "recall.html", title="Why this recall", recall=view)

    def ask(self, request: Request) -> Response:
        """Show the empty form of a search."""
        return self._search_page(request, {}, None)

    async def search(self, request: Request) -> Response:
        """Recall for a query, now or as of a time, as a prompt of the agent would get it.

        Without an agent, everything recorded is searched, whoever said it.
        """
        return await self._pages.in_thread(self._search, request, await read_form(request))

    def _search(self, request: Request, form: Form) -> Response:
        query, sender = form.text("query"), form.get("sender") or None
        if not query:
            return self._search_page(request, form, None)
        agent = form.get("agent", self._agent)
        if agent and agent not in self._agents():
            raise NotFound(f"there is no agent {agent!r} in this project")
        viewer = self._memory.actor
        actor = replace(viewer, agent=agent or viewer.agent, everybody=not agent)
        if as_of := form.text("as_of"):
            moment, history = (
                parse_moment(as_of, viewer.clock()),
                History(actor, self._memory.knowledge.person),
            )
            recall = history.recall(query, moment, sender=sender, purpose="preview")
        else:
            request_of_person = RecallRequest(purpose="preview", sender=sender)
            recall = Recaller(actor).recall(query, request_of_person)
        injected = {hit.id: hit.note for hit in recall.injected}
        hits = [
            {
                **_hit(hit),
                "weight": hit.weight,
                "injected": hit.id in injected,
                "note": injected.get(hit.id, hit.note),
            }
            for hit in recall.hits[:HITS]
        ]
        return self._search_page(
            request, form, {"recall": recall, "hits": hits, "journalled": not as_of}
        )

    @property
    def _agent(self) -> str:
        """The agent selected at first; "" for all agents."""
        return "" if self._memory.actor.everybody else self._memory.agent_id

    def _agents(self) -> set[str]:
        with self._memory.store.session() as reader:
            return {span.agent for span in reader.session_spans()} | {self._memory.agent_id}

    def _search_page(
        self, request: Request, form: Mapping[str, str], result: dict[str, Any] | None
    ) -> Response:
        self._memory.store.catch_up_all()
        with self._memory.store.session() as reader:
            people = reader.people()
        chosen = {name: form.get(name, "") for name in ("query", "as_of")}
        chosen["agent"] = form.get("agent", self._agent)
        speaks_most = max(people, key=lambda person: people[person], default="")
        return self._pages.page(
            request,
            "search.html",
            title="Search",
            agents=sorted(self._agents()),
            senders=sorted({"", *people}),
            sender=form.get("sender", speaks_most),
            result=result,
            **chosen,
        )


def _hit(hit: Hit) -> dict[str, Any]:
    item = hit.item
    when = item.observed_at if isinstance(item, Entry) else item.valid_from or item.timestamp
    return {"item": item, "score": hit.score, "at": to_iso(when), "tier": hit.tier}


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the time that a text names.

    Raises:
        MessageError: it names none.
    """
    try:
        return read_typed_time(text, now)
    except ValueError as error:
        raise MessageError(str(error)) from None
