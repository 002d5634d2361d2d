"""What is done with a project's facts: looked at, searched, reviewed, undone, compared in time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier_plugin.core.errors import NotFound, Paused
from memtier_plugin.core.events import ConsolidateEvent, PromoteEvent
from memtier_plugin.core.records import Entry, Fact, FactDraft
from memtier_plugin.facts import service
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.memory import MemTier
from memtier_plugin.server.methods import Methods
from tests.builders import costly_examples
from tests.proofs.checks import content

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


class Said(NamedTuple):
    """A statement of a test: what it says, when it was said, by whom, and whether it waits."""

    subject: str
    relation: str
    value: str
    day: int = 0
    agent: str = "main"
    status: str = "active"
    private: bool = False
    origin: str = "user"


class World:
    """A project whose consolidations are told what to find, and its clock."""

    def __init__(self, home: Path, project: str = "default", **overrides: Any) -> None:
        self.now = START + timedelta(days=30)
        self.home, self.project, self.overrides = home, project, overrides
        self._open: dict[str, MemTier] = {}

    def memory(self, agent: str = "main") -> MemTier:
        """Return an agent's memory."""
        if agent not in self._open:
            self._open[agent] = MemTier.open(
                self.home, self.project, agent, self.overrides or None, clock=lambda: self.now
            )
        return self._open[agent]

    def close(self) -> None:
        """Close what is open."""
        for memory in self._open.values():
            memory.close()

    def consolidate(self, run: str | None, *statements: Said) -> list[Fact]:
        """Record what was said and write its facts as a consolidation does; return the new ones."""
        self.now += timedelta(minutes=1)
        drafts, entries = [], []
        for statement in statements:
            text = f"{statement.subject} {statement.relation} {statement.value}"
            [entry] = self.memory(statement.agent).record(
                [{"role": "user", "content": f"Well, {text}, on {statement.day}."}],
                session_id="s",
                observed_at=START + timedelta(days=statement.day),
            )
            entries.append(entry)
            drafts.append(draft(statement, text, entry))
        actor = self.memory().actor
        writer = FactWriter(actor)
        with writer.exclusive():
            outcome = writer.resolve(drafts, run=run)
            by_entry: dict[str, list[str]] = {}
            active = [(fact, fact.id) for fact in outcome.added if fact.status == "active"]
            for fact, identity in [*active, *outcome.restated]:
                for source in fact.sources:
                    by_entry.setdefault(source.entry, []).append(identity)
            promotions = [
                actor.event(
                    PromoteEvent(
                        items=(entry.id,),
                        facts=tuple(by_entry[entry.id]),
                        agent=entry.agent_id,
                        session=entry.session_id,
                    ),
                    run=run,
                )
                for entry in entries
                if entry.id in by_entry
            ]
            event = actor.event(ConsolidateEvent(cursors={}, read=len(entries), facts=0), run=run)
            supersessions = writer.supersede_events(outcome, run)
            writer.commit(outcome.added, [*supersessions, *promotions, event])
        added = outcome.added
        values = [statement.value for statement in statements]
        return sorted(added, key=lambda fact: values.index(fact.value))

    def standing(self) -> list[tuple[str, ...]]:
        """Return what holds, as subject, relation, value and since when."""
        return sorted(
            (f.subject, f.relation, f.value, f"{f.valid_from:%F}") for f in self.memory().facts()
        )

    def history(self) -> set[tuple[str, ...]]:
        """Return what is superseded, and by which value."""
        by_id = {
            item.fact.id: item for item in self.memory().knowledge.facts(include_superseded=True)
        }
        return {
            (item.fact.subject, item.fact.relation, item.fact.value, by_id[by].fact.value)
            for item in by_id.values()
            if item.state == "superseded" and (by := item.superseded_by)
        }

    def assert_equal_to_rebuild(self) -> None:
        """Hold the index against one built anew from the ledgers."""
        memory = self.memory()
        memory.catch_up()
        followed = content(memory)
        memory.reindex()
        assert content(memory) == followed


