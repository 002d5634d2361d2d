"""Telemetry of a host's turns, by way of the resident that serves it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.residents import stop_resident
from memtier_plugin.hooks.resident import ResidentClient
from tests.processes import ROOT, wait_until
from tests.telemetry.collector import Collector, running_collector

REPORT = {"provider": "a", "model": "m", "usage": {"input_tokens": 10, "cache_read_tokens": 90}}


@contextmanager
def resident(
    home: Path, collector: Collector, patch: pytest.MonkeyPatch
) -> Iterator[ResidentClient]:
    """Start the resident as a host with these variables does."""
    variables = {
        "PYTHONPATH": str(ROOT),
        "MEMTIER_TELEMETRY__ENABLED": "true",
        "MEMTIER_HOOKS__PROMPT_DEADLINE_MS": "60000",  # on a busy machine, too
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    for name, value in variables.items():
        patch.setenv(name, value)
    client = ResidentClient([sys.executable, "-m", "memtier_plugin"], home, ("PYTHONPATH",))
    try:
        yield client
    finally:
        client.close()
        stop_resident(home, 30)


def hook(home: Path, name: str, event: dict[str, Any], run: str) -> dict[str, Any]:
    """Return a call of one of Hermes' hooks."""
    context = {"session_id": "s", "run_id": run}
    named = {"home": str(home), "project": "shop", "context": context}
    return {"host": "hermes", "name": name, "event": event, **named}


def have_turns(client: ResidentClient, home: Path) -> list[float]:
    """Have three turns, and return how long each recall took in seconds."""
    seconds = []
    for number in range(3):
        asked = f"Which port does service {number} use?"
        started = time.monotonic()
        client.call("hook", hook(home, "prefetch", {"query": asked}, f"r{number}"), 30)
        seconds.append(time.monotonic() - started)
        event = {"user": asked, "assistant": f"Port 54{number}0.", "usage": [REPORT]}
        assert client.deliver(hook(home, "sync_turn", event, f"r{number}"), 30)
    return seconds


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 120.0])
def test_a_host_has_its_turns(delay: float, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector gets a host's turns; one that takes two minutes holds up none of them."""
    with (
        running_collector(delay=delay) as collector,
        resident(home, collector, monkeypatch) as client,
    ):
        assert max(have_turns(client, home)[1:]) < 60
        if not delay:
            wait_until(lambda: len(collector.spans_of("search_memory")) == 3)
            wait_until(lambda: len(collector.spans_of("create_memory")) == 3)
            [span, *_] = collector.spans_of("create_memory")
            assert span["gen_ai.agent.id"] == "hermes.default"
            assert span["memtier.run.id"] == "r0"
    with MemTier.open(home, "shop") as memory:
        assert [entry.run_id for entry in memory.entries()] == ["r0", "r0", "r1", "r1", "r2", "r2"]
        assert [event.data["cached"] for event in memory.events(kinds=["usage"])] == [90, 90, 90]
