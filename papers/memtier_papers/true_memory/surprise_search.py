"""Find how surprising lines are among all that one viewer may see (True Memory, stage 4).

There is no table of surprise: a fingerprint is new in the line where one of its words first occurs,
which the index knows, so that forgetting, purging and rebuilding need nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from memtier_papers.true_memory.surprise import fingerprints, line_surprise
from memtier_plugin.core.records import Entry
from memtier_plugin.retrieval.candidates import best_rows
from memtier_plugin.retrieval.signals import Pool
from memtier_plugin.storage.index.records import to_utf8_all
from memtier_plugin.storage.readers import Reader

_SURPRISING: Final = 50  # top hits of the first ranking whose surprise is computed


def measure_surprise(
    texts: Mapping[int, str],
    reader: Reader,
    scopes: Sequence[int],
    words: Callable[[str], Sequence[str]],
) -> dict[int, float]:
    """Return how much of each line, by row, no earlier line of the scopes said, 0 to 1.

    Args:
        words: the index's tokenizer.
    """
    parts = {
        mark: words(mark.partition(":")[2])
        for text in texts.values()
        for mark in fingerprints(text)
    }
    words_of_all = {*chain.from_iterable(parts.values())}
    first = reader.plugin_tables(partial(_first_rows, scopes, words_of_all))
    since = {mark: {first.get(word) for word in words} for mark, words in parts.items()}
    return {
        row: line_surprise(text, partial(_is_first_in, since, row)) for row, text in texts.items()
    }


def score_surprise(pool: Pool, reader: Reader, scopes: Sequence[int]) -> list[float]:
    """Score the surprise of a pool's best entries; the others have none."""
    texts = {
        row: stored.item.text
        for row, stored in reader.items_by_row(best_rows(pool.first, _SURPRISING)).items()
        if isinstance(stored.item, Entry)
    }
    return pool.values(measure_surprise(texts, reader, scopes, pool.query.tokenizer.words))


def _first_rows(scopes: Sequence[int], words: Collection[str], index: Any) -> dict[str, int]:
    """Return the first row, in order of writing, with each of these index words."""
    rows = index.execute(
        """SELECT term, min(item) FROM (
             SELECT words.value AS term,
               (SELECT item FROM postings WHERE scope = scopes.value AND term = words.value
                ORDER BY item LIMIT 1) AS item
             FROM json_each(?) AS words, json_each(?) AS scopes)
           WHERE item IS NOT NULL GROUP BY term""",
        (json.dumps(to_utf8_all(words)), json.dumps(list(scopes))),
    )
    return {str(term): int(row) for term, row in rows}


def _is_first_in(since: Mapping[str, Collection[int | None]], row: int, mark: str) -> bool:
    """Return whether a fingerprint occurs first in a row."""
    return row in since[mark]
