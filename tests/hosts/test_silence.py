"""A host that went silent is told of from outside, as it cannot say so itself."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_plugin.hosts import install
from memtier_plugin.hosts.doctor import check_hosts
from memtier_plugin.hosts.presence import describe_silent_hosts, last_use
from memtier_plugin.hosts.project import INSTALLED_FILE
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import HookWait, note_waits
from tests.processes import run_memtier

CALLED = datetime(2026, 3, 2, 9, tzinfo=UTC)
DAY = timedelta(days=1)
# Where the real hosts keep a session, as their versions of this year do.
SESSIONS = {
    "claude-code": ".claude/projects/-work-shop/4f08edb2.jsonl",
    "codex": ".codex/sessions/2026/03/04/rollout-2026-03-04T16-05-12-01a2.jsonl",
    "gemini": ".gemini/tmp/work/chats/session-2026-03-04T16-07-54ad.jsonl",
    "hermes": ".hermes/state.db",
    "openclaw": ".openclaw/agents/main/agent/openclaw-agent.sqlite",
}
# The column of their databases that tells when a session was last written to, and its unit.
TURNS = {
    "hermes": ("messages", "timestamp", 1),
    "openclaw": ("session_nodes", "last_interaction_at", 1000),
}


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a user whose hosts keep their files in the usual places."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "HERMES_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def call(home: Path, host: str, at: datetime) -> None:
    """Note a prompt's hook of a host."""
    note_waits(home, host, [HookWait("p", f"{host}.main", "before_prompt_build", 9)], at)


def use(user: Path, host: str, at: datetime) -> Path:
    """Write to a session of a host, as the host itself does."""
    path = user / SESSIONS[host]
    path.parent.mkdir(parents=True, exist_ok=True)
    if host in TURNS:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA journal_mode = WAL")
            table, column, unit = TURNS[host]
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({column} REAL)")
            seconds = at.timestamp() * unit
            database.execute(f"INSERT INTO {table} VALUES (?)", (seconds,))  # noqa: S608
    else:
        path.write_text("{}\n")
        os.utime(path, (at.timestamp(), at.timestamp()))
    return path


@pytest.mark.parametrize("host", TURNS)
def test_a_database_that_is_only_touched(user: Path, home: Path, host: str) -> None:
    """A turn counts, not what else writes a database; it is read in use, and left as it was."""
    assert last_use(host) is None
    path = use(user, host, CALLED)
    assert last_use(host) == CALLED and [*path.parent.iterdir()] == [path]
    table, column, unit = TURNS[host]
    with closing(sqlite3.connect(path)) as database, database:
        later = (CALLED + DAY).timestamp() * unit
        database.execute(f"UPDATE {table} SET {column} = ?", (later,))  # noqa: S608
        database.commit()
        assert last_use(host) == CALLED + DAY, "what stands in its journal alone"
    path.write_bytes(b"no database")
    assert last_use(host) is None


@pytest.mark.parametrize("host", SESSIONS)
def test_a_host_that_went_silent(user: Path, home: Path, host: str) -> None:
    """Sessions a day after the last call are told of, with both days; earlier ones are not."""
    install.install_host(host, home, "p")
    call(home, host, CALLED)
    for later, is_silent in ((timedelta(hours=3), False), (DAY * 0.9, False), (DAY * 2, True)):
        use(user, host, CALLED + later)
        lines = describe_silent_hosts(home, CALLED + 10 * DAY)
        assert bool(lines) is is_silent, (later, lines)
    assert f"{host} last called MemTier on 2026-03-02 and was used on 2026-03-04" in lines[0]
    call(home, host, CALLED + 3 * DAY)
    assert describe_silent_hosts(home, CALLED + 10 * DAY) == []


def test_hooks_that_never_ran(user: Path, home: Path) -> None:
    """Hooks that the user has not trusted never call: that shows a day after the set-up."""
    install.install_host("codex", home, "p")
    os.utime(home / INSTALLED_FILE, (CALLED.timestamp(), CALLED.timestamp()))
    assert describe_silent_hosts(home, CALLED + 9 * DAY) == []
    use(user, "codex", CALLED + 2 * DAY)
    assert "codex never called it" in describe_silent_hosts(home, CALLED + 9 * DAY)[0]


def test_a_host_that_was_taken_out(user: Path, home: Path) -> None:
    """What the user uninstalled is no alarm; what an update dropped is."""
    install.install_host("claude-code", home, "p")
    call(home, "claude-code", CALLED)
    use(user, "claude-code", CALLED + 2 * DAY)
    (user / ".claude/settings.json").write_text("{}")
    assert describe_silent_hosts(home, CALLED + 9 * DAY)
    install.uninstall_host("claude-code", home)
    assert describe_silent_hosts(home, CALLED + 9 * DAY) == []


def test_who_says_it(user: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` says it as degraded, the commands that people use on stderr, others not at all."""
    monkeypatch.setenv("MEMTIER_PROJECT", "p")
    install.install_host("gemini", home, "p")
    MemTier.open(home, "p").close()
    long_ago = datetime.now(UTC) - 9 * DAY
    call(home, "gemini", long_ago)
    use(user, "gemini", long_ago + 2 * DAY)
    words = "gemini last called MemTier on"
    status = run_memtier("status")
    assert words in status.stdout.replace("\n", " ") and words not in status.stderr
    for command in (["ask", "Where?"], ["recall", "where"], ["search", "where"], ["log"]):
        shown = run_memtier(*command)
        assert words in shown.stderr and words not in shown.stdout
    assert words not in run_memtier("metrics").stderr
    findings = [finding for finding in check_hosts(home) if words in finding.what]
    assert [(f.level, f.remedy) for f in findings] == [("error", "memtier install gemini")]
