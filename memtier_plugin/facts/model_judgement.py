"""Ask a chat model how a new fact relates to existing ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.facts.evolution import Action
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompt import PROMPT_FOLDER, fence_data, load_prompt
from memtier_plugin.providers.prompting import (
    choice_of,
    object_of,
)

EVOLUTION_PURPOSE: Final = "evolution"
MAX_ANSWER_TOKENS: Final = 500  # reasoning models need more than the answer takes
EVOLUTION_SCHEMA: Final = object_of(
    "decision",
    action=choice_of("add", "update", "supersede", "ignore"),
    target={"type": ["integer", "null"]},
)
_CHECKED: Final = {**EVOLUTION_SCHEMA, "required": ["action"]}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model's choice; ``target`` is the index of the existing fact that it concerns."""

    action: Action
    target: int | None = None


class ChatEvolution:
    """Asks a chat model how a new fact relates to existing ones."""

    prompt_name: str = "evolve"
    prompt_folder: Path = PROMPT_FOLDER

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.prompt = load_prompt(self.prompt_name, self.prompt_folder)

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
            purpose=EVOLUTION_PURPOSE,
            max_tokens=MAX_ANSWER_TOKENS,
            schema=EVOLUTION_SCHEMA,
            checked=_CHECKED,
        )
        if choice["action"] == "add":
            return ModelChoice("add")
        return choice_of_known(choice["action"], choice.get("target"), known)


def choice_of_known(action: Action, number: int | None, known: int) -> ModelChoice | None:
    """Return a choice that concerns a known fact, by its number from 1; None for another number."""
    if number is None or not 1 <= number <= known:
        return None
    return ModelChoice(action, number - 1)
