"""How long hooks held a host is known from the host's own side, resident or not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtier_plugin.cli.main import main
from memtier_plugin.core.results import PromptEvent, RunContext
from memtier_plugin.hooks import host_hooks
from memtier_plugin.hooks.hermes import Provider
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import (
    MAX_NOTED,
    SLOWEST_DAYS,
    HookWait,
    note_waits,
    read_waits,
)
from tests.processes import PATIENCE, run_command

SHIM = Path(__file__).parents[2] / "hooks" / "openclaw"
AGENT = "hermes.default"
NOBODY = ["/nowhere/memtier"]
Day = Callable[..., datetime]
node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


def status(home: Path, project: str = "p") -> dict[str, Any]:
    """Return what `memtier status` says."""
    with MemTier.open(home, project) as memory:
        return memory.status()


def calls(*milliseconds: int, hook: str = "agent_end") -> list[HookWait]:
    """Return calls that took so long; those of zero got no answer."""
    return [HookWait("p", AGENT, hook, ms, answered=bool(ms)) for ms in milliseconds]


def test_last_and_slowest(home: Path, day: Day) -> None:
    """Of any number of calls the last and the slowest are kept, and how many got no answer."""
    note_waits(home, "hermes", calls(30, 0, 400, 20), day(0))
    note_waits(home, "hermes", calls(40), day(1))
    mark = read_waits(home, "p")[AGENT]["agent_end"]
    assert (mark["last_ms"], mark["slowest_ms"], mark["calls"], mark["failed"]) == (40, 400, 5, 1)
    assert mark["slowest_at"] == mark["last_failed"] < mark["last"]


def test_the_slowest_of_late(home: Path, day: Day) -> None:
    """A bad day long ago is no longer told of."""
    note_waits(home, "hermes", calls(4000), day(0))
    note_waits(home, "hermes", calls(30), day(SLOWEST_DAYS))
    assert read_waits(home, "p")[AGENT]["agent_end"]["slowest_ms"] == 4000
    note_waits(home, "hermes", calls(30), day(SLOWEST_DAYS + 1))
    assert read_waits(home, "p")[AGENT]["agent_end"]["slowest_ms"] == 30


def test_the_file_stays_small(home: Path, day: Day) -> None:
    """However many agents there were, the file keeps those heard of last; it is the user's own."""
    for number in range(MAX_NOTED + 5):
        note_waits(home, "openclaw", [HookWait("p", f"openclaw.{number}", "agent_end", 1)], day(0))
    waits = read_waits(home, "p")
    assert len(waits) == MAX_NOTED
    assert "openclaw.4" not in waits
    assert "openclaw.5" in waits
    assert (home / "hosts" / "openclaw.waits.json").stat().st_mode & 0o777 == 0o600


def test_each_project_its_own(home: Path) -> None:
    """A project's status tells of its own hosts, and of those whose folder decides."""
    now = datetime.now(UTC)
    waits = [HookWait(name, f"a.{name}", "agent_end", 1) for name in ("p", "q", None)]
    note_waits(home, "openclaw", waits, now)
    assert status(home)["waits"].keys() == {"a.p", "a.None"}


