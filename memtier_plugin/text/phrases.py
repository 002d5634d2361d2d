"""Find phrases of closed classes in a sentence, and traits of a text by them.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, NamedTuple

from memtier_plugin.core.records import Entry
from memtier_plugin.text.languages import iter_sentences
from memtier_plugin.text.lexicon import LANGUAGES, common_words, irregular_verbs, lexicon

# -- Find phrases of closed classes in a sentence.  Pure
#
# A star in a phrase stands for up to three words.  Where words are not separated, a phrase is found
# wherever its letters stand.

_GAP: Final = 3  # words that a star may stand for
_TOKEN: Final = re.compile(r"\w+")
_PART: Final = re.compile(r"\w+|\*")


class Token(NamedTuple):
    """A word in lower case, and where it stands."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Words:
    """A text as the words of one language; ``unspaced`` where that does not separate words."""

    text: str
    language: str
    tokens: tuple[Token, ...]
    words: tuple[str, ...]
    unspaced: bool

    @classmethod
    def of(cls, text: str, language: str) -> Words:
        """Split a text into its words."""
        tokens = tuple(Token(m[0].casefold(), *m.span()) for m in _TOKEN.finditer(text))
        words = tuple(token.text for token in tokens)
        return cls(text, language, tokens, words, lexicon(language).unspaced)

    def has(self, name: str) -> bool:
        """Return whether a phrase of a class stands anywhere."""
        return self.find(name) is not None

    def has_word(self, name: str) -> bool:
        """Return whether a word of a class stands anywhere."""
        members = getattr(lexicon(self.language), name)
        if self.unspaced:
            return any(word in self.text for word in members)
        return not members.isdisjoint(self.words)

    def opens(self, name: str) -> int | None:
        """Return where in the text a phrase of a class ends that opens it; None without one."""
        if self.unspaced:
            phrases = sorted(getattr(lexicon(self.language), name), key=len, reverse=True)
            start = len(self.text) - len(self.text.lstrip())
            hits = (len(p) for p in phrases if self.text.startswith(p, start))
            size = next(hits, 0)
            return start + size if size else None
        rests = _by_first(self.language, name).get(self.words[0]) if self.words else None
        end = self._longest_end(rests, 0) if rests else None
        return None if end is None else self.tokens[end - 1].end

    def find(self, name: str, start: int = 0) -> tuple[int, int] | None:
        """Return where in the text the first phrase of a class stands, from a position on."""
        if self.unspaced:
            places = [
                (at, -len(phrase))
                for phrase in getattr(lexicon(self.language), name)
                if (at := self.text.find(phrase, start)) >= 0
            ]
            at, size = min(places, default=(-1, 0))
            return (at, at - size) if at >= 0 else None
        by_first = _by_first(self.language, name)
        for index, token in enumerate(self.tokens):
            rests = by_first.get(token.text) if token.start >= start else None
            if rests and (end := self._longest_end(rests, index)) is not None:
                return token.start, self.tokens[end - 1].end
        return None

    def _longest_end(self, rests: Sequence[Sequence[str]], index: int) -> int | None:
        """Return after which word the longest phrase ends whose first word stands at an index."""
        ends = (phrase_end(self.words, index + 1, rest) if rest else index + 1 for rest in rests)
        return max((end for end in ends if end is not None), default=None)


def without_since_now(value: str, language: str) -> str:
    """Return a value without a word beside it that says that it is so by now: "Zed now"."""
    text = value.strip()
    for phrase in sorted(lexicon(language).since_now, key=len, reverse=True):
        if lexicon(language).unspaced:
            shorter = text.removeprefix(phrase).removesuffix(phrase).strip()
        else:
            edge = re.escape(phrase)
            shorter = re.sub(rf"(?i)[\s,]+\b{edge}\Z", "", text)
            shorter = re.sub(rf"(?i)\A{edge}\b[\s,]+", "", shorter).strip()
        if shorter:
            text = shorter
    return text


@cache
def _by_first(language: str, name: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Map the first word of each phrase of a class to the rest of the phrase."""
    phrases: Iterable[str] = getattr(lexicon(language), name)
    by_first: dict[str, list[tuple[str, ...]]] = {}
    for phrase in phrases:
        first, *rest = _PART.findall(phrase.casefold())
        by_first.setdefault(first, []).append(tuple(rest))
    return {first: tuple(rests) for first, rests in by_first.items()}


def phrase_end(tokens: Sequence[str], index: int, rest: Sequence[str]) -> int | None:
    """Return after which token the words of a phrase end, its stars filled in; None without it."""
    for nth, word in enumerate(rest):
        if word == "*":
            after = rest[nth + 1 :]
            ends = (phrase_end(tokens, index + skip, after) for skip in range(_GAP + 1))
            return next((end for end in ends if end is not None), None)
        if index >= len(tokens) or tokens[index] != word:
            return None
        index += 1
    return index if index <= len(tokens) else None


# -- Traits of a text that the index keeps: standing instructions, quotable lines.  Pure

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
    """Return the sentences of a text that give a standing order: a verb and its object.

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
