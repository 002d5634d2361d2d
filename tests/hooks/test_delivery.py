"""A recall counts once its host has it: real residents that stop, and hosts that drop answers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.events import DeliverEvent, RecallEvent
from memtier_plugin.core.residents import find_owner
from memtier_plugin.hooks import coding_agents, hermes, resident
from memtier_plugin.hooks.coding_agents import AgentHooks
from memtier_plugin.hooks.remote_memory import RemoteMemory
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hooks.resident_connection import ResidentUnreachable
from memtier_plugin.memory import MemTier
from tests.builders import write_config
from tests.hooks.test_resident import halt
from tests.processes import (
    PATIENCE,
    ROOT,
    child_environment,
    fork_python,
    run_memtier,
    running,
    wait_until,
)
from tests.server.tcp import CONFIG, Resident

MEMTIER: Final = (sys.executable, "-m", "memtier_plugin")
PATIENT: Final = f"""
from memtier_plugin.cli.main import main
from memtier_plugin.hooks import coding_agents
coding_agents.PROMPT_SECONDS = {PATIENCE}
main()
"""
LINE: Final = "The greenhouse thermostat is set to 19 degrees."
QUESTION: Final = "What is the greenhouse thermostat set to?"
PROMPTS: Final = {
    "claude-code": "UserPromptSubmit",
    "codex": "UserPromptSubmit",
    "gemini": "BeforeAgent",
}
AGENTS: Final = {
    **{host: f"{host}.main" for host in (*PROMPTS, "openclaw")},
    "hermes": "hermes.default",
}
KEEPING: Final = ("claude-code", "codex", "gemini", "hermes")  # in whose history a block stays
Ask = Callable[[float], str]  # a prompt of the session, with the hook's own deadline; the block


def open_memory(home: Path, agent: str) -> MemTier:
    """Open the project's memory for a host's agent."""
    return MemTier.open(home, "p", agent)


def recalls(home: Path, agent: str) -> list[str]:
    """Return for each recall whether it was offered or, acknowledged, injected."""
    with open_memory(home, agent) as memory:
        memory.catch_up()
        return [str(e.data["purpose"]) for e in memory.events(kinds=[RecallEvent.KIND])]


LATE = 1.5  # seconds in which a busy machine has sent the prompt, to a resident that is stopped


@pytest.fixture
def process(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a resident that is nobody's child here; it knows one line of every host's agent."""
    write_config(home, CONFIG)
    for agent in AGENTS.values():
        with open_memory(home, agent) as memory:
            memory.record([{"role": "user", "content": LINE}], session_id="old", run_id="old")
    with running(fork_python("-m", "memtier_plugin", "--home", home, "serve")) as started:
        wait_until(lambda: (owner := find_owner(home)) and owner.ready)  # not only listening
        yield started


def ask_of(host: str, home: Path, tmp_path: Path, patch: pytest.MonkeyPatch) -> Ask:
    """Return how a session of a host asks the question again and again."""
    patch.setattr(resident, "PING_SECONDS", PATIENCE)  # a stopped resident is not killed here
    if host == "openclaw":
        if shutil.which("node") is None:
            pytest.skip("no node")

        def by_shim(seconds: float) -> str:
            settings = {"promptDeadlineMs": round(seconds * 1000)}
            config = {"command": [*MEMTIER], "home": str(home), "project": "p", **settings}
            script = ROOT / "tests/shim/recall.mjs"
            done = subprocess.run(
                ["node", script, json.dumps(config), "s", QUESTION], capture_output=True, check=True
            )
            return str(json.loads(done.stdout))

        return by_shim
    if host == "hermes":
        folder = tmp_path / "hermes"
        folder.mkdir()
        patch.setenv("HERMES_HOME", str(folder))
        config = {"command": [*MEMTIER], "project": "p", "home": str(home)}
        (folder / "memtier.json").write_text(json.dumps(config))
        provider = hermes.Provider()
        provider.initialize("s", hermes_home=str(folder))

        def by_provider(seconds: float) -> str:
            patch.setattr(hermes, "PROMPT_SECONDS", seconds)
            provider.on_turn_start(1, QUESTION)
            return str(provider.prefetch(QUESTION))

        return by_provider
    hooks = AgentHooks(ResidentClient(MEMTIER, home), host, "p")

    def by_hook(seconds: float) -> str:
        patch.setattr(coding_agents, "PROMPT_SECONDS", seconds)
        name = PROMPTS[host]
        event = {"hook_event_name": name, "session_id": "s", "cwd": str(home), "prompt": QUESTION}
        try:
            printed = hooks.pass_event(event)
        except MemTierError:
            return ""
        hooks.finish()
        return str(printed.get("hookSpecificOutput", {}).get("additionalContext", ""))

    return by_hook


