"""Work for the whole project, done once: by machines that die, or stand still, in its middle."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from memtier_papers.hmo.plugin import prioritiser_of
from memtier_plugin.core.events import ForgetEvent, new_event
from memtier_plugin.core.paths import ProjectFolder
from memtier_plugin.core.records import Extractor
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared import store as shared_store
from memtier_plugin.storage.shared.bootstrap import join
from memtier_plugin.storage.shared.postgres.server import connect
from memtier_plugin.storage.shared.protocol import LeaseLost, Unreachable
from tests.builders import MOMENT, START, Clock, say, write_config
from tests.faults import injection
from tests.processes import run_in_fork, running, start_daemon
from tests.shared.server import PostgresServer
from tests.shared.test_replicas import PROJECT, ledgers

pytestmark = pytest.mark.shared

RULES: Final[Extractor] = "rules"
SETTINGS: Final = {
    "embedding": {"model": "none"},
    "retention": {"days": 20, "keep_sources": False},
    "priority": {"enabled": True},
}
LATER: Final = START + timedelta(days=30)
JOBS: Final[Mapping[str, Callable[[MemTier], object]]] = {
    "consolidation": lambda memory: memory.consolidate(extractor=RULES),
    "summaries": lambda memory: memory.summariser.run(),
    "priority": lambda memory: prioritiser_of(memory).run(),
    "retention": lambda memory: memory.retain(),
}
KILLED: Final = f"the child ended with status {int(signal.SIGKILL)}"
# Notes of how much a pass did, which one that goes on where another died has less of.
NOTES: Final = ("summarise", "retain", "prioritise", "consolidate", "recall")


def opened(home: Path, clock: Clock | None = None) -> MemTier:
    """Open the project a month after everything was said."""
    return MemTier.open(home, PROJECT, "a", clock=clock or Clock(LATER, MOMENT))


def say_all(home: Path) -> None:
    """Say what there is to consolidate, to summarise, to rate and to forget."""
    clock = Clock(START, timedelta(minutes=1))
    with opened(home, clock) as memory:
        for day, color in enumerate(("green", "red", "blue")):
            clock.now = START + timedelta(days=14 * day)
            for session in ("s", "t"):
                name = f"{session}{day}"
                for text in (
                    f"My favourite color is {color}.",
                    f"My name is Mia and I live in Lyon, at pier {day}.",
                    "The harbor opens at six, and the red crane moves the boxes.",
                    f"I work at the harbor of {name}.",
                ):
                    say(memory, text, session_id=name, run_id=f"{name} {text}")


def outcome(home: Path) -> tuple[Counter[Any], Counter[Any]]:
    """Return the facts and the effects on items of all ledgers, by their words, not their ids."""
    records = [
        (path.relative_to(home / "projects" / PROJECT).parts[0], json.loads(line))
        for path in sorted((home / "projects" / PROJECT).rglob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if line.strip()
    ]
    texts = {record["id"]: record.get("text") or record.get("content") for _, record in records}
    facts = Counter(
        (ledger, record["relation"], record["subject"], record["value"], record["text"])
        for ledger, record in records
        if ledger in ("semantic", "procedural")
    )
    effects = Counter(
        (record["kind"], texts.get(item, item))
        for ledger, record in records
        if ledger == "journal" and record["kind"] not in NOTES
        for item in record.get("items", ())
        if isinstance(item, str)
    )
    return facts, effects


@pytest.fixture
def homes(postgres: PostgresServer, database: str, tmp_path: Path) -> list[Path]:
    """Return the homes of two machines that share what was said on the first."""
    paths = []
    for name in ("anna", "bert"):
        home = tmp_path / name
        write_config(home, {**SETTINGS, "ledger": {"shared": postgres.url(database, name)}})
        folder = ProjectFolder.of(home, PROJECT)
        folder.make()
        join(folder, PROJECT)
        paths.append(home)
    say_all(paths[0])
    return paths


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """Return a home where the same was said to a machine that shares nothing."""
    home = tmp_path / "alone"
    write_config(home, SETTINGS)
    say_all(home)
    return home


def do(home: Path, job: str, fault: str = "") -> str:
    """Do a job in a process of its own, which dies at a point; return how it failed, or ''."""

    def work() -> None:
        injection.arm(fault)
        with opened(home) as memory:
            JOBS[job](memory)

    return run_in_fork(work)


def pass_a_minute(postgres: PostgresServer, database: str) -> None:
    """Let the leases of who does not renew them end, as a minute does."""
    with connect(postgres.url(database)) as connection:
        connection.execute("UPDATE memtier.leases SET until = '-infinity'")


POINTS: Final = [
    ("consolidation", "after shared append:2"),
    ("consolidation", "before shared commit"),
    ("summaries", "after shared append:2"),
    ("retention", "after shared append"),
]
MORE: Final = [
    ("consolidation", "after shared append"),
    ("consolidation", "part of append semantic"),
    ("consolidation", "after shared commit"),
    ("summaries", "after shared append"),
    ("summaries", "after shared append:3"),
    ("summaries", "part of append semantic:2"),
    ("priority", "after shared append"),
    ("retention", "after shared append:2"),
]


@pytest.mark.parametrize(
    ("job", "fault"), [*POINTS, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)]
)
def test_the_next_completes_what_a_killed_machine_began(
    postgres: PostgresServer,
    database: str,
    homes: list[Path],
    alone: Path,
    job: str,
    fault: str,
) -> None:
    """Whatever the moment of its death, the end is that of a machine that did it all alone."""
    anna, bert = homes
    earlier = ["consolidation"] * (job in ("summaries", "retention"))
    for name in (*earlier, job):
        assert do(alone, name) == ""
    for name in earlier:
        assert do(anna, name) == ""
    assert do(anna, job, fault) == KILLED
    pass_a_minute(postgres, database)
    assert do(bert, job) == ""
    assert do(anna, job) == ""  # it is back
    assert do(bert, job) == ""
    for home in (anna, bert, anna):
        with opened(home) as memory:
            memory.synchronise()
    with opened(anna) as first, opened(bert) as second:
        assert ledgers(first) == ledgers(second)
    (facts, effects), expected = outcome(anna), outcome(alone)
    assert facts == expected[0]
    assert effects == expected[1]


@pytest.mark.parametrize("seconds", [0.0, pytest.param(75.0, marks=pytest.mark.slow)])
def test_who_stood_still_past_its_lease_writes_nothing(
    postgres: PostgresServer, database: str, homes: list[Path], alone: Path, seconds: float
) -> None:
    """A stopped process that goes on after another took over is refused, and changes nothing.

    Args:
        seconds: that pass really; 0 to let the server believe so.
    """
    anna, bert = homes
    reader, writer = os.pipe()
    child = os.fork()
    if not child:

        def stop(name: str) -> None:
            if name == "before shared commit":
                os.kill(os.getpid(), signal.SIGSTOP)

        try:
            vars(shared_store)["pass_point"] = stop
            with opened(anna) as memory:
                JOBS["consolidation"](memory)
            os.write(writer, b"it wrote")
        except BaseException as error:
            os.write(writer, type(error).__name__.encode())
        finally:
            os._exit(0)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    if seconds:
        time.sleep(seconds)
    else:
        pass_a_minute(postgres, database)
    assert do(bert, "consolidation") == do(alone, "consolidation") == ""
    os.kill(child, signal.SIGCONT)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == LeaseLost.__name__.encode()
    for pipe in (reader, writer):
        os.close(pipe)
    with opened(anna) as first, opened(bert) as second:
        first.synchronise()
        assert ledgers(first) == ledgers(second)
    assert outcome(anna) == outcome(alone)


def test_what_was_to_be_purged_by_a_killed_machine_is_purged(
    postgres: PostgresServer, database: str, homes: list[Path]
) -> None:
    """Lines that it had hidden, as they were too old, lose their words by the next sweep."""
    sweep = import_module("memtier_plugin.daemon.jobs").sweep_project
    policy = {**SETTINGS, "retention": {"days": 20, "keep_sources": False, "purge": True}}
    for home in homes:
        where = {"ledger": {"shared": postgres.url(database, home.name)}}
        write_config(home, {**policy, **where})

    def die() -> None:
        injection.arm("before purge plan")
        with opened(homes[0]) as memory:
            sweep(memory)

    assert run_in_fork(die) == KILLED
    pass_a_minute(postgres, database)
    with opened(homes[1]) as memory:
        sweep(memory)
        entries = [logged.entry for logged in memory.store.log.entries() if logged.entry]
    old = [entry for entry in entries if LATER - entry.timestamp > timedelta(days=20)]
    assert old and not any(entry.content for entry in old)
    assert sum(bool(entry.content) for entry in entries) == len(entries) - len(old)


def test_work_waits_while_the_server_is_away(postgres: PostgresServer, homes: list[Path]) -> None:
    """What is written under a lease is not kept for later, when another may have done it."""
    with opened(homes[0]) as memory:
        store = memory.store
        assert store.sharing
        event = new_event(ForgetEvent(items=("x",)), agent="a", at=LATER)
        with store.exclusive("summaries"):
            postgres.stop()
            with pytest.raises(Unreachable):
                store.append_events([event], shared=True)
        store.append_events([event], shared=True)
        postgres.start()
        waiting = [file.path.read_bytes() for file in store.sharing.replica.spooled()]
    assert b"".join(waiting).count(b'"forget"') == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_daemons_that_are_killed_at_work(
    postgres: PostgresServer, database: str, homes: list[Path], alone: Path, seed: int
) -> None:
    """Two machines' daemons, each killed at some moment, do together what is done alone."""
    draw = random.Random(seed)
    kept = {**SETTINGS, "retention": {}}
    for home in (*homes, alone):
        shared = {"ledger": {"shared": postgres.url(database, home.name)}}
        write_config(home, kept if home == alone else {**kept, **shared})
    for home in (alone, alone):
        memtier_daemon(home, "--once").wait(120)
    for kill in range(6):
        with running(memtier_daemon(homes[kill % 2], "--interval", "1")):
            time.sleep(1.0 + 2.0 * draw.random())
        pass_a_minute(postgres, database)
    for home in (*homes, *homes):
        assert memtier_daemon(home, "--once").wait(120) == 0
    with opened(homes[0]) as first, opened(homes[1]) as second:
        for memory in (first, second, first):
            memory.synchronise()
        assert ledgers(first) == ledgers(second)
    (facts, effects), expected = outcome(homes[0]), outcome(alone)
    assert facts and effects
    assert facts == expected[0]
    assert effects == expected[1]


def memtier_daemon(home: Path, *arguments: str) -> subprocess.Popen[Any]:
    """Start a machine's daemon."""
    with (home / "daemon.log").open("ab") as log:
        return start_daemon("--home", str(home), "--project", PROJECT, *arguments, stderr=log)
