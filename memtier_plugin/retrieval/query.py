"""A query: who asks, which words say its topic, which times and projects it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.retrieval.prompt_words import (
    likeliest_language,
    split_words,
    tokenize,
    vocabulary,
)
from memtier_plugin.retrieval.visibility import Asker, is_visible
from memtier_plugin.text.dates.spans import TimeSpan, find_time_spans
from memtier_plugin.text.lexicon import LANGUAGES, lexicon, words_of
from memtier_plugin.text.phrases import Words
from memtier_plugin.text.tokenizer import Tokenizer
from memtier_plugin.trust.escaping import remove_blocks

if TYPE_CHECKING:
    from memtier_plugin.storage.readers import Reader


# -- Find the words that say what a text is about, in its language.  Pure
#
# The index leaves out the function words of English alone.  The idf does not keep those of other
# languages low everywhere: the "你" of a question is rare among lines about others.  As evidence
# that a line fits, "der", "ist" and "的" count nothing, nor does the "many" of "how many".


def query_language(text: str) -> str:
    """Return the language that a query is most likely in."""
    return likeliest_language(text, split_words(text))


def topic_terms(
    text: str, terms: Collection[str], language: str, tokenizer: Tokenizer
) -> Collection[str]:
    """Return the index words of a query's topic, or all if none stands out.

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


# -- Names of a project in a query: "ecommerce-api" says which project, and little of what is asked
#
# Every line of a project may have its name, or a part of it ("api"), so that its parts would
# outweigh the topic.  Together they count as one word, and n-grams and vectors leave the name out.
# Not every word with a hyphen is a name: one is known if it is the project's or the agent's, or if
# what is stored calls it so ("the ecommerce-api project", "ecommerce-api/").  Pure.

MAX_LINES: Final = 24  # that are read for whether they call it a project
# Possessive, and only from the start of a word: linear in texts without a space.
_IDENTIFIER: Final = regex.compile(r"(?<![\p{L}\p{N}])[\p{L}\p{N}]++(?:[-_.][\p{L}\p{N}]++)++")
_MAX_IDENTIFIERS: Final = 4  # of a query that are looked up
_MAX_CHARS: Final = 64  # of an identifier


def find_identifiers(text: str) -> list[str]:
    """Return the words of several parts that may be names, in lower case."""
    matches = (match[0].casefold() for match in _IDENTIFIER.finditer(text))
    names = (name for name in matches if len(name) <= _MAX_CHARS and _has_letters(name))
    return [*dict.fromkeys(names)][:_MAX_IDENTIFIERS]


def _has_letters(identifier: str) -> bool:
    return identifier[0].isalpha() and identifier[-1].isalpha()


def find_project_names(
    text: str, known: Collection[str], lines_with: Callable[[str], Iterable[str]]
) -> tuple[str, ...]:
    """Return the identifiers of a query that name the project.

    Args:
        known: the names of the project and its agent.
        lines_with: returns some stored texts that have an identifier.
    """
    known = {name.casefold() for name in known}
    return tuple(
        identifier
        for identifier in find_identifiers(text)
        if identifier in known or is_called_project(identifier, lines_with(identifier))
    )


def read_project_names(
    reader: Reader, scopes: Sequence[int], text: str, known: Collection[str]
) -> tuple[str, ...]:
    """Return the same, by what is stored."""
    if not find_identifiers(text):
        return ()

    def lines_with(word: str) -> list[str]:
        rows = [*reader.match_words(scopes, {word: 1.0}, MAX_LINES).rows.get(word, ())]
        return [stored.item.text for stored in reader.items_by_row(rows[:MAX_LINES]).values()]

    return find_project_names(text, known, lines_with)


def is_called_project(identifier: str, texts: Iterable[str]) -> bool:
    """Return whether a text calls an identifier a project, or shows it as a folder."""
    pattern = _naming(identifier)
    return any(pattern.search(text) for text in texts)


@cache
def _naming(identifier: str) -> regex.Pattern[str]:
    name = rf"(?<![\w./-])[`'\"“«]?{regex.escape(identifier)}[`'\"”»]?"
    nouns = "|".join(sorted(map(regex.escape, words_of("project_nouns"))))
    folder = rf"(?m:(?<![\w.-]){regex.escape(identifier)}/(?:\s|$))"
    return regex.compile(
        rf"(?i){name}[\s-]+(?:{nouns})\b|\b(?:{nouns})(?:\s+\w+)?[\s:]+{name}(?![\w/-])|{folder}"
    )


