"""Imports are stable for every format, and a backup made while others write is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.transfer import archive as archives
from memtier_plugin.transfer.archive import restore_backup, verify_backup, write_backup
from memtier_plugin.transfer.memtier_export import export_jsonl
from tests.processes import run_memtier
from tests.proofs.checks import CHILD, PACKAGE, assert_equal_to_rebuild, bad_lines, show
from tests.proofs.processes import PROJECT
from tests.transfer import foreign_exports as made

WRITERS, SECONDS, BACKUPS = 4, 8.0, 4
MANY = 500


def own_export(folder: Path) -> Path:
    """Write an export of our own, of two agents with facts."""
    for agent in ("main", "other"):
        with MemTier.open(folder / "source", "p", agent) as memory:
            for number in range(MANY // 4):
                text = f"My boat {number} of {agent} is called Petrel."
                memory.record([{"role": "user", "content": text}], session_id="s", run_id=text)
            memory.remember(f"The harbour of {agent} is Skagen.")
    path = folder / "export.jsonl"
    with MemTier.open(folder / "source", "p") as memory:
        path.write_text("".join(export_jsonl(memory)), "utf-8")
    return path


EXPORTS: dict[str, Callable[[Path], Path]] = {
    "chatgpt": lambda folder: made.chatgpt_zip(folder / "export.zip", MANY),
    "claude": lambda folder: made.claude_file(folder / "conversations.json", MANY),
    "hermes-memory": lambda folder: made.hermes_home(folder / "hermes"),
    "mem0": lambda folder: made.mem0_file(folder / "mem0.json", MANY),
    "memtier": own_export,
    "openclaw-memory": lambda folder: made.openclaw_workspace(folder / "workspace"),
}


@pytest.mark.slow
def test_every_format_imported_twice(tmp_path: Path, home: Path) -> None:
    """Told by itself, counted before, recorded once; the second run changes no byte."""

    def run(form: str, path: Path, *more: str) -> Any:
        args = ["import", str(path), "--project", form, "--json", *more]
        result = run_memtier(*args)
        return json.loads(result.stdout)

    figures: dict[str, str] = {}
    for form, make in EXPORTS.items():
        path = make(tmp_path)
        dry, first = run(form, path, "--dry-run"), run(form, path)
        folder = home / "projects" / form

        def ledgers(folder: Path = folder) -> dict[Path, bytes]:
            return {p: p.read_bytes() for p in folder.rglob("*.jsonl")}

        before = ledgers()
        second = run(form, path)
        assert (dry["format"], dry["left_out"]) == (form, 0)
        assert dry["new"] == first["recorded"] == first["messages"] > 0
        assert second["recorded"] == 0 and ledgers() == before
        assert bad_lines(folder) == []
        figures[form] = f"{first['messages']} in {first['sessions']} sessions, again 0"
    show("imported twice", figures)


@pytest.mark.slow
def test_backup_while_four_write(home: Path, tmp_path: Path) -> None:
    """Each archive has every entry acknowledged before it, no torn line, and nothing doubled."""
    until, path = tmp_path / "until", os.pathsep.join((str(PACKAGE), *sys.path))
    logs = [tmp_path / f"writer{n}.log" for n in range(WRITERS)]
    writers = []
    for number, log in enumerate(logs):
        role = [sys.executable, str(CHILD), "acknowledge", str(home), f"w{number}", str(until)]
        with log.open("wb") as out:
            environment = {**os.environ, "PYTHONPATH": path}
            writers.append(subprocess.Popen(role, stdout=out, env=environment))
    folder = home / "projects" / PROJECT
    made_at: list[tuple[float, Path, float, float]] = []
    try:
        while not all(log.stat().st_size for log in logs):
            assert all(writer.poll() is None for writer in writers)
            time.sleep(0.05)
        for number in range(BACKUPS):
            time.sleep(SECONDS / BACKUPS)
            with MemTier.open(home, PROJECT) as memory:
                memory.consolidate(limit=50)
            began = time.monotonic()
            archives.freeze_parts(folder)
            held = time.monotonic() - began
            started = time.monotonic()
            dest = tmp_path / f"{number}.tar.gz"
            write_backup(folder, PROJECT, dest, datetime.now(UTC), lambda *_: None)
            made_at.append((started, dest, time.monotonic() - started, held))
    finally:
        until.touch()
    assert [writer.wait(60) for writer in writers] == [0] * WRITERS
    records = [json.loads(line) for log in logs for line in log.read_text().splitlines()]

    missing, acknowledged, entries, torn, dangling = 0, 0, 0, 0, 0
    for number, (started, dest, _, _) in enumerate(made_at):
        assert verify_backup(dest)["project"] == PROJECT
        _, back = restore_backup(dest, tmp_path / f"home{number}")
        torn += len(bad_lines(back))
        torn += sum(not p.read_bytes().endswith(b"\n") for p in back.rglob("*.jsonl"))
        with MemTier.open(tmp_path / f"home{number}", PROJECT) as memory:
            memory.catch_up()
            ids = [entry.id for entry in memory.entries()]
            assert len(ids) == len(set(ids))
            there = set(ids)
            for fact in memory.facts(include_superseded=True):
                dangling += sum(source.entry not in there for source in fact.sources)
            for event in memory.events(kinds=["recall", "promote"], limit=100_000):
                dangling += sum(
                    item not in there and not _is_fact(memory, item)
                    for item in event.data.get("items", ())
                    if isinstance(item, str)
                )
        before = {entry_id for line in records if line["at"] < started for entry_id in line["ids"]}
        missing += len(before - there)
        acknowledged, entries = len(before), len(there)
    assert missing == torn == dangling == 0
    compared = assert_equal_to_rebuild(
        tmp_path / f"home{BACKUPS - 1}",
        PROJECT,
        ["agent-w0"],
        [f"w0x{n} bread" for n in range(10)],
        datetime.now(UTC) + timedelta(days=1),
    )
    show(
        f"{BACKUPS} backups while {WRITERS} write",
        {
            "acknowledged before the last": acknowledged,
            "entries in it": entries,
            "missing": missing,
            "torn lines": torn,
            "references to nothing": dangling,
            "slowest backup ms": round(1000 * max(seconds for _, _, seconds, _ in made_at)),
            "of which writers waited at most ms": round(1000 * max(h for *_, h in made_at)),
            "recalls equal to a rebuild": compared,
        },
    )


def _is_fact(memory: MemTier, item: str) -> bool:
    with memory.store.session() as reader:
        return bool(reader.rows_of([item]))
