"""Parse a sentence into words with their functions, and clauses with their negations.  Pure.

A claim and its source are parsed alike, so that their meaning is compared rather than their form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.lexicon import (
    CONCORD_NEGATIONS,
    POLAR,
    Lexicon,
    common_words,
    irregular_verbs,
    lexicon,
    lexicons,
    synonym_key,
    words_of,
)
from memtier_plugin.text.tokenizer import Tokenizer

Kind = Literal["word", "light", "no", "me", "my", "you", "third", "turn", "number"]


class Word(NamedTuple):
    """A word of a sentence.

    Attributes:
        text: casefolded; ``key`` is its comparison key.
        kind: content ("word", "number"), function ("light"), negation ("no"), person ("me", "my",
            "you", "third"), or nonfactual ("turn").
        start, end: its span in the sentence.
        capital: capitalised; ``first`` if it opens the sentence.
        clause: the number of its clause; ``denied`` if the clause is negated.
        owner: has a possessive apostrophe.
    """

    text: str
    key: str
    kind: Kind
    start: int
    end: int
    capital: bool = False
    first: bool = False
    clause: int = 0
    denied: bool = False
    owner: bool = False


@dataclass(frozen=True, slots=True)
class ParsedSentence:
    """The words of a sentence, and which of its clauses are questions."""

    words: tuple[Word, ...]
    questions: frozenset[int]


_UNITS: Final = (
    "kg|g|mg|km|m|cm|mm|lbs?|mph|kmh|h|hrs?|mins?|gb|mb|tb|ml|l|oz|ft|k|x|ms|kw|kwh|mb/s|px"
)
_TOKEN: Final = regex.compile(
    rf"""(?xi)
    (?P<time>(?<![\w.])\d{{1,2}}(?:[:.]\d\d)?\s?[ap]\.?m\b\.?|(?<![\w.:])\d{{1,2}}:\d\d(?![\w:]))
    |(?P<number>(?<![\w.])-?\d+(?:[.,'’]\d+)*(?=(?:st|nd|rd|th|{_UNITS})?(?![\w@/-]|[.:]\w)))
     (?P<ordinal>st|nd|rd|th)?
    |(?P<cjknumber>\d+(?:[.,]\d+)*)(?=[\p{{Han}}\p{{Hiragana}}\p{{Katakana}}])
    |(?P<cjk>[\p{{Han}}\p{{Hiragana}}]|[\p{{Katakana}}ー]+)
    |(?P<sign>[$€£¥₹%°])
    |(?P<word>(?:(?![\p{{Han}}\p{{Hiragana}}\p{{Katakana}}])[\p{{L}}\p{{M}}\p{{N}}])+
       (?:[-_./:@+&'’ʼ]+(?:(?![\p{{Han}}\p{{Hiragana}}\p{{Katakana}}])[\p{{L}}\p{{M}}\p{{N}}])+)*
       (?:\+\+|\#(?!\w))?)
    """
)
_SIGNS: Final = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee",
                 "%": "percent", "°": "degree"}  # fmt: skip
_TENS: Final = frozenset(("20", "30", "40", "50", "60", "70", "80", "90"))
_MULTIPLIERS: Final = frozenset(("12", "100", "1000", "1000000"))  # of the number before
_HARD_BREAK: Final = regex.compile(r"[;:()\n—–。；：（）]|[.!?！？…]|\s-\s|->")
_COMMA: Final = regex.compile("[,，、،]")
_QUESTION_ENDS: Final = ("?", "？", "吗", "吗。", "か。")
_NOT_COUNTED: Final = ("first", "third", "second")  # ordinals that are more often adverbs
_ORDERS: Final = (["do", "not"], ["do", "never"])


@cache
def _numbers() -> dict[str, str]:
    """Return the number words of all languages, keyed by the compared form of their number."""
    return {
        word: str(value)
        for words in lexicons()
        for word, value in (*words.numbers.items(), *words.ordinals.items())
    }


@cache
def _aliases() -> dict[str, str]:
    return {alias: unit for words in lexicons() for alias, unit in words.unit_aliases.items()}


@lru_cache(4096)
def comparison_key(word: str, language: str) -> str:
    """Return the form in which a word is compared: the key of its synonyms, or its stem."""
    if synonym := synonym_key(word):
        return synonym
    if alias := _aliases().get(word):
        return alias
    if language == "english":
        word = irregular_verbs().lemmas.get(word, word)
    if lexicon(language).unspaced:
        return word
    stems = _tokenizer(language).words(word)
    return stems[0] if len(stems) == 1 else word


@cache
def _tokenizer(language: str) -> Tokenizer:
    return Tokenizer(language)


@lru_cache(2048)
def parse_sentence(text: str, language: str) -> ParsedSentence:
    """Parse a sentence into the words of its clauses."""
    words = _clauses(_pronoun_one([*_words(text, language)]), text, language)
    questions: set[int] = set()
    if words and text.rstrip(" \"'”’)*_").endswith(_QUESTION_ENDS):
        questions.add(words[-1].clause)
    openers: dict[int, Word] = {}
    for word in words:
        openers.setdefault(word.clause, word)
    for clause, word in openers.items():
        if word.text not in lexicon(language).question_openers:
            continue
        if not (clause and word.text in ("when", "any", "what")) and not _orders(words, clause):
            questions.add(clause)
    return ParsedSentence(tuple(words), frozenset(questions))


def _orders(words: Sequence[Word], clause: int) -> bool:
    """Return whether a clause that opens like a question is an order: "do not"."""
    texts = [word.text for word in words if word.clause == clause]
    return texts[:2] in _ORDERS or texts[0] in ("any", "when")


def _words(text: str, language: str) -> Iterator[Word]:
    """Yield the words of a text, each with its kind in the language."""
    words = lexicon(language)
    first, skip = True, 0
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if start < skip:
            continue
        kind, raw = match.lastgroup, match[0]
        if kind in ("number", "ordinal", "cjknumber"):
            key = f"#{_normal_number(match['number'] or raw, language)}"
            yield Word(raw, key, "number", start, end)
        elif kind == "time":
            yield Word(raw, f"#{_normal_time(raw)}", "number", start, end)
        elif kind == "sign":
            yield Word(raw, _SIGNS[raw], "word", start, end)
        elif kind == "cjk" or (words.unspaced and kind != "word"):
            longest = _longest_word(text, start, language) if words.unspaced else raw
            longest = longest if len(longest) > len(raw) else raw
            skip = start + len(longest)
            if number := _numbers().get(longest):
                yield Word(longest, f"#{number}", "number", start, skip)
            else:
                key = comparison_key(longest, language)
                yield Word(longest, key, _kind(longest, words), start, skip, first=first)
        else:
            for word, begin, stop in _parts(raw, start, language):
                yield _word(word, text[begin:stop], begin, stop, words, first)
        first = False


def _word(text: str, raw: str, start: int, end: int, words: Lexicon, first: bool) -> Word:
    number = _numbers().get(text)
    elsewhere = text in words_of("homograph_numbers") and text not in words.homograph_numbers
    if number and not elsewhere and text not in _NOT_COUNTED:
        return Word(text, f"#{number}", "number", start, end, first=first)
    return Word(
        text,
        comparison_key(text, words.language),
        _kind(text, words),
        start,
        end,
        capital=raw[:1].isupper() and raw != "I",
        first=first,
        owner=raw.endswith(("'s", "’s", "s'", "s’")),
    )


def _kind(word: str, words: Lexicon) -> Kind:
    if word in words.negations:
        return "no"
    if word in words.first_person:
        return "me"
    if word in words.first_possessive:
        return "my"
    if word in words.second_person:
        return "you"
    if word in words.nonfactual:
        return "turn"
    if word in words.third_person:
        return "third"
    return "light" if word in words.function_words and word not in POLAR else "word"


@cache
def _long_words(language: str) -> tuple[str, ...]:
    """Return the function words of an unspaced language that are longer than one character."""
    words = common_words(language) | lexicon(language).nonfactual
    return tuple(sorted((word for word in words if len(word) > 1), key=len, reverse=True))


def _longest_word(text: str, start: int, language: str) -> str:
    return next((word for word in _long_words(language) if text.startswith(word, start)), "")


def _parts(raw: str, start: int, language: str) -> Iterator[tuple[str, int, int]]:
    """Split what is written as one word: contractions, elisions, an amount with its unit."""
    word = regex.sub("[’ʼ]", "'", raw).casefold()
    end = start + len(raw)
    if amount := regex.fullmatch(rf"(\d+)({_UNITS})", word):
        yield amount[1], start, end
        word = amount[2]
    if language == "english":
        for part in _expanded(word):
            yield part, start, end
    elif "'" in word and language in ("french", "italian") and word != "aujourd'hui":
        for part in filter(None, word.split("'")):
            yield part, start, end
    else:
        yield word.strip("'"), start, end


def _expanded(word: str) -> Iterator[str]:
    """Yield the words of an English contraction."""
    english = lexicon("english")
    if full := english.contractions.get(word):
        yield from full.split()
        return
    for ending, full in english.contracted_endings.items():
        if word.endswith(ending) and len(word) > len(ending):
            yield word[: -len(ending)]
            yield full
            return
    word = word.removesuffix("'s")
    if word.startswith("non-"):
        yield "not"
        word = word[4:]
    yield word.strip("'")


def _normal_number(raw: str, language: str) -> str:
    """Return a number in its compared form: no thousands separators, a point for decimals."""
    raw = raw.replace("’", "'")
    if regex.fullmatch(r"-?\d{1,3}(?:'\d{3})+", raw):
        return raw.replace("'", "")
    english = language == "english" or lexicon(language).unspaced
    thousands, point = (",", ".") if english else (".", ",")
    if regex.fullmatch(rf"-?\d{{1,3}}(?:\{thousands}\d{{3}})+(?:\{point}\d+)?", raw):
        raw = raw.replace(thousands, "")
    if raw.count(",") == 1 and point == ",":
        raw = raw.replace(",", ".")
    return raw if "." in raw else raw.lstrip("0") or "0"


def _normal_time(raw: str) -> str:
    digits = regex.findall(r"\d+", raw)
    hour, minute = int(digits[0]), digits[1] if len(digits) > 1 else "00"
    if half := regex.search(r"(?i)([ap])\.?m", raw):
        hour = hour % 12 + (12 if half[1].casefold() == "p" else 0)
    return f"{hour:02}:{minute}"


def _pronoun_one(words: list[Word]) -> list[Word]:
    """Return the words, with "one" as a number only if it counts something: one cat."""
    determiners = lexicon("english").determiners
    result = []
    for index, word in enumerate(words):
        before = words[index - 1].text if index else ""
        counts = index + 1 < len(words) and words[index + 1].kind == "word"
        pronoun = word.text == "one" and (before in determiners or not counts)
        not_only = word.text == "only" and before == "not"
        result.append(word._replace(kind="light") if pronoun or not_only else word)
    return result


def _clauses(words: list[Word], text: str, language: str) -> list[Word]:
    """Number the clauses, join tens and ones, and mark the words of negated clauses."""
    result: list[Word] = []
    for number, clause in enumerate(_split_clauses(words, text, lexicon(language))):
        negated = any(_negates(clause, index) for index in range(len(clause)))
        turned = _as_dislike(clause, language) if negated else clause
        denied = negated and turned is clause
        result += [word._replace(clause=number, denied=denied) for word in turned]
    return _joined_numbers(result)


def _split_clauses(words: Sequence[Word], text: str, lex: Lexicon) -> list[list[Word]]:
    clauses: list[list[Word]] = []
    prefers = False
    for index, word in enumerate(words):
        before = text[words[index - 1].end : word.start] if index else ""
        after = words[index + 1] if index + 1 < len(words) else None
        later = words[index + 2] if index + 2 < len(words) else None
        begins = not clauses or bool(_HARD_BREAK.search(before)) or word.text in lex.contrasts
        if not begins and _COMMA.search(before):
            begins = lex.unspaced or _opens_clause(word, after)
        if not begins and word.text in lex.conjunctions and after is not None:
            begins = bool(later and later.kind == "no") or _opens_clause(after, later)
        if prefers and word.text in ("over", "to", "than"):
            begins, prefers = True, False
            word = word._replace(kind="no")
        prefers = prefers or word.text.startswith("prefer")
        if begins:
            clauses.append([])
        clauses[-1].append(word)
    return clauses


def _opens_clause(word: Word, after: Word | None) -> bool:
    """Return whether a word after a comma or a conjunction begins a new clause."""
    if word.kind in ("no", "me", "my") or word.text in lexicon("english").clause_subjects:
        return True
    return after is not None and after.text in words_of("clause_verbs") and word.kind != "light"


def _negates(clause: Sequence[Word], index: int) -> bool:
    """Return whether a word negates its clause."""
    word = clause[index]
    if word.kind != "no":
        return False
    after = clause[index + 1].text if index + 1 < len(clause) else ""
    before = clause[index - 1].text if index else ""
    if word.text == "not" and after == "only":
        return False
    if word.text in ("few", "little") and before in ("a", "the", "cute", "my", "our"):
        return False
    if word.text == "rather" and after != "than":
        return False
    if word.text in ("n", "ne"):  # French negates twice
        return not any(w.kind == "no" and w.text not in ("n", "ne") for w in clause)
    if word.text in CONCORD_NEGATIONS:
        return not any(w.text in ("no", "non", "не") for w in clause)
    return True


def _as_dislike(clause: list[Word], language: str) -> list[Word]:
    """Return a negated clause that means only "not like" as one of disliking."""
    likes = [index for index, word in enumerate(clause) if word.key == "=like"]
    conjunctions = lexicon(language).conjunctions
    if len(likes) != 1 or any(word.text in conjunctions for word in clause[1:]):
        return clause
    before = [word for word in clause[: likes[0]] if word.kind in ("word", "number", "turn")]
    if any(not (word.capital or word.first) for word in before):
        return clause
    clause = [word._replace(kind="light") if word.kind == "no" else word for word in clause]
    clause[likes[0]] = clause[likes[0]]._replace(key="=dislike")
    return clause


def _joined_numbers(words: Iterable[Word]) -> list[Word]:
    """Join number words to one number: twenty-five, two hundred."""
    joined: list[Word] = []
    for word in words:
        last = joined[-1] if joined else None
        if word.kind == "number" and last and last.kind == "number" and word.text.isalpha():
            left, right = last.key[1:], word.key[1:]
            if left in _TENS and len(right) == 1:
                joined[-1] = last._replace(key=f"#{int(left) + int(right)}", end=word.end)
                continue
            if right in _MULTIPLIERS and left.isdigit():
                joined[-1] = last._replace(key=f"#{int(left) * int(right)}", end=word.end)
                continue
        joined.append(word)
    return joined