def weigh_names(
    weights: Mapping[str, float], names: Collection[str], words: Callable[[str], list[str]]
) -> dict[str, float]:
    """Return the weights of a query's words where those of each name share that of one word."""
    weighed = dict(weights)
    for name in names:
        parts = [word for word in dict.fromkeys(words(name)) if word in weighed]
        for part in parts:
            weighed[part] = min(weighed[part], 1 / len(parts))
    return weighed


def without_names(text: str, names: Collection[str]) -> str:
    """Return a text without these names; the same text if it has little else."""
    if not names:
        return text
    rest = _IDENTIFIER.sub(lambda match: "" if match[0].casefold() in names else match[0], text)
    return rest if regex.search(r"\p{L}{3}", rest) else text


# -- A query: who asks, how much each of its words counts, which times it names, what it asks for
#
# Pure.

MAX_QUERY_CHARS: Final = 20_000  # of a query that are looked at
_MOST_QUESTIONS: Final = 5  # of a prompt that are looked at one by one
_SENTENCE: Final = regex.compile(r"(?:[^.!?。！？\n]++|[.!?](?![\s.!?]|$))*+(?:[.!?。！？]++|\n|$)")
_VISIBLE: Final = regex.compile(r"[^\p{C}\p{Z}]")  # of a Unicode as new as the tokenizer's
ASKING_WEIGHT: Final = 0.3  # of a word by which people ask
FUNCTION_WEIGHT: Final = 0.1  # of a function word
# English words by which people put a question to a memory, or say what the answer is to look like.
# They may also be what is asked for ("my shopping list"), so they count less, not nothing.
_ASKING_WORDS: Final = """
    remember recall remind mention discuss discussion talk tell say said speak ask question answer
    conversation chat session topic aspect summary summarize summarise overview list describe
    explain comprehensive detail order sequence various different specific overall show give
    provide know think please help bring item thing told spoke spoken gave given knew known brought
"""
# A request for what was, not for what is put before the reader ("summarise this article").
_HERE: Final = (
    r"(?!\W+(?:\w+\W+){0,3}?(?:this|that|these|those|the following|below|above|attached|article|"
    r"paper|document|pdf|file|page|book|code|e-?mail|text|report|website|url|link|transcript)\b)"
)
_PAST: Final = (
    r"(?:did|have|had|were|was|['’]ve|are)\W+(?:we|i|you)\W+(?:\w+\W+){0,3}?"
    r"(?:d[oi]d?|done|doing|talk\w*|discuss\w*|work\w*|cover\w*|decide\w*|accomplish\w*|achieve\w*"
    r"|agree\w*|up to|say|said|plan\w*|chat\w*|get done|got done|make|made)"
)
_OVERVIEW: Final = regex.compile(
    rf"""(?ix)
    \b(?:summari[sz](?:e|ing)|(?:sum(?:\W+it)?\W+up)|summary|overview|rundown|highlights){_HERE}\b
    | \b(?:recap|catch\W+me\W+up|(?:bring|get)\W+me\W+up\W+to\W+(?:date|speed))\b
    | \bwhat(?:\W+(?:all|else|exactly|things|topics|have))?\W+{_PAST}
    | \bwhat\W+(?:happened|went\W+on|was\W+going\W+on|has\W+been\W+happening)\b
        \W*(?:$|[?.!]|(?:on|in|last|this|yesterday|today|during|since|so\W+far|over|between|while)\b)
    | \bwhere\W+(?:did|were|have)\W+we\W+(?:\w+\W+){{0,2}}?(?:leave|left|stop|stopped|off)\b
    | \bwhere\W+(?:we|i)\W+left\W+off\b
    | \bzusammenfass\w* | \bfass\w*\b.{{0,60}}\bzusammen\b | \büberblick\b
    | \b(?:was|worüber|wovon)\W+(?:haben\W+wir|habe\W+ich|hatten\W+wir)\b
    | \bwo\W+(?:waren|sind)\W+wir\b.{{0,20}}\bgeblieben\b | \bwas\W+war\W+(?:gestern|letzte)
    | \bresúm\w* | \bresum(?:en|e|ir|e[nl]os|eme)\b | \bponme\W+al\W+(?:día|tanto)\b
    | \b(?:qué|que)\W+(?:hicimos|hablamos|discutimos|decidimos|acordamos)\b
    | \bde\W+qu[ée]\W+hablamos\b | \bvisión\W+general\b
    | \brésum(?:é|e|er|ez|ons)\b | \brécapitul\w* | \bvue\W+d['’]ensemble\b
    | \bqu['’](?:est-ce\W+qu['’](?:on|avons-nous)|avons-nous|a-t-on)\b.{{0,30}}
        (?:fait|dit|discuté|décidé|parlé)
    | \bde\W+quoi\W+(?:avons-nous|a-t-on|on\W+a|nous\W+avons)\b
    | \boù\W+en\W+(?:étions-nous|sommes-nous|était-on)\b
    | 总结|總結|概括|概述|回顾|回顧|摘要
    | (?:我们|我們|咱们)[^，。？?]{{0,8}}(?:做|聊|讨论|討論|谈|談|说|說|干)[了过過]
        [^，。？?]{{0,4}}什[么麼]
    """
)
# English questions whose answer may lie in places that their own words do not lead to.
SEVERAL_ANSWERS: Final[Mapping[str, regex.Pattern[str]]] = {
    "a number is asked for": regex.compile(
        r"\bhow (many|much|often|frequently)\b|\bnumber of\b|\bin total\b|\bhow old\b"
    ),
    "a list is asked for": regex.compile(
        r"\b(list|name all|all (of )?(the|my|our|his|her|their)|every|each|both|other than)\b"
        r"|\b(what|which|who) (all )?(are|were)\b|\bwhat (kinds?|types?|sorts?) of\b"
        r"|\b(what|which)( \w+){0,2} (?!(is|was|does|has|his|this)\b)\w*[^\Ws]s( \w+){0,2}"
        r" (has|have|had|did|does|do|are|were|can|will)\b"
    ),
}
_HISTORY: Final = regex.compile(
    r"""(?ix)
    \b(?:used\W+to | previous(?:ly)? | former(?:ly)? | over\W+(?:time|the\W+years) | history
      | timeline | changed? | since\W+when | earlier | originally | in\W+the\W+past | back\W+then
      | no\W+longer | any\W*more | evol(?:ve|ved|ution))\b
    | \bbefore\b(?=\W*(?:$|[?.!,]|that\b|now\b|today\b|moving\b|(?:he|she|they|we|it|i)\b))
    | \b(?:früher | vorher | zuvor | ehemal\w* | seit\W+wann | geändert | verlauf | damals
      | ursprünglich)\b
    | \b(?:antes | anterior(?:mente)? | historial? | historia | cambi\w+ | desde\W+cuándo | solía\w*
      | originalmente)\b
    | \b(?:avant | auparavant | précédemment | ancien\w* | historique | depuis\W+quand | chang\w+
      | autrefois | à\W+l['’]origine)\b
    | 以前 | 之前 | 曾经 | 曾經 | 过去 | 過去 | 历史 | 歷史 | 变化 | 變化 | 原来 | 原來
    """
)


