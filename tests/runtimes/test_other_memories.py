"""Beside the memories that others publish, MemTier works, and `doctor` tells whose the place is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.processes import wait_until
from tests.runtimes.hosts import BRAIN, MEM0, RUNTIMES, Ground, Hermes, OpenClaw
from tests.runtimes.test_install import memtier
from tests.runtimes.test_quiet_gateway import as_it_comes

LINE = "My bag is in the blue locker."
WITHOUT = "`make test-runtimes-all` installs it"


def doctor(ground: Ground, host: OpenClaw | Hermes) -> tuple[int, list[str]]:
    """Return the exit code of `doctor` and what it found."""
    code, document = memtier(ground, host, "doctor", "--project", "shared")
    return code, [finding["what"] for finding in document["findings"]]


def configure_mem0(ground: Ground, openclaw: OpenClaw) -> None:
    """Let OpenClaw load Mem0's plugin, which keeps its memory on this machine."""
    endpoint = {"apiKey": "none", "model": "m", "baseURL": ground.model.base_url}
    store = {"collectionName": "m", "dimension": 8, "dbPath": str(ground.top / "mem0.db")}
    local: dict[str, Any] = {
        "llm": {"provider": "openai", "config": endpoint},
        "embedder": {"provider": "openai", "config": {**endpoint, "embeddingDims": 8}},
        "vectorStore": {"provider": "memory", "config": store},
        "historyDbPath": str(ground.top / "mem0-history.db"),
    }
    as_it_comes(openclaw)
    config = json.loads(openclaw.config.read_text())
    config["plugins"]["load"]["paths"].append(str(MEM0))
    config["plugins"]["entries"]["openclaw-mem0"] = {
        "enabled": True,
        "hooks": {"allowConversationAccess": True},
        "config": {"mode": "open-source", "userId": "mara", "oss": local},
    }
    openclaw.config.write_text(json.dumps(config))


def errors_of_ours(openclaw: OpenClaw, loading: int) -> list[str]:
    """Return what was logged of level ERROR but for what Mem0 is the cause of.

    OpenClaw copies the 211 packages of Mem0's plugin each time it loads it, at its start and at its
    first turn, on its only thread: 10 s on an idle machine, 80 s on a busy one.  Its own jobs fail
    for it ("worker task timed out", "broadcast send failed"); without MemTier, too, as do the ends
    of the calls of Mem0's that it waits for.  So what was logged by then counts where it names
    MemTier, and what was logged later unless it names Mem0.

    Args:
        loading: how many lines there were after the first turn.
    """
    errors = [json.loads(line) for line in openclaw.errors()]
    messages = [str(error["message"]).replace(str(RUNTIMES), "") for error in errors]
    early = [message for message in messages[:loading] if "memtier" in message.lower()]
    return early + [message for message in messages[loading:] if "openclaw-mem0" not in message]


@pytest.mark.skipif(not MEM0.exists(), reason=WITHOUT)
def test_mem0_in_openclaw(ground: Ground, openclaw: OpenClaw) -> None:
    """Mem0's plugin is there and set up, and the memory is MemTier's: no tool or hook collides."""
    configure_mem0(ground, openclaw)
    ground.plant(openclaw.agent, LINE)
    with openclaw.gateway():
        openclaw.post("Where is my bag? (question 0)", "agent:main:beside-0")
        loading = len(openclaw.errors())
        for number in (1, 2):
            openclaw.post(f"Where is my bag? (question {number})", f"agent:main:beside-{number}")
        code, findings = doctor(ground, openclaw)
    assert code == 0, findings
    assert any("are MemTier's in OpenClaw" in what for what in findings), findings
    wait_until(lambda: len(ground.said(openclaw.agent)) == 3)
    assert any("blue locker" in prompt for prompt in ground.model.asked())
    assert errors_of_ours(openclaw, loading) == []
    config = json.loads(openclaw.config.read_text())
    config["plugins"]["slots"]["memory"] = "openclaw-mem0"
    openclaw.config.write_text(json.dumps(config))
    code, findings = doctor(ground, openclaw)
    assert code == 1
    assert any("memory slot is not MemTier's: openclaw-mem0 has it" in what for what in findings)


@pytest.mark.skipif(not BRAIN.exists(), reason=WITHOUT)
def test_brain_memory_in_hermes(ground: Ground, hermes: Hermes) -> None:
    """Another provider among Hermes' plugins changes nothing until it is selected; doctor sees."""
    installed = subprocess.run(
        [sys.executable, "-m", "hermes_brain_memory.installer", "install"],
        env={**hermes.environment, "PYTHONPATH": str(BRAIN)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert (hermes.top / "plugins" / "brain" / "__init__.py").is_file()
    ground.plant(hermes.agent, LINE)
    hermes.say("Where is my bag?")
    wait_until(lambda: ground.said(hermes.agent) == ["Where is my bag?"])
    assert any("blue locker" in prompt for prompt in ground.model.asked())
    assert hermes.errors() == []
    code, findings = doctor(ground, hermes)
    assert code == 0, findings
    assert any("are MemTier's in Hermes" in what for what in findings)
    config = hermes.top / "config.yaml"
    config.write_text(config.read_text().replace("memtier", "brain"))
    code, findings = doctor(ground, hermes)
    assert code == 1
    assert any("Hermes' memory provider is not MemTier: it is 'brain'" in what for what in findings)
