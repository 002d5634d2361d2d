"""A home in which a newer MemTier has written is read and written by this one; nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memtier_plugin.core import formats
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index import sqlite
from tests.builders import user_message
from tests.storage.test_index_renewal import newer

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
