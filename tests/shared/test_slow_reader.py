"""A machine that reads slowly hinders nobody, and needs no more memory for more lines."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from memtier_plugin.core.formats import new_id
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.postgres.ledger import PostgresLedger
from memtier_plugin.storage.shared.protocol import BATCH, NewLine, Stream, line_key
from tests.builders import make_entry, say_each, write_config
from tests.processes import PATIENCE, running, start_python, wait_until
from tests.shared.server import PostgresServer
from tests.shared.test_machines import memtier
from tests.shared.test_replicas import PROJECT
from tests.shared.test_snapshots import are_equal, project

pytestmark = [pytest.mark.shared, pytest.mark.slow]

LINES = int(os.environ.get("SLOW_READER_LINES", "20000"))
MOST_MB = 220


def fill(ledger: PostgresLedger, lines: int) -> None:
    """Append entries of an agent."""
    for start in range(0, lines, BATCH):
        batch = []
        for number in range(start, min(lines, start + BATCH)):
            entry = make_entry(
                f"Crane {number} of the harbor is at pier {number % 90}. " + "x" * 300,
                id=new_id(),
                project=PROJECT,
                turn=number + 1,
                key=f"k{number}",
            )
            data = json.dumps(entry.to_json()).encode() + b"\n"
            batch.append(NewLine("2026-03-14", line_key(data), data))
        ledger.append(Stream("episodic", "a"), start, batch)


def test_a_reader_that_stands_still_among_many_lines(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """Stopped among the lines, it holds no transaction open, and others write as fast as ever."""
    import psycopg

    anna, bert = tmp_path / "anna", tmp_path / "bert"
    ledger = PostgresLedger(postgres.url(database, "anna"), PROJECT)
    fill(ledger, LINES)
    for home in (anna, bert):
        where = {"ledger": {"shared": postgres.url(database, home.name)}}
        write_config(home, {**where, "embedding": {"model": "none"}})
    memtier(anna, "shared", "join")
    arguments = ("--home", bert, "--project", PROJECT, "shared", "join")
    with running(start_python("-m", "memtier_plugin", *arguments)) as reader:
        marks = project(bert) / ".shared"
        wait_until(lambda: (marks / "episodic.a.json").exists())
        reader.send_signal(signal.SIGSTOP)
        assert json.loads((marks / "episodic.a.json").read_text())["offset"] < LINES
        time.sleep(0.5)
        with psycopg.connect(postgres.url(database)) as connection:
            [held] = connection.execute(
                """SELECT count(*) FROM pg_stat_activity
                   WHERE usename = 'bert' AND xact_start < now() - interval '0.4 s'"""
            ).fetchall()
        assert held == (0,)
        with MemTier.open(anna, PROJECT, "a") as memory:
            for number in range(10):
                begun = time.monotonic()
                say_each(memory, f"The tide is {number} m high.")
                assert time.monotonic() - begun < PATIENCE / 2
        reader.send_signal(signal.SIGCONT)
        peak = 0
        while reader.poll() is None:
            status = Path(f"/proc/{reader.pid}/status").read_text()
            if "VmHWM:" in status:
                peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
            time.sleep(0.05)
        assert reader.returncode == 0
    assert 0 < peak < MOST_MB
    ledger.close()
    are_equal(anna, bert)
