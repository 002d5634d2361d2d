"""Recognise talk that states nothing; collect shared words.  Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry
from memtier_plugin.text.languages import iter_sentences
from memtier_plugin.text.lexicon import Words, lexicons, small_talk, words_of
from memtier_plugin.text.phrases import is_quotable
from memtier_plugin.text.tokenizer import first_plain_words

# -- Recognise talk that states nothing: acknowledgements, and texts that only ask.  Pure

_MAX_RECEIPT: Final = 120  # characters of a text that does no more than acknowledge
MAX_ASKED: Final = 1_000  # characters of a text that does no more than ask
_APOSTROPHES: Final = "’‘ʼ"
_OPENING: Final = 4  # words within which a request says whom it asks
_BEFORE_VERB: Final = 3  # of these, those that its verb is one of
_PART_END: Final = regex.compile(r"[,.:;!，。：；！]+\s*|(?<!\s)\s++[-–—]++\s+")
_CLAUSE_END: Final = regex.compile(r"[,;:]\s+|[，；：]|\s[-–—]+\s")
_CLAUSE: Final = 4  # words of a clause that may state something
_UNIT: Final = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\u30fc]|[^\W\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]+"
)
_UNSPACED: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")
_MARKS: Final = frozenset("?？؟")
_MARKED: Final = regex.compile(r"[?？؟]['\"”’)»\]*_]*\s*\Z")


def only_acknowledges(text: str) -> bool:
    """Return whether a text says no more than that something was heard, or greets or thanks."""
    text = text.strip()
    if not 0 < len(text) <= _MAX_RECEIPT:
        return False
    text = _folded(text)
    first = _UNIT.search(text)
    if first is None or first[0] not in _phrases().longest or any(map(str.isdigit, text)):
        return False  # most texts by their first word alone
    return _phrases().are_receipts(_UNIT.findall(text))


def without_receipts(text: str) -> str:
    """Return a text without what only acknowledges at its beginning ("Noted: ...")."""
    while (stop := _PART_END.search(text)) and only_acknowledges(text[: stop.start()]):
        text = text[stop.end() :]
    return text


def only_asks(text: str) -> bool:
    """Return whether a text asks and states nothing, greetings and acknowledgements aside.

    A request in the form of a question ("Can you always answer in French?") is no such text.
    """
    if len(text) > MAX_ASKED or not _may_only_ask(text):
        return False
    asks = False
    for part in iter_sentences(text):
        if only_acknowledges(part):
            continue
        if not _asks(part):
            return False
        asks = True
    return asks


def _may_only_ask(text: str) -> bool:
    """Tell by its marks, or else by its first words, whether a text may do no more than ask."""
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
    """Return whether it begins "what is the release branch called", but not "when I deploy"."""
    openers, words = words_of("question_openers"), first_plain_words(folded, 2)
    return len(words) == 2 and all(word in openers for word in words)


def _folded(text: str) -> str:
    folded = text.strip().casefold()
    for mark in _APOSTROPHES:
        folded = folded.replace(mark, "'")
    return folded


@dataclass(frozen=True, slots=True)
class _Phrases:
    """Phrases by their units: words, or letters where words are not separated."""

    receipts: Collection[tuple[str, ...]]
    fillers: Collection[tuple[str, ...]]
    longest: Mapping[str, int]  # by the first unit

    def are_receipts(self, units: Sequence[str]) -> bool:
        """Return whether all units are receipts and fillers, at least one of them a receipt."""
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
    first = first_plain_words(folded[: end.start()], _CLAUSE)
    return len(first) == _CLAUSE and first[0] not in words_of("question_openers")


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
def _request_verbs() -> tuple[tuple[Words, bool], ...]:
    """Return the verbs of requests of each language, and whether they need no "you"."""
    spaced = [words for words in lexicons() if not words.unspaced]
    return tuple((words.requesting, words.pro_drop) for words in spaced)


# -- Collect the words that a project shares: a vocabulary for its own embedding model
#
# The vocabulary of a model can be read by whoever has the model's files, so a word must not betray
# what one person said once: it counts only if it recurs in several sessions and, where the project
# has several people or agents, is used by at least two of them.

MIN_SESSIONS: Final = 3
MIN_PEOPLE: Final = 2  # pairs of agent and sender, if the project has as many
MAX_WORDS: Final = 5_000

# Letters alone: no number, key or identifier. Scripts that do not separate words are left out.
_WORD: Final = regex.compile(
    r"(?<![\p{L}\p{M}\p{N}_])[[\p{L}\p{M}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]]{3,30}"
    r"(?![\p{L}\p{M}\p{N}_])",
    regex.V1,
)


@dataclass(slots=True)
class _Usage:
    sessions: set[tuple[str, str]] = field(default_factory=set)
    people: set[tuple[str, str | None]] = field(default_factory=set)
    forms: Counter[str] = field(default_factory=Counter)


def collect_shared_words(entries: Iterable[Entry]) -> list[str]:
    """Return the words used in at least three sessions and by two people, most frequent first.

    A person is a pair of agent and sender; in a project of only one, that one suffices. Only what
    users and assistants said themselves counts: no tool output, nothing tainted by it.
    """
    usages: defaultdict[str, _Usage] = defaultdict(_Usage)
    people: set[tuple[str, str | None]] = set()
    for entry in entries:
        if not is_quotable(entry):
            continue
        person = (entry.agent_id, entry.sender)
        people.add(person)
        for word in _WORD.findall(entry.content):
            usage = usages[word.casefold()]
            usage.sessions.add((entry.agent_id, entry.session_id))
            usage.people.add(person)
            usage.forms[word] += 1
    enough = min(MIN_PEOPLE, len(people))
    shared = [
        usage
        for usage in usages.values()
        if len(usage.sessions) >= MIN_SESSIONS and len(usage.people) >= enough
    ]
    shared.sort(key=lambda usage: (-usage.forms.total(), min(usage.forms)))
    return [usage.forms.most_common(1)[0][0] for usage in shared[:MAX_WORDS]]
