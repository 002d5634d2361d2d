"""Formation and evolution by tool calls of a model: the same checks as for any claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtier_papers.mem_t.formation import PROMPTS, ToolEvolution
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.facts.extraction.llm import ModelChoice
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompting import load_prompt
from tests.builders import user_message
from tests.loopback import Loopback

KNOWN = ["Ann lives in Oslo.", "Ann likes tea."]


def call(tool: str, **arguments: Any) -> str:
    """Return a call as a model writes it."""
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


def fact(text: str, value: str, quote: str, **more: Any) -> str:
    """Return a call that creates a fact of the user."""
    named = {"subject": "user", "relation": "lives_in", "line": 1, "start_time": None}
    return call("create_fact", fact=text, value=value, quote=quote, **(named | more))


def consolidated(home: Path, server: Loopback, line_said: str, *answers: str) -> list[Any]:
    """Return the facts that a model's calls about one line make."""
    server.answers(*answers)
    settings = {
        "endpoints.local.base_url": server.base_url,
        "consolidation.model": "endpoint:local/m",
        "consolidation.tools": True,
    }
    with MemTier.open(home, "p", settings=settings) as memory:
        memory.record([user_message(line_said)], session_id="s")
        memory.consolidate(extractor="model")
        return memory.facts()


def test_facts_and_personas_are_formed_by_calls(home: Path, server: Loopback) -> None:
    """A call that its quote bears out makes a fact of the model; one without proof makes none."""
    line_said = "I live in Porto by the river. I never eat meat at home."
    facts = consolidated(
        home,
        server,
        line_said,
        fact("The user lives in Porto by the river.", "Porto", "I live in Porto by the river")
        + fact("The user lives in Lisbon.", "Lisbon", "I live in Lisbon by the sea")
        + call("update_persona", name="user", profile="The user never eats meat at home.",
               quote="I never eat meat at home", line=1)
        + call("drop_all_tables"),
    )  # fmt: skip
    assert sorted(each.text for each in facts) == [
        "The user lives in Porto by the river.",
        "The user never eats meat at home.",
    ]
    assert {(each.model, each.prompt_hash) for each in facts} == {
        ("local/m", load_prompt("form", PROMPTS).hash)
    }


def test_words_without_a_call_are_asked_for_once_more(home: Path, server: Loopback) -> None:
    """An answer of another shape is no fact; the second time the shape is told again."""
    line_said = "I live in Porto by the river."
    good = fact("The user lives in Porto by the river.", "Porto", "I live in Porto by the river")
    facts = consolidated(home, server, line_said, "The user lives in Porto.", good)
    assert [each.text for each in facts] == ["The user lives in Porto by the river."]
    assert server.count() == 2


def decided(server: Loopback, answer: str) -> ModelChoice | None:
    """Return what is decided of a move, given what the model answers."""
    server.answers(answer)
    local = Endpoint(base_url=server.base_url)
    return ToolEvolution(ChatModel.of_endpoint("local", local, "m")).decide(
        "Ann lives in Bergen.", KNOWN
    )


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        (call("add_item", document="Ann lives in Bergen."), ModelChoice("add")),
        (call("delete_item", id=1), ModelChoice("supersede", 0)),
        (call("add_item", document="x") + call("delete_item", id=1), ModelChoice("supersede", 0)),
        (call("update_item", id=2, document="x"), ModelChoice("update", 1)),
        (call("ignore_item", id=2, reason="the same"), ModelChoice("ignore", 1)),
        (call("ignore_item", id=2), ModelChoice("ignore", 1)),
        (call("delete_item", id=3), None),
        (call("delete_item", id="1"), None),
        (call("forget_everything"), None),
        ("delete_item(1)", None),
        ("", None),
    ],
)
def test_a_call_decides_by_the_rules_in_their_order(
    server: Loopback, answer: str, choice: ModelChoice | None
) -> None:
    """Contradiction before sameness before detail before addition; else the rules decide."""
    assert decided(server, answer) == choice
