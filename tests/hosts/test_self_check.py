"""What `memtier self-check` tries of an installation, and that it names what is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memtier_plugin.hosts import self_check
from memtier_plugin.storage.index.sqlite import describe_engine
from tests.processes import run_memtier


def test_the_engine() -> None:
    """SQLite and its full-text search are tried and named."""
    versions = describe_engine()
    assert [*versions] == ["apsw", "sqlite", "fts5"] and all(versions.values())


def test_requirements_by_extra() -> None:
    """Packages are grouped by the extra that asks for them; those of a checkout are left out."""
    requirements = [
        "click>=8.1.7",
        "model2vec[distill,quantization]>=0.10; extra == 'distill'",
        'mcp<3,>=2.3; extra == "mcp"',
        'PyStemmer>=2.2.0.3; python_version >= "3.11"',
        'pytest>=8.2; extra == "dev"',
        'tomli; python_version < "3.11" and extra == "mcp"',
    ]
    assert self_check.group_requirements(requirements) == {
        "": ["click", "PyStemmer"],
        "distill": ["model2vec"],
        "mcp": ["mcp", "tomli"],
    }


def test_a_package_that_cannot_be_imported() -> None:
    """What an import raises, in whatever process, is one line."""
    assert self_check._import_all(["json", "memtier_plugin"]) == ""
    problem = self_check._import_all(["json", "memtier_that_is_not_there"])
    assert problem == "ModuleNotFoundError: No module named 'memtier_that_is_not_there'"


def test_locks_and_memory(tmp_path: Path) -> None:
    """Locks between processes, a write and a recall are tried for real."""
    [locks] = self_check._check_locks(tmp_path)
    [memory] = self_check._check_memory(tmp_path / "home")
    assert locks.level == memory.level == "ok", (locks, memory)


@pytest.mark.slow
def test_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is well here, and no home is made; a command that is gone is an error, and exit 1."""
    document = json.loads(run_memtier("--home", home, "self-check", "--json").output)
    assert document["ok"] and not home.exists()
    whats = " ".join(finding["what"] for finding in document["findings"])
    assert "the resident starts" in whats and "the daemon starts" in whats
    monkeypatch.setattr(self_check, "launch_command", lambda: ["/nowhere/memtier"])
    broken = json.loads(run_memtier("--home", home, "self-check", "--json", code=1).output)
    errors = [f for f in broken["findings"] if f["level"] == "error"]
    assert [f["what"].partition(":")[0] for f in errors] == ["the resident", "the daemon"]
    assert all(f["remedy"] for f in errors)
