"""OpenClaw as it comes, with its own memory plugin and deferred tools: nothing disturbs it."""

from __future__ import annotations

import json

from tests.runtimes.hosts import Ground, OpenClaw
from tests.runtimes.test_install import memtier

TURNS = 4


def as_it_comes(openclaw: OpenClaw) -> None:
    """Let OpenClaw load all its plugins, and defer the schemas of their tools."""
    config = json.loads(openclaw.config.read_text())
    del config["tools"], config["plugins"]["allow"]
    openclaw.config.write_text(json.dumps(config))


def test_a_quiet_gateway(ground: Ground, openclaw: OpenClaw) -> None:
    """Beside memory-core no tool collides, the prompt names what is hidden, no error is logged."""
    as_it_comes(openclaw)
    ground.plant(openclaw.agent, "My bag is in the blue locker.")
    with openclaw.gateway():
        for number in range(TURNS):
            openclaw.post(f"Where is my bag? (question {number})", "agent:main:quiet")
        code, document = memtier(ground, openclaw, "doctor", "--project", "shared")
    findings = [finding["what"] for finding in document["findings"]]
    assert code == 0, findings
    assert any("are MemTier's in OpenClaw, says the running Gateway" in what for what in findings)
    assert any("OpenClaw calls MemTier's before_prompt_build" in what for what in findings)
    assert openclaw.errors() == []
    assert any("blue locker" in prompt for prompt in ground.model.asked())
    assert all("find the memtier_ tools with tool_search" in s for s in ground.model.instructed())
    tools = {tool["function"]["name"] for tool in ground.model.requests[-1]["tools"]}
    assert "tool_search" in tools and "memtier_search" not in tools


def test_without_the_grant(ground: Ground, openclaw: OpenClaw) -> None:
    """A turn that OpenClaw keeps from MemTier says so in the output, the prompt and by doctor."""
    as_it_comes(openclaw)
    config = json.loads(openclaw.config.read_text())
    del config["plugins"]["entries"]["memtier"]["hooks"]
    openclaw.config.write_text(json.dumps(config))
    output = openclaw.say("Where is my bag?")
    assert output.count("memtier: nothing is recalled or recorded") == 1
    assert "does not let it see conversations" in ground.model.instructed()[-1]
    code, document = memtier(ground, openclaw, "doctor", "--project", "shared")
    findings = [finding["what"] for finding in document["findings"] if finding["level"] == "error"]
    assert code == 1
    assert any("MemTier's before_prompt_build, agent_end" in what for what in findings)


RIVAL = """
const tool = (name) => () => ({
  name, label: name, description: name, parameters: { type: "object", properties: {} },
  async execute() { return { content: [{ type: "text", text: "rival" }], details: {} }; },
});
export default {
  id: "rival", name: "Rival", description: "Another memory",
  register(api) {
    for (const name of ["memory_recall", "memory_store"]) api.registerTool(tool(name), { name });
    api.on("before_prompt_build", () => ({ prependContext: "<rival>Their line.</rival>" }));
  },
};
"""


def test_another_memory_plugin(ground: Ground, openclaw: OpenClaw) -> None:
    """Beside another memory with tools and a block of its own, ours work and nothing is logged."""
    as_it_comes(openclaw)
    folder = openclaw.top / "rival"
    folder.mkdir()
    (folder / "index.js").write_text(RIVAL)
    tools = {"tools": ["memory_recall", "memory_store"]}
    schema = {"type": "object", "additionalProperties": False, "properties": {}}
    manifest = {"id": "rival", "name": "Rival", "version": "0.0.1", "contracts": tools}
    manifest |= {"kind": "memory", "activation": {"onStartup": True}, "configSchema": schema}
    (folder / "openclaw.plugin.json").write_text(json.dumps(manifest))
    package = {"name": "rival", "version": "0.0.1", "type": "module"}
    package |= {"openclaw": {"extensions": ["./index.js"]}}
    (folder / "package.json").write_text(json.dumps(package))
    config = json.loads(openclaw.config.read_text())
    config["plugins"]["load"]["paths"].append(str(folder))
    grant = {"enabled": True, "hooks": {"allowConversationAccess": True}}
    config["plugins"]["entries"]["rival"] = grant
    openclaw.config.write_text(json.dumps(config))
    ground.plant(openclaw.agent, "My bag is in the blue locker.")
    with openclaw.gateway():
        openclaw.post("Where is my bag?", "agent:main:rival")
        code, document = memtier(ground, openclaw, "doctor", "--project", "shared")
    assert code == 0, document["findings"]
    assert openclaw.errors() == []
    assert "blue locker" in ground.model.asked()[-1]
    assert [entry.content for entry in ground.entries(openclaw.agent) if entry.role == "user"] == [
        "Where is my bag?"
    ]
