"""Ask questions whose answers are known, under given settings; nothing is journalled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from memtier_plugin.core.errors import EmbeddingUnavailable
from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.providers.embedding.remote import EndpointEmbedder
from memtier_plugin.regression.probes import DEPTH, is_among
from memtier_plugin.regression.questions import Question
from memtier_plugin.retrieval.plan import RecallPlan
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.readers import Reader

QuestionProgress = Callable[[int, int], None]
_PREVIEW: Final = "preview"  # the purpose whose block is a prompt's and is credited to nobody


def keep_answerable(reader: Reader, questions: Iterable[Question]) -> list[Question]:
    """Return the questions that something here still answers, with all that answers them.

    A fact's source entries answer what the fact answers.
    """
    kept = []
    for question in questions:
        wanted = set[str]()
        for stored in reader.items(question.wanted).values():
            if stored.state.withdrawn:
                continue
            wanted.add(stored.item.id)
            if isinstance(stored.item, Fact):
                wanted |= {source.entry for source in stored.item.sources}
        if wanted:
            kept.append(replace(question, wanted=frozenset(wanted)))
    return kept


def measure(
    actor: Actor,
    questions: Sequence[Question],
    at: datetime,
    settings: Settings | None = None,
    progress: QuestionProgress = lambda done, total: None,
) -> list[float]:
    """Return how well each question is answered, in [0, 1], as its own agent and sender ask it.

    Half of it is that what answers is among the first ten entries found, and half that it stands in
    the block of a prompt: silence where an answer is known is a loss.

    Args:
        settings: those in effect when None.

    Raises:
        IndexProblem: the index cannot be used.
        EmbeddingUnavailable: an endpoint that embeds the queries does not answer.
    """
    by_meaning = embeds_for_free(actor.store.embedder)
    is_remote = by_meaning and isinstance(actor.store.embedder, EndpointEmbedder)
    recallers: dict[str, Recaller] = {}
    values = []
    for number, question in enumerate(questions, 1):
        recaller = recallers.get(question.agent)
        if recaller is None:
            recaller = Recaller(replace(actor, agent=question.agent), settings)
            recallers[question.agent] = recaller
        with actor.store.session():
            plan = _plan(recaller, question, at, by_meaning=by_meaning)
            if is_remote:
                _refuse_without_vector(plan)
            values.append(_rate(plan, question))
        progress(number, len(questions))
    return values


def embeds_for_free(embedder: object) -> bool:
    """Return whether queries are compared by meaning: not where an endpoint has a price."""
    return not isinstance(embedder, EndpointEmbedder) or not embedder.cost(1)


def _plan(recaller: Recaller, question: Question, at: datetime, *, by_meaning: bool) -> RecallPlan:
    request = RecallRequest(purpose=_PREVIEW, sender=question.sender, at=at)
    viewer = recaller.viewer(question.sender, at)
    return recaller.plan(question.query, viewer, request, by_meaning=by_meaning)


def _refuse_without_vector(plan: RecallPlan) -> None:
    """Refuse to go on by words: questions asked so before a change and not after tell nothing."""
    for reason in plan.degradations:
        if reason.startswith("embedding:"):
            raise EmbeddingUnavailable(f"answers before and after cannot be compared: {reason}")


def _rate(plan: RecallPlan, question: Question) -> float:
    shown, _ = plan.block.fill(question.id)
    ranked = is_among(map(_evidence, plan.hits), question.wanted, DEPTH)
    return (ranked + is_among(map(_evidence, shown), question.wanted, len(shown))) / 2


def _evidence(hit: Hit) -> set[str]:
    return {hit.id, *(source.entry for source in hit.sources)}
