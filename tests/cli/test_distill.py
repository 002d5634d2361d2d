"""`memtier distill`: a model of one's own, whole or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers

from memtier_plugin import MemTier
from memtier_plugin.cli.main import main
from memtier_plugin.core.installation import install_command
from memtier_plugin.providers.embedding import conversion
from memtier_plugin.providers.embedding.load import load_embedder
from memtier_plugin.storage.home_files import list_exports

Run = Callable[..., Result]
EXTRA = all(find_spec(package) for package in ("torch", "transformers", "skeletoken", "sklearn"))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return ``run(*args, code=0)``, which calls the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ("--project", "birds", *args))
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def birds(home: Path) -> MemTier:
    """Return a project whose people share one word; another is one person's, or one agent's."""
    rights = {"agents": {"diary": {"promote": "none"}}}
    for agent, sender, words in [
        ("main", "mara", "pelican diagnosis"),
        ("main", "ines", "pelican"),
        ("diary", "mara", "confession"),
        ("diary", "ines", "confession"),
    ]:
        memory = MemTier.open(home, "birds", agent)
        for n in range(3):
            session = f"{agent}-{sender}-{n}"
            memory.record([{"role": "user", "content": words}], session_id=session, sender=sender)
    (home / "config.yaml").write_text(json.dumps(rights))
    return MemTier.open(home, "birds")


def small_model(teacher: str, words: list[str], dimensions: int) -> tuple[StaticModel, int]:
    """Stand in for the distillation: a model of a few words, each with a vector of its own."""
    vocabulary = {word: n for n, word in enumerate(["[UNK]", "the", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.eye(len(vocabulary), dimensions, dtype=np.float32)
    config: Any = {"normalize": True}
    return StaticModel(vectors, tokenizer, config=config), len(words)


def test_model_is_written_and_loads(
    run: Run, birds: MemTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is an ordinary model with the shared words alone, and a purge knows of it."""
    monkeypatch.setattr(conversion, "_distill", small_model)
    result = run("--json", "distill", "any", "own", "--vocabulary", "project", "--dims", "8")
    document = json.loads(result.stdout)
    assert document["added_words"] == 1
    assert document["dimensions"] == 8
    assert "projects/birds/project.yaml" in document["next"]
    embedder = load_embedder(str(tmp_path / "own"))
    assert embedder is not None
    assert embedder.name == document["name"]
    vectors = np.asarray(embedder.encode(["pelican", "diagnosis", "confession"]))
    assert np.abs(vectors).sum(axis=1).tolist() == [1, 0, 0]
    [export] = list_exports(birds.folder)
    assert (export.kind, export.path) == ("model", tmp_path / "own")
    assert sorted(path.name for path in tmp_path.iterdir() if "own" in path.name) == ["own"]


def test_without_the_projects_words(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default no word of the project is used, and no project is needed."""
    monkeypatch.setattr(conversion, "_distill", small_model)
    document = json.loads(run("--json", "distill", "any", "own", "--dims", "8").stdout)
    assert document["added_words"] == 0
    assert "config.yaml" in document["next"]


def test_refusals(run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing folder, one in the home, and a missing extra are refused, with the remedy."""
    (tmp_path / "taken").mkdir()
    assert "new folder" in run("distill", "any", "taken", code=1).stderr
    assert "outside" in run("distill", "any", str(home / "model"), code=1).stderr
    monkeypatch.setitem(sys.modules, "model2vec.distill", None)
    refused = run("distill", "any", "own", code=1).stderr
    assert install_command("memtier[distill]") in refused
    assert {path.name for path in tmp_path.iterdir()} <= {"taken", "home", "cache"}


def test_an_interruption_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that cannot be loaded again, or is cut off, is never left under its name."""

    def half_written(self: StaticModel, path: Path) -> None:
        (path / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "_distill", small_model)
    monkeypatch.setattr(StaticModel, "save_pretrained", half_written)
    run("distill", "any", "own", code=1)
    monkeypatch.setattr(
        StaticModel, "save_pretrained", lambda self, path: (path / "config.json").write_text("{}")
    )
    assert "expected a model2vec model" in run("distill", "any", "own", code=1).stderr
    assert not [path for path in tmp_path.iterdir() if "own" in path.name]


@pytest.mark.slow
@pytest.mark.skipif(not EXTRA, reason="needs the extra: pip install 'memtier[distill]'")
@pytest.mark.filterwarnings("ignore")  # torch's and transformers' own
def test_a_real_encoder(run: Run, birds: MemTier, tmp_path: Path) -> None:
    """A BERT becomes a static model in which a shared word that it splits is one token."""
    import transformers

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "pel", "##ican", "owl", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    config = transformers.BertConfig(
        vocab_size=len(pieces), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    teacher = tmp_path / "teacher"
    transformers.BertModel(config).save_pretrained(teacher)
    transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(teacher)
    run("distill", str(tmp_path), "own", code=1)
    assert "only 8 dimensions" in run("distill", str(teacher), "own", "--dims", "9", code=1).stderr
    assert not (tmp_path / "own").exists()
    arguments = (str(teacher), "own", "--dims", "8", "--vocabulary", "project")
    assert json.loads(run("--json", "distill", *arguments).stdout)["added_words"] == 1
    tokenizer = Tokenizer.from_file(str(tmp_path / "own" / "tokenizer.json"))
    assert tokenizer.encode("the pelican", add_special_tokens=False).tokens == ["the", "pelican"]
    (birds.folder / "project.yaml").write_text(f"embedding: {{model: {tmp_path / 'own'}}}")
    assert json.loads(run("--json", "embed").stdout)["state"]["missing"] == 0
