"""The words of a prompt by closed classes of its language, and the requests among them.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.languages import iter_sentences
from memtier_plugin.text.lexicon import LANGUAGES, Lexicon, common_words, lexicon, words_of
from memtier_plugin.text.phrases import Words

_WORD: Final = regex.compile(r"[\w]+")
_UNSPACED: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")
_LETTER: Final = regex.compile(r"\p{L}")

_CLASSES: Final = (
    "chat", "chat_fillers", "go_on", "anaphors", "pointing_ordinals", "follow_openers",
    "edit_verbs", "degrees", "answer_parts",
)  # fmt: skip
_OPENERS: Final = ("politeness", "task_verbs", "general_openers", "thanks_for")
_HEAD: Final = 400  # characters of a text that are looked at
_NO_CLASS: Final = frozenset[str]()
FUNCTION: Final = "function"
Token = tuple[str, frozenset[str]]  # a word or phrase, and its classes; none: it has content


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [str(word) for word in _WORD.findall(text.casefold().replace("’", "'"))]


class Vocabulary(Struct, frozen=True):
    """The classes of each word and phrase of a language, and its longest phrases by first word."""

    phrases: Mapping[tuple[str, ...], frozenset[str]]
    longest: Mapping[str, int]


@cache
def vocabulary(language: str) -> Vocabulary:
    """Return the classes of a language by word and phrase."""
    words = lexicon(language)
    classes: dict[tuple[str, ...], set[str]] = {}
    for name in _CLASSES:
        for phrase in getattr(words, name):
            classes.setdefault(_key(phrase, words), set()).add(name)
    function = common_words(language) | words.stop_words | words.question_openers
    for word in function:
        if words.unspaced or len(_key(word, words)) == 1:  # "it" says more than "it's"
            classes.setdefault(_key(word, words), set()).add(FUNCTION)
    classes.pop((), None)
    longest: dict[str, int] = {}
    for phrase in classes:
        longest[phrase[0]] = max(longest.get(phrase[0], 0), len(phrase))
    return Vocabulary({phrase: frozenset(names) for phrase, names in classes.items()}, longest)


def _key(phrase: str, words: Lexicon) -> tuple[str, ...]:
    """Return a phrase as its words, or as its letters where words are not separated."""
    return tuple("".join(split_words(phrase))) if words.unspaced else tuple(split_words(phrase))


@cache
def openers(language: str, name: str) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """Return the phrases of a class by their first word, the longest first."""
    words = lexicon(language)
    phrases = sorted({_key(phrase, words) for phrase in getattr(words, name)}, key=len)
    by_first: dict[str, list[tuple[str, ...]]] = {}
    for phrase in reversed(phrases):
        by_first.setdefault(phrase[0], []).append(phrase)
    return by_first


@cache
def phrase_texts(language: str, name: str) -> tuple[str, ...]:
    """Return the phrases of a class as they stand in the joined units of a prompt."""
    words = lexicon(language)
    between = "" if words.unspaced else " "
    return tuple(between.join(_key(phrase, words)) for phrase in getattr(words, name))


@cache
def _known_words() -> Mapping[str, Mapping[str, int]]:
    """Return, for each word of a class, how much it speaks for each language with spaces.

    A word of a prompt's classes says more than a function word.
    """
    known: dict[str, dict[str, int]] = {}
    for name in LANGUAGES:
        words = lexicon(name)
        if words.unspaced:
            continue
        weights = {
            phrase: 1
            for phrase, classes in vocabulary(name).phrases.items()
            if classes == {FUNCTION}
        }
        weights |= {phrase: 2 for phrase in vocabulary(name).phrases if phrase not in weights}
        weights |= {_key(p, words): 2 for opener in _OPENERS for p in getattr(words, opener)}
        for phrase, weight in weights.items():
            for word in phrase:
                by_language = known.setdefault(word, {})
                by_language[name] = max(weight, by_language.get(name, 0))
    return known


def likeliest_language(text: str, words: Sequence[str], among: Collection[str] = LANGUAGES) -> str:
    """Return the language most of whose word classes a text uses; English wins a tie.

    Args:
        among: the languages to choose from, of those that separate words.
    """
    unspaced = _UNSPACED.findall(text[:400])
    if unspaced and 3 * len(unspaced) >= len(_LETTER.findall(text[:400])):
        joined = "".join(unspaced)
        if regex.search(r"\p{Hangul}", joined):
            return "korean"
        return "japanese" if regex.search(r"[\p{Hiragana}\p{Katakana}]", joined) else "chinese"
    known = _known_words()
    counts: dict[str, int] = dict.fromkeys(["english"], 0)
    for word in words:
        for name, weight in known.get(word, {}).items():
            if name in among:
                counts[name] = counts.get(name, 0) + weight
    return max(counts, key=counts.__getitem__)  # of equals the first, English


def speaks_of_oneself(text: str) -> bool:
    """Return whether a text has "my", "I" or the like, near its beginning."""
    text = text[:_HEAD]
    words = split_words(text)
    classes = lexicon(likeliest_language(text, words))
    first_person = classes.first_person | classes.first_possessive
    if classes.unspaced:
        return any(word in text for word in first_person)
    return not first_person.isdisjoint(words)


def tokenize(units: Sequence[str], known: Vocabulary) -> list[Token]:
    """Return the longest known phrases, and what is between them unit by unit."""
    tokens: list[Token] = []
    position = 0
    while position < len(units):
        for size in range(known.longest.get(units[position], 0), 0, -1):
            phrase = tuple(units[position : position + size])
            if len(phrase) == size and phrase in known.phrases:
                tokens.append((" ".join(phrase), known.phrases[phrase]))
                position += size
                break
        else:
            tokens.append((units[position], _NO_CLASS))
            position += 1
    return tokens


def names_time(token: Token | None, language: str) -> bool:
    """Return whether a word is of the calendar: "this week" points at no earlier words."""
    return token is not None and token[0] in _calendar(language)


@cache
def _calendar(language: str) -> frozenset[str]:
    words = lexicon(language)
    units: Iterable[str] = (word for forms in words.units.values() for word in forms)
    months = (name for names in words.months for name in names.split())
    return frozenset((*units, *months)) | words.weekday_forms | words_of("day_parts")


# -- Requests: whether a text asks for something, or introduces a text of somebody else

_REQUEST_WORDS: Final = 30  # of the user's own request beside a text
_BRIEF: Final = 4  # words of a request that can only be about what stands below: "tl;dr?"
_BELOW: Final = regex.compile(
    r"(?i)\b(?:this|these|following|below|attached|here(?:'s|’s| is| are)|folgende[nrs]?"
    r"|diese[nrms]?|dies|hier|unten|cet(?:te)?|ces?|ceci|voici|suivante?s?|ci-dessous|est[aeo]s?|siguientes?|aquí"
    r"|abajo|quest[aeio]|seguente|ecco|est[ea]s?|isto|seguinte|deze|dit|volgende|эт(?:о|от|у|и|а)"
    r"|следующ\w+|ниже|вот)\b|下面|以下|如下|这|這|次の|以下の"
)
_RECEIVED: Final = regex.compile(  # at the end of a line that introduces a text
    r"(?i)\b(?:(?:got|received|(?<!\bI (?:just )?)(?:sent|mailed|wrote|texted|forwarded)|log|output"
    r"|error|export|transcript|result|message|thread|chat|mail|email|says|schrieb|schickte|geschickt|bekommen|reçu|écrit"
    r"|envoyé|recibí|escribió|envió|написала?|прислала?)s?)\b[^.!?]{0,24}[:：]\s*$"
)
_THEIRS: Final = regex.compile(
    r"(?i)\b(?:his|her|their)\b|\bof (?:my|a|our)\b"
    r"|\b(?!(?:it|that|there|what|let|he|she|who|here|how|where|everything|one)['’])\p{L}+['’]s\s+\p{L}"
)
_WORK: Final = regex.compile(
    r"(?i)(?:review|rate|grade|port|shorten|tl;?dr|reply|answer|respond|help|look at|read"
    r"|go through|check|what(?:'s| is| does| do)|why|is|are|does|do|how many|which|who|count|sum up"
    r"|prüf\w*|lies|schau|beantworte|antworte|was|warum|lis\b|vérifie|réponds|que|pourquoi|revisa|lee|responde"
    r"|qué|проверь|прочитай|ответь|что|почему)\b|(?:看|检查|回复|总结|翻译|为什么|什么)"
)


def is_request(text: str) -> bool:
    """Return whether a short text asks the assistant for something."""
    units = split_words(text[:_HEAD])
    if not units or len(units) > _REQUEST_WORDS:
        return False
    if text.rstrip().endswith(("?", "？")):
        return True
    words = Words.of(text[:_HEAD].strip(), likeliest_language(text, units))
    if words.opens("keep_cues") is not None or not lexicon(
        words.language
    ).first_possessive.isdisjoint(words.words[:1]):
        return False
    polite = words.opens("politeness")
    request = Words.of(words.text[polite or 0 :].lstrip(" ,，"), words.language)
    if request.opens("keep_cues") is not None:
        return False
    return (
        any(request.opens(name) is not None for name in ("task_verbs", "edit_verbs"))
        or _WORK.match(request.text) is not None
        or _WORK.match(words.text) is not None
    )


def introduces_text(request: str, apart: bool) -> bool:
    """Return whether a line introduces a text that is not its writer's.

    Args:
        apart: whether a blank line stands behind it.
    """
    request = ([*iter_sentences(request)] or [""])[-1]
    units = split_words(request)
    if not units or len(units) > _REQUEST_WORDS:
        return False
    words = Words.of(request.strip(), likeliest_language(request, units))
    classes = lexicon(words.language)
    if words.opens("keep_cues") is not None or words.opens("rule_openers") is not None:
        return False
    open_end = request.rstrip().endswith((":", "："))
    points = _BELOW.search(request) is not None
    if is_request(request):
        is_senders = _THEIRS.search(request) is None
        is_senders = is_senders and not classes.first_possessive.isdisjoint(words.words)
        brief = len(units) < _BRIEF and _WORK.match(request) is not None
        return (open_end and not is_senders) or ((points or brief) and apart)
    theirs = _THEIRS.search(request) is not None and request.rstrip()[-1:] not in "。.!！:："
    return _RECEIVED.search(request) is not None or (points and theirs and apart)
