"""`memtier edit`: what a person changes in a text becomes events; nothing is edited in place."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from memtier_plugin.memory import MemTier
from tests.builders import START, make_draft, say
from tests.cli.test_cli import document, memtier
from tests.processes import PATIENCE, run_memtier

Editor = Callable[..., None]
DAY = f"{START:%Y-%m-%d}"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of one's own, in the default project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMTIER_PROJECT", "default")
    monkeypatch.delenv("VISUAL", raising=False)


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    """Return what makes $EDITOR replace some words, or run some Python on ``text``."""

    def make(*replaced: tuple[str, str], code: str = "", end: int = 0) -> None:
        script = tmp_path / "editor"
        lines = [
            f"#!{sys.executable}",
            "import pathlib, re, sys",
            "path = pathlib.Path(sys.argv[1])",
        ]
        lines += ["text = path.read_text()", f"for old, new in {replaced!r}:"]
        lines += ["    assert re.search(old, text, re.M), (old, text)"]
        lines += ["    text = re.sub(old, new, text, flags=re.M)", code, "path.write_text(text)"]
        script.write_text("\n".join([*lines, f"sys.exit({end})"]))
        script.chmod(0o700)
        monkeypatch.setenv("EDITOR", str(script))

    return make


def edit(*arguments: str, code: int = 0) -> Result:
    """Run `memtier edit`, and return its result."""
    return run_memtier("edit", *arguments, code=code)


def ledgers(home: Path) -> dict[Path, str]:
    """Return the ledgers' texts."""
    return {path: path.read_text() for path in sorted(home.rglob("*/????-??-??.jsonl"))}


def kept_texts(home: Path) -> list[Path]:
    """Return the texts that were kept."""
    return [*(home / "edits").glob("*/*")]


def test_facts_are_reworded_forgotten_and_added(home: Path, editor: Editor) -> None:
    """A new wording supersedes a fact, a deleted line forgets it, a new one is remembered.

    The ledgers only grow, the old wording can be brought back, and no text is left behind.
    """
    with MemTier.open(home) as memory:
        fox = memory.remember("The fox sleeps in the red barn.")
        tea = memory.remember("Tea is served at four.")
        owl = memory.remember("The owl counts the coins.")
    before = ledgers(home)
    editor(
        ("red barn", "blue barn"),
        (r"^.*Tea is served.*\n", ""),
        (r"\Z", "The hen is called Ada.\n"),
    )
    done = document(edit("facts", "--yes", "--json"))
    assert done["applied"]
    assert [change["what"] for change in done["changes"]] == ["forget", "reword", "add"]
    with MemTier.open(home) as memory:
        assert sorted(fact.text for fact in memory.facts()) == [
            "The fox sleeps in the blue barn.",
            "The hen is called Ada.",
            "The owl counts the coins.",
        ]
        view = memory.knowledge.person.fact(fox.id)
        [reword] = [change for change in done["changes"] if change["what"] == "reword"]
        assert (view.state, view.superseded_by) == ("superseded", reword["new"][0])
        memory.unforget([tea.id])
        assert any(fact.id == tea.id for fact in memory.facts())
        assert memory.knowledge.person.fact(owl.id).state == "active"
    after = ledgers(home)
    assert all(after[path].startswith(text) for path, text in before.items())
    assert kept_texts(home) == []


def test_a_slight_rewording_is_no_restatement(home: Path, editor: Editor) -> None:
    """A wording that differs by a letter takes the place of the old one all the same."""
    with MemTier.open(home) as memory:
        line = say(memory, "The fox works at Acme.")
        [old] = memory.add_facts([make_draft(line, "Acme")])
    editor(("works at Acme", "works at Acme."))
    edit("facts", "--yes")
    with MemTier.open(home) as memory:
        [new] = memory.facts()
        assert (new.text, new.subject, new.relation) == (old.text + ".", old.subject, old.relation)
        assert memory.knowledge.person.fact(old.id).superseded_by == new.id


def test_a_day_is_edited(home: Path, editor: Editor) -> None:
    """A user's new words are recorded in the old ones' place and time, and the old are forgotten.

    A fact that rests on the old words alone goes with them. A new line is the user's, in the
    session of the line above it; other agents' lines are not there with `--agent`.
    """
    with MemTier.open(home, agent_id="a") as memory, MemTier.open(home, agent_id="b") as other:
        wrong = say(memory, "The ferry leaves at seven.\n\n  From pier nine.", session_id="trip",
                    sender="ines", observed_at=START)  # fmt: skip
        say(memory, "Noted.", role="assistant", session_id="trip", run_id="2", observed_at=START)
        say(other, "A line of another agent.", observed_at=START)
        [fact] = memory.add_facts([make_draft(wrong, "seven", text="it leaves at seven")])
    editor(
        ("at seven", "at eight"),
        (r"(Noted\.)\n", r"\1\nAnd back at nine.\n"),
        code="assert 'another agent' not in text",
    )
    done = document(edit(DAY, "--agent", "a", "--yes", "--json"))
    assert [change["what"] for change in done["changes"]] == ["reword", "add"]
    assert sorted(done["changes"][0]["hidden"]) == sorted([wrong.id, fact.id])
    with MemTier.open(home, agent_id="a") as memory:
        entries = {entry.content: entry for entry in memory.entries(agent="a")}
        assert sorted(entries) == [
            "And back at nine.",
            "Noted.",
            "The ferry leaves at eight.\n\n  From pier nine.",
        ]
        new = entries["The ferry leaves at eight.\n\n  From pier nine."]
        assert (new.session_id, new.sender, new.observed_at) == ("trip", "ines", START)
        assert entries["And back at nine."].session_id == "trip"
        assert not memory.facts()


