"""Measure what it takes on this machine to read a prompt with each of so many lines.

    python -m scripts.models.measure_latency ENCODER CANDIDATES.jsonl [--layers 2 3 6]

builds an int8 ONNX model of the lowest layers of an encoder, as `minilm` is built, and prints the
milliseconds of processor time for 10 and for 50 pairs, on one thread: median and most of some
prompts.  A cross-encoder of as many layers takes the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from memtier_plugin.providers.embedding.conversion import build_bert
from memtier_plugin.providers.embedding.encoder import open_onnx

MAX_TOKENS, PROMPTS = 96, 12


def build(encoder: Path, layers: int) -> bytes:
    """Return a model of an encoder's lowest layers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = json.loads((encoder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
        shutil.copyfile(encoder / "model.safetensors", folder / "model.safetensors")
        return build_bert(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("encoder", type=Path)
    parser.add_argument("candidates", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 3, 6])
    options = parser.parse_args()
    rows = map(json.loads, options.candidates.read_text(encoding="utf-8").splitlines())
    rows = [row for row in rows if len(row["hits"]) >= 50][:PROMPTS]
    for layers in options.layers:
        model = build(options.encoder, layers)
        session, tokenizer = open_onnx(model, options.encoder / "tokenizer.json", MAX_TOKENS)
        spent: dict[int, list[float]] = {10: [], 50: []}
        for row in rows:
            for lines, times in spent.items():
                start = time.process_time()
                for hit in row["hits"][:lines]:
                    ids = np.array([tokenizer.encode(row["query"], hit["line"]).ids], np.int64)
                    session.run(None, {"input_ids": ids})
                times.append(1000 * (time.process_time() - start))
        figures = {n: [round(float(f(t))) for f in (np.median, np.max)] for n, t in spent.items()}
        print(layers, "layers", round(len(model) / 1e6, 1), "MB", figures, flush=True)


if __name__ == "__main__":
    main()
