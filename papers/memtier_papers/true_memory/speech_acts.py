"""What a line does as speech: it acknowledges, asks, commits its speaker, or puts right.  Pure.

After True Memory (section 4.1, salience and the categories of eq. 1).  The words are those of the
lexicons.  The paper scores lines of up to 50 characters by their kind of speech and longer ones by
length, numbers, dates and signs of emotion; here these add to the kind of speech, so that there is
no step between 50 and 51 characters.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Final, Literal

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.dates.reading import find_stated_dates
from memtier_plugin.text.languages import detect_language, iter_sentences
from memtier_plugin.text.lexicon import LANGUAGES, WordSet, denials, lexicon, words_of
from memtier_plugin.text.phrases import Words, only_acknowledges, only_asks
from memtier_plugin.text.tokenizer import plain_words

MAX_CHARS: Final = 4_000  # of a line that are read
_SHORT: Final = 50  # characters up to which the kind of speech alone counts
_LONG: Final = 300  # characters beyond these from which a line is as long as can be
_DETAIL: Final = 0.5  # of what a kind of speech leaves to 1 that details can add
_STOPS: Final = ",:;.!–—-…，、：；。！ "
_CLAUSE: Final = re.compile(r"[,;:，；：]\s+|\s[-–—]+\s")
_STATED: Final = 3  # words after an opener from which they state something
_DENIED: Final = 4  # words that a contrast denies, at most
_FEELING: Final = regex.compile(r"[!！]|\p{Extended_Pictographic}")

Category = Literal["correction", "decision", "relationship", ""]


def salience(text: str) -> float:
    """Return how much a line commits its speaker, by its kind of speech, 0 to 1.

    Acknowledgements .02, questions .2, commitments and events in the speaker's life .8, corrections
    and changes .6; other statements .25, and .5 from five words on.  From 50 characters on, length,
    numbers, dates and signs of emotion add up to half of what is left to 1.
    """
    kind = _salience_of_kind(text)
    spare = len(text.strip()) - _SHORT
    if spare <= 0 or kind <= _NOISE:
        return kind
    beginning = text[:MAX_CHARS]
    details = (
        min(1.0, spare / _LONG),
        any(map(str.isdigit, beginning)),
        bool(find_stated_dates(beginning)),
        bool(_FEELING.search(beginning)),
    )
    return kind + (1.0 - kind) * _DETAIL * sum(details) / len(details)


_NOISE: Final = 0.02


def _salience_of_kind(text: str) -> float:
    if only_acknowledges(text):
        return _NOISE
    if only_asks(text):
        return 0.2
    if commits(text):
        return 0.8
    if corrects(text) or _changes(text):
        return 0.6
    return 0.5 if len(plain_words(text[:MAX_CHARS])) >= 5 else 0.25


def category(text: str) -> Category:
    """Return the category of a line that lowers its threshold, or ""."""
    if only_asks(text):
        return ""
    if corrects(text):
        return "correction"
    if _reading(text).has("decision_cues"):
        return "decision"
    return "relationship" if _has_any(text, words_of("kinship")) else ""


def commits(text: str) -> bool:
    """Return whether a line binds its speaker, or reports an event in the speaker's life."""
    reading = _reading(text)
    if reading.has("doubt_cues"):
        return False
    if reading.has("commitment_cues"):
        return True
    has_done = reading.has("decision_cues") or _has_any(text, words_of("event_verbs"))
    return has_done and _has_any(text, _first_person())


def corrects(text: str) -> bool:
    """Return whether a line puts right what was said before: "No, the port is 8081, not 8080"."""
    reading = _reading(text)
    return reading.has("correction_cues") or any(
        _opens_correction(sentence, reading.language) or _contrasts(sentence, reading.language)
        for sentence in iter_sentences(reading.text)
    )


def _opens_correction(sentence: str, language: str) -> bool:
    """Return whether a sentence denies or interrupts, and then states something.

    A denial needs a comma ("no problem"), and what is itself denied or begins with "but" only
    answers ("No, I never did").
    """
    opening = Words.of(sentence.lstrip(), language)
    denied = opening.opens("denial_openers")
    end = opening.opens("correction_openers") if denied is None else denied
    if end is None or "?" in sentence:
        return False
    rest = opening.text[end:]
    stated = rest.lstrip(_STOPS)
    if opening.unspaced:
        return bool(stated)
    words = Words.of(stated, language).words
    if denied is not None:
        answers = words[:1] and words[0] in lexicon(language).contrasts
        if answers or rest.lstrip()[:1] not in _STOPS or not denials().isdisjoint(words):
            return False
    return len(words) >= _STATED and not only_acknowledges(stated)


def _contrasts(sentence: str, language: str) -> bool:
    """Return whether a clause denies a thing beside another: "..., not Leeds", "not Leeds, ..."."""
    if not lexicon(language).contrast_denials or sentence.rstrip().endswith("?"):
        return False
    clauses = [Words.of(clause.strip(), language) for clause in _CLAUSE.split(sentence)]
    for index, (before, clause) in enumerate(pairwise([None, *clauses])):
        assert clause is not None
        end = clause.opens("contrast_denials")
        denied = Words.of(clause.text[end:], language) if end is not None else None
        if denied is None or not 1 <= len(denied.words) <= _DENIED:
            continue
        if denied.opens("present_cues"):  # "not just", "not yet"
            continue
        is_last, is_first = index == len(clauses) - 1, before is None
        if (is_last and not is_first) or (is_first and not is_last and _names(denied)):
            return True
    return False


def _names(denied: Words) -> bool:
    """Return whether words begin like a thing: with an article, a possessive, a name, a number."""
    words, first = lexicon(denied.language), denied.words[0]
    heads = words.definite.union(words.articles, words.first_possessive)
    return first in heads or not denied.text.lstrip()[0].islower()


def _changes(text: str) -> bool:
    """Return whether a line says that something has changed, or is over."""
    reading = _reading(text)
    return reading.has("change_cues") or reading.has("ending_cues")


def _reading(text: str) -> Words:
    language = detect_language(text[:MAX_CHARS])
    return Words.of(text[:MAX_CHARS], language if language in LANGUAGES else "english")


def _has_any(text: str, words: WordSet) -> bool:
    return not words.isdisjoint(plain_words(text[:MAX_CHARS]))


@cache
def _first_person() -> WordSet:
    return words_of("first_person") | words_of("first_possessive")
