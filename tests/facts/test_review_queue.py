"""The review queue: it holds exactly what waits, and what is decided leaves it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.records import Source
from memtier_plugin.facts.forgetting import Audience
from memtier_plugin.facts.review import ReviewItem
from tests.facts.test_service import LISBON, PORTO, TEA, WAITS, Said, World


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    """Return an empty project."""
    project = World(home)
    yield project
    project.close()


def queue(world: World) -> list[ReviewItem]:
    """Return the queue of the person at the machine."""
    return world.memory().knowledge.person.review_queue()


def test_it_is_empty_where_nothing_waits(world: World) -> None:
    """Facts that hold, and a project without any, leave nothing to decide."""
    assert queue(world) == []
    world.consolidate("r1", LISBON, TEA)
    assert queue(world) == []


def test_a_waiting_fact_says_what_gives_way(world: World) -> None:
    """A waiting value of a single-valued relation names the older current one, not a newer one."""
    [old] = world.consolidate("r1", LISBON)
    newer, older = world.consolidate("r2", WAITS, WAITS._replace(value="Braga", day=-3))
    items = {item.id: item for item in queue(world)}
    assert [view.fact.id for view in items[newer.id].against] == [old.id]
    assert items[older.id].against == ()
    world.memory().knowledge.accept([newer.id])
    assert world.standing() == [("Ines", "lives_in", "Porto", "2026-01-08")]


def test_alike_ones_stand_together(world: World) -> None:
    """Things that wait for one reason follow each other, wherever they were said."""
    tea = TEA._replace(status="proposed")
    world.consolidate("r1", WAITS, tea)
    world.consolidate("r2", WAITS._replace(subject="Tomas"), tea._replace(value="mate"))
    groups = [item.group for item in queue(world)]
    assert len(groups) == 4 and [group.partition(":")[0] for group in groups] == [
        "lives_in",
        "lives_in",
        "likes",
        "likes",
    ]


def contradict(world: World) -> tuple[str, str]:
    """Let two agents say of Ines where she lives; both stand."""
    [first] = world.consolidate("r1", LISBON._replace(agent="a", origin="assistant"))
    [second] = world.consolidate("r2", PORTO._replace(agent="b", origin="assistant"))
    return first.id, second.id


@pytest.mark.parametrize("winner", [0, 1])
def test_a_contradiction_ends_with_a_decision(world: World, winner: int) -> None:
    """Facts that contradict each other wait as one; the accepted one holds alone."""
    ids = contradict(world)
    [item] = queue(world)
    assert (item.kind, item.id, [v.fact.id for v in item.against]) == ("conflict", ids[1], [ids[0]])
    [done] = world.memory().knowledge.person.accept([ids[winner]])
    assert (done.now, done.superseded) == ("active", (ids[1 - winner],))
    assert [fact.id for fact in world.memory().facts()] == [ids[winner]]
    assert queue(world) == []
    world.assert_equal_to_rebuild()


def test_one_side_of_a_contradiction_may_be_rejected(world: World) -> None:
    """A rejected side holds no longer; the other does."""
    first, second = contradict(world)
    world.memory().knowledge.person.reject([second], "a mistake")
    assert [fact.id for fact in world.memory().facts()] == [first]
    assert queue(world) == []
    with pytest.raises(NotFound, match="does not wait"):
        world.memory().knowledge.person.reject([first])
    world.assert_equal_to_rebuild()


def test_a_new_wording_takes_the_place(world: World) -> None:
    """An edited fact rests on the reviewer's words, with the subject, time, audience of the old."""
    [waits] = world.consolidate("r1", WAITS._replace(agent="a", private=True))
    done = world.memory().edit_fact(waits.id, "Ines lives_in Olhao")
    world.memory().catch_up()
    view = world.memory().knowledge.person.fact(done.id)
    fact = view.fact
    assert (fact.subject, fact.relation, fact.value, fact.origin) == (
        "Ines",
        "lives_in",
        "Olhao",
        "user",
    )
    assert (fact.valid_from, fact.private_to) == (waits.valid_from, waits.private_to)
    [line] = view.lines
    assert line.entry is not None and line.entry.agent_id == "a"
    assert line.entry.content == "Ines lives_in Olhao"
    assert world.memory().knowledge.person.fact(waits.id).superseded_by == done.id
    assert queue(world) == []
    assert not any(hit.id == done.id for hit in world.memory("b").recall("Where is Ines?").hits)
    world.assert_equal_to_rebuild()


