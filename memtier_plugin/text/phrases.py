"""Find phrases of closed classes; detect texts that only order, ask or thank.  Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import OWN_WORDS, Entry, Fact
from memtier_plugin.text.languages import iter_sentences
from memtier_plugin.text.lexicon import (
    LANGUAGES,
    WordSet,
    common_words,
    irregular_verbs,
    lexicon,
    lexicons,
    small_talk,
    words_of,
)
from memtier_plugin.text.tokenizer import first_plain_words

# -- Find phrases of closed classes in a sentence.  Pure
#
# A star in a phrase stands for up to three words.  In scripts without spaces a phrase matches
# wherever its letters occur.

_GAP: Final = 3  # words that a star may stand for
_TOKEN: Final = re.compile(r"\w+")
_PART: Final = re.compile(r"\w+|\*")


class Token(NamedTuple):
    """A word in lower case and its position."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Words:
    """A text split into the words of one language; ``unspaced`` if it does not separate words."""

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
        """Return whether the text contains a phrase of a class."""
        return self.find(name) is not None

    def has_word(self, name: str) -> bool:
        """Return whether the text contains a word of a class."""
        members = getattr(lexicon(self.language), name)
        if self.unspaced:
            return any(word in self.text for word in members)
        return not members.isdisjoint(self.words)

    def opens(self, name: str) -> int | None:
        """Return the end of the phrase of a class that opens the text; None if none does."""
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
        """Return the span of the first phrase of a class from a position on."""
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
        """Return the word index at which the longest phrase starting at an index ends."""
        ends = (phrase_end(self.words, index + 1, rest) if rest else index + 1 for rest in rests)
        return max((end for end in ends if end is not None), default=None)


def without_since_now(value: str, language: str) -> str:
    """Return a value without an adjacent "now" or the like: "Zed now"."""
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
    """Return the token index at which a phrase ends, stars included; None if it does not match."""
    for nth, word in enumerate(rest):
        if word == "*":
            after = rest[nth + 1 :]
            ends = (phrase_end(tokens, index + skip, after) for skip in range(_GAP + 1))
            return next((end for end in ends if end is not None), None)
        if index >= len(tokens) or tokens[index] != word:
            return None
        index += 1
    return index if index <= len(tokens) else None


# -- Text features stored in the index: standing instructions, quotable lines.  Pure

_BEGINNING: Final = 400  # characters within which an instruction begins
_CLAUSE: Final = re.compile(r"[,;:，；：]\s*")
_WORD: Final = re.compile(r"[\w']+")
_IMPERATIVES: Final = ("order_openers", "task_verbs", "edit_verbs")
_MIN_LETTERS: Final = 4  # of an order in a script without spaces
_LEADS: Final = 3  # polite words and openers that may precede a verb


def is_standing_instruction(text: str) -> bool:
    """Return whether a user's words give a permanent order."""
    return bool(find_orders(text))


def find_orders(text: str) -> str:
    """Return the sentences that give a standing order: a verb and its object.

    "Never mind" and "always a pleasure" do not count.
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
    """Return the languages whose words for permanence may occur in a text, by their letters."""
    folded = _fold(text)
    return [name for name in languages if any(map(folded.__contains__, _lasting(name)))]


def _fold(text: str) -> str:
    return text.casefold().replace("’", "'")


@cache
def _lasting(language: str) -> frozenset[str]:
    """Return a language's expressions of permanence: "always", "from now on"."""
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
    """Return whether a sentence has a clause that is a permanent order."""
    # "From now on, when you name things, ..." makes the whole sentence permanent.
    end = Words.of(sentence, language).opens("rule_openers")
    is_whole = end is not None and _fold(sentence[:end]).strip() not in lexicon(language).rule_cues
    starts = [0, *(match.end() for match in _CLAUSE.finditer(sentence))]
    return any(_is_order(sentence, start, is_whole, language) for start in starts)


