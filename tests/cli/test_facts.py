"""`memtier facts`, as a person and as a script use it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from memtier_plugin.memory import MemTier
from tests.cli.test_cli import document, memtier
from tests.facts.test_service import FARO, LISBON, PORTO, TEA, WAITS, World
from tests.processes import PATIENCE, run_memtier

Run = Callable[..., Result]


@pytest.fixture
def world(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a project of this folder, and work there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMTIER_PROJECT", "default")
    return World(home)


@pytest.fixture
def run(world: World) -> Run:
    """Return ``run(*args, input=None, code=0)``: call `memtier facts` and check its exit code."""

    def call(*args: str, input: str | None = None, code: int = 0) -> Result:
        group = [] if args[0] == "revert" else ["facts"]  # which undoes recorded runs too
        return run_memtier(*group, *args, input=input, code=code)

    return call


def test_list_and_search(world: World, run: Run) -> None:
    """The list has what holds, newest first; `--all` what does not, `--subject` one subject."""
    world.memory()
    assert "No facts yet" in run("list").stdout
    world.consolidate("r1", LISBON, TEA)
    world.consolidate("r2", PORTO, WAITS._replace(subject="Tomas"))
    listed = document(run("list", "--json"))["facts"]
    assert [(f["value"], f["state"]) for f in listed] == [
        ("Porto", "active"),
        ("green tea", "active"),
    ]
    every = document(run("list", "--all", "--subject", "INES", "--json"))["facts"]
    assert {f["value"]: f["state"] for f in every} == {
        "Porto": "active",
        "green tea": "active",
        "Lisbon": "superseded",
    }
    assert [f["subject"] for f in document(run("list", "--proposed", "--json"))["facts"]] == [
        "Tomas"
    ]
    listing = document(run("search", "what tea", "--json"))
    assert listing["facts"][0]["value"] == "green tea" and listing["facts"][0]["score"] > 0
    assert "green tea" in run("search", "tea").stdout
    assert "No facts found" in run("search", "zzzzzz").stdout


def test_show_has_the_source_lines(world: World, run: Run) -> None:
    """A fact is shown with each line it rests on: when, whose, file and line, the quote marked."""
    [fact] = world.consolidate("r1", TEA._replace(agent="a", private=True))
    shown = run("show", fact.id[-8:]).stdout
    assert "2026-01-07 09:00  a/s  episodic/a/" in shown and re.search(r"\.jsonl:1 ", shown)
    assert "Well, ⟦Ines likes green tea⟧, on 2." in shown
    assert "private to" in shown
    details = document(run("show", fact.id, "--json"))
    assert details["fact"]["run"] == "r1" and details["reviews"] == []
    [source] = details["sources"]
    start, end = source["mark"]
    assert source["line_of"]["content"][start:end] == "Ines likes green tea"
    assert "no entry or fact has an id" in run("show", "ZZZZZZZZ", code=1).stderr


def test_review_lists_and_decides(world: World, run: Run) -> None:
    """What waits is listed with its reason; ids given are accepted and rejected."""
    first, two = world.consolidate("r1", WAITS, TEA._replace(status="proposed", origin="external"))
    output = run("review").stdout
    assert (
        "Ines lives_in Porto" in output and "it was said by a tool" in output and "2 wait" in output
    )
    done = document(
        run("review", "--accept", first.id[-8:], "--reject", two.id, "--why", "no", "--json")
    )
    assert [(d["id"], d["now"]) for d in done["decided"]] == [
        (first.id, "active"),
        (two.id, "rejected"),
    ]
    assert "Nothing awaits review" in run("review").stdout
    assert "by main: no" in run("show", two.id).stdout


def test_review_asks_a_person(world: World) -> None:
    """On a terminal each thing is asked for in turn; quitting keeps what was decided."""
    facts = world.consolidate(
        "r1",
        WAITS,
        TEA._replace(status="proposed"),
        LISBON._replace(subject="Tomas", relation="knows", status="proposed"),
    )
    world.close()
    master, slave = os.openpty()
    process = memtier("review", stdin=slave)
    os.write(master, b"a\nr\nq\n")
    out, errors = process.communicate(timeout=PATIENCE)
    os.close(master)
    os.close(slave)
    assert process.returncode == 0, errors
    assert "1 of 3" in errors and "Well, ⟦" in errors and "1 wait" in out
    with MemTier.open(world.home) as memory:
        states = [memory.knowledge.fact(fact.id).state for fact in facts]
    assert sorted(states) == ["active", "proposed", "rejected"]


def test_review_decides_alike_ones_at_once(world: World) -> None:
    """What waits for one reason is one question; `o` asks one by one, `e` takes a new wording."""
    alike = [WAITS._replace(subject=name) for name in ("Ines", "Tomas", "Berta")]
    world.consolidate("r1", *(each._replace(value=f"{each.subject}burg") for each in alike))
    tea = TEA._replace(status="proposed")
    world.consolidate("r2", tea, tea._replace(value="mate"))
    world.close()
    master, slave = os.openpty()
    process = memtier("review", stdin=slave)
    os.write(master, b"a\no\nr\ne\nInes likes cocoa\n")
    out, errors = process.communicate(timeout=PATIENCE)
    os.close(master)
    os.close(slave)
    assert process.returncode == 0, errors
    assert "3 alike" in errors and "1 of 5" not in errors and "5 of 5" in errors
    assert "Nothing awaits review" in out
    with MemTier.open(world.home) as memory:
        held = {(f.subject, f.value) for f in memory.facts()}
    assert held == {
        ("Ines", "cocoa"),
        ("Ines", "Inesburg"),
        ("Tomas", "Tomasburg"),
        ("Berta", "Bertaburg"),
    }


def test_review_edits_by_id(world: World, run: Run) -> None:
    """`--edit ID TEXT` puts the text in the place of a fact that waits, and no other."""
    [fact] = world.consolidate("r1", WAITS)
    changed = document(run("review", "--edit", fact.id[-8:], "Ines lives_in Faro", "--json"))
    [done] = changed["decided"]
    assert done["superseded"] == [fact.id] and changed["left"] == 0
    shown = document(run("show", done["id"], "--json"))
    assert (shown["fact"]["value"], shown["fact"]["origin"]) == ("Faro", "user")
    assert shown["sources"][0]["line_of"]["session_id"] == "reviewed"
    assert "does not wait" in run("review", "--edit", fact.id, "Ines naps", code=1).stderr


def test_diff(world: World, run: Run) -> None:
    """The changes since a moment are told with texts; a moment may be a date or as long ago."""
    world.consolidate("r1", LISBON)
    world.consolidate("r2", PORTO)
    report = document(run("diff", "2026-01-01", "2027-01-01", "--json"))
    assert [(c["what"], c["fact"]["value"]) for c in report["changes"]] == [
        ("added", "Lisbon"),
        ("added", "Porto"),
        ("superseded", "Lisbon"),
    ]
    assert report["changes"][2]["by"]["value"] == "Porto"
    shown = run("diff", "2026-01-01", "2027-01-01").stdout
    assert "- superseded" in shown and "→ Ines lives_in Porto" in shown
    assert "added 2, superseded 1" in shown
    since = document(run("diff", "2d", "1h", "--json"))["since"]
    assert since.endswith("Z")
    assert "is not a time" in run("diff", "lately", code=2).stderr
    assert "earlier one first" in run("diff", "1h", "2d", code=1).stderr


def test_revert_and_runs(world: World, run: Run) -> None:
    """A dry run tells what undoing a run takes; undoing does that; the list of runs says so."""
    world.consolidate("r1", LISBON)
    world.consolidate("r2", PORTO)
    plan = document(run("revert", "--run", "r2", "--dry-run", "--json"))
    assert [f["text"] for f in plan["facts"]] == ["Ines lives_in Porto"]
    assert [f["text"] for f in plan["restored"]] == ["Ines lives_in Lisbon"]
    assert not plan["reverted"] and plan["entries"] == 1
    assert "1 facts would be undone" in run("revert", "--run", "r2", "--dry-run").stdout
    assert world.standing()[0][2] == "Porto"
    assert "+ holds again: Ines lives_in Lisbon" in run("revert", "--run", "r2", "--yes").stdout
    assert [f["value"] for f in document(run("list", "--json"))["facts"]] == ["Lisbon"]
    runs = document(run("runs", "--json"))["runs"]
    assert [(row["run"], bool(row["reverted"])) for row in runs] == [("r2", True), ("r1", False)]
    assert "undone" in run("runs").stdout
    assert "no consolidation 'r7'" in run("revert", "--run", "r7", code=1).stderr


def test_revert_asks_a_person(world: World) -> None:
    """On a terminal nothing is undone without a yes."""
    world.consolidate("r1", LISBON)
    world.close()
    master, slave = os.openpty()
    process = memtier("revert", "--run", "r1", stdin=slave)
    os.write(master, b"n\n")
    _, errors = process.communicate(timeout=PATIENCE)
    os.close(master)
    os.close(slave)
    assert process.returncode == 1 and "Ines lives_in Lisbon" in errors and "Aborted" in errors


def test_timeline(world: World, run: Run) -> None:
    """The values of a subject over time are told by relation, each with its end."""
    world.consolidate("r1", LISBON, TEA)
    world.consolidate("r2", FARO)
    output = run("timeline", "ines").stdout
    assert "2026-01-06 – 2026-01-10  × Ines lives_in Lisbon" in output
    assert re.search(r"2026-01-10 – now +Ines lives_in Faro", output)
    values = [f["value"] for f in document(run("timeline", "Ines", "--json"))["facts"]]
    assert values == ["green tea", "Lisbon", "Faro"] or values == ["Lisbon", "Faro", "green tea"]
    assert "no facts about" in run("timeline", "Berta", code=1).stderr


def test_every_command_answers_in_json(world: World, run: Run) -> None:
    """With `--json` each prints one document and nothing else, also when it refuses."""
    [fact] = world.consolidate("r1", TEA)
    for args in (
        ["list"],
        ["search", "tea"],
        ["show", fact.id],
        ["review"],
        ["diff", "1d"],
        ["runs"],
        ["revert", "--run", "r1", "--dry-run"],
        ["timeline", "Ines"],
    ):
        assert isinstance(json.loads(run(*args, "--json").stdout), dict)
    refused: Any = document(run("show", "ZZZZZZZZ", "--json", code=1))
    assert refused["kind"] == "NotFound"
