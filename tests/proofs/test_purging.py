"""A purge holds what its receipt says, whatever dies and whoever writes meanwhile."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.paths import ProjectFolder
from memtier_plugin.core.records import FactDraft, Source
from memtier_plugin.facts.summaries.job import Summariser
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files
from tests.faults import injection
from tests.processes import child_environment, fork_and_run, fork_python
from tests.proofs.checks import (
    CHILD,
    assert_equal_to_rebuild,
    child,
    content,
    outputs,
    show,
)
from tests.proofs.processes import PROJECT

pytestmark = pytest.mark.slow

PARTS = ("heron", "4471", "Quail", "lantern")  # so that no filter takes it for a key
SECRET = "-".join(PARTS)
SEED = int(os.environ.get("TEST_MEMTIER_SEED", "1"))
OUTSIDE_KILLS = int(os.environ.get("TEST_MEMTIER_KILLS", "12"))
POINTS = (
    "before purge plan", "after purge plan", "part of write episodic", "part of write semantic",
    "part of write journal", "before rename episodic", "before rename journal",
    "after rename episodic", "before unlink purged file", "after unlink purged file",
    "before purge index", "before purge cleaning", "after purge cleaning",
    "before unlink purge plan", "after unlink purge plan",
)  # fmt: skip


def strings(*places: Path) -> int:
    """Return how often the text stands in any file, byte for byte and in any case."""
    count = 0
    for root in places:
        for path in [root] if root.is_file() else root.rglob("*"):
            if path.is_file():
                count += path.read_bytes().lower().count(SECRET.encode().lower())
    return count


def run_of(agent: str) -> list[dict[str, Any]]:
    """Return the run in which an agent hears the text."""
    return [
        {"role": "user", "content": f"I told {agent} that the vault opens with {SECRET} tonight."},
        {"role": "tool", "name": "shell", "content": f"vault --code {SECRET}\nopen", "ok": True},
        {"role": "assistant", "content": f"Noted: {SECRET} opens the vault."},
        {"role": "user", "content": "The tide turns at nine, and the pump runs on diesel."},
    ]


def talk(secret: str) -> list[dict[str, Any]]:
    """Return a talk of enough lines for a summary."""
    lines = [f"We decided that {secret} opens the vault from Monday on, for everybody."]
    lines += [f"We decided to service pump number {n} in week {n}." for n in range(12)]
    return [{"role": "user", "content": line} for line in lines]


def planted(home: Path, outside: Path) -> Iterator[MemTier]:
    """Plant the text in three tiers, two agents, a summary, an export and the journal."""
    for agent in ("one", "two"):
        with MemTier.open(home, PROJECT, agent) as memory:
            recall = memory.recall(f"what opens the vault, {SECRET}?", purpose="inject", run_id="r")
            result = memory.end_run(run_of(agent), session_id="s", run_id="r")
            source = Source(agent=agent, session="s", entry=result.entries[0].id)
            draft = {"subject": "vault", "relation": "opens with", "value": f"{SECRET} {agent}"}
            memory.add_facts(
                [
                    FactDraft(text=f"The vault opens with {SECRET} ({agent}).", sources=(source,),
                              quote=SECRET, **draft),
                    FactDraft(text=f"Run vault --code {SECRET} ({agent}).", sources=(source,),
                              tier="procedural", **draft),
                ]
            )  # fmt: skip
            memory.remember(f"{agent} keeps {SECRET} in mind.")
            memory.recall(SECRET)
            assert recall
    with MemTier.open(home, PROJECT, "one") as memory:
        memory.record(talk(SECRET), session_id="talk", run_id="talk")
        path = outside / "export.jsonl"
        path.write_text("".join(json.dumps(e.to_json()) + "\n" for e in memory.entries()))
        home_files.register_export(memory.folder, path, "jsonl", content=path)
        yield memory


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Iterator[MemTier]:
    """Return one agent's memory in a home where the text is planted."""
    yield from planted(home, tmp_path)


def summarised(memory: MemTier) -> int:
    """Let the session be summed up, later; return how many summaries quote the text."""
    later = datetime.now(UTC) + timedelta(days=3)
    Summariser(replace(memory.actor, clock=lambda: later)).run()
    memory.catch_up()
    items = memory.knowledge.person.facts(include_superseded=True)
    return sum(item.fact.shelf != "" and SECRET in item.fact.text for item in items)


def test_receipt(world: MemTier, home: Path, tmp_path: Path) -> None:
    """Planted in three tiers, two agents, a summary, an export and the journal: gone from all."""
    export = tmp_path / "export.jsonl"
    summaries = summarised(world)
    before = strings(home, export)
    copies = world.purge(SECRET, dry_run=True).copies
    assert strings(home, export) == before  # a dry run changes nothing, and asks nothing
    receipt = world.purge(SECRET)
    counts = [strings(home, export)]
    world.reindex()
    counts.append(strings(home, export))
    new = 0
    for agent in ("one", "two"):
        with MemTier.open(home, PROJECT, agent) as memory:
            new += len(memory.record(run_of(agent), session_id="s", run_id="r"))
            new += len(memory.end_run(run_of(agent), session_id="s", run_id="r").entries)
            hits = memory.recall("what opens the vault?", depth="mixed").hits
            assert not any(SECRET in hit.text for hit in hits)
    world.consolidate()
    counts.append(strings(home, export))
    show(
        "purge of a planted text",
        {
            "copies listed": copies.found, "entries": copies.entries, "facts": copies.facts,
            "experiences": copies.experiences, "summaries": copies.summaries,
            "journal": copies.journal, "quotes": copies.quotes, "vectors": copies.vectors,
            "n-grams": copies.ngrams, "exports": len(copies.exports), "agents": len(copies.agents),
            "strings before": before, "found by the receipt": sum(receipt.found_after.values()),
            "strings after purge": counts[0], "after reindex": counts[1],
            "after re-delivery": counts[2], "re-delivered lines written": new,
        },
    )  # fmt: skip
    assert summaries and copies.summaries == summaries
    assert copies.agents == ["one", "two"] and copies.experiences == 2 and copies.facts >= 4
    assert receipt.gone and counts == [0, 0, 0] and new == 0
    assert any("pump runs on diesel" in e.content for e in world.entries())
    assert export.read_text().count("[purged]") >= 6


