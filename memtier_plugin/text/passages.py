"""Select the passage of a long text that answers a query, and cut texts into chunks.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.tokenizer import MAX_CHARS

OMISSION: Final = "[...]"
SPARED_CHARS: Final = 120  # beyond a limit: the rest of a text may be its answer, and costs less
_PREFIX: Final = 3  # letters shared by a stem and its inflected forms
# A text may be split after a sentence and between lines.
_SENTENCE: Final = regex.compile(r"[^\n.!?。！？]*(?:[.!?]+(?=\s|$)|[。！？]+|[.!?]|\n|$)")


def select_passage(
    text: str, weights: Mapping[str, float], words: Callable[[str], Sequence[str]], size: int
) -> str:
    """Return the whole sentences, at most ``size`` characters, that match a query best.

    A passage scores the weights of the distinct query words in it; ties go to the earliest and
    shortest. An ellipsis marks omitted text before or after. Text beyond the indexed part is
    ignored.

    Args:
        weights: the weight (idf) of each word of the query.
        words: the tokenizer that produced them.
    """
    if len(text) <= size:
        return text
    spans = _sentences(text[:MAX_CHARS], size) or [(0, size)]
    matches = _query_words(text, spans, weights, words)
    # Integers, so that a sum does not depend on the order of its terms.
    value = {word: round(weight * 1_000_000) for word, weight in weights.items()}
    # A passage that opens without a match is no better than the next one.
    matched = [at for at, words_there in enumerate(matches) if words_there or not at]
    best, first, last = 0, 0, 0
    within = dict.fromkeys(value, 0)  # counts in the longest passage that starts at a sentence
    stop = score = 0
    for opening, at in enumerate(matched):
        while stop < len(matched) and spans[matched[stop]][1] - spans[at][0] <= size:
            for word in matches[matched[stop]]:
                score += 0 if within[word] else value[word]
                within[word] += 1
            stop += 1
        if score > best:
            best, first = score, at
            missing = {word for word, count in within.items() if count and value[word]}
            for last in matched[opening:stop]:
                missing -= matches[last]
                if not missing:
                    break
        for word in matches[at]:
            within[word] -= 1
            score -= 0 if within[word] else value[word]
    start, end = spans[first][0], spans[last][1]
    start, end = _widened(spans, start, end, size)
    before, after = bool(text[:start].strip()), bool(text[end:].strip())
    return f"{OMISSION} " * before + text[start:end].strip() + f" {OMISSION}" * after


def chunk_text(text: str, size: int, most: int) -> tuple[str, ...]:
    """Split a text into chunks of whole sentences, at most ``size`` characters each.

    Returns the first ``most`` chunks, and one for a text without words.
    """
    if len(text) <= size:
        return (text,)
    chunks: list[tuple[int, int]] = []
    for start, end in _sentences(text, size):
        if chunks and end - chunks[-1][0] <= size:
            chunks[-1] = (chunks[-1][0], end)
        elif len(chunks) == most:
            break
        else:
            chunks.append((start, end))
    return tuple(text[start:end] for start, end in chunks) or (text[:size],)


def _query_words(
    text: str,
    spans: Sequence[tuple[int, int]],
    weights: Mapping[str, float],
    words: Callable[[str], Sequence[str]],
) -> list[set[str]]:
    """Return each sentence's query words; sentences without their prefixes are not tokenized."""
    prefixes = tuple({word[:_PREFIX] for word in weights})
    folded = text.casefold() if text.isascii() else ""  # casefolding other text may shift positions
    return [
        {word for word in words(text[start:end]) if word in weights}
        if not folded or any(prefix in folded[start:end] for prefix in prefixes)
        else set()
        for start, end in spans
    ]


def _sentences(text: str, size: int) -> list[tuple[int, int]]:
    """Return the spans of sentences; one longer than ``size`` is split."""
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
    """Extend a span by following, then preceding sentences while there is room."""
    for _, later in (span for span in spans if span[0] >= end):
        if later - start > size:
            break
        end = later
    for earlier, _ in reversed([span for span in spans if span[1] <= start]):
        if end - earlier > size:
            break
        start = earlier
    return start, end
