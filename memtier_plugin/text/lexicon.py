"""The words of a language by class, from data files: closed classes, verbs, words of claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

# -- Closed word classes, number words, months and phrases of time: one data file per language
#
# The files in ``data/`` are JSON, which loads in 0.1 ms where TOML takes 0.5 and YAML 7. A class of
# words is a text, or a list of lines where it is long; a list of phrases has one phrase per item. A
# new language is a new file and its name in `LANGUAGES`.

WordSet = frozenset[str]
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
    abbreviations: WordSet  # their full stop does not end a sentence
    stop_words: WordSet  # function words that the index leaves out
    # Grammar
    function_words: WordSet  # may come and go without changing a statement
    query_words: WordSet  # further ones, of questions: they say nothing of what is asked about
    negations: WordSet  # deny a clause
    concord_negations: WordSet  # deny a clause only where nothing else does
    first_person: WordSet  # these say whose a statement is
    first_possessive: WordSet
    first_plural: WordSet  # of these, the ones that mean several people
    user_nouns: Phrases  # name the user as an assistant does
    owning: Phrases  # say that a thing is in the speaker's care; a star: up to four words
    second_person: WordSet
    third_person: WordSet
    contrasts: WordSet  # begin a new statement
    conjunctions: WordSet  # join two things or two statements
    nonfactual: WordSet  # wish, doubt, plan, end, report or condition a statement; never negligible
    nonfactual_classes: Mapping[str, WordList]  # those that say the same
    pro_drop: bool  # a statement may lack its subject
    verb_endings: WordList  # "first>third": the first person and the third
    speech_verbs: Mapping[str, str]  # how somebody is quoted who "says" or "asks" something
    verb_forms: WordList  # the same of whole verbs, where endings do not tell
    irregular_verbs: Phrases  # the forms of a verb, the past ones after the bar
    hints: WordSet  # further words by which the language is recognised
    contractions: Mapping[str, str]  # short forms and the words they stand for
    contracted_endings: Mapping[str, str]
    clause_subjects: WordSet  # begin a clause after a comma or a conjunction
    clause_verbs: WordSet  # follow the subject of such a clause
    question_openers: WordSet
    determiners: WordSet  # make "one" a pronoun rather than a number
    # Numbers and time
    articles: WordList  # indefinite; before a unit of time they count one
    numbers: Mapping[str, int]
    ordinals: Mapping[str, int]
    homograph_numbers: WordSet  # numbers in this language only: others spell another word so
    unit_aliases: Mapping[str, str]  # other names of a unit of measure
    months: Phrases  # from January, the full name first
    ambiguous_months: WordSet  # also words of another meaning
    weekdays: Phrases  # from Monday, the full name first
    steps: Mapping[str, WordList]  # "last", "this" and "next" before a unit or a weekday, by number
    steps_after: Mapping[str, WordList]  # the same behind it
    units: Mapping[str, Phrases]  # forms of day, week, month, year, weekend and the seasons
    nth: Phrases  # "first" to "fifth" of several weeks
    parts: Mapping[str, Phrases]  # beginning, middle and end of a period, as fractions of it
    vague_numbers: Mapping[str, int]  # "a few", "a couple of"
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
    receipts: Phrases  # say that something was heard or done, and nothing else
    receipt_fillers: Phrases  # may stand with them
    project_nouns: WordSet  # what a name of a project stands before or after
    # Changes; a star stands for up to three words
    change_cues: Phrases  # say that something is otherwise than before
    present_cues: Phrases  # say that it is so by now, or that it is news
    ending_cues: Phrases  # say that it is no more
    unsettled: Phrases  # wish, propose, doubt or condition; what they say does not hold yet
    since_now: Phrases  # beside a value they say that it is so by now, and are no part of it
    # Confidences and what is sensitive
    discretion: Mapping[str, WordList]  # words by what they mean there; a star: any ending
    # Prompts
    chat: Phrases  # greet, thank, acknowledge or pass the time
    chat_fillers: WordSet  # may stand around them
    thanks_for: Phrases  # open a sentence that gives thanks for something
    go_on: Phrases  # tell the assistant to go on, or ask back
    anaphors: WordSet  # point at what was said before
    pointing_ordinals: WordSet  # do so where no noun follows
    follow_openers: Phrases  # open what adds to the prompt before
    edit_verbs: WordSet  # ask to change what was made
    degrees: WordSet  # compare with what was made
    answer_parts: WordSet  # name parts that any answer has
    politeness: Phrases  # may stand before a request
    requesting: WordSet  # before "you" they make a request of a question
    task_verbs: Phrases  # open a request for what anybody could ask for
    task_endings: Phrases  # close one, where the verb stands last
    general_openers: Phrases  # open a question about the world
    list_openers: Phrases  # ask for several things
    overview_patterns: Phrases  # regular expressions: ask for all that was done or said
    history_patterns: Phrases  # ask how something was before, or how it changed
    asking_words: WordSet  # put a question to a memory, or say what the answer is to look like
    event_verbs: WordSet  # tell that something happened
    character_cues: Phrases  # ask what somebody is like: traits, tastes, interests
    said_verbs: WordSet  # say, advise, give: after "you", the assistant's words
    own_advice: Phrases  # name the assistant's words
    domains: Mapping[str, WordList]  # of tasks and of instructions, each by the words it uses
    style_words: Mapping[str, WordList]  # by domain: aspects that any work in it has
    answering: WordSet  # name what holds for any answer: its language, length, form
    day_parts: WordSet  # parts of a day, a week or a year
    # Statements worth keeping; a star stands for up to three words
    definite: WordSet  # open a subject that needs no context ("the", "our", "every")
    kin_words: WordSet  # further people and animals that belong to a person
    stating_verbs: WordSet  # forms of verbs that say how something is, or what somebody does
    rule_openers: Phrases  # open an order that holds for good
    order_openers: Phrases  # open an order that holds for good if it says where
    pointing_words: WordSet  # point at what was said or shown before
    general_words: WordSet  # make an order or a statement one for good: "every", "always"
    moment_cues: Phrases  # make an order one for the moment: "right now"
    loose_ends: WordSet  # a sentence that ends in one was cut off
    intending: WordSet  # after "I" they tell of the moment: "I will", "I need"
    rule_cues: Phrases  # say that something must be so, or must not
    decision_cues: Phrases  # say that something was decided
    preference_cues: Phrases  # say what somebody would rather have, or does not take
    keep_cues: Phrases  # ask to remember what stands with them
    traits: WordSet  # health, diet and other lasting traits of a person
    fiction_openers: Phrases  # open what need not be true
    fiction_nouns: WordSet  # name a part or a kind of an invented text
    making_verbs: WordSet  # ask for such a text
    sample_cues: Phrases  # say that something is only an example
    source_openers: Phrases  # open the words of somebody else
    doubt_cues: Phrases  # say that the speaker is not sure
    passing: WordSet  # predicates that soon are not true any more, or only praise
    abstract_subjects: WordSet  # subjects that point into the conversation
    valid_from_cues: Phrases  # before the date from which something holds
    valid_to_cues: Phrases  # before the date until which it does
    called_verbs: Phrases  # before the name of something
    owning_verbs: Phrases  # between a person and what they are responsible for
    # Claims
    conditionals: WordSet
    copulas: WordSet
    kinship: WordSet  # people and animals
    omissible: WordSet  # may be left out of a statement, or added to it
    fiction_frames: WordSet  # name something in which a statement need not be true
    locatives: WordSet  # prepositions before such a frame
    clause_final: WordSet  # nonfactual words that reach back over a conjunction
    phrase_starters: WordSet  # content words that begin a phrase of their own
    polar: WordSet  # content words of a class that otherwise counts as function words
    reporting_words: WordSet  # a report may add them without claiming more
    request_words: WordSet  # of these, the ones that report a request
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

    @cached_property
    def weekday_forms(self) -> frozenset[str]:
        """The names of the weekdays, full and short."""
        return frozenset(name for names in self.weekdays for name in names.split())

    def number_words(self, low: int, high: int) -> WordList:
        """Return the number words for a range of values, both ends included."""
        return tuple(word for word, value in self.numbers.items() if low <= value <= high)


def _word_list(value: str | list[str] | None) -> WordList:
    return tuple((value if isinstance(value, str) else " ".join(value or ())).split())


_READERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "str": lambda value: value or "",
    "bool": bool,
    "WordSet": lambda value: frozenset(_word_list(value)),
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
def words_of(name: str) -> WordSet:
    """Return a class of words over all languages."""
    return frozenset[str]().union(*(getattr(words, name) for words in lexicons()))


@cache
def denials() -> WordSet:
    """Return the words that deny in languages with spaces, and the "t" of "can't"."""
    return frozenset("t").union(*(words.negations for words in lexicons() if not words.unspaced))


# -- Verbs, synonyms and common words of a language, as sentences are parsed by them.  Pure


class IrregularVerbs(NamedTuple):
    """The irregular English verbs: the lemma of each form, and the forms of the past."""

    lemmas: Mapping[str, str]
    past: WordSet


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
def common_words(language: str) -> WordSet:
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


# -- Words that a claim may add to its source or omit, and words that reverse it, in all languages

_ENGLISH: Final = lexicon("english")

CONDITIONALS: Final = words_of("conditionals")
KINSHIP: Final = words_of("kinship")  # and animals: subjects of a statement
OMISSIBLE: Final = words_of("omissible")
FICTION_FRAMES: Final = words_of("fiction_frames")
LOCATIVES: Final = words_of("locatives")
CLAUSE_FINAL: Final = words_of("clause_final")
CONCORD_NEGATIONS: Final = words_of("concord_negations")
PHRASE_STARTERS: Final = _ENGLISH.phrase_starters
REPORTING_WORDS: Final = _ENGLISH.reporting_words
REQUEST_WORDS: Final = _ENGLISH.request_words
POLAR: Final = _ENGLISH.polar
PRO_DROP: Final = frozenset(name for name in LANGUAGES if lexicon(name).pro_drop)
ANTONYMS: Final = {
    word: opposite
    for pair in _ENGLISH.antonyms
    for word, opposite in (pair.split(), pair.split()[::-1])
}
# Nonfactual words of one class: where the source has one, a claim may report it by another.
NONFACTUAL_CLASSES: Final = {
    word: name
    for words in lexicons()
    for name, members in words.nonfactual_classes.items()
    for word in members
}
# Denials of languages without a lexicon, which a short text must not hide.
FOREIGN_NEGATIONS: Final = word_set(
    """nie nigdy inte ikke ikkje aldrig aldri ej ei en et emme nem ne nu não tidak bukan hindi wala
    walang hapana si değil yok nikdy nikad nikada mai asnjë nuk ez inga"""
)
