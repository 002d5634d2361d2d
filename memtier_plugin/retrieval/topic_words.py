"""Find the words that say what a text is about, in its language.  Pure.

The index leaves out the function words of English alone.  The idf does not keep those of other
languages low everywhere: the "你" of a question is rare among lines about others.  As evidence
that a line fits, "der", "ist" and "的" count nothing, nor does the "many" of "how many".
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from memtier_plugin.retrieval.prompt_words import (
    likeliest_language,
    split_words,
    tokenize,
    vocabulary,
)
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.tokenizer import Tokenizer


def query_language(text: str) -> str:
    """Return the language that a query is most likely in."""
    return likeliest_language(text, split_words(text))


def topic_terms(
    text: str, terms: Collection[str], language: str, tokenizer: Tokenizer
) -> Collection[str]:
    """Return the index words of a query that say what it is about; all where none does.

    Args:
        terms: the words of the text, as the tokenizer makes them.
    """
    if lexicon(language).unspaced:
        between = _terms_between(text, language, tokenizer)
        topic = {term for term in terms if term in between or term.isascii()}
    else:
        empty = _empty_terms(language, tokenizer.language)
        topic = {term for term in terms if term not in empty}
    return topic or terms


def ranking_terms(topic: Collection[str]) -> set[str]:
    """Return the index words that count in full in a ranking: a topic's, and their characters."""
    return {*topic, *(character for term in topic if not term.isascii() for character in term)}


def count_content(text: str) -> tuple[int, list[str]]:
    """Return how many words of content a text has, and those words.

    None of a closed class is one, nor a noun that only points into the conversation ("thing").
    Where words are not separated, two letters count as a word.
    """
    units = split_words(text)
    language = likeliest_language(text, units)
    classes = lexicon(language)
    empty = _empty_words(language) | classes.abstract_subjects
    units = [*"".join(units)] if classes.unspaced else units
    tokens = tokenize(units, vocabulary(language))
    content = [word for word, of in tokens if not of and word not in empty]
    return (len(content) + 1) // 2 if classes.unspaced else len(content), content


@cache
def _empty_words(language: str) -> frozenset[str]:
    words = lexicon(language)
    if language == "english":  # the index has hardly any others
        return words.query_words
    return words.function_words.union(
        words.query_words,
        words.negations,
        words.first_person,
        words.first_possessive,
        words.second_person,
        words.third_person,
        words.contrasts,
    )


@cache
def _empty_terms(language: str, stemmed_as: str) -> frozenset[str]:
    words = Tokenizer(stemmed_as).words
    return frozenset(term for word in _empty_words(language) for term in words(word))


def _terms_between(text: str, language: str, tokenizer: Tokenizer) -> set[str]:
    """Return the index words between function words, where words are not separated.

    A character by itself counts only where it stands alone: two together are most of a word.
    """
    empty = _empty_words(language)
    longest = max(map(len, empty))
    folded = text.casefold()
    terms: set[str] = set()
    start = position = 0

    def take(run: str) -> None:
        words = tokenizer.words(run)
        pairs = [word for word in words if len(word) > 1]
        terms.update(pairs or words)

    while position < len(folded):
        ahead = folded[position : position + longest]
        size = next((n for n in range(len(ahead), 0, -1) if ahead[:n] in empty), 0)
        if size:
            take(folded[start:position])
            start = position = position + size
        else:
            position += 1
    take(folded[start:])
    return terms
