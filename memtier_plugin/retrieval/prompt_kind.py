"""Classify a prompt, by closed word classes, and by whether it asks by time.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property, lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.results import PromptKind
from memtier_plugin.retrieval.pasted_text import MIN_PRINTED_LINES, split_printed
from memtier_plugin.retrieval.prompt_words import (
    FUNCTION,
    Token,
    likeliest_language,
    names_time,
    openers,
    phrase_texts,
    split_words,
    tokenize,
    vocabulary,
)
from memtier_plugin.retrieval.query import MAX_QUERY_CHARS, asks_overview, count_content
from memtier_plugin.text.dates.spans import TimeSpan
from memtier_plugin.text.languages import split_sentences
from memtier_plugin.text.lexicon import Lexicon, lexicon, words_of

# -- Classify a prompt by closed word classes of its language.  Pure
#
# Most prompts need nothing of what was said in other sessions: thanks, a command of the host, a
# task that anybody could set, a log, or a follow-up that means this conversation alone.  No model
# is asked; the classes lie in ``text/data``, one file per language, so that a rule holds in each.
#
# A prompt may be of several kinds.  They are weights, not walls: only what consists of closed
# classes altogether (small talk, commands) is silent by itself.

MAX_CHAT_WORDS: Final = 12  # of small talk; what is longer says something
MAX_FOLLOW_UP_WORDS: Final = 14
SHORT_PROMPT_WORDS: Final = 8  # up to which a prompt may mean what this session said
_MAX_CONTENT: Final = 3  # words of its own that a follow-up may have
_MAX_COMMAND_WORDS: Final = 5  # of a slash command; with more it says what it is about
_MAX_HEAD: Final = 60  # words by which a prompt is judged
_MAX_QUESTION: Final = 40  # words of a question for the assistant's words
_MAX_STATEMENT: Final = 24  # words; what tells more says what it is about
_MAX_CHARS: Final = 2_000  # of a prompt, that are read for its kind

_COMMAND: Final = regex.compile(r"\s*(?:/[a-z][\w:-]*(?=\s|$)|![a-z][\w./-]*(?=\s|$))", regex.I)
_RUN: Final = regex.compile(r"[a-z0-9_]+|[\p{Hangul}]+|[^\W a-z0-9_\p{Hangul}]+")
_QUOTED: Final = regex.compile(r"\"[^\"]{2,}\"|“[^”]{2,}”|«[^»]{2,}»|「[^」]{2,}」|`[^`]{2,}`")
_CHOICE: Final = regex.compile(r"\d{1,2}|[a-h]")  # of several that were offered
_SMALL_TALK: Final = frozenset({"chat", "chat_fillers"})
_TALK: Final = frozenset({"chat", "chat_fillers", "go_on"})
_QUESTION: Final = frozenset({FUNCTION})
_A_QUOTATION: Final = " 0quoted0 "  # stands for it: a word of no class


class PromptKinds(Struct, frozen=True, kw_only=True):
    """The kinds of a prompt, each as a weight from 0 to 1.

    Attributes:
        chat: it greets, thanks or acknowledges, and nothing else.
        command: it is a command to the host.
        task: it opens like a request that anybody could make.
        general: it opens like a question about the world.
        log: how much of it is a pasted log, trace, code or data.
        follow_up: how much it leans on what this session said; 1 where it says nothing by itself.
        personal: it is about whoever asks.
        several: it asks for several things.
        states: it tells something, and neither asks nor orders anything.
        words: how many it has outside of what is pasted.
        query: what is to be searched for: the words around what is pasted, or all of it.
    """

    chat: float = 0.0
    command: float = 0.0
    task: float = 0.0
    general: float = 0.0
    log: float = 0.0
    follow_up: float = 0.0
    personal: float = 0.0
    several: float = 0.0
    states: float = 0.0
    words: int = 0
    query: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing to search for, because it means this conversation alone."""
        return self.follow_up == 1.0

    @property
    def is_short(self) -> bool:
        """Whether it may mean what this session said although it does not say so."""
        return self.words <= SHORT_PROMPT_WORDS and not (self.task or self.general or self.log)

    @property
    def silence(self) -> str:
        """Why it gets nothing, whatever is found; "" where it may get something."""
        if self.chat:
            return "the prompt is small talk"
        return "the prompt is a command of the host" if self.command else ""


