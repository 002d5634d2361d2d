"""The model that a host is configured with finds facts, by consent and within its caps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memtier_plugin.hosts.canary import CanaryReply
from memtier_plugin.hosts.yaml_settings import settings_path
from memtier_plugin.operations.job_state import JobState, read_background
from tests.loopback.hosts import text
from tests.processes import wait_until
from tests.runtimes.hosts import PROJECT, Ground, Host

# What no rule extracts, and a model may: its quote proves it.
SAID = ("Grandma Ilse hums the same tune.", "Uncle Emil slurps the hot soup.")
TASK = "into facts that are worth"  # of the extraction's prompt
JOB_SECONDS = 60.0  # for the resident's job to come to its end while the turn lasts


class Scene:
    """A host with two sessions to read, whose turns last until the model's job has ended."""

    def __init__(self, ground: Ground, host: Host) -> None:
        self.ground, self.host = ground, host
        self.extractions: list[str] = []
        self.held = True  # a turn lasts until the job has ended; a Gateway outlives its turns
        self._turn = ground.model.answer
        ground.model.answer = self._answer
        with ground.memory(host.agent) as memory:
            for number, line in enumerate(SAID):
                memory.record([{"role": "user", "content": line}], session_id=f"s{number}")

    def turn(self) -> JobState:
        """Have one turn, and return how the model's job ended meanwhile."""
        before = self.job()
        self._ended = lambda: self.job() not in (before, JobState(started=self.job().started))
        self.host.say("Hello there.")
        return self.job()

    def limit(self, calls: int) -> None:
        """Cap the calls of a day, beside what the installation has written."""
        path = settings_path(self.ground.home, PROJECT)
        path.write_text(f"{path.read_text()}  max_calls_per_day: {calls}\n  probes: 0\n")

    def facts(self) -> list[tuple[str, str, str | None]]:
        """Return the facts that the model found, with their state."""
        with self.ground.memory(self.host.agent) as memory:
            facts = [view.fact for view in memory.knowledge.facts()]
        return [(fact.text, fact.status, fact.model) for fact in facts if fact.model]

    def job(self) -> JobState:
        """Return the state of the model's job."""
        folder = self.ground.home / "projects" / PROJECT
        return read_background(folder).jobs.get("model", JobState())

    def _answer(self, request: Mapping[str, Any]) -> CanaryReply:
        prompt = "\n".join(text(message) for message in request["messages"])
        if TASK not in prompt:
            if self.held:
                wait_until(self._ended, JOB_SECONDS)
            return self._turn(request)
        assert not request.get("tools")
        self.extractions.append(prompt)
        claims = [_claim(line) for line in SAID if line in prompt]
        return CanaryReply(text=json.dumps({"facts": claims}))


def _claim(line: str) -> dict[str, Any]:
    _, _, verb, rest = line.rstrip(".").split(maxsplit=3)
    return {
        "kind": "fact",
        "subject": line.partition(f" {verb}")[0],
        "relation": verb,
        "value": rest,
        "text": line,
        "quote": line,
        "line": 1,
        "since": None,
    }


def test_by_consent_within_the_cap(ground: Ground, host: Host) -> None:
    """One call is allowed: one session is read, its claim proven, nothing of it is in the log."""
    scene = Scene(ground, host)
    host.install(use_host_model=True)
    scene.limit(calls=1)
    job = scene.turn()
    assert "1 of 1 calls" in str(job.error)
    assert len(scene.extractions) == 1
    assert [fact for fact in scene.facts() if fact[0] in SAID] == scene.facts()
    assert [fact[1:] for fact in scene.facts()] == [("active", "host")]
    spending = ground.status(host.agent)["spending"]
    assert (spending["model"], spending["calls"]) == ("host", 1)
    entries = [e for e in ground.entries(host.agent) if e.session_id not in ("s0", "s1")]
    assert [entry.content for entry in entries] == ["Hello there.", "Noted."]
