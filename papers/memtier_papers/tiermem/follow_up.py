"""Follow-up search: search the log for what the first lines leave open, within bounds.

No model is asked.  There are at most three rounds: if the lines leave half of the question
uncovered, the pages that they and the facts belong to, then a search for the uncovered words; for
questions that have several answers, or are still open, one by the meaning of the question and the
best line.  A round's finds must cover something new, or be one of several answers.  Measured on
LoCoMo, more rounds cost tokens and find nothing.

The bounds are those of TierMem's research loop (TierMem, section 2.3) without its defects: what a
round finds is read before it ends, pages that exceed one round come first in the next, and no
search is made twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from memtier_papers.tiermem.routing import (
    RoutingInput,
    bringing_new_sources,
    covered_share,
    question_kinds,
    uncovered_terms,
)
from memtier_plugin.answering.llm import FollowUp, FollowUpBudget
from memtier_plugin.core.results import Hit, Step
from memtier_plugin.retrieval.query import SEVERAL_ANSWERS
from memtier_plugin.retrieval.visibility import PageReader

PAGES_PER_ROUND: Final = 5
LINES_PER_ROUND: Final = 2  # that a round may add
MIN_COVERED: Final = 0.5  # of the question; lines that cover less do not suffice
BEST_LINE_CHARS: Final = 400  # of the best line, used to search for similar ones

FollowUpSearch = Callable[[FollowUp], Sequence[Hit]]


def follow_up(
    question: RoutingInput, lines: Sequence[Hit], pages: PageReader, search: FollowUpSearch
) -> tuple[list[Hit], list[Step]]:
    """Return the lines plus those added by bounded rounds, and the cost of each round.

    Args:
        search: makes one search and returns ranked hits.
    """
    if not lines:
        return [], []
    rounds = _Rounds(question, list(lines), pages, search)
    return rounds.run(), rounds.steps


class _Rounds:
    """The rounds of one question, and the lines chosen so far."""

    def __init__(
        self, question: RoutingInput, lines: list[Hit], pages: PageReader, search: FollowUpSearch
    ) -> None:
        self._question = question
        self._lines = lines
        self._pages = pages
        self._search = search
        self._budget = FollowUpBudget(PAGES_PER_ROUND)
        self.steps: list[Step] = []

    def run(self) -> list[Hit]:
        question, lines = self._question, self._lines
        self._budget.add_pages(page.id for page in self._pages.pages_of_hits(lines))
        several = bool(SEVERAL_ANSWERS.keys() & set(question_kinds(question, lines[0])))
        if self._is_open():
            self._round("linked pages", self._read_pages)
        if self._is_open():
            words = FollowUp("keyword", " ".join(self._open_words()))
            self._round("keyword search", lambda: self._search_once(words))
        if several or self._is_open():
            like = FollowUp("semantic", f"{question.query} {lines[0].text[:BEST_LINE_CHARS]}")
            self._round("semantic search", lambda: self._search_once(like), any_new=several)
        if self._budget.pending and self._is_open():
            self._round("pending pages", self._read_pages)
        return lines

    def _round(
        self, name: str, look: Callable[[], tuple[list[Hit], int]], *, any_new: bool = False
    ) -> None:
        """Run one round: add lines that cover what is open, or (``any_new``) anything new."""
        started = time.monotonic()
        hits, read = look()
        new = bringing_new_sources(self._lines, hits)
        self._lines += new[:LINES_PER_ROUND] if any_new else self._covering(new)
        ms = (time.monotonic() - started) * 1000
        self.steps.append(Step(name=name, ms=ms, read=read))

    def _read_pages(self) -> tuple[list[Hit], int]:
        pages = [page for page in map(self._pages.page, self._budget.take_pages()) if page]
        return [hit for page in pages for hit in self._pages.hits_on(page)], len(pages)

    def _search_once(self, search: FollowUp) -> tuple[list[Hit], int]:
        hits = [hit for new in self._budget.claim_new([search]) for hit in self._search(new)]
        best = hits[:LINES_PER_ROUND]
        self._budget.add_pages(page.id for page in self._pages.pages_of_hits(best))
        return hits, len(hits)

    def _is_open(self) -> bool:
        """Return whether the lines leave enough of the question uncovered to search further."""
        return covered_share(self._question, *self._lines) < MIN_COVERED

    def _open_words(self) -> list[str]:
        """Return the question's own words for the uncovered terms."""
        terms = set(uncovered_terms(self._question, self._lines))
        tokenize = self._question.tokenize
        return [w for w in self._question.query.split() if terms.intersection(tokenize(w))]

    def _covering(self, new: Sequence[Hit]) -> list[Hit]:
        """Return the few new lines that cover most of what is still open."""
        question = self._question
        terms = {word: question.terms[word] for word in uncovered_terms(question, self._lines)}
        open_part = RoutingInput(question.query, (), terms, question.tokenize, {})
        shares = [(covered_share(open_part, hit), hit) for hit in new]
        covering = [(share, hit) for share, hit in shares if share > 0]
        covering.sort(key=lambda pair: (-pair[0], pair[1].id))
        return [hit for _, hit in covering[:LINES_PER_ROUND]]
