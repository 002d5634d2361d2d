"""The reranker (`rerank.model`) of a recall's hits, and of the pages that `ask` reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from memtier_papers.true_memory.settings import Rerank
from memtier_plugin.core.errors import RerankUnavailable, SettingsError
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.core.settings.schema import Settings

if TYPE_CHECKING:
    from memtier_papers.true_memory.rerankers import Reranker
    from memtier_plugin.retrieval.visibility import PageReader
    from memtier_plugin.storage.index.overviews import Page

SHARE: Final = 0.7  # of the time left; choosing and packing lines needs the rest
PAGE_SECONDS: Final = 30.0  # for the pages of a question, which waits for a model anyway
SIGNAL: Final = "rerank"  # the relevance, added to the signals of the first ranking


def rerank(
    query: str,
    hits: Sequence[Hit],
    deadline: float,
    settings: Settings,
    redact: Callable[[str], str],
) -> Sequence[Hit] | None:
    """Order hits by the model of `rerank.model` and their first scores.

    Raises:
        RerankUnavailable: the configured model is missing, or does not answer in time.
    """
    reranker = _reranker(settings)
    if reranker is None or len(hits) < 2:
        return None
    from memtier_papers.true_memory.rerank_fusion import fuse_scores, modality_factor

    query = redact(query)  # it may leave the machine
    seconds = SHARE * (deadline - time.monotonic())
    relevances = [
        min(1.0, relevance * modality_factor(query, is_summary=_is_summary(hit)))
        for hit, relevance in zip(
            hits, reranker.relevances(query, [*map(_text, hits)], seconds), strict=True
        )
    ]
    fused = fuse_scores(relevances, [hit.score for hit in hits])
    order = sorted(range(len(hits)), key=lambda index: (-fused[index], hits[index].id))
    return [
        replace(hits[index], signals={**hits[index].signals, SIGNAL: relevances[index]})
        for index in order
    ]


def order_pages(
    question: str, pages: Sequence[Page], reader: PageReader, settings: Settings, seconds: float
) -> list[Page]:
    """Return pages by relevance to a question, most relevant first.

    A page scores as its most relevant part, each as long as the model can read at once.

    Raises:
        RerankUnavailable: as `rerank`.
    """
    reranker = _reranker(settings)
    if reranker is None or len(pages) < 2:
        return [*pages]
    parts = [(n, part) for n, page in enumerate(pages) for part in _parts(reader.hits_on(page))]
    values = reranker.relevances(question, [part for _, part in parts], seconds)
    best = [0.0] * len(pages)
    for (number, _), value in zip(parts, values, strict=True):
        best[number] = max(best[number], value)
    return [pages[n] for n in sorted(range(len(pages)), key=lambda n: (-best[n], n))]


def warm_up(settings: Settings) -> None:
    """Load the model, or open its client, before the first recall needs it."""
    with suppress(RerankUnavailable):  # the first recall's label reports it
        if reranker := _reranker(settings):
            reranker.warm_up()


def _reranker(settings: Settings) -> Reranker | None:
    if not settings.of(Rerank).is_on:
        return None
    from memtier_papers.true_memory.rerankers import configured_reranker

    try:
        return configured_reranker(settings)
    except SettingsError as error:
        raise RerankUnavailable(str(error)) from error


def _text(hit: Hit) -> str:
    item = hit.item
    who = item.speaker or item.role if isinstance(item, Entry) else ""
    return f"{who}: {hit.text}" if who else hit.text


def _parts(hits: Sequence[Hit]) -> list[str]:
    """Return the lines of a page in parts that fit into one text each."""
    from memtier_papers.true_memory.rerankers import MAX_TEXT_CHARS

    parts = [""]
    for line in map(_text, hits):
        if parts[-1] and len(parts[-1]) + len(line) > MAX_TEXT_CHARS:
            parts.append("")
        parts[-1] += line + "\n"
    return parts


def _is_summary(hit: Hit) -> bool:
    return isinstance(hit.item, Fact) and hit.item.shelf == "summary"
