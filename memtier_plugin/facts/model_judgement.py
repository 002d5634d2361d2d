"""Ask a chat model whether a claim follows from its sources, and how it relates to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.evolution import Action
from memtier_plugin.facts.verification.alignment import SAYS_MORE, UNKNOWN_LANGUAGE
from memtier_plugin.facts.verification.passages import find_quotes, passage_of
from memtier_plugin.facts.verification.verify import Claim, is_evidence, verify
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.endpoint import ChatReply
from memtier_plugin.providers.prompt import PROMPT_FOLDER, fence_data, load_prompt
from memtier_plugin.providers.prompting import (
    INTEGER,
    STRING,
    choice_of,
    list_of,
    object_of,
    parse_items,
)

# -- Lift a claim that waits for its wording alone, once a second look found that it follows.  Pure
#
# The model's word is not enough: the quote that it names must stand in what the claim rests on, and
# nothing that code can see may contradict the claim there.

MIN_CONFIDENCE: Final = 0.9
# Other reasons name what a claim leaves out, mixes up or takes for certain; a person decides on it.
LIFTABLE: Final = frozenset({SAYS_MORE, UNKNOWN_LANGUAGE})


class SecondLook(NamedTuple):
    """What a model found on a claim that follows: its quote, and how sure it is."""

    quote: str
    confidence: float


def is_liftable(draft: FactDraft) -> bool:
    """Return whether a draft waits only because code cannot tell that it says the same."""
    return draft.status == "proposed" and draft.reason in LIFTABLE


def lift(
    draft: FactDraft, entries: Sequence[Entry], look: SecondLook, prompt_hash: str
) -> FactDraft:
    """Return the draft as active, on the quote of the second look; unchanged if that is no proof.

    Args:
        entries: what the draft rests on.
        prompt_hash: of the second look's prompt, which the draft then names.
    """
    if not (MIN_CONFIDENCE <= look.confidence <= 1.0) or not is_evidence(look.quote):
        return draft
    span = next(iter(find_quotes(look.quote, entries, None)), None)
    if span is None:
        return draft
    claim = Claim(
        subject=draft.subject,
        relation=draft.relation,
        value=draft.value,
        text=draft.text,
        quote=look.quote,
        tier=draft.tier,
    )
    verdict = verify(claim, passage_of(span, entries))
    if verdict.kind == "rejected" or (verdict.reason and verdict.reason not in LIFTABLE):
        return draft
    return replace(
        draft,
        status="active",
        reason="",
        quote=span.text,
        span=(span.start, span.end),
        confidence=look.confidence,
        prompt_hash=prompt_hash,
    )


# -- Ask a chat model whether claims that wait follow from their sources, in other words

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


# -- Decide how a new fact relates to existing ones, by a chat model

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
