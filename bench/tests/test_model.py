"""The real language model of `make model`, through MemTier's own client: `make test-model`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_bench.local_model import MODEL, fetch_model, serve_model
from memtier_bench.reading import ReaderModel
from memtier_plugin.answering.answerer import EXTRACTIVE, UNANSWERED
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.facts.extraction.llm import ChatEvolution, ChatExtractor
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompting import INTEGER, STRING, object_of
from tests.builders import make_entry

pytestmark = [pytest.mark.model, pytest.mark.timeout(3600)]
SUNDAY = datetime(2026, 5, 3, 14, 20, tzinfo=UTC)
LINES = (
    "My sister Ruth lives in Bergen and works as a marine biologist.",
    "I am allergic to walnuts, so never put them into a recipe for me.",
    "We moved the release of Heron to 12 June 2026.",
)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """Serve the model on one core; a busy machine makes it wait."""
    with serve_model(fetch_model()) as base_url:
        yield base_url


@pytest.fixture
def model(base_url: str) -> ChatModel:
    """Return the model as the background asks it."""
    return ChatModel.of_endpoint("local", Endpoint(base_url=base_url, timeout_s=1800), MODEL)


def test_an_answer_has_the_form_of_its_schema(model: ChatModel) -> None:
    """A schema constrains the answer, and the server counts the tokens by its own tokenizer."""
    schema = object_of("answer", city=STRING, year=INTEGER)
    answer, reply = model.chat_json(
        "Answer in JSON.",
        "Ann moved to Bergen in 2019. Where does she live, and since which year?",
        purpose="ask",
        max_tokens=60,
        schema=schema,
    )
    assert answer == {"city": "Bergen", "year": 2019}
    assert 20 < reply.prompt_tokens < 80
    assert 5 < reply.completion_tokens <= 60


def test_claims_have_quotes_of_the_lines(model: ChatModel) -> None:
    """From three plain lines it makes claims, and each quotes words that stand in its line."""
    entries = [
        make_entry(text, SUNDAY + timedelta(minutes=n), id=f"E{n}", turn=n, speaker="Ann")
        for n, text in enumerate(LINES)
    ]
    batch = ChatExtractor(model).extract_claims(entries)
    assert batch.unread == ()
    assert len({claim.entry for claim in batch.claims}) >= 2
    contents = {entry.id: entry.content for entry in entries}
    for claim in batch.claims:
        assert claim.entry is not None
        assert claim.quote.strip(" .") in contents[claim.entry]


def test_a_fact_that_says_the_same_is_not_added(model: ChatModel) -> None:
    """Of two facts that say the same it does not keep both; of two about two people it does."""
    evolution = ChatEvolution(model)
    same = evolution.decide("Ruth has her home in Bergen.", ["Ruth lives in Bergen."])
    assert same and (same.action, same.target) != ("add", None)
    other = evolution.decide("Tom likes walnuts.", ["Ann is allergic to walnuts."])
    assert other and other.action == "add"


def test_ask_stands_by_what_it_says(base_url: str, tmp_path: Path) -> None:
    """What a model does not stand by is not said; the line that answers is quoted and cited.

    This one always says that it has not enough (docs/models.md).
    """
    settings = ReaderModel(base_url, MODEL).settings_for("ask.model")
    with MemTier.open(tmp_path, "heron", settings=settings) as memory:
        memory.record([{"role": "user", "content": line} for line in LINES], session_id="s1")
        answer = memory.ask("Where does my sister Ruth live?", write_back=False)
    assert LINES[0] in answer.text
    assert LINES[0] in [citation.text for citation in answer.citations]
    if not answer.answered:
        assert answer.by == EXTRACTIVE and answer.text.startswith(UNANSWERED)
