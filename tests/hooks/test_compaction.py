"""A compaction, as OpenClaw and Hermes tell it: the next prompt has what the session was about."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.results import HookCall, PromptAddition, RunContext
from memtier_plugin.hooks import host_hooks
from memtier_plugin.hooks.hermes_payloads import HermesTranslator
from memtier_plugin.hooks.openclaw_payloads import OpenClawTranslator
from tests.processes import PATIENCE
from tests.retrieval.working_sessions import SESSIONS

pytestmark = pytest.mark.usefixtures("drained")
PAYLOADS: Final = Path(__file__).parent.parent / "payloads"
BASE: Final = RunContext(agent_id="", project="p")
SESSION: Final = SESSIONS[2]


def call(made: HookCall | None) -> PromptAddition | None:
    """Call the hook that a host's payload translates to."""
    assert made is not None
    event = {} if made.event is None else {"event": made.event}
    answer: PromptAddition | None = getattr(plugins.manager().hook, made.hook)(
        context=made.context, **event
    )
    return answer


def test_openclaw() -> None:
    """Its hook names no run and has no messages; the prompt after it shows one line of before."""
    translator = OpenClawTranslator(Path(os.environ["MEMTIER_HOME"]))
    capture = json.loads((PAYLOADS / "openclaw" / "compaction-hooks.json").read_text("utf-8"))
    compaction = next(sample for sample in capture if sample["hook"] == "before_compaction")
    key = {"agentId": "main", "sessionKey": compaction["ctx"]["sessionKey"], "trigger": "user"}
    at = compaction["t"] - 60_000

    def payload(role: str, text: str, number: int) -> dict[str, Any]:
        return {
            "role": role,
            "content": [{"type": "text", "text": text}],
            "timestamp": at + 5000 * number,
        }

    def translated(
        name: str, event: Mapping[str, Any], milliseconds: int, **more: Any
    ) -> HookCall | None:
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return translator.translate(name, event, key | more, BASE, when)

    spoken = [
        payload(("user", "assistant")[number % 2], text, number)
        for number, text in enumerate(SESSION.lines)
    ]
    for number in range(0, len(spoken), 2):
        event = {"messages": spoken[: number + 2], "success": True}
        call(translated("agent_end", event, at + 5000 * number, runId=f"r{number}"))
    host_hooks.workers.drain(PATIENCE)
    base = datetime.fromtimestamp(compaction["t"] / 1000, UTC)
    call(
        translator.translate(compaction["hook"], compaction["event"], compaction["ctx"], BASE, base)
    )
    host_hooks.workers.drain(PATIENCE)
    shown = [{"role": "compactionSummary", "summary": "x"}, spoken[-1]]
    blocks = []
    for number, prompt in enumerate((SESSION.next.text, "Which bird is on the flag of Uganda?")):
        event = {"prompt": prompt, "messages": shown}
        added = call(
            translated("before_prompt_build", event, compaction["t"] + 1000, runId=f"q{number}")
        )
        blocks.append(added.prepend_context if added else "")
    assert " working " in blocks[0] and all(need in blocks[0] for need in SESSION.next.needs)
    assert " working " not in blocks[1]


def test_hermes() -> None:
    """Its hook has the turn so far; the next prompt has the session's purpose and limits."""
    translator = HermesTranslator(Path(os.environ["MEMTIER_HOME"]))
    key = {"session_id": "s1", "platform": "cli", "agent_identity": "default"}
    now = datetime.now(UTC)

    def translated(name: str, event: Mapping[str, Any], run: str) -> HookCall | None:
        return translator.translate(name, event, key | {"run_id": run}, BASE, now)

    for number in range(0, len(SESSION.lines), 2):
        user, assistant = SESSION.lines[number : number + 2]
        messages = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
        call(translated("sync_turn", {"user": user, "messages": messages}, f"r{number}"))
    host_hooks.workers.drain(PATIENCE)
    now += timedelta(seconds=5)
    asked = {"role": "user", "content": "Look at the weather."}
    call(translated("on_pre_compress", {"user": asked["content"], "messages": [asked]}, "r99"))
    host_hooks.workers.drain(PATIENCE)
    added = call(translated("prefetch", {"query": SESSION.next.text}, "q"))
    assert added is not None
    assert all(need in added.prepend_context for need in SESSION.next.needs)
    assert " working " in added.prepend_context
