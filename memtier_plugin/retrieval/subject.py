"""The subject that a follow-up leaves to a pronoun: "and what is he allergic to?".

It is taken from the newest words of the session that name one: a question, and its answer where
that is short.  What only points back itself names none, so that one looks further back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import RecallRequest
from memtier_plugin.retrieval.block import keep_injectable
from memtier_plugin.retrieval.prompt_kind import MAX_FOLLOW_UP_WORDS, PromptKinds, prompt_kinds
from memtier_plugin.retrieval.prompt_words import (
    likeliest_language,
    names_time,
    openers,
    split_words,
    vocabulary,
)
from memtier_plugin.retrieval.query import Viewer, count_content
from memtier_plugin.retrieval.session import newest_of_session, refresh_for
from memtier_plugin.storage.sessions import DeadlineExceeded
from memtier_plugin.storage.store import Store
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.phrases import Words

if TYPE_CHECKING:
    from memtier_plugin.retrieval.journal import RecallJournal

Line = tuple[str, str]  # a role, and its words
_MAX_CHARS: Final = 400  # of a line that are read
_MAX_SUBJECT: Final = 6  # words of it
_NAME: Final = regex.compile(r"(?<![\w'’])\p{Lu}[\w-]*")
_OPENERS: Final = ("politeness", "task_verbs", "general_openers")


class SubjectFinder:
    """Finds what the sessions of one agent named last."""

    def __init__(self, store: Store, journal: RecallJournal) -> None:
        self._store = store
        self._journal = journal

    def find(
        self, text: str, viewer: Viewer, request: RecallRequest, until: float | None = None
    ) -> str:
        """Return what a prompt's session named last, if the prompt only points at that; else "".

        A question to `ask` may point at the one before, too, which no ledger has.

        Args:
            until: the deadline, a moment of ``time.monotonic()``.
        """
        session = request.session_id
        if not session or not points_back(text, prompt_kinds(text, request.kind)):
            return ""
        lines: list[Line] = []
        with suppress(DeadlineExceeded), self._store.deadline(until):
            refresh_for(self._store, viewer)
            if request.purpose == "ask":
                lines += [
                    ("user", asked) for asked in self._journal.asked_in(session, viewer.sender)
                ]
            newest = newest_of_session(self._store.reader(), viewer, session)
            items = [hit.item for hit in keep_injectable(newest)]
            lines += [(item.role, item.content) for item in items if isinstance(item, Entry)]
        return find_subject(text, lines)


def points_back(prompt: str, kinds: PromptKinds) -> bool:
    """Return whether a prompt is a question about what was named before, and names nothing itself.

    One that says nothing by itself is so only with a pronoun of the third person: "what does he
    do?", not "are you sure of that?".
    """
    reading = _read(prompt)
    is_long = len(reading.words) > MAX_FOLLOW_UP_WORDS or len(prompt) > _MAX_CHARS
    if not reading.words or is_long or kinds.task or kinds.log:
        return False
    classes = lexicon(reading.language)
    first = next((word for word in reading.words if word not in classes.follow_openers), "")
    if not prompt.rstrip().endswith(("?", "？")) and first not in classes.question_openers:
        return False
    points = reading.has_word("third_person")
    if not points and not kinds.is_empty:
        points = first != reading.words[0] or reading.has_word("anaphors")
    # A German noun may be any word with a capital letter.
    return points and (reading.language == "german" or not any(_names(reading)))


def find_subject(prompt: str, lines: Iterable[Line]) -> str:
    """Return the words by which the last lines of a session name their subject; "" without any.

    Nor does a question about the world, or a task without a name, name any.

    Args:
        lines: the last one first; the prompt's own entry, if it was recorded already, is none.
    """
    answer, named = list[str](), list[str]()
    for role, text in lines:
        reading = _read(text[:_MAX_CHARS])
        if text.strip() == prompt.strip():
            continue
        names = [*_names(reading)]
        if role != "user":
            answer = names if len(reading.words) <= MAX_FOLLOW_UP_WORDS else []
            continue
        named, answer = [*named, *answer], []
        if reading.has_word("third_person") or reading.has_word("anaphors"):
            continue
        kinds = prompt_kinds(text)
        if kinds.general or (kinds.task and not names):
            return ""
        named = [*named, *names] or _content(reading)
        break
    return " ".join([*dict.fromkeys(named)][:_MAX_SUBJECT])


def _read(text: str) -> Words:
    return Words.of(text, likeliest_language(text, split_words(text)))


def _names(reading: Words) -> Iterator[str]:
    """Yield the names in a text: its words with a capital letter that are of no closed class."""
    language = reading.language
    known, numbers = vocabulary(language).phrases, lexicon(language).numbers
    for match in _NAME.finditer(reading.text):
        [word, *_] = split_words(match[0])
        common = (word,) in known or word in numbers or names_time((word, frozenset()), language)
        if not common and not any(word in openers(language, name) for name in _OPENERS):
            yield match[0]


def _content(reading: Words) -> list[str]:
    words = count_content(reading.text)[1]
    return ["".join(words)] if reading.unspaced else words
