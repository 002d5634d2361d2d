"""Ranking weights that belong to an embedding model."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from memtier_plugin.core.settings.schema import Weights
from memtier_plugin.retrieval import signals
from memtier_plugin.retrieval.signals import SIGNALS, model_title, ranking_weights


def test_file_names_signals_only() -> None:
    """Every fitted weight is one of a signal, within the limits of the setting."""
    document = json.loads(Path(signals.__file__).with_name("model_weights.json").read_bytes())
    for weights in document.values():
        assert weights.keys() <= SIGNALS.keys()
        assert all(0 <= weight <= 100 for weight in weights.values())


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("minilm-384-b734ac95", "minilm"),
        ("memtier-minilm-192-afae43c9", "memtier-minilm"),
        ("multilingual-e5-small-384-00000000", "multilingual-e5-small"),
        ("plugin", "plugin"),
    ],
)
def test_model_title(name: str, title: str) -> None:
    """A model keeps its title whatever its dimensions and its files' hash."""
    assert model_title(name) == title


def test_fitted_weights_apply() -> None:
    """An encoder with weights of its own is ranked by these, any other model by the defaults."""
    own = ranking_weights(Weights(), "minilm-384-b734ac95")
    assert own.dense_previous > 0
    for model in (None, "memtier-minilm-192-afae43c9", "plugin"):
        assert ranking_weights(Weights(), model) == Weights()


def test_what_the_user_set_stays() -> None:
    """A weight that the user set counts whatever the model; the others are the model's."""
    own = ranking_weights(Weights(), "minilm-384-b734ac95")
    for name in asdict(Weights()):
        given = replace(Weights(), **{name: 7.5})
        assert ranking_weights(given, "minilm-384-b734ac95") == replace(own, **{name: 7.5})
