"""What time a query asks about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.memory import MemTier
from memtier_plugin.text.dates.spans import TimeSpan, best_nearness, find_time_spans
from tests.cases import each_case

NOW = datetime(2023, 10, 20, 12, tzinfo=UTC)  # a Friday


@each_case(
    ("query", "first", "last"),
    [
        ("what happened yesterday?", "2023-10-19", "2023-10-19"),
        ("what did she do last week?", "2023-10-09", "2023-10-15"),
        ("whom did I meet last Friday?", "2023-10-13", "2023-10-13"),
        ("three weeks ago", "2023-09-26", "2023-10-02"),
        ("what came up last month", "2023-09-01", "2023-09-30"),
        ("where did Mel go in March?", "2023-03-01", "2023-03-31"),
        ("the plan of December", "2022-12-01", "2022-12-31"),
        ("in June 2021", "2021-06-01", "2021-06-30"),
        ("what happened in 2022?", "2022-01-01", "2022-12-31"),
        ("two days before 7 May 2023", "2023-05-05", "2023-05-05"),
        ("on October 13, 2023", "2023-10-13", "2023-10-13"),
        ("on the 3rd of May", "2023-05-03", "2023-05-03"),
        ("the build of 2023-05-07", "2023-05-07", "2023-05-07"),
        ("between March 1 and April 15, 2023", "2023-03-01", "2023-04-15"),
        ("what was after January 15, 2023?", "2023-01-15", "2023-10-20"),
        ("before March 3, 2022", "1970-01-01", "2022-03-03"),
        ("since 15 January 2023", "2023-01-15", "2023-10-20"),
        ("since 2023-01-15", "2023-01-15", "2023-10-20"),
        ("after March 3rd", "2023-03-03", "2023-10-20"),
        ("after Nov. 3, 2022", "2022-11-03", "2023-10-20"),
        ("from January 5, 2023 to January 9, 2023", "2023-01-05", "2023-01-09"),
        ("who was Bob (June 15, 2022)?", "2022-06-15", "2022-06-15"),
        ("two days after January 15, 2022", "2022-01-17", "2022-01-17"),
        ("the week before 7 May 2023", "2023-04-24", "2023-04-30"),
        ("since December", "2022-12-01", "2023-10-20"),
        ("before 3 July 2023", "1970-01-01", "2023-07-03"),
        ("in the last three weeks", "2023-09-29", "2023-10-20"),
        ("Who came round at the weekend?", "2023-10-14", "2023-10-15"),
        ("Which shelf did I paint on Wednesday?", "2023-10-18", "2023-10-18"),
        ("the mess of Monday last week", "2023-10-09", "2023-10-09"),
        ("in late September", "2023-09-21", "2023-09-30"),
        ("during the third week of July", "2023-07-15", "2023-07-21"),
        ("in May last year", "2022-05-01", "2022-05-31"),
        ("since spring", "2023-03-01", "2023-10-20"),
        ("what was there on the 9th?", "2023-10-09", "2023-10-09"),
        ("the Sunday before 7 May 2023", "2023-04-30", "2023-04-30"),
        ("am vorigen Sonntag", "2023-10-15", "2023-10-15"),
        ("vor vier Tagen", "2023-10-16", "2023-10-16"),
        ("Mitte August", "2023-08-11", "2023-08-20"),
        ("das letzte Wochenende", "2023-10-14", "2023-10-15"),
        ("hace tres días", "2023-10-17", "2023-10-17"),
        ("el miércoles de la semana pasada", "2023-10-11", "2023-10-11"),
        ("a mediados de mayo", "2023-05-11", "2023-05-20"),
        ("il y a trois jours", "2023-10-17", "2023-10-17"),
        ("mercredi dernier", "2023-10-18", "2023-10-18"),
        ("fin août", "2023-08-21", "2023-08-31"),
        ("上周三", "2023-10-11", "2023-10-11"),
        ("两天前", "2023-10-18", "2023-10-18"),
        ("八月底", "2023-08-21", "2023-08-31"),
        ("去年五月", "2022-05-01", "2022-05-31"),
    ],
)
def test_a_time_is_understood(query: str, first: str, last: str) -> None:
    """Dates, months, years, ranges and words relative to now name a span in the past."""
    span = find_time_spans(query, NOW)[0]
    assert (f"{span.start:%Y-%m-%d}", f"{span.end:%Y-%m-%d}") == (first, last)


@each_case(
    "query",
    ["when did she move?", "how many may flowers", "what may I march to", "is v2.3.1 out?", "at 5"],
)
def test_what_names_no_time(query: str) -> None:
    """A question about a time, a modal verb and a version name no span."""
    assert find_time_spans(query, NOW) == ()


@given(st.text(max_size=80), st.datetimes(timezones=st.just(UTC), min_value=datetime(1990, 1, 1)))
def test_any_text_is_taken(query: str, now: datetime) -> None:
    """No query raises, and every span ends after it begins."""
    for span in find_time_spans(query, now):
        assert span.start <= span.end


def test_a_weekday_of_this_week_has_two_readings() -> None:
    """Asked on a Friday, "last Tuesday" is that of this week or of the one before."""
    spans = find_time_spans("What did I cook last Tuesday?", NOW)
    assert [f"{span.start:%m-%d}" for span in spans] == ["10-17", "10-10"]


def test_nearness_falls_off() -> None:
    """Inside a span it is 1; outside less with every day, and sooner ahead of it than after."""
    span = TimeSpan(NOW, NOW + timedelta(days=1))
    after = [span.nearness(span.end + timedelta(days=d)) for d in (0, 1, 7, 30)]
    assert after[0] == 1
    assert after == sorted(after, reverse=True)
    assert span.nearness(NOW - timedelta(days=3)) < span.nearness(span.end + timedelta(days=3))
    assert best_nearness([], NOW) == 0


def test_the_time_asked_about_decides_between_equals(home: Path) -> None:
    """Of two like lines the one said at the time that the query names comes first."""
    memory = MemTier.open(home, "p")
    line = "The standup moved to the small room."
    for month in (3, 6, 9):
        memory.record(
            [{"role": "user", "content": line}],
            session_id=f"s{month}",
            run_id=f"r{month}",
            observed_at=datetime(2023, month, 10, tzinfo=UTC),
        )
    hits = memory.recall("where was the standup in June?", at=NOW).hits
    assert hits[0].item.observed_at.month == 6
    assert hits[0].signals["time"] == 1


def test_a_long_text_is_read_at_its_ends() -> None:
    """The time that a question names stands where it begins or ends, not inside what it quotes."""
    quoted = "nothing of note on 3 May 2021, " * 500
    expected = find_time_spans("on 12 March 2023", NOW)
    assert find_time_spans(f"On 12 March 2023 I was where? {'and so ' * 900}", NOW) == expected
    assert find_time_spans(f"{'and so ' * 900} on 12 March 2023", NOW) == expected
    assert len(find_time_spans(quoted, NOW)) <= 2_000 // len("nothing of note on 3 May 2021, ") + 2