def draft(statement: Said, text: str, entry: Entry) -> FactDraft:
    """Return a statement as an extractor proposes it."""
    at = entry.content.find(text)
    return FactDraft(
        subject=statement.subject,
        relation=statement.relation,
        value=statement.value,
        text=text,
        sources=(entry.source,),
        valid_from=entry.observed_at,
        quote=text,
        span=(at, at + len(text)),
        status=statement.status,  # type: ignore[arg-type]
        reason="it was said by a tool" if statement.status == "proposed" else "",
        origin=statement.origin,  # type: ignore[arg-type]
        private_to=(statement.agent, "") if statement.private else None,
    )


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    """Return an empty project."""
    created = World(home)
    yield created
    created.close()


LISBON = Said("Ines", "lives_in", "Lisbon", 1)
PORTO = Said("Ines", "lives_in", "Porto", 3)
FARO = Said("Ines", "lives_in", "Faro", 5)
TEA = Said("Ines", "likes", "green tea", 2)


# -- undoing one consolidation ---------------------------------------------------------------


def test_reverting_the_last_run_leaves_what_was_before(world: World) -> None:
    """What the run made goes, what it superseded or promoted is as before, and nothing is lost."""
    world.consolidate("r1", LISBON)
    before = world.standing()
    entries = {e.id: e.promoted for e in world.memory().entries()}
    [fact] = world.consolidate("r2", PORTO)
    assert world.standing() != before
    done = world.memory().knowledge.revert("r2")
    assert done.facts == (fact.id,)
    assert world.standing() == before
    assert world.history() == set()
    assert {e.id: e.promoted for e in world.memory().entries() if e.id in entries} == entries
    assert world.memory().knowledge.fact(fact.id).state == "reverted"
    world.assert_equal_to_rebuild()


def test_reverting_again_changes_nothing(world: World) -> None:
    """A run that is undone stays so: nothing is written the second time."""
    world.consolidate("r1", LISBON, TEA)
    world.consolidate("r2", PORTO)
    world.consolidate("r3", FARO, PORTO._replace(day=4))
    world.memory().knowledge.revert("r2")
    stands, count = world.standing(), len(journal(world))
    again = world.memory().knowledge.revert("r2")
    assert (again.facts, again.restored, again.superseded, again.lives_on) == ((), (), (), ())
    assert (world.standing(), len(journal(world))) == (stands, count)


def journal(world: World) -> list[str]:
    """Return the lines of the project's shared journal."""
    folder = world.memory().folder / "journal" / "_project"
    return [
        line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().split("\n")
    ]


def test_an_older_value_gives_way_to_the_later_runs(world: World) -> None:
    """Where a later run put a value in the place of the run's, the one before gives way to it."""
    world.consolidate("r1", LISBON)
    world.consolidate("r2", PORTO)
    world.consolidate("r3", FARO)
    world.memory().knowledge.revert("r2")
    assert world.standing() == [("Ines", "lives_in", "Faro", "2026-01-10")]
    assert world.history() == {("Ines", "lives_in", "Lisbon", "Faro")}
    world.memory().knowledge.revert("r3")  # and with that one gone too, it holds again
    assert world.standing() == [("Ines", "lives_in", "Lisbon", "2026-01-06")]
    world.assert_equal_to_rebuild()


def test_an_old_value_learned_late_is_found_again(world: World) -> None:
    """A value that a later run found older than the run's holds once that is gone."""
    world.consolidate("r1", PORTO)
    world.consolidate("r2", FARO)
    world.consolidate("r3", PORTO._replace(value="Braga", day=4))  # older than Faro
    world.memory().knowledge.revert("r2")
    assert world.standing() == [("Ines", "lives_in", "Braga", "2026-01-09")]
    assert world.history() == {("Ines", "lives_in", "Porto", "Braga")}
    world.assert_equal_to_rebuild()


