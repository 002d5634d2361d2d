"""Limits warn before they bite, bite without breaking a host, and are never silent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.cli.status import describe_stored
from memtier_plugin.core.errors import LimitReached
from memtier_plugin.core.results import RunContext, RunEvent
from memtier_plugin.hooks.host_hooks import agent_end
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool
from memtier_plugin.storage import protocol

Day = Callable[..., datetime]


def say(memory: MemTier, *texts: str, role: str = "user", run: str | None = None) -> list[str]:
    """Record one run; return what stands in the ledger of it."""
    messages = [{"role": role, "content": text} for text in texts]
    return [e.content for e in memory.record(messages, session_id="s", run_id=run)]


def test_a_long_entry_is_cut_marked_and_told(home: Path) -> None:
    """Beyond the limit an entry ends with what was left out; near it `status` warns."""
    with MemTier.open(home, settings={"limits.entry_chars": 1000}) as memory:
        say(memory, "short " * 10)
        assert memory.status()["warnings"] == []
        say(memory, "x" * 850)
        [near] = memory.status()["warnings"]
        assert "850 is near limits.entry_chars (1000)" in near
        [cut] = memory.record([{"role": "user", "content": "y" * 1010}], session_id="s")
        assert cut.truncated and cut.content == "y" * 1000 + "\n[... 10 characters left out]"
        assert "1 entries were cut off: limits.entry_chars (1000)" in memory.status()["warnings"][0]


def test_a_long_run_keeps_its_beginning(home: Path) -> None:
    """Messages beyond the limit are left out, the log says where, and again it adds nothing."""
    texts = [f"line {n}" for n in range(14)]
    with MemTier.open(home, settings={"limits.run_messages": 10}) as memory:
        contents = say(memory, *texts, run="r")
        assert contents[:10] == texts[:10]
        assert contents[10:] == [
            "[system] The messages of this run after the first 10 were left out."
        ]
        assert say(memory, *texts, "line 14", run="r") == []
        [warning] = memory.status()["warnings"]
        assert "messages of 1 runs were left out: limits.run_messages (10)" in warning
        assert [
            hit.text
            for hit in memory.recall("left out messages of this run").hits
            if "[system]" in hit.text
        ] == []
        say(memory, *texts[:9], run="near")
        assert "9 is near limits.run_messages (10)" in memory.status()["warnings"][0]


@pytest.mark.parametrize("name", ["day_mb", "project_mb"])
def test_a_full_project_refuses_and_says_so(home: Path, name: str) -> None:
    """From four fifths on `status` warns; at the limit nothing is recorded, and recall goes on."""
    with MemTier.open(home, settings={"retrieval.k": 3}) as memory:
        say(memory, "the fox sleeps", *["a" * 20_000] * 2, run="r")
        index = memory.store.index.path
    usage = protocol.measure_usage(memory.folder, index, datetime.now(UTC))
    used = (usage.today if name == "day_mb" else usage.total) / protocol.MB

    def status(most: float) -> dict[str, Any]:
        with MemTier.open(home, settings={f"limits.{name}": most}) as memory:
            return memory.status()

    assert not any("limits." in line for line in status(used * 2)["warnings"])
    assert any(f"(limits.{name})" in line for line in status(used * 1.1)["warnings"])
    assert any("nothing more is recorded" in line for line in status(used * 0.9)["degraded"])
    with MemTier.open(home, settings={f"limits.{name}": used * 1.01}) as memory:
        with pytest.raises(LimitReached, match=rf"limits\.{name}"):
            say(memory, "b" * 60_000)
        assert memory.recall("fox").hits
        assert say(memory, "the fox sleeps", *["a" * 20_000] * 2, run="r") == []  # nothing is new
        assert any("owl" not in e.content for e in memory.entries())


def test_a_host_goes_on_and_is_told(home: Path) -> None:
    """A hook that may not record breaks nothing; `status` has the reason, for its agent."""
    folder = home / "projects" / "p"
    with MemTier.open(home, "p", "a"):
        (folder / "project.yaml").write_text("limits: {project_mb: 0.001}\n")
    context = RunContext(agent_id="a", session_id="s", run_id="r", home=str(home), project="p")
    event = RunEvent(messages=[{"role": "user", "content": "x" * 2000}])
    try:
        agent_end(event, context)
    finally:
        memory_pool.close()
    with MemTier.open(home, "p", "a") as memory:
        assert any("limits.project_mb" in line for line in memory.status()["degraded"])
        assert not list(memory.entries())


def test_disk_use_is_told_by_tier(home: Path) -> None:
    """`status` has the bytes of every tier and of the index, and a person reads them."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        memory.remember("The fox is called Rusty.")
        disk = memory.status()["disk"]
        parts = ("episodic", "semantic", "procedural", "journal", "index")
        assert disk["total"] == sum(disk[name] for name in parts)
        entries = sum(path.stat().st_size for path in memory.folder.glob("episodic/*/*.jsonl"))
        assert disk["today"] == entries <= disk["episodic"]
        stored = f"2 entries, 1 fact from 2 sessions; {protocol.describe_usage(disk)}"
        assert describe_stored(memory.status()) == stored
    assert [protocol.format_bytes(n) for n in (0, 999, 1000, 2.5e6, 3e12)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "2.5 MB",
        "3000.0 GB",
    ]


