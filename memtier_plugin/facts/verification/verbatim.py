"""Claims in a language whose denials are not known: these are taken at their word only.  Pure."""

from __future__ import annotations

import regex

from memtier_plugin.facts.verification.alignment import Passage, Verdict
from memtier_plugin.text import claim_lexicon


def check_verbatim(text: str, value: str, passage: Passage) -> Verdict:
    """Return whether a claim in a language we know little of repeats its source word by word."""
    ours = regex.findall(r"[\p{L}\p{M}\p{N}]+", text.casefold())
    theirs = regex.findall(r"[\p{L}\p{M}\p{N}]+", passage.sentence.casefold())
    if {w for w in ours if w.isdigit()} - {w for w in theirs if w.isdigit()}:
        return Verdict("rejected", "number differs")
    size = len(theirs)
    at = next((n for n in range(len(ours) - size + 1) if ours[n : n + size] == theirs), None)
    if at is not None and size and value.casefold().strip() in passage.sentence.casefold():
        added = {*ours[:at], *ours[at + size :]} - passage.speaker_names - {"the", "a", "that"}
        if not added - claim_lexicon.REPORTING_WORDS:
            return Verdict("active")
    return Verdict("proposed", "not word by word, in a language whose denials are not known")
