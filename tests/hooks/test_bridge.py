"""OpenClaw's side of the pipe, in JavaScript, run by node's own test runner."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.paths import is_on_network, socket_path
from memtier_plugin.core.residents import claim_socket, find_owner
from tests.processes import child_environment, run_command

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "hooks" / "openclaw"
node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


def run(*arguments: str | Path, **environment: str) -> str:
    """Run node and return what it prints; the test fails with it if it fails."""
    return run_command("node", *arguments, env=child_environment(**environment)).stdout


@node
@pytest.mark.slow
def test_the_bridge() -> None:
    """Deadline, restart, queue and socket hold in JavaScript as they do in Python."""
    serve = json.dumps([sys.executable, "-W", "ignore", "-m", "memtier_plugin"])
    output = run("--test", "--test-reporter=tap", ROOT / "tests/shim/bridge.test.mjs", SERVE=serve)
    assert re.search(r"^# pass \d\d$", output, re.MULTILINE)
    assert re.search(r"^# (fail|skipped|cancelled) 0$", output, re.MULTILINE)


@node
@pytest.mark.parametrize("home", ["/home/mara/.memtier", "/home/mära/" + "x" * 90 + "/.memtier"])
def test_both_sides_mean_the_same_socket(home: str) -> None:
    """JavaScript and Python look for the resident of a home at the same place."""
    code = (
        f"import {{ socketPath }} from {json.dumps(str(SHIM / 'bridge.js'))};"
        f"console.log(socketPath({json.dumps(home)}));"
    )
    assert run("--input-type=module", "-e", code).strip() == str(socket_path(Path(home)))


@node
@pytest.mark.parametrize(
    "notes",
    [
        "",
        "?",
        "12",
        "12\n",
        "12 0.1.0 starting\n",
        "12 0.1.0 starting\n12 0.1.0 re",
        "12 0.1.0 starting\n12 0.1.0 ready\n",
        "12 0.1.0 ready\n12 0.1.0 starting\n",
    ],
)
def test_both_sides_know_the_same_owner(home: Path, notes: str) -> None:
    """Whatever the owner of a socket had time to say of itself, both sides read it alike."""
    claim = claim_socket(home)
    assert claim is not None
    os.write(claim.lock, notes.encode("ascii"))
    code = (
        f"import {{ readOwner }} from {json.dumps(str(SHIM / 'bridge.js'))};"
        f"console.log(JSON.stringify(readOwner({json.dumps(str(claim.path))})));"
    )
    read = json.loads(run("--input-type=module", "-e", code))
    owner = find_owner(home)
    claim.end()
    assert (read.get("pid"), read.get("ready")) == (
        (owner.pid, owner.ready) if owner else (None, None)
    )


@node
def test_both_sides_know_the_same_networks(tmp_path: Path) -> None:
    """A folder that several machines see is one for JavaScript and for Python."""
    mounts = tmp_path / "mounts"
    lines = ["/dev/a / ext4 rw 0 0", "x:/h /home nfs4 rw 0 0", "/dev/b /home/own xfs rw 0 0"]
    mounts.write_text("\n".join([*lines, "//s/t /a\\040share cifs rw 0 0", ""]))
    folders = ["/", "/home/mara", "/home", "/homes", "/home/own/mara", "/a share/x"]
    code = (
        f"import {{ isOnNetwork }} from {json.dumps(str(SHIM / 'bridge.js'))};"
        f"const on = (f) => isOnNetwork(f, {json.dumps(str(mounts))});"
        f"console.log(JSON.stringify({json.dumps(folders)}.map(on)));"
    )
    answers = [is_on_network(Path(folder), mounts) for folder in folders]
    assert answers == [False, True, True, False, False, True]
    assert json.loads(run("--input-type=module", "-e", code)) == answers


@node
def test_both_sides_agree_on_the_limits() -> None:
    """What both pipes know by number is the same number."""
    files = ("resident.py", "resident_connection.py")
    python = "".join((ROOT / "hooks" / file).read_text("utf-8") for file in files)
    script = (SHIM / "bridge.js").read_text("utf-8")
    for name in ("MAX_QUEUED", "MAX_IN_MEMORY", "MAX_REQUEST_BYTES"):
        (ours,) = re.findall(rf"^{name}: Final = ([^#\n]+?)\s*(?:#|$)", python, re.MULTILINE)
        (theirs,) = re.findall(rf"^const {name} = ([^;]+);", script, re.MULTILINE)
        assert ours == theirs, name
    python = (ROOT / "memtier_plugin" / "operations" / "hook_calls.py").read_text("utf-8")
    waits = (SHIM / "waits.js").read_text("utf-8")
    for name in ("MAX_NOTED", "SLOWEST_DAYS"):
        (ours,) = re.findall(rf"^{name}: Final = (\d+)", python, re.MULTILINE)
        assert f"const {name} = {ours};" in waits
    python = (ROOT / "hooks" / "resident.py").read_text("utf-8")
    (allowed,) = re.findall(r'r"\(\?:(.*)\)\\Z"', python)
    assert f"/^({allowed})$/" in script


def test_the_manifest_names_every_tool() -> None:
    """OpenClaw drops a tool that its manifest does not name."""
    manifest = json.loads((SHIM / "openclaw.plugin.json").read_text("utf-8"))
    script = (SHIM / "index.js").read_text("utf-8")
    tools = re.findall(r"^  (memtier_\w+): \{$", script, re.MULTILINE)
    assert manifest["contracts"]["tools"] == tools
    package = json.loads((SHIM / "package.json").read_text("utf-8"))
    assert package["version"] == manifest["version"]
    assert not package.get("dependencies")


def test_the_manifest_has_every_setting() -> None:
    """OpenClaw refuses a setting that the manifest lacks, and tells of one that nobody reads."""
    manifest = json.loads((SHIM / "openclaw.plugin.json").read_text("utf-8"))
    script = (SHIM / "index.js").read_text("utf-8")
    read = {*re.findall(r"\bconfig\.(\w+)", script)}
    [picked] = re.findall(r"const \{([^}]+)\} = config;", script)
    read |= {name.split("=")[0].strip() for name in picked.split(",")}
    assert {*manifest["configSchema"]["properties"]} == read


PLUGIN = """
import plugin from %(index)s;