@pytest.mark.sampled(2)
@pytest.mark.parametrize("host", AGENTS)
def test_a_resident_that_answers_too_late(
    host: str,
    home: Path,
    tmp_path: Path,
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a stopped resident found came late: the session's next prompt gets it, and then has it.

    The journal, `log` and `status` say which recall was late.
    """
    agent, ask = AGENTS[host], ask_of(host, home, tmp_path, monkeypatch)
    halt(process.pid)
    assert ask(LATE) == ""
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: recalls(home, agent) == ["offer"])
    scope = ("--home", home, "--project", "p", "--agent", agent)
    assert ", late)" in run_memtier(*scope, "log").output
    assert LINE in ask(PATIENCE)
    wait_until(lambda: recalls(home, agent) == ["offer", "inject"])
    with open_memory(home, agent) as memory:
        injected = memory.status()["agents"][agent]["injected"]
    assert (injected["turns"], injected["late"]) == (1, 1)
    assert (LINE in ask(PATIENCE)) is (host not in KEEPING)


@pytest.mark.parametrize("output_is", ["a pipe that nobody reads", "closed"])
def test_a_host_that_drops_the_answer(
    home: Path, process: subprocess.Popen[bytes], output_is: str
) -> None:
    """Whoever reads no answer had none, though the hook got one in time; one that is read counts.

    Here the host closed the hook's output before the hook could print, or gave it none.
    """
    agent = AGENTS["claude-code"]
    here = [sys.executable, "-c", PATIENT, "--home", str(home)]
    here += ["--project", "p", "hook", "claude-code"]
    without_output = ["sh", "-c", 'exec "$@" >&-', "sh", *here]

    def hook(output: int, command: list[str]) -> subprocess.Popen[bytes]:
        event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": QUESTION}
        started = subprocess.Popen(
            command,
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        assert started.stdin is not None
        with started.stdin as stdin:
            stdin.write(json.dumps({**event, "cwd": str(home)}).encode())
        return started

    reader, writer = os.pipe()
    os.close(reader)
    with running(hook(writer, without_output if output_is == "closed" else here)) as dropped:
        dropped.wait(PATIENCE)
    os.close(writer)
    assert recalls(home, agent) == ["offer"]
    with running(hook(subprocess.PIPE, here)) as read:
        assert read.stdout is not None and LINE.encode() in read.stdout.read()
    wait_until(lambda: recalls(home, agent) == ["offer", "inject"])


def test_a_client_over_tcp(home: Path) -> None:
    """A client that gave up has nothing, and one that has its answer says so itself."""
    served = Resident(home, None)
    try:
        memory = RemoteMemory("p", residents=[served.address], token=served.token("p"))
        memory.record([{"role": "user", "content": LINE}], session_id="old")
        given: dict[str, Any] = {"purpose": "inject", "session_id": "s", "run_id": "r"}
        halt(served.process.pid)
        with pytest.raises(ResidentUnreachable):
            memory.recall(QUESTION, seconds=0.3, **given)
        os.kill(served.process.pid, signal.SIGCONT)
        assert LINE in memory.recall(QUESTION, seconds=PATIENCE, **given)["text"]
        wait_until(lambda: "inject" in recalls(home, "main"))
        assert recalls(home, "main").count("inject") == 1
        memory.close()
    finally:
        served.end()


def test_an_older_shim(home: Path, process: subprocess.Popen[bytes]) -> None:
    """A host that promises no acknowledgement has what it is answered, as before."""
    agent = AGENTS["hermes"]
    client = ResidentClient(MEMTIER, home)
    payload = {
        "host": "hermes",
        "name": "prefetch",
        "event": {"query": QUESTION},
        "context": {"session_id": "s", "run_id": "r"},
        "project": "p",
    }
    assert LINE in client.call("hook", payload, PATIENCE)["prepend_context"]
    client.close()
    wait_until(lambda: recalls(home, agent) == ["inject"])
    with open_memory(home, agent) as memory:
        assert len(memory.events(kinds=[DeliverEvent.KIND])) == 1
