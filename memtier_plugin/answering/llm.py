"""Prompts for answering a question: one method each, and every reply is checked.

Routing, research and write-back follow TierMem (TierMem, sections 2.2 to 2.4).  The router replies
with one of two words; anything else, and every error, leads to the log.  Unknown line numbers in a
reply are ignored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from memtier_plugin.core.errors import BadAnswer, ContextTooLong
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit, Route, Step
from memtier_plugin.facts.verification.passages import QuoteSpan, find_quote
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.pricing import ASK_PURPOSE
from memtier_plugin.providers.prompting import (
    INTEGER,
    STRING,
    choice_of,
    fence_data,
    list_of,
    load_prompt,
    object_of,
    parse_json,
)
from memtier_plugin.retrieval.block import format_line
from memtier_plugin.retrieval.duplicates import hit_time

MAX_KEPT: Final = 2  # findings per question that become facts
MAX_SEARCHES: Final = 3  # per round
NEED_MORE: Final = "<NEED_MORE>"  # HMO's trigger token
ENOUGH: Final = "ENOUGH"
_MAX_FINDINGS: Final = 40  # shown to a prompt
_MAX_FACTS: Final = 10  # shown to the router
FINDING_CHARS: Final = 600  # of a finding's text


_ROUTE: Final = object_of("route", action=choice_of("S", "R"))
_FINDING: Final = object_of("finding", fact=STRING, quote=STRING)
_INTEGRATE: Final = object_of("findings", findings=list_of(_FINDING), missing=STRING)
_SEARCH: Final = object_of("search", kind=choice_of("semantic", "keyword"), text=STRING)
_PLAN: Final = object_of("plan", decision=choice_of("DONE", "SEARCH"), searches=list_of(_SEARCH))
_ANSWER: Final = object_of(
    "answer", enough={"type": "boolean"}, answer=STRING, cites=list_of(INTEGER)
)
_KEPT: Final = object_of(
    "kept",
    finding=INTEGER,
    action=choice_of("add", "update", "skip"),
    target={"type": ["integer", "null"]},
    subject=STRING,
    relation=STRING,
    value=STRING,
    text=STRING,
)
_KEEP: Final = object_of("keep", keep=list_of(_KEPT))


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A further search, by meaning or by words only."""

    kind: Literal["semantic", "keyword"]
    text: str

    @property
    def key(self) -> tuple[str, ...]:
        """A key that is equal for equal searches."""
        words = self.text.casefold().split()
        return (self.kind, *(sorted(set(words)) if self.kind == "keyword" else words))


@dataclass(slots=True)
class FollowUpBudget:
    """The pages read, queued and searched so far for one question.

    Only bookkeeping; ``pages_per_round`` limits what `take_pages` returns.
    """

    pages_per_round: int
    read: dict[str, None] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    searched: dict[tuple[str, ...], FollowUp] = field(default_factory=dict)

    def add_pages(self, pages: Iterable[str]) -> int:
        """Queue pages, and return how many of them are new."""
        new = [page for page in dict.fromkeys(pages) if page not in self.read]
        new = [page for page in new if page not in self.pending]
        self.pending.update(dict.fromkeys(new))
        return len(new)

    def take_pages(self) -> list[str]:
        """Return the pages to read in this round, each only once."""
        round_pages = [*self.pending][: self.pages_per_round]
        for page in round_pages:
            del self.pending[page]
            self.read[page] = None
        return round_pages

    def claim_new(self, searches: Iterable[FollowUp]) -> list[FollowUp]:
        """Return the searches not made before, and mark them as made."""
        new = []
        for search in searches:
            key = search.key
            if key[1:] and key not in self.searched:
                self.searched[key] = search
                new.append(search)
        return new


