"""Answer a question: from facts if they suffice, else from the pages of the log.

Every answer cites ledger lines, and each is looked up before the answer is returned: it must exist,
and be visible to the asker.  With a model (`ask.model`) a router decides, the pages are read in at
most `ask.rounds` rounds, and worthwhile findings are stored as facts; or a plugin searches in its
own way (`ask.mode`).
Without a model, or if it fails, the answer quotes the lines that are likely to answer, and says so.
Only lines that pass the floor (`retrieval.judgement`) are quoted or given to a model; without any,
the answer is that nothing is stored, and no model is asked.

The stages are those of TierMem (TierMem, sections 2.2 to 2.4).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, zip_longest
from typing import Any, Final

from memtier_plugin.answering.citations import (
    PASSAGE_CHARS,
    Citation,
    cite_findings,
    cite_hits,
)
from memtier_plugin.answering.grounding import distinct, find_grounds, finding_of_line
from memtier_plugin.answering.llm import (
    AnswerFinding,
    AnsweringModel,
    FollowUp,
    FollowUpBudget,
    ModelAnswer,
)
from memtier_plugin.answering.store_search import StoreSearch
from memtier_plugin.answering.write_back import FindingWriter
from memtier_plugin.core import plugins
from memtier_plugin.core.errors import NOT_RERANKED, CapReached, EndpointError, RerankUnavailable
from memtier_plugin.core.events import AskEvent
from memtier_plugin.core.formats import aware, new_id
from memtier_plugin.core.hookspecs import AskMode
from memtier_plugin.core.records import Fact, Purpose
from memtier_plugin.core.results import Depth, Hit, Recall, RecallRequest, Route, Step
from memtier_plugin.retrieval.duplicates import hit_time
from memtier_plugin.retrieval.plan import with_subject
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.retrieval.visibility import PageReader, Viewer
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.overviews import Page
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.passages import select_passage

EXTRACTIVE_LINES: Final = 5  # quoted without a model
EXTRACTIVE: Final = "extractive"
NOTHING: Final = "Nothing about this is stored."
UNANSWERED: Final = "No answer was found. What comes nearest:"
MIN_SHARE: Final = 0.5  # of the best line's probability, below which a line is not quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, its citations, and its cost.

    ``answered`` is false if nothing stored fits the question, or the model says that it does not
    answer it.  ``by`` is the model, or "extractive" if the text quotes lines verbatim; ``problem``
    says why no model answered although one should have, or what was unavailable.
    ``rejected`` counts the model's citations of nonexistent lines.
    """

    id: str
    question: str
    text: str
    answered: bool
    by: str
    route: Route
    citations: tuple[Citation, ...]
    steps: tuple[Step, ...]
    rounds: int = 0
    pages: tuple[str, ...] = ()
    written: tuple[Fact, ...] = ()
    rejected: int = 0
    problem: str = ""

    @property
    def tokens(self) -> int:
        """The tokens that the model read and wrote, including the router's and the planner's."""
        return sum(step.tokens for step in self.steps)

    @property
    def ms(self) -> float:
        """The total milliseconds of all steps."""
        return sum(step.ms for step in self.steps)

    def to_document(self) -> dict[str, Any]:
        """Return the answer in the form of `memtier ask --json` and JSON-RPC."""
        return {
            "id": self.id,
            "question": self.question,
            "answer": self.text,
            "answered": self.answered,
            "by": self.by,
            "problem": self.problem,
            "route": self.route.to_json(),
            "citations": [citation.to_document() for citation in self.citations],
            "rounds": self.rounds,
            "pages": list(self.pages),
            "written": [fact.to_json() for fact in self.written],
            "rejected": self.rejected,
            "tokens": self.tokens,
            "ms": round(self.ms, 3),
            "steps": [step.to_json() for step in self.steps],
        }


@dataclass(slots=True)
class _Inquiry:
    """A question, and the cost of answering it so far."""

    id: str
    question: str
    viewer: Viewer
    write_back: bool
    session: str | None = None
    subject: str = ""
    steps: list[Step] = field(default_factory=list)
    rounds: int = 0
    pages: list[str] = field(default_factory=list)
    rejected: int = 0
    problem: str = ""

    @property
    def text(self) -> str:
        """The question, with the subject that its session implies."""
        return with_subject(self.question, self.subject)

    def answer(
        self,
        by: str,
        route: Route,
        text: str,
        *,
        answered: bool,
        citations: Sequence[Citation],
        written: Sequence[Fact] = (),
        problem: str = "",
    ) -> Answer:
        return Answer(
            id=self.id,
            question=self.question,
            text=text,
            answered=answered,
            by=by,
            route=route,
            citations=tuple(citations),
            steps=tuple(self.steps),
            rounds=self.rounds,
            pages=tuple(dict.fromkeys(self.pages)),
            written=tuple(written),
            rejected=self.rejected,
            problem=problem or self.problem,
        )


