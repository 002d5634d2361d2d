"""One bad line, however made, costs that line only: every reader goes on, and `doctor` names it."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.formats import is_intact, seal
from memtier_plugin.core.records import SCHEMA
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.transfer.memtier_export import export_jsonl
from tests.builders import user_message
from tests.proofs.checks import show
from tests.storage.tampering import TAMPERINGS

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SEED = int(os.environ.get("TEST_MEMTIER_SEED", "1"))
SETTINGS = {"embedding.model": "none", "consolidation.probes": 0, "ledger.durability": "os"}
LEDGERS = ("episodic", "semantic", "procedural", "journal")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with entries, facts, experiences and events of many kinds."""
    home = tmp_path_factory.mktemp("tampering") / "home"
    with MemTier.open(home, "p", settings=SETTINGS) as memory:
        memory.record([user_message("I live in Lisbon. I work at Acme.")], session_id="s1")
        tests = {"role": "tool", "name": "shell", "content": "1 failed", "exit_code": 1}
        memory.record([user_message("Run the tests."), tests], session_id="s2", run_id="r2")
        memory.consolidate(extractor="rules")
        memory.record([user_message("I live in Porto now.")], session_id="s3", sender="ann")
        memory.record([user_message("I like tea.")], session_id="s5", sender="bob")
        memory.consolidate(extractor="rules")
        memory.recall("Where do I live?", purpose="inject", session_id="s4", run_id="r4")
        answer = {"role": "assistant", "content": "You live in Porto."}
        memory.end_run([user_message("Where do I live?"), answer], session_id="s4", run_id="r4")
        fact = memory.remember("The locker is number 7.")
        memory.forget(ids=[fact.id])
        memory.people.link(["ann", "bob"])
    return home


def lines_of(home: Path) -> list[tuple[Path, int, bytes]]:
    """Return (file, number, line without its end) of every ledger line."""
    folder = home / "projects" / "p"
    return [
        (path, number, line)
        for path in sorted(folder.rglob("*.jsonl"))
        if path.relative_to(folder).parts[0] in LEDGERS
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1)
    ]


def readers(memory: MemTier) -> dict[str, Callable[[], object]]:
    """Return everything that reads ledgers, by name."""
    return {
        "recall": lambda: memory.recall("Where do I live?", purpose="inject", session_id="s9"),
        "unindexed": lambda: memory.store.unindexed_entries("main"),
        "entries": lambda: [*memory.entries()],
        "facts": lambda: memory.facts(include_superseded=True),
        "consolidate": lambda: memory.consolidate(extractor="rules"),
        "ask": lambda: memory.ask("Where do I live?"),
        "export": lambda: [*export_jsonl(memory)],
        "log": lambda: ([*memory.store.log.events()], [*memory.store.log.entries()]),
        "status": memory.status,
        "summaries": memory.summariser.run,
        "people": lambda: memory.people.everybody(),
        "diff": lambda: memory.history.diff(LONG_AGO),
        "past": lambda: memory.history.recall("Porto", datetime.now(UTC)),
        "record": lambda: memory.record([user_message("I like tea.")], session_id="s3"),
        "end": lambda: memory.end_run([user_message("Tea.")], session_id="s4", run_id="r4"),
        "purge": lambda: memory.purge("nothing says this"),
        "reindex": memory.reindex,
    }


def tampered(home: Path, copy: Path, seed: int) -> tuple[Path, int, str]:
    """Copy a home and change one line of it; return where, and how."""
    shutil.copytree(home, copy)
    random_ = random.Random(seed)
    path, number, line = random_.choice(lines_of(copy))
    tampering = random_.choice(TAMPERINGS)
    changed = tampering(line, random_)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[: number - 1], changed, *lines[number:]]))
    return path, number, f"{tampering.__name__} of {changed[:300]!r}"


def check(home: Path, folder: Path, seed: int, most: int | None = None) -> None:
    """Tamper with a line, look whether `doctor` names it, and let readers read the rest."""
    path, number, how = tampered(home, folder / "copy", seed)
    memory = MemTier.open(folder / "copy", "p", settings=SETTINGS)
    with memory:
        findings = memory.doctor()
        where = {f"{path}:{number}", f"{path}:{number + 1}"}  # a line in two is two
        assert any(f.level == "error" and f.where in where for f in findings), (seed, how, findings)
        lines = [line for file, n, line in lines_of(folder / "copy") if f"{file}:{n}" not in where]
        reading = [*readers(memory).items()]
        some = reading if most is None else random.Random(seed).sample(reading, most)
        for name, read in some:
            try:
                read()
            except MemTierError as error:
                pytest.fail(f"{seed}: {name} failed with {error!r}: {how}")
        kept = {entry.content for entry in memory.entries()}
        spoken = {json.loads(line).get("content") for line in lines} - {None}
        assert spoken <= kept, (seed, how)
    shutil.rmtree(folder / "copy")


@pytest.mark.parametrize("seed", range(6))
def test_a_bad_line_costs_that_line(written: Path, tmp_path: Path, seed: int) -> None:
    """Every reader goes on after one line was changed, and `doctor` names file and line."""
    check(written, tmp_path, 1000 * SEED + seed)


@pytest.mark.slow
def test_tampered_ledgers(written: Path, tmp_path: Path) -> None:
    """Of 500 tampered ledgers, drawn by TEST_MEMTIER_SEED [1], each is named, and all are read."""
    for seed in range(500):
        check(written, tmp_path, 1_000_000 * SEED + seed, most=3)
    show("tampered ledgers", {"tampered": 500, "named": 500, "tracebacks": 0})


def test_checksums() -> None:
    """A line is intact as it was written, padded or old; changed anywhere, or bare, it is not."""
    line = seal({"schema": SCHEMA, "id": "1", "content": "Grüße \ud800"})
    assert is_intact(line) and is_intact(line + b"   \n") and jsonl.is_record(line)
    assert is_intact(b'{"schema": 1, "id": "1"}') and is_intact(b'{"id": "1"}')
    assert not is_intact(b'{"schema": 2, "id": "1"}')
    for at in range(len(line)):
        for bit in range(8):
            changed = bytes([*line[:at], line[at] ^ (1 << bit), *line[at + 1 :]])
            assert not (is_intact(changed) and jsonl.is_record(changed)), changed


def test_a_torn_line_is_no_error(tmp_path: Path) -> None:
    """What a crash cut off was never acknowledged: `doctor` names it, and does not exit 1."""
    with MemTier.open(tmp_path / "home", "p", settings=SETTINGS) as memory:
        memory.record([user_message("The boat is red.")], session_id="s1")
        [path] = (memory.folder / "episodic" / "main").glob("*.jsonl")
        path.write_bytes(path.read_bytes() + path.read_bytes()[:99])
        memory.record([user_message("The boat is blue.")], session_id="s1")
        [finding] = [f for f in memory.doctor() if f.where == f"{path}:2"]
        assert finding.level == "warn" and "cut off" in finding.what
        contents = [entry.content for entry in memory.entries()]
        assert contents == ["The boat is red.", "The boat is blue."]