def _is_order(sentence: str, start: int, is_whole: bool, language: str) -> bool:
    """Return whether a clause is a permanent order: a verb and its object, after any opener."""
    led, clause_words = is_whole, Words.of(sentence[start:], language)
    for _ in range(_LEADS):
        if opens_imperative(clause_words):
            break
        polite, opened = (
            clause_words.opens("politeness") or 0,
            clause_words.opens("rule_openers") or 0,
        )
        if not (polite or opened):
            break
        led = led or opened > polite
        clause_words = Words.of(clause_words.text[max(polite, opened) :].lstrip(" ,:;，"), language)
    clause = Words.of(_CLAUSE.split(clause_words.text)[0], language)
    end = len(sentence) - len(clause_words.text) + len(clause.text)
    stated, cues = _fold(sentence[0 if is_whole else start : end]), _lasting(language)
    if clause_words.unspaced:
        letters = len(clause.text.strip(" 。.!！"))
        return led and letters >= _MIN_LETTERS and any(cue in stated for cue in cues)
    stated = f" {' '.join(_WORD.findall(stated))} "
    if len(clause.words) < 2 or not any(f" {cue} " in stated for cue in cues):
        return False
    return opens_imperative(clause) or (led and may_be_imperative(clause.words[0], language))


def opens_imperative(words: Words) -> bool:
    """Return whether words open like an imperative."""
    return any(words.opens(name) for name in _IMPERATIVES)


def may_be_imperative(word: str, language: str) -> bool:
    """Return whether a word may be an imperative, as no class of other words contains it."""
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
    """Return whether a summary may quote an entry: only a user's or the assistant's own words."""
    return (
        entry.role in ("user", "assistant")
        and entry.origin in ("user", "assistant")
        and not entry.tainted
        and entry.retrievable
        and not entry.content.lstrip().startswith(TOOL_CALL_MARK)
    )


INSTRUCTION: Final = 1  # what `standing_kind` returns of a standing instruction
_OWN_WORDS: Final = 2  # and of what else a user's words set: rules and intentions


def standing_kind(item: Entry | Fact) -> int:
    """Return whether an item is a user's standing instruction, rule or intention; else 0.

    A confidence may be a rule: as no fact is made of it, its line is looked at by each recall.
    """
    if isinstance(item, Fact):
        return _OWN_WORDS if item.relation in OWN_WORDS else 0
    if not item.role == item.origin == "user":
        return 0
    return INSTRUCTION if is_standing_instruction(item.content) else _OWN_WORDS * item.private


# -- Detect text that states nothing: acknowledgements and pure questions.  Pure

_MAX_RECEIPT: Final = 120  # characters of a text that only acknowledges
MAX_ASKED: Final = 1_000  # characters of a text that only asks
_APOSTROPHES: Final = "’‘ʼ"
_OPENING: Final = 4  # words within which a request addresses someone
_BEFORE_VERB: Final = 3  # words among them before its verb
_PART_END: Final = regex.compile(r"[,.:;!，。：；！]+\s*|(?<!\s)\s++[-–—]++\s+")
_CLAUSE_END: Final = regex.compile(r"[,;:]\s+|[，；：]|\s[-–—]+\s")
_CLAUSE_WORDS: Final = 4  # words of a clause that may state something
_UNIT: Final = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\u30fc]|[^\W\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]+"
)
_UNSPACED: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")
_MARKS: Final = frozenset("?？؟")
_MARKED: Final = regex.compile(r"[?？؟]['\"”’)»\]*_]*\s*\Z")


def only_acknowledges(text: str) -> bool:
    """Return whether a text only acknowledges, greets or thanks."""
    text = text.strip()
    if not 0 < len(text) <= _MAX_RECEIPT:
        return False
    text = _folded(text)
    first = _UNIT.search(text)
    if first is None or first[0] not in _phrases().longest or any(map(str.isdigit, text)):
        return False  # the first word alone rules out most texts
    return _phrases().are_receipts(_UNIT.findall(text))


def without_receipts(text: str) -> str:
    """Return a text without the acknowledgement at its beginning ("Noted: ...")."""
    while (stop := _PART_END.search(text)) and only_acknowledges(text[: stop.start()]):
        text = text[stop.end() :]
    return text


