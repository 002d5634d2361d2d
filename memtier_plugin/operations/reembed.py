"""Embed the items without a vector of the current model, and estimate the cost.

Runs in the background in short, separately committed steps: after a kill the next pass resumes, as
it skips items with a vector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

from memtier_plugin.core.errors import CapReached, EndpointError, LedgerError, SettingsError
from memtier_plugin.core.events import EmbedEvent, new_event
from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.records import EventPayload, count_tokens
from memtier_plugin.credit.regression import RegressionGate, read_baseline
from memtier_plugin.providers.embedding.load import UnavailableEmbedder, cosine_similarity, quantise
from memtier_plugin.providers.embedding.remote import (
    BATCH_TEXTS,
    MAX_TEXT_CHARS,
    PROBE_TEXT,
    EndpointEmbedder,
)
from memtier_plugin.providers.pricing import EmbeddingBudget, Meter, format_cost
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.index.vector_coverage import VectorCoverage
from memtier_plugin.storage.store import Actor, Store
from memtier_plugin.trust.redaction import Redactor

STEP: Final = 256  # texts per transaction, or per spending record in the journal
MIN_SAME_COSINE: Final = 0.98  # of two vectors of one text by the same model
REST_SECONDS: Final = 0.005  # after a transaction, so that others get the index lock
LOCK_MS: Final = 30_000  # how long a step waits for the index's write lock

_ALL: Final = 1 << 31
_PROBED_PASSES: Final = 8  # passes whose probes an approval includes

Progress = Callable[[int, int], None]
Texts = Mapping[int, Sequence[str]]  # the embedded pieces of each row


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingState:
    """The coverage by vectors of the current model, and the cost of the missing ones.

    Costs are in the currency of the endpoint's price: ``cost`` estimates the missing vectors,
    ``spent`` and ``allowed`` are lifetime totals of this project and model. ``old``: there are
    vectors of other models; ``error``: why the last pass ended early.
    """

    model: str | None = None
    items: int = 0
    missing: int = 0
    old: bool = False
    tokens: int = 0
    paid: bool = False
    cost: float = 0.0
    spent: float = 0.0
    allowed: float = 0.0
    error: str | None = None

    @property
    def due(self) -> bool:
        """Whether vectors are missing and the user has approved their cost."""
        waits = self.missing and (not self.paid or self.spent < self.allowed)
        return bool(waits or (self.old and not self.missing))

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {**asdict(self), "due": self.due}


@dataclass(slots=True, kw_only=True)
class EmbeddingReport:
    """The work of one pass, and the number of items left.

    ``refused``: why the previous model's vectors are kept, since the new one answers worse.
    """

    embedded: int = 0
    tokens: int = 0
    cost: float = 0.0
    dropped: int = 0
    left: int = 0
    refused: str | None = None


class Reembedder:
    """Embeds a project's items that lack a vector."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def approve(self) -> EmbeddingState:
        """Approve the estimated cost of the missing vectors, with a margin.

        Raises:
            LedgerError, IndexProblem: the approval was not written, so nothing is allowed.
            SettingsError: the configured model cannot be loaded.
        """
        state = read_embedding_state(self._store)
        if state.paid and state.model:
            with self._store.session():
                allowance = _budget(self._store).required_approval(
                    state.tokens + _PROBED_PASSES * _tokens([PROBE_TEXT])
                )
            self._write(EmbedEvent(model=state.model, approved=allowance))
        return read_embedding_state(self._store)

    def run(
        self,
        *,
        stop: Callable[[], bool] = lambda: False,
        progress: Progress | None = None,
        afresh: bool = False,
        accept: bool = False,
    ) -> EmbeddingReport:
        """Embed the items without a vector, then delete the vectors of other models.

        The previous model's vectors are kept if they answered the project's own questions better.

        Args:
            stop: polled between two steps.
            progress: called with the number done and the total.
            afresh: delete this model's vectors first.
            accept: delete the previous model's vectors whatever the answers.

        Raises:
            CapReached: the rest would exceed the approved cost; finished steps stay.
            EndpointError: the endpoint fails; finished steps stay.
            SettingsError: the configured model cannot be loaded.
            LedgerError: another process is embedding, or the journal cannot be written.
            IndexProblem: the index cannot be used.
        """
        embedder = _embedder(self._store)
        if embedder is None:
            return EmbeddingReport()
        with self._store.try_exclusive("embed") as exclusive, self._store.session():
            if not exclusive:
                raise LedgerError(
                    f"another process is embedding the project {self._store.project!r} now"
                )
            self._store.catch_up_all()
            self._store.set_busy_timeout(LOCK_MS)
            if afresh:
                self._index().set_probe_vector(embedder.name, None)
                self._drop(embedder.name, stop)
            return self._record_error(lambda: self._pass(embedder, stop, progress, accept=accept))

    def _record_error(self, run: Callable[[], EmbeddingReport]) -> EmbeddingReport:
        """Record for `status` why a pass ended early."""
        try:
            report = run()
        except (CapReached, EndpointError) as error:
            self._index().set_last_error(str(error))
            raise
        self._index().set_last_error(None)
        return report

    def _pass(
        self,
        embedder: Embedder,
        stop: Callable[[], bool],
        progress: Progress | None,
        *,
        accept: bool,
    ) -> EmbeddingReport:
        index, report = self._index(), EmbeddingReport()
        for model in index.models_being_dropped():  # partly deleted, so the rest is useless
            report.dropped += self._drop(model, stop)
        missing = index.coverage(embedder.name).missing
        if missing:
            steps = (
                self._embed_remotely(embedder, report)
                if isinstance(embedder, EndpointEmbedder)
                else self._embed_locally(embedder)
            )
            with closing(steps):
                for number in steps:
                    report.embedded += number
                    if progress:
                        progress(report.embedded, max(missing, report.embedded))
                    if stop():
                        break
        report.left = index.coverage(embedder.name).missing
        others = [model for model in index.models() if model != embedder.name]
        if not report.left and others and not accept:
            report.refused = self._refused_switch(embedder)
        if not report.left and not report.refused:
            for model in others:
                report.dropped += self._drop(model, stop)
        return report

    def _refused_switch(self, embedder: Embedder) -> str | None:
        """Return why the previous model's vectors are kept; checked once for each new model."""
        change = f"the switch of the embedding model to {embedder.name}"
        known = read_baseline(self._store.project_folder.path)
        if known.change == change:
            return known.warning
        gate = RegressionGate(Actor(self._store, self._agent, self._clock, Redactor()))
        report = gate.check_model()
        if report is None:
            return None
        gate.remember(change, report)
        return read_baseline(self._store.project_folder.path).warning

    def _drop(self, model: str, stop: Callable[[], bool]) -> int:
        dropped = 0
        with closing(self._index().drop_model(model, STEP)) as steps:
            for number in steps:
                dropped += number
                if stop():
                    break
                time.sleep(REST_SECONDS)
        return dropped

    def _embed_locally(self, embedder: Embedder) -> Generator[int]:
        """Embed with a model on this machine; yield the number of items in each step."""
        index, before = self._index(), None
        while texts := index.pieces_without_vectors(embedder.name, STEP, before):
            index.put_vectors(embedder.name, embed_texts(embedder, texts))
            before = min(texts)
            yield len(texts)
            time.sleep(REST_SECONDS)

    def _embed_remotely(
        self, embedder: EndpointEmbedder, report: EmbeddingReport
    ) -> Generator[int]:
        """Embed through an endpoint within the budget; yield the item count of each request."""
        index, budget = self._index(), _budget(self._store)
        before, is_checked = None, False
        while texts := index.pieces_without_vectors(embedder.name, STEP, before):
            affordable = _affordable(texts, budget)
            if not affordable:
                raise self._refusal(budget)
            size = _tokens([PROBE_TEXT]) + sum(map(_tokens, affordable.values()))
            with budget.reserve(size, self._write) as meter:
                try:
                    if not is_checked:
                        meter.tokens += self._check_space(embedder)
                        is_checked = True
                    for batch in _batches(affordable):
                        self._request(embedder, batch, meter)
                        yield len(batch)
                finally:
                    report.tokens += meter.tokens
                    report.cost += budget.cost(meter.tokens)
            budget.margin = max(1.0, 1.05 * meter.tokens / size)
            before = min(affordable)

    def _request(self, embedder: EndpointEmbedder, batch: Texts, meter: Meter) -> None:
        try:
            reply = embedder.embed([piece for pieces in batch.values() for piece in pieces])
        except EndpointError:
            meter.tokens += sum(map(_tokens, batch.values()))  # the endpoint may charge for them
            raise
        meter.tokens += reply.tokens
        blobs = iter(quantise(reply.vectors))
        vectors = {row: list(islice(blobs, len(pieces))) for row, pieces in batch.items()}
        self._index().put_vectors(embedder.name, vectors)
        meter.items += len(batch)

    def _check_space(self, embedder: EndpointEmbedder) -> int:
        """Check that the endpoint still serves the same model; return the tokens used."""
        index = self._index()
        embedder.expect_dimensions(index.vector_length(embedder.name))
        reply = embedder.embed([PROBE_TEXT])
        [blob] = quantise(reply.vectors)
        before = index.probe_vector(embedder.name)
        if before is None:
            index.set_probe_vector(embedder.name, blob)
        elif (similarity := cosine_similarity(before, blob)) < MIN_SAME_COSINE:
            raise EndpointError(
                f"the endpoint {embedder.endpoint.base_url} now returns different vectors for "
                f"{embedder.model!r} from those in the index (similarity for one text: "
                f"{similarity:.2f}): it serves a different model under that name; "
                "`memtier embed --afresh` computes all of them again"
            )
        return reply.tokens

    # -- money ---------------------------------------------------------------------------------

    def _refusal(self, budget: EmbeddingBudget) -> CapReached:
        coverage = self._index().coverage(budget.model)
        return CapReached(
            f"embedding by {budget.model} has cost {format_cost(budget.spent)} of the "
            f"{format_cost(budget.allowed)} allowed, and the {coverage.missing} items left "
            f"would cost about "
            f"{format_cost(budget.cost(coverage.tokens))}: `memtier embed --yes` allows it, or set "
            "embedding.max_cost"
        )

    def _write(self, payload: EventPayload) -> str:
        """Write an event to the project's journal and return its id."""
        event = new_event(payload, agent=self._agent, at=self._clock())
        self._store.append_events([event], shared=True)
        return event.id

    def _index(self) -> VectorCoverage:
        return self._store.reader().coverage


