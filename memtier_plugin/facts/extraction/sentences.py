"""Find the sentences that a writer means seriously, and parse their grammar.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final, Literal

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.retrieval.pasted_text import pasted_spans
from memtier_plugin.retrieval.prompt_words import likeliest_language, names_time, split_words
from memtier_plugin.text.dates.spans import has_date
from memtier_plugin.text.languages import iter_sentence_spans
from memtier_plugin.text.lexicon import LANGUAGES, irregular_verbs, lexicon
from memtier_plugin.text.phrases import (
    Words,
    is_standing_instruction,
    may_be_imperative,
    without_receipts,
)

# -- Find the sentences of a message that are its writer's own and meant seriously.  Pure
#
# Excluded are code and quotations, forwarded mail and transcripts, texts to be edited, examples,
# and anything to be imagined, played or invented.

MAX_SENTENCE: Final = 400  # characters
_MAX_SENTENCES: Final = 120  # of a message that are read
_LANGUAGE_WORDS: Final = 40  # used to detect the language of a sentence
_LEAD: Final = re.compile(
    r"(?:and|but|so|also|plus)\s+|"
    r"(?:(?:yeah|yes|yep|yup|yea|no|nope|nah|well|so|also|and|but|oh|ooh|ah|aw+|hey|hi|hello|wow|"
    r"woah|whoa|actually|by the way|btw|fyi|anyway|plus|honestly|thanks(?: so much| a lot)?|thank "
    r"you|sure|okay|ok|haha|lol|for me|as for me|in fact|lately|these days|nowadays|right now|"
    r"currently|at the moment|luckily|unfortunately|sadly|fortunately|thankfully|of course|"
    r"definitely|absolutely|totally|exactly|true|same here|cool|awesome|nice|great|right|omg|hmm+|"
    r"uh|um|then|since then|after that|besides|personally|basically|apparently|overall|anyways|hi "
    r"there|to be honest|not gonna lie|in addition|additionally|recently|ever since)\b(?:"
    r"[,!:.-]+\s+|"
    r"\s+(?=(?:I|we|my|our|the|a|in|on|please|never|always|don|do)\b|I['’]))|"
    r"(?-i:(?!Yesterday|Today|Tonight|Tomorrow)[A-Z][a-z]+)[,!]\s+(?=(?:I|we|my|our)\b)"
    r"(?!(?:my|our)(?:\s+\w+){1,3},)|"  # "Zoe, my aunt, ..." says who she is
    r"my \w+(?: \w+)?,\s+(?=(?:I|we|you|let['’]s)\b)|[-*•]\s+|"
    r"\d+[.)]\s+)",
    re.IGNORECASE,
)
CODE_LINE: Final = re.compile(
    r"\s*(?:[>$|<{}#@]|//|\(?\w+\)?[$#] |(?:    |\t)\S|at \S+\(|File \"|Traceback|import "
    r"|def |class |from \S+ import|(?:const|let|var|return|function|public|private|export) )"
    r"|[^\n]*(?:[;{}]|\(\):?|=>)\s*\Z"
)
# A name with its statement, or a field of a form: several of them are not sentences.
_TURN: Final = regex.compile(
    r"(?m)^[ \t]*(?:\[?\d{1,2}[:.]\d\d[^\]\n]{0,12}\]?[ \t]*)?(?P<who><?\p{Lu}[\w.-]+(?: "
    r"\p{Lu}[\w.-]+)?>?)"
    r"(?: \([^)\n]{1,20}\))?[:：][ \t]+\S[^\n]*"
)
_QUOTED: Final = regex.compile(
    r"\"[^\"\n]+\"|“[^“”\n]+”|«[^«»\n]+»|„[^„“”\n]+[“”]|「[^「」\n]+」|『[^『』\n]+』"
)
_QUOTE_OPENS: Final = regex.compile(r"[:：]\s*[\"“«„「『]")
_MOST: Final = 0.5  # share of a sentence's characters that is quoted
_COLON: Final = regex.compile(r"[:：]\s")
_CLAUSE: Final = regex.compile(r"[;,:：；，]\s*|\s[-–—]\s")
_LIST_MARK: Final = regex.compile(
    r"\s*(?:[-*•●○▪‣·]\s+|\d{1,2}[.)]\s+)?(?:\*\*[^*\n]{1,40}:\*\*\s+|\*\*[^*\n]{1,40}\*\*:\s+)?"
)
# Speech quoted over several sentences, and role play: "[She nods.]".
_SPEECH: Final = regex.compile(
    r"“[^“”\n]*?[.!?…]\s[^“”\n]*”|(?<!\S)\"[^\"\n]*?[.!?…]\s[^\"\n]*\"|(?<!\S)\[[^\[\]\n]{12,}\]|"
    r"(?<!\S)\([^()\n]{8,}\)(?=\s|$)"
)
_UNFINISHED: Final = regex.compile(r"[\p{L}\p{N},]\s*\Z")
_GOES_ON: Final = regex.compile(r"\s*\p{Ll}")
Scope = Literal["", "sentence", "rest", "message"]  # how much of the text is not meant seriously


@dataclass(frozen=True, slots=True)
class Asserted:
    """A seriously meant sentence, without its list mark, and its position."""

    start: int
    end: int
    words: Words


def find_asserted(content: str) -> list[Asserted]:
    """Return the sentences that a message's writer means seriously, including questions."""
    pasted = _pasted(content)
    sentences: list[Asserted] = []
    for start, end in islice(_prose(content, pasted), _MAX_SENTENCES):
        words = read_words(content[start:end])
        match _unasserted(words):
            case "message":
                return []
            case "rest":
                return sentences
            case "sentence":
                continue
        sentences.append(Asserted(start, end, words))
    return sentences


