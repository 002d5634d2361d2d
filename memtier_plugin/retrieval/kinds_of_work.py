"""Tell which kinds of work a text is about: tests, invoices, travel and so on.

"Install lodash" shares no word with "Add the date library", and static vectors hardly bring them
together; both are about packages.  A text's profile is how much it speaks for each kind, by its
words in a dozen languages and by its vector.  `scripts/fit_corrections.py` fits the model.
"""

from __future__ import annotations

import json
import re
from array import array
from base64 import b85decode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from memtier_plugin.providers.embedding.load import load_embedder
from memtier_plugin.providers.embedding.static import ShippedEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

Profiles: TypeAlias = "NDArray[Any]"  # one row for each text, or mixture of some

MODEL: Final = Path(__file__).with_suffix(".json")
OTHER: Final = "none"  # the kind of what is no work of the user's: riddles, facts of the world
SCALE: Final = 6.0  # of a vector of length one, beside a constant of one
MIX: Final = 2.0  # of the vector's kinds, beside those of the words
_BEGINNING: Final = 5  # leading letters by which words are compared, too
_MAX_CHARS: Final = 600  # of a text that are looked at
_WORD: Final = re.compile(
    r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+|[^\W_\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+"
)
_UNSPACED: Final = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]")


class KindModel(NamedTuple):
    """The fitted weights.

    ``words`` has, by word, pairs of a kind's index and a weight; ``table`` those of a vector,
    shape (dimensions + 1, kinds), the constant's last.  ``standards`` are those of a likeness,
    for rules and for intentions.
    """

    kinds: Sequence[str]
    words: Mapping[str, Sequence[tuple[int, float]]]
    table: NDArray[Any]
    standards: Mapping[str, Mapping[str, float]]


@lru_cache(64)
def profile(text: str) -> tuple[float, ...]:
    """Return how much a text speaks for each kind, from 0, all of them for at most 1."""
    import numpy as np

    model, text = kind_model(), text[:_MAX_CHARS]
    total = np.zeros(len(model.kinds))
    for unit in units(text):
        for kind, weight in model.words.get(unit, ()):
            total[kind] += weight
    vector = np.asarray(_embedder().encode([text])[0], float)
    if vector.any():
        total += MIX * spread(np.append(vector * SCALE, 1.0) @ model.table)
    return tuple((total / max(1.0, float(total.sum()))).tolist())


def of_work(texts: Sequence[str], mixes: Sequence[Sequence[float]]) -> Profiles:
    """Return mixtures of texts' profiles without what is no work, each of length one.

    Args:
        mixes: how much each text counts, for each mixture.

    Returns:
        shape (mixtures, kinds); a row of zeros where no text is about any work.
    """
    import numpy as np

    profiles = np.array([profile(text) for text in texts])
    profiles[:, other_kind()] = 0.0
    rows: NDArray[Any] = np.array(mixes) @ profiles
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths, lengths, 1.0)


def other_kind() -> int:
    """Return the index of the kind of what is no work."""
    return kind_model().kinds.index(OTHER)


def spread(odds: NDArray[Any]) -> NDArray[Any]:
    """Return log-odds as probabilities that add up to one along the last axis."""
    import numpy as np

    raised = np.exp(odds - odds.max(axis=-1, keepdims=True))
    probabilities: NDArray[Any] = raised / raised.sum(axis=-1, keepdims=True)
    return probabilities


def units(text: str) -> Iterator[str]:
    """Yield a text's distinct words, the beginnings of long ones, and letters by one and two."""
    distinct = dict[str, None]()
    for word in _WORD.findall(text.casefold()):
        if _UNSPACED.match(word):
            distinct |= dict.fromkeys(word)
            distinct |= dict.fromkeys(word[at : at + 2] for at in range(len(word) - 1))
        else:
            distinct[word] = None
            if len(word) > _BEGINNING:
                distinct[f"{word[:_BEGINNING]}*"] = None
    yield from distinct


def _embedder() -> ShippedEmbedder:
    embedder = load_embedder("default")  # the process's own, which recalls use too
    assert isinstance(embedder, ShippedEmbedder)
    return embedder


@cache
def kind_model() -> KindModel:
    """Return the fitted model, read at the first call."""
    import numpy as np

    document = json.loads(MODEL.read_bytes())
    kinds = document["kinds"]
    words = {
        word: [(kind, weight / 100) for kind, weight in zip(flat[::2], flat[1::2], strict=True)]
        for word, flat in document["words"].items()
    }
    table = np.array(array("b", b85decode(document["table"])), float).reshape(-1, len(kinds))
    return KindModel(kinds, words, table * document["scale"], document["standards"])
