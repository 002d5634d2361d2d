"""The client of endpoints, against a real server on this machine that fails as it is told."""

from __future__ import annotations

import logging
import re
import threading
import time
from pathlib import Path

import pytest

from memtier_plugin.core.concurrency import WorkerPool
from memtier_plugin.core.errors import (
    AnswerLost,
    ContextTooLong,
    EndpointError,
    EndpointRefused,
    SettingsError,
)
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.providers import endpoint as module
from memtier_plugin.providers.endpoint import EndpointClient, resolve_model
from tests.loopback import TOO_LONG, Loopback, tokens_of, vectors_of
from tests.processes import run_in_fork, run_python

TEXTS = ["the cat sat", "a dog barked", "der Hund bellt"]
ROOT = Path(__file__).parents[2]


def client(server: Loopback, **more: object) -> EndpointClient:
    """Return a client of the server."""
    return EndpointClient(Endpoint(base_url=server.base_url, **more))  # type: ignore[arg-type]


def refusal(server: Loopback, **more: object) -> str:
    """Return how the client words that it got no vectors."""
    with pytest.raises(EndpointError) as caught:
        client(server, **more).embed("m", TEXTS)
    text = str(caught.value)
    assert server.base_url in text
    return text


def test_embed(server: Loopback) -> None:
    """Each text gets its own vector, in the order given, whatever the order of the answer."""
    result = client(server).embed("m", TEXTS)
    assert result.vectors == vectors_of("m", TEXTS)
    assert result.tokens == sum(map(tokens_of, TEXTS)) == server.tokens
    assert server.requests[0]["body"]["encoding_format"] == "float"


def test_nothing_to_embed(server: Loopback) -> None:
    """No texts make no request."""
    assert client(server).embed("m", []).vectors == ()
    assert not server.requests


def test_tokens_are_counted_where_the_server_does_not_tell(server: Loopback) -> None:
    """A server without usage is counted by our own rule, so that a cap still holds."""
    server.usage = False
    assert client(server).embed("m", TEXTS).tokens == sum(map(count_tokens, TEXTS))


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


SCHEMA = {"title": "note", "type": "object", "properties": {"text": {"type": "string"}}}
ASKED = [{"role": "user", "content": "Say it as JSON."}]


def forms(server: Loopback) -> list[str | None]:
    """Return which form of answer each request asked for."""
    bodies = [request["body"] for request in server.requests]
    return [body.get("response_format", {}).get("type") for body in bodies]


def test_structured_output(server: Loopback) -> None:
    """A schema is sent as it is, under its title, for the server to hold the model to."""
    server.answers({"text": "hi"})
    reply = client(server).chat("m", ASKED, max_tokens=50, schema=SCHEMA)
    assert reply.text == '{"text": "hi"}'
    assert not reply.truncated
    assert server.requests[0]["body"]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "note", "strict": True, "schema": SCHEMA},
    }


@pytest.mark.parametrize(
    ("formats", "tried"),
    [
        (("json_object",), ["json_schema", "json_object"]),
        ((), ["json_schema", "json_object", None]),
    ],
)
def test_what_a_server_does_not_take_is_left_out(
    server: Loopback, formats: tuple[str, ...], tried: list[str | None]
) -> None:
    """A server without structured output gets less, once found out for as long as we live."""
    server.formats = formats
    server.answers(lambda _: "{}")
    for _ in range(2):  # a client made anew knows it too
        assert client(server).chat("m", ASKED, max_tokens=50, schema=SCHEMA).text == "{}"
    assert forms(server) == [*tried, tried[-1]]
    client(server).chat("another", ASKED, max_tokens=50, schema=SCHEMA)
    assert forms(server)[-len(tried) :] == tried, "another model may take it"


