"""Texts as vectors by an endpoint: what is asked, what is refused, and what a recall waits for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memtier_plugin.core.errors import (
    EmbeddingUnavailable,
    EndpointError,
    EndpointRefused,
    SettingsError,
)
from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.core.settings.schema import Embedding, Endpoint, Settings
from memtier_plugin.providers.embedding import remote
from memtier_plugin.providers.embedding.load import (
    UnavailableEmbedder,
    configured_embedder,
    encode_query,
    load_embedder,
)
from memtier_plugin.providers.embedding.remote import (
    BATCH_TEXTS,
    MAX_TEXT_CHARS,
    PROBE_TEXT,
    EndpointEmbedder,
)
from tests.loopback import Loopback, vectors_of
from tests.processes import PATIENCE

TEXTS = [f"the cat number {number} sat on the mat" for number in range(70)]


def embedder(server: Loopback, model: str = "m", **more: Any) -> EndpointEmbedder:
    """Return an embedder at the server, as settings name it."""
    endpoints = {"local": Endpoint(base_url=server.base_url, **more)}
    loaded = load_embedder(f"endpoint:local/{model}", endpoints)
    assert isinstance(loaded, EndpointEmbedder)
    return loaded


def test_it_is_an_embedder(server: Loopback) -> None:
    """An endpoint's model has a name, a length of its vectors, and a vector for each text."""
    model = embedder(server, "org/model-1")
    assert isinstance(model, Embedder)
    assert model.name.startswith("local/org/model-1-")
    assert model.dimensions == len(vectors_of("org/model-1", ["x"])[0])
    assert model.encode(TEXTS) == vectors_of("org/model-1", TEXTS)
    assert model.encode([]) == []


def test_requests_are_small(server: Loopback) -> None:
    """Many texts go in several requests, each of a size that small servers take."""
    embedder(server).encode(TEXTS)
    assert [len(request["body"]["input"]) for request in server.requests] == [
        BATCH_TEXTS,
        BATCH_TEXTS,
        len(TEXTS) - 2 * BATCH_TEXTS,
    ]
    server.requests.clear()
    embedder(server).encode(["x" * 100_000] * 20)
    sizes = [sum(map(len, request["body"]["input"])) for request in server.requests]
    assert len(sizes) > 1
    assert max(sizes) <= remote.BATCH_CHARS
    assert sum(sizes) == 20 * MAX_TEXT_CHARS


def test_a_name_is_a_space(server: Loopback) -> None:
    """Another model, or the same name at another address, is another vector space."""
    with Loopback() as other:
        names = {embedder(server).name, embedder(server, "n").name, embedder(other).name}
    assert len(names) == 3
    assert embedder(server).name == embedder(server, timeout_s=3).name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("endpoint:local", "expected 'endpoint:NAME/MODEL'"),
        ("endpoint:/m", "expected 'endpoint:NAME/MODEL'"),
        ("endpoint:other/m", r"no endpoint 'other' is configured \(local\); describe it under"),
    ],
)
def test_unknown_endpoints(server: Loopback, name: str, message: str) -> None:
    """A name that means no endpoint is refused with what is expected."""
    with pytest.raises(SettingsError, match=message):
        load_embedder(name, {"local": Endpoint(base_url=server.base_url)})


def test_a_model_that_cannot_be_had(tmp_path: Path) -> None:
    """Wrong settings of the model do not break what needs no model; they are told when asked."""
    settings = Settings(embedding=Embedding(model=str(tmp_path / "nowhere")))
    unavailable = configured_embedder(settings)
    assert isinstance(unavailable, UnavailableEmbedder)
    with pytest.raises(EmbeddingUnavailable, match="no embedding model"):
        encode_query(unavailable, "a question", None)


