"""Search single stores (turns, facts, experiences, people, summaries), each line shown once.

A search is a recall by the asker (journalled, within their rights), or reads the summaries that
they may see.  The results are followed by the log lines that they rest on, unless already shown
(Mem-T, section 3.1).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from memtier_plugin.answering.llm import AnswerFinding
from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Depth, Hit, RecallRequest, Step
from memtier_plugin.retrieval.block import format_line
from memtier_plugin.retrieval.duplicates import hit_time
from memtier_plugin.retrieval.query import weigh_terms
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.retrieval.visibility import PageReader, Viewer, read_hits
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store
from memtier_plugin.text.passages import select_passage
from memtier_plugin.text.tokenizer import normalise

SUMMARY, FACTS, EXPERIENCES = "search_summary", "search_facts", "search_experiences"
PERSONAS, TURNS = "search_personas", "search_turns"
STORES: Final[Mapping[str, str]] = {
    name.removeprefix("search_"): name for name in (SUMMARY, FACTS, EXPERIENCES, PERSONAS, TURNS)
}
MAX_STEPS: Final = 6  # searches per question
DEFAULT_TURNS: Final = 5
MAX_TURNS: Final = 50  # per search
MAX_QUERY_CHARS: Final = 1_000
NO_RESULTS: Final = "no results"
SUMMARIES: Final = "summary"
PROFILES: Final = "profile"  # the kind of facts that describe a person
_LIMIT: Final = 5  # items per search
_LINE_CHARS: Final = 600  # characters of a line, in the passage that answers best
_STEP_CHARS: Final = 12_000  # characters that one search shows
_POSTINGS: Final = 2_500  # read for summaries


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A search: its tool, its text, and how many lines it may show."""

    name: str
    query: str
    limit: int = DEFAULT_TURNS


@dataclass(frozen=True, slots=True)
class BadCall:
    """An invalid call by the model, which is shown the reason; it counts as a step."""

    error: str


def read_search(name: str, query: Any, limit: Any) -> SearchCall | BadCall:
    """Parse a model's call of a search."""
    query = query or ""
    if not isinstance(query, str) or not (query.strip() or name == SUMMARY):
        return BadCall(f"{name} needs a text to search for")
    if type(limit) is not int or not 1 <= limit <= MAX_TURNS:
        return BadCall(f"the number of lines is a whole number, 1 to {MAX_TURNS}")
    return SearchCall(name, query.strip()[:MAX_QUERY_CHARS], limit)


@dataclass(slots=True)
class StoreSearch:
    """The searches for one question, and the lines shown so far.

    Attributes:
        findings: the lines shown, at their number less one.
        steps: the cost of each search.
        shown: the ids of all items shown, including by earlier searches of a run.
    """

    store: Store
    recaller: Recaller
    viewer: Viewer
    findings: list[AnswerFinding] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)

    def run(self, call: SearchCall) -> list[str]:
        """Return the new lines of a search, numbered, or `NO_RESULTS`."""
        return self._number(self.find(call)) or [NO_RESULTS]

    def find(self, call: SearchCall) -> list[AnswerFinding]:
        """Return the lines found and their sources, without those already shown."""
        started = time.monotonic()
        hits = self.search(call)
        new = self._take(hits, call.query)
        ms = (time.monotonic() - started) * 1000
        self.steps.append(Step(name=call.name, ms=ms, read=len(hits)))
        return new

    def search(self, call: SearchCall) -> list[Hit]:
        """Return the hits of a search and the lines they rest on, marking none as shown."""
        with self.store.session() as reader:
            hits = self._search(reader, call)
            sources = PageReader(reader, self.viewer).visible_entries(
                source.entry for hit in hits if isinstance(hit.item, Fact) for source in hit.sources
            )
        return [*hits, *sources.values()]

    def _search(self, reader: Reader, call: SearchCall) -> list[Hit]:
        if call.name == SUMMARY:
            return self._shelved(reader, SUMMARIES, call.query)
        if call.name == FACTS:
            facts = self._recall("facts", call.query)
            return [hit for hit in facts if hit.tier == "semantic"][:_LIMIT]
        if call.name == EXPERIENCES:
            facts = self._recall("facts", call.query)
            return [hit for hit in facts if hit.tier == "procedural"][:_LIMIT]
        if call.name == PERSONAS:
            name = normalise(call.query)[0]
            hits = [*self._shelved(reader, PROFILES, call.query)]
            hits += self._recall("facts", call.query)
            return [hit for hit in hits if _is_about(hit, name)][:_LIMIT]
        return [*self._recall("raw", call.query)[: call.limit]]

    def _recall(self, depth: Depth, query: str) -> Sequence[Hit]:
        request = RecallRequest(sender=self.viewer.sender, at=self.viewer.at, depth=depth)
        return self.recaller.recall(query, request, expands=False).hits

    def _shelved(self, reader: Reader, kind: str, query: str) -> list[Hit]:
        """Return a query's best matches among facts of a kind, or the newest without a query."""
        viewer, tokenizer = self.viewer, self.store.tokenizer
        scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all, shelf=kind)
        if query:
            terms = weigh_terms(query, tokenizer)
            scores = reader.match_words(scopes, terms, _POSTINGS).scores()
        else:
            rows = reader.overviews.shelf_rows(kind, scopes, _LIMIT)
            scores = {row: 1.0 / rank for rank, row in enumerate(rows, 1)}
        current = {candidate.row: candidate.id for candidate in reader.candidates(scores)}
        order = sorted(current, key=lambda row: (-scores[row], current[row]))[:_LIMIT]
        return read_hits(reader, [(row, scores[row], {}) for row in order], viewer, {})

    def show(self, hits: Iterable[Hit], query: str) -> list[str]:
        """Return the hits' lines not shown before, numbered."""
        return self._number(self._take(hits, query))

    def _number(self, new: Sequence[AnswerFinding]) -> list[str]:
        first = len(self.findings) - len(new) + 1
        return [f"[{n}] {render_finding(finding)[2:]}" for n, finding in enumerate(new, first)]

    def _take(self, hits: Iterable[Hit], query: str) -> list[AnswerFinding]:
        tokenize = self.store.tokenizer.words
        weights, room = dict.fromkeys(tokenize(query), 1.0), _STEP_CHARS
        new: list[AnswerFinding] = []
        for hit in hits:
            if hit.id in self.shown:
                continue
            text = select_passage(hit.text, weights, tokenize, _LINE_CHARS)
            fact = hit.item if isinstance(hit.item, Fact) else None
            finding = AnswerFinding(text, hit_time(hit), (hit,), fact=fact)
            room -= len(render_finding(finding))
            if room < 0:
                break
            self.shown.add(hit.id)
            new.append(finding)
        self.findings += new
        return new


def render_finding(finding: AnswerFinding) -> str:
    """Return a finding as a line of a block."""
    [hit] = finding.sources
    return format_line(hit, finding.text)


def _is_about(hit: Hit, name: str) -> bool:
    """Return whether a fact is about the person with this (normalised) name."""
    return isinstance(hit.item, Fact) and normalise(hit.item.subject)[0] == name
