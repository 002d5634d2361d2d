"""A real language model answers for a real host that offers its own: `make test-model`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from memtier_bench.local_model import MODEL, fetch_model, serve_model
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.hosts.canary import CanaryReply
from memtier_plugin.hosts.yaml_settings import settings_path
from memtier_plugin.operations.job_state import JobState, read_background
from memtier_plugin.providers.endpoint import EndpointClient
from tests.loopback.hosts import text
from tests.processes import wait_until
from tests.runtimes.hosts import PROJECT, Ground, Host

pytestmark = [pytest.mark.model, pytest.mark.timeout(3600)]
PROMPT = "Hello there."
SAID = (
    "My sister Ruth lives in Bergen and works as a marine biologist.",
    "We moved the release of Heron to 12 June 2026.",
)
SECONDS = 1800.0  # for an answer, and for the job: a busy core reads few tokens a second


@pytest.fixture(scope="module")
def client() -> Iterator[EndpointClient]:
    """Serve the model on one core."""
    with serve_model(fetch_model()) as base_url:
        yield EndpointClient(Endpoint(base_url=base_url, key_env="none", timeout_s=SECONDS))


def test_what_a_small_model_of_a_host_finds(
    ground: Ground, host: Host, client: EndpointClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job ends without an error, and what is made of the model's claims quotes a line."""
    prompts = list[str]()
    say = ground.model.answer

    def job() -> JobState:
        return read_background(ground.home / "projects" / PROJECT).jobs.get("model", JobState())

    def answer(request: Mapping[str, Any]) -> CanaryReply:
        prompt = "\n".join(map(text, request["messages"]))
        if PROMPT in prompt:  # the turn lasts until the job has ended: some hosts end with it
            wait_until(lambda: any((job().ok, job().failed, job().waits)), SECONDS)
            return say(request)
        prompts.append(prompt)
        messages = [{"role": m["role"], "content": text(m)} for m in request["messages"]]
        return CanaryReply(text=client.chat(MODEL, messages, max_tokens=1_000).text)

    ground.model.answer = answer
    with ground.memory(host.agent) as memory:
        for number, line in enumerate(SAID):
            memory.record([{"role": "user", "content": line}], session_id=f"s{number}")
    host.install(use_host_model=True)
    path = settings_path(ground.home, PROJECT)
    path.write_text(f"{path.read_text()}  probes: 0\nhost_model: {{timeout_s: {SECONDS}}}\n")
    host.say(PROMPT)
    assert prompts and job().error is None, job()
    with ground.memory(host.agent) as memory:
        facts = [view.fact for view in memory.knowledge.facts() if view.fact.model]
    assert all(any(fact.quote in line for line in SAID) for fact in facts)
    lines = [f"{fact.status}: {fact.text}" for fact in facts]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", f"{host.agent}, {len(prompts)} calls", *lines, ""]))
