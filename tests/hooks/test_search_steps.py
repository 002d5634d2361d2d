"""A host's model searches store by store, by the memory tools: the bounds of `ask.mode: tools`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.answering.store_search import MAX_STEPS
from memtier_plugin.core.records import FactDraft, Source
from memtier_plugin.core.results import PromptEvent, RunContext
from memtier_plugin.hooks import hermes, tools
from memtier_plugin.hooks.host_hooks import before_prompt_build
from memtier_plugin.mcp.definitions import TOOLS as MCP_TOOLS
from memtier_plugin.memory import MemTier
from memtier_plugin.trust.escaping import remove_blocks
from tests.hooks.test_bridge import SHIM, node, run
from tests.processes import ROOT

AGENT = "hermes.default"
SERVE = [sys.executable, "-W", "ignore", "-m", "memtier_plugin"]
TALK = [
    "My dog Rex was born in Oslo.",
    "My cat Mia was born in Bergen.",
    "The ferry to Skagen leaves at seven.",
]


@pytest.fixture(autouse=True)
def planted(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Record a talk and a fact that rests on its first line; begin without runs."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tools._runs.clear()
    with MemTier.open(home, "p", AGENT) as memory:
        entries = [
            memory.record([{"role": "user", "content": text}], session_id="pets")[0]
            for text in TALK
        ]
        source = Source(agent=AGENT, session="pets", entry=entries[0].id)
        rex = FactDraft(
            subject="Rex",
            relation="born_in",
            value="Oslo",
            text="Rex was born in Oslo.",
            sources=(source,),
        )
        memory.add_facts([rex])
    yield


def context(**more: Any) -> RunContext:
    """Return the context of a call."""
    return RunContext(**{"agent_id": AGENT, "session_id": "now", "project": "p"} | more)


def search(store: str, query: str = "dog Rex born", **more: Any) -> dict[str, Any]:
    """Search a store as a model does."""
    arguments = {"query": query, "store": store}
    return tools.call_tool("memtier_search", arguments, context(**more))


def prompt(**more: Any) -> None:
    """Build a prompt, which begins a run."""
    before_prompt_build(PromptEvent(prompt="Where were my pets born?"), context(**more))


def test_a_step_shows_its_sources_once() -> None:
    """A fact comes with the line it rests on, in the fence, and neither is shown again."""
    facts = search("facts")
    assert facts["ok"] and "fact" in facts["text"] and TALK[0] in facts["text"]
    assert len(facts["ids"]) == 2
    assert remove_blocks(facts["text"]) == "Steps left: 5."
    turns = search("turns", "dog Rex cat Mia born")
    assert TALK[0] not in turns["text"] and TALK[1] in turns["text"]
    again = search("turns", "dog Rex cat Mia born")
    assert again == {"text": "Nothing that was not shown before. Steps left: 3.", "ok": True} | {
        "ids": []
    }
    assert {"Rex was born in Oslo."} == {
        line.rpartition("] ")[2] for line in facts["text"].splitlines() if " fact " in line
    }
    assert search("personas", "Rex")["text"].startswith("Nothing")


def test_six_steps_a_run() -> None:
    """The seventh search of a store is refused, one of everything is not; the next run has six."""
    prompt(run_id="r1")
    for number in range(MAX_STEPS - 1):
        assert search("turns", f"ferry {number}")["ok"]
    assert "store is one of summary, facts" in search("finish")["text"]
    refused = search("turns", run_id="r1")
    assert not refused["ok"] and "6 times at most" in refused["text"]
    assert TALK[0] in tools.call_tool("memtier_search", {"query": TALK[0]}, context())["text"]
    prompt(run_id="r1")  # the same prompt once more
    assert not search("turns")["ok"]
    assert search("turns", agent_id="hermes.other")["ok"]
    prompt(run_id="r2")
    assert TALK[2] in search("turns", "ferry")["text"]


def test_without_prompts_or_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run id begins a run too, and a silence does; without a session each call is its own."""
    for run_id in ("r1", "r2"):
        assert TALK[2] in search("turns", "ferry", run_id=run_id)["text"]
    assert TALK[2] not in search("turns", "ferry")["text"]
    monkeypatch.setattr(tools, "_SILENCE", 0.0)
    assert TALK[2] in search("turns", "ferry")["text"]
    for _ in range(MAX_STEPS + 1):
        assert TALK[2] in search("turns", "ferry", session_id=None)["text"]


