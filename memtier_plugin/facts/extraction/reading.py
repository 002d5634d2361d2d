"""Read the grammar of a sentence as far as it shows: lead, verb, whom it speaks of.  Pure."""

from __future__ import annotations

import re
from typing import Final

from memtier_plugin.facts.extraction.frames import skip_lead
from memtier_plugin.retrieval.prompt_words import names_time
from memtier_plugin.text.dates.annotate import has_date
from memtier_plugin.text.grammar import irregular_verbs
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.phrases import Words
from memtier_plugin.text.speech import without_receipts
from memtier_plugin.text.traits import is_standing_instruction, may_be_imperative

_SUBJECT: Final = 9  # words within which the verb of a sentence stands
_SPECIFIC: Final = re.compile(r"\d|`[^`]+`|/[\w.-]|\w\.\w|[$€£¥%]")
_CLITIC: Final = frozenset(["it", "that", "there", "here", "what", "who"])
_PLURALS: Final = frozenset(
    {"children", "people", "men", "women", "kids", "we", "you", "they"}
    | {"will", "can", "must", "may", "not"}
)
_OWN: Final = frozenset(["i", "we"])
_LEADS: Final = 3  # words that only lead to a sentence, at most
_AFTER_CUE: Final = re.compile(r"\s*(?:[,:：，–—-]|that\b|dass\b|daß\b|que\b|qu['’])\s*", re.I)
_THAT: Final = re.compile(r"(?i)\b(?:that|dass|daß|que)\Z")
_TAG: Final = re.compile(r"[,;，；–—-]\s*(?=[^,;，；–—]{3,40}\Z)")
_TAG_CHARS: Final = 44
_ONE_THING: Final = re.compile(
    r"(?i)[a-z]{2,} (?:(?:the|an?|my|our|this|that|these|those) \w|us\b)"
)
_NEW_THING: Final = re.compile(r"(?i)[a-z]+ (?:me )?(?:an?|about|some|(?:the )?top|\d+) \w")
_NO_VERB: Final = re.compile(r"(?:[^s]s|ly)\Z|\Alet\Z")
_LASTING: Final = re.compile(
    r"\b(?:to|into) (?:(?:the|an?|my|our) )?(?:[A-Z]|\S*\d|[$€£`/]|(?:next|end of) )"
    r"|\b(?i:every|each)\b"
)
_POINTING: Final = 3  # words within which a pronoun is what the sentence is about


def without_lead(sentence: Words) -> tuple[Words, int]:
    """Return a sentence without what only leads to it ("For the record, ..."), and its start."""
    text = sentence.text
    start = len(text) - len(without_receipts(text))
    for _ in range(_LEADS):
        rest = Words.of(text[start:], sentence.language)
        if sentence.language == "english" and rest.opens("rule_openers") is None:
            start = skip_lead(text, start, len(text))
            rest = Words.of(text[start:], sentence.language)
        polite = rest.opens("politeness") or 0
        clause = Words.of(rest.text[polite:], sentence.language)
        end = clause.opens("keep_cues")  # "please tell everyone that ..."
        lead = None if end is None else _AFTER_CUE.match(clause.text, end)
        announced = end is not None and _THAT.search(clause.text[:end]) is not None
        if end is None or not (lead or announced or sentence.unspaced):
            break
        start += polite + (lead.end() if lead else end)
    end = len(text)
    if tag := _TAG.search(text, max(start, end - _TAG_CHARS)):  # "..., please remember that."
        clause = Words.of(text[tag.end() :], sentence.language)
        closed = max(clause.opens("keep_cues") or 0, clause.opens("politeness") or 0)
        rest = Words.of(clause.text[closed:], sentence.language)
        if closed and len(rest.words) <= 1:
            end = tag.start()
    return Words.of(text[start:end].rstrip(), sentence.language), start


def speaks_of_self(words: Words) -> bool:
    """Return whether a sentence speaks of its speaker anywhere."""
    classes = lexicon(words.language)
    pronouns = classes.first_person | classes.first_possessive
    if words.unspaced:
        return any(word in words.text for word in pronouns)
    drops = classes.pro_drop and words.words[:1] and words.words[0] in classes.stating_verbs
    return bool(drops) or not pronouns.isdisjoint(words.words)


def orders(words: Words) -> bool:
    """Return whether a sentence opens like an order that holds for good."""
    polite = words.opens("politeness") or 0
    clause = Words.of(words.text[polite:].lstrip(" ,，"), words.language)
    return any(w.opens("rule_openers") is not None for w in (words, clause)) or (
        clause.opens("order_openers") is not None
    )


def holds(words: Words) -> bool:
    """Return whether what a sentence orders or settles is for good, not for this once."""
    lasting = words.has("rule_cues") or _LASTING.search(words.text) is not None
    return lasting or is_standing_instruction(words.text)


