"""A sentence as statements: its words by what they do, and its clauses by what they deny.  Pure.

A claim and its source are read alike, so that what is compared is what was said, not how. The
language is told by its small words, over all that a speaker says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple

import regex

from memtier_plugin.text import claim_lexicon, grammar
from memtier_plugin.text.tokenizer import Tokenizer

Kind = Literal["word", "light", "no", "me", "my", "you", "third", "turn", "number"]


class Word(NamedTuple):
    """A word of a sentence: what it is compared by, what it does there, and where it stands.

    ``piece`` is the number of its clause and ``denied`` says that the clause denies; an ``owner``
    is written with an apostrophe.
    """

    text: str
    key: str
    kind: Kind
    at: int
    end: int
    capital: bool = False
    first: bool = False
    piece: int = 0
    denied: bool = False
    owner: bool = False


@dataclass(frozen=True, slots=True)
class ParsedSentence:
    """A sentence as it is read: its words, and which of its clauses ask."""

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
_ALIAS: Final = {
    "usd": "dollar", "dollars": "dollar", "bucks": "dollar", "eur": "euro", "euros": "euro",
    "kilos": "kg", "kilo": "kg", "kilogram": "kg", "kilograms": "kg", "kilometers": "km",
    "kilometres": "km", "kilometer": "km", "kilometre": "km", "pounds": "pound", "lb": "pound",
    "lbs": "pound", "hours": "hour", "hrs": "hour", "hr": "hour", "minutes": "minute",
    "mins": "minute", "min": "minute", "milligrams": "mg", "prozent": "percent",
    "degrees": "degree", "grams": "g", "gram": "g", "miles": "mile", "meters": "m", "metres": "m",
}  # fmt: skip
_NUMBER_WORDS: Final = {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13",
    "fourteen": "14", "fifteen": "15", "sixteen": "16", "seventeen": "17", "eighteen": "18",
    "nineteen": "19", "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50",
    "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90", "hundred": "100",
    "thousand": "1000", "million": "1000000", "dozen": "12", "first": "1", "third": "3",
    "fourth": "4", "fifth": "5",
    "zwei": "2", "drei": "3", "vier": "4", "fünf": "5", "sechs": "6", "sieben": "7", "acht": "8",
    "neun": "9", "zehn": "10", "elf": "11", "zwölf": "12",
    "dos": "2", "tres": "3", "cuatro": "4", "cinco": "5", "seis": "6", "siete": "7", "ocho": "8",
    "nueve": "9", "diez": "10", "deux": "2", "trois": "3", "quatre": "4", "cinq": "5", "sept": "7",
    "huit": "8", "neuf": "9", "dix": "10", "due": "2", "tre": "3", "quattro": "4", "cinque": "5",
    "sei": "6", "sette": "7", "otto": "8", "nove": "9", "dieci": "10", "dois": "2", "duas": "2",
    "três": "3", "quatro": "4", "sete": "7", "oito": "8", "dez": "10", "twee": "2", "drie": "3",
    "vijf": "5", "zes": "6", "zeven": "7", "два": "2", "две": "2", "три": "3", "четыре": "4",
    "пять": "5", "шесть": "6", "семь": "7", "восемь": "8", "девять": "9", "десять": "10",
    "两": "2", "二": "2", "三": "3", "四": "4", "五": "5", "六": "6", "七": "7", "八": "8",
    "九": "9", "十": "10",
}  # fmt: skip
_NUMBER_OF: Final = {
    "german": frozenset(("acht",)), "italian": frozenset(("sei", "due", "tre", "nove")),
    "french": frozenset(("neuf", "dix", "sept")), "spanish": frozenset(("dos", "tres", "once")),
    "portuguese": frozenset(("sete", "dez", "nove")),
}  # fmt: skip
_ONLY_THERE: Final = frozenset(word for words in _NUMBER_OF.values() for word in words)
_TENS: Final = frozenset(("20", "30", "40", "50", "60", "70", "80", "90"))
_CONTRACTED: Final = {
    "can't": "can not", "cannot": "can not", "won't": "will not", "ain't": "is not",
    "shan't": "shall not", "cant": "can not", "dont": "do not", "didnt": "did not",
    "doesnt": "does not", "isnt": "is not", "arent": "are not", "wasnt": "was not",
    "havent": "have not", "hasnt": "has not", "gonna": "going to", "wanna": "want to",
    "im": "i am", "ive": "i have", "let's": "let us",
}  # fmt: skip
_ENDINGS: Final = {"n't": "not", "'m": "am", "'re": "are", "'ve": "have", "'ll": "will",
                   "'d": "would"}  # fmt: skip
_HARD: Final = regex.compile(r"[;:()\n—–。；：（）]|[.!?！？…]|\s-\s|->")
_COMMA: Final = regex.compile("[,，、،]")
_SUBJECTS: Final = grammar.word_set("i we he she they it you this that there")
_VERBS_NEXT: Final = grammar.word_set(
    "is was are were has had will can does did likes loves hates lives works ist hat es tiene est a"
)
_ASKS: Final = grammar.word_set("""can could would will do does did is are was were have has how
    what why which where when who should shall may any am""")
_SOME: Final = grammar.word_set("each every this that the no some any another which what or")


@lru_cache(4096)
def comparison_key(word: str, tongue: str) -> str:
    """Return what a word is compared by: a meaning that many words have, or its stem."""
    if same := grammar.synonym_key(word):
        return same
    if word in _ALIAS:
        return _ALIAS[word]
    if tongue == "english":
        word = grammar.irregular_verbs()[0].get(word, word)
    if tongue in ("chinese", "japanese"):
        return word
    stems = _tokenizer(tongue).words(word)
    return stems[0] if len(stems) == 1 else word


@cache
def _tokenizer(tongue: str) -> Tokenizer:
    return Tokenizer(tongue)


@lru_cache(2048)
def parse_sentence(text: str, tongue: str) -> ParsedSentence:
    """Return the words of a sentence in their clauses."""
    words = _cut(_some_one([*_words(text, tongue)]), text, tongue)
    asked: set[int] = set()
    last = text.rstrip(" \"'”’)*_")
    if words and last.endswith(("?", "？", "吗", "吗。", "か。")):
        asked.add(words[-1].piece)
    by_piece: dict[int, Word] = {}
    for word in words:
        by_piece.setdefault(word.piece, word)
    if tongue == "english":
        asked.update(
            piece
            for piece, word in by_piece.items()
            if word.text in _ASKS and not (word.text in ("when", "any", "what") and piece)
            and not _told(words, piece)
        )  # fmt: skip
    return ParsedSentence(tuple(words), frozenset(asked))


def _told(words: Sequence[Word], piece: int) -> bool:
    """Tell whether a clause that begins like a question is an order: "do not", "have"."""
    mine = [word.text for word in words if word.piece == piece]
    return mine[:2] in (["do", "not"], ["do", "never"]) or mine[0] in ("any", "when")


def _words(text: str, tongue: str) -> Iterator[Word]:
    """Yield the words of a text, each with what it does in the language."""
    wording = grammar.CLOSED_CLASSES[tongue]
    unspaced = tongue in ("chinese", "japanese")
    first, skip = True, 0
    for match in _TOKEN.finditer(text):
        at, end = match.span()
        if at < skip:
            continue
        kind = match.lastgroup
        raw = match[0]
        if kind in ("number", "ordinal", "cjknumber"):
            yield Word(raw, f"#{_number(match['number'] or raw, tongue)}", "number", at, end)
        elif kind == "time":
            yield Word(raw, f"#{_time(raw)}", "number", at, end)
        elif kind == "sign":
            yield Word(raw, _SIGNS[raw], "word", at, end)
        elif kind == "cjk" or (unspaced and kind != "word"):
            found = _longest(text, at, tongue) if unspaced else raw
            found = found if len(found) > len(raw) else raw
            skip = at + len(found)
            number = _NUMBER_WORDS.get(found)
            if number:
                yield Word(found, f"#{number}", "number", at, skip)
            else:
                yield Word(
                    found,
                    comparison_key(found, tongue),
                    _kind(found, wording),
                    at,
                    skip,
                    first=first,
                )
        else:
            for part, start, stop in _parts(raw, at, tongue):
                yield _word(part, text[start:stop], start, stop, tongue, first)
        first = False


def _word(part: str, raw: str, at: int, end: int, tongue: str, first: bool) -> Word:
    known = _NUMBER_WORDS.get(part)
    mine = part not in _ONLY_THERE or part in _NUMBER_OF.get(tongue, ())
    if known and mine and part not in ("first", "third", "second"):
        return Word(part, f"#{known}", "number", at, end, first=first)
    wording = grammar.CLOSED_CLASSES[tongue]
    capital = raw[:1].isupper() and raw != "I"
    owner = raw.endswith(("'s", "’s", "s'", "s’"))
    kind = _kind(part, wording)
    return Word(part, comparison_key(part, tongue), kind, at, end, capital, first, owner=owner)


def _kind(word: str, wording: grammar.ClosedClasses) -> Kind:
    for kind, words in (
        ("no", wording.negations),
        ("me", wording.first_person),
        ("my", wording.first_possessive),
        ("you", wording.second_person),
        ("turn", wording.nonfactual),
        ("third", wording.third_person),
    ):
        if word in words:
            return kind  # type: ignore[return-value]
    if word in wording.function_words and word not in claim_lexicon.POLAR:
        return "light"
    return "word"


@cache
def _long_words(tongue: str) -> tuple[str, ...]:
    wording = grammar.CLOSED_CLASSES[tongue]
    groups = (
        wording.negations,
        wording.first_person,
        wording.first_possessive,
        wording.second_person,
        wording.third_person,
        wording.nonfactual,
        wording.function_words,
        wording.contrasts,
    )
    return tuple(sorted((w for g in groups for w in g if len(w) > 1), key=len, reverse=True))


def _longest(text: str, at: int, tongue: str) -> str:
    return next((w for w in _long_words(tongue) if text.startswith(w, at)), "")


def _parts(raw: str, at: int, tongue: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words that are written as one: contractions, elisions, an amount and its unit."""
    word = regex.sub("[’ʼ]", "'", raw).casefold()
    end = at + len(raw)
    if amount := regex.fullmatch(rf"(\d+)({_UNITS})", word):
        yield amount[1], at, end
        word = amount[2]
    if tongue == "english":
        if word in _CONTRACTED:
            for part in _CONTRACTED[word].split():
                yield part, at, end
            return
        for ending, full in _ENDINGS.items():
            if word.endswith(ending) and len(word) > len(ending):
                yield word[: -len(ending)], at, end
                yield full, at, end
                return
        word = word.removesuffix("'s")
        if word.startswith("non-"):
            yield "not", at, end
            word = word[4:]
    elif "'" in word and tongue in ("french", "italian") and word != "aujourd'hui":
        for part in filter(None, word.split("'")):
            yield part, at, end
        return
    yield word.strip("'"), at, end