def test_what_a_later_run_confirmed_lives_on(world: World) -> None:
    """A fact that a later run found again lives on as a new one, on the later sources alone."""
    [first] = world.consolidate("r1", TEA)
    assert world.consolidate("r2", TEA._replace(day=6)) == []
    done = world.memory().knowledge.revert("r1")
    [(old, new)] = done.lives_on
    assert old == first.id
    heir = world.memory().knowledge.fact(new)
    assert (heir.fact.text, heir.fact.run, heir.state) == (first.text, "r2", "active")
    [line] = heir.lines
    assert line.entry and line.entry.content.endswith("on 6.")
    assert line.span and line.entry.content[slice(*line.span)] == heir.fact.quote
    assert f"{heir.fact.valid_from:%F}" == "2026-01-11"
    world.memory().knowledge.revert("r2")
    assert world.standing() == []
    world.assert_equal_to_rebuild()


def test_a_confirmation_of_the_run_goes_with_it(world: World) -> None:
    """What the run found again loses the source that the run added, and nothing else."""
    [first] = world.consolidate("r1", TEA)
    world.consolidate("r2", TEA._replace(day=6))
    assert len(world.memory().knowledge.fact(first.id).lines) == 2
    world.memory().knowledge.revert("r2")
    assert len(world.memory().knowledge.fact(first.id).lines) == 1
    assert world.memory().knowledge.fact(first.id).state == "active"
    world.assert_equal_to_rebuild()


def test_a_fact_that_was_accepted_stays(world: World) -> None:
    """Who accepts a fact makes it theirs: undoing the run that proposed it leaves it."""
    [waits] = world.consolidate("r1", TEA._replace(status="proposed"))
    world.memory().knowledge.accept([waits.id])
    done = world.memory().knowledge.revert("r1")
    assert (done.facts, done.kept) == ((), (waits.id,))
    assert world.standing() == [("Ines", "likes", "green tea", "2026-01-07")]


def test_dry_run_writes_nothing(world: World) -> None:
    """A dry run tells what undoing takes, and leaves every ledger as it is."""
    world.consolidate("r1", LISBON)
    world.consolidate("r2", PORTO)
    stands, count = world.standing(), len(journal(world))
    done = world.memory().knowledge.revert("r2", dry_run=True)
    assert len(done.facts) == 1
    assert (world.standing(), len(journal(world))) == (stands, count)


def test_no_such_run(world: World) -> None:
    """A run that left nothing is refused by its name."""
    with pytest.raises(NotFound, match="no consolidation 'r9'"):
        world.memory().knowledge.revert("r9")


def test_a_clock_set_back_undoes_all_the_same(world: World) -> None:
    """What is undone is undone, also when the clock has meanwhile been set back."""
    world.consolidate("r1", LISBON)
    [fact] = world.consolidate("r2", PORTO)
    world.now = START - timedelta(days=3)
    world.memory().knowledge.revert("r2")
    assert world.standing() == [("Ines", "lives_in", "Lisbon", "2026-01-06")]
    world.memory().knowledge.accept([fact.id])
    assert world.standing() == [("Ines", "lives_in", "Porto", "2026-01-08")]


def test_undoing_that_was_cut_off_is_completed(world: World) -> None:
    """Whatever part of an undoing was written before a crash, undoing again completes it."""
    world.consolidate("r1", LISBON, TEA, Said("Tomas", "lives_in", "Braga", 1))
    world.consolidate("r2", PORTO, TEA._replace(value="black tea"))
    world.consolidate("r3", FARO, TEA._replace(value="black tea", day=6))
    world.consolidate("r4", PORTO._replace(value="Evora", day=4))
    [path] = (world.memory().folder / "journal" / "_project").glob("*.jsonl")
    before = path.read_bytes()
    world.memory().knowledge.revert("r2")
    content = path.read_bytes()
    stands, history = world.standing(), world.history()
    lines = content[len(before) :].splitlines(keepends=True)
    assert len(lines) >= 3 and b'"revert"' in lines[-1]
    for written in range(len(lines)):
        path.write_bytes(before + b"".join(lines[:written]))
        world.memory().catch_up()
        world.memory().knowledge.revert("r2")
        assert (world.standing(), world.history()) == (stands, history), written
        world.assert_equal_to_rebuild()


