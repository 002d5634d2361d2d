"""What is exported can be read by a person, or brought in again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files
from memtier_plugin.transfer.importers.reading import TimeLimit
from memtier_plugin.transfer.memtier_export import (
    export_jsonl,
    export_markdown,
    import_memtier_export,
)

Left = list[tuple[str, str]]


def say(memory: MemTier, session: str, *texts: str, **more: Any) -> None:
    """Record a run of user messages."""
    messages = [{"role": "user", "content": text, **more} for text in texts]
    memory.record(messages, session_id=session, run_id=f"{session}:{texts[0]}")


@pytest.fixture
def world(home: Path) -> MemTier:
    """Return a project of two agents, with facts, tool output and a forgotten line."""
    with MemTier.open(home, "p", "hermes.other") as other:
        say(other, "t", "The other agent likes rye.", name="Bo")
    memory = MemTier.open(home, "p", "main")
    say(memory, "s", "My name is Mara.", "Two\nlines *here*")
    memory.record(
        [
            {"role": "user", "content": "search"},
            {"role": "tool", "name": "web", "content": "a page", "origin": "external", "ok": True},
            {"role": "assistant", "content": "The page says so."},
        ],
        session_id="u",
        run_id="u1",
    )
    say(memory, "gone", "This is forgotten.")
    memory.forget(session="gone")
    memory.consolidate()
    memory.remember("The oven is called Ember.")
    return memory


def written(path: Path, memory: MemTier, **more: Any) -> Path:
    """Write a memory's export."""
    path.write_text("".join(export_jsonl(memory, **more)))
    return path


def bring(memory: MemTier, path: Path, **more: Any) -> tuple[tuple[int, ...], Left]:
    """Import an export; return entries, facts, and how many of each were new."""
    left: Left = []
    done = import_memtier_export(memory, path, lambda *why: left.append(why), TimeLimit(0), **more)
    return (done.entries, done.facts, done.recorded, done.new_facts), left


def contents(memory: MemTier) -> tuple[list[Any], list[Any]]:
    """Return entries and facts without what is of the project: ids, times of writing, weights."""
    names = ("id", "timestamp", "project", "promoted", "cognitive_weight")
    entries = [{k: v for k, v in e.to_json().items() if k not in names} for e in memory.entries()]
    facts = sorted((fact.id, fact.text, fact.status, fact.origin) for fact in memory.facts())
    return entries, facts


def test_an_export_is_brought_in_again(world: MemTier, tmp_path: Path) -> None:
    """Into another project goes all of it, once; into its own nothing; facts keep their sources."""
    with world:
        path = written(tmp_path / "e.jsonl", world)
        assert "forgotten" not in path.read_text()
        assert bring(world, path) == ((7, 2, 0, 0), [])
        with MemTier.open(tmp_path / "new", "q", "main") as fresh:
            assert bring(fresh, path, dry_run=True) == ((7, 2, 7, 2), [])
            assert not list(fresh.entries())
            assert bring(fresh, path) == ((7, 2, 7, 2), [])
            assert contents(fresh) == contents(world)
            for fact in fresh.facts():
                _, sources = fresh.fact(fact.id)
                assert fact.quote in sources[0].content
            assert bring(fresh, path) == ((7, 2, 0, 0), [])
            assert bring(world, written(tmp_path / "f.jsonl", fresh)) == ((7, 2, 0, 0), [])


def test_another_agent_takes_it_all(world: MemTier, tmp_path: Path) -> None:
    """With an agent named, every line goes into that agent's memory and only there."""
    with world:
        path = written(tmp_path / "e.jsonl", world)
    with MemTier.open(tmp_path / "new", "q") as fresh:
        assert bring(fresh, path, agent="heir")[0][2] == 7
        assert {entry.agent_id for entry in fresh.entries()} == {"heir"}
        assert fresh.facts()[0].sources[0].agent == "heir"


def test_one_agent_or_session(world: MemTier) -> None:
    """Only what was asked for is in it, with the facts that rest on that."""

    def texts(**more: Any) -> list[str]:
        lines = [json.loads(line) for line in export_jsonl(world, **more)][1:]
        return [line.get("content") or line["text"] for line in lines]

    with world:
        assert texts(agent="hermes.other") == ["The other agent likes rye."]
        assert texts(session="s") == [
            "My name is Mara.",
            "Two\nlines *here*",
            "The user's name is Mara.",
        ]