def read_embedding_state(store: Store) -> EmbeddingState:
    """Return the coverage of a project; reads every item once if any lacks a vector.

    Raises:
        SettingsError: the configured model cannot be loaded.
        IndexProblem: the index cannot be used.
    """
    embedder = _embedder(store)
    if embedder is None:
        return EmbeddingState()
    with store.session() as reader:
        index, budget = reader.coverage, _budget(store)
        coverage = index.coverage(embedder.name)
        return EmbeddingState(
            model=embedder.name,
            items=coverage.items,
            missing=coverage.missing,
            old=coverage.old,
            tokens=coverage.tokens,
            paid=budget.price > 0,
            cost=budget.cost(coverage.tokens),
            spent=budget.spent,
            allowed=budget.allowed,
            error=index.last_error(),
        )


def _embedder(store: Store) -> Embedder | None:
    embedder = store.embedder
    if isinstance(embedder, UnavailableEmbedder):
        raise SettingsError(embedder.reason)
    return embedder


def _budget(store: Store) -> EmbeddingBudget:
    embedder = store.embedder
    if not isinstance(embedder, EndpointEmbedder) or not embedder.cost(1):
        return EmbeddingBudget("", 0.0, 0.0)
    events = store.reader().events(kinds=[EmbedEvent.KIND], newest=_ALL)
    events += [e for e in store.unindexed_events(PROJECT_JOURNAL) if e.kind == EmbedEvent.KIND]
    return EmbeddingBudget.from_events(
        embedder.name, embedder.cost(1), store.settings.embedding.max_cost, events
    )


def _tokens(pieces: Iterable[str]) -> int:
    return sum(count_tokens(piece[:MAX_TEXT_CHARS]) for piece in pieces)


def _affordable(texts: Texts, budget: EmbeddingBudget) -> Texts:
    """Return the leading texts that fit into the budget."""
    affordable: dict[int, Sequence[str]] = {}
    size = _tokens([PROBE_TEXT])
    for row, pieces in texts.items():
        size += _tokens(pieces)
        if not budget.affords(size):
            break
        affordable[row] = pieces
    return affordable


def _batches(texts: Texts) -> Iterator[Texts]:
    """Split texts into batches of about one request."""
    batch: dict[int, Sequence[str]] = {}
    size = 0
    for row, pieces in texts.items():
        if batch and size + len(pieces) > BATCH_TEXTS:
            yield batch
            batch, size = {}, 0
        batch[row] = pieces
        size += len(pieces)
    if batch:
        yield batch
