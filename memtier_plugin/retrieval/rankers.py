"""The rankers: what a profile does otherwise than `recall_first`, which plugins may add to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Protocol

from memtier_plugin.core import plugins
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.model_weights import ranking_weights

if TYPE_CHECKING:
    from memtier_plugin.core.results import Step
    from memtier_plugin.retrieval.query import QueryVector
    from memtier_plugin.retrieval.search import Search, SearchResult


class BlockSize(Protocol):
    """The settings that limit a block."""

    @property
    def k(self) -> int:
        """The most lines."""

    @property
    def token_budget(self) -> int:
        """The most tokens."""


class Ranker:
    """Ranks as `recall_first` does; the rankers of plugins override what they do otherwise.

    Attributes:
        merges: whether hits are read together: near-duplicates become one, newer facts come before
            those that they contradict, what the project is called names nothing in it, and a vague
            query gets follow-up searches. Off offers the hits as they were ranked.
        refines: whether new lines are embedded first, plugins may rerank or expand the query, and
            long lines are cut to what the query asks for.
        limits: why it may pass over what shares words with the query.
        stages: parts of the store that are searched one after the other, each with those before
            it; the last one is all of it.
    """

    merges: bool = True
    refines: bool = True
    limits: str = (
        "the shared words are too common: only the newest postings, up to "
        "retrieval.postings_cap, are read"
    )
    stages: Sequence[str] = ()

    def size(self, settings: Settings) -> BlockSize:
        """Return how large a block is where the request does not say."""
        return settings.retrieval

    def weights(self, settings: Settings, model: str | None) -> dict[str, float]:
        """Return what each signal counts, without those that count nothing.

        Args:
            model: the embedder whose vectors are compared, None where none are.
        """
        weights = asdict(ranking_weights(settings.retrieval.weights, model))
        return {name: weight for name, weight in weights.items() if weight}

    def rank(self, search: Search, query: str, stage: str | None) -> SearchResult:
        """Rank what a search may see.

        Args:
            stage: the only stage to search; None leaves it to the ranker.

        Raises:
            DeadlineExceeded: before anything was ranked.
        """
        return search.rank_by_signals(query)

    def find_problems(self, settings: Settings, *, embeds: bool) -> Iterator[str]:
        """Yield what makes its results less than they should be.

        Args:
            embeds: whether there is an embedding model.
        """
        yield from ()

    def explain_missing(self, result: SearchResult) -> tuple[str, str] | None:
        """Return why items may be missing from a result (reason, message), if by this ranker."""
        return None


RECALL_FIRST: Final = Ranker()


@dataclass(frozen=True, slots=True)
class Expansion:
    """Another text to search for by its meaning, beside the query.

    Attributes:
        signal: the name of the signal that its likeness gives; its weight is a setting.
        vector: of the text; None where there is none.
        step: what it took.
        problems: why there is none.
    """

    signal: str
    vector: QueryVector | None
    step: Step
    problems: tuple[str, ...] = ()


def find_ranker(settings: Settings) -> Ranker:
    """Return the ranker that the settings choose.

    Raises:
        SettingsError: no installed plugin has it.
    """
    name = settings.retrieval.ranker
    ranker: Ranker = RECALL_FIRST if name is None else plugins.find_ranker(name)
    return ranker
