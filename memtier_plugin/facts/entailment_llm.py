"""Ask a chat model whether claims that wait follow from their sources, in other words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.facts.verification.second_look import SecondLook
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.endpoint import ChatReply
from memtier_plugin.providers.prompt import fence_data, load_prompt
from memtier_plugin.providers.structured_output import (
    INTEGER,
    STRING,
    choice_of,
    list_of,
    object_of,
    parse_items,
)

PURPOSE: Final = "entailment"
MAX_CLAIMS: Final = 20  # of one request
TOKENS_PER_CHECK: Final = 120  # of an answer: a quote, mostly
BASE_TOKENS: Final = 400
_CHECK: Final = object_of(
    claim=INTEGER,
    verdict=choice_of("follows", "differs", "unsure"),
    quote=STRING,
    confidence={"type": "number"},
)
SCHEMA: Final = object_of("checks", checks=list_of(_CHECK))


class ChatEntailment:
    """Asks a chat model for a second look at claims."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.prompt = load_prompt("entail")

    def check(
        self, pairs: Sequence[tuple[str, str]]
    ) -> tuple[dict[int, SecondLook], ChatReply | None]:
        """Return what follows from its source, by the index of the pair, and the model's reply.

        Args:
            pairs: each claim with its source; more than `MAX_CLAIMS` are left out.

        Raises:
            CapReached, EndpointError: the model was not asked, or did not answer.
        """
        shown = pairs[:MAX_CLAIMS]
        if not shown:
            return {}, None
        lines = [
            line
            for number, (claim, source) in enumerate(shown, 1)
            for line in (f"[{number}] claim: {claim}", f"[{number}] source: {source}")
        ]
        messages = [
            {"role": "system", "content": self.prompt.text},
            {"role": "user", "content": fence_data(lines)},
        ]
        room = BASE_TOKENS + TOKENS_PER_CHECK * len(shown)
        reply = self.model.chat(messages, purpose=PURPOSE, max_tokens=room, schema=SCHEMA)
        try:
            checks = parse_items(reply.text, SCHEMA).items
        except BadAnswer:
            return {}, reply
        return {
            check["claim"] - 1: SecondLook(check["quote"], float(check["confidence"]))
            for check in checks
            if check["verdict"] == "follows" and 1 <= check["claim"] <= len(shown)
        }, reply
