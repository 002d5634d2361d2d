"""The client of endpoints, against a real server on this machine that fails as it is told."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtier_plugin import endpoint as module
from memtier_plugin.endpoint import Client, Endpoint
from memtier_plugin.errors import EndpointError, EndpointRefused
from tests.loopback import Loopback, tokens_of, vectors_of

TEXTS = ["the cat sat", "a dog barked", "der Hund bellt"]
ROOT = Path(__file__).parents[1]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Return a server that listens; attempts follow each other without long pauses."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    with Loopback() as loopback:
        yield loopback


def client(server: Loopback, **more: object) -> Client:
    """Return a client of the server."""
    return Client(Endpoint(base_url=server.base_url, **more))  # type: ignore[arg-type]


def refusal(server: Loopback, **more: object) -> str:
    """Return how the client words that it got no vectors."""
    with pytest.raises(EndpointError) as caught:
        client(server, **more).embed("m", TEXTS)
    text = str(caught.value)
    assert server.base_url in text
    return text


def test_embed(server: Loopback) -> None:
    """Each text gets its own vector, in the order given, whatever the order of the answer."""
    found = client(server).embed("m", TEXTS)
    assert found.vectors == vectors_of("m", TEXTS)
    assert found.tokens == sum(map(tokens_of, TEXTS)) == server.tokens
    assert server.requests[0]["body"]["encoding_format"] == "float"


def test_nothing_to_embed(server: Loopback) -> None:
    """No texts make no request."""
    assert client(server).embed("m", []).vectors == ()
    assert not server.requests


def test_tokens_are_counted_where_the_server_does_not_tell(server: Loopback) -> None:
    """A server without usage is counted by our own rule, so that a cap still holds."""
    server.usage = False
    assert client(server).embed("m", TEXTS).tokens == sum(map(tokens_of, TEXTS))


def test_chat(server: Loopback) -> None:
    """The loopback reader answers with the sentence that shares most words with the question."""
    messages = [
        {"role": "system", "content": "Answer from the notes."},
        {
            "role": "user",
            "content": "Ann likes tea. Bob moved to Oslo in May.\nQuestion: Where did Bob move to?",
        },
    ]
    reply = client(server).chat("m", messages, max_tokens=50)
    assert reply.text == "Bob moved to Oslo in May."
    assert reply.prompt_tokens == sum(tokens_of(message["content"]) for message in messages)
    assert reply.completion_tokens == tokens_of(reply.text)
    assert server.requests[0]["body"]["max_tokens"] == 50
    assert server.requests[0]["body"]["temperature"] == 0.0


@pytest.mark.parametrize("fault", ["429", "500", "503", "truncated", "page", "close", "fewer"])
def test_what_passes_is_tried_again(server: Loopback, fault: str) -> None:
    """A busy or broken server is asked again; three failures are got over."""
    server.script(fault, fault, fault)
    assert client(server).embed("m", TEXTS).vectors == vectors_of("m", TEXTS)
    assert server.count() == 4


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("429", "allows no more requests now; it is tried again later"),
        ("500", "is in trouble; it is tried again later"),
        ("truncated", "gives an answer that is none; is it OpenAI-compatible?"),
        ("page", "gives an answer that is none; is it OpenAI-compatible?"),
        ("fewer", "2 vectors for 3 texts"),
        ("close", "cannot be reached; is the server running, and base_url right?"),
    ],
)
def test_what_does_not_pass_is_told(server: Loopback, fault: str, told: str) -> None:
    """After the last attempt the error names the endpoint, the cause and what can be done."""
    server.always(fault)
    assert told in refusal(server)
    assert server.count() == module.ATTEMPTS


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("401", "refuses the key; check the key in none"),
        ("404", "knows no such model or path; check the model's name, and base_url"),
        ("400", "refuses the request"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(server: Loopback, fault: str, told: str) -> None:
    """A request that the server will never take is made once."""
    server.always(fault)
    assert told in refusal(server)
    assert server.count() == 1


def test_a_refused_request_is_told_from_a_broken_server(server: Loopback) -> None:
    """What the texts are to blame for has an error of its own; a wrong key is no such thing."""
    server.script("400", "401")
    with pytest.raises(EndpointRefused):
        client(server).embed("m", TEXTS)
    with pytest.raises(EndpointError) as caught:
        client(server).embed("m", TEXTS)
    assert not isinstance(caught.value, EndpointRefused)


@pytest.mark.parametrize("fault", ["slow", "drip"])
def test_a_request_has_a_limit_of_time(server: Loopback, fault: str) -> None:
    """The limit holds against a silent server, and against one that sends a byte at a time."""
    server.always(fault)
    started = time.monotonic()
    with pytest.raises(EndpointError, match=r"did not answer within 0\.3 s; is it overloaded"):
        client(server).embed("m", TEXTS, attempts=1, seconds=0.3)
    assert time.monotonic() - started < server.slow


def test_no_server() -> None:
    """A server that is down is told from one that answers badly."""
    with Loopback() as gone:
        pass
    with pytest.raises(EndpointError, match="cannot be reached; is the server running"):
        Client(Endpoint(base_url=gone.base_url)).embed("m", TEXTS, attempts=1)


def test_key(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from the variable that is named; without it nothing is sent."""
    server.key = "sk-geheim-123"
    told = refusal(server, key_env="THE_KEY")
    assert "needs a key, and the environment variable THE_KEY is not set" in told
    assert not server.requests
    monkeypatch.setenv("THE_KEY", "sk-geheim-123\n")
    assert client(server, key_env="THE_KEY").embed("m", TEXTS).tokens


def test_the_key_is_told_to_nobody(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that repeats the key in its error does not get it into a message or a log."""
    caplog.set_level(logging.DEBUG)
    server.key = "another"
    monkeypatch.setenv("THE_KEY", "sk-geheim-123")
    told = refusal(server, key_env="THE_KEY")
    assert "refuses the key; check the key in THE_KEY" in told
    assert "Bearer [key]" in told
    assert "geheim" not in told
    assert "Authorization" not in caplog.text or "geheim" not in caplog.text


def test_no_other_key_is_sent(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the package finds in the environment for OpenAI is not sent to another server."""
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "private")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://192.0.2.1/v1")
    server.key = "none"  # what is sent where no key is configured
    assert client(server).embed("m", TEXTS).tokens
    assert not any("private" in str(request["headers"]) for request in server.requests)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_after_a_fork(server: Loopback) -> None:
    """A child of a process that used an endpoint makes connections of its own."""
    mine = client(server)
    expected = mine.embed("m", TEXTS).vectors
    pid = os.fork()
    if pid == 0:
        os._exit(0 if mine.embed("m", TEXTS, attempts=1).vectors == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert mine.embed("m", TEXTS, attempts=1).vectors == expected


def test_the_package_is_imported_when_asked_only() -> None:
    """A client that is made but not used loads no third party."""
    code = (
        "import sys; from memtier_plugin.endpoint import Client, Endpoint;"
        "Client(Endpoint(base_url='http://127.0.0.1:9/v1')); print(*sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert not re.search(r"\b(openai|httpx\d?|pydantic)\b", found.stdout)
