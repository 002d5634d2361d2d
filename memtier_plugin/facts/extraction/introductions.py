"""Find the names by which people introduce themselves: "Hi, I'm Jonas", "me llamo Ana".  Pure.

A wording that only names people ("my name is") is enough anywhere.  "I'm" also states a trade or a
nation, so that it needs a greeting before it, or must be the whole sentence and no such word.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import regex

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.text.lexicon import lexicons

_MAX_CHARS: Final = 200  # of a sentence that are looked at
_NAME: Final = r"(?P<name>\p{Lu}[\p{Ll}\p{M}]+(?:[ -]\p{Lu}[\p{Ll}\p{M}]+){0,2})"
_END: Final = r"(?=\s*(?:[.,!;:)–—-]|$|\b(?:from|and|here|und|aus|y|de|et|du)\b))"
_NAMING: Final = (
    r"\b(?:[Mm]y (?:full )?name(?: is|['’]s)|[Ii]['’]m called|[Ii]ch hei(?:ß|ss)e|[Mm]ein Name ist|"
    r"(?:[Yy]o )?[Mm]e llamo|[Mm]i nombre es|[Jj]e m['’]appelle|[Mm]on (?:pré)?nom est)\s+"
)
_CHINESE: Final = r"我(?:的名字)?(?:叫做?|名叫)(?P<name>\p{Han}{2,4})(?=[，。！,.!\s]|$)"
_BEING: Final = r"(?:[Ii]['’]m|[Ii] am|[Ii]ch bin(?: der| die)?|[Ss]oy|[Jj]e suis)\s+"
# Endings of words for nations, beliefs and trades, which are written like names in English.
_TRAIT: Final = regex.compile(r"(?:ish|ese|[aei]an|man|ch|ic|ist|ite|im|ais|aise|ois|ien|ienne)$")


def find_introduction(entry: Entry, start: int, end: int) -> FactDraft | None:
    """Return a draft of the name that a sentence of an entry gives as its speaker's, if any."""
    sentence = entry.content[start:end][:_MAX_CHARS]
    match = _naming().match(sentence) or _greeted().match(sentence) or _alone(sentence)
    if match is None:
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
    """Match a sentence that says no more than "I'm Jonas"; nouns of German look like names."""
    match = _bare().match(content)
    return None if match is None or _TRAIT.search(match["name"]) else match


@cache
def _naming() -> regex.Pattern[str]:
    opening = r"(?:[^\"'“”‘«„:]{0,40}?(?:[,;，]\s*|\b(?:and|und|y|et)\s+))?"
    return regex.compile(rf"{opening}(?:{_NAMING}{_NAME}{_END}|{_CHINESE})")


@cache
def _greeted() -> regex.Pattern[str]:
    greetings = {phrase for words in lexicons() for phrase in words.greetings}
    longest_first = sorted(greetings, key=lambda phrase: (-len(phrase), phrase))
    greeting = "|".join(map(regex.escape, longest_first))
    return regex.compile(rf"(?i:{greeting})\b[^.?!\n]{{0,20}}?[,.!]?\s*{_BEING}{_NAME}{_END}")


@cache
def _bare() -> regex.Pattern[str]:
    being = _BEING.replace("|[Ii]ch bin(?: der| die)?", "")
    return regex.compile(rf"\s*{being}{_NAME}(?:, by the way|, btw)?[.!\s]*$")