def test_newer_models_take_other_options(server: Loopback) -> None:
    """A model that wants `max_completion_tokens` and no temperature gets these."""
    server.options = ()
    server.answers(lambda _: "{}")
    client(server).chat("m", ASKED, max_tokens=50, schema=SCHEMA)
    last = server.requests[-1]["body"]
    assert last["max_completion_tokens"] == 50
    assert not {"max_tokens", "temperature"} & set(last)
    assert forms(server)[-1] == "json_schema"
    before = server.count()
    client(server).chat("m", ASKED, max_tokens=50)
    assert server.count() == before + 1


def test_a_text_that_is_refused_is_not_blamed_on_the_form(server: Loopback) -> None:
    """Where an endpoint has taken the form before, a refusal is the text's, and is told at once."""
    server.answers(lambda _: "{}")
    mine = client(server)
    mine.chat("m", ASKED, max_tokens=50, schema=SCHEMA)
    server.refuse = "forbidden"
    with pytest.raises(EndpointRefused, match="not acceptable"):
        mine.chat("m", [{"role": "user", "content": "forbidden"}], max_tokens=50, schema=SCHEMA)
    assert server.count() == 2


def test_everything_is_refused(server: Loopback) -> None:
    """A server that takes no form of a request is not asked for ever, and nothing is learnt."""
    server.always("400")
    with pytest.raises(EndpointRefused):
        client(server).chat("m", ASKED, max_tokens=50, schema=SCHEMA)
    assert forms(server) == ["json_schema", "json_object", None]
    server.always(None)
    client(server).chat("m", ASKED, max_tokens=50, schema=SCHEMA)
    assert forms(server)[-1] == "json_schema"


@pytest.mark.parametrize("wording", TOO_LONG)
def test_too_long_for_the_model(server: Loopback, wording: str) -> None:
    """However a server words it, that a request is too long is told apart, and asked once."""
    server.context, server.wording = 10, wording
    with pytest.raises(ContextTooLong, match="too long for its model"):
        client(server).chat("m", ASKED, max_tokens=50, schema=SCHEMA)
    assert server.count() == 1


@pytest.mark.parametrize(
    ("fault", "text", "finish", "cut"),
    [
        ("length", '{"text"', "length", True),
        ("thought", "<think>Let me look at every line first. Line 1 says {", "length", True),
        ("empty", "", "stop", False),
        ("filtered", "", "content_filter", False),
    ],
)
def test_why_an_answer_ended(
    server: Loopback, fault: str, text: str, finish: str, cut: bool
) -> None:
    """An answer that was cut off says so, and one of nothing is an answer."""
    server.answers({"text": "hi"})
    server.script(fault)
    reply = client(server).chat("m", ASKED, max_tokens=50)
    assert (reply.text, reply.finish, reply.truncated) == (text, finish, cut)


@pytest.mark.parametrize("fault", ["slow", "truncated", "page"])
def test_a_lost_answer_is_told_apart(server: Loopback, fault: str) -> None:
    """What came too late or unreadably may be charged; what was refused or unreachable is not."""
    server.script(fault, "500", "429", "close")
    mine = client(server)
    with pytest.raises(AnswerLost):
        mine.chat("m", ASKED, max_tokens=50, attempts=1, seconds=1.0 if fault == "slow" else None)
    for _ in range(3):
        with pytest.raises(EndpointError) as caught:
            mine.chat("m", ASKED, max_tokens=50, attempts=1)
        assert not isinstance(caught.value, AnswerLost)


def test_named() -> None:
    """A model's name in the settings is an endpoint's and its own, which may hold slashes."""
    endpoints = {"local": Endpoint(base_url="http://127.0.0.1:9/v1")}
    assert resolve_model("endpoint:local/org/m:7b", endpoints, "k") == (
        "local",
        endpoints["local"],
        "org/m:7b",
    )
    for wrong in ("local/m", "endpoint:local", "endpoint:/m", "endpoint:local/", "gpt"):
        with pytest.raises(SettingsError, match=r"k is .*; expected 'endpoint:NAME/MODEL'"):
            resolve_model(wrong, endpoints, "k")