@dataclass(frozen=True, slots=True)
class Viewer:
    """The viewer and the time of a query, which decide the visibility and age of rows.

    ``linked`` is what else the sender is called, ``read_people`` grants everybody's personal facts.
    Who reads all and is no agent ("") is the person at the machine.
    """

    agent: str
    sender: str | None
    read_all: bool
    at: datetime
    linked: frozenset[str] = frozenset()
    read_people: bool = False

    @property
    def asker(self) -> Asker | None:
        """Return the viewer as one that asks for facts; None for the person at the machine."""
        if self.read_all and not self.agent:
            return None
        people = self.linked | {self.sender or ""}
        return Asker(self.agent, people, self.read_all or self.read_people)

    def may_see(self, item: Entry | Fact) -> bool:
        """Return whether it may see an item; ``read_all`` opens summaries, but no confidences."""
        asker = self.asker
        if asker is None:
            return True
        if isinstance(item, Entry):
            return self.read_all or asker.hears(item)
        return is_visible(item, asker) or (self.read_all and bool(item.shelf))

    @property
    def people(self) -> frozenset[str] | None:
        """The people whose personal facts it may see; None for everybody's."""
        return asker.readable_people if (asker := self.asker) else None


class QueryVector(Struct, frozen=True):
    """A query as the int8 vector of a model; only vectors of the same model are compared."""

    model: str
    vector: bytes