def killed(home: Path, point: str) -> int:
    """Let a process purge until it dies at a point; return its exit code."""
    environment = child_environment(**{injection.VARIABLE: point})
    return fork_and_run(CHILD, "purge", home, *PARTS, env=environment).returncode


def test_killed_at_every_step(world: MemTier, home: Path, tmp_path: Path) -> None:
    """Wherever a purge is killed, the next one completes it: nothing found, nothing else lost."""
    world.close()
    (home / "projects" / PROJECT / "index.sqlite3.broken-1").write_text(SECRET)
    export, calm, backup = tmp_path / "export.jsonl", tmp_path / "calm", tmp_path / "kept.jsonl"
    shutil.copytree(home, calm)
    shutil.copy(export, backup)
    deaths, resumed = 0, 0
    expected = None
    for point in POINTS:
        number = 0
        while True:
            number += 1
            shutil.rmtree(home)
            shutil.copytree(calm, home)
            shutil.copy(backup, export)
            code = killed(home, f"{point}:{number}")
            if code == 0:
                break
            assert code == -signal.SIGKILL, f"{point}:{number} ended with {code}"
            deaths += 1
            with MemTier.open(home, PROJECT, "one") as memory:
                begun = memory.store.project_folder.purge_plan.exists()
                if begun:  # who comes next does not know the words
                    resumed += 1
                    assert memory.purger.complete(), f"{point}:{number}"
                    lines = [e.content for e in memory.entries()]
                    assert not any(SECRET in line for line in lines), f"{point}:{number}"
                assert memory.purge(SECRET).gone, f"{point}:{number}"
                texts = sorted((e.id, e.content, e.key) for e in memory.entries())
                items = {row[0]: row[3] for row in content(memory)["items"]}
            assert strings(home, export) == 0, f"{point}:{number}"
            expected = expected or (texts, items)
            assert (texts, items) == expected, f"{point}:{number}"
        assert number > 1, f"{point} was never reached"
    show("killed purges", {"points": len(POINTS), "deaths": deaths, "completed unseen": resumed})
    assert deaths > 15


def killed_from_outside(home: Path, after: float) -> bool:
    """Kill a process so long after its purge's plan is on the disk; tell whether it lived then."""
    plan = ProjectFolder.of(home, PROJECT).purge_plan
    with fork_python(CHILD, "purge", home, *PARTS, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not plan.exists():
            time.sleep(0.001)
        time.sleep(after)
        process.kill()
    return process.returncode == -signal.SIGKILL


def test_killed_from_outside(world: MemTier, home: Path, tmp_path: Path) -> None:
    """Killed at any moment of its rewrite, a purge is completed by who does not know the words."""
    world.close()
    export, calm, backup = tmp_path / "export.jsonl", tmp_path / "calm", tmp_path / "kept.jsonl"
    shutil.copytree(home, calm)
    shutil.copy(export, backup)
    rng, deaths, resumed = random.Random(SEED), 0, 0
    for _ in range(OUTSIDE_KILLS):
        shutil.rmtree(home)
        shutil.copytree(calm, home)
        shutil.copy(backup, export)
        deaths += killed_from_outside(home, rng.random() * 0.4)
        with MemTier.open(home, PROJECT, "one") as memory:
            begun = memory.store.project_folder.purge_plan.exists()
            resumed += begun
            assert memory.purger.complete() or not begun
            assert any("pump runs on diesel" in entry.content for entry in memory.entries())
        assert strings(home, export) == 0
    show("purges killed from outside", {"deaths": deaths, "completed unseen": resumed})
    assert resumed


def test_while_others_write(world: MemTier, home: Path, tmp_path: Path) -> None:
    """Four processes write and recall while a text is purged: no line of theirs is lost."""
    world.close()
    writers = [child("write", home, f"w{number}", 60) for number in range(4)]
    purged = []
    while any(writer.poll() is None for writer in writers) or not purged:
        purged += [json.loads(line) for line in outputs([child("purge", home, *PARTS)])]
    reports = [json.loads(line) for line in outputs(writers)]
    with MemTier.open(home, PROJECT, "main") as memory:
        memory.catch_up()
        written = [entry.run_id for entry in memory.entries(agent="main")]
    show(
        "purging beside writers",
        {
            "purges": len(purged), "runs": len(set(written)), "lines": len(written),
            "unseen": sum(report["unseen"] for report in reports),
            "slowest write ms": max(report["slowest_ms"] for report in reports),
        },
    )  # fmt: skip
    assert len(written) == 4 * 60 * 2 and len(set(written)) == 240
    assert not any(report["unseen"] for report in reports)
    assert strings(home, tmp_path / "export.jsonl") == 0 and all(
        report["gone"] for report in purged
    )
    assert_equal_to_rebuild(home, PROJECT, ["main"], ["bread"], datetime.now(UTC))
