"""`memtier bench code`: the repositories that it builds, and what it counts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from memtier_bench.code_marks import LINES, read_lines, run_code
from memtier_bench.code_repository import COMMITS, build_repository
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import ImportFileError


def test_the_repository(tmp_path: Path) -> None:
    """It has as many commits as it says, its names are as they should be, and a seed is a seed."""
    built = build_repository(tmp_path / "a", 7)
    count = ("git", "-C", str(built.top), "rev-list", "--first-parent", "--count", "HEAD")
    assert int(subprocess.check_output(count)) >= COMMITS
    names = built.names
    for name in ("kept", "again", "moved_new", "twice_new", "inner_moved_new", "folder_new"):
        assert (built.top / names[name]).exists()
    for name in ("gone", "moved", "twice", "lost", "lost_new", "inner", "folder", "dropped"):
        assert not (built.top / names[name]).exists()
    assert build_repository(tmp_path / "b", 7).renamed == built.renamed
    cases = [*read_lines(LINES, built)]
    assert sum(not case.notes for case in cases) > len(cases) / 2


def test_the_marks_of_one_repository(tmp_path: Path) -> None:
    """No mark is wrong, hardly any is missed, and the report has times."""
    file = tmp_path / "report.json"
    result = CliRunner().invoke(
        main, ["bench", "code", "--repositories", "1", "--seed", "7", "--json", str(file)]
    )
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text("utf-8"))
    for counts in report["counts"].values():
        assert counts["wrong"] == 0, report["failures"]
        assert counts["missed"] <= counts["right"] / 20
    assert report["mark_ms"]["p50"] < report["recall_ms"]["p50"]


def test_a_file_of_lines_of_another_form(tmp_path: Path) -> None:
    """It is refused with its name."""
    for text in ("marked: 3", "- a", "marked: []\nunmarked: ['{nothing}']", "a: [", "marked: [a]"):
        file = tmp_path / "lines.yaml"
        file.write_text(text, "utf-8")
        with pytest.raises(ImportFileError, match=r"lines\.yaml"):
            run_code(file, repositories=1)
