"""Serve the pages of recalls, of the search and of a person's decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from memtier_plugin.core.errors import MessageError, NotFound
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import INJECTING, Entry, Fact
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.lifecycle.edit import Change
from memtier_plugin.lifecycle.history import History
from memtier_plugin.lifecycle.selection import Selection, select_items
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


# -- What a person decides: review, correct, forget, bring back, purge; by POST alone
#
# Forgetting and purging take two requests: the first shows what would go, the second does it.

_Work = Callable[[Request, Form], Response]
_UNFORGOTTEN: Final = 500  # lines that one form brings back
_LISTED: Final = 50  # of the lines that would be forgotten


class DecisionPages(PagePart):
    """Carries out what the person at the machine decided."""

    @property
    def routes(self) -> list[Route]:
        """The addresses that change something; and the empty form of a purge."""
        return [
            self._post("/review", self.decide),
            self._post("/reword", self.reword),
            self._post("/forget", self.forget),
            self._post("/unforget", self.unforget),
            self._post("/purge", self.purge),
            Route("/purge", self.ask_purge),
        ]

    def _post(self, path: str, work: _Work) -> Route:
        async def answer(request: Request) -> Response:
            return await self._pages.in_thread(work, request, await read_form(request))

        return Route(path, answer, methods=["POST"])

    # -- review --------------------------------------------------------------------------------

    def decide(self, request: Request, form: Form) -> Response:
        """Accept, reject or reword what waits; the answer has the decision and its outcome."""
        person, ids = self._memory.knowledge.person, form.all("id")
        if not ids:
            raise MessageError("nothing was chosen to be decided")
        match form.text("decision"):
            case "accept":
                outcomes = person.accept(ids)
            case "reject":
                outcomes = person.reject(ids, form.text("why"))
            case "edit" if len(ids) == 1:
                outcomes = [self._memory.edit_fact(ids[0], form.text("text"))]
            case _:
                raise MessageError("the decision is accept, reject or, of one fact, edit")
        return self._pages.page(
            request,
            "decided.html",
            title="Decided",
            outcomes=[asdict(outcome) for outcome in outcomes],
            left=len(person.review_queue()),
        )

    def reword(self, request: Request, form: Form) -> Response:
        """Replace a fact by the person's words, and redirect to the new fact."""
        person = self._memory.knowledge.person
        fact = person.fact(person.full_id(form.text("id"))).fact
        change = Change("reword", fact.id, fact.text, form.text("text"), 1)
        [done] = self._memory.editor.apply([change])
        return RedirectResponse(f"/lines/{done.new[0]}", HTTPStatus.SEE_OTHER)

    # -- forget --------------------------------------------------------------------------------

    def forget(self, request: Request, form: Form) -> Response:
        """Show what would be hidden, or hide it once confirmed."""
        person, done = self._memory.knowledge.person, form.text("confirmed") == "yes"
        self._memory.store.catch_up_all()
        entries, facts = select_items(self._memory.store, self._selection(form))
        chosen = [*entries, *facts]
        plan = person.forget(ids=chosen, dry_run=True)
        removed = [*plan.ids, *plan.facts]
        lines = self._lines(removed)
        if done:
            person.forget(ids=chosen)
        return self._pages.page(
            request,
            "forget.html",
            title="Forgotten" if done else "Forget?",
            target=form.target(),
            removed=removed,
            most=_UNFORGOTTEN,
            lines=lines,
            done=done,
        )

    def unforget(self, request: Request, form: Form) -> Response:
        """Bring back what was hidden."""
        back = self._memory.unforget(form.all("id"))
        lines = self._lines([*back.ids, *back.facts])
        return self._pages.page(request, "unforgotten.html", title="Brought back", lines=lines)

    def _selection(self, form: Form) -> Selection:
        person = self._memory.knowledge.person
        ids = tuple(person.full_id(identity) for identity in form.all("id"))
        selection = Selection(
            ids=ids,
            agent=form.text("agent") or None,
            session=form.text("session") or None,
        )
        if not selection or selection == Selection(agent=selection.agent):
            raise MessageError("say what you mean: lines, a session or a text")
        return selection

    def _lines(self, ids: Sequence[str]) -> list[Entry | Fact]:
        with self._memory.store.session() as reader:
            return [stored.item for stored in reader.items(ids[:_LISTED]).values()]

    # -- purge ---------------------------------------------------------------------------------

    def ask_purge(self, request: Request) -> Response:
        """Show the form of a purge."""
        return self._pages.page(
            request, "purge.html", title="Purge", receipt=None, target=(), why=""
        )

    def purge(self, request: Request, form: Form) -> Response:
        """Show every copy that would be erased, or erase them once confirmed."""
        text = form.get("text", "").strip("\r\n")
        target: Selection | str = text if text.strip() else self._selection(form)
        plan = self._memory.purge(target, dry_run=True)
        count = str(plan.copies.found)
        receipt, why = plan, ""
        if form.text("confirmed") == "yes":
            if form.text("expected") == count:
                receipt = self._memory.purge(target)
            else:
                why = "The copies have changed since they were shown; check them again."
        return self._pages.page(
            request,
            "purge.html",
            title="Purged" if receipt.done else "Purge?",
            receipt=receipt.to_json(),
            found=count,
            target=() if receipt.done else form.target(),
            why=why,
        )
