"""`memtier bench shared`: what it measures, on a real server, and that it leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtier_bench.cli.shared import shared
from memtier_bench.shared import PARTS
from memtier_plugin.storage.shared.postgres.server import connect
from tests.processes import run_memtier
from tests.shared.nats import NatsServer
from tests.shared.server import PostgresServer

pytestmark = pytest.mark.shared


def measure(postgres: PostgresServer, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run the benchmark on a server and return its report; nothing of it is left there."""
    file = folder / "report.json"
    outputs = ("--json", str(file), "--markdown", str(folder / "report.md"))
    url = postgres.url("postgres")
    done = run_memtier("bench", "shared", "--url", url, *arguments, *outputs)
    assert "PostgreSQL" in done.output and (folder / "report.md").exists()
    with connect(url) as connection:
        for query in (
            "SELECT datname FROM pg_database WHERE datname LIKE 'memtier_bench%'",
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'memtier_bench%'",
        ):
            assert connection.execute(query.encode()).fetchall() == []
    report = json.loads(file.read_text())
    assert isinstance(report, dict)
    return report


def test_appends_are_measured(postgres: PostgresServer, database: str, tmp_path: Path) -> None:
    """Every row appends all of its lines; the server's database and roles are gone after it."""
    sizes = ("--lines", "40", "--writers", "2", "--batches", "2")
    [row] = measure(postgres, tmp_path, "--only", "appends", *sizes)["appends"]
    assert (row["writers"], row["batch"], row["lines"]) == (2, 2, 40)
    assert row["lines_per_s"] > 0 and row["append_ms"]["p95"] >= row["append_ms"]["p50"] > 0


@pytest.mark.slow
def test_the_whole_benchmark(postgres: PostgresServer, database: str, tmp_path: Path) -> None:
    """Nothing is lost, doubled or different, and recalls send the server no statement."""
    sizes = ("--machines", "2", "--runs", "6", "--recalls", "10", "--lines", "20")
    more = ("--writers", "1", "--batches", "2", "--catch-up", "30")
    report = measure(postgres, tmp_path, *sizes, *more)
    assert {*PARTS} <= {*report}
    part = report["machines"]
    assert part["acknowledged"] == part["stored"] == 24
    for name in ("lost", "doubled", "sessions_out_of_order", "files_different"):
        assert part[name] == 0, name
    assert part["queries_with_hits"] > 0 == part["recalls_different"]
    assert part["recalls_different_after_rebuild"] == 0
    assert part["recalls"]["statements"] in (0, None)
    assert report["lag"]["seen"] == report["lag"]["runs"]
    rows = [(row["way"], row["indexed"]) for row in report["catch-up"]]
    assert rows == [("replay", 30), ("snapshot", 30)]
    copy = report["catch-up"][1]
    assert (copy["files_different"], copy["recalls_different"]) == (0, 0) < (copy["files"],)


@pytest.mark.slow
def test_another_engine(nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS is measured by the same command, and left as it was."""
    monkeypatch.setenv("NATS_PASSWORD", "owner")
    file = tmp_path / "report.json"
    sizes = ("--machines", "2", "--runs", "4", "--recalls", "4", "--lines", "8", "--writers", "1")
    only = ("--only", "machines", "--only", "appends", "--batches", "2")
    run_memtier("bench", "shared", "--url", nats.url(), *only, *sizes, "--json", str(file))
    report = json.loads(file.read_text())
    part, [row] = report["machines"], report["appends"]
    assert part["acknowledged"] == part["stored"] == 16 and row["lines"] == 8
    assert part["lost"] == part["files_different"] == part["recalls_different"] == 0
    assert not [*(nats.folder / "store").rglob("*bench-*")]


def test_the_command_names_every_part() -> None:
    """`--only` takes the parts that the benchmark has."""
    [option] = [each for each in shared.params if each.name == "only"]
    assert getattr(option.type, "choices", None) == PARTS
