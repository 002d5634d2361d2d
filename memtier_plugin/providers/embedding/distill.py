"""Distil a static embedding model from a sentence encoder with model2vec (the extra `distill`).

Every token of the encoder's tokenizer, and every word given, is embedded once by the encoder;
the principal components of these vectors make the static model (model2vec; Tulkens and van Dongen
2024). The encoder is not needed afterwards.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import SettingsError, Unsupported
from memtier_plugin.providers.embedding.static import Model2VecEmbedder

DEFAULT_DIMENSIONS: Final = 256  # model2vec's own default
_PROBE: Final = "A distilled model embeds this sentence."


@dataclass(frozen=True, slots=True)
class DistilledModel:
    """A model that was written: its name in an index, and its size."""

    folder: Path
    name: str
    dimensions: int
    tokens: int
    added_words: int
    size: int


def distill_model(
    teacher: str, folder: Path, words: Sequence[str] = (), dimensions: int = DEFAULT_DIMENSIONS
) -> DistilledModel:
    """Write a static model of an encoder to a new folder; progress goes to stderr.

    Args:
        teacher: a folder with a transformers model, or the name of one on the Hugging Face hub.
        words: words that get a vector of their own where the teacher's tokenizer splits them.
        dimensions: of the vectors; at most the teacher's.

    Raises:
        Unsupported: the extra `distill` is not installed.
        SettingsError: the folder exists, or the teacher cannot be loaded or distilled; nothing is
            left in the folder.
    """
    if os.path.lexists(folder):
        raise SettingsError(f"{folder} exists; name a new folder for the model")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(suffix=".part", prefix=f".{folder.name}.", dir=folder.parent))
    try:
        model, added_words = _distill(teacher, words, dimensions)
        model.save_pretrained(part)
        Model2VecEmbedder(part).encode([_PROBE])  # raises if it cannot be loaded
        size = _sync_files(part)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    written = Model2VecEmbedder(folder)
    return DistilledModel(
        folder, written.name, written.dimensions, len(model.tokens), added_words, size
    )


def _distill(teacher: str, words: Sequence[str], dimensions: int) -> tuple[Any, int]:
    """Return model2vec's model and how many words got a token of their own."""
    try:
        from model2vec.distill import distill_from_model
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise Unsupported(
            f"distilling needs more packages ({error}): pip install 'memtier[distill]'; to spare "
            "the GPU libraries, first: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        ) from error

    logging.getLogger("model2vec").setLevel(logging.ERROR)  # it warns of every known word
    try:
        # Code that comes with a model is never run: trust_remote_code stays off.
        encoder = AutoModel.from_pretrained(teacher)
        tokenizer = AutoTokenizer.from_pretrained(teacher, use_fast=True)
        if dimensions > encoder.config.hidden_size:
            raise ValueError(f"its vectors have only {encoder.config.hidden_size} dimensions")
        split = [word for word in words if len(tokenizer.tokenize(word)) > 1]
        model = distill_from_model(encoder, tokenizer, vocabulary=split, pca_dims=dimensions)
    except (OSError, ValueError, RuntimeError) as error:
        raise SettingsError(f"cannot distil {teacher!r}: {error}") from error
    return model, len(split)


def _sync_files(folder: Path) -> int:
    """Flush a folder's files to disk and return their size in bytes."""
    size = 0
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            size += path.stat().st_size
    return size
