"""Answering a question: from facts where they are enough, else from the pages of the log.

Every answer names the ledger lines that it rests on.  Each is looked up before it is given: it must
be there, and the asker must be allowed to see it.  With a model (`ask.model`) a router decides, the
pages are read in at most `ask.rounds` rounds, and what was found and is worth it is kept as facts;
without one, or when it fails, the answer is the lines that say most, as they stand, and says so.
Source: TierMem (seeds 2.2 to 2.4).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from memtier_plugin.answering.llm import AnswerFinding, AnsweringModel, ModelAnswer
from memtier_plugin.answering.write_back import FindingWriter
from memtier_plugin.core.errors import CapReached, EndpointError
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.results import Hit, Recall, RecallRequest, Route, Step
from memtier_plugin.core.times import aware
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.retrieval.contradictions import hit_time
from memtier_plugin.retrieval.follow_up import FollowUp, FollowUpBudget
from memtier_plugin.retrieval.pages import PageReader
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.text.passages import select_passage

EXTRACTIVE_LINES: Final = 5  # of an answer without a model
EXTRACTIVE: Final = "extractive"
_PASSAGE: Final = 400  # characters of a cited line that are shown
_WIDE_K: Final = 50  # lines that a search of the research loop looks at


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A ledger line that an answer rests on: file and line, who said it when, and the words.

    ``fact`` is the fact that led to it, where one did; it is the fact's own line where the asker
    may see none of those that the fact rests on.
    """

    id: str
    agent: str
    session: str
    file: str | None
    line: int | None
    said: datetime
    who: str
    text: str
    fact: str | None = None

    @property
    def short(self) -> str:
        """The end of its id, as it stands in the answer."""
        return self.id[-SHORT_ID_CHARS:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is answered, from what, and what it took.

    ``answered`` is false where what was found does not answer the question.  ``by`` is the model,
    or "extractive" where the text is made of lines as they stand; ``problem`` then says why, if a
    model should have answered.  ``rejected`` counts what the model named that is not there.
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
        """The tokens that the model read and wrote, the router's and the planner's included."""
        return sum(step.tokens for step in self.steps)

    @property
    def ms(self) -> float:
        """The milliseconds of all steps."""
        return sum(step.ms for step in self.steps)


@dataclass(slots=True)
class _Question:
    """One question on its way."""

    id: str
    text: str
    asker: Viewer
    now: datetime
    steps: list[Step] = field(default_factory=list)
    rounds: int = 0
    pages: list[str] = field(default_factory=list)
    rejected: int = 0


class Answerer:
    """Answers the questions of one agent."""

    def __init__(self, actor: Actor, recaller: Recaller) -> None:
        self._actor = actor
        self._store = actor.store
        self._recaller = recaller
        self._agent = actor.agent
        self._clock = actor.clock

    def ask(
        self,
        question: str,
        *,
        sender: str | None = None,
        at: datetime | None = None,
        write_back: bool | None = None,
    ) -> Answer:
        """Answer a question; see `MemTier.ask`."""
        now = self._clock()
        asker = Viewer(self._agent, sender, self._recaller.reads_all, aware(at) or now)
        asked = _Question(new_id(), question.strip(), asker, now)
        settings = self._store.settings.ask
        model = ChatBudget(self._store, self._agent, self._clock).chat_model(
            settings.model, key="ask.model"
        )
        answer: Answer
        if model is None or self._store.paused:
            answer = self._extractive(asked, "the project is off" if self._store.paused else "")
        else:
            thinker = AnsweringModel(model)
            try:
                answer = self._thought(asked, thinker, settings.write_back, write_back)
            except (EndpointError, CapReached) as error:
                asked.steps += thinker.steps
                answer = self._extractive(asked, str(error))
        if not self._store.paused:
            self._journal(answer)
        return answer

    # -- without a model -----------------------------------------------------------------------

    def _extractive(self, asked: _Question, problem: str) -> Answer:
        """Return the lines that say most, each with its sources."""
        recall = self._recall(asked, "auto", asked.text)
        cited = self._cited(asked, [(hit, None) for hit in recall.injected[:EXTRACTIVE_LINES]])
        terms = self._store.tokenizer.words(asked.text)
        weights = dict.fromkeys(terms, 1.0)
        lines = []
        for hit in recall.injected[:EXTRACTIVE_LINES]:
            rests_on = {hit.id, *(source.entry for source in hit.sources)}
            names = [citation.short for citation in cited if citation.id in rests_on]
            if not names:
                continue  # nothing that this asker could look up
            passage = select_passage(hit.text, weights, self._store.tokenizer.words, _PASSAGE)
            lines.append(f"- {hit_time(hit):%Y-%m-%d} {passage} [{', '.join(names)}]")
        route = recall.route or Route(action="R", doubt=1.0, why=("nothing was found",))
        return self._made(
            asked, EXTRACTIVE, route, "\n".join(lines) or "Nothing was found.", bool(lines),
            cited, problem=problem,
        )  # fmt: skip

    # -- with a model --------------------------------------------------------------------------

    def _thought(
        self, asked: _Question, thinker: AnsweringModel, keep: bool, write_back: bool | None
    ) -> Answer:
        facts = self._recall(asked, "facts", asked.text)
        route = thinker.route(asked.text, facts.hits)
        said: ModelAnswer | None = None
        findings: list[AnswerFinding] = []
        if route.action == "S":
            findings = [
                AnswerFinding(hit.text, hit_time(hit), (hit,), fact=hit.item)
                for hit in facts.injected
                if isinstance(hit.item, Fact)
            ]
            said = thinker.answer(asked.text, asked.asker.at, findings)
            if said is None or not said.enough or not self._grounds(asked, said.cites):
                doubt = "the facts did not answer it after all"
                route = replace(route, action="R", doubt=1.0, why=(*route.why, doubt))
        if route.action == "R":
            findings = self._researched(asked, thinker, facts)
            said = thinker.answer(asked.text, asked.asker.at, findings) if findings else None
        asked.rejected += thinker.unlocated + (said.invented if said else 0)
        cited = self._grounds(asked, said.cites) if said else []
        if said is None or not cited:
            why = "no quote for an answer was found" if said is None else "the answer cites nothing"
            asked.steps += thinker.steps
            return self._extractive(asked, f"{thinker.model.name}: {why}")
        written: Sequence[Fact] = ()
        wanted = keep if write_back is None else write_back
        if route.action == "R" and said.enough and wanted:
            notes = FindingWriter(self._actor)
            kept = [finding for finding in said.cites if finding.quote]
            written = notes.write(asked.id, asked.text, kept, thinker)
        asked.steps += thinker.steps
        return self._made(
            asked, thinker.model.name, route, said.text, said.enough, cited, written=written
        )

    def _researched(
        self, asked: _Question, thinker: AnsweringModel, facts: Recall
    ) -> list[AnswerFinding]:
        """Read pages for at most so many rounds; return what they say, located in the log."""
        settings = self._store.settings.ask
        research = FollowUpBudget(settings.pages)
        seed = self._recall(asked, "raw", asked.text)
        research.claim_new([FollowUp("semantic", asked.text)])
        findings: list[AnswerFinding] = []
        missing = ""
        with self._store.session() as reader:
            pages = PageReader(reader, asked.asker)
            # The pages that facts and entries point at, in turn, so that neither fills a round.
            linked = _in_turn(pages.pages_of_hits(facts.hits), pages.pages_of_hits(seed.hits))
            research.add_pages(page.id for page in linked)
            for number in range(settings.rounds):
                asked.rounds = number + 1
                now = research.take_pages()
                if now:
                    asked.pages += now
                    read = [pages.hits_on(page) for page in map(pages.page, now) if page]
                    fresh, missing = thinker.integrate(asked.text, findings, read)
                    findings += fresh
                if number == settings.rounds - 1:
                    break  # what a search finds now nobody would read
                plan = thinker.plan(asked.text, findings, missing, [*research.searched.values()])
                if not plan and (findings or not research.pending):
                    break
                for command in research.claim_new(plan):
                    near = command.kind == "semantic"
                    hits = self._recall(asked, "raw", command.text, near=near).hits
                    research.add_pages(page.id for page in pages.pages_of_hits(hits))
                if not research.pending:
                    break
        return _once(findings)

    def _recall(self, asked: _Question, depth: Any, text: str, *, near: bool = True) -> Recall:
        started = time.monotonic()
        recall = self._recaller.recall(
            text,
            RecallRequest(sender=asked.asker.sender, at=asked.asker.at, depth=depth),
            by_meaning=near,
        )
        ms = (time.monotonic() - started) * 1000
        read = recall.postings + recall.vectors
        asked.steps.append(Step(name=f"recall {depth}", ms=ms, read=read))
        return recall

    # -- citations -----------------------------------------------------------------------------

    def _grounds(self, asked: _Question, findings: Iterable[AnswerFinding]) -> list[Citation]:
        """Return the lines that findings rest on, as far as the asker may see them."""
        return self._cited(asked, [(hit, one) for one in findings for hit in one.sources])

    def _cited(
        self, asked: _Question, given: Sequence[tuple[Hit, AnswerFinding | None]]
    ) -> list[Citation]:
        """Look up the sources of hits; one that is not there, or not to be seen, is left out.

        A shared fact none of whose lines may be seen stands for itself, with its own line.
        """
        wanted: dict[str, tuple[str | None, AnswerFinding | None]] = {}
        for hit, finding in given:
            fact = hit.id if isinstance(hit.item, Fact) else None
            for source in hit.sources:
                wanted.setdefault(source.entry, (fact, finding))
        with self._store.session() as reader:
            pages = PageReader(reader, asked.asker)
            seen = pages.visible_entries(wanted)
            hidden = [
                hit.id
                for hit, _ in given
                if isinstance(hit.item, Fact) and not any(s.entry in seen for s in hit.sources)
            ]
            shared = pages.visible_facts(hidden)
        return [
            *(_citation(seen[entry], *wanted[entry]) for entry in wanted if entry in seen),
            *(_of_fact(shared[fact]) for fact in dict.fromkeys(hidden) if fact in shared),
        ]

    def _made(
        self,
        asked: _Question,
        by: str,
        route: Route,
        text: str,
        answered: bool,
        cited: Sequence[Citation],
        written: Sequence[Fact] = (),
        problem: str = "",
    ) -> Answer:
        return Answer(
            id=asked.id, question=asked.text, text=text, answered=answered, by=by, route=route,
            citations=tuple(cited), steps=tuple(asked.steps), rounds=asked.rounds,
            pages=tuple(dict.fromkeys(asked.pages)), written=tuple(written),
            rejected=asked.rejected, problem=problem,
        )  # fmt: skip

    def _journal(self, answer: Answer) -> None:
        data = {
            "question": self._recaller.redact(answer.question[:2000]),
            "by": answer.by,
            "answered": answer.answered,
            "route": answer.route.to_json(),
            "rounds": answer.rounds,
            "pages": list(answer.pages),
            "citations": [citation.id for citation in answer.citations],
            "written": [fact.id for fact in answer.written],
            "rejected": answer.rejected,
            "problem": answer.problem[:500],
            "tokens": answer.tokens,
            "steps": [step.to_json() for step in answer.steps],
        }
        self._store.append_events(
            [
                JournalEvent(
                    id=answer.id, timestamp=self._clock(), kind="ask", agent_id=self._agent,
                    data=data,
                )
            ]
        )  # fmt: skip


def _citation(hit: Hit, fact: str | None, finding: AnswerFinding | None) -> Citation:
    entry = hit.item
    assert isinstance(entry, Entry)  # only entries are sources
    [source] = hit.sources
    quoted = finding.quote.text if finding and finding.quote else entry.content
    return Citation(
        id=entry.id, agent=entry.agent_id, session=entry.session_id, file=source.file,
        line=source.line, said=entry.observed_at, who=entry.speaker or entry.role,
        text=quoted[:_PASSAGE], fact=fact,
    )  # fmt: skip


def _of_fact(stored: Stored) -> Citation:
    fact = stored.item
    assert isinstance(fact, Fact)
    return Citation(
        id=fact.id, agent=fact.sources[0].agent, session="", file=stored.file, line=stored.line,
        said=fact.valid_from or fact.timestamp, who="fact", text=fact.text[:_PASSAGE], fact=fact.id,
    )  # fmt: skip


def _once(findings: Sequence[AnswerFinding]) -> list[AnswerFinding]:
    """Return findings without those that say the same of the same line."""
    kept: dict[tuple[str, str], AnswerFinding] = {}
    for finding in findings:
        where = finding.quote.entry.id if finding.quote else ""
        kept.setdefault((where, " ".join(finding.text.casefold().split())), finding)
    return list(kept.values())


def _in_turn(*groups: Sequence[Any]) -> list[Any]:
    longest = max(map(len, groups), default=0)
    return [group[place] for place in range(longest) for group in groups if place < len(group)]
