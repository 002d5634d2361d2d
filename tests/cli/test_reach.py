"""Whose memory the terminal reads: that of every agent of the project, and it says whose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.errors import NotFound
from memtier_plugin.memory import MemTier
from tests.builders import say
from tests.processes import run_json, run_memtier


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder that is bound to the project ``yard``."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    run_memtier("--project", "yard", "init")
    return work


def told(home: Path, agent: str, text: str, project: str = "yard", **options: Any) -> None:
    """Record what a user told an agent."""
    with MemTier.open(home, project, agent) as memory:
        say(memory, text, session_id=f"s-{agent}", **options)


@pytest.mark.parametrize("command", ["ask", "recall", "search"])
def test_all_agents_are_searched(home: Path, command: str) -> None:
    """Without --agent the lines of every agent are found, confidences too; it says whose."""
    told(home, "claude-code.main", "The crane is greased on Fridays.")
    told(home, "openclaw.ops", "The crane carries 4 tons.", sender="telegram:7")
    told(home, "codex.main", "Between us: the crane's key hangs behind the clock.", private=True)
    for question, answer in (
        ("When is the crane greased?", "Fridays"),
        ("How many tons does the crane carry?", "4 tons"),
        ("Where does the crane's key hang?", "clock"),
    ):
        shown = run_memtier(command, question).stdout
        assert answer in shown
        assert "claude-code.main, codex.main, openclaw.ops recorded in yard" in shown
    asked = run_json(command, "When is the crane greased?")
    assert asked["reach"]["agents"] == ["claude-code.main", "codex.main", "openclaw.ops"]


def test_an_agent_that_is_named_sees_its_own(home: Path) -> None:
    """--agent recalls as that agent does; where another one has the answer, that is said."""
    told(home, "claude-code.main", "The crane is greased on Fridays.")
    told(home, "codex.main", "The gate is locked at nine.")
    asked = run_json("--agent", "codex.main", "ask", "When is the crane greased?")
    assert not asked["answered"]
    assert asked["reach"]["agents"] == ["codex.main"]
    assert asked["reach"]["elsewhere"] == [{"project": "yard", "agents": ["claude-code.main"]}]


def test_where_something_is(home: Path) -> None:
    """Where nothing is stored on a question, the project and the agent that know it are named."""
    assert "Nothing was recorded in yard yet" in run_memtier("ask", "Where?").stdout
    told(home, "hermes.default", "The ferry to Skagen leaves at seven.", "default")
    told(home, "claude-code.main", "The gate is locked at nine.")
    shown = run_memtier("ask", "When does the ferry to Skagen leave?").stdout
    assert "Nothing about this is stored" in shown
    assert "default has matching lines from hermes.default: memtier --project default" in shown
    before = (home / "projects" / "default" / "journal").exists()
    nothing = run_json("ask", "Which colour has the lighthouse of Hirtshals?")
    assert nothing["reach"]["elsewhere"] == []
    assert (home / "projects" / "default" / "journal").exists() is before is False


def test_a_sender_is_not_everybody(home: Path) -> None:
    """On a shared channel --sender still narrows what is read to that person's lines."""
    told(home, "main", "My badge has the number eleven.", sender="ann")
    told(home, "main", "My badge has the number ninety.", sender="bob")
    shown = run_memtier("ask", "Which number has my badge?", "--sender", "ann").stdout
    assert "eleven" in shown and "ninety" not in shown


