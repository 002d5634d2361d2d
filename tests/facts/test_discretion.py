"""Confidences become no facts, however they were said and whoever reads them for facts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtier_plugin.core.results import RunContext
from memtier_plugin.hooks.chat_commands import answer_command
from memtier_plugin.memory import MemTier
from memtier_plugin.trust.confidences import is_sensitive
from tests.builders import say, turns, write_config
from tests.cases import each_case
from tests.loopback import Loopback, honest
from tests.processes import run_memtier


@pytest.fixture
def memory(home: Path) -> Iterator[MemTier]:
    """Return the memory of an agent in a new home."""
    with MemTier.open(home) as opened:
        yield opened


# Each becomes a fact by itself; and what makes a confidence of it.
STATED = (
    "I live in Porto.",
    "My sister is allergic to peanuts.",
    "The staging server listens on port 9443.",
    "We decided to use PostgreSQL for billing.",
)
MARKED = (
    "Between us: {}",
    "{} Please don't tell anyone.",
    "Unter uns gesagt: {}",
    "Entre nosotros: {}",
    "Entre nous : {}",
    "别告诉别人：{}",
)


@pytest.mark.parametrize("stated", STATED)
def test_it_would_be_a_fact(memory: MemTier, stated: str) -> None:
    """Without a marker each of these statements is a fact, which the next test needs."""
    say(memory, stated)
    memory.consolidate()
    assert memory.facts()


@pytest.mark.parametrize("marked", MARKED)
def test_a_marked_statement_is_no_fact(memory: MemTier, marked: str) -> None:
    """With a marker no such statement is a fact, if it does not wait; its speaker finds it."""
    for number, stated in enumerate(STATED):
        say(memory, marked.format(stated), session_id=f"s{number}")
    report = memory.consolidate()
    waiting = [view.fact.reason for view in memory.knowledge.proposals()]
    assert not any(fact.status == "active" for fact in memory.facts(include_superseded=True))
    assert report.rejected["told in confidence"] + len(waiting) == len(STATED)
    assert "9443" in memory.recall("Which port does staging listen on?").hits[0].text


def test_a_model_does_not_see_it(home: Path, server: Loopback) -> None:
    """Extraction by a model is not asked about a confidence, nor about the answer to it."""
    server.answers(honest)
    write_config(home, {"endpoints": {"local": {"base_url": server.base_url}}})
    with MemTier.open(home, settings={"consolidation.model": "endpoint:local/m"}) as memory:
        memory.record(turns("Between us, I live in Porto.", "Porto, I see."), session_id="s1")
        say(memory, "I work at Initech.", session_id="s2")
        memory.consolidate()
        assert {fact.value for fact in memory.facts()} == {"Initech"}
    assert server.requests and "Porto" not in str(server.requests)


# -- what is private although its words do not say so ----------------------------------------------


def _others(home: Path) -> str:
    """Return all that another agent, and one that reads everybody's entries, can see."""
    seen = ""
    for agent in ("other", "boss"):
        with MemTier.open(home, agent_id=agent) as memory:
            facts = memory.knowledge.facts(include_superseded=True)
            hits = memory.recall("Where does the user live? Porto, boat, Lyon").hits
            seen += f"{[fact.to_json() for fact in facts]} {[hit.text for hit in hits]}"
    return seen


@pytest.fixture
def orchestrated(home: Path) -> Path:
    """Return a home in which the agent ``boss`` may read everybody's entries."""
    write_config(home, {"agents": {"boss": {"read_all": True}}})
    return home


def test_a_flag_of_the_host(orchestrated: Path) -> None:
    """What is recorded as private reaches no other agent; its own agent recalls it."""
    with MemTier.open(orchestrated) as memory:
        memory.end_run(turns("I live in Porto.", "Porto, I see."), session_id="s", private=True)
        memory.end_run(turns("I work in Lyon.", "I see."), session_id="t")
        memory.consolidate()
        assert "Porto" in memory.recall("Where do I live?").hits[0].text
        assert [entry.private for entry in memory.entries()] == [True, True, False, False]
    assert "Porto" not in _others(orchestrated) and "Lyon" in _others(orchestrated)


def test_what_was_said_before(orchestrated: Path) -> None:
    """A marker in a later turn takes back what was made a fact of in the meantime."""
    with MemTier.open(orchestrated) as memory:
        memory.end_run(turns("I live in Porto.", "I see."), session_id="s", run_id="1")
        memory.consolidate()
        assert "Porto" in _others(orchestrated)
        memory.end_run(turns("What I just said stays between us.", "Sure."), session_id="s")
        memory.consolidate()
        assert "Porto" in memory.recall("Where do I live?").hits[0].text
        assert "Porto" not in _others(orchestrated)
        memory.reindex()
        assert "Porto" in memory.recall("Where do I live?").hits[0].text
    assert "Porto" not in _others(orchestrated)


def test_what_is_said_after(orchestrated: Path) -> None:
    """What was announced as a secret is one, in the next run as well."""
    with MemTier.open(orchestrated) as memory:
        memory.end_run(turns("Can you keep a secret?", "Sure."), session_id="s", run_id="1")
        memory.end_run(turns("I live in Porto.", "I see."), session_id="s", run_id="2")
        memory.end_run(turns("I work in Lyon.", "I see."), session_id="s", run_id="3")
        memory.consolidate()
    assert "Porto" not in _others(orchestrated) and "Lyon" in _others(orchestrated)