@dataclass(frozen=True, slots=True)
class AnswerFinding:
    """A statement relevant to the question, and its basis.

    A finding in the log has a ``quote``, which code located, or which is the whole line; one in
    the facts has the ``fact``.  ``sources`` are the hits of its entries.
    """

    text: str
    at: datetime
    sources: tuple[Hit, ...]
    quote: QuoteSpan | None = None
    fact: Fact | None = None

    @property
    def proof(self) -> str:
        """The words of a line that prove its text; empty where the text is the line's own."""
        quote = self.quote
        return quote.text if quote and quote.text != quote.entry.content else ""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer, and the findings that it cites by number."""

    enough: bool
    text: str
    cites: tuple[AnswerFinding, ...]
    invented: int  # cited numbers of no finding


@dataclass(frozen=True, slots=True)
class KeptFinding:
    """A finding that the model wants to store as a fact, or to merge into one."""

    finding: AnswerFinding
    target: Fact | None  # the fact that it updates
    subject: str
    relation: str
    value: str
    text: str


@dataclass(slots=True)
class AnsweringModel:
    """Asks one model, and records the cost of each step."""

    model: ChatModel
    steps: list[Step] = field(default_factory=list)
    unlocated: int = 0  # findings whose quote was not found

    def route(self, question: str, facts: Sequence[Hit]) -> Route:
        """Decide whether the facts suffice: R unless the model replies S and nothing else."""
        if not facts:
            return Route(action="R", doubt=1.0, why=("no fact was found",), by=self.model.name)
        try:
            reply = self._ask("route", route_request(question, facts), _ROUTE, 300)
        except BadAnswer as error:
            why = f"no decision: {error.reason}"
            return Route(action="R", doubt=1.0, why=(why,), by=self.model.name)
        action = reply["action"]
        doubt = 0.0 if action == "S" else 1.0
        return Route(action=action, doubt=doubt, why=("the model says so",), by=self.model.name)

    def suffices(self, question: str, lines: Sequence[Hit]) -> bool:
        """Return whether the lines of a tier suffice (HMO, section 3.2).

        Any other word means that more is needed, like `NEED_MORE`.
        """
        if not lines:
            return False
        shown = [f"[{number}] {format_line(hit, hit.text)}" for number, hit in enumerate(lines, 1)]
        text = self.complete("suffice", f"Question: {question}\n\n{fence_data(shown)}", 300)
        return NEED_MORE not in text and text.strip().strip("`.").upper() == ENOUGH

    def integrate(
        self, question: str, before: Sequence[AnswerFinding], pages: Sequence[Sequence[Hit]]
    ) -> tuple[list[AnswerFinding], str]:
        """Return the findings of pages, and what is still missing.

        If the model cannot read all pages at once, they are split in halves.

        Raises:
            ContextTooLong: a single page is too long.
        """
        earlier = "\n".join(_numbered(before)) or "nothing"
        lines = [format_line(hit, hit.text) for page in pages for hit in page]
        user = (
            f"Question: {question}\n\nFound before:\n{fence_data([earlier])}\n\n{fence_data(lines)}"
        )
        try:
            reply = self._ask("integrate", user, _INTEGRATE, 1200)
        except ContextTooLong:
            if len(pages) < 2:
                raise
            half = len(pages) // 2
            first, _ = self.integrate(question, before, pages[:half])
            second, missing = self.integrate(question, [*before, *first], pages[half:])
            return [*first, *second], missing
        except BadAnswer:
            return [], ""
        by_id = {hit.id: hit for page in pages for hit in page}
        entries = [hit.item for hit in by_id.values() if isinstance(hit.item, Entry)]
        findings = []
        for finding in reply["findings"]:
            quote = find_quote(finding["quote"], entries)
            text = finding["fact"].strip()[:FINDING_CHARS]
            if quote is None or not text:
                self.unlocated += 1
                continue
            source = by_id[quote.entry.id]
            findings.append(AnswerFinding(text, hit_time(source), (source,), quote=quote))
        return findings, reply["missing"]

    def plan(
        self,
        question: str,
        findings: Sequence[AnswerFinding],
        missing: str,
        searched: Sequence[FollowUp],
    ) -> list[FollowUp]:
        """Return the next searches; none if the model wants none, or its reply is unusable."""
        searches = [f"{search.kind}: {search.text}" for search in searched] or ["none"]
        user = (
            f"Question: {question}"
            f"\n\nFound so far:\n{fence_data(_numbered(findings) or ['nothing'])}"
            f"\n\nMissing:\n{fence_data([missing or 'nothing named'])}"
            f"\n\nSearches:\n{fence_data(searches)}"
        )
        try:
            reply = self._ask("plan", user, _PLAN, 500)
        except BadAnswer:
            return []
        if reply["decision"] == "DONE":
            return []
        return [FollowUp(new["kind"], new["text"]) for new in reply["searches"][:MAX_SEARCHES]]

    def answer(
        self, question: str, at: datetime, findings: Sequence[AnswerFinding]
    ) -> ModelAnswer | None:
        """Return the answer from findings; None if the model gives none."""
        shown = findings[:_MAX_FINDINGS]
        user = f"Question: {question}\nAsked on: {at:%Y-%m-%d}\n\n{fence_data(_numbered(shown))}"
        try:
            reply = self._ask("answer", user, _ANSWER, 600)
        except BadAnswer:
            return None
        numbers = dict.fromkeys(reply["cites"])
        cites = tuple(shown[n - 1] for n in numbers if 1 <= n <= len(shown))
        text, invented = reply["answer"].strip(), len(numbers) - len(cites)
        return ModelAnswer(reply["enough"], text, cites, invented)

    def choose_kept(
        self, question: str, findings: Sequence[AnswerFinding], existing: Sequence[Fact]
    ) -> list[KeptFinding]:
        """Return the few findings to store as facts; none if the reply is unclear."""
        facts = [f"F{number} {fact.text}" for number, fact in enumerate(existing, 1)]
        user = (
            f"Question: {question}\n\nFindings:\n{fence_data(_numbered(findings))}\n\n"
            f"Known already:\n{fence_data(facts or ['nothing'])}"
        )
        try:
            reply = self._ask("write_back", user, _KEEP, 600)
        except BadAnswer:
            return []
        chosen = []
        for choice in reply["keep"]:
            number, target = choice["finding"], choice["target"]
            update = choice["action"] == "update"
            usable = 1 <= number <= len(findings) and choice["action"] != "skip"
            if update and not (target and 1 <= target <= len(existing)):
                usable = False  # an `add` here would create a duplicate
            if usable:
                fact = existing[target - 1] if update else None
                finding = findings[number - 1]
                parts = (choice["subject"], choice["relation"], choice["value"], choice["text"])
                chosen.append(KeptFinding(finding, fact, *parts))
        return chosen[:MAX_KEPT]

    def _ask(self, name: str, user: str, schema: Mapping[str, Any], most: int) -> Any:
        return parse_json(self.complete(name, user, most, schema=schema), schema)

    def complete(self, name: str, user: str, most: int, **options: Any) -> str:
        """Return the reply to a prompt, and record its cost."""
        started, tokens = time.monotonic(), 0
        count = sum(step.name.partition(" ")[0] == name for step in self.steps)
        title = f"{name} {count + 1}" if name in ("integrate", "plan", "retrieve") else name
        messages = [
            {"role": "system", "content": load_prompt(name).text},
            {"role": "user", "content": user},
        ]
        try:
            reply = self.model.chat(messages, purpose=ASK_PURPOSE, max_tokens=most, **options)
            tokens = reply.prompt_tokens + reply.completion_tokens
            return reply.text
        finally:
            ms = (time.monotonic() - started) * 1000
            self.steps.append(Step(name=title.replace("_", " "), ms=ms, tokens=tokens))


def route_request(question: str, facts: Sequence[Hit]) -> str:
    """Return the request to the router; its prompt is ``route``."""
    lines = [
        f"[{number}] {hit_time(hit):%Y-%m-%d} (score {hit.score:.2f}) {hit.text}"
        for number, hit in enumerate(facts[:_MAX_FACTS], 1)
    ]
    return f"Question: {question}\n\n{fence_data(lines)}"


def _numbered(findings: Sequence[AnswerFinding]) -> list[str]:
    return [
        f"[{number}] {finding.at:%Y-%m-%d} {finding.text}"
        + (f' ("{finding.proof}")' if finding.proof else "")
        for number, finding in enumerate(findings[:_MAX_FINDINGS], 1)
    ]
