"""Hosts that wait for their hooks: a machine that is busy with other tests keeps no deadline."""

from __future__ import annotations

import pytest

from memtier_plugin.hooks import coding_agents, hermes
from tests.processes import PATIENCE


@pytest.fixture(autouse=True)
def patient(isolated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a prompt's memory a minute here and in residents; tests of deadlines set their own."""
    monkeypatch.setenv("MEMTIER_HOOKS__PROMPT_DEADLINE_MS", "60000")
    for hooks, name in (
        (coding_agents, "PROMPT_SECONDS"),
        (hermes, "PROMPT_SECONDS"),
        (hermes, "TOOL_SECONDS"),
    ):
        monkeypatch.setattr(hooks, name, PATIENCE)
