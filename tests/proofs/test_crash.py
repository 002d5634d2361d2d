"""A writer that is killed loses nothing that was acknowledged, and breaks nothing."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.paths import iter_ledger_folders
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.transaction import TRANSACTION_FILE
from tests.proofs.checks import assert_equal_to_rebuild, bad_lines, child, outputs, show
from tests.proofs.processes import PROJECT, exchange


def _records(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return every readable line of the ledgers of one kind."""
    records = []
    for ledger_kind, _, where in iter_ledger_folders(folder):
        for path in jsonl.list_day_files(where) if ledger_kind == kind else ():
            for line in path.read_bytes().split(b"\n"):
                try:
                    records.append(json.loads(line))
                except ValueError:
                    continue
    return records


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "kills"),
    [("append", 20), ("journal", 20), ("transaction", 20), ("reindex", 20), ("anywhere", 40)],
)
def test_killed_writers(home: Path, point: str, kills: int) -> None:
    """After so many kills every acknowledged entry, credit and fact is there, and all is read."""
    [printed] = outputs([child("crash", home, point, kills, 1)])
    reports = [json.loads(line) for line in printed.splitlines()]
    assert [report for report in reports if "failed" in report] == []
    killed = [report["killed"] for report in reports if "killed" in report]
    # A writer whose credits are all beyond the day's limit indexes none, and does not die there.
    assert len(killed) == kills and sum(killed) >= 0.7 * kills
    entries = {
        i: text for report in reports if "run" in report for i, text in report["entries"].items()
    }
    credits = {
        (report["run"], item) for report in reports if "run" in report for item in report["credits"]
    }
    facts = {report["fact"] for report in reports if "fact" in report}
    assert entries

    folder = home / "projects" / PROJECT
    torn = bad_lines(folder)
    with MemTier.open(home, PROJECT) as memory:
        memory.recall("bread in the kitchen", run_id="after", purpose="inject")
        memory.end_run(exchange("bread", 1, ok=True), session_id="after", run_id="after")
        memory.catch_up()
        stored = list(memory.entries())
        fact_ids = {fact.id for fact in memory.facts(include_superseded=True)}
        home_files.remove_unfinished(memory.store)  # as the daily sweep does
        reported = memory.store.reader().bad_lines(limit=1000)
        findings = [finding for finding in memory.doctor() if finding.level != "ok"]
        warnings = [warning for warning in memory.status()["warnings"] if "edited" in warning]
    journal = _records(folder, "journal")
    missing = entries.items() - {(entry.id, entry.content) for entry in stored}
    credited = {(e["run_id"], e["item"]) for e in journal if e["kind"] == "credit"}
    assert missing == set()
    assert credits <= credited
    assert facts <= fact_ids
    # What is torn is skipped and named, line by line.  Nothing else is amiss, but that the last
    # kill may have met a write of facts, which the next consolidation completes.
    assert [(name, line) for name, line, _ in reported] == torn
    assert len(torn) <= kills
    interrupted = [finding for finding in findings if finding.where.endswith(TRANSACTION_FILE)]
    assert len(findings) - len(interrupted) == len(torn)
    assert warnings == []
    # Each run has its messages once, also those that were given again after the crash.
    keys = Counter(entry.key for entry in stored)
    assert max(keys.values()) == 1
    for session in {entry.session_id for entry in stored}:
        turns = [entry.turn for entry in stored if entry.session_id == session]
        assert turns == list(range(1, len(turns) + 1))

    queries = [f"writer{n} run1 bread" for n in range(0, kills, 4)]
    at = datetime.now(UTC) + timedelta(days=1)
    compared = assert_equal_to_rebuild(home, PROJECT, ["main"], queries, at)
    show(
        f"{sum(killed)} kills, {point}",
        {
            "acknowledged entries": len(entries),
            "credits": len(credits),
            "facts": len(facts),
            "missing": 0,
            "torn lines": len(torn),
            "entries in all": len(stored),
            "recalls equal to a rebuild": compared,
        },
    )
