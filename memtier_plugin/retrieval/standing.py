"""Standing instructions that apply to a task although they share no words with it.

"Start every argument name with i_" is what a task to write a function needs, and no measure of
likeness tells.  An instruction holds where it names what the task is about (a function, an e-mail),
or an aspect that any work of that domain has (naming, comments), or how to answer at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import accumulate
from typing import Final

from msgspec import Struct

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, Fact, count_tokens
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.pasted_text import remove_pasted
from memtier_plugin.retrieval.prompt_words import split_words
from memtier_plugin.retrieval.visibility import Viewer, entry_hit
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.lexicon import WordSet, lexicons, words_of
from memtier_plugin.text.phrases import find_orders, is_standing_instruction
from memtier_plugin.text.tokenizer import Tokenizer

MAX_LINES: Final = 8  # of standing instructions in a block
_PARTS: Final = 3  # of a block's tokens, of which they have one
_READ: Final = 48  # instructions that are looked at, the newest
_MAX_CHARS: Final = 2_000  # of a task that are looked at
_HEAD: Final = 20  # tokens of a line before its words
_ASPECT: Final = 1  # how well an instruction suits that names no word of the task
_SAME: Final = 0.25  # of the words of two orders for the same thing
_STANDING_RELATIONS: Final = frozenset(
    {"standing_instruction", "instruction", "rule", "always", "never", "constraint"}
)
# What an order sets: a quoted word or a name with a sign, or a number.
_VALUE: Final = regex.compile(
    r"""(?P<name>(?<!\w)(?:['"‘“`«「][^\s'"‘’“”`«»「」]+['"’”`»」]|[^\W_]*_\w*)|@\w+)"""
    r"""|(?P<number>\b\d+\b)"""
)


def is_standing(item: Entry | Fact) -> bool:
    """Return whether an item is a rule or a standing instruction."""
    is_rule = isinstance(item, Fact) and item.relation in _STANDING_RELATIONS
    return is_rule or is_standing_instruction(item.text)


class _Order(Struct, frozen=True):
    words: WordSet
    topic: WordSet  # those of them that name a kind of work, or an aspect of it
    sets: WordSet  # the kinds of values in it
    forbids: bool

    @classmethod
    @lru_cache(256)
    def of(cls, text: str) -> _Order:
        """Read an order."""
        words = stems(text)
        sets = frozenset(match.lastgroup or "" for match in _VALUE.finditer(text))
        forbids = not words_of("negations").isdisjoint(split_words(text))
        return cls(words, words & _topics(), sets, forbids)

    def replaces(self, older: _Order) -> bool:
        """Return whether it sets a value of the same thing as an older one.

        Two prohibitions hold together, and so do orders without a value: nothing proves that one
        is instead of the other.
        """
        if not (self.topic and self.sets) or (self.forbids and older.forbids):
            return False
        alike = len(self.words & older.words) >= _SAME * len(self.words | older.words)
        return alike and (self.topic, self.sets) == (older.topic, older.sets)


def read_standing(reader: Reader, viewer: Viewer) -> list[Hit]:
    """Return the newest standing instructions that a viewer may see."""
    scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
    rows = reader.standing_rows(scopes, _READ)
    stored = reader.items_by_row(rows)
    return [entry_hit(stored[row], 0.0, {}) for row in rows if row in stored]


def find_unpasted_orders(text: str) -> str:
    """Return the orders for good of a message, without those in what was pasted into it."""
    return find_orders(remove_pasted(text))


def select_standing(prompt: str, hits: Iterable[Hit], budget: int) -> list[Hit]:
    """Return the few instructions that suit a task best, the newest first.

    One that a newer one replaces is none, and all together leave most of the block to the answer.

    Args:
        hits: the newest first.
        budget: the tokens of the block.
    """
    task = stems(prompt[:_MAX_CHARS])
    newer: list[_Order] = []
    suited: list[tuple[int, int, Hit]] = []
    for hit in hits:
        text = find_unpasted_orders(hit.text)
        order = _Order.of(text)
        if not text or any(other.replaces(order) for other in newer):
            continue
        newer.append(order)
        if degree := suits(task, order.words):
            suited.append((degree, count_tokens(text) + _HEAD, hit))
    best = sorted(suited, key=lambda each: -each[0])[:MAX_LINES]
    used = accumulate(tokens for _, tokens, _ in best)
    fitting = [each for each, total in zip(best, used, strict=True) if total <= budget // _PARTS]
    return [each[-1] for each in suited if each in fitting]


def suits(task: WordSet, words: WordSet) -> int:
    """Return how well the words of an instruction suit those of a task; 0 if they do not."""
    degree, named = 0, False
    for domain, domain_words in _domains("domains").items():
        aspects = _domains("style_words").get(domain, frozenset())
        named = named or not words.isdisjoint(domain_words | aspects)
        if task.isdisjoint(domain_words):
            continue
        if both := words & domain_words & task:
            degree = _ASPECT + len(both)
        elif not words.isdisjoint(aspects):
            degree = max(degree, _ASPECT)
    if not degree and not named and not words.isdisjoint(_answering()):
        return _ASPECT
    return degree


def stems(text: str) -> WordSet:
    """Return the words of a text for comparing tasks and instructions."""
    return frozenset(_tokenizer().words(text))


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer("english")  # the language of the lists, whatever the project's


@cache
def _topics() -> WordSet:
    return _answering().union(*_domains("domains").values(), *_domains("style_words").values())


@cache
def _answering() -> WordSet:
    return stems(" ".join(words_of("answering")))


@cache
def _domains(name: str) -> dict[str, WordSet]:
    """Return the words of each domain over all languages."""
    domains: dict[str, list[str]] = {}
    for words in lexicons():
        for domain, domain_words in getattr(words, name).items():
            domains.setdefault(domain, []).extend(domain_words)
    return {domain: stems(" ".join(domain_words)) for domain, domain_words in domains.items()}
