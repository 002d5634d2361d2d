"""Every error at the terminal names the next step: a command, or the file and line to mend."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from memtier_plugin.cli.main import main
from memtier_plugin.memory import MemTier
from tests.builders import say
from tests.processes import PATIENCE, run_memtier

ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
# A command in backticks, click's pointer to the help, or a file with its line.
NAMES_NEXT = re.compile(r"`[^`]+`|Try 'memtier [^']*--help'|\.\w+:\d+")
Prepare = Callable[[Path, pytest.MonkeyPatch], None]


def files(_home: Path, _patch: pytest.MonkeyPatch) -> None:
    """Leave files that cannot be imported, restored or recorded."""
    Path("talk.txt").write_text("no speaker here\n")
    Path("empty.json").write_text("[]")
    Path("half.json").write_text("[{")
    Path("bytes.json").write_bytes(b"\xff\xfe\x00")
    Path("list.json").write_text('[{"role": "robot", "content": "Hello."}]')
    Path("backup.zip").write_text("no archive")


def settings(text: str) -> Prepare:
    """Return what writes these settings."""

    def write(home: Path, _patch: pytest.MonkeyPatch) -> None:
        (home / "config.yaml").write_text(text)

    return write


def without(module: str, *packages: str) -> Prepare:
    """Return what hides packages from a module of MemTier."""

    def hide(_home: Path, patch: pytest.MonkeyPatch) -> None:
        def find(name: str) -> object:
            return None if name in packages else object()

        patch.setattr(f"memtier_plugin.{module}.find_spec", find)

    return hide


def home_is_a_file(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Name a file as the home."""
    Path("file").write_text("")
    patch.setenv("MEMTIER_HOME", str(Path("file").absolute()))


def home_is_foreign(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Name a folder with something else as the home."""
    Path("theirs").mkdir()
    Path("theirs/notes.txt").write_text("mine")
    patch.setenv("MEMTIER_HOME", str(Path("theirs").absolute()))


def home_is_a_link(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Name a symlink as the home."""
    Path("real").mkdir()
    Path("link").symlink_to("real")
    patch.setenv("MEMTIER_HOME", str(Path("link").absolute()))


def switched_off(_home: Path, _patch: pytest.MonkeyPatch) -> None:
    """Switch the project off."""
    run_memtier("off")


def index_is_a_folder(home: Path, _patch: pytest.MonkeyPatch) -> None:
    """Leave a folder where the index should be."""
    for path in (home / "projects/yard").glob("index.sqlite3*"):
        path.unlink()
    (home / "projects/yard/index.sqlite3").mkdir()


def log_is_a_folder(home: Path, _patch: pytest.MonkeyPatch) -> None:
    """Leave a folder where a ledger's file should be, which no one can append to."""
    [ledger] = (home / "projects/yard/episodic/main").glob("*.jsonl")
    ledger.unlink()
    ledger.mkdir()


WRONG: list[tuple[str, Prepare | None]] = [
    # Commands and arguments
    ("qqqqqq", None),
    ("remeber x", None),
    ("recall ferry --limit 0", None),
    ("recall ferry --as-of soon", None),
    ("log --date 2026-99-99", None),
    ("log --date 20000y", None),
    ("diff soon", None),
    ("diff 2026-03-14 2026-03-01", None),
    ("forget", None),
    ("purge", None),
    ("consolidate --all --dry-run", None),
    ("install nohost", None),
    ("install --dry-run", None),
    ("edit nothing --dry-run", None),
    ("export --html", None),
    ("restore", None),
    ("serve --certificate a.pem", None),
    ("mcp", None),
    # What there is not
    ("--project nope log", None),
    (f"explain {ID}", None),
    ("explain x", None),
    (f"facts show {ID}", None),
    ("facts timeline weather", None),
    (f"review --accept {ID}", None),
    (f"forget {ID} --yes", None),
    ("forget --session nope --yes", None),
    ("forget --query zebra --yes", None),
    (f"unforget {ID}", None),
    (f"purge {ID} --yes", None),
    ("purge --session nope --yes", None),
    ("log --session nope", None),
    ("private nope", None),
    (f"todo --done {ID}", None),
    ("revert --run nope", None),
    ("token revoke nope", None),
    ("people link Ann", None),
    ("people unlink Ann", None),
    ("shared status", None),
    ("share", None),
    ("share --git", None),
    # Files
    ("import missing.txt --format text", None),
    ("import talk.txt --format text", files),
    ("import talk.txt", files),
    ("import empty.json", files),
    ("import half.json --format openai", files),
    ("record missing.json --session s", None),
    ("record half.json --session s", files),
    ("record bytes.json --session s", files),
    ("record list.json --session s", files),
    ("restore missing.zip", None),
    ("restore backup.zip", files),
    ("backup nowhere/to/b.tar.gz", None),
    ("export --output nowhere/to/e.jsonl", None),
    ("serve --tcp 127.0.0.1:0 --certificate missing.pem", None),
    ("distill any taken", lambda _home, _patch: Path("taken").mkdir()),
    # Settings
    ("status", settings("retrieval: [\n")),
    ("status", settings("retrieval:\n  kk: 7\n")),
    ("status", settings("retrieval:\n  k: many\n")),
    ("status", settings("retrieval:\n  k: 7\n  k: 8\n")),
    ("status", settings("- a list\n")),
    ("embed", settings("embedding:\n  model: endpoint:none/m\n")),
    ("embed", settings("embedding:\n  model: nowhere/at-all\n")),
    ("recall crane", lambda _home, patch: patch.setenv("MEMTIER_RETRIEVAL__KK", "7")),
    # What is missing, or in the way
    ("tui", without("cli.screens", "textual")),
    ("web", without("cli.screens", "jinja2")),
    ("serve --tcp 127.0.0.1:0", without("cli.serve", "uvicorn")),
    ("--project yard mcp", without("hosts.coding_agents", "mcp")),
    ("remember x", home_is_a_file),
    ("init", home_is_a_file),
    ("init", home_is_foreign),
    ("init", home_is_a_link),
    ("remember x", switched_off),
    ("recall crane", index_is_a_folder),
    ("remember x", log_is_a_folder),
]


@pytest.fixture
def yard(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder whose project has one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMTIER_PROJECT", "yard")
    with MemTier.open(home, "yard") as memory:
        say(memory, "The crane is greased on Fridays.", session_id="crane-1")
    return home


@pytest.mark.parametrize(("line", "prepare"), WRONG)
def test_an_error_names_the_next_step(
    yard: Path, monkeypatch: pytest.MonkeyPatch, line: str, prepare: Prepare | None
) -> None:
    """It is a message on stderr with a command or a file and line, an exit code, no traceback."""
    if prepare:
        prepare(yard, monkeypatch)
    if line == "mcp":
        monkeypatch.delenv("MEMTIER_PROJECT")
    result = CliRunner().invoke(main, line.split(), prog_name="memtier")
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2) and result.stdout == ""
    assert NAMES_NEXT.search(result.stderr), result.stderr


def test_the_daemon_names_it_too(yard: Path) -> None:
    """The daemon, which logs its errors, names the next command as well."""
    words = ("-m", "memtier_plugin", "--home", yard, "--project", "nope", "daemon", "--once")
    refused = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "`memtier init`" in refused.stderr and "Traceback" not in refused.stderr
