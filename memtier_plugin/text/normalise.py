"""Normalise texts so that equal ones compare equal."""

from __future__ import annotations


def normalise(*parts: str) -> tuple[str, ...]:
    """Return subject, relation or value as facts are compared: casefolded, one space."""
    return tuple(" ".join(part.casefold().split()) for part in parts)
