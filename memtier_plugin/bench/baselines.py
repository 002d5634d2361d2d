"""BM25 baselines on rank-bm25, which the default profile must beat.

`bm25` uses the lower-cased words of each turn.  `bm25-stem` stems them, drops function words and
adds the date and the speaker to the text.
"""

from __future__ import annotations

import re
from typing import Final

from memtier_plugin.bench.datasets import Conversation
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.ingest.sessions import Session, Turn

BASELINES: Final = ("bm25", "bm25-stem")

# A list of its own, so that changes to MemTier's tokenizer do not move the baseline.
_STOP_WORDS: Final = """
    a an the and or but if then than so as of at by for with about to from in on up out over into
    i me my we us our you your he him his she her hers it its they them their this that these those
    am is are was were be been being do does did doing done have has had having will would can could
    should shall may might must not no nor what which who whom whose when where why how there here
"""


class Baseline:
    """BM25Okapi (rank-bm25 with its defaults) over all turns of one conversation."""

    def __init__(self, name: str, conversation: Conversation) -> None:
        from rank_bm25 import BM25Okapi
        from Stemmer import Stemmer

        if name not in BASELINES:
            raise Unsupported(f"no baseline {name!r}; one of: {', '.join(BASELINES)}")
        self._stemmer = Stemmer("english") if name == "bm25-stem" else None
        self._stop_words = frozenset(_STOP_WORDS.split())
        self._ids = [turn.id for turn in conversation.turns]
        self._bm25 = BM25Okapi(
            [
                self._words(self._text(session, turn))
                for session in conversation.sessions
                for turn in session.turns
            ]
        )

    def rank(self, question: str) -> tuple[str, ...]:
        """Return the ids of all turns, best first; equal scores keep the conversation's order."""
        scores = self._bm25.get_scores(self._words(question))
        return tuple(self._ids[i] for i in (-scores).argsort(kind="stable"))

    def _text(self, session: Session, turn: Turn) -> str:
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
        stems: list[str] = self._stemmer.stemWords([w for w in words if w not in self._stop_words])
        return stems