def test_a_session_made_private(orchestrated: Path) -> None:
    """A command makes a session private: what was said in it, and what is said later."""
    with MemTier.open(orchestrated) as memory:
        memory.end_run(turns("I live in Porto.", "I see."), session_id="s", run_id="1")
        memory.consolidate()
        memory.summariser.run()
    run_memtier("--home", str(orchestrated), "--project", "default", "private", "s")
    assert "Porto" not in _others(orchestrated)
    with MemTier.open(orchestrated) as memory:
        memory.end_run(turns("I own a boat.", "I see."), session_id="s", run_id="2")
        memory.consolidate()
        assert memory.recall("Where do I live?").hits
    assert "Porto" not in _others(orchestrated) and "boat" not in _others(orchestrated)


def test_what_a_model_keeps_of_a_confidence(orchestrated: Path) -> None:
    """A tool that stores a paraphrase of a confidence, or answers one, stores it for its agent."""
    with MemTier.open(orchestrated) as memory:
        memory.recall("Between us, I live in Porto.", session_id="s", purpose="inject")
        kept = memory.remember("The user lives in Porto.", session_id="s", by="assistant")
        asked = memory.remember("Don't tell anyone: I own a boat.", session_id="t")
        assert kept.private_to == asked.private_to == ("main", "")
    with MemTier.open(orchestrated, agent_id="other") as other:
        assert other.facts(include_superseded=True) == []
        assert not other.recall("Porto boat").hits


# -- what is sensitive by its kind -----------------------------------------------------------------

SENSITIVE_TEXTS = (
    "My colleague has cancer.",
    "I am pregnant.",
    "My salary is 68,000 euros.",
    "I am a Catholic.",
    "My brother is gay.",
    "My sister was fired in May.",
)


def test_what_is_sensitive_waits(home: Path, server: Loopback) -> None:
    """Diagnoses, pay, belief and the like wait for review, by rules and by a model alike."""
    server.answers(honest)
    write_config(home, {"endpoints": {"local": {"base_url": server.base_url}}})
    with MemTier.open(home, settings={"consolidation.model": "endpoint:local/m"}) as memory:
        for number, text in enumerate(SENSITIVE_TEXTS):
            say(memory, text, session_id=f"s{number}")
        say(memory, "My sister is allergic to peanuts.", session_id="t")
        say(memory, "I am vegan.", session_id="t")
        memory.consolidate()
        assert {fact.valid_from is not None for fact in memory.facts()} == {True}
        assert not any(is_sensitive(fact.text) for fact in memory.facts())
        assert "peanuts" in str([fact.text for fact in memory.facts()])
        waiting = [view.fact for view in memory.knowledge.proposals()]
        assert len(waiting) >= 3
        assert all(fact.reason.startswith("is sensitive") for fact in waiting)
    with MemTier.open(home, agent_id="other") as other:
        assert not other.knowledge.proposals()
        assert not any(is_sensitive(v.fact.text) for v in other.knowledge.facts())
    with MemTier.open(home) as memory:
        memory.knowledge.person.accept([waiting[0].id])
    with MemTier.open(home, agent_id="other") as other:
        assert waiting[0].id in {fact.id for fact in other.facts()}


@pytest.mark.parametrize(("mode", "facts"), [("share", 1), ("drop", 0)])
def test_a_project_may_decide_otherwise(home: Path, mode: str, facts: int) -> None:
    """`facts.sensitive` shares what is sensitive, or drops it."""
    with MemTier.open(home, settings={"facts.sensitive": mode}) as memory:
        say(memory, "I am pregnant.")
        report = memory.consolidate()
        assert len(memory.facts()) == facts and not memory.knowledge.proposals()
        assert report.rejected.get("is sensitive", 0) == 1 - facts


KINDS = (
    ("My colleague has lung cancer.", True),
    ("Anna was diagnosed with MS.", True),
    ("The user's wife sees a psychiatrist on Mondays.", True),
    ("I earn 4000 euros a month.", True),
    ("My father is an alcoholic.", True),
    ("Paul got laid off.", True),
    ("Meine Mutter hat Brustkrebs.", True),
    ("Ich verdiene 5000 Euro brutto.", True),
    ("Ich bin schwul.", True),
    ("Mi hermana está embarazada.", True),
    ("Soy judía.", True),
    ("Me despidieron ayer.", True),
    ("Ma sœur est enceinte.", True),
    ("J'ai été licencié.", True),
    ("我得了糖尿病。", True),
    ("他是同性恋。", True),
    ("她被公司开除了。", True),
    ("My sister is allergic to peanuts.", False),
    ("The user is lactose intolerant.", False),
    ("The salary service runs on port 8080.", False),
    ("The event is fired on push.", False),
    ("I see my physiotherapist on Thursdays.", False),
    ("Technical debt is tracked in Jira.", False),
    ("The church is next to the office.", False),
    ("The pods were terminated by the scheduler.", False),
    ("La cuota mensual es de 90 euros.", False),
    ("Le port est 8443.", False),
    ("Das Werk in Celle verwendet Siemens-Steuerungen.", False),
    ("我下个月要去成都出差。", False),
)


@each_case(("text", "sensitive"), KINDS)
def test_kinds(text: str, sensitive: bool) -> None:
    """What people tell few of themselves and others is sensitive; services and dates are not."""
    assert is_sensitive(text) == sensitive


def test_a_chat_command_makes_its_session_private(orchestrated: Path) -> None:
    """`/memtier private` in a host's chat keeps the session that it is typed in to its agent."""
    context = RunContext(agent_id="main", session_id="s", project="default", home=str(orchestrated))
    with MemTier.open(orchestrated) as memory:
        memory.end_run(turns("I live in Porto.", "I see."), session_id="s")
        assert "is now private: 2 lines" in answer_command("private", context)
        memory.consolidate()
    assert "Porto" not in _others(orchestrated)
