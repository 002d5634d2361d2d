"""Extract experiences that users state: strategies, cases, skills and failures.  Pure.

The kinds of Mem-T's experiential memory (3.1), beyond what the outcomes of tools show: how a thing
is best done, what was done once and how it went, how to do it, and what does not work.  Only a
user's own words count, whole sentences that need nothing around them.  English.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.extraction.experiences import CASE, HOW_TO, STRATEGY, WHAT_FAILED
from memtier_plugin.facts.extraction.frames import find_asserted

EXTRACTOR: Final = "lesson-rules"
_MAX_CHARS: Final = 240  # of a sentence; a longer one is a story
_MIN_WORDS: Final = 5
_CONFIDENCE: Final = 0.7
_LEAD: Final = regex.compile(
    r"(?i)\A(?:(?:lessons? learned|note to self|tip|remember|fyi|by the way|so|and|but|actually|"
    r"turns out(?: that)?|it turned out that|we (?:learned|found out) that)\b[\s,:–-]*)+"
)
_OPENS: Final = (
    (
        STRATEGY,
        r"(?:the )?(?:best|easiest|safest|fastest|cleanest|right|only) (?:way|approach) (?:to|for) "
        r".+? (?:is|was) .+|the (?:trick|key) (?:is|was) .+|next time,? .+|it (?:helps|pays) to .+|"
        r".{3,60} works? best (?:when|if|with|after|before) .+",
    ),
    (
        CASE,
        r"last time(?:,| we) .+|what (?:fixed|helped|worked|solved|did the trick)\b.* was .+|"
        r"we (?:fixed|solved|cured|got around|worked around) .+ by .+|"
        r".{3,80} (?:fixed|solved|cured) (?:the|our|my) .+",
    ),
    (
        HOW_TO,
        r"(?:in order )?to (?!be |me\b|us\b|my |our |sum |start with|begin with|say)\w+"
        r"(?: .{1,60}?)?, (?:first |you (?:have|need) to )?(?:run|use|call|set|open|click|"
        r"restart|stop|start|export|add|pass|type|press|delete|remove|edit|go) .+",
    ),
    (
        WHAT_FAILED,
        r".{3,80} (?:always |usually |often |never )?(?:fails?|breaks?|crash(?:es)?|hangs?|"
        r"times? out|works?|(?:does|do)n['’]t work|won['’]t (?:work|start)) (?:only )?"
        r"(?:when|if|unless|because|without|until|as long as) .+",
    ),
)
_PATTERNS: Final = tuple((kind, regex.compile(rf"(?i)(?:{form})")) for kind, form in _OPENS)
_OPEN: Final = regex.compile(
    r"(?i)\?\s*\Z|\b(?:maybe|perhaps|might|i think|i guess|not sure|whether|hopefully|i hope)\b"
)
# What is said of oneself is no experience of the project, which all of its agents read.
_POINTS: Final = regex.compile(
    r"(?i)\b(?:this|that|these|those|here|above|below|you|your|i|i['’]m|my|me|she|he|her|his)\b"
)
_UNRESOLVED: Final = regex.compile(r"(?i)\b(?:it|its|they|them|one|ones|something|so)\b")
_HELPS: Final = regex.compile(r"(?i)\Ait (?:helps|pays) ")


def extract_lessons(entry: Entry) -> Iterator[FactDraft]:
    """Yield the experiences that a user states in so many words."""
    if entry.role != "user" or entry.origin != "user" or entry.tainted:
        return
    for sentence in find_asserted(entry.content):
        text = entry.content[sentence.start : sentence.end].rstrip()
        if sentence.words.language != "english" or len(text) > _MAX_CHARS or _OPEN.search(text):
            continue
        lead = _LEAD.match(text)
        start = lead.end() if lead else 0
        core = text[start:].rstrip(" .!")
        kind = next((kind for kind, form in _PATTERNS if form.fullmatch(core)), None)
        if kind is None or len(core.split()) < _MIN_WORDS or _refers(core):
            continue
        yield FactDraft(
            subject=entry.project,
            relation=kind,
            value=core,
            text=f"In project {entry.project}, by the user: {core[0].upper()}{core[1:]}.",
            sources=(entry.source,),
            quote=core,
            span=(sentence.start + start, sentence.start + start + len(core)),
            valid_from=entry.observed_at,
            extractor=EXTRACTOR,
            confidence=_CONFIDENCE,
            origin="user",
            tier="procedural",
        )


def _refers(core: str) -> bool:
    """Return whether a sentence points to something around it, or is about a person."""
    first = _HELPS.sub("", core.split(",")[0])
    return bool(_POINTS.search(core) or _UNRESOLVED.search(first))
