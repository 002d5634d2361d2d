"""`memtier demo` holds what it claims, and says so in a page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from memtier_plugin.cli import demo, views
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.memory import MemTier
from tests.processes import run_memtier


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_confidence_would_be_a_fact(folder: Path) -> None:
    """The demo's private line, without the words that make it one, becomes a shared fact."""
    with MemTier.open(folder / "home", agent_id="builder") as memory:
        memory.record([{"role": "user", "content": demo.CONFIDED}], session_id="open")
        memory.record([{"role": "user", "content": demo.PRIVATE}], session_id="private")
        memory.consolidate()
    with MemTier.open(folder / "home", agent_id="reviewer") as reviewer:
        [fact] = reviewer.facts()
    assert "Lagos" in fact.text and {source.session for source in fact.sources} == {"open"}


def test_demo_is_a_page_and_leaves_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo ends well, on a page or two, and its home is one like any other."""
    result = run_memtier("demo")
    assert result.exit_code == 0, result.output
    assert 40 <= len(result.stdout.splitlines()) <= 100
    assert "Every claim held." in result.stdout
    assert demo.PASSWORD not in result.stdout
    options = ("--home", "memtier-demo", "--project", demo.PROJECT, "--agent", "builder", "--json")
    assert all(
        f["level"] != "error"
        for f in json.loads(run_memtier("doctor", *options).stdout)["findings"]
    )
    facts = json.loads(run_memtier("facts", "list", *options).stdout)["facts"]
    assert any("8443" in fact["text"] for fact in facts)
    assert json.loads(run_memtier("log", *options).stdout)["lines"]
    monkeypatch.setenv("MEMTIER_HOME", "memtier-demo")
    monkeypatch.setenv("MEMTIER_PROJECT", demo.PROJECT)
    tries = re.findall(r"^    memtier (.*)$", result.stdout, re.MULTILINE)
    assert len(tries) == 6
    for line in tries:
        run_memtier(*shlex.split(line))


def test_demo_tells_as_json(folder: Path) -> None:
    """With --json the story goes to stderr, and the ids of what it made to stdout."""
    result = run_memtier("demo", "--home", "here", "--json")
    report = json.loads(result.stdout)
    assert Path(report["home"]) == folder / "here" and report["entries"] == 22
    explained = run_memtier(
        "explain",
        report["recall_after"],
        "--home",
        "here",
        "--project",
        demo.PROJECT,
        "--agent",
        "builder",
        "--json",
    )
    weights = [row["weight_then"] for row in json.loads(explained.stdout)["injected"]]
    assert max(weights) > 0 > min(weights)


def test_demo_replaces_only_its_own_folder(folder: Path) -> None:
    """A second demo starts anew; a folder that no demo made is left alone."""
    run_memtier("demo")
    run_memtier("demo")
    precious = folder / "mine"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    refused = run_memtier("demo", "--home", "mine", code=1)
    assert "left alone" in refused.stderr
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_demo_fails_when_a_claim_does_not_hold(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not hold is said in one line, with exit 1."""
    monkeypatch.setattr(demo, "PORT_FACT", "The health check is somewhere.")
    monkeypatch.setattr(
        demo,
        "SESSIONS",
        tuple(
            (*rest, tuple((r, s, text.replace("8443", "some")) for r, s, text in lines))
            for *rest, lines in demo.SESSIONS
        ),
    )
    with pytest.raises(MemTierError, match="does not hold"):
        demo.run(folder / "demo", views.make_console())
