"""The first prompt of a process: it gets what is ready, and the rest is loaded before or beside."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.results import PromptAddition, PromptEvent, Recall, RunContext
from memtier_plugin.hooks import host_hooks
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.embedding import load
from memtier_plugin.providers.embedding.static import ShippedEmbedder
from tests.processes import PATIENCE, wait_until

LINE = "My bag is in the blue locker."
QUESTION = "Where is my bag?"
WHERE = RunContext(agent_id="test.main", session_id="s", run_id="r", project="p")


@pytest.fixture(autouse=True)
def cold(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Record a line; no model has embedded a query yet."""
    with MemTier.open(home, "p", WHERE.agent_id) as memory:
        memory.record([{"role": "user", "content": LINE}], session_id="earlier")
        memory.recall("anything")
    monkeypatch.setattr(load, "_loaded", set())
    yield
    host_hooks.workers.drain(PATIENCE)


def ask() -> PromptAddition | None:
    """Build a prompt as a host does."""
    answer: PromptAddition | None = plugins.manager().hook.before_prompt_build(
        event=PromptEvent(prompt=QUESTION), context=WHERE
    )
    return answer


def labels(home: Path) -> list[str]:
    """Return the labels of the prompts' recalls, as the journal has them."""
    with MemTier.open(home, "p", WHERE.agent_id) as memory:
        memory.catch_up()
        recalls = memory.events(kinds=["recall"])
    return [event.data["label"] for event in recalls if event.data["purpose"] == "inject"]


def test_a_model_that_is_being_loaded_holds_no_prompt(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the model is loaded a prompt is answered by words, and later ones by meaning, too."""
    monkeypatch.setattr(load, "QUERY_SHARE", 0.02)
    ready, encode = threading.Event(), ShippedEmbedder.encode

    def slowly(self: ShippedEmbedder, texts: Sequence[str]) -> Any:
        ready.wait(PATIENCE)
        return encode(self, texts)

    monkeypatch.setattr(ShippedEmbedder, "encode", slowly)
    try:
        first = ask()
    finally:
        ready.set()
    assert first is not None and LINE in first.prepend_context
    wait_until(lambda: load._loaded)
    second = ask()
    assert second is not None and LINE in second.prepend_context
    host_hooks.workers.drain(PATIENCE)
    cold, warm = labels(home)
    assert "the model is still loading" in cold
    assert warm == "hybrid"


def test_a_session_s_start_warms_up(home: Path) -> None:
    """The start of a session loads what its first prompt needs, and journals no recall."""
    plugins.manager().hook.session_start(context=WHERE)
    wait_until(lambda: load._loaded)
    host_hooks.workers.drain(PATIENCE)
    assert labels(home) == []


def test_without_a_deadline_the_model_is_waited_for(home: Path) -> None:
    """A search, which no host waits for, goes by meaning however long the model takes."""
    with MemTier.open(home, "p", WHERE.agent_id) as memory:
        recall: Recall = memory.recall(QUESTION)
    assert recall.label == "hybrid"
    assert load._loaded