NO_KINDS: Final = PromptKinds()
_FIELDS: Final[Mapping[PromptKind, str]] = {
    "chat": "chat",
    "command": "command",
    "task": "task",
    "question": "general",
    "log": "log",
    "follow_up": "follow_up",
    "personal": "personal",
    "list": "several",
}  # a prompt for the assistant's words, or for a time, is judged by its words alone


def prompt_kinds(text: str, kind: PromptKind | None = None) -> PromptKinds:
    """Return the kinds of a prompt.

    Args:
        kind: as the host says it; then the rules only find what is pasted.
    """
    kinds = _classify(text)
    if kind is None:
        return kinds
    stated = PromptKinds(words=kinds.words, query=kinds.query)
    return replace(stated, **{_FIELDS[kind]: 1.0}) if kind in _FIELDS else stated


@lru_cache(64)
def _classify(text: str) -> PromptKinds:
    around, share = split_printed(text[:MAX_QUERY_CHARS])
    if _COMMAND.match(text):
        bang = text.lstrip().startswith("!")
        if bang or len(text.split()) <= _MAX_COMMAND_WORDS:
            return PromptKinds(command=1.0, words=len(text.split()), query=text)
    spoken = _QUOTED.sub(_A_QUOTATION, around[:_MAX_CHARS])
    words = split_words(spoken)
    reading = _read(spoken, words)
    if reading is None:  # signs alone
        silent = float(not share and not any(sign in text for sign in "?？"))
        return PromptKinds(chat=silent, follow_up=1.0 - silent if not share else 0.0, log=share,
                           query=text)  # fmt: skip
    many = len(words) >= MIN_PRINTED_LINES
    kinds = PromptKinds(log=share, words=len(words), query=around if share and many else text)
    if share:
        return replace(kinds, task=reading.task)
    if reading.is_chat:
        return replace(kinds, chat=1.0)
    return replace(
        kinds,
        task=0.0 if reading.follow_up == 1.0 else reading.task,
        general=0.0 if reading.follow_up == 1.0 else reading.general,
        follow_up=reading.follow_up,
        personal=float(reading.personal),
        several=float(reading.opens("list_openers")),
        states=float(reading.states),
    )


# -- reading ---------------------------------------------------------------------------------------


