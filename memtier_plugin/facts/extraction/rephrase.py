"""Rephrase a simple statement in the first person as one about its speaker.  Pure.

Only "I <verb> ..." and "my <thing> ..." are rephrased, where nothing else in them is of the first
person but a possessive: whoever is quoted is never misquoted.
"""

from __future__ import annotations

import re
from typing import Final

from memtier_plugin.text.grammar import irregular_verbs
from memtier_plugin.text.lexicon import word_set

_OPENING: Final = re.compile(
    r"(?:[Ii]|[Ww]e)(?:(?P<short>['’](?:m|re|ve|ll|d)\b)|\s+(?P<adverb>(?:(?:always|never|also|only|"
    r"usually|still|now|really|just|often|no longer|already|sometimes|both|all|[a-z]{3,}ly) )*)"
    r"(?P<verb>[a-z]+(?:['’]t)?)(?!\w))"
)
_OWNED: Final = re.compile(r"(?:[Mm]y|[Oo]ur)\s+")
_FIRST: Final = re.compile(
    r"(?i)(?<![\w'’./-])(?:I|me|mine|we|us|ours|myself|ourselves)(?![\w-])|[\"“”«»]"
)
_POSSESSIVE: Final = re.compile(r"(?i)(?<![\w'’./-])(?:my|our)(?![\w'’-])")
_JOINED: Final = re.compile(r"\b(?:and|but|or|then)\b")
_FORMS: Final = {
    "'m": "is", "'re": "is", "'ve": "has", "'ll": "will", "'d": "would", "am": "is", "are": "is",
    "have": "has", "do": "does", "don't": "doesn't", "haven't": "hasn't", "aren't": "isn't",
    "weren't": "wasn't", "were": "was", "dont": "doesn't", "be": "is",
}  # fmt: skip
_SAME: Final = word_set(
    """can can't cannot will won't must mustn't shall should shouldn't may might could couldn't
    would wouldn't had hadn't was wasn't did didn't used"""
)
_PREFIX: Final = re.compile(r"(?:re|over|under|out|un|fore|mis|with)(?=\w{3})")
_NO_PAST: Final = word_set(
    """need feed speed breed seed exceed proceed embed read put set cut let hit hurt shut quit cost
    bet spread run come ground wound bore bound rose bit shot beat split burst"""
)


def in_third_person(core: str, who: str) -> str:
    """Return an English sentence about its speaker, by name; "" where that is not sure."""
    opening = _OPENING.match(core)
    if owned := _OWNED.match(core):
        start, head = owned.end(), f"{who}'s "
    elif opening is None:
        return ""
    elif opening["short"]:
        start, head = opening.end(), f"{who} {_FORMS[opening['short'].replace('’', chr(39))]}"
    else:
        start = opening.end()
        verb = _third_form(opening["verb"], core[start:])
        if not verb:
            return ""
        head = f"{who} {opening['adverb']}{verb}"
    rest = core[start:]
    return "" if _FIRST.search(rest) else head + _POSSESSIVE.sub("their", rest)


def _third_form(verb: str, rest: str) -> str:
    """Return the form of a verb in the third person; "" where that or its tense is not sure."""
    plain = verb.replace("’", "'")
    if form := _FORMS.get(plain):
        return form
    if plain in _SAME:
        return verb
    past, stem = irregular_verbs().past, _PREFIX.sub("", plain, count=1)
    if plain not in _NO_PAST and (plain in past or stem in past or plain.endswith("ed")):
        return verb
    if plain in _NO_PAST or _JOINED.search(rest):  # "I hit": then or now; "I read and write"
        return "needs" if plain == "need" and not _JOINED.search(rest) else ""
    if plain.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y\Z", plain) else f"{verb}s"
