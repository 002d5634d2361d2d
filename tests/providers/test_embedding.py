"""Vectors of texts: the shipped model, other static ones, what an index keeps of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from math import sqrt
from pathlib import Path
from shutil import copytree
from typing import Any

import model2vec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.providers.embedding.load import load_embedder, quantise
from memtier_plugin.providers.embedding.static import (
    SHIPPED_MODEL,
    Model2VecEmbedder,
    ShippedEmbedder,
    StaticEmbedder,
    TokenCache,
    fingerprint_model,
)
from memtier_plugin.text.languages import is_written_in
from tests.builders import costly_examples
from tests.cases import each_case
from tests.processes import child_environment, run_python

ROOT = Path(__file__).parents[2]
TEXTS = [
    "When did Caroline go to the museum?",
    "She took her kids to see the paintings last week.",
    "def encode(self, texts): return [self.model(t) for t in texts]",
    "Übergrößenträger naïve café, smörgåsbord in 東京: да, न",
    "a",
    "long " * 2000,
]


@pytest.fixture(scope="module")
def model() -> Embedder:
    """Return the shipped model."""
    embedder = load_embedder()
    assert embedder is not None
    return embedder


KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64"}


def write_model(
    folder: Path, table: np.ndarray[Any, Any], file: str, key: str, config: str, **more: Any
) -> None:
    """Write a model of the words red, green and blue, in the layout given."""
    words = {"[UNK]": 0, "red": 1, "green": 2, "blue": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    head, data = {}, b""
    for name, array in {key: table, **more}.items():
        kind = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64"}[
            array.dtype.name
        ]
        offsets = [len(data), len(data) + array.nbytes]
        head[name] = {"dtype": kind, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    top = json.dumps({"__metadata__": {"format": "np"}, **head}).encode()
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(top).to_bytes(8, "little") + top + data)
    tokenizer.save(str(path.with_name("tokenizer.json")))
    (folder / config).write_text("{}")


COLOURS = np.array([[9, 9], [1, 0], [0, 1], [-1, 0]], np.float32)


LOADERS = [ShippedEmbedder, lambda: Model2VecEmbedder(SHIPPED_MODEL)]


@pytest.mark.parametrize("load", LOADERS)
def test_same_whatever_the_batch(load: Callable[[], StaticEmbedder]) -> None:
    """A text's vector is the same bits alone, in any batch and order, and from another reader."""
    model, other = load(), load()
    together = np.asarray(model.encode(TEXTS))
    assert together.dtype == np.float32
    assert together.shape == (len(TEXTS), model.dimensions)
    for text, row in zip(reversed(TEXTS), reversed(together), strict=True):
        assert np.array_equal(np.asarray(other.encode([text]))[0], row)


ODD = ["", "[CLS] [UNK] ##ing", "x" * 150, "a\tb\x0bc\x7fd\0", "\ud800 red", "U.S.A. don't", "İ ﬁ"]


@settings(max_examples=costly_examples())
@given(st.lists(st.text(st.characters(max_codepoint=127)) | st.text() | st.sampled_from(ODD)))
def test_many_at_once(model: Embedder, texts: list[str]) -> None:
    """In bulk, where each word is looked up but once, vectors are the same to the bit."""
    assert isinstance(model, StaticEmbedder)
    one_by_one, together = model.encode([*TEXTS, *texts]), model.encode_many([*TEXTS, *texts])
    assert np.asarray(together).tobytes() == np.asarray(one_by_one).tobytes()


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokens_word_by_word(lowercase: bool) -> None:
    """What stands for a token of its own is found within words, and case is the tokenizer's."""
    words = ["[UNK]", "red", "Red", "##s", "s", "[", "]", "mask", "-"]
    pieces = models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = Tokenizer(pieces)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[MASK]"])
    tokens = TokenCache(tokenizer, 0)
    for text in ["reds [MASK] Reds", "s[MASK]s", "[mask]-red", "reds " * 3, "Red", "black-red"]:
        assert tokens.token_ids(text) == tokens.tokenize(text) == tokens.token_ids(text)
    assert len(tokens.token_ids("reds [MASK]s")) == 4


def test_length_one(model: Embedder) -> None:
    """Vectors have length one; what holds no known token is zeros, never NaN."""
    empty = ["", "  \n", "🦄🦄", "\ud800"]
    lengths = np.linalg.norm(np.asarray(model.encode([*TEXTS, *empty])), axis=1)
    assert lengths == pytest.approx([1] * len(TEXTS) + [0] * len(empty), abs=1e-6)
    assert np.asarray(model.encode([])).shape == (0, model.dimensions)


