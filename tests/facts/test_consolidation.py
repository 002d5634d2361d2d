"""The pass from entries to facts: what it reads, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pluggy
import pytest
from click.testing import CliRunner

from memtier_plugin.cli.main import main
from memtier_plugin.core import hookspecs, plugins
from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.events import AcceptEvent, SupersedeEvent
from memtier_plugin.core.files import hold_lock
from memtier_plugin.core.records import Entry, Fact, FactDraft, JournalEvent
from memtier_plugin.facts import backlog
from memtier_plugin.facts.consolidation import ConsolidationReport, Consolidator
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.ledger import jsonl, transaction
from tests.builders import make_draft, say_each, write_config
from tests.loopback import Loopback, honest
from tests.processes import run_memtier, run_python

Day = Callable[..., datetime]


@pytest.fixture
def server(server: Loopback) -> Loopback:
    """Serve a model that claims what plain sentences state, until it is told otherwise."""
    server.answers(honest)
    return server


def passes(memory: MemTier, **how: Any) -> ConsolidationReport:
    """Consolidate all there is, and return what all passes say together."""
    work = Consolidator(memory.actor)
    limit = how.pop("limit", 500)
    report = work.run(limit, **how)
    while report.left and not how.get("dry_run"):
        report += (more := work.run(limit, **how))
        if not more.left:
            break
    return report


def fact_triples(memory: MemTier, *, everything: bool = False) -> list[tuple[str, str, str]]:
    """Return what the facts say, oldest first."""
    facts = memory.facts(include_superseded=everything)
    return [(fact.subject, fact.relation, fact.value) for fact in facts]


def events(memory: MemTier, *kinds: str) -> list[JournalEvent]:
    """Return the project's journal events of these kinds, in the order written."""
    return memory.events(kinds=kinds, limit=10_000)


# -- reading ----------------------------------------------------------------------------------


def test_what_a_pass_tells(home: Path) -> None:
    """The journal and the report say what was read, made and rejected, under the run's id."""
    with MemTier.open(home) as memory:
        say_each(memory, "I live in Rome.", "I like tea.", "Hello there!", "Do I like jazz?")
        report = passes(memory)
        assert (report.read, report.facts, report.promoted, report.left) == (4, 2, 2, 0)
        assert report.rejected["question"] == 1
        [event] = events(memory, "consolidate")
        assert event.run_id == report.run and report.run.startswith("rules-1-")
        assert event.data["extractor"] == "rules" and event.data["number"] == 1
        for name in ("read", "facts", "promoted", "superseded", "updated", "ignored", "proposed"):
            assert event.data[name] == getattr(report, name)
        assert event.data["rejected"] == dict(report.rejected) and event.data["ms"] > 0
        assert {fact.run for fact in memory.facts()} == {report.run}
        assert {event.run_id for event in events(memory, "promote")} == {report.run}
        assert report.drafts == tuple(memory.facts())
        assert passes(memory) == ConsolidationReport() and len(events(memory, "consolidate")) == 1


def test_the_id_of_a_run_is_that_of_its_repetition(home: Path) -> None:
    """A pass that begins where another one did has its id; the next one has another."""
    with MemTier.open(home) as memory:
        say_each(memory, "I live in Rome.")
        would = passes(memory, dry_run=True)
        assert would.drafts[0].run == passes(memory, dry_run=True).drafts[0].run
        assert passes(memory).run == would.drafts[0].run
        say_each(memory, "I like tea.")
        assert passes(memory).run != would.drafts[0].run


