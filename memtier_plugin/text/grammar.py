"""Verbs, synonyms and common words of a language, as sentences are parsed by them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from memtier_plugin.text.lexicon import Words, lexicon, lexicons


class IrregularVerbs(NamedTuple):
    """The irregular English verbs: the lemma of each form, and the forms of the past."""

    lemmas: Mapping[str, str]
    past: Words


@cache
def irregular_verbs() -> IrregularVerbs:
    """Return the forms of English verbs that no stemmer brings together."""
    lemmas: dict[str, str] = {}
    past: set[str] = set()
    for line in lexicon("english").irregular_verbs:
        present, _, then = line.partition("|")
        lemma, *_ = present.split()
        lemmas.update(dict.fromkeys([*present.split(), *then.split()], lemma))
        past.update(then.split())
    return IrregularVerbs(lemmas, frozenset(past))


@cache
def verb_forms(language: str) -> Mapping[str, str]:
    """Return the third person of verbs in the first, where endings do not tell it."""
    return dict(form.split(">") for form in lexicon(language).verb_forms)


@cache
def verb_endings(language: str) -> tuple[tuple[str, str], ...]:
    """Return the endings of the first person, each with that of the third."""
    pairs = (pair.partition(">") for pair in lexicon(language).verb_endings)
    return tuple((first.strip("-"), third.strip("-")) for first, _, third in pairs)


@cache
def common_words(language: str) -> Words:
    """Return the closed classes of a language and its most common verbs."""
    words = lexicon(language)
    forms = verb_forms(language)
    return words.function_words.union(
        words.negations,
        words.first_person,
        words.first_possessive,
        words.second_person,
        words.third_person,
        words.contrasts,
        forms.keys(),
        forms.values(),
    )


@cache
def _synonyms() -> Mapping[str, str]:
    return {
        word: f"={meaning}"
        for lexicon in lexicons()
        for meaning, words in lexicon.synonyms.items()
        for word in words
    }


def synonym_key(word: str) -> str | None:
    """Return the key that a word shares with its synonyms in all languages, or None."""
    return _synonyms().get(word)