def test_only_what_is_their_own(world: World) -> None:
    """The queue of an agent and sender holds nothing that rests on other lines."""
    [mine] = world.consolidate("r1", WAITS._replace(agent="a"))
    world.consolidate("r2", TEA._replace(agent="b", status="proposed"))
    knowledge = world.memory("a").knowledge
    assert [item.id for item in knowledge.review_queue(Audience("a"))] == [mine.id]
    assert knowledge.review_queue(Audience("a", "Ana")) == []
    assert len(knowledge.review_queue()) == 2  # both are to be shared: the agent may see them


def test_a_forget_waits_for_a_person(world: World) -> None:
    """A proposed forget hides nothing until it is accepted; asked twice it waits once."""
    [tea] = world.consolidate("r1", TEA)
    for _ in range(2):
        assert world.memory("b").knowledge.propose_forget([tea.id]) == (tea.id,)
    [item] = queue(world)
    assert (item.kind, item.id != tea.id) == ("forget", True)
    assert "model of b" in item.why and [fact.id for fact in world.memory().facts()] == [tea.id]
    world.assert_equal_to_rebuild()
    [done] = world.memory().knowledge.person.accept([item.id])
    assert done.now == "forgotten" and world.memory().facts() == [] and queue(world) == []
    world.assert_equal_to_rebuild()


@pytest.mark.parametrize("seed", range(6))
def test_it_holds_exactly_what_waits(world: World, seed: int) -> None:
    """After any steps the queue is what waits by the ledgers, and a rebuild has the same."""
    rng = random.Random(seed)
    names = ["Ines", "Tomas"]
    waiting, asked, kept = set[str](), set[str](), set[str]()
    for step in range(12):
        world.now += timedelta(minutes=5)
        memory = world.memory()
        person = memory.knowledge.person
        action = rng.choice(["say", "say", "say", "ask", "accept", "reject", "edit", "forget"])
        if action == "ask" and (held := [f.id for f in memory.facts() if f.id not in asked | kept]):
            asked.add(held[0])
            memory.knowledge.propose_forget([held[0]])
        if action == "reject" and asked:
            [item] = [item for item in queue(world) if item.fact.fact.id == max(asked)]
            person.reject([item.id])
            kept.add(max(asked))
            asked.discard(max(asked))
        chosen = rng.choice(sorted(waiting)) if waiting else None
        if action == "say" or chosen is None:
            status = rng.choice(["active", "proposed"])
            statement = Said(rng.choice(names), "owns", f"boat {step}", day=step, status=status)
            [fact] = world.consolidate(f"r{step}", statement)
            if status == "proposed":
                waiting.add(fact.id)
            continue
        if action == "accept":
            person.accept([chosen])
        elif action == "reject":
            person.reject([chosen])
        elif action == "edit":
            memory.edit_fact(chosen, f"{rng.choice(names)} owns raft {step}")
        else:
            memory.forget(ids=[chosen])
        waiting.discard(chosen)
    in_queue = {(item.kind, item.fact.fact.id) for item in queue(world)}
    assert in_queue == {("fact", i) for i in waiting} | {("forget", i) for i in asked}
    assert {view.fact.id for view in world.memory().knowledge.proposals()} == waiting
    world.assert_equal_to_rebuild()
    before = [item.to_json() for item in queue(world)]
    world.memory().reindex()
    assert [item.to_json() for item in queue(world)] == before


def test_sources_without_a_line_are_nobodys(world: World) -> None:
    """A fact whose line is not there belongs to no agent and sender, only to the person."""
    [waits] = world.consolidate("r1", WAITS)
    memory = world.memory()
    memory.forget(ids=[waits.sources[0].entry])
    assert memory.knowledge.review_queue(Audience("main")) == []
    assert isinstance(waits.sources[0], Source)