def read_words(sentence: str) -> Words:
    """Return a sentence as the words of its language."""
    head = sentence[:MAX_SENTENCE]
    units = split_words(head)[:_LANGUAGE_WORDS]
    return Words.of(sentence, likeliest_language(head, units, _known_languages()))


@cache
def _known_languages() -> frozenset[str]:
    """Return the languages whose statements are read."""
    return frozenset(name for name in LANGUAGES if lexicon(name).definite)


def _pasted(content: str) -> bytearray:
    """Return which characters were pasted or are quoted speech, not the writer's own words."""
    pasted = bytearray(len(content))
    turns = [*_TURN.finditer(content)]
    several = len({turn["who"] for turn in turns}) > 1
    speeches = (*(turns if several else ()), *_SPEECH.finditer(content))
    for start, end in (*pasted_spans(content), *(speech.span() for speech in speeches)):
        pasted[start:end] = b"\1" * (end - start)
    return pasted


def _prose(content: str, pasted: bytearray) -> Iterator[tuple[int, int]]:
    """Yield the sentences in lines that are neither code nor pasted."""
    end, fenced = 0, False
    unfinished = False
    for line in content.splitlines(keepends=True):
        start, end = end, end + len(line)
        goes_on = unfinished and _GOES_ON.match(line) is not None
        unfinished = _UNFINISHED.search(line) is not None
        ends_below = unfinished and _GOES_ON.match(content, end) is not None
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not (fenced or CODE_LINE.match(line)):
            for left, right in iter_sentence_spans(line):
                left, right = start + left, start + right
                at_front = not content[start:left].strip()
                at_end = not content[right:end].strip()
                if (goes_on and at_front) or (ends_below and at_end):
                    continue  # a fragment of a sentence split by a line break
                left += _mark_size(content[left:right])
                right = left + len(content[left:right].rstrip())
                if left < right and not any(pasted[left:right]):
                    yield left, right


def _mark_size(sentence: str) -> int:
    mark = _LIST_MARK.match(sentence)
    return mark.end() if mark else 0


def _unasserted(words: Words) -> Scope:
    """Return how much of the text a sentence introduces as not meant seriously."""
    text = words.text
    introduces = _COLON.search(text) or text.rstrip().endswith((":", "："))
    if _invents(words):
        return "message"
    if words.opens("fiction_openers") is not None:
        first = words.words[0] if words.words else ""
        alone = first in lexicon(words.language).conditionals or text.endswith(("?", "？"))
        return "sentence" if alone else "rest"
    if _opens_task(words) or words.opens("source_openers") is not None or words.has("sample_cues"):
        return "rest" if introduces else "sentence"
    if _QUOTE_OPENS.search(text):
        return "rest"
    quoted = sum(len(match[0]) for match in _QUOTED.finditer(text))
    return "sentence" if quoted > _MOST * len(text) else ""


