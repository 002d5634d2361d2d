"""Validate the return values of third-party plugins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.hookspecs import Embedder, JobSpec, ModelPass

if TYPE_CHECKING:
    from memtier_plugin.core.records import FactDraft
    from memtier_plugin.core.results import Hit, Signal


def _check_spans(answer: Iterable[Any], arguments: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    spans = [(int(start), int(end), str(kind)) for start, end, kind in answer]
    for start, end, kind in spans:
        if not 0 <= start < end <= len(arguments["text"]):
            raise ValueError(f"span {(start, end, kind)!r} is outside the text")
    return spans


def _check_signals(answer: Iterable[Any], arguments: Mapping[str, Any]) -> list[Signal]:
    from memtier_plugin.core.results import Signal

    signals = list(answer)
    for signal in signals:
        if not isinstance(signal, Signal):
            raise TypeError(f"{signal!r} is not a Signal")
        if len(signal.values) != len(arguments["items"]):
            raise ValueError(
                f"signal {signal.name!r} has {len(signal.values)} values "
                f"for {len(arguments['items'])} items"
            )
        if not math.isfinite(signal.weight) or not all(0 <= v <= 1 for v in signal.values):
            raise ValueError(f"signal {signal.name!r} has a value that is not in [0, 1]")
    return signals


def _check_drafts(answer: Iterable[Any], _arguments: Mapping[str, Any]) -> list[FactDraft]:
    # imported here: hosts import this module without msgspec
    from memtier_plugin.core.records import FactDraft
    from memtier_plugin.core.structs import check_fields

    drafts = list(answer)
    for draft in drafts:
        if not isinstance(draft, FactDraft):
            raise TypeError(f"{draft!r} is not a FactDraft")
        check_fields(draft)
    return drafts


def _check_hits(answer: Iterable[Any], arguments: Mapping[str, Any]) -> list[Hit]:
    hits = list(answer)
    offered = {hit.id for hit in arguments["hits"]}
    seen = [hit.id for hit in hits]
    if not offered.issuperset(seen) or len(seen) != len(set(seen)):
        raise ValueError("the reranked hits are not all among those given, or one occurs twice")
    return hits


def _check_embedder(answer: Any, _arguments: Mapping[str, Any]) -> Embedder:
    if not isinstance(answer, Embedder):
        raise TypeError(f"{answer!r} is not an Embedder (name, dimensions, encode)")
    return answer


def _check_jobs(answer: Iterable[Any], _arguments: Mapping[str, Any]) -> list[JobSpec]:
    jobs = list(answer)
    if not all(isinstance(job, JobSpec) for job in jobs):
        raise TypeError("a job is not a JobSpec (name, group, run)")
    return jobs


def _check_model_pass(answer: Any, _arguments: Mapping[str, Any]) -> ModelPass:
    if not isinstance(answer, ModelPass):
        raise TypeError("a way to ask a model is not a ModelPass (extractor, judge)")
    return answer


CHECKS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "memtier_embedder": _check_embedder,
    "memtier_redact": _check_spans,
    "memtier_signals": _check_signals,
    "memtier_extract": _check_drafts,
    "memtier_jobs": _check_jobs,
    "memtier_model_pass": _check_model_pass,
    "memtier_rerank": _check_hits,
}
