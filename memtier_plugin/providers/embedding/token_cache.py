"""The tokens of many texts: each word is given to the tokenizer but once.

BERT's tokenizer (a normaliser, a cut at white space and punctuation, WordPiece) goes word by word,
so that the tokens of a text are those of its words; and most words of a text were in another one.
This takes a sixth of the time, which for a static model is most of what it needs.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORD: Final = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # the normaliser leaves them out
_KEPT: Final = 1 << 15
_LONGEST_KEPT: Final = 40  # characters


class TokenCache(dict[str, tuple[int, ...]]):
    """The ids of the tokens of each word, without the unknown, asked for when it is first seen."""

    def __init__(self, tokenizer: Tokenizer, unknown: int | None) -> None:
        super().__init__()
        self._before: dict[str, tuple[int, ...]] = {}  # what was kept before the last clearing
        self._tokenizer = tokenizer
        self._unknown = unknown
        # Texts that stand for a token of their own wherever they are.
        added = tokenizer.get_added_tokens_decoder().values()
        self._added = tuple(token.content.lower() for token in added)
        self._wordwise = _goes_by_words(tokenizer)

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text's tokens, the same as the tokenizer's."""
        if self._wordwise and text.isascii() and not _CONTROL.search(text):
            lower = text.lower()
            if not any(token in lower for token in self._added):
                return [*chain.from_iterable(map(self.__getitem__, _WORD.findall(lower)))]
        return self.tokenize(text)

    def tokenize(self, text: str) -> list[int]:
        """Return what the tokenizer gives for a text."""
        clean = text.encode("utf-8", "ignore").decode()  # lone surrogates are no text
        ids = self._tokenizer.encode(clean, add_special_tokens=False).ids
        return [token for token in ids if token != self._unknown]

    def __missing__(self, word: str) -> tuple[int, ...]:
        found = self._before.get(word)
        if found is None:
            # A word that is a token of its own is not cut.
            whole = self._tokenizer.token_to_id(word) if len(word) <= _LONGEST_KEPT else None
            found = tuple(self.tokenize(word)) if whole in (None, self._unknown) else (whole,)
        if len(word) <= _LONGEST_KEPT:
            if len(self) >= _KEPT:
                self._before = dict(self)
                self.clear()
            self[word] = found
        return found


def _goes_by_words(tokenizer: Tokenizer) -> bool:
    from tokenizers import models, normalizers, pre_tokenizers

    normalizer = tokenizer.normalizer
    return (
        isinstance(normalizer, normalizers.BertNormalizer)
        and normalizer.lowercase
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(tokenizer.model, models.WordPiece)
        and tokenizer.model.max_input_chars_per_word >= _LONGEST_KEPT
    )