def _opens_task(words: Words) -> bool:
    """Return whether a sentence requests a piece of work, rather than a rule to be kept."""
    if words.opens("rule_openers") is not None or words.opens("order_openers") is not None:
        return False
    after = words.opens("politeness")
    clause = words if after is None else Words.of(words.text[after:].lstrip(" ,，"), words.language)
    if clause.opens("rule_openers") is not None or clause.opens("keep_cues") is not None:
        return False
    return clause.opens("task_verbs") is not None and not words.has("keep_cues")


def _invents(words: Words) -> bool:
    """Return whether a clause of a sentence asks to invent, or to continue, a story."""
    if not words.has_word("fiction_nouns"):
        return False
    makers = lexicon(words.language).making_verbs
    if words.unspaced:
        return any(verb in words.text for verb in makers)
    starts = {0, *(clause.end() for clause in _CLAUSE.finditer(words.text))}
    polite = words.opens("politeness")
    if polite is not None:
        starts.add(polite + 1)
    return any(token.text in makers and token.start in starts for token in words.tokens)


def skip_lead(content: str, left: int, right: int) -> int:
    """Return where a clause begins after introductory words ("well, actually")."""
    while left < right and (lead := _LEAD.match(content, left, right)):
        left = lead.end()
    return left


# -- Parse a sentence's grammar as far as possible: lead, verb, subject.  Pure

_SUBJECT: Final = 9  # words within which the verb of a sentence must occur
_SPECIFIC: Final = re.compile(r"\d|`[^`]+`|/[\w.-]|\w\.\w|[$€£¥%]")
_CLITIC: Final = frozenset(["it", "that", "there", "here", "what", "who"])
_PLURALS: Final = frozenset(
    {"children", "people", "men", "women", "kids", "we", "you", "they"}
    | {"will", "can", "must", "may", "not"}
)
_OWN: Final = frozenset(["i", "we"])
_LEADS: Final = 3  # introductory words
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
_POINTING: Final = 3  # words within which a pronoun is the subject


def without_lead(sentence: Words) -> tuple[Words, int]:
    """Return a sentence without its introduction ("For the record, ..."), and its start."""
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
    """Return whether a sentence mentions its speaker."""
    classes = lexicon(words.language)
    pronouns = classes.first_person | classes.first_possessive
    if words.unspaced:
        return any(word in words.text for word in pronouns)
    drops = classes.pro_drop and words.words[:1] and words.words[0] in classes.stating_verbs
    return bool(drops) or not pronouns.isdisjoint(words.words)


def orders(words: Words) -> bool:
    """Return whether a sentence opens like a permanent order."""
    polite = words.opens("politeness") or 0
    clause = Words.of(words.text[polite:].lstrip(" ,，"), words.language)
    return any(w.opens("rule_openers") is not None for w in (words, clause)) or (
        clause.opens("order_openers") is not None
    )


def holds(words: Words) -> bool:
    """Return whether a sentence's order or decision is permanent, not for this once."""
    lasting = words.has("rule_cues") or _LASTING.search(words.text) is not None
    return lasting or is_standing_instruction(words.text)


def asks_once(words: Words) -> bool:
    """Return whether a sentence asks for a single action that sets no lasting value.

    "Track the parcel", "Switch us to the new plan", "Write a poem"; not "Keep the door shut",
    "Rotate the key every month", or "Move the launch to May", which describe a lasting state.
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
    """Return whether a sentence is about something named in the previous one."""
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
    """Return the span of the verb that follows a sentence's subject."""
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
    """Return whether an English verb reports a past event, rather than a past state."""
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
    """Return the second word if it looks like an English verb ("Caddy serves ...")."""
    if words.language != "english" or len(words.tokens) < 4:
        return None
    token = words.tokens[1]
    inflected = token.text.endswith("s") and not token.text.endswith(("ss", "us", "is"))
    likely = inflected and len(token.text) > 4 and _SPECIFIC.search(words.text)
    return (token.start, token.end) if likely else None
