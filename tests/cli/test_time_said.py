"""Imported history has its place in time: commands go by when things were said."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.cli.facts import CHANGE_SIGNS
from memtier_plugin.cli.views import short_id
from memtier_plugin.facts.views import EVENT_CHANGES
from tests.builders import write_config
from tests.processes import run_memtier

SAID = {
    "2025-01-10": "I live in Lisbon.",
    "2025-02-10": "The build server is called heron.",
    "2025-06-10": "I live in Porto.",
}
Report = Callable[..., Any]


@pytest.fixture
def report() -> Report:
    """Return what runs a command with --json after conversations of last year were recorded."""
    lines = [
        json.dumps({"role": "user", "content": text, "observed_at": f"{day}T10:00:00Z"})
        for day, text in SAID.items()
    ]
    run_memtier("record", "-", "--session", "old", "--run", "r1", input="\n".join(lines))
    run_memtier("consolidate")
    return lambda *arguments: json.loads(run_memtier(*arguments, "--json").stdout)


def said_in(document: Any) -> list[str]:
    """Return the texts of the entries of a log."""
    return [line["content"] for line in document["lines"] if line["kind"] == "entry"]


def test_log_of_a_day_is_what_was_said_on_it(report: Report) -> None:
    """`log --date` shows what was said that day; with `--written`, what was written."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    for day, text in SAID.items():
        assert said_in(report("log", "--date", day)) == [text]
        assert said_in(report("log", "--date", day, "--written")) == []
    assert said_in(report("log", "--date", today)) == []
    assert said_in(report("log", "--date", today, "--written")) == [*SAID.values()]
    assert said_in(report("log", "--session", "old")) == [*SAID.values()]


def test_log_alone_is_the_newest_day_on_which_something_was_said(report: Report) -> None:
    """Without a day the log is that of the newest thing said, wherever it was imported."""
    assert said_in(report("log")) == ["I live in Porto."]
    assert said_in(report("log", "--written")) == [*SAID.values()]
    shown = run_memtier("log").stdout
    assert "2025-06-10  session old" in shown


def test_diff_counts_what_was_said_in_between(report: Report) -> None:
    """`diff` and `facts diff` tell what was said and learned between two moments of the past."""
    spring = report("diff", "2025-01-01", "2025-03-01")
    assert spring["said"] == {"main": 2}
    assert [change["what"] for change in spring["facts"]] == ["added", "added"]
    summer = report("facts", "diff", "2025-03-01", "2025-07-01")["changes"]
    assert [change["what"] for change in summer] == ["added", "superseded"]
    assert {change["at"][:10] for change in summer} == {"2025-06-10"}
    assert summer[1]["by"]["value"] == "Porto"


def test_written_goes_by_the_time_of_writing(report: Report) -> None:
    """With `--written` what was imported today changed today, and nothing did before."""
    assert report("diff", "2025-01-01", "2025-07-01", "--written")["said"] == {}
    assert report("facts", "diff", "2025-01-01", "2025-07-01", "--written")["changes"] == []
    assert report("diff", "1d", "--written")["said"] == {"main": 3}
    assert report("diff", "1d")["said"] == {}
    assert len(report("facts", "diff", "1d", "--written")["changes"]) == 4


def test_as_of_a_time_before_the_import(report: Report) -> None:
    """`recall --as-of` knows what had been said by then, and not what took its place later."""
    then = report("recall", "Where do I live?", "--as-of", "2025-03-01")["hits"]
    facts = [hit["text"] for hit in then if hit["tier"] == "semantic"]
    assert "The user lives in Lisbon." in facts
    assert not any("Porto" in hit["text"] for hit in then)
    later = report("recall", "Where do I live?", "--as-of", "2025-07-01")["hits"]
    facts = [hit["text"] for hit in later if hit["tier"] == "semantic"]
    assert "The user lives in Porto." in facts and "The user lives in Lisbon." not in facts
    assert report("recall", "Where do I live?", "--as-of", "2025-03-01", "--written")["hits"] == []


def test_ages_count_from_the_time_said(report: Report, home: Path) -> None:
    """With `--at` a line is as old as what was said, not as its import."""
    write_config(home, {"retrieval": {"decay_bypass": 1000}})
    [early] = report("recall", "build server heron", "--at", "2025-02-11", "--limit", "1")["hits"]
    [late] = report("recall", "build server heron", "--at", "2026-02-11", "--limit", "1")["hits"]
    assert early["signals"]["decay"] > late["signals"]["decay"]


def test_revert_tells_what_it_did(report: Report) -> None:
    """Undoing a consolidation and bringing it back each say what was done, once and again."""
    [run] = {change["run"] for change in report("facts", "diff", "2025-01-01")["changes"]}
    assert "3 facts would be undone" in run_memtier("revert", "--run", run, "--dry-run").stdout
    assert "3 facts undone" in run_memtier("revert", "--run", run, "--yes").stdout
    back = ("revert", "--run", run, "--undo")
    assert "3 facts would be restored" in run_memtier(*back, "--dry-run").stdout
    done = run_memtier(*back, "--yes").stdout
    assert "3 facts restored" in done and "undone" not in done
    assert "nothing left to redo" in run_memtier(*back, "--yes").stdout
    recorded = ("revert", "--run", "r1")
    assert "would be taken back" in run_memtier(*recorded, "--dry-run").stdout
    run_memtier(*recorded, "--yes")
    assert "would be restored" in run_memtier(*recorded, "--undo", "--dry-run").stdout


def test_ids_are_shown_and_taken_short(report: Report) -> None:
    """What a person reads has the ends of ids, and each command takes them."""
    recall = report("recall", "Where do I live?")
    fact = next(hit["id"] for hit in recall["hits"] if hit["tier"] == "semantic")
    entry = report("log", "--session", "old")["lines"][0]["id"]
    views = (
        run_memtier("recall", "Where do I live?").stdout,
        run_memtier("log", "--date", "all").stdout,
        run_memtier("explain", short_id(recall["id"])).stdout,
        run_memtier("explain", short_id(recall["id"]), "--why", short_id(entry)).stdout,
        run_memtier("forget", short_id(fact), "--yes").stdout,
        run_memtier("unforget", short_id(fact)).stdout,
        run_memtier("facts", "list").stdout,
    )
    # A block is shown as the prompt got it, with the whole id of its recall.
    shown = "\n".join(views).replace(f'recall="{recall["id"]}"', "")
    assert short_id(fact) in shown and short_id(entry) in shown and short_id(recall["id"]) in shown
    for identity in (fact, entry, recall["id"]):
        assert identity not in shown


def test_every_change_of_a_fact_has_a_sign() -> None:
    """Whatever may happen to a fact can be shown by `diff`."""
    assert {"added", "proposed", *EVENT_CHANGES.values()} <= {*CHANGE_SIGNS}
