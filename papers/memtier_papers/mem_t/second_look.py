"""Have a chat model reconsider claims that wait only because of their wording.

The model's word is not enough: the quote that it names must occur in the claim's sources, and
nothing visible to code may contradict the claim there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from memtier_plugin.core.errors import BadAnswer, CapReached, EndpointError
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.drafts import CONTEXT, quote_context, quoted_entry
from memtier_plugin.facts.verification.alignment import SAYS_MORE, UNKNOWN_LANGUAGE
from memtier_plugin.facts.verification.passages import find_quotes, passage_of
from memtier_plugin.facts.verification.verify import Claim, Rejection, is_evidence, verify
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.endpoint import ChatReply
from memtier_plugin.providers.prompting import (
    INTEGER,
    STRING,
    choice_of,
    fence_data,
    list_of,
    load_prompt,
    object_of,
    parse_items,
)

PROMPTS: Final = Path(__file__).parent / "prompts"
MIN_CONFIDENCE: Final = 0.9
# Other reasons name what a claim omits, confuses or overstates; those need a person.
LIFTABLE: Final = frozenset({SAYS_MORE, UNKNOWN_LANGUAGE})


class SecondLook(NamedTuple):
    """A model's finding that a claim follows: its quote, and its certainty."""

    quote: str
    confidence: float


def is_liftable(draft: FactDraft) -> bool:
    """Return whether a draft waits only because code cannot verify its wording."""
    return draft.status == "proposed" and draft.reason in LIFTABLE


def lift(
    draft: FactDraft, entries: Sequence[Entry], look: SecondLook, prompt_hash: str
) -> FactDraft:
    """Return the draft as active, by the quote of the second look; unchanged if that is no proof.

    Args:
        entries: the draft's sources.
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


PURPOSE: Final = "entailment"
MAX_CLAIMS: Final = 20  # per request
TOKENS_PER_CHECK: Final = 120  # of the answer: mostly a quote
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
        self.prompt = load_prompt("entail", PROMPTS)

    def check(
        self, pairs: Sequence[tuple[str, str]]
    ) -> tuple[dict[int, SecondLook], ChatReply | None]:
        """Return the claims that follow from their sources, by pair index, and the model's reply.

        Args:
            pairs: each claim with its source; more than `MAX_CLAIMS` are dropped.

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


def look_again(
    model: ChatModel,
    checked: Sequence[FactDraft | Rejection],
    entries: Mapping[str, Entry],
) -> tuple[list[FactDraft | Rejection], ChatReply | None]:
    """Lift drafts that wait only because of their wording and pass the model's second look."""
    judge = ChatEntailment(model)
    waiting = [
        (index, draft)
        for index, draft in enumerate(checked)
        if isinstance(draft, FactDraft) and is_liftable(draft)
    ]
    try:
        looks, reply = judge.check(
            [(draft.text, _source_line(draft, entries)) for _, draft in waiting]
        )
    except (CapReached, EndpointError):
        return [*checked], None  # they wait for review, as without a second look
    lifted = [*checked]
    for number, look in looks.items():
        index, draft = waiting[number]
        sources = [entries[source.entry] for source in draft.sources if source.entry in entries]
        lifted[index] = lift(draft, sources, look, judge.prompt.hash)
    return lifted, reply


def _source_line(draft: FactDraft, entries: Mapping[str, Entry]) -> str:
    """Return the sources of a draft, with speaker and time."""
    entry = quoted_entry(draft, entries)
    if entry is None:
        return draft.quote or ""
    context = quote_context(draft, entries) + entry.content[(draft.span or (0, 0))[1] :][:CONTEXT]
    return f"{entry.observed_at:%Y-%m-%d} {entry.speaker or 'the ' + entry.role}: {context}"
