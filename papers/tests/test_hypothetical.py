"""Made-up answers: what is searched for with them, when one is asked for, and what it may cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_papers.true_memory.hypothetical import PROMPTS
from memtier_plugin import MemTier
from memtier_plugin.core.records import FOR_PROMPTS
from memtier_plugin.providers.prompting import load_prompt
from tests.builders import say_each
from tests.loopback import Loopback

LINES = [
    "The spaniel barked at the postman all morning.",
    "We planted runner beans behind the shed.",
    "The ferry to Skagen leaves at seven.",
    "Payroll is due on Thursday.",
]
QUERY = "Which pets does the family keep?"
MADE_UP = {"line": "Our dog, a spaniel, barked at the postman."}


@pytest.fixture
def server() -> Iterator[Loopback]:
    """Return a server whose model makes up an answer."""
    with Loopback() as running:
        running.answers(lambda _: MADE_UP)
        yield running


def settings_of(server: Loopback, **more: Any) -> dict[str, Any]:
    """Return settings with which the server's model makes up answers."""
    return {
        "endpoints.local.base_url": server.base_url,
        "ask.model": "endpoint:local/m",
        "ask.hypothetical": True,
        **more,
    }


@pytest.mark.parametrize("profile", ["recall_first", "rrf"])
def test_lines_like_the_made_up_answer_come_first(
    server: Loopback, home: Path, profile: str
) -> None:
    """What resembles the made-up answer rises; it is not kept, nor shown."""
    settings = settings_of(server, **{"retrieval.profile": profile, "rrf.surprise": 0.0})
    with MemTier.open(home, settings=settings) as memory:
        say_each(memory, *LINES)
        recall = memory.recall(QUERY)
        assert recall.hits[0].text == LINES[0]
        assert recall.hits[0].signals["hypothetical"] == 1.0
        assert recall.steps[0].name == "hypothetical"
        assert recall.steps[0].tokens > 0
        assert not any("Our dog" in hit.text for hit in recall.hits)
        assert not any("Our dog" in entry.content for entry in memory.entries())
        signals = memory.explain(recall.id)["injected"][0]["signals"]
    assert signals["hypothetical"] == 1.0
    [request] = server.requests
    assert request["body"]["messages"][0]["content"] == load_prompt("hypothetical", PROMPTS).text


def test_no_prompt_waits_for_a_model(server: Loopback, home: Path) -> None:
    """Injection and its preview never ask; nor does a search unless it is switched on."""
    with MemTier.open(home, settings=settings_of(server)) as memory:
        say_each(memory, *LINES)
        for purpose in FOR_PROMPTS:
            recall = memory.recall(QUERY, purpose=purpose, session_id="s")
            assert all("hypothetical" not in hit.signals for hit in recall.hits)
    with MemTier.open(home, settings=settings_of(server, **{"ask.hypothetical": False})) as memory:
        assert all("hypothetical" not in hit.signals for hit in memory.recall(QUERY).hits)
    assert not server.requests


def test_a_question_is_asked_once(server: Loopback, home: Path) -> None:
    """`ask` searches several times and makes up one answer; secrets in it are masked."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    with MemTier.open(home, settings=settings_of(server)) as memory:
        say_each(memory, *LINES)
        memory.ask(f"{QUERY} {secret}")
    prompts = [request["body"]["messages"] for request in server.requests]
    made_up = [p for p in prompts if p[0]["content"] == load_prompt("hypothetical", PROMPTS).text]
    assert len(made_up) == 1
    assert secret not in made_up[0][1]["content"]


@pytest.mark.parametrize("fault", ["500", "shape", "empty"])
def test_without_an_answer_the_search_goes_on(server: Loopback, home: Path, fault: str) -> None:
    """A model that fails, or says nothing usable, costs the made-up answer only, and is named."""
    settings = settings_of(server)
    with MemTier.open(home, settings=settings) as memory:
        say_each(memory, *LINES)
        server.always("400" if fault == "500" else fault)
        recall = memory.recall("When does the ferry leave?")
    assert recall.hits[0].text == LINES[2]
    assert recall.label.startswith("degraded: no hypothetical answer: ")


def test_deadline_and_budget_hold(server: Loopback, home: Path) -> None:
    """A slow model gets half of the time, and none is asked beyond the day's calls."""
    with MemTier.open(home, settings=settings_of(server)) as memory:
        say_each(memory, *LINES)
        server.always("slow")
        recall = memory.recall("When does the ferry leave?", deadline_ms=4000)
    seconds = re.search(r"did not answer within (\S+) s", recall.label)
    assert seconds is not None and float(seconds[1]) <= 2.0
    assert recall.hits[0].text == LINES[2] and recall.ms < 1000 * server.slow / 2
    spent = settings_of(server, **{"consolidation.max_calls_per_day": 0})
    with MemTier.open(home, settings=spent) as memory:
        before = len(server.requests)
        assert "no hypothetical answer" in memory.recall(QUERY).label
        assert len(server.requests) == before
