"""Propose the notes of imported memory files as facts.

Their author is unknown, so all of them wait for `memtier review`.  Daily notes report events
and stay entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.memory import MemTier

PROPOSED_FORMATS: Final = ("openclaw-memory", "hermes-memory", "mem0")
_MAX_CHARS: Final = 500  # characters; a longer note is not a single fact
_DAILY_NOTE: Final = re.compile(r"openclaw-memory/memory/")


def propose_facts(memory: MemTier, entries: Iterable[Entry]) -> int:
    """Propose the notes among new entries as facts; return how many wait for review.

    Raises:
        LedgerError, IndexProblem: nothing was proposed; the entries stay.
    """
    drafts = [_draft_fact(entry) for entry in entries if _is_fact(entry)]
    return len(memory.add_facts(drafts)) if drafts else 0


def _is_fact(entry: Entry) -> bool:
    named = entry.session_id.partition("/")[0] in PROPOSED_FORMATS and entry.origin == "external"
    return named and len(entry.content) <= _MAX_CHARS and not _DAILY_NOTE.match(entry.session_id)


def _draft_fact(entry: Entry) -> FactDraft:
    heading, _, rest = entry.content.partition("\n")
    headed = heading.startswith("#") and bool(rest)
    note = rest if headed else entry.content
    text = " ".join(note.split())
    return FactDraft(
        subject=heading.lstrip("# ") if headed else "memory",
        relation="noted",
        value=text,
        text=f"{heading.lstrip('# ')}: {text}" if headed else text,
        sources=(entry.source,),
        quote=note,
        span=(len(entry.content) - len(note), len(entry.content)),
        valid_from=entry.observed_at,
        extractor="import",
        confidence=0.5,
        origin="external",
        status="proposed",
        reason=f"imported from {entry.session_id}",
    )