def test_a_journal_that_loses_the_undoing(world: World) -> None:
    """Who takes the undoing out of the journal by hand has the run back, sources and all."""
    [first] = world.consolidate("r1", TEA)
    world.consolidate("r2", TEA._replace(day=6), PORTO)
    [path] = (world.memory().folder / "journal" / "_project").glob("*.jsonl")
    before, expected = path.read_bytes(), content(world.memory())
    world.memory().knowledge.revert("r2")
    assert len(world.memory().knowledge.fact(first.id).lines) == 1
    path.write_bytes(before)
    world.memory().catch_up()
    assert len(world.memory().knowledge.fact(first.id).lines) == 2
    assert content(world.memory())["sources"] == expected["sources"]
    assert content(world.memory())["states"] == expected["states"]


SUBJECTS = st.sampled_from(["Ines", "Tomas"])
STATEMENTS = st.builds(
    Said,
    SUBJECTS,
    st.sampled_from(["lives_in", "likes"]),
    st.sampled_from(["oak", "elm", "ash", "fir"]),
    st.integers(0, 9),
    st.just("main"),
    st.just("active"),
    st.just(False),
    st.just("user"),
)
RUNS = st.lists(st.lists(STATEMENTS, min_size=1, max_size=3), min_size=2, max_size=4)


@settings(max_examples=costly_examples())
@given(RUNS, st.data())
def test_reverting_one_of_many_leaves_the_others(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[Said]], data: st.DataObject
) -> None:
    """Of runs about different things, undoing one leaves exactly what the others give."""
    reverted = data.draw(st.integers(0, len(runs) - 1))
    own = [
        [statement._replace(subject=f"{statement.subject} {number}") for statement in run]
        for number, run in enumerate(runs)
    ]
    undone, never = worlds(tmp_path_factory.mktemp("runs"), own, reverted)
    assert undone.standing() == never.standing()
    assert undone.history() == never.history()
    undone.assert_equal_to_rebuild()
    undone.close()
    never.close()


@settings(max_examples=costly_examples())
@given(RUNS, st.data())
def test_reverting_gives_the_values_that_the_others_give(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[Said]], data: st.DataObject
) -> None:
    """Of runs about the same things, too, each subject then has the values the others give it."""
    reverted = data.draw(st.integers(0, len(runs) - 1))
    undone, never = worlds(tmp_path_factory.mktemp("runs"), runs, reverted)
    assert {row[:3] for row in undone.standing()} == {row[:3] for row in never.standing()}
    undone.assert_equal_to_rebuild()
    undone.close()
    never.close()