def _number(raw: str, tongue: str) -> str:
    """Return a number as it is compared: no separators of thousands, a point for decimals."""
    raw = raw.replace("’", "'")
    if regex.fullmatch(r"-?\d{1,3}(?:'\d{3})+", raw):
        return raw.replace("'", "")
    thousands, point = (",", ".") if tongue in ("english", "chinese", "japanese") else (".", ",")
    if regex.fullmatch(rf"-?\d{{1,3}}(?:\{thousands}\d{{3}})+(?:\{point}\d+)?", raw):
        raw = raw.replace(thousands, "")
    if raw.count(",") == 1 and point == ",":
        raw = raw.replace(",", ".")
    return raw if raw.count(".") > 1 else (raw.lstrip("0") or "0") if "." not in raw else raw


def _time(raw: str) -> str:
    digits = regex.findall(r"\d+", raw)
    hour, minute = int(digits[0]), digits[1] if len(digits) > 1 else "00"
    if half := regex.search(r"(?i)([ap])\.?m", raw):
        hour = hour % 12 + (12 if half[1].casefold() == "p" else 0)
    return f"{hour:02}:{minute}"


def _some_one(words: list[Word]) -> list[Word]:
    """Return the words with "one" as a number only where it counts something: one cat."""
    return [
        word._replace(kind="light")
        if (word.text == "only" and place and words[place - 1].text == "not")
        or (
            word.text == "one"
            and (
                (place and words[place - 1].text in _SOME)
                or place + 1 == len(words)
                or words[place + 1].kind != "word"
            )
        )
        else word
        for place, word in enumerate(words)
    ]