@each_case(
    ("text", "known"),
    [
        ("The staging host is heron.", True),
        ("Größe und Übermaß", True),
        ("We met in 東京 for the launch", True),
        ("3.14 -- 42!", True),
        ("我下周搬到东京", False),
        ("我用 Kubernetes 部署服务", False),
        ("Я живу в Мадриде", False),
        ("東京で寿司を食べた", False),
        ("서울에 살아요", False),
    ],
)
def test_scripts_of_the_shipped_model(text: str, known: bool) -> None:
    """A model gives no vector to what is written in a script that it does not know.

    The shipped model knows Latin script; a term of another one in a sentence does no harm.
    """
    shipped, other = ShippedEmbedder(), Model2VecEmbedder(SHIPPED_MODEL)
    assert bool(np.any(np.asarray(shipped.encode([text])))) == known
    assert bool(np.any(np.asarray(shipped.encode_many([text])))) == known
    assert np.any(np.asarray(other.encode([text])))  # whose scripts nobody stated


def test_equal_to_model2vec(model: Embedder) -> None:
    """The shipped folder is a model2vec model, and model2vec makes the same vectors of it."""
    theirs = model2vec.StaticModel.from_pretrained(SHIPPED_MODEL)
    assert np.allclose(theirs.encode(TEXTS), model.encode(TEXTS), atol=1e-6)


@given(st.lists(st.text() | st.sampled_from([*TEXTS, *ODD]), max_size=8))
def test_both_loaders_agree(model: Embedder, texts: list[str]) -> None:
    """The lean loader and model2vec make the same vectors of any text in Latin script."""
    texts = [text for text in texts if is_written_in(text, ["Latin"])]
    loaded = np.asarray(_model2vec().encode(texts))
    assert loaded.shape == (len(texts), model.dimensions)
    assert np.allclose(loaded, np.asarray(model.encode(texts)), atol=1e-6)


@cache
def _model2vec() -> Model2VecEmbedder:
    return Model2VecEmbedder(SHIPPED_MODEL)


def test_a_folder_model_starts_no_threads() -> None:
    """A host forks after recalls: embedding by model2vec leaves no thread behind."""
    code = (
        "import sys; from pathlib import Path\n"
        "from memtier_plugin.providers.embedding.static import Model2VecEmbedder\n"
        "import model2vec\n"
        "count = lambda: len(list(Path('/proc/self/task').iterdir()))\n"
        "before = count()\n"
        "Model2VecEmbedder(Path(sys.argv[1])).encode(['red house', 'blue'] * 50)\n"
        "assert count() == before, (before, count())"
    )
    run_python(code, SHIPPED_MODEL)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_means_are_of_single_precision(tmp_path: Path, dtype: type[Any]) -> None:
    """A table of other floats loses no digits: vectors are those of the table as float32."""
    table = np.array([[9, 9], [1, 1 / 3], [1e-3, 2], [-1, 0]], dtype)
    for folder, values in (("given", table), ("single", table.astype(np.float32))):
        file = ("model.safetensors", "embeddings", "config.json")
        write_model(tmp_path / folder, values, *file)
    given_model, single = (load_embedder(str(tmp_path / name)) for name in ("given", "single"))
    assert given_model is not None and single is not None
    texts = ["red green blue", "red red green"]
    assert np.array_equal(given_model.encode(texts), single.encode(texts))


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("dog", "puppy", "invoice"),
        ("happy", "joyful", "concrete"),
        ("Where does she work?", "Her job is in an office downtown.", "The soup needs more salt."),
        ("My car broke down", "the vehicle's engine failed", "we planted tulips in the garden"),
        ("fix the database error", "repair the SQL failure", "a walk along the beach"),
    ],
)
def test_meaning(model: Embedder, text: str, near: str, far: str) -> None:
    """What means nearly the same in other words is nearer than what means something else."""
    a, b, c = np.asarray(model.encode([text, near, far]))
    assert a @ b > a @ c + 0.1


@pytest.mark.parametrize("load", LOADERS)
def test_threads(load: Callable[[], StaticEmbedder]) -> None:
    """Threads that share an embedder from its first text on get the vectors that one gets."""
    shared, alone = load(), load()
    expected = np.asarray(alone.encode(TEXTS))
    equal: list[bool] = []

    def work() -> None:
        equal.append(np.array_equal(np.asarray(shared.encode(TEXTS)), expected))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 8


def test_read_once() -> None:
    """All memories of a process share the shipped model: it is read but once."""
    assert load_embedder() is load_embedder("default")


def test_cold() -> None:
    """Naming an embedder and its dimensions loads no third party: that waits for a text."""
    code = (
        "import sys, memtier_plugin.providers.embedding.load as e; m = e.load_embedder();"
        "assert m.name and m.dimensions; print(*sys.modules)"
    )
    assert not {"numpy", "tokenizers", "safetensors", "model2vec"} & set(run_python(code).split())


def test_shipped_name(model: Embedder) -> None:
    """The shipped model's name says its dimensions and hash: other files have another name."""
    assert isinstance(model, Embedder)
    assert model.name == f"memtier-minilm-{model.dimensions}-{fingerprint_model(SHIPPED_MODEL)}"


def test_size() -> None:
    """The model and all beside it take at most 10 MB."""
    assert sum(path.stat().st_size for path in SHIPPED_MODEL.iterdir()) <= 10_000_000


