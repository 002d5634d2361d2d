"""Find the names by which people introduce themselves: "Hi, I'm Jonas", "me llamo Ana".  Pure.

A wording that only names people ("my name is") is enough anywhere.  "I'm" and "this is" also state
other things, so that they need a greeting before them, or must be the whole sentence and the name
no word for a trade or a nation.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.text.grammar import common_words
from memtier_plugin.text.lexicon import lexicon, lexicons

_FUNCTION: Final = common_words("english") | lexicon("english").stop_words | {"same", "me", "right"}
_MAX_CHARS: Final = 200  # of a sentence that are looked at
_NAME: Final = r"(?P<name>\p{Lu}[\p{Ll}\p{M}]+(?:[ -]\p{Lu}[\p{Ll}\p{M}]+){0,2})"
_JOINS: Final = r"\b(?:from|and|here|again|und|aus|vom|von|y|de|del|et|du)\b"
_END: Final = rf"(?=\s*(?:[.,!;:)–—-]|$|{_JOINS}))"
_NAMING: Final = (
    r"(?:\b(?:[Mm]y (?:full )?name(?: is|['’]s)|[Ii]['’]m called|[Ii] go by|[Ii]ch hei(?:ß|ss)e|"
    r"[Mm]ein Name ist|(?:[Yy]o )?[Mm]e llamo|[Mm]i nombre es|[Jj]e m['’]appelle|"
    r"[Mm]on (?:pré)?nom est)|(?i:^(?:(?:please|just|everybody calls me|you can|bitte) )*"
    r"(?:call me|nenn(?:t)? mich|ll[aá]m[ae]me|appelle[sz]?-moi)))\s+"
)
_CHINESE: Final = (
    r"(?:我(?:的名字)?(?:叫做?|名叫)|叫我)(?P<name>\p{Han}{2,4}?)(?=就|吧|[，。！,.!\s]|$)"
)
_BEING: Final = r"(?:[Ii]['’]m|[Ii] am|[Tt]his is|[Ii]ch bin(?: der| die)?|[Ss]oy|[Jj]e suis)\s+"
_HERE: Final = r"\s+(?:here|speaking|hier|am Apparat|por aquí|à l['’]appareil)\b"
# Endings of words for nations, beliefs and trades, which are written like names in English.
_TRAIT: Final = regex.compile(r"(?:ish|ese|[aei]an|man|ch|ic|ist|ite|im|ais|aise|ois|ien|ienne)$")


def find_introduction(entry: Entry, start: int, end: int) -> FactDraft | None:
    """Return a draft of the name that a sentence of an entry gives as its speaker's, if any."""
    sentence = entry.content[start:end][:_MAX_CHARS]
    match = _naming().match(sentence) or _greeted().match(sentence) or _alone(sentence)
    if match is None or sentence.rstrip().endswith(("?", "？")):
        return None
    if match["name"].casefold() in _FUNCTION:  # "Same here!"
        return None
    return FactDraft(
        subject=entry.speaker or "user",
        relation="name",
        value=match["name"],
        text=f"{entry.speaker or 'The user'}'s name is {match['name']}.",
        sources=(entry.source,),
        quote=match[0],
        span=(start + match.start(), start + match.end()),
        valid_from=entry.observed_at,
    )


def _alone(content: str) -> regex.Match[str] | None:
    """Match a sentence that says little more than "I'm Jonas"; nouns of German look like names."""
    match = _bare().match(content)
    return None if match is None or _TRAIT.search(match["name"]) else match


@cache
def _greeting() -> str:
    greetings = {phrase for words in lexicons() for phrase in words.greetings}
    longest_first = sorted(greetings, key=lambda phrase: (-len(phrase), phrase))
    phrases = "|".join(map(regex.escape, longest_first))
    return rf"(?i:{phrases})\b[^.?!\n]{{0,20}}?[,.!]?\s*"


@cache
def _naming() -> regex.Pattern[str]:
    opening = r"(?:[^\"'“”‘«„:]{0,40}?(?:[,;，]\s*|\b(?:and|und|y|et)\s+))?"
    return regex.compile(rf"{opening}(?:{_NAMING}{_NAME}{_END}|{_CHINESE})")


@cache
def _greeted() -> regex.Pattern[str]:
    return regex.compile(
        rf"{_greeting()}(?:{_BEING}{_NAME}{_END}|{_NAME}{_HERE})|\s*{_NAME}{_HERE}(?=\s*(?:[.,!;:–—-]|$))"
    )


@cache
def _bare() -> regex.Pattern[str]:
    being = _BEING.replace("|[Ii]ch bin(?: der| die)?", "").replace("|[Tt]his is", "")
    opening = r"(?:[Tt]his is|[Ii]['’]m|[Ii] am)\s+"
    return regex.compile(
        rf"\s*(?:{being}{_NAME}(?:, by the way|, btw)?[.!\s]*$|{opening}{_NAME}"
        r"(?:,? (?:from|and I)\b))"
    )
