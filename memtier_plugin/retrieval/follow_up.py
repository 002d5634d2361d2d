"""Going back to the log for what the first lines leave open, within bounds and without a model.

Three rounds at most: where the lines leave half of the question unsaid, the pages that they and the
facts stand on, then a search by the words that no line says yet; for what has several answers, or
is still open, one by the meaning of the question and the best line.  What a round finds must say
what was unsaid, or be one of several.  Measured on LoCoMo, rounds for less than that cost tokens
and find nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from memtier_plugin.core.results import Hit, Step
from memtier_plugin.retrieval.follow_up_budget import FollowUp, FollowUpBudget
from memtier_plugin.retrieval.pages import PageReader
from memtier_plugin.retrieval.routing import (
    SEVERAL_ANSWERS,
    RoutingInput,
    bringing_new_sources,
    covered_share,
    question_kinds,
    uncovered_terms,
)

PAGES_PER_ROUND: Final = 5  # read in one round
LINES_PER_ROUND: Final = 2  # lines that a round may add
MIN_COVERED: Final = 0.5  # of the question; lines that say less of it are not enough
BEST_LINE_CHARS: Final = 400  # characters of the best line that are searched for what is like it

FollowUpSearch = Callable[[FollowUp], Sequence[Hit]]


def follow_up(
    found: RoutingInput, lines: Sequence[Hit], pages: PageReader, search: FollowUpSearch
) -> tuple[list[Hit], list[Step]]:
    """Return the lines with what three bounded rounds add, and what each round took.

    Args:
        search: makes one search; what it returns is ranked.
    """
    chosen, steps = list(lines), list[Step]()
    if not chosen:
        return chosen, steps
    research = FollowUpBudget(PAGES_PER_ROUND)
    research.add_pages(page.id for page in pages.pages_of_hits(chosen))
    several = bool(SEVERAL_ANSWERS.intersection(question_kinds(found, chosen[0])))

    def from_pages() -> tuple[list[Hit], int]:
        read = [page for page in map(pages.page, research.take_pages()) if page]
        return [hit for page in read for hit in pages.hits_on(page)], len(read)

    def from_search(command: FollowUp) -> tuple[list[Hit], int]:
        hits = [hit for one in research.claim_new([command]) for hit in search(one)]
        research.add_pages(page.id for page in pages.pages_of_hits(hits[:LINES_PER_ROUND]))
        return hits, len(hits)

    def integrate(name: str, look: Callable[[], tuple[list[Hit], int]], any_new: bool) -> None:
        started = time.monotonic()
        hits, read = look()
        new = bringing_new_sources(chosen, hits)
        chosen.extend(
            new[:LINES_PER_ROUND]
            if any_new
            else _saying(found, new, uncovered_terms(found, chosen))
        )
        ms = (time.monotonic() - started) * 1000
        steps.append(Step(name=name, ms=ms, read=read))

    if _open(found, chosen):
        integrate("linked pages", from_pages, False)
    if _open(found, chosen):
        words = FollowUp("keyword", " ".join(_written(found, uncovered_terms(found, chosen))))
        integrate("keyword search", lambda: from_search(words), False)
    if several or _open(found, chosen):
        like = FollowUp("semantic", f"{found.query} {chosen[0].text[:BEST_LINE_CHARS]}")
        integrate("semantic search", lambda: from_search(like), several)
    if research.pending and _open(found, chosen):
        integrate("pending pages", from_pages, False)
    return chosen, steps


def _open(found: RoutingInput, chosen: Sequence[Hit]) -> bool:
    """Tell whether the lines leave so much of the question unsaid that more is looked for."""
    return covered_share(found, *chosen) < MIN_COVERED


def _written(found: RoutingInput, open_words: Sequence[str]) -> list[str]:
    """Return the words of the question as they stand there, of those that count as these."""
    wanted = set(open_words)
    return [word for word in found.query.split() if wanted.intersection(found.tokenize(word))]


def _saying(found: RoutingInput, new: Sequence[Hit], open_words: Sequence[str]) -> list[Hit]:
    """Return the few new lines that say most of what no line says yet."""
    terms = {word: found.terms[word] for word in open_words}
    asked = RoutingInput(found.query, (), terms, found.tokenize, {})
    worth = [(covered_share(asked, hit), hit) for hit in new]
    worth = sorted((one for one in worth if one[0] > 0), key=lambda one: (-one[0], one[1].id))
    return [hit for _, hit in worth[:LINES_PER_ROUND]]