def test_what_a_server_refuses_is_halved(server: Loopback) -> None:
    """A server that takes fewer texts at once, or shorter ones, gets what it takes."""
    server.most_texts = 5
    assert embedder(server).encode(TEXTS) == vectors_of("m", TEXTS)
    server.most_chars = 150
    long = "the cat sat on the mat. " * 10
    [vector, other] = embedder(server).encode([long, "short"])
    assert vector == vectors_of("m", [long[: len(long) // 2]])[0]
    assert other == vectors_of("m", ["short"])[0]


def test_a_text_that_no_model_takes(server: Loopback) -> None:
    """One text that is refused however short has a vector of zeros; the others have theirs."""
    server.refuse = "\N{SNOWMAN}"
    vectors = embedder(server).encode(["one", "\N{SNOWMAN}", "three"])
    assert not any(vectors[1])
    assert [vectors[0], vectors[2]] == vectors_of("m", ["one", "three"])


def test_a_server_that_refuses_everything(server: Loopback) -> None:
    """Where every request is refused, few are made, and it is not taken for the texts' fault."""
    server.always("400")
    with pytest.raises(EndpointRefused, match="refuses the request"):
        embedder(server).encode(TEXTS)
    assert server.count() < 12


def test_another_dimension_midway(server: Loopback) -> None:
    """Vectors of another length than before are an error that says what to do, and none is used."""
    model = embedder(server)
    model.encode(TEXTS[:2])
    server.always("dimension")
    with pytest.raises(
        EndpointError, match="now returns vectors of 191 dimensions for 'm' instead"
    ):
        model.encode(TEXTS)
    remote = embedder(server)
    remote.expect_dimensions(192)  # what is stored
    with pytest.raises(EndpointError, match="it serves a different model under that name"):
        remote.encode(TEXTS)


def test_a_query(server: Loopback) -> None:
    """A query is asked once: the same one again needs no request, a static model none."""
    model = embedder(server)
    [expected] = vectors_of("m", ["where is the cat?"])
    for _ in range(3):
        assert encode_query(model, "where is the cat?", None) == expected
    assert server.count() == 1
    shipped = load_embedder()
    assert shipped is not None
    assert np.array_equal(
        encode_query(shipped, "where is the cat?", None), shipped.encode(["where is the cat?"])[0]
    )


@pytest.mark.parametrize("fault", ["429", "500", "slow", "drip", "truncated", "dimension"])
def test_a_query_that_fails(server: Loopback, fault: str) -> None:
    """A failure costs a recall a part of its time, once; for a while later ones do not wait."""
    model = embedder(server)
    model.expect_dimensions(192)
    model._client.embed("m", ["warm"])  # the package's import is no part of what is measured
    server.requests.clear()
    server.always(fault)
    started = time.monotonic()
    until = started + (2.0 if fault in ("slow", "drip") else PATIENCE)
    with pytest.raises(EmbeddingUnavailable):
        encode_query(model, "where is the cat?", until)
    assert time.monotonic() - started < server.slow / 2
    for _ in range(5):
        with pytest.raises(EmbeddingUnavailable):
            encode_query(model, "and the dog?", time.monotonic() + PATIENCE)
    assert server.count() == 1


def test_a_query_after_the_rest(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that is back is used again after a while."""
    monkeypatch.setattr(remote, "REST_SECONDS", 0.05)
    model = embedder(server)
    server.script("500")
    with pytest.raises(EmbeddingUnavailable):
        encode_query(model, "a cat", None)
    time.sleep(0.1)
    assert encode_query(model, "a cat", None) == vectors_of("m", ["a cat"])[0]


def test_a_query_without_time(server: Loopback) -> None:
    """A recall whose time is over asks no endpoint."""
    with pytest.raises(EmbeddingUnavailable, match="no time is left"):
        encode_query(embedder(server), "a cat", time.monotonic() - 1)
    assert not server.requests


def test_cost(server: Loopback) -> None:
    """What tokens cost follows from the endpoint's price of a million."""
    assert embedder(server, price_per_million_tokens=0.02).cost(500_000) == pytest.approx(0.01)
    assert embedder(server).cost(500_000) == 0
    assert len(PROBE_TEXT) > 20
