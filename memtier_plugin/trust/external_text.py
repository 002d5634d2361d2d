"""Find what an assistant's text took from external text: copies and restatements.  Pure."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final, Literal

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.text.languages import detect_language, iter_sentences
from memtier_plugin.text.lexicon import LANGUAGES, common_words, lexicon
from memtier_plugin.text.phrases import (
    MAX_ASKED,
    TOOL_CALL_MARK,
    is_standing_instruction,
    only_acknowledges,
    only_asks,
)
from memtier_plugin.text.tokenizer import plain_words

# -- Find what an assistant took from external text: words, figures, names, ids.  Pure
#
# What the user also said counts as the user's.  In the run that read the text, a line is also held
# back if nothing that the user said supports it: a translation or a paraphrase may share no word
# with its source.

MAX_CHARS: Final = 200_000  # characters of one text that are compared

_SHORTEST_CODE: Final = 5  # letters and digits that are compared without separators
_MAX_PASSAGES: Final = 500  # compared for one word
_SHARED_WORDS: Final = 3  # words shared with a passage of the external text, and
_SHARED_PART: Final = 0.4  # this share of a sentence's words
_OWN_PART: Final = 1 / 3  # share of the words after a page that the user must have said
_OWN_PART_FOREIGN: Final = 3 / 4  # if the page is in another language

_MARK: Final = regex.compile(r"[A-Za-z0-9_.+@:/=#%&?~$|,'-]++")
_FIGURES: Final = regex.compile(
    r"(?<![\dA-Za-z])[A-Za-z]{0,3}+\d[\dA-Za-z]*+(?:[ .,\-/–]{1,2}+\d[\dA-Za-z]*+)++"
)
_PIECES: Final = regex.compile(r"[/@=|,?&#]|://")
_SQUEEZED: Final = regex.compile(r"[^\p{L}\p{N}]+")
# Days, counts, years: too common to identify a source
_SMALL: Final = regex.compile(r"\d{1,2}|(?:19|20)\d\d")
_NAME: Final = regex.compile(r"(?<=[\p{L}\p{N},;:'’”\")»-]\s)\p{Lu}[\p{L}\p{M}\p{N}’'-]+")
_UNSPACED: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]+")
_IDEOGRAPHS: Final = regex.compile(r"[\p{Han}\p{Katakana}\u30fc]{2,}|\p{Hangul}{2,}")
_NOUNS_CAPITAL: Final = ("german",)

Words = Callable[[str], Sequence[str]]


class ExternalText:
    """The external text of a running session, and what its user said.

    Args:
        words: the tokenizer, which removes word endings.
    """

    def __init__(self, words: Words) -> None:
        self._words_of = words
        self._external = _Marks()
        self._trusted = _Marks()
        self._own: set[str] = set()
        # The passages that contain each word
        self._passages: dict[str, list[int]] = defaultdict(list)
        # The languages in which each name occurred
        self._names: dict[str, set[str | None]] = defaultdict(set)
        self._count = 0
        self._languages: set[str | None] = set()
        # Tokenized lazily, as most sessions are never compared
        self._unread: list[tuple[str, bool]] = []
        self._any = False

    def __bool__(self) -> bool:
        return self._any

    @property
    def read_in_run(self) -> bool:
        """Whether external text was read in this run."""
        return bool(self._languages)

    def begin_run(self) -> None:
        """Forget what only earlier runs read, so that from now on only comparison counts."""
        self._languages.clear()

    def add_external(self, text: str) -> None:
        """Add text written by strangers."""
        text = text[:MAX_CHARS]
        if not text.strip():
            return
        self._any = True
        self._languages.add(_language(text))
        self._unread.append((text, True))

    def add_trusted(self, text: str) -> None:
        """Add text of the user, or of the assistant before any external text."""
        self._unread.append((text[:MAX_CHARS], False))

    def _read(self) -> None:
        """Tokenize the texts added since the last call."""
        for text, external in self._unread:
            if external:
                self._add_passages(text)
            else:
                self._trusted.add(text)
                self._own |= self._content(text)
        self._unread.clear()

    def _add_passages(self, text: str) -> None:
        self._external.add(text)
        sentences = []
        for sentence in iter_sentences(text):
            sentences.append(self._content(sentence))
            language = _language(sentence)
            for name in self._names_in(sentence, language):
                self._names[name].add(language)
        for passage in [a | b for a, b in pairwise(sentences)] or sentences:
            for word in passage:
                if len(self._passages[word]) < _MAX_PASSAGES:
                    self._passages[word].append(self._count)
            self._count += 1

    def is_carried_by(self, text: str) -> bool:
        """Return whether a text contains something found only in the external text."""
        self._read()
        return (
            len(text) > MAX_CHARS
            or any(
                self._external.has(mark) and not self._trusted.has(mark) for mark in _marks(text)
            )
            or any(map(self._shares, dict.fromkeys(iter_sentences(text))))
        )

    def is_grounded(self, text: str) -> bool:
        """Return whether a text written after external text rests on what the user said.

        A text without content words rests on nothing.
        """
        language = _language(text)
        foreign = any(read not in (None, language) for read in self._languages)
        return self.own_share(text) >= (_OWN_PART_FOREIGN if foreign else _OWN_PART)

    def own_share(self, text: str) -> float:
        """Return the share of a text's content words that are the user's; 0 without any."""
        self._read()
        words = self._content(text)
        return len(words & self._own) / len(words) if words else 0.0

    def _shares(self, sentence: str) -> bool:
        content = self._content(sentence)
        words = content - self._own
        passages = Counter(p for word in words for p in self._passages.get(word, ()))
        if not passages:
            return False
        language = _language(sentence)
        if self._names_abroad(words, language):
            return True
        [(_, most)] = passages.most_common(1)
        if most >= max(_SHARED_WORDS, _SHARED_PART * len(content)):
            return True
        names = words & self._names_in(sentence, language)
        named = {passage for name in names for passage in self._passages.get(name, ())}
        return any(passages[passage] > 1 for passage in named)

    def _names_abroad(self, words: set[str], language: str | None) -> bool:
        """Return whether a word is a name from another language, sharing no other word."""
        known = [self._names[word] for word in words & self._names.keys()]
        return language is not None and any(None not in n and language not in n for n in known)

    def _names_in(self, sentence: str, language: str | None) -> set[str]:
        """Return the words of names: those capitalised within a sentence."""
        if language in _NOUNS_CAPITAL:
            return set()
        names = [match[0] for match in _NAME.finditer(sentence)]
        return self._content(" ".join(n for n in names if n.casefold() not in _weekdays()))

    def _content(self, text: str) -> set[str]:
        """Return the content words of a text, without their endings."""
        language = detect_language(text)
        common = function_words(language)
        plain = [word for word in plain_words(_UNSPACED.sub(" ", text)) if word not in common]
        content = {*self._words_of(" ".join(plain))} if plain else set()
        for run in _IDEOGRAPHS.findall(text):
            content |= {a + b for a, b in pairwise(run)}
        return content


class _Marks:
    """The figures, ids, addresses and settings in texts."""

    def __init__(self) -> None:
        self._tokens: set[str] = set()
        self._squeezed: list[str] = []

    def add(self, text: str) -> None:
        self._tokens.update(_marks(text))
        self._squeezed.append(_squeeze(text))

    def has(self, mark: str) -> bool:
        if mark in self._tokens:
            return True
        squeezed = _squeeze(mark)
        return len(squeezed) >= _SHORTEST_CODE and any(squeezed in text for text in self._squeezed)


def _squeeze(text: str) -> str:
    return str(_SQUEEZED.sub("", unicodedata.normalize("NFKC", text).casefold()))


def _marks(text: str) -> Iterator[str]:
    """Yield identifying tokens: figures, codes, addresses, paths, options, settings."""
    text = unicodedata.normalize("NFKC", text)
    for match in _FIGURES.finditer(text):
        if len(_squeeze(match[0])) >= _SHORTEST_CODE:
            yield match[0].casefold()
    for match in _MARK.finditer(text):
        for piece in {match[0], *_PIECES.split(match[0])}:
            mark = piece.strip(".,:;'-/|").rstrip("%").casefold()
            if _is_mark(mark, piece):
                yield mark


def _is_mark(mark: str, piece: str) -> bool:
    if any(map(str.isdigit, mark)):
        return len(mark) > 2 and not _SMALL.fullmatch(mark)
    if len(_squeeze(mark)) < _SHORTEST_CODE:
        return False
    return any(char in mark for char in "_@=/") or "." in mark or piece.startswith("--")


def _language(text: str) -> str | None:
    """Return the language of a text, or the script of its first non-Latin letter."""
    known = detect_language(text)
    if known is None and (match := regex.search(r"[\p{L}--\p{Latin}]", text, regex.V1)):
        return unicodedata.name(match[0], "?").split()[0]
    return known


@cache
def function_words(language: str | None) -> frozenset[str]:
    """Return the function words of a language; of all languages if None."""
    if language is None:
        return frozenset().union(*map(function_words, LANGUAGES))
    if language not in LANGUAGES:
        return frozenset()
    words = lexicon(language)
    return frozenset(common_words(language) | words.stop_words)


@cache
def _weekdays() -> frozenset[str]:
    return frozenset().union(*(words.weekday_forms for words in map(lexicon, LANGUAGES)))


# -- Detect restatements, verbatim or paraphrased.  Pure
#
# What an agent says after it was shown a line is no independent evidence for that line.

_SAME: Final = 0.6  # the share of a text's words that the other must contain
_NUMBERS: Final = regex.compile(
    r"\p{N}[\p{N}.,:/-]*\p{N}|\p{N}|(?<![\w.+-])[\w.+-]++@[\w.-]+|https?://\S+"
)
# A quantity, a version or a time of day, not a contact or an address.
_VALUE: Final = regex.compile(
    r"(?<![\p{Latin}\p{N}.,:/@+#-])\p{N}{1,6}(?:[.,:]\p{N}{1,4}){0,2}(?![.,:/@-]?[\p{Latin}\p{N}])",
)
_MARKS: Final = regex.compile(r"[\p{N}@/\\+=#<>]|\p{N}\s+\p{N}")
_END: Final = regex.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")
_ASKED: Final = regex.compile(r"[?？]\W*$")
_DENIALS: Final = frozenset(
    """no not never none cannot without nobody nothing t nicht kein keine nie nunca sin ne pas
    jamais sans non mai senza não nooit niet geen не нет никогда""".split()  # noqa: SIM905
)
# Words too general to identify a statement.
_EMPTY: Final = frozenset(
    """
    a an the is are was were be been it its this that these those of to in on at by for with from
    and or but as so has have had do does did will would can could should may might must i you he
    she they we my your his her their our me him them us not no yes user assistant agent note noted
    remember recall memory mentioned said says according earlier previously know known
    """.split()  # noqa: SIM905
)


def is_restatement(text: str, others: Iterable[str], words: Callable[[str], Sequence[str]]) -> bool:
    """Return whether a text restates one of the others.

    One of them must contain all its figures and addresses, and most of its words; in another
    language, where words cannot be compared, its figures decide.

    Args:
        words: the tokenizer, which removes word endings.
    """
    own_words = {word for word in words(text) if word not in _EMPTY}
    figures = {*_NUMBERS.findall(text.casefold())}
    if not own_words:
        return False
    for source in others:
        if not figures <= {*_NUMBERS.findall(source.casefold())}:
            continue
        source_words = set(words(source))
        if len(own_words & source_words) >= _SAME * len(own_words):
            return True
        if (
            figures
            and all(any(map(str.isdigit, word)) for word in own_words & source_words)
            and detect_language(text) != detect_language(source)
        ):
            return True
    return False


def is_stated_by(text: str, others: Iterable[str], words: Callable[[str], Sequence[str]]) -> bool:
    """Return whether the others state everything in a text; stricter than `is_restatement`.

    Each of its sentences must be contained in one sentence of theirs, with every content word, the
    same figures and the same negations; a question states nothing.
    """
    stated = [_parts_of(sentence, words) for source in others for sentence in _sentences(source)]
    claims = [_parts_of(sentence, words) for sentence in _sentences(text, with_questions=True)]
    return any(sentence[0] for sentence in claims) and all(
        any(
            sentence[0] <= source[0] and sentence[1] <= source[1] and sentence[2] == source[2]
            for source in stated
        )
        for sentence in claims
    )


def find_other_values(texts: Iterable[str], others: Sequence[str]) -> frozenset[str]:
    """Return the texts that differ from another one only in a value.

    The other contains every content word, the same negations and as many values; so the author
    could contribute nothing but a quantity.
    """
    frames = [_VALUE.subn("", source.casefold()) for source in others]
    return frozenset(text for text in texts if _fits(text, frames))


def _fits(text: str, frames: Sequence[tuple[str, int]]) -> bool:
    frame_text, count = _VALUE.subn("", text)
    if not count or _MARKS.search(frame_text):
        return False
    words = _meaning(frame_text)
    for frame, values in frames if words else ():
        if values == count and all(word in frame for word in words):  # rarely true
            theirs = _meaning(frame)
            if words <= theirs and words & _DENIALS == theirs & _DENIALS:
                return True
    return False


def _meaning(text: str) -> frozenset[str]:
    """Return the content words of a text, including its negations."""
    return frozenset(plain_words(text)) - (function_words(detect_language(text)) - _DENIALS)


def _sentences(text: str, *, with_questions: bool = False) -> Iterable[str]:
    return (
        sentence
        for sentence in _END.split(text)
        if sentence.strip() and (with_questions or not _ASKED.search(sentence))
    )


def _parts_of(
    sentence: str, words: Callable[[str], Sequence[str]]
) -> tuple[set[str], set[str], set[str]]:
    """Return the words, the figures and the negations of a sentence."""
    plain = {*plain_words(sentence)}
    content = {word for word in words(sentence) if word not in _EMPTY}
    return content, {*_NUMBERS.findall(sentence.casefold())}, plain & _DENIALS


# -- Find lines that state nothing: acknowledgements and questions.  Pure
#
# They share words with a prompt without answering it, and earn no credit for an answer.

NoStatement = Literal["", "receipt", "question"]


def missing_statement(item: Entry | Fact) -> NoStatement:
    """Return why a line states nothing; "" if it states something.

    ``receipt``: it only acknowledges; ``question``: it only asks.
    """
    if isinstance(item, Fact) or item.role == "tool" or TOOL_CALL_MARK in item.content:
        return ""
    words = item.content
    return _talk(words) if len(words) <= MAX_ASKED or words.isspace() else ""


@lru_cache(4096)
def _talk(words: str) -> NoStatement:
    """Return why words state nothing; cached, as the same lines are recalled again."""
    if not words.strip() or only_acknowledges(words):
        return "receipt"
    return "question" if only_asks(words) and not is_standing_instruction(words) else ""
