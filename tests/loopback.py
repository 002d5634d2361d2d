"""THE loopback server: a real HTTP server on this machine that speaks the OpenAI protocol.

The only test double in this repository, for what cannot be had without a network or a key. It
answers `/v1/embeddings` with the shipped model's vectors, turned by a rotation that is the model
name's own (so every name is a space of its own, with the same likenesses in it), and
`/v1/chat/completions` with the sentence of the prompt that shares most words with its question.

    with Loopback() as server:
        server.script("429", "500", "truncated")   # the next three requests; then all is well
        Endpoint(base_url=server.base_url)
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import numpy as np

from memtier_plugin.embedding import SHIPPED, StaticEmbedder

SLOW = 3.0  # seconds


@dataclass
class Loopback:
    """The server and what it has seen; safe to reach from other processes.

    Faults that can be scripted, one a request: an HTTP status ("429", "500", "400", "404"), "slow"
    (no answer for a while), "drip" (an answer that never ends), "truncated" (half of the JSON),
    "page" (a web page), "dimension" (a component too few), "fewer" (a vector too few), "other"
    (vectors of another model), "close" (the connection is cut).
    """

    key: str | None = None  # what the client must send, if anything
    most_texts: int = 2048  # of one request; more is refused with 413
    most_chars: int = 1_000_000  # of one text; more is refused with 400
    refuse: str | None = None  # a text with this in it is refused with 400
    slow: float = SLOW
    usage: bool = True  # whether tokens are told
    tokens_each: int = 1  # times those of `tokens_of`
    requests: list[dict[str, Any]] = field(default_factory=list)
    texts: int = 0  # embedded
    tokens: int = 0  # told to the client

    def __post_init__(self) -> None:
        self._script: deque[str] = deque()
        self._always: str | None = None
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Listen no more, and cut the connections there are."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._always = "close"

    def count_tokens(self, text: str) -> int:
        """Return what the server says of the tokens of a text."""
        return self.tokens_each * tokens_of(text)

    @property
    def base_url(self) -> str:
        """Where it listens; nobody listens there any more once it is closed."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def script(self, *faults: str) -> None:
        """Answer the next requests with these faults, one each ("ok" for none)."""
        with self._lock:
            self._script.extend(faults)

    def always(self, fault: str | None) -> None:
        """Answer every request with a fault from now on, or (None) with none."""
        self._always = fault

    def count(self, path: str = "") -> int:
        """Return how many requests came to a path that ends so."""
        return sum(request["path"].endswith(path) for request in self.requests)

    def fault(self) -> str:
        """Return what is to go wrong with the request at hand."""
        with self._lock:
            return self._script.popleft() if self._script else self._always or "ok"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], loopback: Loopback) -> None:
        super().__init__(address, _Handler)
        self.loopback = loopback

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that gave up waiting are a part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = 10  # an idle connection is let go of

    def log_message(self, format: str, *_: object) -> None:
        """Write nothing to the terminal."""

    def do_POST(self) -> None:
        loopback = self.server.loopback
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = loopback.fault()
        headers = dict(self.headers)
        seen = {"path": self.path, "body": body, "headers": headers, "fault": fault}
        loopback.requests.append(seen)
        if loopback.key is not None and self.headers["Authorization"] != f"Bearer {loopback.key}":
            given = self.headers["Authorization"]
            self._refuse(
                401, f"wrong key: {given}"
            )  # as some servers do, to test that it is masked
            return
        if fault.isdigit():
            self._refuse(int(fault), f"scripted {fault}")
            return
        if fault == "close":
            self.close_connection = True
            return
        if fault == "slow":
            time.sleep(loopback.slow)
        try:
            answer = self._answer(body, fault)
        except _Refused as refused:
            self._refuse(refused.args[0], refused.args[1])
            return
        data = json.dumps(answer).encode()
        if fault == "drip":
            self._head(200, "application/json", len(data))
            for place in range(len(data)):  # each byte comes well within any limit of silence
                self.wfile.write(data[place : place + 1])
                self.wfile.flush()
                time.sleep(0.05)
        elif fault == "truncated":
            self._send(200, "application/json", data[: len(data) // 2])
        elif fault == "page":
            self._send(200, "text/html", b"<html>It works!</html>")
        else:
            self._send(200, "application/json", data)

    def _answer(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        if self.path == "/v1/embeddings":
            return self._embed(body, fault)
        if self.path == "/v1/chat/completions":
            return self._chat(body)
        raise _Refused(404, f"no such path {self.path}")

    def _embed(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        loopback, texts = self.server.loopback, body["input"]
        if len(texts) > loopback.most_texts:
            raise _Refused(413, f"more than {loopback.most_texts} inputs")
        if any(len(text) > loopback.most_chars for text in texts):
            raise _Refused(400, f"an input is longer than {loopback.most_chars}")
        if loopback.refuse and any(loopback.refuse in text for text in texts):
            raise _Refused(400, "an input is not acceptable")
        vectors = vectors_of("another model" if fault == "other" else body["model"], texts)
        if fault == "dimension":
            vectors = [vector[:-1] for vector in vectors]
        if fault == "fewer":
            vectors = vectors[:-1]
        tokens = sum(map(loopback.count_tokens, texts))
        loopback.texts += len(texts)
        loopback.tokens += tokens
        data = [
            {"object": "embedding", "index": place, "embedding": vector}
            for place, vector in enumerate(vectors)
        ]
        data.reverse()  # the order is not promised, the index is what counts
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        told = {"usage": usage} if loopback.usage else {}
        return {"object": "list", "model": body["model"], "data": data, **told}

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        text = extract(body["messages"])
        asked = sum(tokens_of(message["content"]) for message in body["messages"])
        usage = {"prompt_tokens": asked, "completion_tokens": tokens_of(text)}
        self.server.loopback.tokens += sum(usage.values())
        usage["total_tokens"] = sum(usage.values())
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return {
            "id": "loopback", "object": "chat.completion", "created": 0, "model": body["model"],
            "choices": [choice], "usage": usage,
        }  # fmt: skip

    def _refuse(self, status: int, message: str) -> None:
        error = {"error": {"message": message, "type": "loopback", "code": status}}
        self._send(status, "application/json", json.dumps(error).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self._head(status, kind, len(data))
        self.wfile.write(data)

    def _head(self, status: int, kind: str, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()


class _Refused(Exception):
    """A request that a real server would refuse: status and message."""


def tokens_of(text: str) -> int:
    """Return about how many tokens a text of English has."""
    return max(1, math.ceil(len(text.encode("utf-8", "ignore")) / 4))


def vectors_of(model: str, texts: Sequence[str]) -> list[list[float]]:
    """Return the shipped model's vectors, turned into the space of a model's name."""
    turn = rotation(model)
    # One by one: the last digits of a product of matrices depend on what else is in them.
    turned = (np.asarray(vector, np.float32) @ turn for vector in _shipped().encode(texts))
    return [vector.tolist() for vector in turned]


@lru_cache
def _shipped() -> StaticEmbedder:
    return StaticEmbedder(SHIPPED)


@lru_cache
def rotation(name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return an orthogonal matrix that is a function of a name: likenesses stay what they are."""
    seed = int.from_bytes(sha256(name.encode()).digest()[:8], "big")
    size = _shipped().dimensions
    turned, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    return turned.astype(np.float32)


def extract(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the sentence of a prompt that shares most words with its question, else nothing.

    The question is what follows the last "Question:", or the last line; a sentence is what stands
    between ends of lines or of sentences. Of equals the first one wins.
    """
    text = "\n".join(message["content"] for message in messages)
    before, found, after = text.rpartition("Question:")
    if not found:
        before, _, after = text.rstrip().rpartition("\n")
    question = _words(after.strip().partition("\n")[0])
    sentences = [part.strip() for part in re.split(r"\n|(?<=[.!?])\s", before) if part.strip()]
    best = max(sentences, key=lambda one: len(question & _words(one)), default="")
    return best if question & _words(best) else ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