class Answerer:
    """Answers the questions of one agent."""

    def __init__(self, actor: Actor, recaller: Recaller) -> None:
        self._actor = actor
        self._store = actor.store
        self._recaller = recaller

    def ask(
        self,
        question: str,
        *,
        sender: str | None = None,
        at: datetime | None = None,
        write_back: bool | None = None,
        session_id: str | None = None,
    ) -> Answer:
        """Answer a question; see `MemTier.ask`."""
        actor, settings, paused = self._actor, self._store.settings.ask, self._store.paused
        at = aware(at) or actor.clock()
        viewer = self._recaller.viewer(sender, at)
        keep = settings.write_back if write_back is None else write_back
        question, session = question.strip(), actor.mask_name(session_id)
        subject = "" if paused else self._subject(question, viewer, session)
        inquiry = _Inquiry(new_id(), question, viewer, keep, session, subject)
        budget = ChatBudget(self._store, actor.agent, actor.clock)
        chat = budget.chat_model(settings.model, key="ask.model")
        if chat is None or paused:
            answer = self._quote_lines(inquiry, "the project is off" if paused else "")
        else:
            model = AnsweringModel(chat)
            try:
                answer = self._answer_by_model(inquiry, model)
            except (EndpointError, CapReached) as error:
                inquiry.steps += model.steps
                answer = self._quote_lines(inquiry, str(error))
        if not paused:
            self._journal(answer)
        return answer

    def _subject(self, question: str, viewer: Viewer, session: str | None) -> str:
        with self._store.session():
            request = RecallRequest(session_id=session, purpose="ask")
            return self._recaller.subjects.find(question, viewer, request)

    # -- without a model -----------------------------------------------------------------------

    def _quote_lines(self, inquiry: _Inquiry, problem: str) -> Answer:
        """Answer with the most informative lines, each with its sources."""
        recall = self._recall(inquiry, "mixed", inquiry.text)
        hits = _quotable(recall)[:EXTRACTIVE_LINES]
        with self._store.session() as reader:
            citations = cite_hits(PageReader(reader, inquiry.viewer), [(hit, None) for hit in hits])
        tokenize = self._store.tokenizer.words
        weights = dict.fromkeys(tokenize(inquiry.text), 1.0)
        lines, quoted = list[str](), set[str]()
        for hit in hits:
            rests_on = {source.entry for source in hit.sources}
            if rests_on and rests_on <= quoted:
                continue  # another line says the same
            quoted |= rests_on
            sources = {hit.id, *rests_on}
            names = [citation.short for citation in citations if citation.id in sources]
            if not names:
                continue  # this viewer may see none of its sources
            passage = select_passage(hit.text, weights, tokenize, PASSAGE_CHARS)
            note = f" ({hit.note})" if hit.note else ""
            lines.append(f"- {hit_time(hit):%Y-%m-%d} {passage}{note} [{', '.join(names)}]")
        route = _quoted_route(hits) if lines else _no_route(recall)
        text = "\n".join(lines) or NOTHING
        return inquiry.answer(
            EXTRACTIVE, route, text, answered=bool(lines), citations=citations, problem=problem
        )

    # -- with a model --------------------------------------------------------------------------

    def _answer_by_model(self, inquiry: _Inquiry, model: AnsweringModel) -> Answer:
        facts = self._recall(inquiry, "facts", inquiry.text)
        first = None if facts.injected else self._search_log(inquiry, model)
        if first is not None and not first.injected:  # nothing for a model to read
            return inquiry.answer(
                EXTRACTIVE, _no_route(first), NOTHING, answered=False, citations=()
            )
        if search := plugins.find_ask_mode(self._store.settings.ask.mode):
            return self._answer_by_search(inquiry, model, search)
        inquiry.problem = "; ".join(self._store.settings.missing("ask.mode"))
        route = model.route(inquiry.text, facts.injected)
        reply: ModelAnswer | None = None
        if route.action == "S":
            reply = self._answer_from_lines(inquiry, model, facts.injected)
            if reply is None:
                doubt = "the facts did not answer it after all"
                route = replace(route, action="R", doubt=1.0, why=(*route.why, doubt))
        if route.action == "R":
            first = first or self._search_log(inquiry, model)
            reply = self._answer_from_lines(inquiry, model, first.injected)
            if reply is None:
                findings = self._read_log(inquiry, model, facts.injected, first.injected)
                reply = self._answer_from(inquiry, model, findings) if findings else None
        inquiry.rejected += model.unlocated + (reply.invented if reply else 0)
        citations = self._cite(inquiry, reply) if reply else []
        if reply is None or not (reply.enough and citations):
            return self._quote_uncited(inquiry, model, reply)
        written: Sequence[Fact] = ()
        if route.action == "R" and inquiry.write_back:
            quoted = [finding for finding in reply.cites if finding.quote]
            written = FindingWriter(self._actor).write(inquiry.id, inquiry.text, quoted, model)
        inquiry.steps += model.steps
        return inquiry.answer(
            model.model.name,
            route,
            reply.text,
            answered=True,
            citations=citations,
            written=written,
        )

    def _search_log(self, inquiry: _Inquiry, model: AnsweringModel) -> Recall:
        """Search the log; if its ranker has stages, one by one until the model has enough."""
        *first, last = self._recaller.ranker.stages or (None,)
        for stage in first:
            recall = self._recall(inquiry, "raw", inquiry.text, stage=stage)
            if model.suffices(inquiry.text, recall.injected):
                return recall
        return self._recall(inquiry, "raw", inquiry.text, stage=last)

    def _quote_uncited(
        self, inquiry: _Inquiry, model: AnsweringModel, reply: ModelAnswer | None
    ) -> Answer:
        """Quote lines in place of an answer that rests on none, or that is none."""
        inquiry.steps += model.steps
        if reply is None:
            why = "no quote for an answer was found"
        else:
            why = "no line holds its answer" if reply.enough else "found no answer"
        answer = self._quote_lines(inquiry, f"{model.model.name}: {why}")
        if reply is None or reply.enough or not answer.answered:
            return answer
        return replace(answer, answered=False, text=f"{UNANSWERED}\n{answer.text}")

    def _answer_by_search(
        self, inquiry: _Inquiry, model: AnsweringModel, answer: AskMode
    ) -> Answer:
        """Let a plugin search for the answer; its citations are checked like those of pages."""
        search = StoreSearch(self._store, self._recaller, inquiry.viewer)
        try:
            searched = answer(search, model, inquiry.text, inquiry.viewer.at)
        finally:
            inquiry.steps += search.steps
        reply = searched.answer and self._grounded(inquiry, searched.answer, search.findings)
        inquiry.rounds = len(search.steps)
        inquiry.rejected += reply.invented if reply else 0
        citations = self._cite(inquiry, reply) if reply else []
        if reply is None or not (reply.enough and citations):
            return self._quote_uncited(inquiry, model, reply)
        inquiry.steps += model.steps
        name, why = model.model.name, f"ask.mode is {self._store.settings.ask.mode}"
        route = Route(action="R", doubt=1.0, why=(why, *searched.why), by=name)
        return inquiry.answer(
            name,
            route,
            reply.text,
            answered=True,
            citations=citations,
            problem=searched.problem,
        )

    def _answer_from_lines(
        self, inquiry: _Inquiry, model: AnsweringModel, hits: Sequence[Hit]
    ) -> ModelAnswer | None:
        """Return the answer from these lines alone; None if they do not answer or cite nothing."""
        tokenize = self._store.tokenizer.words
        findings = [finding_of_line(hit, inquiry.text, tokenize) for hit in hits]
        reply = self._answer_from(inquiry, model, findings) if findings else None
        return reply if reply and reply.enough and self._cite(inquiry, reply) else None

    def _answer_from(
        self, inquiry: _Inquiry, model: AnsweringModel, findings: Sequence[AnswerFinding]
    ) -> ModelAnswer | None:
        reply = model.answer(inquiry.text, inquiry.viewer.at, findings)
        return reply and self._grounded(inquiry, reply, findings)

    def _grounded(
        self, inquiry: _Inquiry, reply: ModelAnswer, shown: Sequence[AnswerFinding]
    ) -> ModelAnswer:
        """Return an answer that cites only what holds its words."""
        tokenize = self._store.tokenizer.words
        grounds = find_grounds(inquiry.text, reply.text, reply.cites, shown, tokenize)
        return replace(reply, cites=grounds)

    def _cite(self, inquiry: _Inquiry, reply: ModelAnswer) -> list[Citation]:
        with self._store.session() as reader:
            return cite_findings(PageReader(reader, inquiry.viewer), reply.cites)

    def _read_log(
        self,
        inquiry: _Inquiry,
        model: AnsweringModel,
        facts: Sequence[Hit],
        lines: Sequence[Hit],
    ) -> list[AnswerFinding]:
        """Read pages in bounded rounds; return their findings, located in the log."""
        settings = self._store.settings.ask
        budget = FollowUpBudget(settings.pages)
        budget.claim_new([FollowUp("semantic", inquiry.text)])
        findings: list[AnswerFinding] = []
        missing = ""
        with self._store.session() as reader:
            pages = PageReader(reader, inquiry.viewer)
            # The pages of facts and of entries alternate, so that neither fills a round.
            linked = _alternate(pages.pages_of_hits(facts), pages.pages_of_hits(lines))
            linked = self._rerank_pages(inquiry, linked, pages)
            budget.add_pages(page.id for page in linked)
            near = _sources_of([*facts, *lines])
            for number in range(settings.rounds):
                inquiry.rounds = number + 1
                if new_pages := budget.take_pages():
                    inquiry.pages += new_pages
                    visible = filter(None, map(pages.page, new_pages))
                    read = [pages.hits_near(page, near) for page in visible]
                    new, missing = model.integrate(inquiry.text, findings, read)
                    findings += new
                if number == settings.rounds - 1:
                    break  # no round is left to read further hits
                plan = model.plan(inquiry.text, findings, missing, [*budget.searched.values()])
                if not plan and (findings or not budget.pending):
                    break
                for search in budget.claim_new(plan):
                    hits = self._follow_up(inquiry, search)
                    near |= _sources_of(hits)
                    budget.add_pages(page.id for page in pages.pages_of_hits(hits))
                if not budget.pending:
                    break
        return distinct(findings)

    def _rerank_pages(self, inquiry: _Inquiry, linked: list[Page], pages: PageReader) -> list[Page]:
        """Return the pages in the order of a plugin, if one ranks them."""
        settings, started = self._store.settings, time.monotonic()
        name, redact = "rerank pages", self._recaller.redact
        try:
            ordered = plugins.order_pages(inquiry.text, linked, pages, settings, redact)
        except RerankUnavailable as error:
            name = f"pages {NOT_RERANKED}: {error}"
        else:
            if ordered is None:
                return linked
            linked = [*ordered]
        ms = (time.monotonic() - started) * 1000
        inquiry.steps.append(Step(name=name, ms=ms, read=len(linked)))
        return linked

    def _follow_up(self, inquiry: _Inquiry, search: FollowUp) -> Sequence[Hit]:
        by_meaning = search.kind == "semantic"
        return self._recall(
            inquiry, "raw", search.text, purpose="search", by_meaning=by_meaning
        ).hits

    def _recall(
        self,
        inquiry: _Inquiry,
        depth: Depth,
        text: str,
        *,
        purpose: Purpose = "ask",
        by_meaning: bool = True,
        stage: str | None = None,
    ) -> Recall:
        started = time.monotonic()
        viewer = inquiry.viewer
        is_question = text == inquiry.text  # a model's own searches are not expanded
        request = RecallRequest(
            session_id=inquiry.session,
            sender=viewer.sender,
            at=viewer.at,
            depth=depth,
            purpose=purpose,
        )
        recaller = Recaller(self._actor) if stage else self._recaller
        recaller.stage = stage
        text = inquiry.question if is_question else text
        recall = recaller.recall(text, request, by_meaning=by_meaning, expands=is_question)
        ms = (time.monotonic() - started) * 1000
        read = recall.postings + recall.vectors
        # of models that expanded the query; the steps of the block cost nothing
        tokens = sum(step.tokens for step in recall.steps if step.name != "pack")
        inquiry.steps.append(Step(name=f"recall {depth}", ms=ms, tokens=tokens, read=read))
        return recall

    def _journal(self, answer: Answer) -> None:
        event = AskEvent(
            question=self._recaller.redact(answer.question[:2000]),
            by=answer.by,
            answered=answer.answered,
            route=answer.route.to_json(),
            rounds=answer.rounds,
            pages=answer.pages,
            citations=tuple(citation.id for citation in answer.citations),
            written=tuple(fact.id for fact in answer.written),
            rejected=answer.rejected,
            problem=answer.problem[:500],
            tokens=answer.tokens,
            steps=tuple(step.to_json() for step in answer.steps),
        )
        self._store.append_events([self._actor.event(event, event_id=answer.id)])


def _quotable(recall: Recall) -> Sequence[Hit]:
    """Return the lines likely to answer on their own: those close to the best one."""
    best = max((hit.probability or 0.0 for hit in recall.injected), default=0.0)
    least = MIN_SHARE * best
    return [h for h in recall.injected if h.probability is None or h.probability >= least]


def _sources_of(hits: Iterable[Hit]) -> set[str]:
    return {source.entry for hit in hits for source in hit.sources}


def _quoted_route(hits: Sequence[Hit]) -> Route:
    """Return the route of a quoting answer: to the facts if all its lines are facts."""
    facts = all(isinstance(hit.item, Fact) for hit in hits)
    why = ("its lines are quoted, without a model",)
    return Route(action="S" if facts else "R", doubt=0.0 if facts else 1.0, why=why)


def _no_route(recall: Recall) -> Route:
    """Return the route of a question without matching hits."""
    return Route(action="R", doubt=1.0, why=(recall.silent or "nothing was found",))


def _alternate(*groups: Sequence[Page]) -> list[Page]:
    return [page for page in chain.from_iterable(zip_longest(*groups)) if page is not None]
