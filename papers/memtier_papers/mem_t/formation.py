"""Form and evolve memories by a chat model's tool calls (Mem-T, 3.1, phase I).

An alternative way to request the same claims: each call must give the line and the words that prove
it, and is verified like any claim.  The paper's fourth formation tool, update_summary, is a
separate request (`summaries.working`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memtier_plugin.facts.evolution import Action
from memtier_plugin.facts.extraction.llm import EVOLUTION_PURPOSE as EVOLUTION
from memtier_plugin.facts.extraction.llm import (
    MAX_ANSWER_TOKENS,
    PURPOSE,
    ChatEvolution,
    ChatExtractor,
    ModelChoice,
    choice_of_known,
)
from memtier_plugin.providers.endpoint import ChatReply
from memtier_plugin.providers.prompting import (
    INTEGER,
    STRING,
    ListedAnswer,
    ModelToolCall,
    object_of,
    parse_tool_calls,
)

PROMPTS: Final = Path(__file__).parent / "prompts"
_ANY_LINE: Final[Mapping[str, Any]] = {"type": ["integer", "string", "null"]}
_TIME: Final[Mapping[str, Any]] = {"type": ["string", "null"]}


def _tool(*required: str) -> dict[str, Any]:
    schema = object_of(line=_ANY_LINE, start_time=_TIME, end_time=_TIME)
    named = dict.fromkeys(required, STRING)
    return {**schema, "required": [*required], "properties": {**schema["properties"], **named}}


FORMATION_TOOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "create_fact": _tool("fact", "subject", "relation", "value", "quote"),
    "create_experience": _tool("experience", "subject", "relation", "value", "quote"),
    "update_persona": _tool("name", "profile", "quote"),
}


EVOLUTION_TOOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "add_item": object_of(document=STRING),
    "update_item": object_of(id=INTEGER, document=STRING),
    "delete_item": object_of(id=INTEGER),
    "ignore_item": {**object_of(id=INTEGER, reason=STRING), "required": ["id"]},
}
# The effect of a call on the known fact that it names, in the order of the paper's rules.
_ACTIONS: Final[Mapping[str, Action]] = {
    "delete_item": "supersede",
    "ignore_item": "ignore",
    "update_item": "update",
}


class ToolExtractor(ChatExtractor):
    """Extracts claims by tool calls; use one instance per pass."""

    prompt_name = "form"
    prompt_folder = PROMPTS

    def _items(self, text: str) -> ListedAnswer:
        """Return the claims of an answer's calls in the form of the one JSON object.

        Raises:
            BadAnswer: there is no call; to store nothing, the model calls no tool with an empty
        list.
        """
        called = parse_tool_calls(text, FORMATION_TOOLS)
        return ListedAnswer(tuple(map(_item, called.calls)), called.rejected)

    def _request(self, user: str, max_tokens: int) -> ChatReply:
        messages = [
            {"role": "system", "content": self.prompt.text},
            {"role": "user", "content": user},
        ]
        return self.model.chat(messages, purpose=PURPOSE, max_tokens=max_tokens)


def _item(call: ModelToolCall) -> dict[str, Any]:
    """Return a call in the form of the JSON answer's items."""
    arguments = call.arguments
    common = {
        "quote": arguments["quote"],
        "line": arguments.get("line"),
        "since": arguments.get("start_time"),
    }
    if call.name == "update_persona":
        name, profile = arguments["name"], arguments["profile"]
        return {
            **common,
            "kind": "fact",
            "subject": name,
            "relation": "is",
            "value": profile,
            "text": profile,
        }
    text = arguments["fact" if call.name == "create_fact" else "experience"]
    kind = "fact" if call.name == "create_fact" else "experience"
    parts = {name: arguments[name] for name in ("subject", "relation", "value")}
    return {**common, **parts, "kind": kind, "text": text}


class ToolEvolution(ChatEvolution):
    """Asks by tool calls, following the paper's rules in order.

    Nothing is deleted: a fact that the model deletes is superseded by the new fact, and for an
    update the new fact's own verified words are used.
    """

    prompt_name = "evolve_tools"
    prompt_folder = PROMPTS

    def _choose(self, question: str, known: int) -> ModelChoice | None:
        messages = [
            {"role": "system", "content": self.prompt.text},
            {"role": "user", "content": question},
        ]
        reply = self.model.chat(messages, purpose=EVOLUTION, max_tokens=MAX_ANSWER_TOKENS)
        by_name: dict[str, ModelToolCall] = {}
        for call in parse_tool_calls(reply.text, EVOLUTION_TOOLS).calls:
            by_name.setdefault(call.name, call)
        for name, action in _ACTIONS.items():
            if name in by_name:
                return choice_of_known(action, by_name[name].arguments["id"], known)
        return ModelChoice("add") if "add_item" in by_name else None
