"""What a person decides: review, correct, forget, bring back, purge; by POST alone.

Forgetting and purging are asked twice: the first answer shows what would go, the second does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.lifecycle.edit import Change
from memtier_plugin.lifecycle.selection import Selection, select_items
from memtier_plugin.web.forms import Form, read_form
from memtier_plugin.web.rendering import PagePart

_Work = Callable[[Request, Form], Response]
_UNFORGOTTEN: Final = 500  # lines that one form brings back
_LISTED: Final = 50  # of the lines that would be forgotten


class DecisionPages(PagePart):
    """Writes what the person at the machine decided, through the memory's own services."""

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
        """Put the person's words in the place of a fact's; the answer leads to the new fact."""
        person = self._memory.knowledge.person
        fact = person.fact(person.full_id(form.text("id"))).fact
        change = Change("reword", fact.id, fact.text, form.text("text"), 1)
        [done] = self._memory.editor.apply([change])
        return RedirectResponse(f"/lines/{done.new[0]}", HTTPStatus.SEE_OTHER)

    # -- forget --------------------------------------------------------------------------------

    def forget(self, request: Request, form: Form) -> Response:
        """Show what would be hidden; or hide it, if that was confirmed."""
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
            raise MessageError("name what is meant: lines, a session, or a text")
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
        """Show every copy that would be erased; or erase them, if that was confirmed."""
        text = form.get("text", "").strip("\r\n")
        target: Selection | str = text if text.strip() else self._selection(form)
        plan = self._memory.purge(target, dry_run=True)
        count = str(plan.copies.found)
        receipt, why = plan, ""
        if form.text("confirmed") == "yes":
            if form.text("expected") == count:
                receipt = self._memory.purge(target)
            else:
                why = "There are other copies now than were shown: look at them once more."
        return self._pages.page(
            request,
            "purge.html",
            title="Purged" if receipt.done else "Purge?",
            receipt=receipt.to_json(),
            found=count,
            target=() if receipt.done else form.target(),
            why=why,
        )
