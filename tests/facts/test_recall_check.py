"""Probes of a project's own past, and the consolidation that is held back when they get lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.credit import questions as making
from memtier_plugin.credit.verdict import judge
from memtier_plugin.facts import drafts
from memtier_plugin.facts.extraction import rules
from memtier_plugin.facts.extraction.rules import Extraction
from memtier_plugin.memory import MemTier
from tests.cases import each_case

Day = Callable[..., datetime]
Recorded = Callable[..., MemTier]

THINGS = """harbour ferry lantern orchard violin kettle saddle compass blanket tunnel garden rocket
pepper mirror anchor button candle dragon engine feather glacier hammer island jacket kitten ladder
magnet needle oyster pillow quarry ribbon shovel tractor umbrella valley walnut yogurt zipper basket
cactus donkey falcon guitar helmet insect jungle lemon almond badger cabin dagger easel fiddle
goblet hornet icicle jigsaw kayak locket marble nutmeg otter parrot quilt raft saucer teapot urchin
vase wagon yacht zebra barrel canoe drum engraving flute gravel hinge ivy jar knot"""
DOES = "borrowed painted repaired lost sold cleaned hid measured carried polished"
WHEN = "yesterday quietly twice again outside carefully together early slowly finally"


def sentence(chance: random.Random) -> str:
    """Return a sentence of words that many others have too, as people's sentences do."""
    first, second, third = chance.sample(THINGS.split(), 3)
    does, when = chance.choice(DOES.split()), chance.choice(WHEN.split())
    return f"We {does} the {first} near the {second} {when} and then saw a {third}."


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory, day: Day) -> Path:
    """Return the home of a project with 96 sentences of two agents, in twelve sessions."""
    home = tmp_path_factory.mktemp("past") / "home"
    chance = random.Random(7)
    with (
        MemTier.open(home, clock=lambda: day(40)) as memory,
        MemTier.open(home, agent_id="other", clock=lambda: day(40)) as other,
    ):
        for session in range(12):
            mine = memory if session % 3 else other
            for turn in range(8):
                mine.record(
                    [{"role": "user", "content": sentence(chance)}],
                    session_id=f"s{session}",
                    observed_at=day(session, minutes=turn),
                )
        memory.catch_up()
    return home


@pytest.fixture
def recorded(past: Path, tmp_path: Path, day: Day) -> Recorded:
    """Return a function that opens a copy of that project, with settings."""

    def opened(**settings: object) -> MemTier:
        home = shutil.copytree(past, tmp_path / "past")
        return MemTier.open(home, settings=settings or None, clock=lambda: day(40))

    return opened


@pytest.fixture
def memory(recorded: Recorded) -> Iterator[MemTier]:
    """Return a project with a past."""
    with recorded() as recorded_memory:
        recorded_memory.catch_up()
        yield recorded_memory


@pytest.fixture
def extracting(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[Sequence[Entry]], list[FactDraft]]], None]:
    """Return a function that puts a plugin in the place of the rules.

    What it finds is not held to proof, or it could not do the harm that is wanted here.
    """
    monkeypatch.setattr(rules, "extract_facts", lambda *_: Extraction((), {}))
    monkeypatch.setattr(drafts, "_verify_plugin_draft", drafts._check_own)

    def put_in(make: Callable[[Sequence[Entry]], list[FactDraft]]) -> None:
        monkeypatch.setattr(plugins, "collect_drafts", make)

    return put_in


def fact(text: str, of: Entry, number: int) -> FactDraft:
    """Return a fact that says it rests on an entry, and quotes it."""
    return FactDraft(
        subject=f"thing {of.id[-6:]} {number}",
        relation="noted",
        value=text,
        text=text,
        sources=(of.source,),
        quote=of.content,
        span=(0, len(of.content)),
        valid_from=of.observed_at,
    )


# So many probes that chance does not decide which of them get lost.
FLOODED = {"consolidation.session_cap": 1000, "consolidation.probes": 40}


# So much junk for each entry that no choice of probes, whose order is random, is spared.
HEARSAY = (
    "It seems that they",
    "Somebody told us he",
    "A note: she",
    "I hear that you",
    "They say it",
    "One thinks they",
    "My aunt said we",
    "Once more: he",
)


