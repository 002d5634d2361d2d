"""The gates before a host's own model, on both sides, and what a Gateway does with it."""

from __future__ import annotations

import json

from memtier_plugin.hosts.yaml_settings import settings_path
from tests.processes import wait_until
from tests.runtimes.hosts import PROJECT, Ground, Host, OpenClaw
from tests.runtimes.test_host_model import SAID, Scene


def test_without_consent_in_the_host(ground: Ground, host: Host) -> None:
    """A project that selects the host's model waits where the host's user has not consented."""
    scene = Scene(ground, host)
    settings_path(ground.home, PROJECT).write_text("consolidation: {model: host}\n")
    job = scene.turn()
    assert "no running host offers its model" in str(job.waits)
    assert (scene.extractions, scene.facts()) == ([], [])
    status = ground.status(host.agent)
    assert (status["spending"]["calls"], status["degraded"]) == (0, [])


def test_openclaw_s_own_gate(ground: Ground, openclaw: OpenClaw) -> None:
    """OpenClaw refuses a model that the consent does not name, and it is never asked."""
    scene = Scene(ground, openclaw)
    openclaw.install(use_host_model=True)
    config = json.loads(openclaw.config.read_text())
    gates = config["plugins"]["entries"]["memtier"]["llm"]
    assert gates == {"allowedCompletionModels": ["loopback/m"]}
    gates["allowedCompletionModels"] = ["loopback/another"]
    openclaw.config.write_text(json.dumps(config))
    job = scene.turn()
    assert "not allowlisted" in str(job.error)
    assert (scene.extractions, scene.facts()) == ([], [])
    assert ground.status(openclaw.agent)["spending"]["calls"] == 0


def test_a_gateway_answers_beside_its_turns(ground: Ground, openclaw: OpenClaw) -> None:
    """A Gateway's model is asked in the background, whether a turn is held or has long ended."""
    scene = Scene(ground, openclaw)
    scene.held = False
    openclaw.install(use_host_model=True)
    with openclaw.gateway():
        openclaw.post("Hello there.", "agent:main:one")
        wait_until(lambda: scene.job().ok)
    for line in SAID:
        assert sum(line in prompt for prompt in scene.extractions) == 1
    assert [fact[1:] for fact in scene.facts()] == [("active", "host")] * 2
    users = [entry.content for entry in ground.entries(openclaw.agent) if entry.role == "user"]
    assert set(users) == {*SAID, "Hello there."}
