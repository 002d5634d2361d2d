"""`memtier install` against the real hosts: it proves itself, and taking it back leaves nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.memory import MemTier
from tests.hosts.test_install import files
from tests.runtimes.hosts import OPENCLAW, RUNTIMES, Ground, Hermes, Host, OpenClaw, copy_repository


def memtier(ground: Ground, host: Host, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run `memtier` as the user of a host does; return its exit code and document."""
    environment = host.environment
    bins = (OPENCLAW / "node_modules" / ".bin", RUNTIMES / "hermes" / "venv" / "bin")
    environment["PATH"] = ":".join([environment["PATH"], *map(str, bins)])
    done = subprocess.run(
        [*ground.command, "--home", str(ground.home), *arguments, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_install_proves_itself_and_leaves_nothing(ground: Ground, host: Host) -> None:
    """The canary's line goes through the host's own hooks; after --uninstall all is as it was.

    Nothing is left out of the comparison: the host that proves it runs on a throw-away state.
    """
    name = type(host).__name__.lower()
    memtier(ground, host, "install", name, "--uninstall")
    before = files(host.top)
    code, document = memtier(ground, host, "install", name, "--use-host-model")
    assert (code, document["canary"]["ok"]) == (0, True), document["canary"]
    assert document["host_model"]
    assert files(host.top) != before
    assert memtier(ground, host, "doctor")[0] == 0
    memtier(ground, host, "install", name, "--uninstall")
    assert files(host.top) == before
    assert not [*ground.home.rglob("project.yaml*")]


def test_a_blocked_hook_is_found_out(ground: Ground, openclaw: OpenClaw) -> None:
    """Without the permission OpenClaw drops the hooks without a word; doctor has one."""
    text = openclaw.config.read_text()
    openclaw.config.write_text(text.replace('"allowConversationAccess": true', '"timeoutMs": 9000'))
    ground.plant(openclaw.agent, "My bag is in the blue locker.")
    openclaw.say("Where is my bag?")
    assert not any("blue locker" in prompt for prompt in ground.model.asked())
    code, document = memtier(ground, openclaw, "doctor")
    assert code == 1
    assert any("allowConversationAccess" in finding["what"] for finding in document["findings"])
    memtier(ground, openclaw, "install", "openclaw", "--no-canary", "--project", "shared")
    openclaw.say("Where is my bag?")
    assert any("blue locker" in prompt for prompt in ground.model.asked())


def test_hermes_commands(ground: Ground, hermes: Hermes) -> None:
    """`hermes memtier status` and `search` are MemTier's own, for the project of the host."""
    ground.plant(hermes.agent, "My bag is in the blue locker.")
    for words, expected in (
        (["status"], "shared"),
        (["search", "where", "is", "my", "bag"], "blue locker"),
        (["search", "--k", "2", "where", "is", "my", "bag"], "blue locker"),
    ):
        done = subprocess.run(
            [RUNTIMES / "hermes" / "venv" / "bin" / "hermes", "memtier", *words],
            env=hermes.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert expected in done.stdout, done.stdout + done.stderr


CHAT = """
import sys
from hermes_cli.plugins import get_plugin_command_handler
from plugins.memory import load_memory_provider

provider = load_memory_provider("memtier")
provider.initialize("chat", platform="cli")
for words in sys.argv[1:]:
    print(get_plugin_command_handler("memtier")(words))
provider.shutdown()
"""


def in_the_chat(hermes: Hermes, *commands: str) -> str:
    """Return what Hermes answers to `/memtier ...`, typed in a chat."""
    done = subprocess.run(
        [RUNTIMES / "hermes" / "venv" / "bin" / "python", "-c", CHAT, *commands],
        env=hermes.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_hermes_line_in_the_chat(ground: Ground, hermes: Hermes) -> None:
    """`/memtier` in a chat of Hermes is answered with one line on how the memory does."""
    ground.plant(hermes.agent, "My bag is in the blue locker.")
    assert "MemTier, project shared: 1 lines, 0 facts" in in_the_chat(hermes, "")


def test_hermes_review_in_the_chat(ground: Ground, hermes: Hermes) -> None:
    """`/memtier review` lists what waits, and a person decides on it there."""
    ground.plant(hermes.agent, "I was diagnosed with diabetes.")
    with ground.memory(hermes.agent) as memory:
        assert memory.consolidate().proposed == 1
        [waiting] = memory.knowledge.proposals()
    assert "1 awaits your review" in in_the_chat(hermes, "review")
    decided = in_the_chat(hermes, f"review accept {waiting.fact.id[-8:]}", "review")
    assert "Nothing awaits your review here." in decided
    with ground.memory(hermes.agent) as memory:
        assert [fact.id for fact in memory.facts()] == [waiting.fact.id]


@pytest.mark.parametrize("on_path", [True, False])
def test_the_repository_as_a_drop_in(ground: Ground, hermes: Hermes, on_path: bool) -> None:
    """This folder itself, put among Hermes' plugins, is its memory: one command sets it up.

    Where `memtier` is not on the path, that command installs it.
    """
    memtier(ground, hermes, "install", "hermes", "--uninstall")
    copy_repository(hermes.top / "plugins" / "memtier")
    environment = {**hermes.environment, "MEMTIER_HOME": str(ground.home)}
    if on_path:
        environment["PATH"] = f"{Path(ground.command[0]).parent}:{environment['PATH']}"
    line = "My bag is in the blue locker."
    with MemTier.open(ground.home, "default", hermes.agent) as memory:
        memory.record([{"role": "user", "content": line}], session_id="earlier")
    for words in (["memory", "setup", "memtier"], ["-z", "Where is my bag?"]):
        done = subprocess.run(
            [RUNTIMES / "hermes" / "venv" / "bin" / "hermes", *words],
            cwd=hermes.top / "work",
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert any(line in prompt for prompt in ground.model.asked()), done.stdout + done.stderr
    with MemTier.open(ground.home, "default", hermes.agent) as memory:
        contents = [entry.content for entry in memory.entries() if entry.role == "user"]
    assert contents == [line, "Where is my bag?"]
    log = "".join(path.read_text() for path in (hermes.top / "logs").glob("*.log"))
    assert not [each for each in log.splitlines() if "memtier" in each and "WARN" in each]


def test_openclaw_commands(ground: Ground, openclaw: OpenClaw) -> None:
    """`openclaw memtier search` is MemTier's own, for the agent of the host."""
    ground.plant(openclaw.agent, "My bag is in the blue locker.")
    done = subprocess.run(
        ["openclaw", "memtier", "search", "--k", "2", "where", "is", "my", "bag"],
        env=openclaw.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "blue locker" in done.stdout, done.stdout + done.stderr
