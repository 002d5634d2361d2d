"""A made-up store of any size whose words are as unevenly common as real ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final

from memtier_plugin.records import Message
from memtier_plugin.transcripts import Session, Turn

EPOCH: Final = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
_VOCABULARY: Final = 20_000
_EXCHANGES: Final = 10  # of a session
_FUNCTION_WORDS: Final = """
    the of and to a in is it you that was for on are with as I have be at or from had by not but
    what all were we when your can said there an each which she do how their if will up about out
"""
_SYLLABLE: Final = (
    "b br c ch d dr f fl g gr h j k l m n p pl qu r s sh st t tr v w z",
    "a e i o u ai ea io ou",
    "n r s l t nd rm ck",
)


class Synthetic:
    """Sessions of chat without end, the same for the same seed.

    Words follow Zipf's law (the n-th most common is as frequent as 1 / n): some fifty English
    function words, then made-up ones.  One turn in five holds a date, a version or an amount.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._function_words = _FUNCTION_WORDS.split()
        self._words = [*self._function_words, *self._made_up(_VOCABULARY)]
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self._words) + 1)))

    def sessions(self) -> Iterator[Session]:
        """Yield sessions, a day or so apart, of ten exchanges each."""
        when = EPOCH
        number = 0
        while True:
            number += 1
            messages = [
                message
                for _ in range(_EXCHANGES)
                for message in (
                    Message(role="user", content=self._text(15)),
                    Message(role="assistant", content=self._text(40)),
                )
            ]
            turns = tuple(Turn(id=f"{number}:{i}", message=m) for i, m in enumerate(messages))
            yield Session(session_id=f"session-{number}", observed_at=when, turns=turns)
            when += timedelta(hours=self._random.uniform(2, 30))

    def question(self, text: str) -> str:
        """Ask for a text by a few of its words, among some that say nothing."""
        words = [word for word in text.strip(".").split() if word not in self._function_words]
        chosen = self._random.sample(words, min(len(words), self._random.randint(2, 5)))
        return f"what did we say about {' '.join(chosen)}?"

    def pick(self, texts: list[str]) -> str:
        """Choose one of the texts."""
        return self._random.choice(texts)

    def _text(self, length: int) -> str:
        size = max(3, round(self._random.lognormvariate(0, 0.6) * length))
        words = self._random.choices(self._words, cum_weights=self._weights, k=size)
        if self._random.random() < 0.2:
            words[self._random.randrange(size)] = self._detail()
        return " ".join(words) + "."

    def _detail(self) -> str:
        number = self._random.randint(1, 28)
        return self._random.choice(
            [f"2026-03-{number:02}", f"v{number}.{number // 3}", f"${number}0"]
        )

    def _made_up(self, count: int) -> list[str]:
        parts = [part.split() for part in _SYLLABLE]
        words: dict[str, None] = {}
        while len(words) < count:
            syllables = self._random.choices((1, 2, 3), (2, 5, 2))[0]
            sounds = (self._random.choice(part) for _ in range(syllables) for part in parts)
            words.setdefault("".join(sounds))
        return list(words)