def test_reverting_what_a_later_run_said_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of two values of a day that a later run stated, its last holds without the first run."""
    oak, elm = PORTO._replace(value="oak"), PORTO._replace(value="elm")
    for runs in ([[oak], [oak, elm]], [[oak], [elm, oak]], [[elm], [oak], [oak, elm]]):
        undone, never = worlds(tmp_path_factory.mktemp("runs"), runs, 0)
        assert {row[:3] for row in undone.standing()} == {row[:3] for row in never.standing()}
        undone.close()
        never.close()


def worlds(folder: Path, runs: list[list[Said]], reverted: int) -> tuple[World, World]:
    """Return a project where one of the runs was undone, and one where it never was."""
    undone, never = World(folder / "undone"), World(folder / "never")
    for number, run in enumerate(runs):
        undone.consolidate(f"r{number}", *run)
        if number != reverted:
            never.consolidate(f"r{number}", *run)
    undone.now += timedelta(minutes=1)
    undone.memory().knowledge.revert(f"r{reverted}")
    return undone, never


# -- review ----------------------------------------------------------------------------------

WAITS = PORTO._replace(status="proposed", origin="tool")


def test_what_waits_is_found_once_it_is_accepted(world: World) -> None:
    """A proposed fact is not recalled before somebody accepts it; its origin stays what it was."""
    [fact] = world.consolidate("r1", WAITS)
    memory = world.memory()
    assert [item.fact.id for item in memory.knowledge.proposals()] == [fact.id]
    assert not any(hit.id == fact.id for hit in memory.recall("Where does Ines live?").hits)
    [done] = memory.knowledge.accept([fact.id])
    assert (done.id, done.now) == (fact.id, "active")
    assert any(hit.id == fact.id for hit in memory.recall("Where does Ines live?").hits)
    details = memory.knowledge.fact(fact.id)
    assert (details.state, details.fact.origin) == ("active", "tool")
    [review] = details.reviews
    assert (review.what, review.agent, review.at) == ("accept", "main", world.now)
    assert memory.knowledge.proposals() == []
    world.assert_equal_to_rebuild()


def test_accepting_supersedes_like_adding(world: World) -> None:
    """An accepted value takes the place of an older one; of a newer one it does not."""
    world.consolidate("r1", LISBON)
    [waits] = world.consolidate("r2", WAITS)
    [done] = world.memory().knowledge.accept([waits.id])
    assert len(done.superseded) == 1
    assert world.standing() == [("Ines", "lives_in", "Porto", "2026-01-08")]
    [old] = world.consolidate("r3", WAITS._replace(value="Braga", day=2))
    assert world.memory().knowledge.accept([old.id])[0].now == "superseded"
    assert world.standing() == [("Ines", "lives_in", "Porto", "2026-01-08")]


def test_rejecting_holds(world: World) -> None:
    """A rejected fact holds nowhere, says why, and can be accepted after all."""
    [waits] = world.consolidate("r1", WAITS)
    knowledge = world.memory().knowledge
    assert knowledge.reject([waits.id], "the tool was wrong")[0].now == "rejected"
    details = knowledge.fact(waits.id)
    assert (details.state, details.reviews[0].why) == ("rejected", "the tool was wrong")
    assert knowledge.proposals() == [] and world.standing() == []
    knowledge.accept([waits.id])
    assert world.standing() == [("Ines", "lives_in", "Porto", "2026-01-08")]


def test_reviewing_twice_is_the_same(world: World) -> None:
    """Deciding the same again writes nothing; what never waited is refused, and named."""
    [waits, other] = world.consolidate("r1", WAITS, TEA)
    knowledge = world.memory().knowledge
    knowledge.accept([waits.id])
    count = len(journal(world))
    assert knowledge.accept([waits.id])[0].now == "active"
    assert len(journal(world)) == count
    with pytest.raises(NotFound, match="does not wait for review"):
        knowledge.reject([other.id])
    with pytest.raises(NotFound, match="there is no fact 'nothing'"):
        knowledge.accept(["nothing"])


def test_a_reverted_fact_can_be_accepted(world: World) -> None:
    """Accepting a fact of an undone run brings it back, with what it takes the place of."""
    world.consolidate("r1", LISBON)
    [fact] = world.consolidate("r2", PORTO)
    world.memory().knowledge.revert("r2")
    world.memory().knowledge.accept([fact.id])
    assert world.standing() == [("Ines", "lives_in", "Porto", "2026-01-08")]
    assert world.history() == {("Ines", "lives_in", "Lisbon", "Porto")}
    world.memory().knowledge.revert("r2")  # it is the person's now
    assert world.standing() == [("Ines", "lives_in", "Porto", "2026-01-08")]
    world.assert_equal_to_rebuild()


# -- who may see what ------------------------------------------------------------------------


def test_a_private_fact_is_its_agents_alone(world: World) -> None:
    """What is private to an agent is shown to it and to the person at the machine, nobody else."""
    [secret] = world.consolidate("r1", TEA._replace(agent="a", private=True))
    for agent, sees in (("a", True), ("b", False)):
        knowledge = world.memory(agent).knowledge
        assert [item.fact.id for item in knowledge.facts()] == [secret.id] * sees
        assert [c.id for c in knowledge.diff(START)] == [secret.id] * sees
        assert [h.id for h in knowledge.search("green tea").hits] == [secret.id] * sees
        assert bool(world.memory(agent).facts()) == sees
    other = world.memory("b")
    for refused in (
        lambda: other.fact(secret.id),
        lambda: other.knowledge.timeline("Ines"),
        lambda: other.forget(ids=[secret.id]),
        lambda: other.knowledge.accept([secret.id]),
    ):
        with pytest.raises(NotFound):
            refused()
    assert other.knowledge.person.fact(secret.id).fact.id == secret.id
    assert other.recall("green tea").hits == ()
    recall = other.recall("anything")
    assert other.explain(recall.id, secret.id)["why"]["reason"] == "unknown"


def test_sources_are_shown_to_their_agent(world: World) -> None:
    """A shared fact's lines, and its quote, are shown to their agent, a reader and the person."""
    [fact] = world.consolidate("r1", TEA._replace(agent="a"))
    [line] = world.memory("a").knowledge.fact(fact.id).lines
    assert line.entry and line.source.line == 1 and line.span
    hidden = world.memory("b").knowledge.fact(fact.id)
    assert hidden.lines[0].entry is None and hidden.lines[0].source.file is None
    assert (hidden.fact.quote, hidden.fact.span, hidden.fact.text) == ("", None, fact.text)
    [hit] = [hit for hit in world.memory("b").recall("green tea").hits if hit.id == fact.id]
    assert isinstance(hit.item, Fact) and hit.item.quote == ""
    assert world.memory("b").knowledge.person.fact(fact.id).fact.quote == fact.quote


