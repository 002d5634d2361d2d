"""Summaries by a chat model: what it is shown, and which of its sentences count."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.errors import EndpointError
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.facts.summaries.job import SummaryReport
from memtier_plugin.facts.summaries.selection import find_sentences
from memtier_plugin.facts.summaries.working import MAX_BY_MODEL, ChatSummariser, CitedSentence
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompting import load_prompt
from memtier_plugin.text.tokenizer import Tokenizer
from tests.builders import make_entry
from tests.loopback import Loopback

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
LINES = (
    "We moved the shop's database to Postgres 16.",
    "Anna never deploys on Fridays.",
    "The invoice of 480 euros is due on 3 March.",
)


def entries() -> list[Entry]:
    """Return a session of these lines."""
    return [
        make_entry(line, START, id=f"e{number}", turn=number, speaker="Bob")
        for number, line in enumerate(LINES, 1)
    ]


def summarise(server: Loopback, *answers: Any) -> list[CitedSentence]:
    """Return the sentences of the model's answers that survive the check against their lines."""
    server.answers(*answers)
    model = ChatModel.of_endpoint("local", Endpoint(base_url=server.base_url), "m")
    return ChatSummariser(model, Tokenizer().words).summarise([*find_sentences(entries())])


def answer_of(text: str, *cites: int) -> dict[str, Any]:
    """Return an answer of one sentence."""
    return {"sentences": [{"text": text, "cites": list(cites)}]}


@pytest.mark.parametrize(
    "answer",
    [
        answer_of("The shop's database was moved to Postgres 16.", 1),
        answer_of("Bob moved the database of the shop to Postgres 16 on 5 January 2026.", 1),
        answer_of("Anna never deploys on Fridays.", 2),
        answer_of(
            "The database moved to Postgres 16, and an invoice of 480 euros is due on 3 March.",
            1, 3,
        ),
    ],
)  # fmt: skip
def test_borne_out(server: Loopback, answer: dict[str, Any]) -> None:
    """A sentence that its lines bear out stays, with these lines as its sources."""
    [sentence] = summarise(server, answer)
    assert sentence.text == answer["sentences"][0]["text"]
    assert [unit.entry.turn for unit in sentence.units] == answer["sentences"][0]["cites"]


@pytest.mark.parametrize(
    "answer",
    [
        answer_of("The shop's database was moved to Postgres 17.", 1),
        answer_of("The shop's database was moved to Oracle 16.", 1),
        answer_of("The shop's database was not moved to Postgres 16.", 1),
        answer_of("Anna deploys on Fridays.", 2),
        answer_of("The invoice of 480 euros is due on 3 March.", 1),
        answer_of("The invoice of 480 euros is due on 3 March.", 3, 9),
        answer_of("The invoice of 480 euros is due on 3 March."),
        answer_of("Everybody was happy and looked forward to the coming weeks.", 1),
        answer_of("", 1),
        answer_of("The shop's database was moved to Postgres 16. " * 20, 1),
        {"sentences": []},
        {"sentences": [{"text": "The database was moved."}]},
        "a summary",
        "",
    ],
)
def test_not_borne_out(server: Loopback, answer: Any) -> None:
    """Another number, name or denial, foreign words, no line or another's: the sentence goes."""
    assert summarise(server, answer) == []


def test_what_the_model_is_shown(server: Loopback) -> None:
    """The lines with their numbers, days and speakers, as data between marks."""
    summarise(server, answer_of("Anna never deploys on Fridays.", 2))
    system, user = (m["content"] for m in server.requests[0]["body"]["messages"])
    assert system == load_prompt("summarise").text
    assert user.split("\n")[1:-1] == [
        f"[{number}] 2026-01-05 Bob: {line}" for number, line in enumerate(LINES, 1)
    ]


def test_an_endpoint_that_is_down(server: Loopback) -> None:
    """An endpoint that does not answer raises, and nothing is made up in its place."""
    server.always("close")
    with pytest.raises(EndpointError):
        summarise(server, answer_of("Anna never deploys on Fridays.", 2))


def of_anna(body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with what the first line about Anna says."""
    lines = body["messages"][1]["content"].split("\n")[1:-1]
    number = next(n for n, line in enumerate(lines, 1) if "Anna" in line)
    return answer_of("Anna never deploys on Fridays.", number)


# -- in a project ---------------------------------------------------------------------------------


def summed_up(home: Path, server: Loopback, sessions: int = 1) -> tuple[SummaryReport, list[Fact]]:
    """Return what a pass writes, with this model, of sessions of yesterday."""
    settings = {
        "endpoints": {"local": {"base_url": server.base_url}},
        "consolidation.model": "endpoint:local/m",
    }
    with MemTier.open(home, "p", settings=settings, clock=lambda: START + timedelta(1)) as memory:
        for session in range(sessions):
            for number, line in enumerate(LINES * 3):
                memory.record(
                    [{"role": "user", "content": f"In part {number} of {session}: {line}"}],
                    session_id=f"s{session}", run_id=f"{session}/{number}", observed_at=START,
                )  # fmt: skip
        report = memory.summariser.run()
        return report, [fact for fact in memory.facts() if fact.extractor == "summary"]


def test_written_by_a_model(home: Path, server: Loopback) -> None:
    """A summary by a model names it and its prompt, and rests on the lines that it cites."""
    server.answers(of_anna)
    report, facts = summed_up(home, server)
    assert report == SummaryReport(sessions=1, days=1)
    for fact in facts:
        assert fact.text.endswith(": Anna never deploys on Fridays.")
        assert (fact.model, fact.prompt_hash) == ("local/m", load_prompt("summarise").hash)
        assert len(fact.sources) == 1
        assert fact.quote.endswith("Anna never deploys on Fridays.")


@pytest.mark.parametrize("fault", ["500", "truncated", "empty", "shape"])
def test_without_the_model(home: Path, server: Loopback, fault: str) -> None:
    """A model that fails, or says nothing that can be traced, costs no summary."""
    server.answers(answer_of("The moon is made of 17 cheeses.", 1))
    server.always(fault)
    report, facts = summed_up(home, server)
    assert report.written == 2
    assert all(fact.model is None and "Postgres 16" in fact.text for fact in facts)


def test_a_few_calls_a_pass(home: Path, server: Loopback) -> None:
    """However much is due, a pass asks a model only so often; the rest quotes."""
    server.answers(of_anna)
    report, _ = summed_up(home, server, MAX_BY_MODEL + 3)
    assert report.sessions == MAX_BY_MODEL + 3
    assert server.count() == MAX_BY_MODEL
