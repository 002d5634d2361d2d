"""Redact what a viewer may not see of a fact."""

from __future__ import annotations

from dataclasses import replace

from memtier_plugin.core.records import Fact


def redact_for(fact: Fact, viewer: str | None) -> Fact:
    """Return a fact; without its quote where that is the very words of another agent's log."""
    if viewer is None or fact.sources[0].agent == viewer or not fact.quote:
        return fact
    return replace(fact, quote="", span=None)
