"""A sentence about somebody made of what they said of themselves or of their own.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from memtier_plugin.text.third_person import inflect_following_verbs, inflect_verb, to_third_person

_FILLER: Final = re.compile(r" (?:both|all|even|just|also|do|kinda|sorta|actually|definitely)(?= )")


def rephrase_in_third_person(
    relation: str, match: re.Match[str], quote: str, value: str, who: str
) -> str:
    """Return the quote in the third person: a sentence that stands alone."""
    groups = match.groupdict()
    if groups.get("i") is None:
        return _rephrase_other_subject(relation, groups, quote, value, who)
    at, rest = match.start("value"), to_third_person(value)
    head = quote[match.end("i") : at]
    if be := groups.get("be"):
        head = f" is{head.removeprefix(be)}" if groups["i"] else f" is {quote[:at].lower()}"
    elif not groups["i"]:
        head = " has been " if relation == "does" else f" {quote[:at].lower()}"
        rest = rest[0].lower() + rest[1:] if at == 0 else rest
    elif have := groups.get("have"):
        head = f" has{head.removeprefix(have)}"
    elif head.startswith(("'ll", "’ll")):
        head = f" will{head[3:]}"
    elif head.startswith(("'d", "’d")):
        head = f" would{head[2:]}"
    elif verb := groups.get("verb"):
        told = inflect_verb(verb)
        if match.start("verb") >= at:
            after = rest[len(verb) :]
            rest = told + (inflect_following_verbs(after) if told != verb else after)
        else:
            cut = match.start("verb") - match.end("i")
            head = head[:cut].replace(" do ", " ") + told + head[cut + len(verb) :]
    return who + _FILLER.sub("", to_third_person(head)) + rest


def _rephrase_other_subject(
    relation: str, groups: Mapping[str, str | None], quote: str, value: str, who: str
) -> str:
    """Return what is told of other things than oneself."""
    if relation == "remember":
        return f"{who} asked to remember: {value}"
    if relation in ("always", "never"):
        return f"{who} asks: {quote[0].lower()}{to_third_person(quote[1:])}"
    if relation == "decided":
        return f"{who} decided to {to_third_person(value)}"
    if groups.get("nothing"):
        name = "the user" if who == "The user" else who
        return f"To {name}, nothing beats {to_third_person(value)}"
    if own := groups.get("own"):
        between = quote[quote.index(own) + len(own) : len(quote) - len(value)]
        if between.strip().startswith("and I"):
            return f"{who} and their {own} {to_third_person(value)}"
    name = "the user" if who == "The user" else who
    possessive = re.sub(r"^[Mm]y\b|^[Oo]ur\b", lambda _: f"{who}'s", quote)
    if groups.get("mine"):
        possessive = re.sub(r"\b(?:my|our)\b", f"{name}'s", possessive, count=1)
        stated = re.sub(rf"(?<=^{re.escape(value)})['’]s ", " is ", possessive)
        possessive = stated.rstrip(" .,!;")
    possessive = re.sub(r"\bme\b", name, possessive, count=1) if groups.get("thing") else possessive
    return possessive[0].upper() + to_third_person(possessive[1:])