def flood(entries: Sequence[Entry]) -> list[FactDraft]:
    """Make near-copies of every entry, and say that they rest on another one."""
    return [
        fact(f"{word}: {entry.content[3:]}", entries[index - 7], number)
        for index, entry in enumerate(entries)
        for number, word in enumerate(HEARSAY)
    ]


def notes(entries: Sequence[Entry]) -> list[FactDraft]:
    """Make a fact of every second entry, that rests on it."""
    return [fact(entry.content.replace("We", "The family"), entry, 0) for entry in entries[::2]]


def test_probes_are_of_the_projects_own_past(memory: MemTier, day: Day) -> None:
    """They are found, spread over agents and sessions, never a whole text, and always the same."""
    probes = making.make_probes(memory.store, 24, day(40))
    assert len(probes) == 24
    assert probes == making.make_probes(memory.store, 24, day(40))
    assert sum(making.find_probes(memory.store, probes, day(40))) == 24
    entries = {entry.id: entry for entry in memory.entries()}
    assert {entries[probe.id].session_id for probe in probes} == {f"s{n}" for n in range(12)}
    by_agent = [probe.agent for probe in probes]
    assert by_agent.count("main") >= 8 and by_agent.count("other") >= 8
    for probe in probes:
        words = entries[probe.id].content.casefold().split()
        assert entries[probe.id].agent_id == probe.agent
        assert len(probe.query.split()) <= min(making.MAX_QUERY_WORDS, len(words) // 2)
    assert memory.events(kinds=["recall"]) == []


def test_probes_see_what_their_agent_sees(memory: MemTier, day: Day) -> None:
    """A probe is asked as the agent and sender of its entry: 120 lines of others change nothing."""
    before = making.make_probes(memory.store, 12, day(40))
    with MemTier.open(memory.home, agent_id="loud") as loud:
        for number in range(120):
            content = [{"role": "user", "content": f"{before[number % 12].query} {number}"}]
            loud.record(content, session_id="loud")
    memory.catch_up()
    assert sum(making.find_probes(memory.store, before, day(40))) == 12


def test_no_probes(home: Path, recorded: Recorded, day: Day) -> None:
    """An empty project has none, and so has one that wants none."""
    with MemTier.open(home) as memory:
        assert making.make_probes(memory.store, 24, day(0)) == []
        assert making.find_probes(memory.store, [], day(0)) == []
    with recorded() as memory:
        assert making.make_probes(memory.store, 0, day(40)) == []


@each_case(
    ("after", "probes", "fallen"),
    [(22, 24, False), (20, 24, True), (24, 24, False), (95, 100, False), (90, 100, True)],
)
def test_chance_is_tolerated(after: int, probes: int, fallen: bool) -> None:
    """Recall fell when the paired bootstrap says so, and never by two probes."""
    values = [1.0] * after + [0.0] * (probes - after)
    assert judge([1.0] * probes, values, 0.02).refused is fallen


def test_a_flood_is_held_back(recorded: Recorded, extracting: Callable[..., None]) -> None:
    """A consolidation that buries the past under junk is undone, reported, and can be accepted."""
    extracting(flood)
    with recorded(**FLOODED) as memory:
        before = [hit.id for hit in memory.recall("Who painted the violin?").hits]
        report = memory.consolidate()
        assert report.facts == 0 and report.proposed > 200  # none of them is in force
        assert "recall on the project's own history fell" in report.held_back
        assert memory.facts() == []
        assert [hit.id for hit in memory.recall("Who painted the violin?").hits] == before
        [run] = memory.knowledge.runs()
        assert run.reverted and run.why == report.held_back
        [revert] = memory.events(kinds=["revert"])
        assert revert.data["probes"] - revert.data["after"] > 2
        waiting = memory.knowledge.proposals()
        assert len(waiting) == report.proposed and {item.state for item in waiting} == {"held back"}
        memory.knowledge.accept([waiting[0].fact.id])
        assert [fact.id for fact in memory.facts()] == [waiting[0].fact.id]
        again = memory.consolidate()  # it is not tried again and again
        assert (again.read, again.held_back) == (0, "")


def test_ordinary_facts_are_not_held_back(
    recorded: Recorded, extracting: Callable[..., None]
) -> None:
    """A fact for every second entry, that rests on it, costs no recall worth speaking of."""
    extracting(notes)
    with recorded(**{"consolidation.session_cap": 1000}) as memory:
        report = memory.consolidate()
        assert report.facts > 40 and report.held_back == ""
        assert len(memory.facts()) == report.facts


def test_a_profile_that_scopes_loses_no_facts(
    recorded: Recorded, extracting: Callable[..., None]
) -> None:
    """Where facts choose the sessions to search, the first true facts are not undone.

    Without facts the whole store is ranked, and then their session alone: that loses the entries
    of the others, whatever the facts say.
    """
    words = THINGS.split()

    def inventory(entries: Sequence[Entry]) -> list[FactDraft]:
        owned = [entry for entry in entries if entry.session_id == "s1"][:4]
        texts = [f"The family owns: {', '.join(words[n::4])}." for n in range(4)]
        return [fact(text, entry, 0) for text, entry in zip(texts, owned, strict=False)]

    extracting(inventory)
    with recorded(**{"retrieval.profile": "paper"}) as memory:
        report = memory.consolidate()
        assert (report.facts, report.held_back) == (4, "")
        assert len(memory.facts()) == 4


def test_probes_are_the_same_for_the_same_past(tmp_path: Path, day: Day) -> None:
    """Two recordings of the same lines, whose ids differ, are asked the same."""
    asked = []
    for name in ("one", "other"):
        chance = random.Random(7)
        with MemTier.open(tmp_path / name) as memory:
            for turn in range(40):
                content = [{"role": "user", "content": sentence(chance)}]
                memory.record(content, session_id=f"s{turn // 20}", observed_at=day(turn))
            memory.catch_up()
            asked.append([p.query for p in making.make_probes(memory.store, 12, day(1))])
    assert asked[0] == asked[1] and len(asked[0]) == 12


def test_the_time_of_day_changes_no_verdict(past: Path, tmp_path: Path, day: Day) -> None:
    """A check searches as of the newest line read, before and after, whatever the clock says."""
    moments = []
    for late in (41, 4_000):
        home = shutil.copytree(past, tmp_path / str(late))
        with MemTier.open(home, clock=partial(day, late)) as memory:
            entries = memory.entries()
            guard = making.RecallGuard(memory.store, max(e.observed_at for e in entries))
            moments.append(guard.measure())
    assert moments[0] == moments[1] and sum(moments[0]) == 24


def test_what_the_rules_find_is_not_measured(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement of the rules rests on the words that it quotes: no probe is asked for it."""
    monkeypatch.setattr(making, "make_probes", lambda *_: pytest.fail("measured"))
    with recorded() as memory:
        memory.remember("The violin is by Amati.")
        memory.record([{"role": "user", "content": "I live in Porto now."}], session_id="new")
        report = memory.consolidate()
        assert report.facts and report.held_back == ""


def test_without_probes_nothing_is_held_back(
    recorded: Recorded, extracting: Callable[..., None]
) -> None:
    """Who sets `consolidation.probes` to 0 gets what the extractors give."""
    extracting(lambda entries: flood(entries)[::4])
    settings = {"consolidation.session_cap": 1000, "consolidation.probes": 0}
    with recorded(**settings) as memory:
        report = memory.consolidate()
        assert report.facts > 100 and report.held_back == ""


def test_probes_are_searched_for_in_every_tier(recorded: Recorded, day: Day) -> None:
    """Where the tiers are searched one by one, a probe is lost only if the whole store lost it."""
    tiers = {"retrieval.search": "tiers", "priority.enabled": True, "priority.sessions": 1}
    with recorded(**tiers) as memory:
        memory.catch_up()
        probes = making.make_probes(memory.store, 60, day(40), untried=True)
        found_by_tiers = making.find_probes(memory.store, probes, day(40))
        with MemTier.open(memory.home, clock=lambda: day(40)) as flat:
            assert making.find_probes(flat.store, probes, day(40)) == found_by_tiers