const [grant, asked, command, home] = JSON.parse(process.argv[1]);
const warnings = [];
const tools = {};
let builder;
for (let time = 0; time < 3; time++) {
  plugin.register({
    pluginConfig: { command, home },
    config: { plugins: { entries: { memtier: { hooks: { allowConversationAccess: grant } } } } },
    logger: { warn: (text) => warnings.push(text), debug: () => {} },
    on: () => {},
    registerTool: (make, { name }) => (tools[name] = make({ agentId: "main" })),
    registerMemoryCapability: ({ promptBuilder }) => (builder = promptBuilder),
  });
}
const prompt = builder({ availableTools: new Set(asked) }).join("\\n");
let refusal = "";
if (command) {
  const found = await tools.memtier_search.execute("1", { query: "zebra" });
  refusal = found.content[0].text;
  const got = tools.memtier_get.execute("2", { id: "ABCDEF" });
  await got.catch((error) => (refusal = `threw ${error.message}`));
}
console.log(JSON.stringify({ warnings, prompt, tools: Object.keys(tools), refusal }));
process.exit();
"""


def register_plugin(*arguments: object) -> dict[str, Any]:
    """Register the plugin three times, as OpenClaw does, and return what it said."""
    code = PLUGIN % {"index": json.dumps(str(SHIM / "index.js"))}
    report: dict[str, Any] = json.loads(
        run("--input-type=module", "-e", code, json.dumps(arguments))
    )
    return report


@node
def test_a_missing_grant_is_told() -> None:
    """Without the grant the host drops the hooks silently: the log and the prompt say so, once."""
    granted = register_plugin(True, ["memtier_search"])
    assert granted["warnings"] == [] and "allowConversationAccess" not in granted["prompt"]
    for tools in (["memtier_search"], []):
        refused = register_plugin(False, tools)
        assert len(refused["warnings"]) == 1
        for text in (refused["warnings"][0], refused["prompt"]):
            assert (
                "openclaw config set plugins.entries.memtier.hooks.allowConversationAccess" in text
            )


@node
def test_the_prompt_tells_how_hidden_tools_are_called() -> None:
    """Where the host defers the tools' schemas the prompt names its search, and else does not."""
    assert "tool_search" not in register_plugin(True, ["memtier_search"])["prompt"]
    deferred = ["memtier_search", "memory_search", "tool_search", "tool_call"]
    prompt = register_plugin(True, deferred)["prompt"]
    assert "find the memtier_ tools with tool_search" in prompt
    assert "memory_search is another tool" in prompt