def asks_once(words: Words) -> bool:
    """Return whether a sentence asks for one action that sets no lasting value.

    "Track the parcel", "Switch us to the new plan", "Write a poem"; not "Keep the door shut",
    "Rotate the key every month", or "Move the launch to May", which tell how things are then.
    """
    if words.language != "english" or holds(words) or words.has("decision_cues"):
        return False
    polite = words.opens("politeness") or 0
    clause = Words.of(words.text[polite:].lstrip(" ,"), words.language)
    if orders(words):
        return clause.opens("task_verbs") is not None and bool(_NEW_THING.match(clause.text))
    if not _ONE_THING.match(clause.text) or has_date(clause.text):
        return False
    if clause.opens("edit_verbs") or clause.opens("task_verbs"):
        return True
    (verb, thing), classes = clause.words[:2], lexicon(words.language)
    if (
        thing == "us"
        or verb in classes.stop_words | classes.polar | classes.phrase_starters
        or _NO_VERB.search(verb)
    ):
        return False
    return may_be_imperative(verb, words.language) and find_verb(clause) is None


def points_back(words: Words) -> bool:
    """Return whether a sentence is about something that the one before it names."""
    classes = lexicon(words.language)
    if words.unspaced:
        return words.text.startswith(("它", "这", "那", "他", "她"))
    pronouns = classes.anaphors | classes.third_person | classes.pointing_words
    if any(names_time((word, frozenset()), words.language) for word in words.words[1:2]):
        return False  # "this week"
    if not (classes.definite | {*classes.articles}).isdisjoint(words.words[:1]):  # "das Haus"
        return words.words[0] in pronouns and not classes.copulas.isdisjoint(words.words[1:2])
    if not (classes.pointing_words | {"one"}).isdisjoint(words.words[-1:]):
        return True  # "we use it", "I prefer this one"
    return not pronouns.isdisjoint(words.words[:1]) or (
        words.words[:1] in {("and",), ("but",), ("so",)}
        and not pronouns.isdisjoint(words.words[:_POINTING])
    )


def find_verb(words: Words) -> tuple[int, int] | None:
    """Return where the verb of a sentence stands that its subject is followed by."""
    if not words.words:
        return None
    if words.unspaced:
        return _find_unspaced_verb(words)
    classes = lexicon(words.language)
    verbs = classes.stating_verbs | classes.copulas
    past = irregular_verbs().past if words.language == "english" else frozenset()
    determined = words.words[0] in classes.definite | classes.first_possessive
    for index in range(2 if determined else 1, min(_SUBJECT, len(words.words))):
        token = words.tokens[index]
        known = token.text in verbs or token.text in past or _is_regular_past(words, token.text)
        if known and not _is_within_subject(words, index, verbs):
            return token.start, token.end
    return _likely_verb(words)


def is_past(words: Words, verb: tuple[int, int]) -> bool:
    """Return whether an English verb tells of something past, other than how it was."""
    form = words.text[slice(*verb)].casefold()
    if words.language != "english" or form in lexicon(words.language).stating_verbs:
        return False
    had = form == "got" and words.words[1:2] == ("ve",)  # "I've got a dog"
    return not had and (form in irregular_verbs().past or form.endswith("ed"))


def _find_unspaced_verb(words: Words) -> tuple[int, int] | None:
    verbs = lexicon(words.language).stating_verbs
    places = [(at, -len(verb)) for verb in verbs if (at := words.text.find(verb)) > 0]
    at, size = min(places, default=(-1, 0))
    return (at, at - size) if at > 0 else None


def _is_regular_past(words: Words, word: str) -> bool:
    return words.language == "english" and len(word) > 4 and word.endswith("ed")


def _is_within_subject(words: Words, index: int, verbs: frozenset[str]) -> bool:
    """Return whether a word that may be a verb is part of a noun ("go-live", "Jo's visit")."""
    token, before = words.tokens[index], words.words[index - 1]
    text = words.text
    if text[token.start - 1] == "-" or text[token.end : token.end + 1] == "-":
        return True
    if words.language != "english" or words.words[0] in _OWN:
        return False
    if token.text == "s":
        return before not in _CLITIC
    plural = before.endswith("s") and before != "s"
    return f"{token.text}s" in verbs and not plural and before not in _PLURALS


def _likely_verb(words: Words) -> tuple[int, int] | None:
    """Return the second word where it looks like an English verb ("Caddy serves ...")."""
    if words.language != "english" or len(words.tokens) < 4:
        return None
    token = words.tokens[1]
    inflected = token.text.endswith("s") and not token.text.endswith(("ss", "us", "is"))
    likely = inflected and len(token.text) > 4 and _SPECIFIC.search(words.text)
    return (token.start, token.end) if likely else None