def test_processes_at_once(home: Path) -> None:
    """Several processes of a host note at the same time, and no call goes missing."""
    pipes = [ResidentClient(NOBODY, home) for _ in range(4)]
    threads = [
        threading.Thread(
            target=lambda p=p: [p.note_wait("hermes", call) for call in calls(*range(1, 21))]
        )
        for p in pipes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_waits(home, "p")[AGENT]["agent_end"]["calls"] == 80


def test_a_disk_that_takes_nothing(home: Path) -> None:
    """What could not be kept is kept with the next call; nobody is told, nothing is raised."""
    pipe = ResidentClient(NOBODY, home)
    home.mkdir(mode=0o700)
    (home / "hosts").write_text("in the way")
    pipe.note_wait("hermes", *calls(70))
    (home / "hosts").unlink()
    pipe.note_wait("hermes", *calls(30))
    mark = read_waits(home, "p")[AGENT]["agent_end"]
    assert (mark["calls"], mark["last_ms"], mark["slowest_ms"]) == (2, 30, 70)


@pytest.mark.parametrize("text", ["{", "{}", "[1, null]", '[{"agent": "a", "calls": "many"}]'])
def test_a_file_that_is_no_file_of_ours(home: Path, text: str) -> None:
    """A damaged file breaks neither status nor the host's next call."""
    path = home / "hosts" / "hermes.waits.json"
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_text(text)
    assert status(home)["waits"] == {}
    note_waits(home, "hermes", calls(5), datetime.now(UTC))
    assert status(home)["waits"][AGENT]["agent_end"]["last_ms"] == 5


def test_without_a_resident(home: Path, tmp_path: Path) -> None:
    """Where no resident can be started, status still tells how long Hermes waited, and for what."""
    config = {"command": NOBODY, "home": str(home), "project": "p"}
    (tmp_path / "memtier.json").write_text(json.dumps(config))
    provider = Provider()
    provider.initialize("s", hermes_home=str(tmp_path), agent_identity="work")
    provider.on_turn_start(1, "Where is my bag?")
    assert provider.prefetch("Where is my bag?") == ""
    provider.sync_turn("Where is my bag?", "I do not know.")
    provider.shutdown()
    report = status(home)
    waits = report["waits"]["hermes.work"]
    assert waits.keys() == {"before_prompt_build", "agent_end"}
    assert [(wait["calls"], wait["failed"]) for wait in waits.values()] == [(1, 1), (1, 1)]
    for hook in waits:
        assert f"hermes.work {hook}: the last of 1 calls got no answer, 1 in all" in str(
            report["degraded"]
        )
    note_waits(
        home, "hermes", [HookWait("p", "hermes.work", hook, 9) for hook in waits], datetime.now(UTC)
    )
    later = status(home)
    assert [wait["failed"] for wait in later["waits"]["hermes.work"].values()] == [1, 1]
    assert later["degraded"] == []


def test_a_host_in_python(home: Path) -> None:
    """A host that calls the hooks itself has its milliseconds in the hooks' own note."""
    context = RunContext(agent_id="mine.main", project="p", home=str(home))
    host_hooks.before_prompt_build(PromptEvent(prompt="Where is my bag?"), context)
    host_hooks.workers.drain(10)
    mark = status(home)["hooks"]["mine.main"]["before_prompt_build"]
    assert 0 <= mark["last_ms"] == mark["slowest_ms"]


def test_in_the_table(home: Path) -> None:
    """`memtier status` shows what is known of each hook; the host's word comes first."""
    with MemTier.open(home, "p") as memory:
        memory.note_hook(AGENT, "agent_end", ok=True, ms=7)
        memory.note_hook("mine.main", "session_end", ok=True, ms=11)
    now = datetime.now(UTC)
    note_waits(home, "hermes", [*calls(4321), *calls(0, 35, hook="before_prompt_build")], now)
    note_waits(home, "hermes", calls(1234), now + timedelta(seconds=1))
    shown = CliRunner().invoke(main, ["--home", str(home), "--project", "p", "status"]).output
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in shown.splitlines()}
    assert rows[AGENT, "agent_end"] == ["just", "now", "1234", "4321", "2"]
    assert rows[AGENT, "before_prompt_build"] == ["just", "now", "35", "35", "2", "1"]
    assert rows["mine.main", "session_end"] == ["just", "now", "11", "11", "1"]