def test_only_a_users_words_are_changed(home: Path, editor: Editor) -> None:
    """What an assistant said can be forgotten, and not be made to be something else."""
    with MemTier.open(home) as memory:
        say(memory, "I never said that.", role="assistant", observed_at=START)
    editor(("never", "always"))
    assert "only lines said by a user" in edit(DAY, "--yes", code=1).stderr
    editor((r"^.*never said.*$", ""))
    edit(DAY, "--yes")
    with MemTier.open(home) as memory:
        assert not [*memory.entries()]


def test_a_refused_text_is_kept(home: Path, editor: Editor) -> None:
    """A text that cannot be understood changes nothing, and is kept, where a purge finds it."""
    with MemTier.open(home) as memory:
        memory.remember("The fox sleeps in the red barn.")
        before = [fact.id for fact in memory.facts()]
    editor((r"\A", "my words\n[nothing] of this\n"))
    error = edit("facts", "--yes", code=1).stderr
    assert "line 2: no line of the original text has the id [NOTHING]" in error
    [path] = kept_texts(home)
    assert str(path) in error and path.read_text().startswith("my words\n")
    assert path.stat().st_mode & 0o777 == 0o600
    with MemTier.open(home) as memory:
        assert [fact.id for fact in memory.facts()] == before
        assert not memory.purge("my words", dry_run=True).gone
        memory.purge("my words")
    assert "my words" not in path.read_text()
    for broken in ("path.write_bytes(b'\\xff'); sys.exit(0)", "sys.exit(3)"):
        editor(code=broken)
        assert "Your text is kept in" in edit("facts", "--yes", code=1).stderr


def test_what_others_changed_meanwhile_is_not_overwritten(
    home: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line forgotten or superseded while it was edited is named, and nothing is changed.

    What others added meanwhile stays: it was not in the text, so that it was not deleted.
    """
    with MemTier.open(home) as memory:
        fox = memory.remember("The fox sleeps in the red barn.")
        owl = memory.remember("The owl counts the coins.")
    command = "[sys.executable, '-m', 'memtier_plugin', {}]"
    other = f"import subprocess; subprocess.run({command}, check=True)"
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    editor(("red barn", "blue barn"), code=other.format(f"'forget', '{fox.id}', '--yes'"))
    error = edit("facts", "--yes", code=1).stderr
    assert re.search(r"line \d+: it was forgotten or rejected meanwhile", error)
    assert "Your text is kept in" in error
    editor(
        ("counts the coins", "sells the coins"),
        code=other.format("'remember', 'The hen is called Ada.'"),
    )
    edit("facts", "--yes")
    with MemTier.open(home) as memory:
        texts = sorted(fact.text for fact in memory.facts())
        assert texts == ["The hen is called Ada.", "The owl sells the coins."]
        assert memory.knowledge.person.fact(owl.id).state == "superseded"


def test_nothing_is_written_without_a_yes(home: Path, editor: Editor) -> None:
    """A dry run shows the changes; without a terminal `--yes` is needed; on one a no keeps all."""
    with MemTier.open(home) as memory:
        memory.remember("The fox sleeps in the red barn.")
    editor(("red barn", "blue barn"))
    shown = edit("facts", "--dry-run").stdout
    assert "~ The fox sleeps in the red barn." in shown and "→ The fox sleeps in the blue" in shown
    assert "1 changes would be written" in shown
    assert "give --yes" in edit("facts", code=2).stderr
    assert kept_texts(home) == []
    master, slave = os.openpty()
    process = memtier("edit", "facts", stdin=slave)
    os.write(master, b"n\n")
    _, errors = process.communicate(timeout=PATIENCE)
    os.close(master)
    os.close(slave)
    assert (
        process.returncode == 1 and "Write these 1?" in errors and "nothing was changed" in errors
    )
    [path] = kept_texts(home)
    assert "blue barn" in path.read_text()
    with MemTier.open(home) as memory:
        assert [fact.text for fact in memory.facts()] == ["The fox sleeps in the red barn."]


def test_nothing_changed_is_no_change(home: Path, editor: Editor) -> None:
    """An editor that is left without changes changes nothing; what is no day is refused."""
    with MemTier.open(home) as memory:
        memory.remember("The fox sleeps in the red barn.")
    editor()
    assert "No changes." in edit("facts", "--yes").stdout
    assert "neither `facts` nor a day" in edit("yesterday-ish", "--yes", code=2).stderr
    assert "nothing to edit" in edit("2020-01-01", "--yes", code=1).stderr
    run_memtier("off")
    editor(("red", "blue"))
    assert "is off" in edit("facts", "--yes", code=1).stderr