def _cut(words: list[Word], text: str, tongue: str) -> list[Word]:
    """Number the clauses, join tens and ones, and say of each word whether its clause denies."""
    wording = grammar.CLOSED_CLASSES[tongue]
    ands = grammar.COORDINATORS.get(tongue, frozenset[str]())
    pieces: list[list[Word]] = []
    prefers = False
    for place, word in enumerate(words):
        before = text[words[place - 1].end : word.at] if place else ""
        after = words[place + 1] if place + 1 < len(words) else None
        begins = not pieces or bool(_HARD.search(before)) or word.text in wording.contrasts
        later = words[place + 2] if place + 2 < len(words) else None
        if not begins and _COMMA.search(before):
            begins = tongue in ("chinese", "japanese") or _opens(word, after)
        if not begins and word.text in ands and after is not None:
            begins = bool(later and later.kind == "no") or _opens(after, later)
        if prefers and word.text in ("over", "to", "than"):
            begins = True
            word = word._replace(kind="no")
            prefers = False
        prefers = prefers or word.text.startswith("prefer")
        if begins:
            pieces.append([])
        pieces[-1].append(word)
    found: list[Word] = []
    for number, piece in enumerate(pieces):
        denies = any(_denies(piece, place) for place in range(len(piece)))
        liked = _turned(piece, tongue) if denies else piece
        denied = denies and liked is piece
        found += [word._replace(piece=number, denied=denied) for word in liked]
    return _joined(found)


