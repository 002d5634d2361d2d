"""Dates as they are stated, and as they are meant by who says "yesterday"."""

from datetime import date
from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.text.dates.mentions import is_date_supported, period_of, shift_day
from memtier_plugin.text.dates.reading import find_stated_dates
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.lexicon import lexicons
from tests.cases import each_case

SAID = date(2023, 5, 10)  # a Wednesday

STATED = [
    ("on 2023-05-06", (2023, 5, 6)),
    ("6 May 2023", (2023, 5, 6)),
    ("May 6th, 2023", (2023, 5, 6)),
    ("the 6th of May", (None, 5, 6)),
    ("in June", (None, 6, None)),
    ("May 2023", (2023, 5, None)),
    ("since 2019", (2019, None, None)),
    ("am 6. Mai 2023", (2023, 5, 6)),
    ("6.5.2023", (2023, 5, 6)),
    ("el 6 de mayo de 2023", (2023, 5, 6)),
    ("2023年5月6日", (2023, 5, 6)),
    ("5月6日", (None, 5, 6)),
    ("12/25/2022", (2022, 12, 25)),
    ("25/12/2022", (2022, 12, 25)),
]
NO_DATES = ["I may go", "3/4/2023", "I paid 2000 dollars", "room 305", "mar the paint", "May 8 pm"]
RELATIVE = [
    ("yesterday", (5, 9), (5, 9)), ("tomorrow", (5, 11), (5, 11)), ("last week", (5, 1), (5, 7)),
    ("last month", (4, 1), (4, 30)), ("next month", (6, 1), (6, 30)),
    ("3 days ago", (5, 7), (5, 7)),
    ("in two days", (5, 12), (5, 12)), ("last Friday", (5, 5), (5, 5)),
    ("next Monday", (5, 15), (5, 15)), ("this Friday", (5, 12), (5, 12)),
    ("gestern", (5, 9), (5, 9)), ("vor drei Tagen", (5, 7), (5, 7)), ("ayer", (5, 9), (5, 9)),
    ("le mois dernier", (4, 1), (4, 30)), ("вчера", (5, 9), (5, 9)), ("昨天", (5, 9), (5, 9)),
    ("来月", (6, 1), (6, 30)),
]  # fmt: skip


@each_case(("text", "parts"), STATED)
def test_stated_dates(text: str, parts: tuple[int | None, ...]) -> None:
    """A date is read in the ways in which people write one, in several languages."""
    (stated,) = find_stated_dates(text)
    assert (stated.year, stated.month, stated.day) == parts


@each_case("text", NO_DATES)
def test_what_is_no_date(text: str) -> None:
    """Amounts, "may" and a date that may be read in two ways are none."""
    assert not [reading for reading in find_stated_dates(text) if reading.year or reading.day]


@each_case(("text", "first", "last"), RELATIVE)
def test_relative_dates(text: str, first: tuple[int, int], last: tuple[int, int]) -> None:
    """A time that is named from the day on which it was said has its days."""
    (relative,) = find_relative_dates(f"it was {text}", SAID)
    assert relative.period == (date(2023, *first), date(2023, *last))


def test_two_readings_are_none() -> None:
    """Said on a Wednesday "next Friday" may be this week's or the next: it has no days."""
    (relative,) = find_relative_dates("next Friday", SAID)
    assert relative.period is None


def test_what_supports_a_date() -> None:
    """A claim may be less precise than its source, never more, and never another."""

    def holds(claimed: str, source_text: str) -> bool:
        sources = find_stated_dates(source_text) or find_relative_dates(source_text, SAID)
        return is_date_supported(find_stated_dates(claimed)[0], sources[0], SAID)

    assert holds("6 May 2023", "6 May") and holds("May 2023", "6 May 2023")
    assert holds("9 May 2023", "yesterday") and holds("April 2023", "last month")
    assert not holds("6 April 2023", "last month") and not holds("6 May 2021", "6 May")
    assert not holds("7 May 2023", "6 May 2023") and not holds("8 May 2023", "yesterday")


@given(st.text(max_size=60), st.dates())
def test_dates_never_raise(text: str, spoken_on: date) -> None:
    """Whatever stands in a text, at whatever time, spans lie in it and do not overlap."""
    for readings in (find_stated_dates(text), find_relative_dates(text, spoken_on)):
        ends = [0, *(reading.end for reading in readings)]
        assert all(
            end <= reading.start < reading.end <= len(text)
            for end, reading in zip(ends, readings, strict=False)
        )


PHRASES = [
    (words.language, phrase, *key.split())
    for words in lexicons()
    for key, phrases in words.relative_times.items()
    for phrase in phrases
]


@each_case(("language", "phrase", "unit", "offset"), PHRASES)
def test_each_phrase_of_the_data_is_found(
    language: str, phrase: str, unit: str, offset: str
) -> None:
    """Every relative time in a language's data file is found, and means what the file says."""
    (mention,) = find_relative_dates(phrase, SAID)
    assert (mention.start, mention.end) == (0, len(phrase))
    assert mention.period == period_of(unit, shift_day(SAID, unit, int(offset)))


MONTHS = [
    (name, number)
    for words in lexicons()
    for number, names in enumerate(words.months, 1)
    for name in names.split()
]


@each_case(("name", "number"), MONTHS)
def test_each_month_of_the_data_is_read(name: str, number: int) -> None:
    """Every name of a month in a language's data file makes a date with a day and a year."""
    (mention,) = find_stated_dates(f"5 {name} 2023")
    assert (mention.year, mention.month, mention.day) == (2023, number, 5)


def test_a_tomorrow_that_is_a_morning() -> None:
    """The words for tomorrow mean the morning after "guten" and "la"."""
    assert not find_relative_dates("guten Morgen", SAID)
    assert not find_relative_dates("por la mañana", SAID)


def test_many_dates_take_linear_time() -> None:
    """Ten times as many dates take no more than some twenty times as long."""

    def seconds(count: int) -> float:
        text = "On 6 May 2023 and yesterday we met. " * count
        start = process_time()
        assert len(find_stated_dates(text)) == len(find_relative_dates(text, SAID)) == count
        return process_time() - start

    seconds(10)
    assert seconds(2_000) < 25 * max(seconds(200), 0.005)