def test_a_reader_sees_all(home: Path) -> None:
    """An agent that the project lets read everybody's entries sees private facts and sources."""
    world = World(home, **{"agents.chief.read_all": True})
    [secret] = world.consolidate("r1", TEA._replace(agent="a", private=True))
    assert world.memory("chief").knowledge.fact(secret.id).lines[0].entry
    world.close()


# -- looking ---------------------------------------------------------------------------------


def test_search_finds_facts_alone(world: World) -> None:
    """A search gives facts, best first, by words or meaning, and leaves no recall behind."""
    world.consolidate("r1", TEA, LISBON, Said("Tomas", "likes", "rowing on the lake", 1))
    recall = world.memory().knowledge.search("What does Ines drink? tea", limit=1)
    assert [hit.text for hit in recall.hits] == ["Ines likes green tea"]
    assert recall.label in ("hybrid", "lexical")
    assert world.memory().events(kinds=["recall"]) == []
    world.memory().pause()
    with pytest.raises(Paused):
        world.memory().knowledge.search("tea")


def test_diff_tells_what_happened(world: World) -> None:
    """Every change of a fact since a moment is told with its texts, and none from before."""
    world.consolidate("r1", LISBON, TEA)
    world.now += timedelta(days=1)
    since = world.now
    knowledge = world.memory().knowledge
    [porto, waits] = world.consolidate(
        "r2", PORTO, Said("Ines", "owns", "a boat", status="proposed")
    )
    world.consolidate("r3", TEA._replace(day=7))
    knowledge.accept([waits.id])
    world.now += timedelta(minutes=1)
    knowledge.revert("r2")
    [tea] = [item.fact for item in knowledge.facts() if item.fact.relation == "likes"]
    world.memory().forget(ids=[tea.id])
    diff = partial(knowledge.diff, written=True)
    changes = [(c.what, c.fact.text if c.fact else None) for c in diff(since)]
    assert sorted(changes, key=repr) == sorted(
        [
            ("added", "Ines lives_in Porto"),
            ("proposed", "Ines owns a boat"),
            ("superseded", "Ines lives_in Lisbon"),
            ("updated", None),
            ("accepted", "Ines owns a boat"),
            ("reverted", "Ines lives_in Porto"),
            ("restored", "Ines lives_in Lisbon"),
            ("forgotten", None),
        ],
        key=repr,
    )
    [change] = [c for c in diff(since) if c.what == "superseded"]
    assert change.by and (change.by.id, change.run) == (porto.id, "r2")
    assert {c.what for c in diff(START, since)} == {"added"}