class _Reading(Struct, frozen=True, dict=True):
    """A prompt as the words of one language."""

    language: str
    units: Sequence[str]  # its words, or its letters where these are not separated
    tokens: Sequence[Token]
    asks: bool  # it ends with a question mark
    questions: bool  # or has one somewhere
    sentences: int

    def opens(self, name: str, *, polite: bool = True) -> bool:
        """Return whether it opens with one of a class of phrases, after words of politeness."""
        return self._after(self._start if polite else 0, name) is not None

    @cached_property
    def is_chat(self) -> bool:
        """Whether it is nothing but small talk; a question must be a phrase of it."""
        if len(self.units) > MAX_CHAT_WORDS:
            return False
        if self.opens("thanks_for", polite=False) and self.sentences == 1:
            return True
        if not all(not of.isdisjoint(_SMALL_TALK) for _, of in self.tokens):
            return False
        return any(
            "chat" in of and (not self.asks or not i or " " in text)
            for i, (text, of) in enumerate(self.tokens)
        )

    @cached_property
    def personal(self) -> bool:
        """Whether it speaks of the first person, but not only as who wants help ("give me")."""
        words = lexicon(self.language)
        first_person = words.first_person | words.first_possessive
        if words.unspaced:
            text = "".join(self.units[self._start :])
            return any(word in text for word in first_person)
        start = self._after_opener()
        return any(unit in first_person for unit in self.units[start:])

    @cached_property
    def assistant(self) -> bool:
        """Whether it asks for what the assistant said, and does not only mention it."""
        words = lexicon(self.language)
        long = len(self.units) > _MAX_QUESTION
        if long or not self._is_question or self.opens("general_openers"):
            return False
        if self._has("own_advice"):
            return True
        if words.unspaced:
            text = "".join(self.units)
            return any(
                you + verb in text for you in words.second_person for verb in words.said_verbs
            )
        return any(self._says(index, words) for index in range(len(self.units)))

    @property
    def _is_question(self) -> bool:
        words = lexicon(self.language)
        first = self.units[self._start : self._start + 1]
        return self.asks or any(unit in words.question_openers for unit in first)

    @property
    def states(self) -> bool:
        """Whether it opens with a subject that is known, and neither asks nor orders anything."""
        long = len(self.units) > _MAX_STATEMENT
        if long or self.questions or self._is_question or self.task or self.general:
            return False
        words = lexicon(self.language)
        subjects = words.definite | words.clause_subjects | words.first_person
        subjects |= words.first_possessive
        if words.unspaced:
            return "".join(self.units).startswith(tuple(subjects))
        return not subjects.isdisjoint(self.units[self._start : self._start + 1])

    def _has(self, name: str) -> bool:
        """Return whether a phrase of a class stands anywhere in it."""
        phrases = phrase_texts(self.language, name)
        if lexicon(self.language).unspaced:
            text = "".join(self.units)
            return any(phrase in text for phrase in phrases)
        text = f" {' '.join(self.units)} "
        return any(f" {phrase} " in text for phrase in phrases)

    def _says(self, index: int, words: Lexicon) -> bool:
        if words.pro_drop:  # the verb alone has the person
            return self.units[index] in words.said_verbs
        before = self.units[index - 1] if index else ""
        if self.units[index] not in words.second_person or before in words.requesting:
            return False
        return any(unit in words.said_verbs for unit in self.units[index + 1 : index + 4])

    @cached_property
    def task(self) -> float:
        """Whether it is a request that anybody could make."""
        if lexicon(self.language).task_endings:
            ends = "".join(self.units).endswith(phrase_texts(self.language, "task_endings"))
            return float(ends and not self.personal)
        return float(self.opens("task_verbs") and not self.personal and not self.assistant)

    @cached_property
    def general(self) -> float:
        """Whether it is a question about the world."""
        if self.personal or self.assistant:
            return float(self.opens("general_openers") and self._asks_how())
        if lexicon(self.language).unspaced:
            return float(self._has("general_openers"))
        return float(self.opens("general_openers"))

    def _asks_how(self) -> bool:
        """Return whether the only person it names is in the opener itself ("how do I ...")."""
        after = self._after(self._start, "general_openers")
        words = lexicon(self.language)
        first_person = words.first_person | words.first_possessive
        if after is None or words.unspaced:
            return False
        return first_person.isdisjoint(self.units[after:])

    @cached_property
    def follow_up(self) -> float:
        """How much it leans on what this session said."""
        content = self._content()
        if content > _MAX_CONTENT or len(self.tokens) > MAX_FOLLOW_UP_WORDS:
            return 0.0
        strong, weak = self._cues(content)
        if not strong and not (weak and content <= 1 and not self.personal):
            return 0.0
        if content and self.task and not self._revises(content):
            return 0.0
        worldly = self.general or self.opens("general_openers")
        if worldly and (content or not self._points):
            return 0.0
        if content == 0:
            return 1.0
        return (1.0 - 0.2 * content) * (0.5 if self.personal else 1.0)

    def _revises(self, content: int) -> bool:
        """Return whether a task is to change what was made before, and says no more of it."""
        if _A_QUOTATION.strip() in self.units:
            return False
        return self._edits or (self._points and content < _MAX_CONTENT)

    @property
    def _points(self) -> bool:
        return any("anaphors" in of for _, of in self.tokens)

    @cached_property
    def _edits(self) -> bool:
        """Whether it opens with a verb of change, but not to make "a" new thing."""
        if "edit_verbs" not in self.tokens[self._first][1]:
            return False
        after = self.tokens[self._first + 1 : self._first + 2]
        return not after or after[0][0] not in lexicon(self.language).articles

    def _content(self) -> int:
        """Return how many words have content of their own."""
        text = " ".join(word for word, of in self.tokens if not of)
        if lexicon(self.language).unspaced:
            runs = _RUN.findall(
                regex.sub(
                    r"(?<=[^\x00-\x7f]) (?=[^\x00-\x7f])|(?<=[a-z0-9]) (?=[a-z0-9])", "", text
                )
            )
            hangul = self.language == "korean"
            return sum(1 if run.isascii() or hangul else max(1, len(run) // 2) for run in runs)
        return len(text.split())

    def _cues(self, content: int) -> tuple[int, int]:
        """Return the number of words that lean on something said, strongly and weakly."""
        strong = weak = 0
        talk = all(not of.isdisjoint(_TALK) for _, of in self.tokens)
        chosen = len(self.tokens) <= _MAX_CONTENT and any(_CHOICE.fullmatch(w) for w in self.units)
        strong += chosen + self._edits
        for index, (_, of) in enumerate(self.tokens):
            after = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
            asks_on = of & _QUESTION or (self.asks and not index)  # "where do I live?"
            if "go_on" in of and (talk or not (content or asks_on)):
                strong += 1
            elif "anaphors" in of:
                strong += not names_time(after, self.language)
            elif "pointing_ordinals" in of:
                pointing = after is None or bool(after[1] - {"chat", "chat_fillers"})
                strong += pointing and not names_time(after, self.language)
            elif "follow_openers" in of and not index:
                strong += 1
            elif "degrees" in of:
                weak += 1
            elif "edit_verbs" in of and index != self._first:
                strong += not content and after is None
        return strong, weak

    # -- openers -----------------------------------------------------------------------------------

    def _after(self, start: int, name: str) -> int | None:
        """Return where an opener of a class ends that stands at a position; None without one."""
        if start < len(self.units):
            for phrase in openers(self.language, name).get(self.units[start], ()):
                if tuple(self.units[start : start + len(phrase)]) == phrase:
                    return start + len(phrase)
        return None

    @cached_property
    def _start(self) -> int:
        """Where it begins after words of politeness."""
        position = 0
        while (after := self._after(position, "politeness")) is not None:
            position = after
        return position

    @cached_property
    def _first(self) -> int:
        """Return the index of the first token after words of politeness and small talk."""
        position = 0
        for index, (word, of) in enumerate(self.tokens):
            position += len(word.split())
            if position > self._start and not ("chat" in of and index + 1 < len(self.tokens)):
                return index
        return 0

    def _after_opener(self) -> int:
        """Return where the request begins, after "can you give me" and its like."""
        start = self._start
        after = self._after(start, "task_verbs")
        if after is None:
            return start
        me = lexicon(self.language).first_person
        return after + 1 if after < len(self.units) and self.units[after] in me else after


def _read(text: str, words: Sequence[str]) -> _Reading | None:
    if not words:
        return None
    head = words[:_MAX_HEAD]
    language = likeliest_language(text, head)
    units = [*"".join(head)] if lexicon(language).unspaced else head
    tokens = tokenize(units, vocabulary(language))
    sentences = len(split_sentences(text))
    asks, questions = text.rstrip().endswith(("?", "？")), "?" in text or "？" in text
    return _Reading(language, units, tokens, asks, questions, sentences)


# -- Decide whether a prompt asks by time: "what did I do yesterday?".  Pure
#
# Such a question has hardly a word of its own besides the time that it names: what was said then is
# found by the time alone, and answers it.  A prompt that only mentions a date does not ask so.

# In so few days little is said, so that a question may say more; one about oneself in a month.
_SHORT: Final = timedelta(days=3)
_MONTH: Final = timedelta(days=31)
_OWN_PAST: Final = regex.compile(
    r"(?i)\b(?:did|have|had|was|were)\W+(?:i|we)\b|\b(?:habe|haben|hatten?)\W+(?:ich|wir)\b"
    r"|\bj['’]ai\b|\bai-je\b|\bavons-nous\b|\b(?:he|hemos)\b|[了过]"
)
_OPENING: Final = 4  # words among which the one that asks stands


def words_beside_time(text: str, spans: Sequence[TimeSpan]) -> list[str] | None:
    """Return what a prompt asks for of what was said in these times: hardly a word, or none.

    Returns:
        None for a prompt that does not ask by time.
    """
    if not spans or not _is_question(text):
        return None
    rest = text
    for span in spans:
        rest = rest.replace(span.words, " ", 1)
    kinds, (count, words) = prompt_kinds(text), count_content(rest)
    longest = max(span.end - span.start for span in spans)
    most = 1 + (longest <= (_MONTH if kinds.personal else _SHORT))
    if kinds.task or kinds.general or count > most:
        return None
    if asks_overview(text):
        return []
    # "What could I eat tonight?" is about what is to come; without the asker it may be about the
    # world, about each winter, or about somebody whose lines are found by their name.
    ahead = any(span.open for span in spans) and not asks_own_past(text)
    habitual = any(span.may_recur for span in spans)
    of_others = not kinds.personal and (kinds.several or habitual or _names_any(words, text))
    return None if ahead or of_others else words


def asks_own_past(text: str) -> bool:
    """Return whether a prompt asks what its asker did: then, and not on a date that they named."""
    return _OWN_PAST.search(text) is not None


def _names_any(words: Sequence[str], text: str) -> bool:
    return any(word.title() in text[1:] for word in words if word.isascii())


def _is_question(text: str) -> bool:
    openers = words_of("question_openers")
    return any(mark in text for mark in "?？") or not openers.isdisjoint(
        split_words(text)[:_OPENING]
    )
