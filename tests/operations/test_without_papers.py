"""Without the papers' package, what it would do is named, and what it wrote is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pluggy
import pytest

from memtier_plugin import MemTier
from memtier_plugin.core import hookspecs, plugins
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.events import payload_of, plugin_payload
from memtier_plugin.core.installation import install_command
from memtier_plugin.core.records import decode_event
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.yaml_file import all_keys, plugin_sections
from memtier_plugin.providers.prompting import load_prompt
from memtier_plugin.views.journal import describe_event
from tests.builders import write_config
from tests.cases import each_case
from tests.loopback import Loopback

LINES = (Path(__file__).parents[1] / "golden/ledger_lines.jsonl").read_bytes().splitlines()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the shipped plugins alone."""
    manager = pluggy.PluginManager(hookspecs.ENTRY_POINT_GROUP)
    manager.add_hookspecs(hookspecs)
    for name in plugins.SHIPPED_PLUGINS:
        manager.register(import_module(name), name)
    monkeypatch.setattr(plugins, "_extensions", lambda: manager)
    cached = plugin_payload, all_keys, plugin_sections
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


@each_case(
    "kind", ["attribute", "importance", "learn", "outcome", "persona", "prioritise", "uplift"]
)
def test_lines_of_a_missing_plugin_are_kept(kind: str) -> None:
    """An event of a kind that nothing installed knows is read, written back and listed."""
    [line, *_] = [line for line in LINES if json.loads(line).get("kind") == kind]
    event = decode_event(line)
    assert payload_of(event) is None and describe_event(event).startswith(kind)
    assert event.to_json().items() <= json.loads(line).items()


@pytest.mark.parametrize("proxy", ["logprob", "jaccard", "overlap"])
def test_settings_of_a_missing_plugin_are_named(home: Path, proxy: str) -> None:
    """`status` says of each setting which package it needs, whoever set it."""
    write_config(home, {"people": {"profiles": True}, "consolidation": {"tools": True}})
    settings = {"attribution.proxy": proxy, "ask.mode": "tools", "gate.mode": "tag"}
    with MemTier.open(home, "p", settings=settings) as memory:
        degraded = "\n".join(map(str, memory.status()["degraded"] + memory.status()["warnings"]))
    names = ("attribution.proxy (call)", "gate.mode (call)", "ask.mode (call)")
    command = install_command("memtier-papers")
    for name in names:
        assert f"{name} needs memtier-papers, which is missing: run `{command}`" in degraded
    for name in ("people", "consolidation.tools"):
        assert f"{name} ({home / 'config.yaml'}:" in degraded


def test_other_unknown_settings_are_refused(home: Path) -> None:
    """A key or a value that was never there is an error, as with the package."""
    with pytest.raises(SettingsError, match=r"unknown key 'gates\.mode'"):
        load_settings(home, "p", None, {"gates.mode": "tag"})
    with pytest.raises(SettingsError, match="expected one of call"):
        load_settings(home, "p", None, {"attribution.proxy": "cosine"})
    env = {"MEMTIER_GATE__MODE": "tag"}
    [unserved] = load_settings(home, "p", env=env).unserved
    assert unserved == "gate.mode (environment MEMTIER_GATE__MODE)"


@pytest.mark.parametrize("profile", ["paper", "rrf"])
def test_the_first_ranker_stands_in(home: Path, profile: str) -> None:
    """With a profile that nothing installed has, a recall ranks as by default, and says so."""
    with MemTier.open(home, "p", settings={"retrieval.profile": profile}) as memory:
        line = {"role": "user", "content": "My dog Rex was born in Oslo."}
        memory.record([line], session_id="s", run_id="r")
        recall = memory.recall("Where was my dog Rex born?", run_id="r2")
        ended = memory.end_run([line], session_id="s2", run_id="r2", error="it broke")
        degraded = json.dumps(memory.status())
    assert "born in Oslo" in recall.text and ended.reward == 0
    assert "memtier-papers" in degraded and "memtier-papers" in recall.label


def test_a_question_is_answered_from_the_log_instead(home: Path) -> None:
    """With `ask.mode: tools` and no plugin for it the log is read, and the answer says so."""
    with Loopback() as server:

        def answer(body: dict[str, Any]) -> str:
            system = body["messages"][0]["content"]
            if system == load_prompt("integrate").text:
                quote = "My dog Rex was born in Oslo."
                finding = {"fact": quote, "quote": quote}
                return json.dumps({"findings": [finding], "missing": ""})
            if system == load_prompt("plan").text:
                return json.dumps({"decision": "DONE", "searches": []})
            return json.dumps({"enough": True, "answer": "In Oslo.", "cites": [1]})

        server.answers(answer)
        settings = {
            "endpoints.local.base_url": server.base_url,
            "ask.model": "endpoint:local/m",
            "ask.mode": "tools",
            "ask.write_back": False,
        }
        with MemTier.open(home, "p", settings=settings) as memory:
            line = {"role": "user", "content": "My dog Rex was born in Oslo."}
            memory.record([line], session_id="s")
            reply = memory.ask("Where was my dog Rex born?")
    assert reply.text == "In Oslo."
    command = install_command("memtier-papers")
    missing = f"ask.mode (call) needs memtier-papers, which is missing: run `{command}`"
    assert reply.problem == missing
