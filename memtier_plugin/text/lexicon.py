"""Word classes of each language, from data files: closed classes, verbs, words of claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

# -- Closed word classes, number words, months and time phrases: one data file per language
#
# The files in ``data/`` are JSON, which loads in 0.1 ms where TOML takes 0.5 and YAML 7. A word
# class is a string, or a list of lines if it is long; a list of phrases has one phrase per item. To
# add a language, add its file and its name in `LANGUAGES`.

WordSet = frozenset[str]
WordList = tuple[str, ...]
Phrases = tuple[str, ...]

_DATA: Final = Path(__file__).parent / "data"
# Languages with closed classes; claims in others are checked word by word only.
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
    """The word classes of one language; each is parsed on first access."""

    language: str
    # Writing
    unspaced: bool  # words are not separated by spaces
    foreign_letters: str  # letters of related languages that this one does not use
    abbreviations: WordSet  # their full stop does not end a sentence
    stop_words: WordSet  # function words that the index omits
    # Grammar
    function_words: WordSet  # may be added or dropped without changing a statement
    query_words: WordSet  # further ones in questions, which carry no content
    negations: WordSet  # deny a clause
    concord_negations: WordSet  # deny a clause only if nothing else does
    first_person: WordSet  # show whose statement it is
    first_possessive: WordSet
    first_plural: WordSet  # the subset that refers to several people
    user_nouns: Phrases  # how an assistant names the user
    owning: Phrases  # say that a thing is in the speaker's care; a star stands for up to four words
    second_person: WordSet
    third_person: WordSet
    contrasts: WordSet  # begin a new statement
    conjunctions: WordSet  # join two things or two statements
    nonfactual: WordSet  # wish, doubt, plan, end, report or condition a statement; never negligible
    nonfactual_classes: Mapping[str, WordList]  # the ones with the same meaning
    pro_drop: bool  # a statement may lack its subject
    verb_endings: WordList  # "first>third": endings of the first person and the third
    speech_verbs: Mapping[str, str]  # how to report somebody who "says" or "asks" something
    verb_forms: WordList  # the same for whole verbs whose endings do not tell
    irregular_verbs: Phrases  # the forms of a verb, past ones after the bar
    hints: WordSet  # further words that identify the language
    contractions: Mapping[str, str]  # short forms and the words that they stand for
    contracted_endings: Mapping[str, str]
    clause_subjects: WordSet  # begin a clause after a comma or a conjunction
    clause_verbs: WordSet  # follow the subject of such a clause
    question_openers: WordSet
    determiners: WordSet  # before "one" they make it a pronoun, not a number
    # Numbers and time
    articles: WordList  # indefinite; before a unit of time they count as one
    numbers: Mapping[str, int]
    ordinals: Mapping[str, int]
    homograph_numbers: WordSet  # number words that mean something else in other languages
    unit_aliases: Mapping[str, str]  # alternative names of units of measure
    months: Phrases  # from January, the full name first
    ambiguous_months: WordSet  # have another meaning too
    weekdays: Phrases  # from Monday, the full name first
    steps: Mapping[str, WordList]  # "last", "this" and "next" before a unit or a weekday, by number
    steps_after: Mapping[str, WordList]  # the same after it
    units: Mapping[str, Phrases]  # forms of day, week, month, year, weekend and the seasons
    nth: Phrases  # "first" to "fifth" of several weeks
    parts: Mapping[str, Phrases]  # beginning, middle and end of a period, as fractions
    vague_numbers: Mapping[str, int]  # "a few", "a couple of"
    relative_times: Mapping[str, Phrases]  # by unit and offset ("day -1": yesterday)
    not_tomorrow_after: WordList  # after these the word for tomorrow means the morning
    ago_before: Phrases  # this and the next three surround a count of units
    ago_after: Phrases
    ahead_before: WordList
    ahead_after: Phrases
    year_cues: Phrases  # before a number they mark it as a year
    # Talk
    greetings: Phrases
    thanks: Phrases
    acknowledgements: Phrases
    receipts: Phrases  # only acknowledge that something was heard or done
    receipt_fillers: Phrases  # may accompany them
    project_nouns: WordSet  # precede or follow the name of a project
    # Changes; a star stands for up to three words
    change_cues: Phrases  # say that something is different from before
    present_cues: Phrases  # say that something holds by now, or is news
    ending_cues: Phrases  # say that something no longer holds
    unsettled: Phrases  # wish, propose, doubt or condition; the statement does not hold yet
    since_now: Phrases  # next to a value they say that it holds by now, and are not part of it
    # Confidences and what is sensitive
    # Words by their meaning in a confidence; a star stands for any ending
    discretion: Mapping[str, WordList]
    # Prompts
    chat: Phrases  # greetings, thanks, acknowledgements, small talk
    chat_fillers: WordSet  # may accompany them
    thanks_for: Phrases  # open a sentence that gives thanks for something
    go_on: Phrases  # tell the assistant to continue, or ask back
    anaphors: WordSet  # refer to what was said before
    pointing_ordinals: WordSet  # do so if no noun follows
    follow_openers: Phrases  # open a follow-up to the previous prompt
    edit_verbs: WordSet  # ask to change the assistant's result
    degrees: WordSet  # compare with the assistant's result
    answer_parts: WordSet  # name parts that any answer has
    politeness: Phrases  # may precede a request
    requesting: WordSet  # before "you" they turn a question into a request
    task_verbs: Phrases  # open a request for a generic task
    task_endings: Phrases  # close one whose verb comes last
    general_openers: Phrases  # open a question about the world
    list_openers: Phrases  # ask for several things
    overview_patterns: Phrases  # regular expressions: ask for everything done or said
    history_patterns: Phrases  # ask how something was before, or how it changed
    asking_words: WordSet  # ask a memory, or describe the form of the answer
    event_verbs: WordSet  # report that something happened
    character_cues: Phrases  # ask about a person's character: traits, tastes, interests
    said_verbs: WordSet  # say, advise, give: after "you", refer to the assistant's words
    own_advice: Phrases  # refer to the assistant's words
    domains: Mapping[str, WordList]  # of tasks and instructions, each with its vocabulary
    style_words: Mapping[str, WordList]  # by domain: aspects of any work in it
    answering: WordSet  # name what applies to any answer: its language, length, form
    day_parts: WordSet  # parts of a day, a week or a year
    # Statements worth keeping; a star stands for up to three words
    definite: WordSet  # open a subject that needs no context ("the", "our", "every")
    kin_words: WordSet  # further people and animals related to a person
    stating_verbs: WordSet  # verb forms that state how something is, or what somebody does
    rule_openers: Phrases  # open an order that holds permanently
    order_openers: Phrases  # open an order that holds permanently if it says where
    pointing_words: WordSet  # refer to what was said or shown before
    general_words: WordSet  # make an order or a statement permanent: "every", "always"
    moment_cues: Phrases  # limit an order to the moment: "right now"
    loose_ends: WordSet  # a sentence that ends in one was cut off
    intending: WordSet  # after "I" they concern the moment: "I will", "I need"
    rule_cues: Phrases  # say that something must, or must not, be so
    decision_cues: Phrases  # say that something was decided
    commitment_cues: Phrases  # bind the speaker: "I'll", "I promise", "count me in"
    correction_cues: Phrases  # put right what was said before
    correction_openers: Phrases  # do so if a statement follows: "Actually ..."
    denial_openers: Phrases  # do so if a comma and a statement follow: "No, ..."
    contrast_denials: Phrases  # deny what the rest of a clause names: "..., not Leeds"
    preference_cues: Phrases  # say what somebody prefers or avoids
    keep_cues: Phrases  # ask to remember the rest of the sentence
    traits: WordSet  # health, diet and other lasting traits of a person
    fiction_openers: Phrases  # open fiction
    fiction_nouns: WordSet  # name a part or a genre of fiction
    making_verbs: WordSet  # request fiction
    sample_cues: Phrases  # say that something is only an example
    source_openers: Phrases  # introduce somebody else's words
    doubt_cues: Phrases  # say that the speaker is not sure
    passing: WordSet  # predicates that soon stop being true, or only praise
    abstract_subjects: WordSet  # subjects that refer to the conversation
    valid_from_cues: Phrases  # before the date since which something holds
    valid_to_cues: Phrases  # before the date until which it holds
    called_verbs: Phrases  # before the name of something
    owning_verbs: Phrases  # between a person and what they are responsible for
    # Claims
    conditionals: WordSet
    copulas: WordSet
    kinship: WordSet  # people and animals
    omissible: WordSet  # may be dropped from a statement, or added to it
    fiction_frames: WordSet  # name a fictional setting in which a statement need not be true
    locatives: WordSet  # prepositions before such a setting
    clause_final: WordSet  # nonfactual words that reach back across a conjunction
    phrase_starters: WordSet  # content words that begin a phrase of their own
    polar: WordSet  # content words in a class otherwise counted as function words
    reporting_words: WordSet  # may be added by a report without claiming more
    request_words: WordSet  # the subset that reports a request
    antonyms: Phrases  # pairs of comparison keys that exclude each other
    synonyms: Mapping[str, WordList]  # words that state the same about a person, by meaning

    def __init__(self, language: str) -> None:
        self.language = language
        self._data = json.loads((_DATA / f"{language}.json").read_bytes())

    if not TYPE_CHECKING:  # otherwise a misspelt word class would pass for one

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
    """Return a word class, merged over all languages."""
    return frozenset[str]().union(*(getattr(words, name) for words in lexicons()))


@cache
def denials() -> WordSet:
    """Return the words that deny in languages with spaces, and the "t" of "can't"."""
    return frozenset("t").union(*(words.negations for words in lexicons() if not words.unspaced))


# -- Verbs, synonyms and common words of a language, for parsing sentences.  Pure


class IrregularVerbs(NamedTuple):
    """The irregular English verbs: the lemma of each form, and the past forms."""

    lemmas: Mapping[str, str]
    past: WordSet


@cache
def irregular_verbs() -> IrregularVerbs:
    """Return the irregular English verbs, whose forms no stemmer unifies."""
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
    """Return the third person of verbs in the first, where endings do not determine it."""
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
# Nonfactual words of one class; a claim may use another than its source.
NONFACTUAL_CLASSES: Final = {
    word: name
    for words in lexicons()
    for name, members in words.nonfactual_classes.items()
    for word in members
}
# Negations of languages without a lexicon, which even a short text must not hide.
FOREIGN_NEGATIONS: Final = word_set(
    """nie nigdy inte ikke ikkje aldrig aldri ej ei en et emme nem ne nu não tidak bukan hindi wala
    walang hapana si değil yok nikdy nikad nikada mai asnjë nuk ez inga"""
)
