"""Decide how a new fact relates to existing ones, by a chat model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.facts.evolution import Action
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompt import fence_data, load_prompt
from memtier_plugin.providers.structured_output import INTEGER, STRING, choice_of, object_of
from memtier_plugin.providers.tool_calls import ToolCall, parse_tool_calls

PURPOSE: Final = "evolution"
MAX_ANSWER_TOKENS: Final = 500  # reasoning models need more than the answer takes
SCHEMA: Final = object_of(
    "decision",
    action=choice_of("add", "update", "supersede", "ignore"),
    target={"type": ["integer", "null"]},
)
_CHECKED: Final = {**SCHEMA, "required": ["action"]}
TOOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "add_item": object_of(document=STRING),
    "update_item": object_of(id=INTEGER, document=STRING),
    "delete_item": object_of(id=INTEGER),
    "ignore_item": {**object_of(id=INTEGER, reason=STRING), "required": ["id"]},
}
# What a call does to the known fact that it names, in the order of the rules.
_ACTIONS: Final[Mapping[str, Action]] = {
    "delete_item": "supersede",
    "ignore_item": "ignore",
    "update_item": "update",
}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model's choice; ``target`` is the index of the existing fact that it concerns."""

    action: Action
    target: int | None = None


class ChatEvolution:
    """Asks a chat model how a new fact relates to existing ones."""

    prompt_name: str = "evolve"

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.prompt = load_prompt(self.prompt_name)

    def decide(self, text: str, nearest: Sequence[str]) -> ModelChoice | None:
        """Return the model's choice; None for an unusable answer, where the rules decide.

        Args:
            text: what the new fact says.
            nearest: what the existing ones say, at least one; a target is an index into these.

        Raises:
            CapReached, EndpointError: the model was not asked, or did not answer.
        """
        existing = [f"known fact [{number}]: {fact}" for number, fact in enumerate(nearest, 1)]
        question = fence_data([*existing, f"new fact: {text}"])
        try:
            return self._choose(question, len(nearest))
        except BadAnswer:
            return None

    def _choose(self, question: str, known: int) -> ModelChoice | None:
        """Ask, and return the choice; None, or BadAnswer, for an unusable answer."""
        choice, _ = self.model.chat_json(
            self.prompt.text,
            question,
            purpose=PURPOSE,
            max_tokens=MAX_ANSWER_TOKENS,
            schema=SCHEMA,
            checked=_CHECKED,
        )
        if choice["action"] == "add":
            return ModelChoice("add")
        return _of_known(choice["action"], choice.get("target"), known)


class ToolEvolution(ChatEvolution):
    """Asks by tool calls, with the rules and their order of Mem-T (3.1, phase I).

    Nothing is deleted: what a model deletes is superseded by the new fact, and what it updates
    gives way to the new fact's own words, which were verified.
    """

    prompt_name = "evolve_tools"

    def _choose(self, question: str, known: int) -> ModelChoice | None:
        messages = [
            {"role": "system", "content": self.prompt.text},
            {"role": "user", "content": question},
        ]
        reply = self.model.chat(messages, purpose=PURPOSE, max_tokens=MAX_ANSWER_TOKENS)
        by_name: dict[str, ToolCall] = {}
        for call in parse_tool_calls(reply.text, TOOLS).calls:
            by_name.setdefault(call.name, call)
        for name, action in _ACTIONS.items():
            if name in by_name:
                return _of_known(action, by_name[name].arguments["id"], known)
        return ModelChoice("add") if "add_item" in by_name else None


def _of_known(action: Action, number: int | None, known: int) -> ModelChoice | None:
    """Return a choice that concerns a known fact, by its number from 1; None for another number."""
    if number is None or not 1 <= number <= known:
        return None
    return ModelChoice(action, number - 1)