def only_asks(text: str) -> bool:
    """Return whether a text only asks, apart from greetings and acknowledgements.

    A request in the form of a question ("Can you always answer in French?") does not count.
    """
    if len(text) > MAX_ASKED or not _may_only_ask(text):
        return False
    asks = False
    for sentence in iter_sentences(text):
        if only_acknowledges(sentence):
            continue
        if not _asks(sentence):
            return False
        asks = True
    return asks


def _may_only_ask(text: str) -> bool:
    """Return whether a text might only ask, by its question marks or its first words."""
    if not _MARKS.isdisjoint(text):
        return True
    folded = _folded(text)
    first = _UNIT.search(folded)
    return first is not None and (first[0] in _phrases().longest or _opens_question(folded))


def _asks(sentence: str) -> bool:
    folded = _folded(sentence)
    asking = _is_marked(folded) or _opens_question(folded)
    return asking and not _requests(folded) and not _states_first(folded)


def _is_marked(folded: str) -> bool:
    return ("?" in folded or not folded.isascii()) and _MARKED.search(folded) is not None


def _opens_question(folded: str) -> bool:
    """Return whether it opens like "what is the release branch called", not "when I deploy"."""
    openers, words = words_of("question_openers"), first_plain_words(folded, 2)
    return len(words) == 2 and all(word in openers for word in words)


def _folded(text: str) -> str:
    folded = text.strip().casefold()
    for mark in _APOSTROPHES:
        folded = folded.replace(mark, "'")
    return folded


@dataclass(frozen=True, slots=True)
class _Phrases:
    """Phrases as units: words, or letters in scripts without spaces."""

    receipts: Collection[tuple[str, ...]]
    fillers: Collection[tuple[str, ...]]
    longest: Mapping[str, int]  # by the first unit

    def are_receipts(self, units: Sequence[str]) -> bool:
        """Return whether all units are receipts and fillers, with at least one receipt."""
        position, receipts = 0, 0
        while position < len(units):
            for size in range(self.longest.get(units[position], 0), 0, -1):
                phrase = tuple(units[position : position + size])
                if phrase in self.receipts or phrase in self.fillers:
                    receipts += phrase in self.receipts
                    position += size
                    break
            else:
                return False
        return receipts > 0


@cache
def _phrases() -> _Phrases:
    receipts, fillers = {*small_talk()}, set[str]()
    for words in lexicons():
        receipts.update(words.chat, words.receipts)
        fillers.update(words.chat_fillers, words.receipt_fillers)
    longest: dict[str, int] = {}
    by_units = [{tuple(_UNIT.findall(phrase)) for phrase in some} for some in (receipts, fillers)]
    for units in by_units[0] | by_units[1]:
        longest[units[0]] = max(longest.get(units[0], 0), len(units))
    return _Phrases(frozenset(by_units[0]), frozenset(by_units[1]), longest)


def _states_first(folded: str) -> bool:
    """Return whether a clause before the question states something: "I never did, so how ...?"."""
    end = _CLAUSE_END.search(folded)
    if end is None:
        return False
    first = first_plain_words(folded[: end.start()], _CLAUSE_WORDS)
    return len(first) == _CLAUSE_WORDS and first[0] not in words_of("question_openers")


def _requests(folded: str) -> bool:
    """Return whether a sentence opens like a request: "can you", "puedes", "帮我"."""
    if _UNSPACED.search(folded):
        return any(phrase in folded for phrase in _unspaced_requests())
    words = first_plain_words(folded, _OPENING)
    second = words_of("second_person")
    return any(
        word in verbs and (drops_subject or not second.isdisjoint(words))
        for verbs, drops_subject in _request_verbs()
        for word in words[:_BEFORE_VERB]
    )


@cache
def _unspaced_requests() -> tuple[str, ...]:
    return tuple(
        phrase
        for words in lexicons()
        if words.unspaced
        for phrase in (*words.politeness, *words.requesting)
        if len(phrase) > 1
    )


@cache
def _request_verbs() -> tuple[tuple[WordSet, bool], ...]:
    """Return each language's verbs of requests, and whether they need no "you"."""
    spaced = [words for words in lexicons() if not words.unspaced]
    return tuple((words.requesting, words.pro_drop) for words in spaced)
