"""Traits of a text that the index keeps: standing instructions, quotable lines.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

from memtier_plugin.core.records import Entry
from memtier_plugin.text.grammar import common_words, irregular_verbs
from memtier_plugin.text.languages import iter_sentences
from memtier_plugin.text.lexicon import LANGUAGES, lexicon
from memtier_plugin.text.phrases import Words

_BEGINNING: Final = 400  # characters within which an instruction is stated
_CLAUSE: Final = re.compile(r"[,;:，；：]\s*")
_WORD: Final = re.compile(r"[\w']+")
_IMPERATIVES: Final = ("order_openers", "task_verbs", "edit_verbs")
_MIN_LETTERS: Final = 4  # of an order without spaces between words
_LEADS: Final = 3  # words of politeness and openers that may stand before a verb


def is_standing_instruction(text: str) -> bool:
    """Return whether a user's words give an order that holds for good."""
    return bool(find_orders(text))


def find_orders(text: str) -> str:
    """Return the sentences of a text that give an order for good: a verb, and what it is done to.

    "Never mind" and "always a pleasure" are none.
    """
    return _find_orders(text[:_BEGINNING])


@lru_cache(256)
def _find_orders(beginning: str) -> str:
    languages = _cued(beginning, LANGUAGES)
    if not languages:
        return ""
    sentences = (s for line in beginning.splitlines() for s in iter_sentences(line))
    orders = (s for s in sentences if any(_orders(s, name) for name in _cued(s, languages)))
    return " ".join(sentence.strip() for sentence in orders)


def _cued(text: str, languages: Sequence[str]) -> list[str]:
    """Return the languages of which a text has letters that say that an order is for good."""
    folded = _fold(text)
    return [name for name in languages if any(map(folded.__contains__, _lasting(name)))]


def _fold(text: str) -> str:
    return text.casefold().replace("’", "'")


@cache
def _lasting(language: str) -> frozenset[str]:
    """Return how a language says that an order is for good: "always", "from now on"."""
    words = lexicon(language)
    lasting = words.general_words.union(words.moment_cues, words.first_person)
    cues = {cue for cue in words.rule_openers if not lasting.isdisjoint(cue.split())}
    cues |= {
        cue
        for cue in {*words.rule_openers} & {*words.rule_cues}
        if cue in words.general_words or cue.split()[0] not in words.negations
    }
    return frozenset(c for c in cues if not any(f" {o} " in f" {c} " for o in cues - {c}))


def _orders(sentence: str, language: str) -> bool:
    """Return whether a clause of a sentence is an order for good."""
    # "From now on, when you name things, ..." opens a sentence that is for good as a whole.
    end = Words.of(sentence, language).opens("rule_openers")
    is_whole = end is not None and _fold(sentence[:end]).strip() not in lexicon(language).rule_cues
    starts = [0, *(match.end() for match in _CLAUSE.finditer(sentence))]
    return any(_is_order(sentence, start, is_whole, language) for start in starts)


def _is_order(sentence: str, start: int, is_whole: bool, language: str) -> bool:
    """Return whether a clause is a lasting order: a verb and its object, after any opener."""
    led, rest = is_whole, Words.of(sentence[start:], language)
    for _ in range(_LEADS):
        if opens_imperative(rest):
            break
        polite, opened = rest.opens("politeness") or 0, rest.opens("rule_openers") or 0
        if not (polite or opened):
            break
        led = led or opened > polite
        rest = Words.of(rest.text[max(polite, opened) :].lstrip(" ,:;，"), language)
    clause = Words.of(_CLAUSE.split(rest.text)[0], language)
    end = len(sentence) - len(rest.text) + len(clause.text)
    stated, cues = _fold(sentence[0 if is_whole else start : end]), _lasting(language)
    if rest.unspaced:
        letters = len(clause.text.strip(" 。.!！"))
        return led and letters >= _MIN_LETTERS and any(cue in stated for cue in cues)
    stated = f" {' '.join(_WORD.findall(stated))} "
    if len(clause.words) < 2 or not any(f" {cue} " in stated for cue in cues):
        return False
    return opens_imperative(clause) or (led and may_be_imperative(clause.words[0], language))


def opens_imperative(words: Words) -> bool:
    """Return whether words open like what somebody is told to do."""
    return any(words.opens(name) for name in _IMPERATIVES)


def may_be_imperative(word: str, language: str) -> bool:
    """Return whether a word may tell somebody what to do: it is of no class that does not."""
    words = lexicon(language)
    if language == "english":
        verbs = irregular_verbs()
        if word in verbs.past and verbs.lemmas.get(word) != word:
            return False
        if word.endswith(("ing", "ed")) and word not in verbs.lemmas:
            return False
    common = common_words(language) | words.first_possessive | words.chat_fillers
    return word not in common | words.passing


TOOL_CALL_MARK: Final = "[tool call:"


def is_quotable(entry: Entry) -> bool:
    """Check whether an entry may be quoted in a summary: a user's or the assistant's own words."""
    return (
        entry.role in ("user", "assistant")
        and entry.origin in ("user", "assistant")
        and not entry.tainted
        and entry.retrievable
        and not entry.content.lstrip().startswith(TOOL_CALL_MARK)
    )
