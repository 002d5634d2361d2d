"""What `facts.mode` and `facts.sensitive` let become a fact without a person's decision.  Pure.

A person decides by `remember` and by accepting in a review; no model and no extractor does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from memtier_plugin.core.records import Fact, FactDraft
from memtier_plugin.core.settings.schema import FactMode, Facts
from memtier_plugin.trust.confidences import DOUBTFUL, SENSITIVE, is_sensitive

Draft = TypeVar("Draft", bound=Fact | FactDraft)


def hold_extracted(draft: Draft, mode: FactMode) -> Draft:
    """Let a draft that an extractor found wait, unless facts are made by themselves."""
    return draft if mode == "auto" else _hold(draft, mode)


def hold_kept(draft: Draft, facts: Facts) -> Draft:
    """Let a draft that a model asks to keep wait where only a person decides."""
    strictest = replace(facts, sensitive="review") if facts.sensitive == "drop" else facts
    return hold_given(hold_sensitive(draft, strictest) or draft, facts.mode)


def hold_given(draft: Draft, mode: FactMode) -> Draft:
    """Let a draft that a program, an import or a model gave wait where only a person decides."""
    return _hold(draft, mode) if mode == "explicit" else draft


def hold_sensitive(draft: Draft, facts: Facts) -> Draft | None:
    """Let a draft that is sensitive by its kind wait; None where such drafts are dropped."""
    if facts.sensitive == "share" or draft.status != "active":
        return draft
    if not is_sensitive(draft.quote or draft.text):
        return draft
    if facts.sensitive == "drop":
        return None
    return replace(draft, status="proposed", reason=SENSITIVE)


def hold_doubtful(draft: Draft) -> Draft:
    """Let a draft wait that may be a confidence."""
    return _wait(draft, DOUBTFUL)


def _hold(draft: Draft, mode: FactMode) -> Draft:
    return _wait(draft, f"needs your word (facts.mode: {mode})")


def _wait(draft: Draft, reason: str) -> Draft:
    return replace(draft, status="proposed", reason=reason) if draft.status == "active" else draft
