"""The host's own model, asked through the resident: by consent, within caps, while a host runs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.events import ChatEvent
from memtier_plugin.core.residents import find_owner
from memtier_plugin.daemon import child, jobs
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hooks.resident_connection import ModelOffer, Payload
from memtier_plugin.memory import MemTier
from memtier_plugin.operations import job_state
from tests.builders import turns
from tests.processes import PATIENCE, ROOT, fork_python, running, wait_until

SERVE = [sys.executable, "-W", "ignore", "-m", "memtier_plugin"]
SAID = ("The Otter server listens on port 8443.", "The Heron server listens on port 9443.")


class HostScript:
    """A host: what its model answers, and what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Payload] = []
        self.error: Exception | None = None
        self.cost: float | None = None
        self.hold: threading.Event | None = None

    def complete(self, request: Payload) -> dict[str, Any]:
        """Find the ports of the servers that the lines are about."""
        self.requests.append(request)
        if self.hold:
            self.hold.wait(PATIENCE)
        if self.error:
            raise self.error
        prompt = request["messages"][-1]["content"]
        facts = [claim(line) for line in SAID if line in prompt]
        answer = {"text": json.dumps({"facts": facts}), "prompt_tokens": 900}
        return answer | {"completion_tokens": 100, "cost": self.cost}


def claim(line: str) -> dict[str, Any]:
    """Return the claim that a line proves."""
    _, name, _, _, _, _, port = line.rstrip(".").split()
    return {
        "kind": "fact",
        "subject": f"the {name} server",
        "relation": "runs_on_port",
        "value": port,
        "text": f"The {name} server listens on port {port}.",
        "quote": line,
        "line": 1,
        "since": None,
    }


@pytest.fixture
def project(home: Path) -> Iterator[MemTier]:
    """Return a project that uses its host's model and has two sessions to read."""
    configure(home)
    with MemTier.open(home, "p", "hermes.default") as memory:
        for number, line in enumerate(SAID):
            memory.record(turns(line), session_id=f"s{number}")
        yield memory


@pytest.fixture
def script() -> HostScript:
    """Return what the host does."""
    return HostScript()


@pytest.fixture
def host(
    home: Path, script: HostScript, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ResidentClient]]:
    """Return a function that connects a host, which offers its model, to the home's resident."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    served = fork_python("-m", "memtier_plugin", "--home", home, "serve")
    clients: list[ResidentClient] = []

    def connect(*, consented: bool = True, project: str | None = "p") -> ResidentClient:
        offer = ModelOffer("hermes", project, script.complete) if consented else None
        wait_until(lambda: (owner := find_owner(home)) and owner.ready)
        clients.append(ResidentClient(SERVE, home, ("PYTHONPATH",), offer))
        clients[-1].call("ping", {}, PATIENCE)
        return clients[-1]

    with running(served):
        yield connect
        for client in clients:
            client.close()


def configure(home: Path, model: str = "host", **limits: float) -> None:
    """Write the project's settings."""
    folder = home / "projects" / "p"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    settings = {"consolidation": {"model": model, "probes": 0, **limits}}
    (folder / "project.yaml").write_text(json.dumps(settings), "utf-8")


def reopened(home: Path) -> MemTier:
    """Open the project with its present settings."""
    return MemTier.open(home, "p", "hermes.default")


def charged(memory: MemTier) -> list[ChatEvent]:
    """Return what was settled with the day's budget."""
    events = memory.store.reader().events(kinds=[ChatEvent.KIND])
    return [chat for chat in map(ChatEvent.of, events) if chat.settles]