def test_provenance() -> None:
    """Beside the model stand its licence and where it comes from, with the hash of each file."""
    provenance = (SHIPPED_MODEL / "PROVENANCE.md").read_text("utf-8")
    licence = (SHIPPED_MODEL / "LICENSE").read_text("utf-8")
    for name in ("model.safetensors", "tokenizer.json"):
        assert sha256((SHIPPED_MODEL / name).read_bytes()).hexdigest() in provenance
    assert "all-MiniLM-L6-v2" in provenance
    assert "Apache License" in licence
    assert "WordNet 3.0 Copyright" in licence


def test_none() -> None:
    """`none` switches vectors off."""
    assert load_embedder("none") is None


@pytest.mark.parametrize(
    ("file", "key", "config"),
    [
        ("model.safetensors", "embeddings", "config.json"),
        ("model.safetensors", "embedding.weight", "config_sentence_transformers.json"),
        (
            "0_StaticEmbedding/model.safetensors",
            "embedding.weight",
            "config_sentence_transformers.json",
        ),
    ],
)
def test_other_folder(tmp_path: Path, file: str, key: str, config: str) -> None:
    """A folder in any layout that model2vec reads is a model; its name tells it from others."""
    write_model(tmp_path / "colours", COLOURS, file, key, config)
    model = load_embedder(str(tmp_path / "colours"))
    assert model is not None
    assert model.name == f"colours-2-{fingerprint_model(tmp_path / 'colours')}"
    assert model.dimensions == 2
    rows = np.asarray(model.encode(["red", "red green", "green black", "black", "red blue"]))
    half = sqrt(0.5)
    assert rows == pytest.approx(np.array([[1, 0], [half, half], [0, 1], [0, 0], [0, 0]]))


def test_weights_and_mapping(tmp_path: Path) -> None:
    """Rows are shared through a mapping and weighted by token, as in a model2vec vocabulary."""
    write_model(
        tmp_path,
        np.array([[0, 100], [100, 0]], np.int8),
        "model.safetensors",
        "embeddings",
        "config.json",
        weights=np.array([0, 3, 4, 1], np.float32),
        mapping=np.array([0, 0, 1, 1], np.int64),
    )
    model = load_embedder(str(tmp_path))
    assert model is not None
    assert np.asarray(model.encode(["red green"])) == pytest.approx(np.array([[0.8, 0.6]]))
    assert isinstance(model, StaticEmbedder)
    texts = ["red green", "black", "", "blue red red"]
    assert np.array_equal(model.encode_many(texts), model.encode(texts))


def test_hub(tmp_path: Path) -> None:
    """A hub name is taken from the hub's cache without the network; without either it is told."""
    cached = tmp_path / "models--someone--colours"
    layout = ("model.safetensors", "embeddings", "config.json")
    write_model(cached / "snapshots" / ("0" * 40), COLOURS, *layout)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40)
    code = (
        "from memtier_plugin.providers.embedding.load import load_embedder as load\n"
        "print(load('someone/colours').name)\n"
        "try: load('someone/else')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    environment = child_environment(HF_HUB_CACHE=str(tmp_path), HF_HUB_OFFLINE="1")
    first, second, *_ = run_python(code, env=environment).splitlines()
    assert first.startswith("colours-2-")
    assert second.startswith("SettingsError cannot fetch the embedding model 'someone/else'")


def test_unknown_name() -> None:
    """A name that is no model is refused, saying what would be one."""
    with pytest.raises(SettingsError, match="no embedding model 'nonsense'"):
        load_embedder("nonsense")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}", None])
def test_broken_folder(tmp_path: Path, content: bytes | None) -> None:
    """A folder whose files are not a static model's is refused, naming the place."""
    copytree(SHIPPED_MODEL, tmp_path / "broken")
    table = tmp_path / "broken" / "model.safetensors"
    intact = table.read_bytes()
    table.write_bytes(intact[: len(intact) // 2] if content is None else content)
    with pytest.raises(SettingsError, match="broken"):
        load_embedder(str(tmp_path / "broken"))


def test_mismatched_files(tmp_path: Path) -> None:
    """A tokenizer that is none, or not the table's, is refused at the first text."""
    layout = ("model.safetensors", "embeddings", "config.json")
    write_model(tmp_path, COLOURS[:2], *layout)
    model = load_embedder(str(tmp_path))
    assert model is not None
    with pytest.raises(SettingsError, match=r"tokens \(4\) does not match .* vectors \(2\)"):
        model.encode(["red"])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SettingsError, match="not a model2vec model: Model missing"):
        model.encode(["red"])


def test_quantised(model: Embedder) -> None:
    """Int8 blobs have the cosines of their vectors to .005."""
    rows = np.asarray(model.encode(TEXTS))
    blobs = quantise(rows)
    for i in range(len(TEXTS)):
        first, other = (np.frombuffer(blobs[n], np.int8).astype(float) for n in (0, i))
        cosine = first @ other / np.sqrt((first @ first) * (other @ other))
        assert cosine == pytest.approx(rows[0] @ rows[i], abs=0.005)
    assert quantise([[0.0] * 8]) == [bytes(8)]
