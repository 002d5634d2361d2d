"""What the command line says to a person who does not know a command, an id or a name."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_plugin.cli.commands import COMMANDS
from memtier_plugin.memory import MemTier
from memtier_plugin.text.dates.spans import read_typed_time
from tests.builders import say
from tests.cases import each_case
from tests.processes import run_memtier

NOON = datetime(2026, 3, 18, 12, tzinfo=UTC)  # a Wednesday


@pytest.fixture
def yard(home: Path, monkeypatch: pytest.MonkeyPatch) -> MemTier:
    """Return a project with one session, which the commands use."""
    monkeypatch.setenv("MEMTIER_PROJECT", "yard")
    memory = MemTier.open(home, "yard")
    say(memory, "The crane is greased on Fridays.", session_id="crane-1")
    return memory


def test_each_command_is_in_one_section() -> None:
    """The help names every command once, and ten for every day first."""
    named = [name for names in COMMANDS.values() for name in names]
    assert len(named) == len({*named})
    assert len(next(iter(COMMANDS.values()))) == 10
    shown = run_memtier("--help").stdout
    assert shown.index("Every day:") < shown.index("\n  ask") < shown.index("Look closer:")


@pytest.mark.parametrize(
    ("words", "near"),
    [(["remeber", "x"], "remember"), (["serach", "x"], "search"), (["learn", "lgo"], "log")],
)
def test_a_command_that_there_is_not(words: list[str], near: str) -> None:
    """A mistyped command is answered with the nearest one, in groups too; others with none."""
    assert f"Did you mean {near}?" in run_memtier(*words, code=2).output
    assert "Did you mean" not in run_memtier("qqqqqq", code=2).output


@each_case(
    ("text", "day"),
    [
        ("yesterday", "2026-03-17"),
        ("last Friday", "2026-03-13"),
        ("2 days ago", "2026-03-16"),
        ("gestern", "2026-03-17"),
        ("2026-01-02", "2026-01-02"),
        ("3d", "2026-03-15"),
    ],
)
def test_times_as_a_person_types_them(text: str, day: str) -> None:
    """A time is a date, an age, or words that name a day, of which it is the beginning."""
    assert read_typed_time(text, NOON).date().isoformat() == day


@each_case("text", ["soon", "yesterday I was ill", "before 2020", "", "99999999w"])
def test_what_is_no_time(text: str) -> None:
    """Words that name no moment, or more than one, are refused with what would do."""
    with pytest.raises(ValueError, match=r"time like|before the year"):
        read_typed_time(text, NOON)


def test_as_of_yesterday(home: Path, yard: MemTier) -> None:
    """Every option that takes a time takes those words."""
    before = (datetime.now(UTC) - timedelta(days=3)).replace(hour=12)
    with MemTier.open(home, "yard", clock=lambda: before) as then:
        say(then, "The crane is painted grey.", session_id="old")
    hits = json.loads(run_memtier("recall", "crane", "--as-of", "yesterday", "--json").stdout)
    assert [hit["text"] for hit in hits["hits"]] == ["The crane is painted grey."]
    day = json.loads(run_memtier("log", "--date", "3 days ago", "--json").stdout)["lines"]
    assert [line["content"] for line in day if line["kind"] == "entry"] == [
        "The crane is painted grey."
    ]


def test_a_session_that_there_is_not(yard: MemTier) -> None:
    """A session without lines is an error that names the nearest; an empty day is said."""
    refused = run_memtier("log", "--session", "crane-2", code=1).output
    assert "no session 'crane-2' in yard; did you mean crane-1?" in refused
    assert "crane-1" in run_memtier("log", "--session", "nope", code=1).output
    assert "Nothing was recorded on 2020-01-01" in run_memtier("log", "--date", "2020-01-01").stderr


def test_what_can_be_brought_back(yard: MemTier) -> None:
    """`unforget` alone lists what is hidden, each with the id that brings it back."""
    assert "Nothing is forgotten" in run_memtier("unforget").stdout
    run_memtier("forget", "--session", "crane-1", "--yes")
    listed = run_memtier("unforget").stdout
    assert "greased on Fridays" in listed
    [identity] = re.findall(r"^\W*(\w{8})\b.*greased", listed, re.MULTILINE)
    assert "1 restored" in run_memtier("unforget", identity).stdout
    assert "Nothing is forgotten" in run_memtier("unforget").stdout


@pytest.mark.parametrize(
    ("name", "begins"), [("memory.md", "# "), ("memory.jsonl", "{"), ("memory", "{")]
)
def test_an_export_is_what_its_name_says(
    tmp_path: Path, yard: MemTier, name: str, begins: str
) -> None:
    """A file that ends in .md is to be read; another one, to be imported again."""
    run_memtier("export", "--output", tmp_path / name)
    assert (tmp_path / name).read_text().startswith(begins)
    run_memtier("export", "--format", "jsonl", "--output", tmp_path / "as-told.md")
    assert (tmp_path / "as-told.md").read_text().startswith("{")
