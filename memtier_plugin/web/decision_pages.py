"""Serve what a person decides: review, correct, withdraw, close, forget, bring back, purge.

Only a POST changes anything.  Forgetting and purging take two: the first shows what would go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.records import REVIEWED, Entry, Fact
from memtier_plugin.facts.review import ReviewItem, ReviewOutcome
from memtier_plugin.lifecycle.edit import Change
from memtier_plugin.lifecycle.selection import Selection, select_items
from memtier_plugin.web.rendering import Form, PagePart, is_inline, read_form

_Work = Callable[[Request, Form], Response]
_UNFORGOTTEN: Final = 500  # lines that one form brings back
_LISTED: Final = 50  # of the lines that would be forgotten
PAGE_WAITING: Final = 50


class DecisionPages(PagePart):
    """Carries out what the person at the machine decided."""

    @property
    def routes(self) -> list[Route]:
        """The addresses that change something; the review, and the empty form of a purge."""
        return [
            Route("/review", self.review),
            self._post("/review", self.decide),
            self._post("/reword", self.reword),
            self._post("/undo", self.undo),
            self._post("/close", self.close),
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

    def review(self, request: Request) -> Response:
        """Show what awaits a decision, similar items together."""
        return self._review(request, 0, ())

    def _review(
        self, request: Request, started_with: int, outcomes: Sequence[dict[str, Any]]
    ) -> Response:
        """Show the queue below what was just decided.

        Args:
            started_with: how many waited when the person began; the items are counted on from it.
        """
        waiting = self._memory.knowledge.person.review_queue()
        of = max(started_with, len(waiting))
        first = of - len(waiting) + 1
        items = [
            {**item.to_json(), "number": n} for n, item in enumerate(waiting[:PAGE_WAITING], first)
        ]
        return self._pages.page(
            request,
            "review.html",
            title="Review",
            groups=[(name, [*alike]) for name, alike in groupby(items, itemgetter("group"))],
            of=of,
            more=len(waiting) - len(items),
            outcomes=outcomes,
        )

    def decide(self, request: Request, form: Form) -> Response:
        """Accept, reject or reword what waits; answer with the outcome, or with what is left."""
        person, ids = self._memory.knowledge.person, form.all("id")
        if not ids:
            raise MessageError("nothing was chosen to be decided")
        waiting = {item.id: item for item in person.review_queue()}
        match decision := form.text("decision"):
            case "accept":
                outcomes = person.accept(ids)
            case "reject":
                outcomes = person.reject(ids, form.text("why"))
            case "edit" if len(ids) == 1:
                outcomes = [self._memory.edit_fact(ids[0], form.text("text"))]
            case _:
                raise MessageError("the decision is accept, reject or, of one fact, edit")
        described = self._describe(outcomes, waiting, edited=decision == "edit")
        if not is_inline(request):
            of = form.text("of")
            started_with = int(of[:6]) if of.isdecimal() else 0
            return self._review(request, started_with, described)
        left = len(person.review_queue())
        return self._pages.page(
            request, "decided.html", title="Decided", outcomes=described, left=left
        )

    def _describe(
        self,
        outcomes: Iterable[ReviewOutcome],
        waiting: dict[str, ReviewItem],
        *,
        edited: bool,
    ) -> list[dict[str, Any]]:
        """Return each outcome with the id and the text of the fact or line it is about."""
        described = []
        for outcome in outcomes:
            item = waiting.get(outcome.id)
            identity = item.proposal.item if item and item.proposal else outcome.id
            text = item.text if item else "".join(line.text for line in self._lines([identity]))
            described.append({**asdict(outcome), "item": identity, "text": text, "edited": edited})
        return described

    # -- correct, withdraw and close -----------------------------------------------------------

    def reword(self, request: Request, form: Form) -> Response:
        """Replace a fact by the person's words; the answer can take that back."""
        person = self._memory.knowledge.person
        fact = person.fact(person.full_id(form.text("id"))).fact
        if form.text("text") == fact.text:
            raise MessageError("these are the words that the fact has now")
        change = Change("reword", fact.id, fact.text, form.text("text"), 1)
        [done] = self._memory.editor.apply([change])
        undo = ("/undo", "Undo", {"id": done.new[0]})
        return self._done(request, "Corrected", self._lines(done.new), [fact], undo)

    def undo(self, request: Request, form: Form) -> Response:
        """Take a person's wording back; the fact that it replaced holds, or waits, again."""
        person = self._memory.knowledge.person
        view = person.fact(person.full_id(form.text("id")))
        entry = next((line.entry for line in view.lines if line.entry), None)
        if view.fact.extractor != REVIEWED or entry is None or entry.run_id is None:
            raise MessageError("only a correction can be undone, and this fact is none")
        undone = self._memory.history.revert(entry.run_id, agent=entry.agent_id)
        lines = self._lines(undone.restored)
        return self._done(request, "Undone", lines, [view.fact])

    def close(self, request: Request, form: Form) -> Response:
        """Close an intention as done or dismissed."""
        person, why = self._memory.knowledge.person, form.text("why")
        if why not in ("done", "dismissed"):
            raise MessageError("an intention is done or dismissed")
        closing = cast("Literal['done', 'dismissed']", why)
        fact = person.close(person.full_id(form.text("id")), closing).fact
        undo = ("/review", "Open again", {"id": fact.id, "decision": "accept"})
        return self._done(request, why.capitalize(), [], [fact], undo)

    def _done(
        self,
        request: Request,
        title: str,
        lines: Sequence[Entry | Fact],
        gone: Sequence[Fact] = (),
        undo: tuple[str, str, dict[str, str]] = ("", "", {}),
    ) -> Response:
        """Show what holds now and what no longer does.

        Args:
            undo: the path, the label and the fields of the form that takes it back.
        """
        path, label, fields = undo
        return self._pages.page(
            request,
            "done.html",
            title=title,
            lines=lines,
            gone=gone,
            undo=path,
            label=label,
            fields=fields.items(),
        )

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
            back=f"/lines/{removed[0]}" if len(removed) == 1 else "/log",
        )

    def unforget(self, request: Request, form: Form) -> Response:
        """Bring back what was hidden."""
        back = self._memory.unforget(form.all("id"))
        lines = self._lines([*back.ids, *back.facts])
        return self._done(request, "Brought back", lines)

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
