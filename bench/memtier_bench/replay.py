"""Repeat the questions of `bench router` in epochs (TierMem, section 5.4 and Table 5).

Within an epoch the facts are frozen.  After it, the results of escalated questions are written back
in a batch, so that the next epoch may answer from facts.  In TierMem a model reads findings from
the log, and they are verified.  Without a model the data set's evidence stands in for it: the gold
lines that the log showed, at most two per question, are stored verbatim.  That is an upper bound of
what write-back can achieve.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from memtier_bench.metrics import mean
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.core.results import Hit
from memtier_plugin.memory import MemTier

MAX_FINDINGS: Final = 2  # per question, as in TierMem (appendix, quality filter)


def write_back(memory: MemTier, findings: Iterable[Sequence[Hit]]) -> int:
    """Write an epoch's findings as facts, and return how many were new.

    Args:
        findings: the verified lines of each escalated question.
    """
    entries = {
        hit.id: hit.item
        for lines in findings
        for hit in lines[:MAX_FINDINGS]
        if isinstance(hit.item, Entry)
    }
    drafts = [
        FactDraft(
            subject=entry.speaker or entry.role,
            relation="said",
            value=entry.content,
            text=entry.content,
            sources=(entry.source,),
            quote=entry.content,
            span=(0, len(entry.content)),
            valid_from=entry.observed_at,
            extractor="ask",
        )
        for entry in entries.values()
    ]
    return len(memory.add_facts(drafts)) if drafts else 0


def summarise_epoch(
    number: int, outcomes: Sequence[tuple[bool, bool, int, float]], added: int
) -> dict[str, Any]:
    """Return a row of Table 5.

    Args:
        number: the epoch, from 1 on.
        outcomes: for each question whether it was answered from facts, whether every gold turn was
            shown, the tokens and the seconds.
        added: the facts that were written after it.
    """
    from_facts = [right for facts, right, _, _ in outcomes if facts]
    return {
        "epoch": number,
        "accuracy": mean([right for _, right, _, _ in outcomes]),
        "s_traffic": len(from_facts),
        "s_accuracy": mean(from_facts),
        "s_correct": sum(from_facts),
        "tokens": mean([tokens for _, _, tokens, _ in outcomes]),
        "latency_ms": mean([seconds * 1000 for _, _, _, seconds in outcomes]),
        "added": added,
    }
