"""Timelines: the line of values that a subject and relation had."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from memtier_plugin.core.records import Fact, Source
from memtier_plugin.facts.summaries.selection import (
    MAX_VALUES,
    PastValue,
    Timeline,
    build_timelines,
    is_about,
)
from memtier_plugin.retrieval.query import asks_history
from tests.builders import make_fact
from tests.cases import each_case

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def fact(number: int, value: str, since: datetime, **more: str) -> Fact:
    """Return a fact of where Ann lives, unless told otherwise."""
    home = {"relation": "lives_in", "value": value, "valid_from": since}
    sources = (Source(agent="a", session="s", entry=f"e{number}"),)
    given = {"id": f"f{number}", "sources": sources} | home | more
    return make_fact(f"Ann lives in {value}.", NOW, **given)


def year(number: int) -> datetime:
    """Return the first of June of a year."""
    return datetime(number, 6, 1, tzinfo=UTC)


def line_of(pasts: Sequence[PastValue]) -> Timeline:
    """Return the only line of these facts."""
    [timeline] = build_timelines(pasts, {past.fact.id: past.fact.sources for past in pasts})
    return timeline


MOVED = [
    PastValue(fact(1, "Paris", year(2020)), year(2024)),
    PastValue(fact(2, "Lisbon", year(2024)), year(2025)),
    PastValue(fact(3, "Berlin", year(2025)), None),
]


def test_one_line() -> None:
    """The values stand in the order in which they held, with until when and since when."""
    line = line_of(MOVED[::-1])
    assert line.text == (
        "Ann, lives in over time: Paris (until 2024-06-01), then Lisbon "
        "(2024-06-01 to 2025-06-01), then Berlin (since 2025-06-01)."
    )
    assert line.value == "lives_in: Paris > Lisbon > Berlin"
    assert is_about("lives_in: paris > lisbon > berlin", "lives_in")
    assert not is_about("lives_in: paris", "lives")


def test_sources_of_all() -> None:
    """A timeline rests on the facts, so that it goes with one of them, and on their entries."""
    assert [source.entry for source in line_of(MOVED).sources] == [
        "e1",
        "f1",
        "e2",
        "f2",
        "e3",
        "f3",
    ]


def test_one_value_is_none() -> None:
    """What never changed has no timeline, nor has a value that was only said again."""
    assert not build_timelines(MOVED[2:], {})
    same = [
        PastValue(fact(1, "Paris", year(2020)), year(2024)),
        PastValue(fact(2, "paris", NOW), None),
    ]
    assert not build_timelines(same, {})


def test_apart_by_subject_and_relation() -> None:
    """Ann's home, Ann's work and Bob's home are lines of their own; case and spaces do not part."""
    lines = build_timelines(
        [
            *MOVED,
            PastValue(fact(4, "Acme", year(2020), relation="works_at"), year(2021)),
            PastValue(fact(5, "Initech", year(2021), relation="works_at", subject="ann "), None),
            PastValue(fact(6, "Rome", year(2020), subject="Bob"), None),
        ],
        {},
    )
    assert [line.about for line in lines] == [("ann", "lives_in"), ("ann", "works_at")]


def test_newest_of_those_that_hold() -> None:
    """Of several values that hold, by different agents, a line ends in the newest."""
    line = line_of([*MOVED, PastValue(fact(4, "Rome", year(2023)), None)])
    assert line.value == "lives_in: Paris > Lisbon > Berlin"


def test_bounded() -> None:
    """A line shows the newest values, each short, however many and long there were."""
    many = [
        PastValue(fact(n, f"{n} " + "x" * 500, year(2000 + n)), year(2001 + n)) for n in range(20)
    ]
    line = line_of(many)
    assert line.text.count("then") == MAX_VALUES - 1
    assert len(line.text) < MAX_VALUES * 130


@each_case(
    "query",
    [
        "Where did Ann use to live? She used to be in France.",
        "Where did Ann live before?",
        "Where did Ann live previously",
        "How has Ann's job changed over time?",
        "history of the database port",
        "since when does Ann live in Berlin?",
        "Wo hat Ann früher gewohnt?",
        "¿Dónde vivía Ann antes?",
        "Où habitait Ann avant ?",
        "安以前住在哪里？",
    ],
)
def test_asks_history(query: str) -> None:
    """A query for what was, or for what changed, asks for a timeline, in several languages."""
    assert asks_history(query)


@pytest.mark.parametrize("query", ["Where does Ann live?", "Wo wohnt Ann?", "What port is it?"])
def test_asks_for_now(query: str) -> None:
    """A query for what holds now does not."""
    assert not asks_history(query)
