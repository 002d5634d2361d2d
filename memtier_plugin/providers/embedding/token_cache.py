"""Tokenize many texts, giving each distinct word to the tokenizer once.

BERT's tokenizer (normalise, split at white space and punctuation, WordPiece) works word by word, so
the tokens of a text are those of its words, and most words of a text occurred in another one. The
cache takes a sixth of the tokenizer's time, which is most of the time of a static model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORD: Final = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # the normaliser leaves them out
_MAX_WORDS: Final = 1 << 15  # then the older half may go
_MAX_WORD_CHARS: Final = 40  # of a word that is cached


class TokenCache(dict[str, tuple[int, ...]]):
    """Map each word to the ids of its known tokens, looked up when it first occurs."""

    def __init__(self, tokenizer: Tokenizer, unknown: int | None) -> None:
        super().__init__()
        self._previous: dict[str, tuple[int, ...]] = {}  # the words before the last clearing
        self._tokenizer = tokenizer
        self._unknown = unknown
        # Texts that are one token wherever they occur, even inside a word.
        added = tokenizer.get_added_tokens_decoder().values()
        self._added = tuple(token.content.lower() for token in added)
        self._by_word = _splits_by_word(tokenizer)

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of the known tokens of a text, by word from the cache where possible."""
        if self._by_word and text.isascii() and not _CONTROL.search(text):
            lower = text.lower()
            if not any(token in lower for token in self._added):
                return [*chain.from_iterable(map(self.__getitem__, _WORD.findall(lower)))]
        return self.tokenize(text)

    def token_ids_of_each(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the `token_ids` of each text."""
        return [self.token_ids(text) for text in texts]

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of the known tokens of a text, asking the tokenizer."""
        clean = text.encode("utf-8", "ignore").decode()  # the tokenizer refuses lone surrogates
        ids = self._tokenizer.encode(clean, add_special_tokens=False).ids
        return [token for token in ids if token != self._unknown]

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self._previous.get(word)
        if ids is None:
            # A word that is a token itself is not split.
            token = self._tokenizer.token_to_id(word) if len(word) <= _MAX_WORD_CHARS else None
            ids = tuple(self.tokenize(word)) if token in (None, self._unknown) else (token,)
        if len(word) <= _MAX_WORD_CHARS:
            if len(self) >= _MAX_WORDS:
                self._previous = dict(self)
                self.clear()
            self[word] = ids
        return ids


def _splits_by_word(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer treats each lower-case word on its own, as BERT's does."""
    from tokenizers import models, normalizers, pre_tokenizers

    normalizer = tokenizer.normalizer
    return (
        isinstance(normalizer, normalizers.BertNormalizer)
        and normalizer.lowercase
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(tokenizer.model, models.WordPiece)
        and tokenizer.model.max_input_chars_per_word >= _MAX_WORD_CHARS
    )


def unknown_token(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token for unknown words, which says nothing about a text."""
    model = tokenizer.model
    if hasattr(model, "unk_token"):
        return tokenizer.token_to_id(model.unk_token) if model.unk_token is not None else None
    unknown: int | None = json.loads(tokenizer.to_str())["model"].get("unk_id")
    return unknown