def test_a_sender_is_asked_for_wherever_they_spoke(home: Path) -> None:
    """Without --agent, --sender reads what that person said to any agent, and says to which."""
    told(home, "hermes.default", "My badge has the number 11.", sender="ann")
    told(home, "openclaw.main", "My badge has the number 77.", sender="bob")
    told(home, "openclaw.main", "The gate is locked at nine.", sender="ann")
    for question, number, agents in (
        ("Which number has my badge?", "11", ["openclaw.main", "hermes.default"]),
        ("When is the gate locked?", "nine", ["openclaw.main"]),
    ):
        asked = run_json("ask", question, "--sender", "ann")
        lines = [asked["answer"], *(cited["text"] for cited in asked["citations"])]
        assert number in asked["answer"] and "77" not in json.dumps(lines)
        assert asked["reach"]["agents"] == agents
    shown = run_memtier("ask", "When is the gate locked?", "--sender", "ann").stdout
    assert "Searched: what openclaw.main recorded in yard" in shown
    named = run_json("--agent", "openclaw.main", "ask", "Which number?", "--sender", "ann")
    assert named["reach"]["agents"] == ["openclaw.main"] and not named["answered"]
    nobody = run_json("ask", "Which number has my badge?", "--sender", "cleo")
    assert nobody["reach"]["agents"] == ["main"] and not nobody["answered"]


@pytest.fixture
def barn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record in a folder that has no project."""
    (tmp_path / "barn").mkdir()
    monkeypatch.chdir(tmp_path / "barn")
    line = json.dumps({"role": "user", "content": "The barn is painted in May."})
    run_memtier("record", "-", "--session", "s", input=line)


@pytest.mark.usefixtures("barn")
def test_what_was_recorded_before_init(home: Path) -> None:
    """`init` takes what its folder recorded before along, whatever the project is called."""
    [unnamed] = {path.name for path in (home / "projects").iterdir()} - {"yard"}
    long = "barn " + "x" * 200
    done = run_json("--project", long, "init")
    assert unnamed in done["recorded before"] and done["bound"]
    assert "in May" in run_memtier("ask", "When is the barn painted?").stdout
    assert not (home / "projects" / unnamed).exists()
    assert run_json("status")["project"] == long and run_json("status")["entries"] == 1


@pytest.mark.usefixtures("barn")
def test_what_was_recorded_before_stays_where_the_project_is_there() -> None:
    """Two memories are never mixed unasked: it is said where the other one is, and how to move."""
    done = run_json("--project", "yard", "init")
    assert "stays in barn-" in done["recorded before"]
    shown = run_memtier("ask", "When is the barn painted?").stdout
    assert "has matching lines from main: memtier --project barn-" in shown


def test_init_in_a_bound_folder(home: Path, folder: Path) -> None:
    """A folder that gets another project says which it had; the same one again is no change."""
    assert "was" not in run_json("--project", "yard", "init")
    done = run_json("--project", "mill", "init")
    assert done["was"].startswith("yard, whose memory is kept")
    assert "mill, whose memory is kept" in run_memtier("--project", "mill2", "init").stdout
    assert (home / "projects" / "yard").is_dir() and run_json("status")["project"] == "mill2"


def test_the_same_words_once(home: Path) -> None:
    """A sentence said several times is one line of a recall, with how often; in JSON it is all."""
    for agent in ("a", "b", "c"):
        told(home, agent, "The crane is greased on Fridays.")
    told(home, "a", "The crane is painted grey.")
    shown = run_memtier("recall", "crane greased").stdout
    assert shown.count("greased on Fridays") == 1 and "2 more with the same text" in shown
    assert "painted grey" in shown
    assert len(run_json("recall", "crane greased")["hits"]) == 4


def test_why_of_a_search_of_every_agent(home: Path) -> None:
    """What a person's search found is explained to that person, and to no agent."""
    told(home, "codex.main", "Between us: the crane's key hangs behind the clock.", private=True)
    told(home, "claude-code.main", "The crane is greased on Fridays.")
    searched = run_json("recall", "Where does the crane's key hang?")
    why = run_json("explain", searched["id"], "--why", searched["hits"][0]["id"])["why"]
    assert "clock" in why["text"] and why["reason"] != "unknown"
    rights = {"agents.main.read_all": True}
    with MemTier.open(home, "yard", "main", rights) as agent, pytest.raises(NotFound):
        agent.explain(searched["id"])