def test_runs_have_their_figures(world: World) -> None:
    """The consolidations are listed with what they read, and why one was undone."""
    world.consolidate("r1", LISBON)
    world.consolidate("r2", PORTO)
    world.memory().knowledge.revert("r2", why="asked for")
    first, second = world.memory().knowledge.runs()
    assert (first.run, first.figures["read"], first.reverted) == ("r1", 1, None)
    assert (second.run, second.why) == ("r2", "asked for") and second.reverted


def test_timeline_has_what_held_once(world: World) -> None:
    """A subject's line of values has the superseded ones too, each with its end."""
    world.consolidate("r1", LISBON)
    world.consolidate("r2", FARO)
    world.consolidate("r3", PORTO)
    line = world.memory().knowledge.timeline("ines")
    assert [(item.fact.value, item.state) for item in line] == [
        ("Lisbon", "superseded"),
        ("Porto", "superseded"),
        ("Faro", "active"),
    ]
    assert f"{line[0].fact.valid_to:%F}" == "2026-01-10"
    with pytest.raises(NotFound, match=r"no facts about 'Ines Silva'; there are 'ines'"):
        world.memory().knowledge.timeline("Ines Silva")


def test_short_ids(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an id names its entry or fact, unless none or several end so, or it is hidden."""
    [fact] = world.consolidate("r1", TEA)
    knowledge = world.memory().knowledge
    assert knowledge.full_id(fact.id[-8:].lower()) == fact.id
    assert knowledge.full_id(fact.id) == fact.id
    for wrong, why in (("", "too short"), ("ZZZZZ", "too short"), ("ZZZZZZZZ", "no entry or fact")):
        with pytest.raises(NotFound, match=why):
            knowledge.full_id(wrong)
    monkeypatch.setattr(service, "MIN_ID_END", 1)  # so that two ends are alike
    for number in range(33):  # more than there are last letters
        world.consolidate(f"r{number}", Said("Ines", "owns", f"boat {number}"))
    ends = [entry.id[-1] for entry in world.memory().entries()]
    [twice, *_] = [end for end in ends if ends.count(end) > 1]
    with pytest.raises(NotFound, match="more than one"):
        knowledge.full_id(twice)
    world.memory().forget(ids=[fact.id])
    with pytest.raises(NotFound):
        knowledge.full_id(fact.id[-8:])


def test_short_ids_are_read_from_an_index(world: World) -> None:
    """Looking an end up reads the ids' own index, never the rows with the texts."""
    connection = world.memory().store.index.connection()
    plans = [
        row[-1]
        for row in connection.execute(
            "EXPLAIN QUERY PLAN SELECT id FROM items LEFT JOIN states ON item = id"
            " WHERE substr(id, -?) = ? AND coalesce(forgotten, 0) = ? LIMIT ?",
            (8, "ABCDEFGH", False, 2),
        )
    ]
    assert any("COVERING INDEX" in plan for plan in plans), plans


def test_rpc_has_the_agents_view(world: World) -> None:
    """Over RPC an agent gets its facts, one with its lines, and those that wait; not another's."""
    [secret] = world.consolidate("r1", TEA._replace(agent="a", private=True))
    [waits] = world.consolidate("r2", WAITS)
    methods = Methods(world.home, lambda context: None)
    mine, other = {"agent": "a"}, {"agent": "b"}
    assert [fact["id"] for fact in methods.facts(**mine)["facts"]] == [secret.id]
    assert methods.facts(**other)["facts"] == []
    listing = methods.facts(**mine, query="green tea")
    assert [fact["id"] for fact in listing["facts"]] == [secret.id] and listing["label"]
    assert methods.fact(secret.id, **mine)["sources"][0]["line_of"]["agent_id"] == "a"
    with pytest.raises(NotFound):
        methods.fact(secret.id, **other)
    assert [item["fact"]["id"] for item in methods.review(**other)["waiting"]] == [waits.id]
    done = methods.review(**other, accept=[waits.id])
    assert done["decided"] == [{"id": waits.id, "now": "active", "superseded": []}]
    assert done["waiting"] == []
    assert json.loads(json.dumps(done)) == done