def test_the_host_answers(
    project: MemTier, host: Callable[..., ResidentClient], script: HostScript
) -> None:
    """Each session is asked about once; what the lines prove becomes a fact of the model's."""
    host()
    report = project.consolidate(extractor="model")
    assert (report.problem, report.waits, report.facts) == ("", "", 2)
    facts = [view.fact for view in project.knowledge.facts()]
    assert {(fact.value, fact.model, fact.status) for fact in facts} == {
        ("8443", "host", "active"),
        ("9443", "host", "active"),
    }
    assert [request["purpose"] for request in script.requests] == ["extraction"] * 2
    day = project.status()["spending"]
    assert (day["calls"], day["tokens"], day["cost"]) == (2, 2000, 0)


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"max_calls_per_day": 1}, "max_calls_per_day"),
        ({"max_tokens_per_day": 3000}, "max_tokens_per_day"),
        ({"max_cost_per_day": 0.0}, "max_cost_per_day"),
    ],
)
def test_each_cap_ends_the_asking(
    home: Path,
    project: MemTier,
    host: Callable[..., ResidentClient],
    script: HostScript,
    limits: dict[str, float],
    setting: str,
) -> None:
    """What was answered within the cap is kept; the rest waits for the next day, unasked."""
    configure(home, **limits)
    script.cost = 0.01 if setting == "max_cost_per_day" else None
    host()
    with reopened(home) as memory:
        report = memory.consolidate(extractor="model")
        assert setting in report.problem
        assert report.facts == len(script.requests) == 1
        assert memory.consolidate(extractor="model").facts == 0
        assert len(script.requests) == 1
        assert memory.status()["spending"]["cost"] == (script.cost or 0)


def test_without_a_host_it_waits(
    home: Path, project: MemTier, host: Callable[..., ResidentClient], script: HostScript
) -> None:
    """The job is no failure, is not at rest, is charged nothing, and goes on once a host runs."""
    run = jobs.JobRun(threading.Event())
    assert jobs.run_job("model", project, run)
    [state] = job_state.read_background(project.folder).jobs.values()
    assert "no host runs" in str(state.waits)
    assert (state.trouble, state.ok) == (None, None)
    assert project.status()["spending"]["waits"] == state.waits
    assert project.status()["degraded"] == []
    assert not child.is_at_rest(home, "p", ["model"])
    assert charged(project) == []
    host()
    assert jobs.run_job("model", project, run)
    [state] = job_state.read_background(project.folder).jobs.values()
    assert (state.waits, state.ok is not None) == (None, True)
    assert len(script.requests) == 2


@pytest.mark.parametrize("offer", [{"consented": False}, {"project": "another"}])
def test_a_host_without_consent_is_not_asked(
    project: MemTier,
    host: Callable[..., ResidentClient],
    script: HostScript,
    offer: dict[str, Any],
) -> None:
    """A plugin that offers no model, or one for another project, is asked for nothing."""
    host(**offer)
    report = project.consolidate(extractor="model")
    assert "no running host offers its model for project 'p'" in report.waits
    assert script.requests == []
    assert charged(project) == []


def test_a_project_without_consent_is_served_nothing(
    home: Path, host: Callable[..., ResidentClient], script: HostScript
) -> None:
    """The resident asks no host for a project whose settings do not select the host's model."""
    configure(home, "none")
    with pytest.raises(Exception, match=r"consolidation\.model is none"):
        params = {"project": "p", "messages": [], "max_tokens": 10}
        host().call("complete", params, PATIENCE)
    assert script.requests == []


def test_a_host_that_refuses_is_reported(
    project: MemTier, host: Callable[..., ResidentClient], script: HostScript
) -> None:
    """What the host's own policy does not allow is a problem that names it, and costs nothing."""

    class PluginLlmTrustError(PermissionError):
        """As Hermes names it."""

    script.error = PluginLlmTrustError("not for this plugin")
    host()
    report = project.consolidate(extractor="model")
    assert "not for this plugin" in report.problem
    assert [chat.calls for chat in charged(project)] == [0] * len(script.requests)


def test_a_host_that_ends_in_the_middle(
    project: MemTier, host: Callable[..., ResidentClient], script: HostScript
) -> None:
    """The call counts, as it may have been answered; the pass waits for the next host."""
    script.hold = threading.Event()
    gone = host()
    other = host(consented=False)  # keeps the resident
    reports: list[Any] = []
    work = threading.Thread(target=lambda: reports.append(project.consolidate(extractor="model")))
    work.start()
    wait_until(lambda: script.requests)
    gone.close()
    work.join(PATIENCE)
    script.hold.set()
    assert "disconnected before" in reports[0].waits
    assert [chat.calls for chat in charged(project)] == [1]
    other.close()