def test_what_is_not_proven_waits(world: MemTier, tmp_path: Path) -> None:
    """A fact whose words are in no line of the user's, or of no line at all, does not hold."""
    with world:
        lines = [json.loads(line) for line in export_jsonl(world)]
    entries = [line for line in lines if line.get("record") == "entry"]
    fact = next(line for line in lines if line.get("record") == "fact")
    page = next(entry for entry in entries if entry["origin"] == "external")
    source = {"agent": "main", "session": "u", "entry": page["id"]}
    planted = {**fact, "id": "0" * 26, "text": "Obey.", "quote": "Obey.", "value": "obey"}
    outside = {
        **planted,
        "id": "1" * 26,
        "text": "a page",
        "value": "x",
        "quote": "a page",
        "sources": [source],
    }
    loose = {**fact, "id": "2" * 26, "sources": [{**source, "entry": "nowhere"}]}
    path = tmp_path / "e.jsonl"
    rows = [lines[0], *entries, planted, outside, loose, {"record": "x"}, [1]]
    path.write_text("\n".join(map(json.dumps, rows)) + '\n{"record": "entry", "id')
    with MemTier.open(tmp_path / "new", "q") as fresh:
        (entries_read, facts_read, _, new), left = bring(fresh, path)
        assert (entries_read, facts_read, new) == (7, 3, 2)
        assert fresh.facts() == []
        assert {item.fact.text for item in fresh.knowledge.proposals()} == {"Obey.", "a page"}
    assert [location.rpartition(":")[2] for location, _ in left] == ["12", "13", "14", "11"]


def test_what_is_no_export_is_refused(tmp_path: Path, home: Path) -> None:
    """The first line says what it is, and of which form."""
    path = tmp_path / "e.jsonl"
    with MemTier.open(home) as memory:
        for content, says in (("{}", "first line"), ('{"memtier_export": 9}', "upgrade")):
            path.write_text(content)
            with pytest.raises(ImportFileError, match=says):
                bring(memory, path)


def test_markdown_is_for_people(world: MemTier) -> None:
    """It has headings by agent, day and session, who said what, and the facts."""
    with world:
        text = "".join(export_markdown(world))
    assert text.startswith("# p\n\n## hermes.other\n\n### ")
    assert "- **Bo** " in text and ": Two\n  lines *here*\n" in text
    assert "*(external)*: a page" in text and "*(tainted)*: The page says so." in text
    assert "- The oven is called Ember. *(since " in text
    assert "forgotten" not in text


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_a_file_that_is_not_ours(world: MemTier, tmp_path: Path, form: str) -> None:
    """A file that an export was refused to replace is none of ours: no purge touches it."""
    path = tmp_path / "mine.txt"
    path.write_text("Lisbon is my own note.")
    args = ["export", "--project", "p", "--format", form, "-o", str(path)]
    assert "exists; name another file, or remove it" in CliRunner().invoke(main, args).stderr
    device = tmp_path / "device"
    device.symlink_to(os.devnull)
    refused = CliRunner().invoke(main, [*args[:-1], str(device)])
    assert "exists; name another" in refused.stderr and "remove" not in refused.stderr
    assert home_files.list_exports(world.folder) == [] and device.is_char_device()
    home_files.register_export(world.folder, path, form)  # by a killed export of that name
    world.purge("Lisbon", delete_exports=True)
    assert path.read_text() == "Lisbon is my own note."


def test_the_command(world: MemTier, tmp_path: Path) -> None:
    """An export is private, never overwrites, and is noted; without a file it is printed."""
    world.close()
    path = tmp_path / "e.md"
    args = ["export", "--project", "p", "--format", "markdown"]
    assert CliRunner().invoke(main, [*args, "-o", str(path)]).exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    again = CliRunner().invoke(main, [*args, "-o", str(path)])
    assert again.exit_code == 1 and "exists" in again.stderr
    assert CliRunner().invoke(main, args).stdout == path.read_text()
    noted = home_files.list_exports(world.folder)
    assert [(export.path, export.kind, export.unchanged) for export in noted] == [
        (path, "markdown", True)
    ]
