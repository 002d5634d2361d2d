"""What becomes of a new fact beside those that are known, by a chat model.

Source: seeds 2.4, 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompt import fence_data, load_prompt

Action = Literal["add", "update", "supersede", "ignore"]
PURPOSE: Final = "evolution"
MAX_ANSWER_TOKENS: Final = 500  # tokens; models that think aloud need more than the answer takes
SCHEMA: Final[Mapping[str, Any]] = {
    "title": "decision",
    "type": "object",
    "additionalProperties": False,
    "required": ["action", "target"],
    "properties": {
        "action": {"type": "string", "enum": ["add", "update", "supersede", "ignore"]},
        "target": {"type": ["integer", "null"]},
    },
}
_CHECKED: Final = {**SCHEMA, "required": ["action"]}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """What a model chose; ``target`` is the place of the known fact that it concerns."""

    action: Action
    target: int | None = None


class ChatEvolution:
    """Asks a chat model what becomes of a new fact."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.prompt = load_prompt("evolve")

    def decide(self, text: str, nearest: Sequence[str]) -> ModelChoice | None:
        """Return what the model chooses, or None where its answer is none: the rules decide.

        Args:
            text: what the new fact says.
            nearest: what the known ones say, at least one; a target is a place in these.

        Raises:
            CapReached, EndpointError: the model was not asked, or did not answer.
        """
        known = [f"known fact [{number}]: {one}" for number, one in enumerate(nearest, 1)]
        asked = fence_data([*known, f"new fact: {text}"])
        try:
            choice, _ = self.model.chat_json(
                self.prompt.text, asked, purpose=PURPOSE, max_tokens=MAX_ANSWER_TOKENS,
                schema=SCHEMA, checked=_CHECKED,
            )  # fmt: skip
        except BadAnswer:
            return None
        if choice["action"] == "add":
            return ModelChoice("add")
        target = choice.get("target")
        if target is None or not 1 <= target <= len(nearest):
            return None
        return ModelChoice(choice["action"], target - 1)