def _opens(word: Word, after: Word | None) -> bool:
    """Tell whether a word after a comma or "and" begins a clause of its own."""
    if word.kind in ("no", "me") or word.text in _SUBJECTS:
        return True
    if word.kind == "my":
        return True
    return after is not None and after.text in _VERBS_NEXT and word.kind != "light"


def _denies(piece: Sequence[Word], place: int) -> bool:
    word = piece[place]
    if word.kind != "no":
        return False
    after = piece[place + 1].text if place + 1 < len(piece) else ""
    before = piece[place - 1].text if place else ""
    if word.text == "not" and after == "only":
        return False
    if word.text in ("few", "little") and before in ("a", "the", "cute", "my", "our"):
        return False
    if word.text == "rather" and after != "than":
        return False
    if word.text in ("n", "ne"):  # French says no twice
        return not any(w.kind == "no" and w.text not in ("n", "ne") for w in piece)
    if word.text in ("nada", "nadie", "nunca", "niente", "mai", "nessuno", "ничего", "никогда",
                     "никто", "nessuna", "ninguno", "ninguna", "ningún", "ни"):  # fmt: skip
        return not any(w.text in ("no", "non", "не") for w in piece)
    return True


def _turned(piece: list[Word], tongue: str) -> list[Word]:
    """Return a denied clause as an affirmed one, where not liking is all it says: disliking."""
    likes = [place for place, word in enumerate(piece) if word.key == "=like"]
    if len(likes) != 1 or any(
        word.text in grammar.COORDINATORS.get(tongue, ()) for word in piece[1:]
    ):
        return piece
    said = [word for word in piece[: likes[0]] if word.kind in ("word", "number", "turn")]
    if any(not (word.capital or word.first) for word in said):
        return piece
    return [
        word._replace(key="=dislike") if word.key == "=like"
        else word._replace(kind="light") if word.kind == "no" else word
        for word in piece
    ]  # fmt: skip


def _joined(words: Iterable[Word]) -> list[Word]:
    """Join tens and ones (twenty-five, two hundred) to one number."""
    found: list[Word] = []
    for word in words:
        last = found[-1] if found else None
        if word.kind == "number" and last and last.kind == "number" and word.text.isalpha():
            tens, ones = last.key[1:], word.key[1:]
            if tens in _TENS and len(ones) == 1:
                found[-1] = last._replace(key=f"#{int(tens) + int(ones)}", end=word.end)
                continue
            if ones in ("100", "1000", "1000000", "12") and tens.isdigit():
                found[-1] = last._replace(key=f"#{int(tens) * int(ones)}", end=word.end)
                continue
        found.append(word)
    return found
