"""The plugin of TierMem: the router of recalls of depth `auto`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from memtier_papers.tiermem.settings import RouterDoubts
from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.core.results import Hit, Step
from memtier_plugin.core.structs import Record
from memtier_plugin.retrieval.plan import Candidates, ChosenHits, Query, Routed
from memtier_plugin.retrieval.visibility import PageReader
from memtier_plugin.storage.sessions import DeadlineExceeded

if TYPE_CHECKING:
    from memtier_papers.tiermem.routing import RoutingInput
    from memtier_plugin.answering.llm import FollowUp
    from memtier_plugin.retrieval.recall import Recaller


@hookimpl
def memtier_settings() -> Mapping[type[Record], str]:
    """Return the settings of the router's doubts."""
    return {RouterDoubts: "retrieval.router"}


@hookimpl
def memtier_route(
    recaller: Recaller, query: Query, candidates: Candidates, selection: ChosenHits
) -> Routed:
    """Choose between the facts and the log, and search further if the log leaves much open."""
    from memtier_papers.tiermem.routing import RoutingInput, route_hits

    started, store = time.monotonic(), recaller.store
    tokenizer = store.tokenizer
    question = RoutingInput(
        query.text,
        selection.hits,
        candidates.result.terms,
        tokenizer.words,
        selection.values,
        tokenizer.language == "english",
        recaller.settings.of(RouterDoubts),
    )
    route, lines = route_hits(question)
    ms = (time.monotonic() - started) * 1000
    step = Step(name="route", ms=ms, read=len(selection.hits))
    routed = Routed(lines.hits, lines.left_out, route, (step,))
    # Later finds have no evidence for this question, so they answer nothing.
    searches = recaller.ranker.merges and not (candidates.by_time or query.is_ask)
    if route.action == "R" and searches:
        return _search_on(recaller, query, candidates, question, routed)
    return routed


def _search_on(
    recaller: Recaller,
    query: Query,
    candidates: Candidates,
    question: RoutingInput,
    routed: Routed,
) -> Routed:
    """Add the results of further searches; nothing if time runs out."""
    from memtier_papers.tiermem.follow_up import follow_up

    degradations: list[str] = []

    def search(command: FollowUp) -> list[Hit]:
        return recaller.search_again(
            query,
            command.text,
            by_meaning=command.kind == "semantic",
            degradations=degradations,
        )

    hits, steps, store = list(routed.hits), list[Step](), recaller.store
    with suppress(DeadlineExceeded), store.deadline(query.until):
        pages = PageReader(store.reader(), query.viewer)
        hits, steps = follow_up(question, routed.hits, pages, search)
    shown = recaller.already_shown.find_shown(query.request, hits)
    hits = [hit for hit in hits if hit.id not in shown]
    known = {hit.id for hit in candidates.hits}
    return Routed(
        tuple(hits),
        routed.left_out,
        routed.route,
        (*routed.steps, *steps),
        tuple(degradations),
        tuple(hit for hit in hits if hit.id not in known),
    )