HISTORY = "[Chat messages since your last reply - for context]\n"
CURRENT = "\n\n[Current message - respond to this]\n"


@node
def test_what_is_a_command_over_http() -> None:
    """The whole of a person's own message is one; no text of a tool, a page or a session is."""
    prompts = {
        "/memtier": "",
        " /memtier  review\n": "review",
        "/memtier review edit A1 Two\nlines": "review edit A1 Two\nlines",
        f"{HISTORY}User: Hi.\nAssistant: Hello.{CURRENT}User: /memtier review": "review",
        "/memtierx": None,
        "What does /memtier do?": None,
        "": None,
        f"{HISTORY}User: /memtier review{CURRENT}User: Thanks.": None,
        f"{HISTORY}User: Read it.{CURRENT}Tool:1: /memtier review": None,
        f"{HISTORY}User: Read it.{CURRENT}Tool:1: It says{CURRENT}User: /memtier review": None,
        f"{HISTORY}Tool:1: It says{CURRENT}User: /memtier x{CURRENT}User: Well?": None,
        f"[Inter-session message] from=x\nHi.{CURRENT}User: /memtier review": None,
    }
    code = (
        f"import {{ commandIn }} from {json.dumps(str(SHIM / 'index.js'))};"
        f"console.log(JSON.stringify({json.dumps([*prompts])}.map((p) => commandIn(p) ?? null)));"
    )
    assert json.loads(run("--input-type=module", "-e", code)) == [*prompts.values()]


@node
def test_a_refusal_is_an_error(home: Path) -> None:
    """OpenClaw tells its model of a failure by what a tool throws, and an empty search is none."""
    serve = [sys.executable, "-W", "ignore", "-m", "memtier_plugin"]
    report = register_plugin(True, [], serve, str(home))
    assert report["refusal"].startswith("threw memtier_get failed: there is no line")
    assert report["tools"] == ["memtier_search", "memtier_get", "memtier_store", "memtier_forget"]


@node
def test_a_checkout_without_a_command(tmp_path: Path) -> None:
    """The checkout's own command is run; without any, what to do is told."""
    api = """
      import plugin from SHIM;
      const warned = [];
      const hooks = {};
      plugin.register({
        rootDir: ROOT, pluginConfig: {}, logger: { warn: (text) => warned.push(text) },
        on: (name, hook) => (hooks[name] = hook), registerTool() {},
      });
      await hooks.before_prompt_build({ prompt: "Where?" }, { sessionKey: "k" });
      console.log(warned.join(" "));
    """
    shim = json.dumps(str(SHIM / "index.js"))
    code = api.replace("SHIM", shim).replace("ROOT", json.dumps(str(tmp_path)))
    script = tmp_path / "install.sh"
    script.touch()
    where = {"HOME": str(tmp_path), "MEMTIER_HOME": str(tmp_path / "home"), "PATH": "/nowhere"}
    arguments = (shutil.which("node") or "", "--input-type=module", "-e", code)
    output = run_command(*arguments, env=child_environment(**where)).stdout
    assert "cannot start memtier" in output and f"run {script}" in output
    own = tmp_path / ".venv" / "bin" / "memtier"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\necho not today >&2\nexit 3\n")
    own.chmod(0o700)
    assert "not today" in run_command(*arguments, env=child_environment(**where)).stdout
