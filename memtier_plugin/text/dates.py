"""The dates that a text states, and those it means when it says "yesterday".  Pure.

Where two readings of a phrase are common ("next Friday" said on a Wednesday, 3/4/2023), it has none
here: what a memory keeps must not rest on a guess.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from typing import Final

import regex

_MONTH_NAMES: Final = (
    "january jan januar enero janvier gennaio janeiro januari январь января",
    "february feb februar febrero février fevrier febbraio fevereiro februari февраль февраля",
    "march mar märz marzo mars março maart март марта",
    "april apr abril avril aprile апрель апреля",
    "may mai mayo maggio maio mei май мая",
    "june jun juni junio juin giugno junho июнь июня",
    "july jul juli julio juillet luglio julho июль июля",
    "august aug agosto août augustus август августа",
    "september sep sept septiembre septembre settembre setembro сентябрь сентября",
    "october oct oktober octubre octobre ottobre outubro октябрь октября",
    "november nov noviembre novembre novembro ноябрь ноября",
    "december dec dezember diciembre décembre decembre dicembre dezembro декабрь декабря",
)
_MONTHS: Final = {
    name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names.split()
}
_ALSO_WORDS: Final = frozenset("may mar mars march sep jun mai mei".split())  # noqa: SIM905
_WEEKDAYS: Final = {
    name: number
    for number, names in enumerate(
        ("monday montag lunes lundi", "tuesday dienstag martes mardi",
         "wednesday mittwoch miércoles mercredi", "thursday donnerstag jueves jeudi",
         "friday freitag viernes vendredi", "saturday samstag sábado samedi",
         "sunday sonntag domingo dimanche")
    )
    for name in names.split()
}  # fmt: skip
_M: Final = rf"(?P<m>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_D: Final = r"\b(?P<d>\d{1,2})(?:st|nd|rd|th|er|º|ª|\.)?"
_Y: Final = r"(?P<y>(?:1[6-9]|20)\d\d)"
_OF: Final = r"(?:\s*,\s*|\s+(?:of|de|del|di|the|von|van)\s+|\s+)"
_STATED: Final = (
    rf"\b{_Y}[-/.](?P<m>\d\d?)[-/.](?P<d>\d\d?)(?![\d/])(?:T\d\d:\d\d(?::\d\d)?Z?)?",
    rf"{_Y}\s?[年년]\s?(?P<m>\d\d?)\s?[月월]\s?(?P<d>\d\d?)\s?[日号일]",
    rf"{_Y}\s?[年년]\s?(?P<m>\d\d?)\s?[月월]",
    r"(?<!\d)(?P<m>\d\d?)\s?[月월]\s?(?P<d>\d\d?)\s?[日号일]",
    rf"{_Y}\s?[年년]",
    rf"(?<![\d.])(?P<d>\d\d?)\.\s?(?P<m>\d\d?)\.\s?{_Y}(?!\d)",
    rf"{_D}{_OF}{_M}(?:{_OF}{_Y}\b)?",
    rf"\b{_M}{_OF}?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\s*(?:[:%]|[ap]\.?m\b))(?:{_OF}{_Y}\b)?",
    rf"\b{_M}{_OF}{_Y}\b",
    rf"\b{_M}",
    r"(?:\b(?:in|since|until|till|from|by|of|during|before|after|year|im Jahr|im Jahre|seit|bis"
    r"|en|de|desde|hasta|depuis|dès|dal|nel|em|in het jaar|sinds|с|в|до)\s+(?:the year\s+)?)"
    rf"\K{_Y}\b(?![-/.:,]?\d|\s*(?:%|[a-z]*(?:dollar|euro|pound|people|times|km|miles)))",
)
_SLASHED: Final = regex.compile(rf"\b(?P<a>\d\d?)/(?P<b>\d\d?)/{_Y}\b")
_FEW: Final = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "einem": 1, "einer": 1, "zwei": 2, "drei": 3, "vier": 4,
    "un": 1, "una": 1, "une": 1, "dos": 2, "tres": 3, "cuatro": 4, "deux": 2, "trois": 3,
    "quatre": 4, "два": 2, "две": 2, "три": 3, "четыре": 4,
}  # fmt: skip
_UNITS: Final = {
    "day": "day days tag tagen día días dia dias jour jours день дня дней",
    "week": "week weeks woche wochen semana semanas semaine semaines неделю недели недель неделе",
    "month": "month months monat monaten monate mes meses mois месяц месяца месяцев месяце",
    "year": "year years jahr jahren jahre año años an ans année années год года лет году",
}
_UNIT: Final = {name: unit for unit, names in _UNITS.items() for name in names.split()}
_ANY_UNIT: Final = rf"(?P<u>{'|'.join(sorted(_UNIT, key=len, reverse=True))})"
_N: Final = rf"(?P<n>\d{{1,3}}|{'|'.join(_FEW)})"
_DAYS_OFF: Final = (
    (-2, r"\b(?:the day before yesterday|vorgestern|anteayer|avant-hier|позавчера)\b|前天|一昨日"),
    (2, r"\b(?:the day after tomorrow|übermorgen|pasado mañana|après-demain|послезавтра)\b|后天"),
    (-1, r"\b(?:yesterday|last night|gestern|ayer|anoche|hier|ieri|ontem|gisteren|вчера)\b"
         r"|昨天|昨日|昨晚|어제"),
    (1, r"\b(?:tomorrow|(?<!(?:guten|jeden|am|goede) )morgen|(?<!(?:la|cada) )mañana|demain|domani"
        r"|amanhã|завтра)\b|明天|明日|내일"),
    (0, r"\b(?:today|tonight|this (?:morning|afternoon|evening)|heute|hoy|aujourd'hui|oggi|hoje"
        r"|vandaag|сегодня)\b|今天|今日|今晚|오늘"),
)  # fmt: skip
_WHOLE: Final = (
    ("week", -1, r"\blast week\b|letzte Woche|la semana pasada|la semaine dernière"
                 r"|на прошлой неделе|上周|上星期|先週"),
    ("week", 0, r"\bthis week\b|diese Woche|esta semana|cette semaine|на этой неделе|这周|今週"),
    ("week", 1, r"\bnext week\b|nächste Woche|la próxima semana|la semaine prochaine"
                r"|на следующей неделе|下周|来週"),
    ("month", -1, r"\blast month\b|letzten Monat|el mes pasado|le mois dernier"
                  r"|в прошлом месяце|上个月|先月"),
    ("month", 0, r"\bthis month\b|diesen Monat|este mes|ce mois-ci|в этом месяце|这个月|今月"),
    ("month", 1, r"\bnext month\b|nächsten Monat|el próximo mes|le mois prochain"
                 r"|в следующем месяце|下个月|来月"),
    ("year", -1, r"\blast year\b|letztes Jahr|el año pasado|l'année dernière|l'an dernier"
                 r"|в прошлом году|去年"),
    ("year", 0, r"\bthis year\b|dieses Jahr|este año|cette année|в этом году|今年"),
    ("year", 1, r"\bnext year\b|nächstes Jahr|el próximo año|l'année prochaine"
                r"|в следующем году|明年|来年"),
)  # fmt: skip
_AGO: Final = rf"\b{_N} {_ANY_UNIT} (?:ago|назад)\b|\b(?:vor|hace|il y a) {_N} {_ANY_UNIT}\b"
_AHEAD: Final = rf"\b{_N} {_ANY_UNIT} from now\b|\b(?:in|en|dans|через) {_N} {_ANY_UNIT}\b(?! of\b)"
_WEEKEND: Final = regex.compile(r"(?i)\b(?P<w>last|this|next) weekend\b")
_WEEKDAY: Final = (
    rf"\b(?P<w>last|this|next|letzten|diesen|nächsten) (?P<day>{'|'.join(_WEEKDAYS)})\b"
)
_MAYBE: Final = regex.compile(  # any word of a relative date; most texts have none
    r"(?i)day|night|morrow|ago|week|month|year|from now|\bin \w+ |tag|gestern|heute|morgen|woche"
    r"|monat|jahr|vor |ayer|anoche|hoy|mañana|seman|mes|año|hace|hier|aujour|demain|mois|dernier"
    r"|prochain|\ban |dans|ieri|oggi|domani|ontem|hoje|amanhã|gisteren|vandaag|[а-я]"
    r"|this (?:morning|afternoon|evening)|[天日周月年晚週]|어제|오늘|내일"
)


@cache
def _pattern(text: str) -> regex.Pattern[str]:
    """Return a pattern that minds no case; made late, as most processes look for no date."""
    return regex.compile(f"(?i){text}")


@dataclass(frozen=True, slots=True)
class DateMention:
    """A date or a longer time that a text names, from ``start`` to ``end`` in it.

    ``year`` is None where none is said.  ``approximate_day`` is set on a day that is only near
    ("two weeks ago"): it stands in the middle of the time meant.
    """

    start: int
    end: int
    year: int | None = None
    month: int | None = None
    day: int | None = None
    span: tuple[date, date] | None = field(default=None, kw_only=True)
    approximate_day: date | None = field(default=None, kw_only=True)

    @property
    def period(self) -> tuple[date, date] | None:
        """The first and the last day of it; None where the year is open or there is no such day."""
        if self.span or self.year is None:
            return self.span
        month, last = self.month or 1, self.month or 12
        try:
            first = date(self.year, month, self.day or 1)
            days = monthrange(self.year, last)[1]
            return first, date(self.year, last, self.day or days)
        except ValueError:
            return None


def find_stated_dates(text: str) -> list[DateMention]:
    """Return the dates that stand in a text, in order; none lies within another."""
    found: list[DateMention] = []
    if not regex.search(r"(?i)\d|[年月]", text) and not regex.search(rf"(?i)\b{_M}", text):
        return found
    for pattern in _STATED:
        for match in _pattern(pattern).finditer(text):
            groups = match.groupdict()
            name = (groups.get("m") or "").casefold()
            month = int(name) if name.isdigit() else _MONTHS.get(name)
            day, year = groups.get("d"), groups.get("y")
            if not (day or year) and not _is_month(text, match):
                continue
            if (month and not 1 <= month <= 12) or (day and not 1 <= int(day) <= 31):
                continue
            start, end = match.span()
            if not any(start < one.end and one.start < end for one in found):
                found.append(
                    DateMention(
                        start, end, int(year) if year else None, month, int(day) if day else None
                    )
                )
    for match in _SLASHED.finditer(text):
        a, b, year = int(match["a"]), int(match["b"]), int(match["y"])
        if a <= 12 < b <= 31 or a == b <= 12:
            found.append(DateMention(match.start(), match.end(), year, a, b))
        elif b <= 12 < a <= 31:
            found.append(DateMention(match.start(), match.end(), year, b, a))
    return sorted(found, key=lambda one: one.start)


def _is_month(text: str, match: regex.Match[str]) -> bool:
    """Tell whether the bare name of a month is one: "may" and "mar" mostly are not."""
    word = match["m"]
    if word.casefold() not in _ALSO_WORDS:
        return len(word) > 3
    before = text[: match.start()].rstrip().rpartition(" ")[2].casefold()
    return word[0].isupper() and before in ("in", "since", "until", "by", "last", "next", "this")


def find_relative_dates(text: str, said: date) -> list[DateMention]:
    """Return the times that a text names relative to the day on which it was said."""
    if not _MAYBE.search(text):
        return []
    found: list[DateMention] = []
    for one in _relative(text, said):
        if not any(one.start < other.end and other.start < one.end for other in found):
            found.append(one)
    return sorted(found, key=lambda one: one.start)


def _relative(text: str, said: date) -> Iterator[DateMention]:
    for off, pattern in _DAYS_OFF:
        for match in _pattern(pattern).finditer(text):
            yield _dated(match, _moved(said, "day", off))
    for unit, number, pattern in _WHOLE:
        for match in _pattern(pattern).finditer(text):
            yield _dated(match, _unit_of(unit, _moved(said, unit, number)))
    for sign, pattern in ((-1, _AGO), (1, _AHEAD)):
        for match in _pattern(pattern).finditer(text):
            number, unit = match["n"].casefold(), _UNIT[match["u"].casefold()]
            count = int(number) if number.isdigit() else _FEW[number]
            yield _some_ago(match, said, unit, sign * count)
    monday = said - timedelta(days=said.weekday())
    for match in _WEEKEND.finditer(text):
        weeks = {"last": -1, "this": 0, "next": 1}[match["w"].casefold()]
        if said.weekday() < 5:  # on a Sunday, "last weekend" may be this one
            saturday = monday + timedelta(days=5 + 7 * weeks)
            yield _dated(match, (saturday, saturday + timedelta(days=1)))
    for match in _pattern(_WEEKDAY).finditer(text):
        which, number = match["w"].casefold(), _WEEKDAYS[match["day"].casefold()]
        if which in ("this", "diesen"):
            day = monday + timedelta(days=number)
            yield _dated(match, (day, day))
            continue
        step = -1 if which.startswith(("last", "letz")) else 1
        day = said + timedelta(days=step)
        while day.weekday() != number:
            day += timedelta(days=step)
        if not monday <= day <= monday + timedelta(days=6):
            yield _dated(match, (day, day))
        else:
            yield _dated(match, None)  # this week's, or the other


def _dated(match: regex.Match[str], span: tuple[date, date] | None) -> DateMention:
    return DateMention(match.start(), match.end(), span=span)


def _some_ago(match: regex.Match[str], said: date, unit: str, count: int) -> DateMention:
    try:
        moved = _moved(said, unit, count)
    except (OverflowError, ValueError):
        return _dated(match, None)
    if unit == "week":
        around = (moved[0] - timedelta(days=3), moved[0] + timedelta(days=3))
        return DateMention(match.start(), match.end(), span=around, approximate_day=moved[0])
    return _dated(match, _unit_of(unit, moved))


def _moved(said: date, unit: str, count: int) -> tuple[date, date]:
    """Return the day that lies so many units away, twice."""
    if unit in ("day", "week"):
        day = said + timedelta(days=count * (7 if unit == "week" else 1))
        return day, day
    months = said.year * 12 + said.month - 1 + count * (12 if unit == "year" else 1)
    day = date(months // 12, months % 12 + 1, 1)
    return day, day


def _unit_of(unit: str, days: tuple[date, date]) -> tuple[date, date]:
    """Return the whole week, month or year that a day lies in."""
    day = days[0]
    if unit == "week":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=6)
    if unit == "month":
        return day.replace(day=1), day.replace(day=monthrange(day.year, day.month)[1])
    if unit == "year":
        return date(day.year, 1, 1), date(day.year, 12, 31)
    return days


def is_date_supported(claimed: DateMention, known: DateMention, said: date) -> bool:
    """Tell whether a date that is claimed is one that is known, or a longer time around it.

    A date without a year is taken for the nearest to the day on which it was said.
    """
    if claimed.year is None:
        if known.period and known.year is None and claimed.month:  # relative
            first, last = known.period
            return first.month == last.month == claimed.month and (
                claimed.day is None or (first == last and first.day == claimed.day)
            )
        return (claimed.month, claimed.day or known.day) == (known.month, known.day)
    ours = claimed.period
    theirs = known.period or _nearest(known, said)
    if ours is None or theirs is None:
        return False
    return (ours[0] <= theirs[0] and theirs[1] <= ours[1]) or ours == (
        known.approximate_day,
        known.approximate_day,
    )


def _nearest(known: DateMention, said: date) -> tuple[date, date] | None:
    """Return the days of a date without a year in the year that brings it nearest."""
    if known.month is None:
        return None
    found = [
        times
        for year in (said.year - 1, said.year, said.year + 1)
        if (times := DateMention(0, 0, year, known.month, known.day).period)
    ]
    best = min(found, key=lambda times: abs((times[0] - said).days), default=None)
    return best if best and abs((best[0] - said).days) <= 150 else None