# -- retention -----------------------------------------------------------------------------------


def world(home: Path, day: Day, **policy: Any) -> MemTier:
    """Return a memory with an entry a day, of two agents, seen ten days later."""
    for number in range(10):
        agent = f"a{number % 2}"
        with MemTier.open(home, "p", agent, clock=lambda n=number: day(n)) as memory:
            say(memory, f"line {number} " + "x" * 500, run=f"r{number}")
    with MemTier.open(home, "p", "a0", clock=lambda: day(3, hours=1)) as memory:
        memory.remember("The fox is called Rusty.")
    settings = {f"retention.{name}": value for name, value in policy.items()}
    return MemTier.open(home, "p", "a0", settings, clock=lambda: day(10))


def left(memory: MemTier) -> set[str]:
    """Return the beginnings of the entries that are not hidden."""
    return {entry.content[:6] for entry in memory.entries()}


@pytest.mark.parametrize(
    ("policy", "remaining"),
    [
        ({}, 10),
        ({"days": 4}, 4),
        ({"entries": 3}, 2),  # and the one that a fact rests on
        ({"mb": 0.005}, 4),
        ({"days": 4, "entries": 2}, 1),
        ({"days": 8, "entries": 9}, 8),
    ],
)
def test_what_goes_beyond_is_forgotten(
    home: Path, day: Day, policy: dict[str, Any], remaining: int
) -> None:
    """The oldest go, of all agents together, by age, number or size; once more changes nothing."""
    with world(home, day, **policy) as memory:
        before = left(memory)
        removed = memory.retain()
        newest = {f"line {n}" for n in range(10 - remaining, 10)}
        assert left(memory) - {"The fo"} == newest
        assert len(removed.entries) == len(before - left(memory))
        assert "The fo" in left(memory) and memory.facts()  # a fact rests on it
        assert memory.retain().entries == ()
        assert (
            not any("line 0" in hit.text for hit in memory.recall("line 0").hits) or remaining == 10
        )
        with MemTier.open(home, "p", "a0", clock=lambda: day(11)) as again:
            assert say(again, "line 0 " + "x" * 500, run="r0") == []  # delivered again
        assert not removed.entries or memory.events(kinds=["retain"])


def test_sources_go_too_if_told_so(home: Path, day: Day) -> None:
    """Without `keep_sources` an old entry takes the facts along that rest on it alone."""
    with world(home, day, days=1, keep_sources=False) as memory:
        removed = memory.retain()
        assert len(removed.facts) == 1 and memory.facts() == []
        assert left(memory) == {"line 9"}


def test_the_background_keeps_to_it(home: Path, day: Day) -> None:
    """The daily job forgets what the project's settings keep no longer."""
    from memtier_plugin.daemon.jobs import sweep_project

    with world(home, day, days=1) as memory:
        sweep_project(memory)
        assert left(memory) == {"line 9", "The fo"}


def test_retention_may_purge(home: Path, day: Day) -> None:
    """With `retention.purge` what goes stands in no file any more."""
    from memtier_plugin.daemon.jobs import sweep_project

    with world(home, day, days=1, purge=True) as memory:
        sweep_project(memory)
        assert left(memory) == {"line 9", "The fo"}
    folder = home / "projects" / "p"
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert any(b"line 9" in text for text in texts)
    assert not any(b"line 3" in text for text in texts)
