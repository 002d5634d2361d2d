"""The real language model of `make model`, through MemTier's own client: `make test-model`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from memtier_bench.local_model import MODEL, fetch_model, serve_model
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.facts.extraction.llm import ChatExtractor
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
def model() -> Iterator[ChatModel]:
    """Serve the model on one core; a busy machine makes it wait."""
    with serve_model(fetch_model()) as base_url:
        yield ChatModel.of_endpoint("local", Endpoint(base_url=base_url, timeout_s=1800), MODEL)


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
