"""The vectors that the current model has not made yet: what they would cost, and making them.

In the background, in short steps, each of which stands when the next one dies: a pass that was
killed is resumed by the next one, as what has a vector is passed over.
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
from memtier_plugin.core.events import EmbedEvent, EventPayload, new_event
from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.records import count_tokens
from memtier_plugin.providers.embedding.load import UnavailableEmbedder
from memtier_plugin.providers.embedding.quantise import cosine_similarity, quantise
from memtier_plugin.providers.embedding.remote import (
    BATCH_TEXTS,
    MAX_TEXT_CHARS,
    PROBE_TEXT,
    EndpointEmbedder,
)
from memtier_plugin.providers.pricing import EmbeddingBudget, Meter, format_cost
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.index.vector_coverage import IndexCoverage
from memtier_plugin.storage.store import Store

STEP: Final = 256  # texts between two transactions, or two lines of spending in the journal
MIN_SAME_COSINE: Final = (
    0.98  # the cosine that two vectors of one text must have to be of one model
)
REST_SECONDS: Final = (
    0.005  # seconds after a transaction: whoever waits for the index's lock gets it now
)
LOCK_MS: Final = 30_000  # how long a step waits for the index's write lock

_ALL: Final = 1 << 31
_PASSES: Final = 8  # for whose probes an approval has room

Progress = Callable[[int, int], None]
Texts = Mapping[int, Sequence[str]]  # of each row, the pieces that are embedded


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingState:
    """How far the vectors of the current model are, and what those missing would cost.

    Costs are in the currency of the endpoint's price; those of what is missing are estimates, and
    ``spent`` and ``allowed`` are of this project and model, from the beginning. ``old`` tells
    whether there are vectors of other models, ``error`` why the last pass ended early.
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
        """Whether there is something to do that the user has allowed."""
        waits = self.missing and (not self.paid or self.spent < self.allowed)
        return bool(waits or (self.old and not self.missing))

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {**asdict(self), "due": self.due}


@dataclass(slots=True, kw_only=True)
class EmbeddingReport:
    """What a pass did, and how many items it left."""

    embedded: int = 0
    tokens: int = 0
    cost: float = 0.0
    dropped: int = 0
    left: int = 0


