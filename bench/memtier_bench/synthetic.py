"""Generate synthetic sessions of any number, with a natural distribution of words.

The text comes from one of two sources: the shipped word list (words drawn by frequency), or
recombined sentences of a published data set.  Nothing is stored: a session is generated from the
seed and its number.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, count
from pathlib import Path
from typing import Final, Protocol, Self

from memtier_bench.datasets import Conversation, load_dataset
from memtier_bench.planted import PEOPLE
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.records import Message
from memtier_plugin.ingest.messages import ImportedMessage, Session

EPOCH: Final = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
WORDS: Final = Path(__file__).parent / "words" / "words.txt.gz"

_SESSION_MESSAGES: Final = 20  # messages
_MEDIAN_WORDS: Final = (18, 40)  # median length of a user's message and of an answer
_COMMON_WORDS: Final = 100  # most frequent words, treated as function words
_QUESTION_OPENINGS: Final = (
    "what did we say about",
    "do you remember",
    "when was it that",
    "who told me of",
    "where did I read",
    "why is it",
    "how was that with",
    "tell me again about",
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_MAX_SENTENCE_WORDS: Final = 60  # words of a sentence; longer ones are tables or code


class TextSource(Protocol):
    """A source of random text."""

    def text(self, chance: random.Random, words: int) -> str:
        """Return a text of about this many words."""

    def question(self, chance: random.Random) -> str:
        """Return a question in words of this source."""


class WordList:
    """Words of the shipped list, drawn by frequency.

    One text in five holds a date, a version or an amount, and one in ten the name of one of forty
    people: each name is then about as frequent as `John` and `Mary` in the list.
    """

    def __init__(self) -> None:
        self.words, self._weights = _word_list()

    def text(self, chance: random.Random, words: int) -> str:
        """Return sentences of six to sixteen words."""
        drawn = chance.choices(self.words, cum_weights=self._weights, k=words)
        if chance.random() < 0.2:
            drawn[chance.randrange(words)] = _detail(chance)
        if chance.random() < 0.1:
            drawn[chance.randrange(words)] = chance.choice(PEOPLE)
        sentences, start = [], 0
        while start < words:
            end = start + chance.randint(6, 16)
            sentence = " ".join(drawn[start:end])
            sentences.append(f"{sentence[0].upper()}{sentence[1:]}.")
            start = end
        return " ".join(sentences)

    def question(self, chance: random.Random) -> str:
        """Return an opening phrase followed by random words."""
        drawn = chance.choices(self.words, cum_weights=self._weights, k=chance.randint(5, 12))
        return f"{chance.choice(_QUESTION_OPENINGS)} {' '.join(drawn)}?"


class Sentences:
    """The sentences and the questions of a data set's conversations."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Load the sentences of a LoCoMo file or a BEAM folder.

        Raises:
            ImportFileError: it is neither, or has no sentences.
        """
        data = load_dataset("beam" if path.is_dir() else "locomo", path)
        try:
            return cls(data.conversations)
        except ImportFileError as error:
            raise ImportFileError(f"{path}: {error}") from None

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        """Take the sentences of these conversations.

        Raises:
            ImportFileError: there are none.
        """
        lengths: dict[str, int] = {}
        for conversation in conversations:
            for turn in conversation.turns:
                for sentence in _SENTENCE_END.split(turn.message.content):
                    length = len(sentence.split())
                    if 3 <= length <= _MAX_SENTENCE_WORDS:
                        lengths[sentence.strip()] = length
        if not lengths:
            raise ImportFileError("expected sentences, found none")
        self._sentences, self._lengths = list(lengths), list(lengths.values())
        texts = (question.text for c in conversations for question in c.questions)
        self._questions = list(dict.fromkeys(texts))

    def text(self, chance: random.Random, words: int) -> str:
        """Return sentences of about this many words in total."""
        chosen = []
        while words > 0:
            index = chance.randrange(len(self._sentences))
            chosen.append(self._sentences[index])
            words -= self._lengths[index]
        return " ".join(chosen)

    def question(self, chance: random.Random) -> str:
        """Return the first half of one question or sentence and the end of another."""
        first = chance.choice(self._questions or self._sentences).split()
        last = chance.choice(self._sentences).split()
        return " ".join([*first[: 1 + len(first) // 2], *last[-6:]])


class SyntheticChat:
    """An endless series of chat sessions, deterministic per seed and source."""

    def __init__(self, seed: int, source: TextSource | None = None) -> None:
        self._seed = seed
        self._source = source or WordList()
        self._random = random.Random(seed)

    def session(
        self, number: int, messages: int = _SESSION_MESSAGES, step: float = 16.0
    ) -> Session:
        """Return session ``number``: a user and an assistant taking turns.

        Args:
            number: counted from zero.
            messages: how many it has.
            step: approximate hours between two sessions.
        """
        chance = random.Random(f"{self._seed}/{number}")
        turns = []
        for index in range(messages):
            words = max(3, round(chance.lognormvariate(0, 0.6) * _MEDIAN_WORDS[index % 2]))
            text = self._source.text(chance, words)
            message = Message(role="assistant" if index % 2 else "user", content=text)
            turns.append(ImportedMessage(id=f"{number}:{index}", message=message))
        hours = step * (number + chance.uniform(0.0, 0.8))
        return Session(
            session_id=f"session-{number}",
            observed_at=EPOCH + timedelta(seconds=round(3600 * hours)),
            turns=tuple(turns),
        )

    def sessions(self) -> Iterator[Session]:
        """Yield sessions of ten exchanges, about a day apart."""
        return map(self.session, count())

    def questions(self, number: int) -> list[str]:
        """Return distinct questions; a larger number begins with the same ones."""
        chance = random.Random(f"{self._seed}/questions")
        questions: dict[str, None] = {}
        while len(questions) < number:
            questions.setdefault(self._source.question(chance))
        return list(questions)

    def question(self, text: str) -> str:
        """Return a question that contains a few content words of a text."""
        common = {word.casefold() for word in _word_list()[0][:_COMMON_WORDS]}
        words = [word.strip(".,!?") for word in text.split()]
        words = [word for word in words if word and word.casefold() not in common]
        chosen = self._random.sample(words, min(len(words), self._random.randint(2, 5)))
        return f"what did we say about {' '.join(chosen)}?"

    def pick(self, texts: list[str]) -> str:
        """Choose one of the texts."""
        return self._random.choice(texts)


@cache
def _word_list() -> tuple[list[str], list[int]]:
    """Return the words, most frequent first, and their cumulative counts."""
    with gzip.open(WORDS, "rt", encoding="utf-8") as file:
        rows = [line.split() for line in file]
    return [word for word, _ in rows], list(accumulate(int(counted) for _, counted in rows))


def _detail(chance: random.Random) -> str:
    number = chance.randint(1, 28)
    return chance.choice([f"2026-03-{number:02}", f"v{number}.{number // 3}", f"${number}0"])
