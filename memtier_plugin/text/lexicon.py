"""Closed word classes, number words, months and phrases of time: one data file per language.

The files in ``data/`` are JSON, which loads in 0.1 ms where TOML takes 0.5 and YAML 7. A class of
words is a text, or a list of lines where it is long; a list of phrases has one phrase per item. A
new language is a new file and its name in `LANGUAGES`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

Words = frozenset[str]
WordList = tuple[str, ...]
Phrases = tuple[str, ...]

_DATA: Final = Path(__file__).parent / "data"
# Languages with closed classes: a claim in another one is believed only word by word.
LANGUAGES: Final = (
    "english",
    "german",
    "spanish",
    "french",
    "italian",
    "portuguese",
    "dutch",
    "russian",
    "chinese",
    "japanese",
)
_DATES_ONLY: Final = ("korean",)


def word_set(text: str) -> frozenset[str]:
    """Return the words of a space-separated list."""
    return frozenset(text.split())


class Lexicon:
    """The words of one language by class; each class is parsed when it is first asked for."""

    language: str
    # Writing
    unspaced: bool  # words are not separated by spaces
    foreign_letters: str  # of related languages, not of this one
    abbreviations: Words  # their full stop does not end a sentence
    stop_words: Words  # function words that the index leaves out
    # Grammar
    function_words: Words  # may come and go without changing a statement
    negations: Words  # deny a clause
    concord_negations: Words  # deny a clause only where nothing else does
    first_person: Words  # this and the next three say whose a statement is
    first_possessive: Words
    second_person: Words
    third_person: Words
    contrasts: Words  # begin a new statement
    conjunctions: Words  # join two things or two statements
    nonfactual: Words  # wish, doubt, plan, end, report or condition a statement; never negligible
    nonfactual_classes: Mapping[str, WordList]  # those that say the same
    pro_drop: bool  # a statement may lack its subject
    verb_endings: WordList  # "first>third": the first person and the third
    verb_forms: WordList  # the same of whole verbs, where endings do not tell
    irregular_verbs: Phrases  # the forms of a verb, the past ones after the bar
    hints: Words  # further words by which the language is recognised
    contractions: Mapping[str, str]  # short forms and the words they stand for
    contracted_endings: Mapping[str, str]
    clause_subjects: Words  # begin a clause after a comma or a conjunction
    clause_verbs: Words  # follow the subject of such a clause
    question_openers: Words
    determiners: Words  # make "one" a pronoun rather than a number
    # Numbers and time
    articles: WordList  # indefinite; before a unit of time they count one
    numbers: Mapping[str, int]
    ordinals: Mapping[str, int]
    homograph_numbers: Words  # numbers in this language only: others spell another word so
    unit_aliases: Mapping[str, str]  # other names of a unit of measure
    months: Phrases  # from January, the full name first
    ambiguous_months: Words  # also words of another meaning
    weekdays: Phrases  # from Monday, the full name first
    weekday_steps: Mapping[str, int]  # "last", "this" and "next" before a weekday, in weeks
    units: Mapping[str, WordList]  # forms of day, week, month and year
    relative_times: Mapping[str, Phrases]  # by unit and distance ("day -1": yesterday)
    not_tomorrow_after: WordList  # after these the word for tomorrow means the morning
    ago_before: Phrases  # this and the next three stand around a count of units
    ago_after: Phrases
    ahead_before: WordList
    ahead_after: Phrases
    year_cues: Phrases  # before a number they make it a year
    # Talk
    greetings: Phrases
    thanks: Phrases
    acknowledgements: Phrases
    # Claims
    conditionals: Words
    copulas: Words
    possession_verbs: Words
    kinship: Words  # people and animals
    omissible: Words  # may be left out of a statement, or added to it
    fiction_frames: Words  # name something in which a statement need not be true
    locatives: Words  # prepositions before such a frame
    clause_final: Words  # nonfactual words that reach back over a conjunction
    phrase_starters: Words  # content words that begin a phrase of their own
    polar: Words  # content words of a class that otherwise counts as function words
    reporting_words: Words  # a report may add them without claiming more
    request_words: Words  # of these, the ones that report a request
    antonyms: Phrases  # pairs of comparison keys that exclude each other
    synonyms: Mapping[str, WordList]  # words that state the same of a person, by their meaning

    def __init__(self, language: str) -> None:
        self.language = language
        self._data = json.loads((_DATA / f"{language}.json").read_bytes())

    if not TYPE_CHECKING:  # or a misspelt class of words would pass for one

        def __getattr__(self, name: str) -> object:
            kind = type(self).__annotations__.get(name)
            if kind is None:
                raise AttributeError(name)
            value = _READERS[kind](self._data.get(name))
            setattr(self, name, value)
            return value

    @cached_property
    def month_names(self) -> WordList:
        """The full names of the months, from January."""
        return tuple(names.split()[0] for names in self.months)

    @cached_property
    def weekday_names(self) -> WordList:
        """The full names of the weekdays, from Monday."""
        return tuple(names.split()[0] for names in self.weekdays)

    def number_words(self, low: int, high: int) -> WordList:
        """Return the number words for a range of values, both ends included."""
        return tuple(word for word, value in self.numbers.items() if low <= value <= high)


def _word_list(value: str | list[str] | None) -> WordList:
    return tuple((value if isinstance(value, str) else " ".join(value or ())).split())


_READERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "str": lambda value: value or "",
    "bool": bool,
    "Words": lambda value: frozenset(_word_list(value)),
    "WordList": _word_list,
    "Phrases": lambda value: tuple(value or ()),
    "Mapping[str, int]": lambda value: value or {},
    "Mapping[str, str]": lambda value: value or {},
    "Mapping[str, WordList]": lambda value: {k: _word_list(v) for k, v in (value or {}).items()},
    "Mapping[str, Phrases]": lambda value: {k: tuple(v) for k, v in (value or {}).items()},
}


@cache
def lexicon(language: str) -> Lexicon:
    """Load the word classes of a language."""
    return Lexicon(language)


@cache
def lexicons() -> tuple[Lexicon, ...]:
    """Load all languages."""
    return tuple(map(lexicon, (*LANGUAGES, *_DATES_ONLY)))


@cache
def small_talk() -> Phrases:
    """Return the greetings, thanks and acknowledgements of all languages."""
    return tuple(
        phrase
        for words in lexicons()
        for phrase in (*words.greetings, *words.thanks, *words.acknowledgements)
    )


@cache
def words_of(name: str) -> Words:
    """Return a class of words over all languages."""
    return frozenset[str]().union(*(getattr(words, name) for words in lexicons()))