class Reembedder:
    """Makes the missing vectors of one project."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def approve(self) -> EmbeddingState:
        """Allow what the missing vectors are estimated to cost, with a margin.

        Raises:
            LedgerError, IndexProblem: it is not written down, so not allowed.
            SettingsError: the model that is configured cannot be had.
        """
        state = read_embedding_state(self._store)
        if state.paid and state.model:
            with self._store.session():
                allowance = _budget(self._store).required_approval(
                    state.tokens + _PASSES * _tokens([PROBE_TEXT])
                )
            self._write(EmbedEvent(model=state.model, approved=allowance))
        return read_embedding_state(self._store)

    def run(
        self,
        *,
        stop: Callable[[], bool] = lambda: False,
        progress: Progress | None = None,
        afresh: bool = False,
    ) -> EmbeddingReport:
        """Make what is missing, then delete what other models made.

        Args:
            stop: asked between two steps.
            progress: called with how many are done, and of how many.
            afresh: forget this model's vectors first.

        Raises:
            CapReached: the rest would cost more than is allowed; what was made stays.
            EndpointError: the endpoint fails; what was made stays.
            SettingsError: the model that is configured cannot be had.
            LedgerError: another process is at it, or the journal cannot be written.
            IndexProblem: the index cannot be used.
        """
        embedder = _embedder(self._store)
        if embedder is None:
            return EmbeddingReport()
        with self._store.try_exclusive("embed") as held, self._store.session():
            if not held:
                raise LedgerError(f"another process embeds the project {self._store.project!r} now")
            self._store.catch_up_all()
            self._store.set_busy_timeout(LOCK_MS)
            if afresh:
                self._index().set_probe_vector(embedder.name, None)
                self._drop(embedder.name, stop)
            return self._noted(lambda: self._pass(embedder, stop, progress))

    def _noted(self, run: Callable[[], EmbeddingReport]) -> EmbeddingReport:
        """Keep for `status` how a pass ended."""
        try:
            report = run()
        except (CapReached, EndpointError) as error:
            self._index().set_last_error(str(error))
            raise
        self._index().set_last_error(None)
        return report

    def _pass(
        self, embedder: Embedder, stop: Callable[[], bool], progress: Progress | None
    ) -> EmbeddingReport:
        index, report = self._index(), EmbeddingReport()
        for model in index.models_being_dropped():  # half of it is gone: what is left is of no use
            report.dropped += self._drop(model, stop)
        missing = index.coverage(embedder.name).missing
        if missing:
            steps = (
                self._asked(embedder, report)
                if isinstance(embedder, EndpointEmbedder)
                else self._made(embedder)
            )
            with closing(steps):
                for number in steps:
                    report.embedded += number
                    if progress:
                        progress(report.embedded, max(missing, report.embedded))
                    if stop():
                        break
        report.left = index.coverage(embedder.name).missing
        if not report.left:
            for model in index.models():
                if model != embedder.name:
                    report.dropped += self._drop(model, stop)
        return report

    def _drop(self, model: str, stop: Callable[[], bool]) -> int:
        dropped = 0
        with closing(self._index().drop_model(model, STEP)) as steps:
            for number in steps:
                dropped += number
                if stop():
                    break
                time.sleep(REST_SECONDS)
        return dropped

    def _made(self, embedder: Embedder) -> Generator[int]:
        """Embed by a model on this machine; yield after each step how many it was."""
        index, before = self._index(), None
        while texts := index.pieces_without_vectors(embedder.name, STEP, before):
            index.put_vectors(embedder.name, embed_texts(embedder, texts))
            before = min(texts)
            yield len(texts)
            time.sleep(REST_SECONDS)

    def _asked(self, embedder: EndpointEmbedder, report: EmbeddingReport) -> Generator[int]:
        """Embed by an endpoint, inside what is allowed; yield after each request how many."""
        index, budget = self._index(), _budget(self._store)
        before, known = None, False
        while texts := index.pieces_without_vectors(embedder.name, STEP, before):
            chosen = _affordable(texts, budget)
            if not chosen:
                raise self._refusal(budget)
            size = _tokens([PROBE_TEXT]) + sum(map(_tokens, chosen.values()))
            with budget.reserve(size, self._write) as meter:
                try:
                    if not known:
                        meter.tokens += self._check_space(embedder)
                        known = True
                    for batch in _batches(chosen):
                        self._request(embedder, batch, meter)
                        yield len(batch)
                finally:
                    report.tokens += meter.tokens
                    report.cost += budget.cost(meter.tokens)
            budget.margin = max(1.0, 1.05 * meter.tokens / size)
            before = min(chosen)

    def _request(self, embedder: EndpointEmbedder, batch: Texts, meter: Meter) -> None:
        try:
            found = embedder.embed([piece for pieces in batch.values() for piece in pieces])
        except EndpointError:
            meter.tokens += sum(map(_tokens, batch.values()))  # it may be charged all the same
            raise
        meter.tokens += found.tokens
        blobs = iter(quantise(found.vectors))
        vectors = {row: list(islice(blobs, len(pieces))) for row, pieces in batch.items()}
        self._index().put_vectors(embedder.name, vectors)
        meter.items += len(batch)

    def _check_space(self, embedder: EndpointEmbedder) -> int:
        """Refuse a server that now gives other vectors; return the tokens that it took."""
        index = self._index()
        embedder.expect_dimensions(index.vector_length(embedder.name))
        found = embedder.embed([PROBE_TEXT])
        [blob] = quantise(found.vectors)
        before = index.probe_vector(embedder.name)
        if before is None:
            index.set_probe_vector(embedder.name, blob)
        elif (likeness := cosine_similarity(before, blob)) < MIN_SAME_COSINE:
            raise EndpointError(
                f"the endpoint {embedder.endpoint.base_url} now gives other vectors for "
                f"{embedder.model!r} than those in the index (likeness of one text: "
                f"{likeness:.2f}): it serves another model by that name; "
                "`memtier embed --afresh` makes all of them anew"
            )
        return found.tokens

    # -- money ---------------------------------------------------------------------------------

    def _refusal(self, budget: EmbeddingBudget) -> CapReached:
        left = self._index().coverage(budget.model)
        return CapReached(
            f"embedding by {budget.model} has cost {format_cost(budget.spent)} of the "
            f"{format_cost(budget.allowed)} allowed, and the {left.missing} items left "
            f"would cost about "
            f"{format_cost(budget.cost(left.tokens))}: `memtier embed --yes` allows it, or set "
            "embedding.max_cost"
        )

    def _write(self, payload: EventPayload) -> str:
        """Write an event into the project's journal and return its id."""
        event = new_event(payload, agent=self._agent, at=self._clock())
        self._store.append_events([event], shared=True)
        return event.id

    def _index(self) -> IndexCoverage:
        return self._store.reader().coverage


def read_embedding_state(store: Store) -> EmbeddingState:
    """Look at how the vectors of a project stand; reads every item once where some are missing.

    Raises:
        SettingsError: the model that is configured cannot be had.
        IndexProblem: the index cannot be used.
    """
    embedder = _embedder(store)
    if embedder is None:
        return EmbeddingState()
    with store.session() as reader:
        index, budget = reader.coverage, _budget(store)
        found = index.coverage(embedder.name)
        return EmbeddingState(
            model=embedder.name,
            items=found.items,
            missing=found.missing,
            old=found.old,
            tokens=found.tokens,
            paid=budget.price > 0,
            cost=budget.cost(found.tokens),
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
    """Return as many texts, from the first, as are within what is allowed."""
    chosen: dict[int, Sequence[str]] = {}
    size = _tokens([PROBE_TEXT])
    for row, pieces in texts.items():
        size += _tokens(pieces)
        if not budget.affords(size):
            break
        chosen[row] = pieces
    return chosen


def _batches(texts: Texts) -> Iterator[Texts]:
    """Part texts into those of about one request each."""
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
