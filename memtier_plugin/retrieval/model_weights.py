"""The ranking weights that belong to an embedding model.  Pure.

Cosines of another model are spread in another way and say more or less than words do, so that the
weights fitted with one model rank badly with another.  ``model_weights.json`` holds those that were
fitted with a model other than the shipped one (``scripts/fit_weights.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache, lru_cache
from pathlib import Path

from memtier_plugin.core.settings.schema import Weights


def model_title(name: str) -> str:
    """Return the name of an embedder without its dimensions and its hash."""
    return name.rsplit("-", 2)[0]


@lru_cache(16)
def ranking_weights(given: Weights, model: str | None) -> Weights:
    """Return the weights of a recall: those of its embedding model, where the user set no other.

    Args:
        given: as configured; what differs from the defaults was set by the user, and stays.
        model: the name of the embedder whose vectors are compared, None where none are.
    """
    fitted = _fitted().get(model_title(model)) if model else None
    if not fitted:
        return given
    defaults = asdict(Weights())
    chosen = {name for name, value in asdict(given).items() if value != defaults[name]}
    return replace(given, **{name: value for name, value in fitted.items() if name not in chosen})


@cache
def _fitted() -> Mapping[str, Mapping[str, float]]:
    document: Mapping[str, Mapping[str, float]] = json.loads(
        Path(__file__).with_name("model_weights.json").read_bytes()
    )
    return document
