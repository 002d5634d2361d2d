"""Lift a claim that waits for its wording alone, once a second look found that it follows.  Pure.

The model's word is not enough: the quote that it names must stand in what the claim rests on, and
nothing that code can see may contradict the claim there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.verification.alignment import SAYS_MORE, UNKNOWN_LANGUAGE
from memtier_plugin.facts.verification.context import passage_of
from memtier_plugin.facts.verification.quotes import find_quotes
from memtier_plugin.facts.verification.verify import Claim, is_evidence, verify

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
