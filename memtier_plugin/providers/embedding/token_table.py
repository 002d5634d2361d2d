"""Average the vectors of a text's tokens: what a static embedding model computes.

The vector of a text is the mean of its tokens' vectors, scaled to length one (model2vec; Tulkens
and van Dongen 2024). It depends on that text alone, not on the rest of the batch: an index rebuilt
from the same ledgers equals the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memtier_plugin.providers.embedding.token_cache import TokenCache

_BATCH_TEXTS: Final = 16  # texts whose token vectors are gathered at once: more overflow the caches


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Hold a static model in memory.

    Shapes: ``vectors`` is (rows, d) int8 or float32; ``weights`` (tokens) float; ``mapping``
    (tokens) has the row of each token, None where it is the token's id.
    """

    tokens: TokenCache
    vectors: NDArray[Any]
    weights: NDArray[Any] | None = None
    mapping: NDArray[Any] | None = None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the unit vectors of texts, each tokenized as a whole, of zeros for no token."""
        means = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        for row, text in enumerate(texts):
            # One by one: a batch would start threads, which a later fork leaves behind.
            if ids := self.tokens.tokenize(text):
                means[row] = self._token_vectors(ids).mean(axis=0)
        return _scale_to_one(means)

    def encode_many(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return what `encode` returns, to the bit, giving each word to the tokenizer once."""
        means = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        counts = np.ones((len(texts), 1), np.float32)
        for first in range(0, len(texts), _BATCH_TEXTS):
            tokens = self.tokens.token_ids_of_each(texts[first : first + _BATCH_TEXTS])
            vectors = self._token_vectors([*chain.from_iterable(tokens)])
            end = 0
            for row, ids in enumerate(tokens, first):
                if ids:
                    begin, end = end, end + len(ids)
                    np.add.reduce(vectors[begin:end], axis=0, out=means[row])
                    counts[row] = len(ids)
        return _scale_to_one(means / counts)

    def _token_vectors(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Return the weighted vectors of tokens: (n) -> (n, d) float32."""
        tokens = np.array(ids, np.intp)
        vectors = self.vectors[tokens if self.mapping is None else self.mapping[tokens]]
        if self.weights is None:
            return vectors.astype(np.float32)
        weighted: NDArray[np.float32] = vectors * self.weights[tokens].astype(np.float32)[:, None]
        return weighted


def _scale_to_one(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Divide rows by their length; rows of zeros stay."""
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-32
    return vectors