@pytest.mark.parametrize("fault", ["429", "500", "503", "truncated", "page", "close", "fewer"])
def test_what_passes_is_tried_again(server: Loopback, fault: str) -> None:
    """A busy or broken server is asked again; three failures are got over."""
    server.script(fault, fault, fault)
    assert client(server).embed("m", TEXTS).vectors == vectors_of("m", TEXTS)
    assert server.count() == 4


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("429", "refuses further requests for now; it will be retried later"),
        ("500", "is in trouble; it is tried again later"),
        ("truncated", "returned an invalid answer; is it OpenAI-compatible?"),
        ("page", "returned an invalid answer; is it OpenAI-compatible?"),
        ("fewer", "2 vectors for 3 texts"),
        ("close", "cannot be reached; check that the server is running and base_url is right"),
    ],
)
def test_what_does_not_pass_is_told(server: Loopback, fault: str, message: str) -> None:
    """After the last attempt the error names the endpoint, the cause and what can be done."""
    server.always(fault)
    assert message in refusal(server)
    assert server.count() == module.MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("401", "refuses the key; check the key in none"),
        ("404", "knows no such model or path; check the model's name, and base_url"),
        ("400", "refuses the request"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(server: Loopback, fault: str, message: str) -> None:
    """A request that the server will never take is made once."""
    server.always(fault)
    assert message in refusal(server)
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
    with pytest.raises(EndpointError, match=r"did not answer within 0\.3 s; it may be overloaded"):
        client(server).embed("m", TEXTS, attempts=1, seconds=0.3)
    assert time.monotonic() - started < server.slow / 2


def test_no_server() -> None:
    """A server that is down is told from one that answers badly."""
    with Loopback() as stopped:
        pass
    with pytest.raises(EndpointError, match="cannot be reached; check that the server is running"):
        EndpointClient(Endpoint(base_url=stopped.base_url)).embed("m", TEXTS, attempts=1)


def test_too_many_requests_that_wait(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits for earlier ones is told from a server that is down."""
    monkeypatch.setattr(module, "_workers", WorkerPool("memtier-endpoint", max_jobs=1))
    server.always("drip")  # which outlasts the package's own limit, too
    with pytest.raises(AnswerLost):
        client(server).embed("m", TEXTS, attempts=1, seconds=1.0)
    with pytest.raises(EndpointError, match="earlier requests are still waiting") as caught:
        client(server).embed("m", TEXTS, attempts=1, seconds=1.0)
    assert caught.value.transient and "1 jobs" in str(caught.value)


def test_key(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from the variable that is named; without it nothing is sent."""
    server.key = "sk-geheim-123"
    message = refusal(server, key_env="THE_KEY")
    assert "needs a key, and the environment variable THE_KEY is not set" in message
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
    message = refusal(server, key_env="THE_KEY")
    assert "refuses the key; check the key in THE_KEY" in message
    assert "Bearer [key]" in message
    assert "geheim" not in message
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

    def embed() -> None:
        assert mine.embed("m", TEXTS, attempts=1).vectors == expected

    assert run_in_fork(embed) == ""
    assert mine.embed("m", TEXTS, attempts=1).vectors == expected


def test_no_thread_ends_with_a_request(server: Loopback) -> None:
    """Requests share a thread that stays: one that ends holds locks that a fork would inherit."""

    def threads() -> set[int | None]:
        return {each.ident for each in threading.enumerate() if each.name == "memtier-endpoint"}

    mine = client(server)
    mine.embed("m", TEXTS)
    kept = threads()
    for _ in range(5):
        mine.embed("m", TEXTS)
    assert kept and threads() == kept


def test_the_package_is_imported_when_asked_only() -> None:
    """A client that is made but not used loads no third party."""
    code = (
        "import sys; from memtier_plugin.providers.endpoint import EndpointClient, Endpoint;"
        "EndpointClient(Endpoint(base_url='http://127.0.0.1:9/v1')); print(*sys.modules)"
    )
    assert not re.search(r"\b(openai|httpx\d?|pydantic)\b", run_python(code))
