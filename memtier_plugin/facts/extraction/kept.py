"""Make a fact of what somebody asks to be kept: the words as they are, parsed like a statement.

Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.extraction.frames import read_words
from memtier_plugin.facts.extraction.rules import extract_facts
from memtier_plugin.text.dates.validity import find_validity

EXTRACTOR: Final = "remember"
_COVERED: Final = 0.8  # of the text's characters that a parsed statement quotes


def draft_kept(entry: Entry) -> FactDraft:
    """Return the draft of an entry that was asked to be kept.

    Its text is the entry's.  Where that is one statement, subject, relation, value and validity are
    those of the statement, so that it supersedes, and is superseded, like any other.
    """
    content = entry.content
    since, until = find_validity(content, entry.observed_at, read_words(content).language, None)
    draft = FactDraft(
        subject="user",
        relation=EXTRACTOR,
        value=content,
        text=content,
        sources=(entry.source,),
        quote=content,
        span=(0, len(content)),
        extractor=EXTRACTOR,
        confidence=1.0,
        origin=entry.origin,
        valid_from=since or entry.observed_at,
        valid_to=until,
    )
    own_words = replace(entry, role="user", origin="user", tainted=False, speaker=None)
    stated = extract_facts([own_words]).drafts
    if len(stated) != 1 or len(stated[0].quote) < _COVERED * len(content.strip()):
        return draft
    [parsed] = stated
    return replace(
        draft,
        subject=parsed.subject,
        relation=parsed.relation,
        value=parsed.value,
        valid_from=parsed.valid_from,
        valid_to=parsed.valid_to,
    )
