"""BM25 baselines on rank-bm25, which the default profile must beat.

`bm25` uses the lower-cased words of each turn.  `bm25-stem` stems them, drops function words,
splits Chinese and Japanese into characters and pairs of them, and adds the date and the speaker to
the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from memtier_bench.datasets import Conversation
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.ingest.messages import ImportedMessage, Session

BASELINES: Final = ("bm25", "bm25-stem")

# A separate list, so that changes to MemTier's tokenizer do not affect the baseline.
_STOP_WORDS: Final = """
    a an the and or but if then than so as of at by for with about to from in on up out over into
    i me my we us our you your he him his she her hers it its they them their this that these those
    am is are was were be been being do does did doing done have has had having will would can could
    should shall may might must not no nor what which who whom whose when where why how there here
"""

# Han and kana are written without spaces between words.
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")


class Bm25Baseline:
    """BM25Okapi (rank-bm25 with its defaults) over the turns of one conversation.

    ``language`` is the ISO 639 code of its stemmer.
    """

    def __init__(self, name: str, conversation: Conversation, language: str = "en") -> None:
        from Stemmer import Stemmer

        if name not in BASELINES:
            raise Unsupported(f"no baseline {name!r}; one of: {', '.join(BASELINES)}")
        self._stemmer = None
        if name == "bm25-stem":
            try:
                self._stemmer = Stemmer(language)
            except KeyError:  # Chinese and Japanese have no endings to cut off
                self._stemmer = Stemmer("en")
        self._stop_words = frozenset(_STOP_WORDS.split())
        self._ids: list[str] = []
        self._turns: list[list[str]] = []
        self.add(conversation.sessions)

    def add(self, sessions: Iterable[Session]) -> None:
        """Add the turns of further sessions."""
        from rank_bm25 import BM25Okapi

        for session in sessions:
            for turn in session.turns:
                self._ids.append(turn.id)
                self._turns.append(self._words(self._text(session, turn)))
        self._bm25 = BM25Okapi(self._turns) if self._turns else None

    def rank(self, question: str) -> tuple[str, ...]:
        """Return the distinct ids of all turns, best first; ties keep the conversation's order."""
        if self._bm25 is None:
            return ()
        scores = self._bm25.get_scores(self._words(question))
        return tuple(dict.fromkeys(self._ids[i] for i in (-scores).argsort(kind="stable")))

    def _text(self, session: Session, turn: ImportedMessage) -> str:
        message = turn.message
        if not self._stemmer:
            return message.content
        when = message.observed_at or session.observed_at
        date = f"{when.day} {when:%B %Y}" if when else ""
        return f"{date} {message.speaker or message.role} {message.content}"

    def _words(self, text: str) -> list[str]:
        words: list[str] = re.findall(r"\w+", text.lower())
        if not self._stemmer:
            return words
        words = [piece for word in words for piece in _split_unspaced(word)]
        stems: list[str] = self._stemmer.stemWords([w for w in words if w not in self._stop_words])
        return stems


def _split_unspaced(word: str) -> Iterator[str]:
    """Yield a word; in unspaced scripts, its characters and pairs of characters instead."""
    end = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > end:
            yield word[end : run.start()]
        characters, end = run[0], run.end()
        yield from characters
        yield from map("".join, pairwise(characters))
    if end < len(word):
        yield word[end:]