def test_wrong_arguments_use_a_step() -> None:
    """A search without a text, or of too many lines, says what is wrong."""
    assert search("facts", " ")["text"] == "search_facts needs a text to search for."
    arguments = {"query": "x", "store": "turns", "limit": 51}
    answer = tools.call_tool("memtier_search", arguments, context())
    assert not answer["ok"] and "1 to 50" in answer["text"]
    assert "Steps left: 3" in search("summary", "")["text"]


def test_what_is_anothers_stays_theirs(home: Path) -> None:
    """No step shows what another agent or sender said in private."""
    with MemTier.open(home, "p", AGENT) as memory:
        message = {"role": "user", "content": "The dog Rex bit my neighbour."}
        memory.record([message], session_id="s", sender="mara", private=True)
    for more in ({"sender": "olaf"}, {"agent_id": "hermes.other", "sender": "mara"}):
        for store in ("turns", "facts", "summary", "experiences", "personas"):
            assert "bit my neighbour" not in search(store, "dog Rex bit neighbour", **more)["text"]
    assert "bit my neighbour" in search("turns", "dog Rex bit neighbour", sender="mara")["text"]


def test_hermes_with_a_resident(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hermes' model searches step by step through the provider and a real resident."""
    config = {"command": SERVE, "home": str(home), "project": "p", "environment": ["PYTHONPATH"]}
    (tmp_path / "memtier.json").write_text(json.dumps(config))
    provider = hermes.Provider()
    provider.initialize("s", hermes_home=str(tmp_path), agent_identity="default")

    def ask(store: str, query: str) -> dict[str, Any]:
        arguments = {"query": query, "store": store}
        return dict(json.loads(provider.handle_tool_call("memtier_search", arguments)))

    try:
        for number in (1, 2):
            provider.on_turn_start(number, f"Where were my pets born? {number}")
            provider.prefetch(f"Where were my pets born? {number}")
            assert TALK[0] in ask("facts", "dog Rex born")["result"]
            for step in range(1, MAX_STEPS):
                shown = ask("turns", "dog Rex born")["result"]
                assert TALK[0] not in shown and f"Steps left: {MAX_STEPS - step - 1}" in shown
            assert "6 times at most" in ask("turns", "ferry")["error"]
    finally:
        provider.shutdown()


PLUGIN = """
import plugin from %(index)s;

const [command, home] = JSON.parse(process.argv[1]);
const context = { agentId: "main", sessionKey: "agent:main:s", sessionId: "s" };
const [handlers, tools, texts] = [{}, {}, []];
plugin.register({
  pluginConfig: { command, home, project: "p", promptDeadlineMs: 14000 },
  config: { plugins: { entries: { memtier: { hooks: { allowConversationAccess: true } } } } },
  logger: { warn: () => {}, debug: () => {} },
  on: (name, handler) => (handlers[name] = handler),
  registerTool: (make, { name }) => (tools[name] = make(context)),
});
await handlers.before_prompt_build({ prompt: "ferry?", messages: [] }, { ...context, runId: "r" });
const store = tools.memtier_search.parameters.properties.store.enum.at(-1);
for (let step = 0; step < 7; step++) {
  const done = tools.memtier_search.execute("1", { query: "ferry to Skagen", store });
  const read = (answer) => answer.content[0].text;
  texts.push(await done.then(read, (error) => `threw ${error.message}`));
}
console.log(JSON.stringify(texts));
process.exit();
"""


@node
def test_openclaw_with_a_resident(home: Path) -> None:
    """OpenClaw's model searches step by step through the plugin and a real resident."""
    with MemTier.open(home, "p", "openclaw.main") as memory:
        memory.record([{"role": "user", "content": TALK[2]}], session_id="earlier")
    code = PLUGIN % {"index": json.dumps(str(SHIM / "index.js"))}
    output = run("--input-type=module", "-e", code, json.dumps([SERVE, str(home)]))
    first, *others, last = json.loads(output)
    assert TALK[2] in first and first.endswith("Steps left: 5.")
    assert [text for text in others if not text.startswith("Nothing that was not shown")] == []
    assert last.startswith("threw One run searches single stores 6 times at most")


def test_every_host_offers_the_same_stores() -> None:
    """The stores of the tools' schemas are those that can be searched."""
    [schema] = [t for t in hermes.Provider().get_tool_schemas() if t["name"] == "memtier_search"]
    offered = schema["parameters"]["properties"]["store"]["enum"]
    assert set(offered) == set(tools.STORES)
    assert f"enum: {json.dumps(offered)}" in (SHIM / "index.js").read_text("utf-8")
    assert offered == MCP_TOOLS["memory_search"]["inputSchema"]["properties"]["store"]["enum"]
