"""Parts of a long text: the one that answers a query, and pieces to compare with it.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import regex

OMISSION: Final = "[...]"
_BEGINNING: Final = 3  # letters that a stem and its inflected word share
# Where a text may be cut: after the end of a sentence, and between lines.
_SENTENCE: Final = regex.compile(r"[^\n.!?。！？]*(?:[.!?]+(?=\s|$)|[。！？]+|[.!?]|\n|$)")


def select_passage(
    text: str, weights: Mapping[str, float], words: Callable[[str], Sequence[str]], size: int
) -> str:
    """Return the run of whole sentences, at most ``size`` characters, that says most of a query.

    A passage is worth the weights of the different query words in it; among equals the earliest
    and shortest.  Where something is left out before or after stands a mark.

    Args:
        weights: what each word of the query counts (its idf).
        words: the tokenizer that made them.
    """
    if len(text) <= size:
        return text
    spans = _sentences(text, size)
    found = _words_found(text, spans, weights, words)
    # Whole numbers, so that a sum does not depend on the order of its parts.
    value = {word: round(weight * 1_000_000) for word, weight in weights.items()}
    best, chosen = -1, (0, 0)
    for first in range(len(spans)):
        if first and not found[first]:
            continue  # what begins with nothing is not better than what begins after it
        covered: set[str] = set()
        worth = 0
        for last in range(first, len(spans)):
            if spans[last][1] - spans[first][0] > size:
                break
            if fresh := found[last] - covered:
                covered |= fresh
                worth += sum(value[word] for word in fresh)
            if worth > best:
                best, chosen = worth, (first, last)
    start, end = spans[chosen[0]][0], spans[chosen[1]][1]
    start, end = _widened(spans, start, end, size)
    before, after = bool(text[:start].strip()), bool(text[end:].strip())
    return f"{OMISSION} " * before + text[start:end].strip() + f" {OMISSION}" * after


def chunk_text(text: str, size: int, most: int) -> tuple[str, ...]:
    """Cut a text into runs of whole sentences of at most ``size`` characters each.

    Returns at most ``most`` pieces, the first ones; one for a text without a word.
    """
    if len(text) <= size:
        return (text,)
    found: list[tuple[int, int]] = []
    for start, end in _sentences(text, size):
        if found and end - found[-1][0] <= size:
            found[-1] = (found[-1][0], end)
        elif len(found) == most:
            break
        else:
            found.append((start, end))
    return tuple(text[start:end] for start, end in found) or (text[:size],)


def _words_found(
    text: str,
    spans: Sequence[tuple[int, int]],
    weights: Mapping[str, float],
    words: Callable[[str], Sequence[str]],
) -> list[set[str]]:
    """Return the query's words in each sentence; one that shares no beginning has none."""
    beginnings = tuple({word[:_BEGINNING] for word in weights})
    folded = text.casefold() if text.isascii() else ""  # folding may move what is not ASCII
    return [
        {word for word in words(text[start:end]) if word in weights}
        if not folded or any(b in folded[start:end] for b in beginnings)
        else set()
        for start, end in spans
    ]


def _sentences(text: str, size: int) -> list[tuple[int, int]]:
    """Return the spans of sentences; one longer than ``size`` is cut into pieces of it."""
    spans = []
    for match in _SENTENCE.finditer(text):
        start, end = match.span()
        while end - start > size:
            space = text.rfind(" ", start + size // 2, start + size)
            cut = space + 1 if space > 0 else start + size
            spans.append((start, cut))
            start = cut
        if text[start:end].strip():
            spans.append((start, end))
    return spans


def _widened(spans: Sequence[tuple[int, int]], start: int, end: int, size: int) -> tuple[int, int]:
    """Add the sentences after, then before, while there is room: context costs nothing more."""
    for _, later in (span for span in spans if span[0] >= end):
        if later - start > size:
            break
        end = later
    for earlier, _ in reversed([span for span in spans if span[1] <= start]):
        if end - earlier > size:
            break
        start = earlier
    return start, end