def test_the_backlog_is_read_in_pieces(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a file is, a pass reads from its cursor on, and not beyond its window."""
    read: list[int] = []
    stream = jsonl.stream

    def watched(path: Path, start: int) -> Iterator[list[jsonl.LedgerLine]]:
        for lines in stream(path, start):
            read.append(sum(len(line.data) for line in lines))
            yield lines

    monkeypatch.setattr(jsonl, "_STREAMED", 1 << 14)
    with MemTier.open(home) as memory:
        text = "a long story without an end, " * 20
        memory.record_sessions([])
        for number in range(10):
            many = [{"role": "user", "content": f"{text}{number}/{n}"} for n in range(20)]
            memory.record(many, session_id=f"s{number}", run_id=f"r{number}")
        size = sum(p.stat().st_size for p in memory.folder.glob("episodic/*/*.jsonl"))
        assert size > 5 * jsonl._STREAMED
        monkeypatch.setattr(jsonl, "stream", watched)
        done: list[tuple[int, int]] = []
        report = passes(memory, limit=50, progress=lambda *at: done.append(at))
        assert report.read == 200
        assert max(read) <= jsonl._STREAMED
        assert sum(read) < 4 * size  # each window reads its own piece, rounded up
        assert done[0][0] >= 50 and abs(done[0][1] - 200) < 50


def test_a_window_does_not_cut_a_run(home: Path) -> None:
    """The messages of one run are looked at together, also where the window ends among them."""
    with MemTier.open(home) as memory:
        for number in range(3):
            run = [{"role": "user", "content": f"I like tea number {n}."} for n in range(3)]
            memory.record(run, session_id="s", run_id=f"r{number}")
        work = Consolidator(memory.actor)
        assert [work.run(2).read for _ in range(4)] == [3, 3, 3, 0]


def test_groups_are_of_one_person(home: Path) -> None:
    """Entries are looked at by agent, session and sender, the first said first."""
    with MemTier.open(home) as memory:
        ann = say_each(memory, "one", "three", session_id="a", sender="ann")
        bob = say_each(memory, "two", session_id="a", sender="bob")
        more = say_each(memory, "four", session_id="b", sender="ann")
        groups = backlog.group_by_session([*more, *ann, *bob])
    assert [[entry.content for entry in group] for group in groups] == [
        ["one", "three"],
        ["two"],
        ["four"],
    ]


def test_an_edited_ledger_is_read_anew(home: Path) -> None:
    """A file that somebody edited before the cursor is read from zero, and nothing comes twice."""
    with MemTier.open(home) as memory:
        say_each(memory, "I live in Rome.", "I like tea.")
        passes(memory)
        [path] = memory.folder.glob("episodic/*/*.jsonl")
        path.write_text(path.read_text().replace("I live in Rome.", "I live in Rome, as you know."))
        say_each(memory, "I like jazz.")
        assert passes(memory).facts == 1
        assert sorted(value for _, _, value in fact_triples(memory)) == ["Rome", "jazz", "tea"]


def test_a_line_that_is_none(home: Path) -> None:
    """A line that nobody can read is passed, and what follows it becomes facts."""
    with MemTier.open(home) as memory:
        say_each(memory, "I live in Rome.")
        [path] = memory.folder.glob("episodic/*/*.jsonl")
        path.write_bytes(path.read_bytes() + b'{"no": "entry"}\n\xff\xfe\n')
        say_each(memory, "I like tea.")
        assert passes(memory).facts == 2
        assert backlog.count_unread(memory.store) == 0


def test_what_was_remembered_is_read_past(home: Path) -> None:
    """What somebody asked to be kept is a fact already, and no rule makes another of it."""
    with MemTier.open(home) as memory:
        memory.remember("I live in Rome.")
        report = passes(memory)
        assert (report.read, report.facts) == (0, 0)
        assert len(memory.facts()) == 1


def test_forgotten_entries_are_read_past(home: Path) -> None:
    """Nothing is made of what was forgotten before a pass came to it."""
    with MemTier.open(home) as memory:
        forgotten, _ = say_each(memory, "I live in Rome.", "I like tea.")
        memory.forget(ids=[forgotten.id])
        assert passes(memory).facts == 1
        assert fact_triples(memory) == [("user", "likes", "tea")]


@pytest.mark.parametrize("hours", [-48, -1, 1, 48, 24 * 365])
def test_the_clock_jumps(home: Path, day: Day, hours: int) -> None:
    """However the clock is set between passes, each entry is looked at once."""
    now = [day(0)]
    with MemTier.open(home, clock=lambda: now[0]) as memory:
        say_each(memory, "I live in Rome.")
        assert passes(memory).facts == 1
        now[0] += timedelta(hours=hours)
        say_each(memory, "I like tea.")
        assert [passes(memory).read for _ in range(2)] == [1, 0]
        now[0] = day(0, minutes=5)
        say_each(memory, "I prefer jazz.", "I live in Oslo.")
        assert [passes(memory).read for _ in range(2)] == [2, 0]
        assert sorted(value for _, _, value in fact_triples(memory)) == ["Oslo", "jazz", "tea"]
        memory.reindex()
        assert passes(memory).read == 0 and backlog.count_unread(memory.store) == 0


# -- rights -----------------------------------------------------------------------------------


def test_an_agent_that_may_not_promote(home: Path) -> None:
    """`promote: none` reads past an agent's entries, `propose_facts` lets its facts wait."""
    rights = {"agents.silent.promote": "none", "agents.modest.promote": "propose"}
    for agent, text in (("silent", "tea"), ("modest", "chess"), ("open", "jazz")):
        with MemTier.open(home, agent_id=agent) as memory:
            say_each(memory, f"I like {text}.")
    with MemTier.open(home, settings=rights) as memory:
        report = passes(memory)
        assert (report.read, report.facts, report.proposed) == (2, 1, 1)
        assert report.rejected["agents.*.promote: none"] == 1
        assert fact_triples(memory) == [("user", "likes", "jazz")]
        [event] = events(memory, "propose")
        [waiting] = [fact for fact in report.drafts if fact.status == "proposed"]
        assert event.data["items"] == [waiting.id] and event.run_id == report.run
        assert waiting.reason == event.data["reason"] == "agents.modest.promote is propose"
        assert passes(memory).read == 0
        promoted = {item for event in events(memory, "promote") for item in event.data["items"]}
        assert waiting.sources[0].entry not in promoted


def test_a_subagent_makes_no_facts(home: Path) -> None:
    """What stands in a run that another run started becomes no fact, whatever its agent may."""
    with MemTier.open(home, settings={"agents.main.promote": "all"}) as memory:
        messages = [{"role": "user", "content": "I like tea."}]
        memory.record(messages, session_id="child", parent="agent:main:main")
        report = passes(memory)
        assert (report.facts, report.proposed, dict(report.rejected)) == (
            0,
            0,
            {"said by a sub-agent": 1},
        )
        memory.record(messages, session_id="own")
        assert passes(memory).facts == 1


def test_proposed_facts_change_nothing(home: Path) -> None:
    """A fact that waits supersedes nothing, and is not proposed again while it waits."""
    with MemTier.open(home, agent_id="open") as memory:
        say_each(memory, "I live in Rome.")
        passes(memory)
    with MemTier.open(home, "default", "modest") as memory:
        say_each(memory, "I live in Oslo.", "I live in Oslo.", run_id=None)
    with MemTier.open(home, settings={"agents.modest.promote": "propose"}) as memory:
        assert passes(memory).proposed == 1
        say_each(MemTier.open(home, agent_id="modest"), "I live in Oslo.", run_id="again")
        report = passes(memory)
        assert report.proposed == 0 and report.rejected["waits for review already"] == 1
        assert fact_triples(memory) == [("user", "lives_in", "Rome")]


def test_accepting_settles(home: Path) -> None:
    """A fact that is accepted takes others' place then, in one write with its acceptance."""
    with MemTier.open(home) as memory:
        [entry] = say_each(memory, "the fox")
        [old] = memory.add_facts([make_draft(entry, "Acme")])
        [waits] = memory.add_facts([make_draft(entry, "Bolt", status="proposed")])
        writer = FactWriter(memory.actor)
        result = writer.write_accepted(waits, memory.actor.event(AcceptEvent(items=(waits.id,))))
        assert [replaced for replaced, _ in result.superseded] == [old.id]
        assert [fact.id for fact in memory.facts()] == [waits.id]


def test_accepting_what_is_known(home: Path) -> None:
    """An accepted fact that says what another says gives way to it: there is one of them."""
    with MemTier.open(home) as memory:
        [entry] = say_each(memory, "the fox")
        [waits] = memory.add_facts([make_draft(entry, "eggs", relation="likes", status="proposed")])
        [other] = memory.add_facts([make_draft(entry, "eggs", relation="likes")])
        writer = FactWriter(memory.actor)
        writer.write_accepted(waits, memory.actor.event(AcceptEvent(items=(waits.id,))))
        assert [fact.id for fact in memory.facts()] == [other.id]


# -- evolution --------------------------------------------------------------------------------


def test_saying_it_again_adds_a_source(home: Path) -> None:
    """What says the same in other words adds its entry to the fact that is there."""
    with MemTier.open(home) as memory:
        say_each(memory, "I like hiking.")
        passes(memory)
        say_each(memory, "I love hiking.")
        report = passes(memory)
        assert (report.facts, report.ignored, report.promoted) == (0, 1, 1)
        [fact] = memory.facts()
        assert len(memory.fact(fact.id)[1]) == 2


def test_saying_more_updates(home: Path) -> None:
    """What says more of the same is a new fact on the sources of both; the old one is readable."""
    with MemTier.open(home) as memory:
        say_each(memory, "I have two kids.")
        passes(memory)
        [old] = memory.facts()
        say_each(memory, "I have two kids named Ida and Lars.")
        report = passes(memory)
        assert (report.facts, report.updated, report.superseded) == (1, 1, 1)
        [new] = memory.facts()
        assert ("Ida and Lars" in new.value, len(new.sources)) == (True, 2)
        assert report.replaced == ((old.id, new),)
        past, _ = memory.facts(include_superseded=True)
        assert past.id == old.id and past.valid_to is not None


def test_a_change_within_one_pass(home: Path, day: Day) -> None:
    """Of what changed several times before a pass came to it, the last said holds."""
    with MemTier.open(home) as memory:
        for number, city in enumerate(["Rome", "Oslo", "Bern", "Rome"]):
            say_each(
                memory,
                f"I live in {city}.",
                run_id=f"r{number}",
                observed_at=day(number),
                session_id=f"s{number % 2}",
            )
        passes(memory)
        assert fact_triples(memory) == [("user", "lives_in", "Rome")]
        assert [fact.value for fact in memory.facts(include_superseded=True)].count("Oslo") == 1


def test_private_facts_are_settled_apart(home: Path) -> None:
    """What only one agent and sender may see neither hides nor replaces what all may."""
    with MemTier.open(home) as memory:
        [entry] = say_each(memory, "the fox")
        private = ("main", "ann")
        memory.add_facts([make_draft(entry, "Acme")])
        memory.add_facts([make_draft(entry, "Acme", private_to=private)])
        memory.add_facts([make_draft(entry, "Bolt", private_to=private)])
        held = [(fact.value, fact.private_to) for fact in memory.facts(sender="ann")]
        assert held == [("Acme", None), ("Bolt", private)]
        assert [fact.value for fact in memory.facts()] == ["Acme"]


def test_contradicting_agents_are_both_shown(home: Path, day: Day) -> None:
    """What two agents concluded differently stands side by side, the newest first, and says so."""
    with MemTier.open(home, agent_id="a") as memory, MemTier.open(home, agent_id="b") as other:
        [mine], [theirs] = say_each(memory, "the fox"), say_each(other, "the fox")
        memory.add_facts([make_draft(mine, "Acme", origin="assistant", valid_from=day(0))])
        other.add_facts([make_draft(theirs, "Bolt", origin="assistant", valid_from=day(1))])
        lines = memory.recall("where does the fox work?").injected
        facts = [hit for hit in lines if isinstance(hit.item, Fact)]
        assert [hit.text for hit in facts] == ["the fox works at Bolt", "the fox works at Acme"]
        assert "the older says otherwise" in facts[0].note


# -- by a model -------------------------------------------------------------------------------


@pytest.fixture
def modelled(home: Path, server: Loopback) -> Callable[..., MemTier]:
    """Return how to open a project whose entries the loopback server's model reads too."""

    def opened(agent: str = "main", **more: Any) -> MemTier:
        endpoint = {"base_url": server.base_url, "timeout_s": 2.0}
        write_config(home, {"endpoints": {"local": endpoint}})
        settings = {"consolidation.model": "endpoint:local/scripted"} | more
        return MemTier.open(home, agent_id=agent, settings=settings)

    return opened


def test_a_model_reads_the_whole_history(home: Path, modelled: Callable[..., MemTier]) -> None:
    """A model that is configured later begins at the beginning; what rules found gets no twin."""
    with MemTier.open(home) as memory:
        say_each(memory, "I live in Rome.", "Well, my sister is Ann, and I use Emacs.")
        assert passes(memory).facts >= 1
        before = fact_triples(memory)
    with modelled() as memory:
        report = passes(memory)
        assert report.read == 2 and report.tokens > 0 and report.run.startswith("model-1-")
        added = [fact for fact in report.drafts if fact.extractor == "chat"]
        assert added and all(fact.model == "local/scripted" for fact in added)
        assert all(fact.prompt_hash and fact.quote and fact.span for fact in added)
        assert fact_triples(memory)[: len(before)] == before
        assert [value for _, _, value in fact_triples(memory)].count("Rome") == 1
        assert passes(memory).read == 0
        say_each(memory, "I like jazz.")
        assert [run.split("-")[0] for run in passes(memory).runs] == ["rules", "model"]


@pytest.mark.parametrize("fault", ["500", "429", "close"])
def test_an_endpoint_that_fails(
    modelled: Callable[..., MemTier], server: Loopback, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an endpoint fails the rules go on, why is told once, and later all is read."""
    monkeypatch.setattr("memtier_plugin.providers.endpoint.FIRST_PAUSE", 0.0)
    with modelled() as memory:
        say_each(memory, "I live in Rome.")
        server.always(fault)
        report = passes(memory)
        assert report.facts == 1 and report.problem and report.left == 0
        say_each(memory, "I like tea.")
        assert passes(memory).facts == 1
        failures = [event for event in events(memory, "consolidate") if event.data.get("problem")]
        assert len(failures) == 1 and "cursors" not in failures[0].data
        assert backlog.count_unread(memory.store, "model") == 2
        server.always(None)
        assert passes(memory, extractor="model").read == 2
        assert backlog.count_unread(memory.store, "model") == 0


def test_what_was_answered_is_kept(
    modelled: Callable[..., MemTier], server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a model fails within a window, what it said of the entries before counts."""
    monkeypatch.setattr("memtier_plugin.providers.endpoint.FIRST_PAUSE", 0.0)
    with modelled() as memory:
        for number, session in enumerate("aabbcc"):
            say_each(memory, f"I use tool {number}.", session_id=session)
        calls = 0

        def second_fails(body: dict[str, Any]) -> dict[str, Any]:
            nonlocal calls
            calls += 1
            if calls == 2:
                server.script("500", "500", "500", "500")
            return honest(body)

        server.answers(second_fails)
        report = passes(memory, extractor="model")
        assert report.problem and report.read == 4 and report.left == 0
        [event] = events(memory, "consolidate")
        assert event.data["problem"] == report.problem and event.data["read"] == 4
        server.script()
        assert passes(memory, extractor="model").read == 2
        assert sorted(value for _, _, value in fact_triples(memory)) == [
            f"tool {n}" for n in range(6)
        ]


def test_invented_quotes_make_no_facts(modelled: Callable[..., MemTier], server: Loopback) -> None:
    """What a model claims and nobody said never holds; what it turns round is counted."""
    with modelled() as memory:
        say_each(memory, "I never eat nuts.", "Let us meet at nine.")
        about = {"kind": "fact", "subject": "user", "since": None, "line": 1}
        server.answers(
            {
                "facts": [
                    about | {"relation": "eats", "value": "nuts", "text": "The user eats nuts.",
                             "quote": "eat nuts"},
                    about | {"relation": "has", "value": "a yacht", "text": "The user has a yacht.",
                             "quote": "I have a yacht"},
                ]
            }
        )  # fmt: skip
        report = passes(memory, extractor="model")
        assert not [fact for fact in report.drafts if fact.status == "active"]
        assert sum(report.rejected.values()) + report.proposed == 2
        assert fact_triples(memory) == []


def test_a_model_may_decide(modelled: Callable[..., MemTier], server: Loopback) -> None:
    """Where rules would add a fact, a model may say that it replaces one of the same person."""
    decision = {"action": "supersede", "target": 1}

    def answer(body: dict[str, Any]) -> Any:
        reply = honest(body)
        return reply if "facts" in reply else decision

    server.answers(answer)
    with modelled() as memory:
        say_each(memory, "I prefer tea.")
        passes(memory, extractor="model")
        say_each(memory, "I prefer coffee.")
        report = passes(memory, extractor="model")
        assert report.superseded == 1
        assert [value for _, _, value in fact_triples(memory)] == ["coffee"]
    with modelled("other") as memory:
        decision["action"] = "ignore"
        say_each(memory, "I prefer 2 sugars.")
        report = passes(memory, extractor="model")
        assert report.facts == 1  # another number: it is not for a model to drop it


# -- plugins ----------------------------------------------------------------------------------


class Finds:
    """A plugin that makes a fact of every entry, with or without words that bear it out."""

    def __init__(self, quote: str) -> None:
        self.quote = quote

    @hookspecs.hookimpl
    def memtier_extract(self, entries: Sequence[Entry]) -> Iterator[FactDraft]:
        """Return one fact for each entry."""
        for entry in entries:
            yield make_draft(
                entry, "a red kayak", subject="Ann", relation="keeps", quote=self.quote,
                text="Ann keeps a red kayak in the shed.", extractor="finds",
            )  # fmt: skip


@pytest.mark.parametrize(
    ("quote", "origin", "status"),
    [
        ("I keep a red kayak in the shed", "user", "active"),
        ("I keep a red kayak in the shed", "external", "proposed"),
        ("Ann sails a kayak", "user", None),
    ],
)
def test_a_plugins_facts_are_held_to_proof(
    home: Path, monkeypatch: pytest.MonkeyPatch, quote: str, origin: str, status: str | None
) -> None:
    """What a plugin finds needs a quote that stands, and waits where it rests on outside text."""
    made_for = pluggy.PluginManager(hookspecs.ENTRY_POINT_GROUP)
    made_for.add_hookspecs(hookspecs)
    plugins._register(made_for, "finds", Finds(quote))
    monkeypatch.setattr(plugins, "_extensions", lambda: made_for)
    with MemTier.open(home) as memory:
        message = {
            "role": "user",
            "content": "It rains. I keep a red kayak in the shed.",
            "name": "Ann",
        }
        memory.record([message | {"origin": origin}], session_id="s")
        report = passes(memory)
        facts = [fact for fact in report.drafts if fact.extractor == "finds"]
        assert status == "active" or all(fact.status == "proposed" for fact in facts)
        if status:
            facts = [fact for fact in report.drafts if quote in fact.quote]
            assert status in {fact.status for fact in facts}  # the rules may find it, too
            assert quote in message["content"][slice(*facts[0].span or ())]


# -- the command ------------------------------------------------------------------------------


def test_the_command(home: Path) -> None:
    """`consolidate` tells what it would do, does a part, and with --all does the rest."""

    def run(*arguments: str) -> Any:
        done = run_memtier("consolidate", "--project", "default", *arguments)
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    with MemTier.open(home) as memory:
        say_each(memory, *(f"I like fox number {n}." for n in range(30)), "I live in Rome.")
    would = run("--dry-run", "--limit", "2", "--json")
    assert [item["value"] for item in would["drafts"]] == ["fox number 0", "fox number 1"]
    assert (would["dry_run"], would["left"], would["runs"]) == (True, 29, [])
    assert "The user likes fox number 0." in run("--dry-run", "--limit", "2")
    assert (done := run("--limit", "10", "--json"))["facts"] == 10 and 20 <= done["left"] <= 23
    rest = run("--all", "--extractor", "rules", "--json")
    assert (rest["read"], rest["facts"], rest["left"]) == (21, 21, 0)
    assert run("--all") == "0 entries read, no new fact.\n"
    refused = CliRunner().invoke(main, ["consolidate", "--all", "--limit", "3"])
    assert refused.exit_code == 2 and "--limit" in refused.output


@pytest.mark.parametrize("more", [(), ("--all",)])
def test_a_model_that_read_nothing_is_no_success(
    modelled: Callable[..., MemTier], server: Loopback, more: tuple[str, ...]
) -> None:
    """Where the model's pass ends early, the command says why and exits with 1; else with 0."""
    command = ["consolidate", "--project", "default", "--json", *more]
    environment = {"MEMTIER_CONSOLIDATION__MODEL": "endpoint:local/scripted"}
    with modelled() as memory:
        say_each(memory, "I live in Rome.")
    server.always("401")
    lost = CliRunner().invoke(main, command, env=environment)
    assert lost.exit_code == 1
    document = json.loads(lost.stdout)
    assert "refuses the key" in document["problem"] and document["facts"] == 1  # the rules' own
    server.always(None)
    done = CliRunner().invoke(main, command, env=environment)
    assert (done.exit_code, json.loads(done.stdout)["problem"]) == (0, "")


# -- dry runs, crashes, disks -----------------------------------------------------------------


def test_dry_run(home: Path) -> None:
    """A dry run tells what would be written and superseded, and writes nothing at all."""
    with MemTier.open(home) as memory:
        say_each(memory, "I live in Rome.")
        passes(memory)
        [old] = memory.facts()
        say_each(memory, "I live in Oslo.", "I like tea.")
        before = {p: p.read_bytes() for p in memory.folder.rglob("*.jsonl")}
        report = passes(memory, dry_run=True)
        assert (report.read, report.facts, report.superseded, report.runs) == (2, 2, 1, ())
        assert [(replaced, new.value) for replaced, new in report.replaced] == [(old.id, "Oslo")]
        assert {p: p.read_bytes() for p in memory.folder.rglob("*.jsonl")} == before
        assert passes(memory).facts == 2


def test_what_was_cut_off_is_completed_by_whoever_is_next(home: Path) -> None:
    """A file written ahead is brought into the ledgers by the next write of facts, once."""
    with MemTier.open(home) as memory:
        [entry] = say_each(memory, "the fox")
        [old] = memory.add_facts([make_draft(entry, "Acme")])
        writer = FactWriter(memory.actor)
        path = memory.folder / transaction.TRANSACTION_FILE
        lost = Fact.from_json(old.to_json() | {"id": "01BX5ZZKBKACTAV9WEVGEMMVRZ", "value": "Bolt"})
        event = memory.actor.event(SupersedeEvent(items=(old.id,), by=lost.id))
        path.write_text(json.dumps({"facts": [lost.to_json()], "events": [event.to_json()]}))
        memory.add_facts([make_draft(entry, "eggs", relation="likes")])
        assert [fact.value for fact in memory.facts()] == ["Bolt", "eggs"] and not path.exists()
        newer = {**event.to_json(), "schema": 99, "more": "than we know"}
        path.write_text(json.dumps({"facts": [], "events": [newer]}))
        with pytest.raises(LedgerError, match="newer MemTier: upgrade"):
            memory.add_facts([make_draft(entry, "bread", relation="likes")])
        assert "than we know" in path.read_text()
        assert memory.record([{"role": "user", "content": "the hen"}], session_id="s")
        path.write_text("{")
        writer.recover()
        assert not path.exists() and path.with_suffix(".unreadable").exists()


FULL = """
import resource, signal, sys
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.memory import MemTier
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with MemTier.open(sys.argv[1]) as memory:
    memory.store.catch_up_all()
    sys.dont_write_bytecode = True  # it would be cut off, too
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
    try:
        memory.consolidate()
    except MemTierError as error:
        print(type(error).__name__)
"""


@pytest.mark.slow
def test_a_full_disk(home: Path) -> None:
    """Wherever the disk fills up, a pass that fails is completed or done again, exactly once."""
    with MemTier.open(home) as memory:
        say_each(
            memory,
            *(f"I prefer fox number {n} to the others." for n in range(20)),
            "I live in Rome.",
            "I live in Oslo.",
        )
        passes_before = len(fact_triples(memory))
        assert passes_before == 0
    failures = set()
    for room in (1_000, 3_000, 5_000, 7_500, 9_000, 10_500, 14_000, 20_000):
        failures.add(run_python(FULL, home, str(room)).strip())
    assert "LedgerWriteError" in failures
    with MemTier.open(home) as memory:
        passes(memory)
        assert len(fact_triples(memory, everything=True)) == 22 and len(fact_triples(memory)) == 21
        ids = [event.id for event in events(memory, "promote", "supersede", "consolidate")]
        assert len(ids) == len(set(ids)) and len(events(memory, "promote")) == 22
        assert len(events(memory, "consolidate")) == 1
        assert not (memory.folder / transaction.TRANSACTION_FILE).exists()


def test_two_at_once(home: Path) -> None:
    """While one pass is at work another one of its kind is refused, and told so politely."""
    with MemTier.open(home) as memory:
        say_each(memory, "I live in Rome.")
        path = memory.folder / ".consolidate.rules.lock"
        with hold_lock(path, 0.0), pytest.raises(LedgerError, match="try again later"):
            passes(memory)
        assert passes(memory).facts == 1


@pytest.mark.parametrize(
    ("frame", "kept"),
    [
        ("{}", True),
        (
            "Here is the plan for the quay, step by step, as you asked for it before the call with"
            " the pilots.\n\n{}\n\nThen the tug comes to the north pier, and the pilot boards.",
            False,
        ),
    ],
)
def test_a_change_is_all_that_a_message_says(home: Path, day: Day, frame: str, kept: bool) -> None:
    """An assistant's message is kept for what it changes where it says nothing else."""
    change = "The tide report now runs at 05:15."
    before = {"role": "user", "content": "The tide report runs at 03:30 every night."}
    asked = {"role": "user", "content": "Anything new?"}
    answer = {"role": "assistant", "content": frame.format(change)}
    with MemTier.open(home) as memory:
        memory.record([before], session_id="a", observed_at=day(0))
        memory.record([asked, answer], session_id="b", observed_at=day(3))
        passes(memory)
        assert (change in [fact.text for fact in memory.facts()]) == kept
