"""Find the sentences by which a user takes back what was so: no new value stands in them.  Pure.

"I no longer have a dog" leaves nothing to be kept, and something to be kept no longer (Mem-T, 3.1:
DELETE).  Such a sentence becomes a draft of the relation `DENIES`, which no fact is made of: the
writer retracts the facts that it denies (`evolution.denies`).  English.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.extraction.frames import find_asserted
from memtier_plugin.retrieval.contradictions import DENIES

MAX_CHARS: Final = 160  # of a sentence; a longer one says more than that something is not so
_DENIES: Final = regex.compile(
    r"(?i)\b(?:not|never|no longer|no more|\w+n['’]t|isn|gave up|given up|stopped|quit)\b"
)
_LEAD: Final = regex.compile(
    r"(?i)\A(?:(?:strike that|scratch that|that['’]s (?:wrong|not right|not true)|correction|no|"
    r"actually|sorry|wait|well|by the way|(?:it )?turn(?:s|ed) out(?: that)?|i was wrong)\b"
    r"[\s,:;.–-]*)+"
)
_OPEN: Final = regex.compile(
    r"(?i)\?\s*\Z|\b(?:if|unless|maybe|perhaps|might|would|could|should|whether|sure|think|today|"
    r"tonight|yet|right now|at the moment|always|only|just|because|when|until|so|let['’]?s)\b"
)
_THING: Final = regex.compile(
    r"(?i)\A(?:the |our |my )?(?P<thing>[\w' -]{2,60}?) (?:is|are|was|were|has|have|does|do|"
    r"no longer|never|\w+n['’]t)\b"
)
_OWN: Final = regex.compile(r"(?i)\A(?:I|we|my|our)\b")
_OTHERS: Final = regex.compile(r"(?i)\b(?:you|your|it|this|these|those|they|he|she)\b")


def find_denials(entry: Entry) -> Iterator[FactDraft]:
    """Yield the denials in a user's own words."""
    if entry.role != "user" or entry.origin != "user" or entry.tainted:
        return
    for sentence in find_asserted(entry.content):
        text = entry.content[sentence.start : sentence.end]
        if sentence.words.language != "english" or len(text) > MAX_CHARS:
            continue
        lead = _LEAD.match(text)
        start = sentence.start + (lead.end() if lead else 0)
        core = entry.content[start : sentence.end].rstrip()
        if not _DENIES.search(core) or _OPEN.search(core) or _OTHERS.search(core):
            continue
        yield FactDraft(
            subject=_subject(core, entry.speaker),
            relation=DENIES,
            value=core,
            text=core,
            sources=(entry.source,),
            quote=core,
            span=(start, start + len(core)),
            valid_from=entry.observed_at,
        )


def _subject(sentence: str, speaker: str | None) -> str:
    """Return what a sentence is about: its speaker, or the thing that it names first."""
    thing = None if _OWN.match(sentence) else _THING.match(sentence)
    return thing["thing"] if thing else speaker or "user"
