"""`memtier demo` holds what it claims, and says so in a page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from memtier_plugin.cli import demo, views
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import MemTierError


def play(*args: str) -> Result:
    """Run a command and pass on what it did not expect."""
    result = CliRunner().invoke(main, args)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_demo_is_a_page_and_leaves_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo ends well, on a page or two, and its home is one like any other."""
    result = play("demo")
    assert result.exit_code == 0, result.output
    assert 40 <= len(result.stdout.splitlines()) <= 100
    assert "All of it held." in result.stdout
    assert demo.PASSWORD not in result.stdout
    place = ("--home", "memtier-demo", "--project", demo.PROJECT, "--agent", "builder", "--json")
    assert all(f["level"] != "error" for f in json.loads(play("doctor", *place).stdout)["findings"])
    facts = json.loads(play("facts", "list", *place).stdout)["facts"]
    assert any("8443" in fact["text"] for fact in facts)
    assert json.loads(play("log", *place).stdout)["lines"]
    monkeypatch.setenv("MEMTIER_HOME", "memtier-demo")
    monkeypatch.setenv("MEMTIER_PROJECT", demo.PROJECT)
    tries = re.findall(r"^    memtier (.*)$", result.stdout, re.MULTILINE)
    assert len(tries) == 6
    for line in tries:
        assert play(*shlex.split(line)).exit_code == 0, line


def test_demo_tells_as_json(folder: Path) -> None:
    """With --json the story goes to stderr, and the ids of what it made to stdout."""
    result = play("demo", "--home", "here", "--json")
    made = json.loads(result.stdout)
    assert Path(made["home"]) == folder / "here" and made["entries"] == 20
    told = play(
        "explain",
        made["recall_after"],
        "--home",
        "here",
        "--project",
        demo.PROJECT,
        "--agent",
        "builder",
        "--json",
    )
    weights = [row["weight_then"] for row in json.loads(told.stdout)["injected"]]
    assert max(weights) > 0 > min(weights)


def test_demo_replaces_only_its_own_folder(folder: Path) -> None:
    """A second demo starts anew; a folder that no demo made is left alone."""
    assert play("demo").exit_code == 0
    assert play("demo").exit_code == 0
    precious = folder / "mine"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    refused = play("demo", "--home", "mine")
    assert refused.exit_code == 1 and "left alone" in refused.stderr
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