@node
def test_both_sides_keep_the_same(home: Path, day: Day) -> None:
    """JavaScript keeps of the same calls what Python keeps."""
    waits = [*calls(30, 0, 400, 20), *calls(5, hook="before_prompt_build"), *calls(9)]
    days = [0, 0, 1, 2, 3, SLOWEST_DAYS + 2]
    for wait, number in zip(waits, days, strict=True):
        note_waits(home, "hermes", [wait], day(number))
    noted = [
        {"project": w.project, "agent": w.agent, "hook": w.hook, "ms": w.ms, "answered": w.answered}
        for w in waits
    ]
    code = (
        f"import {{ recordWait }} from {json.dumps(str(SHIM / 'waits.js'))};"
        f"const waits = {json.dumps(noted)}, days = {json.dumps(days)}; let known = [];"
        f"waits.forEach((wait, n) => (known = recordWait(known, wait,"
        f" new Date({day(0).timestamp() * 1000} + days[n] * 86400000))));"
        "console.log(JSON.stringify(known));"
    )
    ours = json.loads((home / "hosts" / "hermes.waits.json").read_text())
    assert json.loads(run_command("node", "--input-type=module", "-e", code).stdout) == ours


@node
def test_openclaw_without_a_resident(home: Path) -> None:
    """OpenClaw's side keeps its calls too, several processes at once, where none answers."""
    config = json.dumps({"command": NOBODY, "home": str(home), "project": "p"})
    turns = [
        subprocess.Popen(
            ["node", Path(__file__).parents[1] / "shim" / "turn.mjs", config, "2"],
            stdout=subprocess.PIPE,
            env=os.environ,
        )
        for _ in range(3)
    ]
    for turn in turns:
        turn.communicate(timeout=PATIENCE)
    assert [turn.returncode for turn in turns] == [0, 0, 0]
    mark = status(home)["waits"]["openclaw.main"]["agent_end"]
    assert (mark["calls"], mark["failed"]) == (6, 6)
    names = {path.name for path in (home / "hosts").iterdir()}
    assert names == {"openclaw.waits.json"}
    assert (home / "hosts" / "openclaw.waits.json").stat().st_mode & 0o777 == 0o600


@node
def test_a_lock_of_a_dead_process(home: Path) -> None:
    """A process of OpenClaw that died while it noted keeps no other from noting for long."""
    lock = home / "hosts" / ".openclaw.waits.lock"
    lock.parent.mkdir(parents=True, mode=0o700)
    lock.touch()
    os.utime(lock, (0, 0))
    code = (
        f"import {{ Waits }} from {json.dumps(str(SHIM / 'waits.js'))};"
        f"await new Waits({json.dumps(str(home))})"
        ".note({ agent: 'openclaw.main', hook: 'agent_end', ms: 3, answered: true });"
    )
    run_command("node", "--input-type=module", "-e", code)
    assert read_waits(home, "p")["openclaw.main"]["agent_end"]["last_ms"] == 3
    assert not lock.exists()


@node
def test_a_recall_is_noted_later(home: Path) -> None:
    """The note of a recall costs its turn nothing: it is written soon after, or with the next."""
    code = (
        f"import {{ Waits }} from {json.dumps(str(SHIM / 'waits.js'))};"
        "import { existsSync } from 'node:fs';"
        f"const waits = new Waits({json.dumps(str(home))}), agent = 'openclaw.main';"
        "waits.later({ agent, hook: 'before_prompt_build', ms: 3, answered: true });"
        "const file = waits.folder + '/openclaw.waits.json', early = existsSync(file);"
        "for (let n = 0; !existsSync(file) && n < 100; n++)"
        " await new Promise((done) => setTimeout(done, 50));"
        "waits.later({ agent, hook: 'before_prompt_build', ms: 4, answered: true });"
        "await waits.note({ agent, hook: 'agent_end', ms: 5, answered: true });"
        "console.log(early);"
    )
    assert run_command("node", "--input-type=module", "-e", code).stdout.strip() == "false"
    waits = read_waits(home, "p")["openclaw.main"]
    assert [(hook, wait["calls"], wait["last_ms"]) for hook, wait in waits.items()] == [
        ("before_prompt_build", 2, 4),
        ("agent_end", 1, 5),
    ]
