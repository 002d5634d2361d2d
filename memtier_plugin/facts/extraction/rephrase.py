"""Rephrase a statement in the first person as a sentence about its speaker.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_FILLER: Final = re.compile(r" (?:both|all|even|just|also|do|kinda|sorta|actually|definitely)(?= )")
_PRONOUNS: Final = {
    "i": "they", "we": "they", "me": "them", "us": "them", "my": "their", "our": "their",
    "mine": "theirs", "ours": "theirs", "myself": "themselves", "ourselves": "themselves",
    "i'm": "they are", "we're": "they are", "i've": "they have", "we've": "they have",
    "i'll": "they will", "we'll": "they will",
    "i'd": "they would", "we'd": "they would", "im": "they are", "ive": "they have",
}  # fmt: skip
_WORD: Final = re.compile(r"(?<![\w'’./-])[A-Za-z]+(?:['’][a-z]+)?(?![\w'’-])")
_QUOTED: Final = re.compile(r"(\"[^\"]*\"|“[^”]*”|`[^`]*`)")
_NUMERAL: Final = re.compile(r"\b(?:[A-Z][a-z]+ ){2}\Z|\b(?:Part|Book|War|Level|Phase|Type) \Z")
# "Acts I and II", "Class I.": of a subject, a verb would follow.
_NUMBERED: Final = re.compile(r"\b(?!(?:And|Or|But|As|Than|So|Do|Am)\b)[A-Z][a-z]+ \Z")
_NO_VERB: Final = re.compile(r"\s*(?:[.,;:)]|\Z)| (?:and|or|to|&) [IVX]+\b")
_BE: Final = re.compile(r"(?<![\w'’./-])[Ii] (am|was)\b")
_INFLECTED: Final = {
    "have": "has", "be": "is", "don't": "doesn't", "dont": "doesn't", "do not": "does not",
    "wanna": "wants to",
}  # fmt: skip
_PAST: Final = re.compile(
    r"\w+ed|thought|knew|had|was|went|got|saw|felt|made|took|came|found|gave|told|said|did|kept"
    r"|wrote|written|ran|met|left|lost|been|done|seen|can|will|must|grew|fell|swore"
)
_NO_PAST: Final = frozenset(
    ["need", "feed", "speed", "breed", "seed", "exceed", "proceed", "embed"]
)
# Verbs that follow a first one: "I usually watch a film and go to bed".
_ALSO: Final = re.compile(
    r"(?P<before>(?:,| and| or| then) (?:and |then |or )?)(?P<verb>bake|bring|build|buy|call|care|"
    r"clean|collect|cook|create|dance|discuss|do|draw|drink|drive|eat|enjoy|explore|feed|find|"
    r"follow|get|give|go|grab|grow|hang|have|help|hike|hit|invite|join|keep|knit|learn|like|listen|"
    r"live|look|love|make|meditate|meet|order|paint|plan|play|practi[cs]e|prepare|put|read|relax|"
    r"ride|run|sell|share|sing|sit|sleep|spend|start|stay|stop|study|swim|take|talk|teach|train|"
    r"travel|try|use|visit|volunteer|wake|walk|wash|watch|wear|work|write)(?=[ ,]|\Z)"
)


def rephrase_in_third_person(
    relation: str, match: re.Match[str], quote: str, value: str, who: str
) -> str:
    """Rephrase a quote as a sentence about ``who``, from the match of a statement pattern."""
    groups = match.groupdict()
    if groups.get("i") is None:
        return _rephrase_other_subject(relation, groups, quote, value, who)
    start, rest = match.start("value"), to_third_person(value)
    head = quote[match.end("i") : start]
    if be := groups.get("be"):
        head = f" is{head.removeprefix(be)}" if groups["i"] else f" is {quote[:start].lower()}"
    elif not groups["i"]:
        head = " has been " if relation == "does" else f" {quote[:start].lower()}"
        rest = rest[0].lower() + rest[1:] if start == 0 else rest
    elif have := groups.get("have"):
        head = f" has{head.removeprefix(have)}"
    elif head.startswith(("'ll", "’ll")):
        head = f" will{head[3:]}"
    elif head.startswith(("'d", "’d")):
        head = f" would{head[2:]}"
    elif verb := groups.get("verb"):
        inflected = inflect_verb(verb)
        if match.start("verb") >= start:
            after = rest[len(verb) :]
            rest = inflected + (inflect_following_verbs(after) if inflected != verb else after)
        else:
            cut = match.start("verb") - match.end("i")
            head = head[:cut].replace(" do ", " ") + inflected + head[cut + len(verb) :]
    return who + _FILLER.sub("", to_third_person(head)) + rest


def _rephrase_other_subject(
    relation: str, groups: Mapping[str, str | None], quote: str, value: str, who: str
) -> str:
    """Rephrase a statement whose subject is not the speaker, or an instruction."""
    name = "the user" if who == "The user" else who
    if relation == "remember":
        return f"{who} asked to remember: {value}"
    if relation in ("always", "never"):
        return f"{who} asks: {quote[0].lower()}{to_third_person(quote[1:])}"
    if relation == "decided":
        return f"{who} decided to {to_third_person(value)}"
    if groups.get("nothing"):
        return f"To {name}, nothing beats {to_third_person(value)}"
    if own := groups.get("own"):
        between = quote[quote.index(own) + len(own) : len(quote) - len(value)]
        if between.strip().startswith("and I"):
            return f"{who} and their {own} {to_third_person(value)}"
    possessive = re.sub(r"^[Mm]y\b|^[Oo]ur\b", lambda _: f"{who}'s", quote)
    if groups.get("mine"):
        possessive = re.sub(r"\b(?:my|our)\b", f"{name}'s", possessive, count=1)
        stated = re.sub(rf"(?<=^{re.escape(value)})['’]s ", " is ", possessive)
        possessive = stated.rstrip(" .,!;")
    possessive = re.sub(r"\bme\b", name, possessive, count=1) if groups.get("thing") else possessive
    return possessive[0].upper() + to_third_person(possessive[1:])


def to_third_person(text: str) -> str:
    """Replace the first person in a text by the third, except in quotations."""

    def swap(word: re.Match[str]) -> str:
        if word[0] == "US" or (word[0] == "I" and _is_numeral(word)):
            return word[0]
        return _PRONOUNS.get(word[0].replace("’", "'").lower(), word[0])

    parts = _QUOTED.split(text)  # titles stay as they are
    parts[::2] = [
        _WORD.sub(swap, _BE.sub(lambda be: "they are" if be[1] == "am" else "they were", part))
        for part in parts[::2]
    ]
    return "".join(parts)


def _is_numeral(word: re.Match[str]) -> bool:
    """Tell whether an "I" is a number: "World War I", "Acts I and II"."""
    if _NUMERAL.search(word.string, 0, word.start()):
        return True
    numbered = _NUMBERED.search(word.string, 0, word.start())
    return numbered is not None and _NO_VERB.match(word.string, word.end()) is not None


def inflect_verb(verb: str) -> str:
    """Inflect a verb from the first to the third person; a past form stays."""
    plain = verb.replace("’", "'")
    if plain in _INFLECTED:
        return _INFLECTED[plain]
    if _PAST.fullmatch(plain) and plain not in _NO_PAST:
        return verb
    if plain.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y\Z", plain) else f"{verb}s"


def inflect_following_verbs(rest: str) -> str:
    """Inflect the verbs that are coordinated with an inflected verb before the text."""
    return _ALSO.sub(lambda match: match["before"] + inflect_verb(match["verb"]), rest)
