"""Serve all-MiniLM-L6-v2 on loopback to the peers that want an OpenAI-compatible embedder."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np

import memtier_bench
import memtier_plugin
from memtier_bench.peers.install import PeerUnavailable
from memtier_plugin.providers.embedding.encoder import find_minilm


@contextmanager
def serve_embeddings(python: Path, cache: Path) -> Iterator[str]:
    """Yield the base URL of a server in the environment that has ONNX Runtime and the weights.

    Raises:
        PeerUnavailable: it does not start.
    """
    ours = [str(Path(p.__file__ or "").parents[1]) for p in (memtier_plugin, memtier_bench)]
    paths = {"PYTHONPATH": os.pathsep.join([*ours, *sys.path]), "XDG_CACHE_HOME": str(cache)}
    server = subprocess.Popen(
        [str(python), "-m", "memtier_bench.peers.embeddings"],
        env={**os.environ, **paths},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None  # it is a pipe
        url = server.stdout.readline().strip()
        if not url:
            raise PeerUnavailable("the server of embeddings ended at its start")
        yield url
    finally:
        server.kill()
        server.communicate()


def fetch_vectors(url: str, texts: Sequence[str]) -> np.ndarray:
    """Return the unit vectors of texts, shape (n, d)."""
    body = json.dumps({"input": list(texts)}).encode()
    request = Request(f"{url}/embeddings", body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        rows = json.load(answer)["data"]
    return np.array([row["embedding"] for row in rows], np.float32)


def main() -> None:
    """Print the base URL, and serve until killed."""
    encoder = find_minilm()
    embed = lru_cache(1 << 14)(lambda text: encoder.encode([text])[0])
    embed("warm")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
            packed = asked.get("encoding_format") == "base64"
            vectors = [np.asarray(embed(text), np.float32) for text in texts]
            rows = [
                base64.b64encode(v.tobytes()).decode() if packed else v.tolist() for v in vectors
            ]
            self._answer(
                {
                    "object": "list",
                    "model": asked.get("model"),
                    "data": [
                        {"object": "embedding", "index": n, "embedding": row}
                        for n, row in enumerate(rows)
                    ],
                    "usage": {"prompt_tokens": 0, "total_tokens": 0},
                }
            )

        def do_GET(self) -> None:
            self._answer({"object": "list", "data": [{"id": "minilm", "object": "model"}]})

        def _answer(self, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main()