class ParsedQuery(Struct, frozen=True):
    """The features of a query that a search uses.

    Attributes:
        at: when it is asked.
        language: the one that it is most likely in.
        terms: how much each word counts.
        topic_terms: those of them that say what it is about.
        spans: the times that it names.
        project_names: those of its words that name the project.
        by_time: whether it asks for what was said in its spans, and for hardly anything else.
    """

    text: str
    at: datetime
    language: str
    terms: Mapping[str, float]
    topic_terms: Collection[str]
    spans: Sequence[TimeSpan]
    tokenizer: Tokenizer
    project_names: Collection[str] = ()
    by_time: bool = False

    @property
    def topic(self) -> str:
        """The text without the project's names."""
        return without_names(self.text, self.project_names)

    def names(self, speaker: str) -> bool:
        """Return whether the query has a word of a speaker's name."""
        return any(word in self.terms for word in self.tokenizer.words(speaker))

    @property
    def of_oneself(self) -> bool:
        """Whether the asker speaks of themself: "what am I like?"."""
        readings = (Words.of(self.text[:2000], name) for name in LANGUAGES)
        return any(words.has_word("first_person") for words in readings)


def clean_query(text: str) -> str:
    """Return a prompt without our own blocks; empty if nothing is left that a person would see."""
    text = remove_blocks(text).strip()
    return text if _VISIBLE.search(text) else ""


def parse_query(
    text: str, at: datetime, tokenizer: Tokenizer, project_names: Collection[str] = ()
) -> ParsedQuery:
    """Parse a query, up to `MAX_QUERY_CHARS` of it."""
    text = text[:MAX_QUERY_CHARS]
    language, topic, terms = _read_words(text, tokenizer)
    terms = weigh_names(terms, project_names, tokenizer.words)
    spans = find_time_spans(text, at)
    return ParsedQuery(text, at, language, terms, topic, spans, tokenizer, project_names)


def weigh_terms(text: str, tokenizer: Tokenizer) -> dict[str, float]:
    """Return how much each word of a query counts: its occurrences, or less for empty words."""
    return _read_words(text, tokenizer)[2]


def _read_words(text: str, tokenizer: Tokenizer) -> tuple[str, Collection[str], dict[str, float]]:
    """Return a query's language, the words of its topic, and the weights of all its words."""
    counts = Counter(tokenizer.words(text))
    language = query_language(text)
    topic = topic_terms(text, counts.keys(), language, tokenizer)
    weights = dict.fromkeys(counts, 1.0)
    # The index leaves out the function words of English; of Korean none are known.
    if language != "english" and language in LANGUAGES:
        weights |= dict.fromkeys(counts.keys() - ranking_terms(topic), FUNCTION_WEIGHT)
    if tokenizer.language == "english":
        weights |= dict.fromkeys(counts.keys() & _asking_words(), ASKING_WEIGHT)
    return language, topic, {word: count * weights[word] for word, count in counts.items()}


@cache
def _asking_words() -> frozenset[str]:
    return frozenset(Tokenizer("english").words(_ASKING_WORDS))


def questions_among(text: str) -> list[str]:
    """Return the questions of a text that says other things, too; none where it is all one."""
    sentences = [part for part in _SENTENCE.findall(text) if part.strip()]
    if len(sentences) < 2:
        return []
    questions = (part.strip() for part in sentences if part.rstrip().endswith(("?", "？")))
    return [*islice(questions, _MOST_QUESTIONS)]


def asks_overview(query: str) -> bool:
    """Return whether a query asks for what was done or said as a whole, not for one thing of it."""
    return _OVERVIEW.search(query[:2000]) is not None


def asks_several(query: str) -> bool:
    """Return whether an English question has several answers, which lie in as many lines."""
    query = query.casefold()
    return any(pattern.search(query) for pattern in SEVERAL_ANSWERS.values())


def asks_history(query: str) -> bool:
    """Return whether a query asks how something was before, or how it changed."""
    return _HISTORY.search(query[:2000]) is not None


def requested_kinds(query: str) -> set[str]:
    """Return the kinds of items (summaries, timelines) that a query asks for."""
    query = query[:MAX_QUERY_CHARS]
    requested = {"summary": asks_overview(query), "timeline": asks_history(query)}
    return {kind for kind, is_requested in requested.items() if is_requested}
