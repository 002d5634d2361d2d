"""What was said of oneself, told of a person: third person, and dates that stay right.  Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

_PRONOUNS: Final = {
    "i": "they", "we": "they", "me": "them", "us": "them", "my": "their", "our": "their",
    "mine": "theirs", "ours": "theirs", "myself": "themselves", "ourselves": "themselves",
    "i'm": "they are", "we're": "they are", "i've": "they have", "we've": "they have",
    "i'll": "they will", "we'll": "they will", "im": "they are", "ive": "they have",
}  # fmt: skip
_WORD: Final = re.compile(r"(?<![\w'’./-])[A-Za-z]+(?:['’][a-z]+)?(?![\w'’-])")
_QUOTED: Final = re.compile(r"(\"[^\"]*\"|“[^”]*”|`[^`]*`)")
_NUMERAL: Final = re.compile(r"\b(?:[A-Z][a-z]+ ){2}\Z|\b(?:Part|Book|War|Level|Phase|Type) \Z")
_BE: Final = re.compile(r"(?<![\w'’./-])[Ii] (am|was)\b")
_INFLECTED: Final = {
    "have": "has", "be": "is", "don't": "doesn't", "dont": "doesn't", "do not": "does not",
    "wanna": "wants to",
}  # fmt: skip
_PAST: Final = re.compile(
    r"\w+ed|thought|knew|had|was|went|got|saw|felt|made|took|came|found|gave|told|said|did|kept"
    r"|wrote|written|ran|met|left|lost|been|done|seen|can|will|must|grew|fell|swore"
)
_NO_PAST: Final = frozenset(
    ["need", "feed", "speed", "breed", "seed", "exceed", "proceed", "embed"]
)
# Verbs that follow a first one: "I usually watch a film and go to bed".
_ALSO: Final = re.compile(
    r"(?P<before>(?:,| and| or| then) (?:and |then |or )?)"
    r"(?P<verb>bake|bring|build|buy|call|care|clean|collect|cook|create|dance|discuss|do|draw|"
    r"drink|"
    r"drive|eat|enjoy|explore|feed|find|follow|get|give|go|grab|grow|hang|have|help|hike|hit|invite"
    r"|join|keep|knit|learn|like|listen|live|look|love|make|meditate|meet|order|paint|plan|play"
    r"|practi[cs]e|prepare|put|read|relax|ride|run|sell|share|sing|sit|sleep|spend|start|stay|"
    r"stop|study"
    r"|swim|take|talk|teach|train|travel|try|use|visit|volunteer|wake|walk|wash|watch|wear|work|"
    r"write)"
    r"(?=[ ,]|\Z)"
)

_WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS: Final = tuple("jan feb mar apr may jun jul aug sep oct nov dec".split())  # noqa: SIM905
_NAMES: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_NUMBERS: Final = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "twenty": 20,
}  # fmt: skip
_DAY: Final = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b"
_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b"
)
_SEASON: Final = r"spring|summer|fall|autumn|winter"
RELATIVE: Final = (
    r"\b(?:the day before yesterday|(?:not (?:so|too|that) )?long ago|a while (?:ago|back)|"
    r"yesterday|today|tonight|tomorrow|last night"
    r"|this (?:morning|afternoon|evening)|earlier (?:today|this (?:week|month|year))"
    rf"|(?:last|past|next|this(?: past| coming)?|the (?:past|coming|other|following))"
    rf" (?:few |couple of )?(?:days?|nights?|weekends?|weeks?|months?|years?|{_SEASON}|{_DAY}|"
    rf"{_MONTH})"
    r"|(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|twenty|(?:a )?few|"
    r"(?:a )?couple(?: of)?|several|some) (?:day|week|month|year)s? (?:ago|back\b|from now)"
    r"|in (?:about |around )?(?:\d+|an?|one|two|three|four|five|six|a few|a couple of)"
    r" (?:hour|day|week|month|year)s?\b(?! time\b)"
    rf"|on {_DAY}|(?<!every )(?<!each )(?<!the )(?:mon|tues|wednes|thurs|fri|satur|"
    rf"sun)day\b(?!['’]s| [Pp]aper))"
)
_RELATIVE: Final = re.compile(RELATIVE, re.IGNORECASE)
_YEARLESS: Final = re.compile(
    rf"\b(?:(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH} \d{{1,2}}(?:st|nd|rd|"
    rf"th)?\b"
    rf"|in {_MONTH})(?!,? (?:of )?\d{{4}})",
    re.IGNORECASE,
)
_AGO: Final = re.compile(r"(\w+) (day|week|month|year)s? (ago|back|from now)")
_LONG: Final = 100  # years; what is longer ago is a way of speaking


def to_third_person(text: str) -> str:
    """Return a text in the first person told of somebody."""

    def swap(word: re.Match[str]) -> str:
        if word[0] == "US" or (word[0] == "I" and _NUMERAL.search(word.string, 0, word.start())):
            return word[0]  # the country, and "World War I"
        return _PRONOUNS.get(word[0].replace("’", "'").lower(), word[0])

    parts = _QUOTED.split(text)  # a title stays what it is
    parts[::2] = [
        _WORD.sub(swap, _BE.sub(lambda be: "they are" if be[1] == "am" else "they were", part))
        for part in parts[::2]
    ]
    return "".join(parts)


def inflect_verb(verb: str) -> str:
    """Return a verb of the first person in the third; a past form stays."""
    plain = verb.replace("’", "'")
    if plain in _INFLECTED:
        return _INFLECTED[plain]
    if _PAST.fullmatch(plain) and plain not in _NO_PAST:
        return verb
    if plain.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y\Z", plain) else f"{verb}s"


def inflect_following_verbs(rest: str) -> str:
    """Return what follows an inflected verb, with the verbs that stand beside it inflected too."""
    return _ALSO.sub(lambda match: match["before"] + inflect_verb(match["verb"]), rest)


def annotate_dates(text: str, said: datetime, *, ahead: bool | None) -> str:
    """Return a text with the date that each relative word of time means, as far as it tells one.

    Args:
        said: when it was said.
        ahead: whether a bare weekday is one to come (a plan) or one gone by; None: cannot be told.
    """
    open_ended = False

    def add(match: re.Match[str]) -> str:
        nonlocal open_ended
        meant = _meant(match[0].lower(), said, ahead)
        open_ended = open_ended or not meant
        return f"{match[0]} ({meant})" if meant else match[0]

    result = _RELATIVE.sub(add, text)
    if open_ended or (_YEARLESS.search(text) and not re.search(r"\b(?:19|20)\d\d\b", text)):
        result += f" (said on {said:%Y-%m-%d})"
    return result


def has_date(text: str) -> bool:
    """Tell whether a text says when, in relation to the day it was said or by a date."""
    return bool(_RELATIVE.search(text) or _YEARLESS.search(text))


def _meant(phrase: str, said: datetime, ahead: bool | None) -> str:
    """Return the date that a phrase means, or nothing where it does not say one."""
    if ago := _AGO.fullmatch(phrase):
        return _ago(ago[1], ago[2], ago[3], said)
    if phrase.startswith("in "):
        ago = re.fullmatch(r"in (?:about |around )?(\w+) (day|week|month|year)s?", phrase)
        return _ago(ago[1], ago[2], "from now", said) if ago else ""
    if "before yesterday" in phrase:
        return _iso(said, -2)
    days = {"yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "tomorrow": 1}
    if phrase in days or phrase.startswith(("this morning", "this afternoon", "this evening")):
        return _iso(said, days.get(phrase, 0))
    if phrase == "earlier today":
        return _iso(said, 0)
    which, _, unit = phrase.rpartition(" ")
    if which in ("last", "this past", "past", "the past"):
        step = -1
    elif which in ("next", "the coming", "this coming"):
        step = 1
    else:
        step = 0
    if unit == "month" and which in ("last", "next", "this", "earlier this"):
        month = said.year * 12 + said.month - 1 + step
        return f"{_NAMES[month % 12]} {month // 12}"
    if unit == "year" and which in ("last", "next", "this", "earlier this"):
        return str(said.year + step)
    if unit in ("week", "weekend") and which in ("last", "this past", "next", "this coming"):
        return f"the {unit} {'before' if step < 0 else 'after'} {_iso(said, 0)}"
    if unit[:3] in _WEEKDAYS and re.fullmatch(_DAY, unit):
        return _weekday(_WEEKDAYS.index(unit[:3]), which, said, ahead)
    if unit[:3] in _MONTHS and which == "last" and re.fullmatch(_MONTH, unit):
        month = _MONTHS.index(unit[:3]) + 1
        return f"{_NAMES[month - 1]} {said.year - (month >= said.month)}"
    return ""


def _weekday(day: int, which: str, said: datetime, ahead: bool | None) -> str:
    if which in ("last", "this past", "past") or (which in ("", "on") and ahead is False):
        return _iso(said, -((said.weekday() - day - 1) % 7 + 1))
    if which in ("this", "this coming") or (which in ("", "on") and ahead):
        return _iso(said, (day - said.weekday()) % 7)
    return ""  # "next Friday" is this week's to some, and next week's to others


def _ago(number: str, unit: str, way: str, said: datetime) -> str:
    count = int(number) if number.isdigit() else _NUMBERS.get(number, 0)
    if not count or count > _LONG:
        return ""
    step = count if way == "from now" else -count
    if unit == "day":
        return _iso(said, step)
    if unit == "week":
        return f"around {_iso(said, 7 * step)}"
    if unit == "year":
        return str(said.year + step)
    month = said.year * 12 + said.month - 1 + step
    return f"{_NAMES[month % 12]} {month // 12}"


def _iso(said: datetime, days: int) -> str:
    try:
        return f"{said + timedelta(days=days):%Y-%m-%d}"
    except OverflowError:  # said in the year 1, or in 9999
        return ""
