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
    """The words of one language by class; each class is parsed when it is first asked for.

    Writing:
        unspaced: words are not separated by spaces.
        foreign_letters: letters that the language does not use, though related ones do.
        abbreviations: words whose full stop does not end a sentence.
        stop_words: function words that the index leaves out.

    Grammar:
        function_words: may come and go without changing a statement.
        negations, concord_negations: deny a clause; the latter only where nothing else does.
        first_person, first_possessive, second_person, third_person: say whose a statement is.
        pro_drop: a statement may lack its subject.
        contrasts: begin a new statement.
        conjunctions: join two things or two statements.
        nonfactual: say that something is wished, doubted, planned, over, reported or
            conditional; they must not get lost. ``nonfactual_classes`` groups those that say the
            same.
        verb_endings, verb_forms: first to third person, by ending and by whole form.
        irregular_verbs: the forms of a verb, the past ones after the bar.
        hints: further words by which the language is recognised.
        contractions, contracted_endings: short forms and the words they stand for.
        clause_subjects, clause_verbs: begin a clause after a comma or a conjunction.
        question_openers: begin a question.
        determiners: before "one" they make it a pronoun rather than a number.

    Numbers and time:
        articles: indefinite; before a unit of time they count one.
        numbers, ordinals: by their value. ``homograph_numbers`` are numbers in this language
            only, since other languages have another word of that spelling.
        unit_aliases: other names of a unit of measure.
        months, weekdays: from January and from Monday, the full name first.
        ambiguous_months: also words of another meaning.
        weekday_steps: "last", "this" and "next" before a weekday, in weeks.
        units: forms of day, week, month and year.
        relative_times: "yesterday" and the like by unit and distance ("day -1").
        not_tomorrow_after: words after which the word for tomorrow means the morning.
        ago_before, ago_after, ahead_before, ahead_after: stand around a count of units.
        year_cues: before a number they make it a year.

    Talk:
        greetings, thanks, acknowledgements: phrases without content.

    Claims:
        conditionals, copulas, possession_verbs, kinship: as named.
        omissible: may be left out of a statement, or added to it.
        fiction_frames: name something in which a statement need not be true.
        locatives: the prepositions before such a frame.
        clause_final: nonfactual words that reach back over a conjunction.
        phrase_starters: content words that begin a phrase of their own.
        polar: content words, although their class counts as function words.
        reporting_words, request_words: may be added by a report without claiming more.
        antonyms: pairs of comparison keys that exclude each other.
        synonyms: words that state the same of a person, by their shared meaning.
    """

    language: str
    unspaced: bool
    pro_drop: bool
    foreign_letters: str
    abbreviations: Words
    stop_words: Words
    function_words: Words
    negations: Words
    concord_negations: Words
    first_person: Words
    first_possessive: Words
    second_person: Words
    third_person: Words
    contrasts: Words
    conjunctions: Words
    nonfactual: Words
    nonfactual_classes: Mapping[str, WordList]
    verb_endings: WordList
    verb_forms: WordList
    irregular_verbs: Phrases
    hints: Words
    contractions: Mapping[str, str]
    contracted_endings: Mapping[str, str]
    clause_subjects: Words
    clause_verbs: Words
    question_openers: Words
    determiners: Words
    articles: WordList
    numbers: Mapping[str, int]
    ordinals: Mapping[str, int]
    homograph_numbers: Words
    unit_aliases: Mapping[str, str]
    months: Phrases
    ambiguous_months: Words
    weekdays: Phrases
    weekday_steps: Mapping[str, int]
    units: Mapping[str, WordList]
    relative_times: Mapping[str, Phrases]
    not_tomorrow_after: WordList
    ago_before: Phrases
    ago_after: Phrases
    ahead_before: WordList
    ahead_after: Phrases
    year_cues: Phrases
    greetings: Phrases
    thanks: Phrases
    acknowledgements: Phrases
    conditionals: Words
    copulas: Words
    possession_verbs: Words
    kinship: Words
    omissible: Words
    fiction_frames: Words
    locatives: Words
    clause_final: Words
    phrase_starters: Words
    polar: Words
    reporting_words: Words
    request_words: Words
    antonyms: Phrases
    synonyms: Mapping[str, WordList]

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
