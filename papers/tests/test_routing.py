"""The router by features: facts where they are enough, the log on every doubt and error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.tiermem.routing import (
    RoutingInput,
    decide_route,
    question_kinds,
    route_hits,
    select_facts,
    select_from_log,
)
from memtier_papers.tiermem.settings import RouterDoubts
from memtier_plugin import MemTier
from memtier_plugin.core.records import Fact, FactDraft, Source
from memtier_plugin.core.results import Hit
from memtier_plugin.text.tokenizer import Tokenizer
from tests.builders import make_entry, make_fact, make_hit
from tests.cases import each_case

Day = Callable[..., datetime]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
TOKENS = Tokenizer("english")


def routing_input(query: str, hits: Sequence[Hit], **more: object) -> RoutingInput:
    terms = dict.fromkeys(TOKENS.words(query), 1.0)
    return RoutingInput(query, tuple(hits), terms, TOKENS.words, {}, **more)  # type: ignore[arg-type]


def entry(name: str, text: str, score: float) -> Hit:
    return make_hit(make_entry(text, NOW, id=name, tokens=9), score)


def fact(name: str, text: str, score: float, *entries: str) -> Hit:
    sources = tuple(Source(agent="a", session="s", entry=e) for e in entries)
    return make_hit(make_fact(text, NOW, id=name, sources=sources), score)


KNOWN = [
    fact("f1", "Ann's dog Rex was born in Oslo in May 2021", 9.0, "e1"),
    entry("e1", "my dog Rex was born in Oslo, that was back in May, I think 2021, lovely", 8.5),
]


def test_a_fact_that_says_it_all_is_enough() -> None:
    """A question that the best fact answers whole, with nothing else found, is not escalated."""
    route, lines = route_hits(routing_input("What dog of Ann was born in Oslo?", KNOWN))
    assert route.action == "S"
    assert route.doubt <= RouterDoubts().limit
    assert [hit.id for hit in lines.hits] == ["f1"]
    assert lines.left_out["e1"] == "entry"


@each_case(
    ("query", "why"),
    [
        ("How many dogs of Ann were born in Oslo?", "a number is asked for"),
        ("List all dogs of Ann born in Oslo", "a list is asked for"),
        ("Which dogs of Ann were born in Oslo?", "a list is asked for"),
        ("What exactly did Ann say of the dog born in Oslo?", "the exact words are asked for"),
        ("Why was Ann's dog born in Oslo?", "a reason is asked for"),
        ("Would Ann's dog be born in Oslo?", "a guess is asked for"),
        ("In what order was Ann's dog born in Oslo?", "an order is asked for"),
    ],
)
def test_kinds_that_facts_may_not_answer_in_full(query: str, why: str) -> None:
    """Completeness, exactness and reasons go to the log, whatever the facts say."""
    route = decide_route(routing_input(query, KNOWN))
    assert route.action == "R"
    assert why in route.why


def test_a_time_needs_a_dated_fact() -> None:
    """A question for a time is a doubt where the best fact has no time, and none where it has."""
    undated = [replace(fact("f1", "Ann's dog was born in Oslo", 9.0, "e1")), KNOWN[1]]
    question = "When was Ann's dog born in Oslo?"
    assert question_kinds(routing_input(question, undated), undated[0])
    assert not question_kinds(routing_input(question, KNOWN), KNOWN[0])


def test_the_log_is_asked_where_facts_fall_short() -> None:
    """No fact, an unsaid question, or an entry that no fact rests on: each is a doubt."""
    assert decide_route(routing_input("dog", [KNOWN[1]])).why == ("no fact was found",)
    assert decide_route(routing_input("dog", [])).action == "R"
    elsewhere = [KNOWN[0], entry("e9", "the dog of the neighbour moved to Rome", 8.8)]
    route = decide_route(routing_input("What dog of Ann was born in Oslo?", elsewhere))
    assert route.action == "R"
    assert "no fact rests on the best entry" in route.why


def test_facts_that_cannot_be_trusted_are_doubted() -> None:
    """Foreign origin, an ended fact, blame, and contradiction go to the log."""
    query = "What dog of Ann was born in Oslo?"
    best = KNOWN[0]
    assert isinstance(best.item, Fact)
    for doubted in (
        replace(best, item=replace(best.item, origin="tool")),
        replace(best, item=replace(best.item, valid_to=NOW)),
        replace(best, weight=-0.5),
    ):
        assert decide_route(routing_input(query, [doubted, KNOWN[1]])).action == "R"


def test_other_languages_are_doubted() -> None:
    """Where the kind of a question cannot be told, it goes to the log."""
    assert (
        decide_route(
            routing_input("What dog of Ann was born in Oslo?", KNOWN, english=False)
        ).action
        == "R"
    )


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, ZeroDivisionError])
def test_an_error_escalates(error: type[Exception]) -> None:
    """A router that fails serves everything that was found, and says so."""

    def broken(text: str) -> Sequence[str]:
        raise error("broken")

    broken_input = replace(routing_input("dog born in Oslo", KNOWN), tokenize=broken)
    route, lines = route_hits(broken_input)
    assert route.action == "R"
    assert error.__name__ in route.why[0]
    assert lines.hits == tuple(KNOWN)


def test_a_shorter_fact_stands_for_its_entry() -> None:
    """Where a fact says the same in fewer tokens its entry has no line; no source comes twice."""
    long = entry("e1", "my dog Rex, you know, " * 9, 9.0)
    short = fact("f1", "Ann's dog is Rex", 8.0, "e1")
    other = fact("f2", "Ann has a dog", 7.0, "e1")
    lines = select_from_log(routing_input("dog Rex", [long, short, other]))
    assert [hit.id for hit in lines.hits] == ["f1"]
    assert lines.left_out == {"e1": "said", "f2": "said"}
    weak = replace(short, score=1.0)
    assert [hit.id for hit in select_from_log(routing_input("dog Rex", [long, weak])).hits] == [
        "e1"
    ]


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 20), st.integers(0, 9)), max_size=60))
def test_lines_are_hits_and_nothing_is_lost(given_hits: list[tuple[bool, float, int]]) -> None:
    """Every hit is a line or has a reason, none is both, and each line brings a new source."""
    ranked = sorted(given_hits, key=lambda pair: -pair[1])
    hits = [
        fact(f"f{n}", f"says {n}", score, f"e{about}") if is_fact else entry(f"n{n}", "x", score)
        for n, (is_fact, score, about) in enumerate(ranked)
    ]
    inputs = routing_input("dog", hits)
    for lines in (select_facts(inputs), select_from_log(inputs)):
        shown = {hit.id for hit in lines.hits}
        assert shown.isdisjoint(lines.left_out)
        assert shown | set(lines.left_out) == {hit.id for hit in hits}
        sources = [{s.entry for s in hit.sources} for hit in lines.hits]
        assert all(source_ids - set().union(*sources[:n]) for n, source_ids in enumerate(sources))
    route, lines = route_hits(inputs)
    assert route.action in ("S", "R")
    if hits:
        assert lines.hits


# -- in a recall -------------------------------------------------------------------------------


def remembered(home: Path, day: Day) -> MemTier:
    memory = MemTier.open(home)
    [entry] = memory.record(
        [{"role": "user", "content": "My dog Rex was born in Oslo, in May 2021, it was raining"}],
        session_id="s", observed_at=day(0),
    )  # fmt: skip
    memory.record([{"role": "user", "content": "The parrot eats apples"}], session_id="s",
                  observed_at=day(1))  # fmt: skip
    source = Source(agent="main", session="s", entry=entry.id)
    memory.add_facts(
        [FactDraft(subject="user", relation="dog", value="Rex",
                   text="The user's dog Rex was born in Oslo in May 2021", sources=(source,))]
    )  # fmt: skip
    return memory


def test_depths_of_a_recall(home: Path, day: Day) -> None:
    """Facts gives facts alone, raw entries alone, mixed both; the recall says which it was."""
    with remembered(home, day) as memory:
        query = "dog Rex born Oslo"
        tiers = {
            depth: {hit.tier for hit in memory.recall(query, depth=depth).hits}
            for depth in ("facts", "raw", "mixed")
        }
        assert tiers == {
            "facts": {"semantic"},
            "raw": {"episodic"},
            "mixed": {"semantic", "episodic"},
        }
        recall = memory.recall(query, depth="auto")
        assert recall.depth == "auto"
        assert recall.route is not None
        assert [step.name for step in recall.steps][:2] == ["search", "route"]
        assert recall.steps[-1].name == "pack"
        assert recall.steps[-1].tokens == recall.tokens


def test_the_setting_is_the_default(home: Path, day: Day) -> None:
    """retrieval.depth holds where a call says nothing; mixed has no route."""
    remembered(home, day).close()
    with MemTier.open(home, settings={"retrieval.depth": "facts"}) as memory:
        assert {hit.tier for hit in memory.recall("dog Rex").hits} == {"semantic"}
        assert memory.recall("dog Rex", depth="raw").depth == "raw"
    with MemTier.open(home) as memory:
        assert memory.recall("dog Rex").route is None


def test_a_route_is_journalled_and_explained(home: Path, day: Day) -> None:
    """The journal keeps depth, route and steps; explain says why what was left out was."""
    with remembered(home, day) as memory:
        recall = memory.recall("What dog was born in Oslo?", depth="auto")
        assert recall.route is not None
        explanation = memory.explain(recall.id)
        assert explanation["depth"] == "auto"
        assert explanation["route"] == recall.route.to_json()
        assert [step["name"] for step in explanation["steps"]] == [
            step.name for step in recall.steps
        ]
        shown = {hit.id for hit in recall.injected}
        for hit in recall.hits:
            if hit.id not in shown:
                why = memory.explain(recall.id, hit.id)["why"]
                assert why["reason"] in ("entry", "said", "far", "k", "tokens", "tries")
        facts = memory.recall("What dog was born in Oslo?", depth="facts")
        out = next(e.id for e in memory.entries() if "dog" in e.content)
        assert memory.explain(facts.id, out)["why"]["reason"] == "depth"
