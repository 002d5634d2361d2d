"""Keep a running summary of a session: fold it, four lines at a time, into a few sentences.  Pure.

The update rule of Mem-T's working memory (3.1, UpdWork) without a model: what the session is for,
and the user's newest words, always stand in it; of the rest the sentences that say most, of those
kept so far and of the new lines.  Extractive, so that it has nothing that nobody said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from memtier_plugin.core.records import Entry, count_tokens
from memtier_plugin.facts.summaries.selection import (
    SourceSentence,
    find_sentences,
    format_quote,
    is_telling,
    select_sentences,
)

BATCH: Final = 4  # lines that are folded in at once (Mem-T, 3.1)
MAX_TOKENS: Final = 240  # of what is quoted

Tokenize = Callable[[str], Sequence[str]]


def fold_session(
    lines: Sequence[Entry], words: Tokenize, rarity: Mapping[str, float], budget: int = MAX_TOKENS
) -> list[SourceSentence]:
    """Return the sentences of a running summary after all lines, in their order.

    Args:
        lines: of one session, in order.
        words: the tokenizer.
        rarity: the worth of each word, by how few lines have it.
        budget: tokens of what is quoted.
    """
    kept: list[SourceSentence] = []
    for start in range(0, len(lines), BATCH):
        kept = _fold(kept, lines[start : start + BATCH], words, rarity, budget)
    return kept


def _fold(
    kept: Sequence[SourceSentence],
    batch: Sequence[Entry],
    words: Tokenize,
    rarity: Mapping[str, float],
    budget: int,
) -> list[SourceSentence]:
    """Return the summary after a batch: its purpose, the newest wish, and what else says most."""
    new = [sentence for sentence in find_sentences(batch) if is_telling(sentence, words)]
    from_user = [sentence for sentence in new if sentence.entry.role == "user"]
    pinned = dict.fromkeys([*(kept[:1] or from_user[:1]), *from_user[-1:]])
    left = budget - sum(count_tokens(format_quote(sentence)) + 1 for sentence in pinned)
    rest = [sentence for sentence in (*kept, *new) if sentence not in pinned]
    chosen = {*pinned, *select_sentences(rest, words, rarity, left, filled=True)}
    return [sentence for sentence in (*kept, *new) if sentence in chosen]
