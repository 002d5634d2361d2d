"""`memtier install`: what it shows, changes and proves."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from memtier_plugin.hosts.canary import CanaryModel, CanaryReply
from memtier_plugin.hosts.install import openclaw_plugin_folder
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import HookWait, note_waits
from tests.processes import run_memtier


@pytest.fixture(autouse=True)
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point both hosts into a folder, and take their commands off the path."""
    top = tmp_path / "hosts"
    monkeypatch.setenv("HERMES_HOME", str(top / "hermes"))
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", str(top / "openclaw" / "openclaw.json"))
    (top / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{top / 'bin'}:/usr/bin:/bin")
    return top


def run_install(*arguments: str, code: int = 0) -> Result:
    """Run `memtier install` and return its result."""
    return run_memtier("install", *arguments, code=code)


def document(*arguments: str, code: int = 0) -> dict[str, Any]:
    """Return the command's JSON document."""
    report: dict[str, Any] = json.loads(run_install(*arguments, "--json", code=code).stdout)
    return report


def host(hosts: Path, name: str, body: str) -> None:
    """Put a command in the place of a host's."""
    path = hosts / "bin" / name
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    path.chmod(0o755)


@pytest.mark.parametrize("name", ["openclaw", "hermes"])
def test_without_the_host(hosts: Path, home: Path, name: str) -> None:
    """A host that is not there is configured all the same; that nothing is proven is told."""
    report = document(name)
    assert report["changes"] and report["done"]
    assert report["canary"]["ran"] is False
    assert "no command" in report["canary"]["what"]
    assert document(name)["changes"] == []
    assert "No changes are needed" in run_install(name, "--no-canary").stdout


def test_a_dry_run(hosts: Path) -> None:
    """A dry run shows the diff and changes nothing."""
    shown = run_install("openclaw", "--dry-run").stdout
    assert '"allowConversationAccess": true' in shown
    assert "nothing was changed" in shown
    assert not (hosts / "openclaw").exists()
    assert document("hermes", "--dry-run")["done"] is False


NEIGHBOURS = {
    "gateway": {"auth": {"mode": "token", "token": "rosebud"}},
    "models": {"providers": {"x": {"apiKey": "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABC"}}},
    "plugins": {"entries": {"x": {"config": {"botToken": "hunter22"}}}, "slots": {"memory": "x"}},
}


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_only_the_own_keys_of_a_json_file_are_shown(hosts: Path, indent: int | None) -> None:
    """A diff holds no key, no value and no plugin of the user's, however the file is laid out."""
    path = hosts / "openclaw/openclaw.json"
    path.parent.mkdir()
    path.write_text(json.dumps(NEIGHBOURS, indent=indent))
    shown = run_install("openclaw", "--dry-run").output
    shown += run_install("openclaw", "--no-canary").output
    layout = path.read_text()
    assert json.loads(layout)["gateway"] == NEIGHBOURS["gateway"]
    assert ("\n" in layout, '\n    "gateway"' in layout) == (indent is not None, indent == 4)
    shown += run_install("openclaw", "--uninstall").output
    assert '-    "memory": "x"' in shown.replace("      ", "    ")
    for text in ("gateway", "rosebud", "models", "apiKey", "sk-proj", "botToken", "hunter22"):
        assert text not in shown


@pytest.mark.parametrize(
    "text",
    [
        "memory: {provider: x, api_key: hunter22}\n",
        "memory:\n  api_key: hunter22\n  provider: x\n",
    ],
)
def test_only_the_own_keys_of_a_yaml_file_are_shown(hosts: Path, text: str) -> None:
    """Keys that stand on the changed line, or on the lines around it, are not shown either."""
    path = hosts / "hermes/config.yaml"
    path.parent.mkdir()
    path.write_text(text)
    shown = run_install("hermes", "--dry-run").output
    run_install("hermes", "--no-canary")
    shown += run_install("hermes", "--uninstall", "--dry-run").output
    assert "-  provider: x\n+  provider: memtier\n" in shown
    assert "hunter22" not in shown and "api_key" not in shown


def test_a_secret_among_the_own_keys_is_masked(hosts: Path) -> None:
    """What the user wrote into MemTier's own entry under a secret's name is masked, both ways."""
    path = hosts / "openclaw/openclaw.json"
    path.parent.mkdir()
    entry = {"config": {"apiKey": "hunter22"}, "env": [{"password": "rosebud"}]}
    path.write_text(json.dumps({"plugins": {"entries": {"memtier": entry}}}))
    run_install("openclaw", "--no-canary")
    config = json.loads(path.read_text())
    config["plugins"]["entries"]["memtier"]["config"]["more"] = {"accessToken": "xyzzy"}
    path.write_text(json.dumps(config))
    shown = run_install("openclaw", "--uninstall", "--dry-run").output
    assert "[masked]" in shown
    assert not any(secret in shown for secret in ("hunter22", "rosebud", "xyzzy"))


def test_a_diff_is_not_folded(hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long path stands on one line on a narrow terminal too, below the names of the file."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    lines = run_install("openclaw", "--dry-run").stdout.splitlines()
    path = str(hosts / "openclaw/openclaw.json")
    assert f"+++ {path}" in lines and "--- /dev/null" in lines
    assert any("allowConversationAccess" in line and line.startswith("+") for line in lines)
    assert max(map(len, lines)) > 60


def test_uninstalling(hosts: Path) -> None:
    """What was changed is shown and taken back; a dry run of that changes nothing."""
    run_install("hermes", "--no-canary")
    assert len(document("hermes", "--uninstall", "--dry-run")["changes"]) == 5
    assert (hosts / "hermes/config.yaml").exists()
    assert "untouched" in run_install("hermes", "--uninstall").stdout
    assert list((hosts / "hermes").glob("*")) == [] if (hosts / "hermes").exists() else True


def test_the_project(hosts: Path) -> None:
    """Both hosts share one project unless another one is named."""
    for name, path in (("openclaw", "openclaw/openclaw.json"), ("hermes", "hermes/memtier.json")):
        assert document(name, "--no-canary")["project"] == "default"
        document(name, "--no-canary", "--project", "work")
        assert '"project": "work"' in (hosts / path).read_text()


@pytest.mark.parametrize("name", ["openclaw", "hermes"])
def test_plain_commands_show_the_hosts_project(
    hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """After an install `status` in any folder shows the hosts' project, at once and alike."""
    monkeypatch.chdir(tmp_path)
    assert "memtier init" in run_memtier("status", code=1).output
    run_install(name, "--no-canary", "--project", "harbor")
    assert json.loads(run_memtier("status", "--json").stdout)["project"] == "harbor"
    run_memtier("remember", "The ferry leaves at seven.")
    assert "ferry" in run_memtier("recall", "When does the ferry leave?").stdout
    run_install(name, "--uninstall")
    run_memtier("init")
    assert json.loads(run_memtier("status", "--json").stdout)["project"] != "harbor"


def test_a_folder_s_own_project_comes_first(
    hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that has a project, and one that the user named, are not the hosts'."""
    monkeypatch.chdir(tmp_path)
    run_memtier("init")
    own = json.loads(run_memtier("status", "--json").stdout)["project"]
    run_install("hermes", "--no-canary")
    assert json.loads(run_memtier("status", "--json").stdout)["project"] == own
    shown = run_memtier("status", "--project", "default", "--json").stdout
    assert json.loads(shown)["project"] == "default"


def test_the_project_of_a_host_that_loads_its_plugin_itself(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any install, plain commands show the project that a host used last."""
    monkeypatch.chdir(tmp_path)
    for number, project in enumerate(["harbor", "default"]):
        MemTier.open(home, project).close()
        wait = HookWait(project, "hermes.default", "agent_end", 3)
        note_waits(home, "hermes", [wait], datetime(2026, 3, 1 + number, tzinfo=UTC))
    assert json.loads(run_memtier("status", "--json").stdout)["project"] == "default"


def openclaw_with(enabled: bool, **config: Any) -> dict[str, Any]:
    """Return what `openclaw plugins install` leaves in OpenClaw's configuration."""
    entry = {"enabled": enabled, "config": config}
    return {"plugins": {"entries": {"memtier": entry}, "slots": {"memory": "memtier"}}}


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("openclaw/openclaw.json", openclaw_with(True), True),
        ("openclaw/openclaw.json", openclaw_with(False), False),
        ("openclaw/openclaw.json", {"plugins": {"slots": ["no"], "entries": 3}}, False),
        ("openclaw/openclaw.json", openclaw_with(True, home="/elsewhere"), False),
        ("openclaw/openclaw.json", openclaw_with(True, home=5, project=""), True),
        ("hermes/config.yaml", {"memory": {"provider": "memtier"}}, True),
        ("hermes/config.yaml", {"memory": {"provider": "mem0"}}, False),
    ],
)
def test_the_project_of_a_plugin_before_its_first_turn(
    hosts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    text: dict[str, Any],
    expected: bool,
) -> None:
    """A plugin that the host itself installed has its project shown before any turn."""
    monkeypatch.chdir(tmp_path)
    (hosts / file).parent.mkdir(parents=True, exist_ok=True)
    (hosts / file).write_text(json.dumps(text))
    if expected:
        assert json.loads(run_memtier("status", "--json").stdout)["project"] == "default"
    else:
        assert "memtier init" in run_memtier("status", code=1).output


def test_a_host_that_does_not_start(hosts: Path) -> None:
    """A host that fails by itself is told apart from one that does without MemTier."""
    host(hosts, "openclaw", "raise SystemExit('openclaw needs node 24')")
    canary = document("openclaw", code=1)["canary"]
    assert (canary["ran"], canary["ok"]) == (True, False)
    assert "ended with 1 and asked no model" in canary["what"]
    assert "openclaw needs node 24" in canary["said"]


PATHS = """
    import json, os
    print(json.load(open(os.environ["OPENCLAW_CONFIG_PATH"]))["plugins"]["load"]["paths"])
"""


def test_a_plugin_among_the_host_s_own(hosts: Path) -> None:
    """The turn that proves it has the plugin of OpenClaw's own folder, though not that folder."""
    folder = hosts / "openclaw/extensions/memtier"
    folder.mkdir(parents=True)
    shutil.copy(openclaw_plugin_folder() / "openclaw.plugin.json", folder)
    host(hosts, "openclaw", PATHS)
    assert str([str(folder)]) in document("openclaw", code=1)["canary"]["said"]


ASKS = """
    import json, os, sys, urllib.request
    config = json.load(open(os.environ["OPENCLAW_CONFIG_PATH"]))
    provider = config["models"]["providers"]["memtier-canary"]
    body = {{"messages": [{{"role": "user", "content": {content}}}]}}
    request = urllib.request.Request(
        provider["baseUrl"] + "/chat/completions", json.dumps(body).encode(),
        {{"Content-Type": "application/json"}})
    print(urllib.request.urlopen(request).read())
"""


def test_a_host_that_does_without(hosts: Path, home: Path) -> None:
    """A host whose request has no recalled line is found out, and doctor is the remedy."""
    host(hosts, "openclaw", ASKS.format(content="sys.argv[-2]"))
    canary = document("openclaw", code=1)["canary"]
    assert "the planted line was not in the request" in canary["what"]
    assert "memtier doctor" in canary["remedy"]
    projects = [path.name for path in (home / "projects").iterdir()]
    assert projects == ["default"], "the throw-away project is gone"


def test_the_canarys_configuration_has_nothing_of_the_users(hosts: Path, tmp_path: Path) -> None:
    """The host is run with the user's plugins, and without models, channels and keys of theirs."""
    seen = tmp_path / "seen"
    body = f"""
        import os, shutil
        shutil.copy(os.environ["OPENCLAW_CONFIG_PATH"], {str(seen)!r})
        print(os.environ["OPENCLAW_STATE_DIR"])
    """
    host(hosts, "openclaw", body)
    path = hosts / "openclaw/openclaw.json"
    path.parent.mkdir()
    theirs = {
        "channels": {"telegram": {"botToken": "secret"}},
        "models": {"providers": {"x": {"apiKey": "secret"}}},
        "plugins": {"allow": ["x"], "entries": {"x": {"config": {"key": "secret"}}}},
    }
    path.write_text(json.dumps(theirs))
    assert "the test failed" in run_install("openclaw", code=1).output
    assert "secret" not in seen.read_text()
    plugins = json.loads(seen.read_text())["plugins"]
    assert plugins["allow"] == ["x", "memtier"]
    assert plugins["entries"]["memtier"]["config"]["project"].startswith("canary-")


def test_the_canarys_model() -> None:
    """The model on this machine speaks the protocol: tools, streams and errors."""
    import openai

    replies = [
        CanaryReply(text="Hello."),
        CanaryReply(tool=("exec", {"command": "ls"})),
        CanaryReply(status=500),
    ]
    with CanaryModel(lambda _: replies[0]) as model:
        client = openai.OpenAI(base_url=model.base_url, api_key="none", max_retries=0)
        ask = [{"role": "user", "content": "?"}]
        create: Any = client.chat.completions.create
        for stream in (False, True):
            answer = create(model="m", messages=ask, stream=stream)
            if stream:
                reply = "".join(c.choices[0].delta.content or "" for c in answer if c.choices)
            else:
                reply = answer.choices[0].message.content
            assert reply == "Hello."
        model.answer = lambda _: replies[1]
        call = create(model="m", messages=ask).choices[0].message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"command": "ls"}
        model.answer = lambda _: replies[2]
        with pytest.raises(openai.InternalServerError):
            create(model="m", messages=ask)
        assert client.models.list().data[0].id == "canary"
        assert len(model.requests) == 4
        client.close()


def test_doctor_has_the_hosts(hosts: Path, home: Path) -> None:
    """`memtier doctor` names what is wrong with a host, also before there is a project."""
    run_install("openclaw", "--no-canary")
    path = hosts / "openclaw/openclaw.json"
    path.write_text(path.read_text().replace('"allowConversationAccess": true', '"x": 1'))
    result = run_memtier("doctor", "--json", code=1)
    findings = json.loads(result.stdout)["findings"]
    assert any("allowConversationAccess" in finding["what"] for finding in findings)
    assert os.environ["PATH"].startswith(str(hosts))


def test_the_host_s_model_by_consent(hosts: Path, home: Path) -> None:
    """What is consented to stands there with its caps, and is undone with the rest."""
    shown = run_install("hermes", "--use-host-model", "--dry-run").stdout
    assert "+  model: host" in shown
    run_install("hermes", "--use-host-model", "--no-canary")
    assert '+ "host_model": true' in shown
    assert "at most 200 calls, 2000000 tokens and a cost of 0 a day" in " ".join(shown.split())
    assert document("hermes", "--no-canary")["host_model"], "it stays consented to"
    assert document("hermes", "--no-host-model", "--no-canary")["host_model"] is None
    assert document("hermes", "--uninstall")["host_model"] is None
    assert not list(home.rglob("project.yaml*"))


@pytest.mark.parametrize("option", ["--uninstall", "--dry-run", "--use-host-model"])
def test_what_is_for_a_host_needs_one(option: str) -> None:
    """An option that is about a host is not passed over in silence where none is named."""
    assert "HOST" in run_install(option, code=2).stderr
    if option == "--use-host-model":
        run_install("--service", option, code=2)
