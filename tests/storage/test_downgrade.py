"""A newer MemTier's lines are read and written; a home of a format not known here is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import __version__
from memtier_plugin.core import formats, paths, plugins
from memtier_plugin.core.errors import HomeTooNew
from memtier_plugin.core.records import Message
from memtier_plugin.core.results import PromptEvent, RunContext, RunEvent
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index import sqlite
from tests.builders import say, user_message
from tests.processes import run_json, run_memtier
from tests.storage.test_index_renewal import newer

NEXT = f"format {paths.FORMAT + 1}"
LATER = {"of a newer one": {"x": [1]}}


def later(line: bytes) -> bytes:
    """Return a line as a newer MemTier might have written it."""
    record: dict[str, Any] = json.loads(line)
    return formats.seal({**record, "schema": record["schema"] + 5, **LATER}) + b"\n"


def test_a_home_of_a_newer_memtier(home: Path) -> None:
    """Lines with fields, kinds and a schema that are not known are read as far as they are.

    They stay byte for byte, and the index is set aside and made anew.
    """
    with MemTier.open(home, "p", "main") as memory:
        memory.record([user_message("The quay is closed on Friday.")], session_id="s", run_id="r")
        fact = memory.remember("The crane is amber.").id
        memory.end_run([user_message("Where is the crane?")], session_id="s", run_id="r2")
        memory.recall("crane")
        expected = {entry.content for entry in memory.entries()}
        index = memory.store.index.path
    folder = index.parent
    ledgers = [*folder.rglob("*.jsonl")]
    assert {path.relative_to(folder).parts[0] for path in ledgers} >= {"episodic", "semantic"}
    for path in ledgers:
        lines = [later(line) for line in path.read_bytes().splitlines()]
        if "journal" in path.parts:
            event = json.loads(lines[-1])
            event |= {"kind": "of a newer one", "id": f"{event['id'][:-2]}ZZ"}
            lines.append(formats.seal(event) + b"\n")
        path.write_bytes(b"".join(lines))
    newer(index)
    before = {path: path.read_bytes() for path in ledgers}

    with MemTier.open(home, "p", "main") as memory:
        assert {entry.content for entry in memory.entries()} == expected
        assert any("amber" in hit.text for hit in memory.recall("crane").hits)
        assert [each.id for each in memory.facts()] == [fact]
        memory.record([user_message("The ferry is late.")], session_id="s", run_id="r3")
        memory.forget(ids=[fact])
        assert [each.text for each in memory.facts()] == []
        wrong = [find for find in memory.doctor() if find.level == "error"]
        assert not wrong
    assert len(sqlite.broken_indexes(index)) == 1
    for path, content in before.items():
        assert path.read_bytes().startswith(content), path


@pytest.fixture
def newer_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home of this version to which a MemTier of the next format has written."""
    with MemTier.open(home, "p", "main") as memory:
        say(memory, "The crane is amber.")
        memory.catch_up()
    with monkeypatch.context() as newer:
        newer.setattr(paths, "FORMAT", paths.FORMAT + 1)
        newer.setattr(paths, "__version__", "9.1.0")
        with MemTier.open(home, "p", "main") as memory:
            say(memory, "The quay is closed.")
    (home / "config.yaml").write_text("a key of later: 1\n")
    return home


def contents(home: Path) -> dict[Path, bytes]:
    """Return the files of a home."""
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_a_home_of_a_newer_format_is_refused(newer_home: Path, tmp_path: Path) -> None:
    """Each command names both formats and versions in one sentence, and changes nothing."""
    before = contents(newer_home)
    run = tmp_path / "run.json"
    run.write_text('[{"role": "user", "content": "The ferry is late."}]')
    for command in (
        ("status",),
        ("recall", "crane"),
        ("record", run, "--session", "s"),
        ("init",),
        ("reindex",),
        ("config", "show"),
    ):
        refused = run_memtier("--home", newer_home, "--project", "p", *command, code=1)
        known = f"format {paths.FORMAT}: upgrade"
        for part in (NEXT, "MemTier 9.1.0", f"MemTier {__version__}", known):
            assert part in refused.stderr, command
        assert refused.stderr.count("\n") == 1
    assert contents(newer_home) == before
    (finding,) = (
        each
        for each in json.loads(
            run_memtier("--home", newer_home, "--json", "doctor", "--skip-hosts", code=1).stdout
        )["findings"]
        if each["level"] == "error"
    )
    assert NEXT in finding["what"] and finding["remedy"].startswith("upgrade it")


@pytest.mark.usefixtures("drained")
def test_a_host_goes_on_at_a_newer_home(
    newer_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its hooks answer nothing, and log once why; nothing is written."""
    monkeypatch.setenv("MEMTIER_HOME", str(newer_home))
    before = contents(newer_home)
    context = RunContext(agent_id="main", session_id="s", run_id="r", project="p")
    hook = plugins.manager().hook
    for _ in range(2):
        assert hook.before_prompt_build(event=PromptEvent(prompt="crane?"), context=context) is None
        event = RunEvent(messages=(Message(role="user", content="The ferry is late."),))
        hook.agent_end(event=event, context=context)
    logged = [record for record in caplog.records if "before_prompt_build" in record.getMessage()]
    assert len(logged) == 1 and NEXT in caplog.text
    assert contents(newer_home) == before


@pytest.mark.parametrize("name", ["SessionStart", "UserPromptSubmit", "Stop"])
def test_a_coding_agent_goes_on_at_a_newer_home(newer_home: Path, name: str) -> None:
    """Its hook ends well, with JSON; a prompt's tells the user why there is no memory."""
    before = contents(newer_home)
    event = json.dumps({"session_id": "s", "hook_event_name": name, "prompt": "The crane?"})
    done = run_memtier("--home", newer_home, "hook", "claude-code", input=event)
    assert NEXT in done.stderr
    answer = json.loads(done.stdout)
    assert NEXT in answer["systemMessage"] if name == "UserPromptSubmit" else answer == {}
    assert contents(newer_home) == before


def test_a_home_upgraded_under_an_open_memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has it open already writes no more to it."""
    with MemTier.open(home, "p", "main") as memory:
        say(memory, "The crane is amber.")
        with monkeypatch.context() as newer:
            newer.setattr(paths, "FORMAT", paths.FORMAT + 1)
            MemTier.open(home, "p", "main").close()
        with pytest.raises(HomeTooNew):
            say(memory, "The quay is closed.")


@pytest.mark.parametrize("marker", [b"", b"This folder is a home of MemTier.\n", b"\xff\0format x"])
def test_a_marker_without_a_format(home: Path, marker: bytes) -> None:
    """A home of an earlier version has format 1; its marker stays as it is until that changes."""
    MemTier.open(home, "p", "main").close()
    path = home / paths.HOME_MARKER
    assert path.read_text().splitlines()[1] == f"format {paths.FORMAT}, by MemTier {__version__}"
    path.unlink()
    path.write_bytes(marker)
    with MemTier.open(home, "p", "main") as memory:
        say(memory, "The crane is amber.")
    assert path.read_bytes() == marker
    assert run_json("--home", home, "--project", "p", "status")["entries"] == 1
