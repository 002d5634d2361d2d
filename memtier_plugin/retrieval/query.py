"""A query: who asks, how much each of its words counts, which times it names, what it asks for.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.retrieval.project_names import weigh_names, without_names
from memtier_plugin.retrieval.topic_words import query_language, ranking_terms, topic_terms
from memtier_plugin.retrieval.visibility import Asker, is_visible
from memtier_plugin.text.dates.spans import TimeSpan, find_time_spans
from memtier_plugin.text.lexicon import LANGUAGES
from memtier_plugin.text.phrases import Words
from memtier_plugin.text.tokenizer import Tokenizer
from memtier_plugin.trust.fence import remove_blocks

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


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query as the int8 vector of a model; only vectors of the same model are compared."""

    model: str
    vector: bytes


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The features of a query's text that a search uses.

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
    """Return the language of a query, its words that say what it is about, and all weighed."""
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


def asks_history(query: str) -> bool:
    """Return whether a query asks how something was before, or how it changed."""
    return _HISTORY.search(query[:2000]) is not None


def asks_character(query: str) -> bool:
    """Return whether a query asks what somebody is like: their traits, tastes or interests."""
    return any(Words.of(query[:2000], name).has("character_cues") for name in LANGUAGES)


def requested_kinds(query: str) -> set[str]:
    """Return the kinds of items (summaries, timelines) that a query asks for."""
    query = query[:MAX_QUERY_CHARS]
    requested = {"summary": asks_overview(query), "timeline": asks_history(query)}
    return {kind for kind, is_requested in requested.items() if is_requested}
