"""Which files of a coding agent change when MemTier is installed, and that they come back."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import memtier_plugin
from memtier_plugin.cli.install import _next_step
from memtier_plugin.core.errors import LedgerWriteError, SettingsError, Unsupported
from memtier_plugin.core.installation import install_command
from memtier_plugin.hosts import coding_agents, install
from memtier_plugin.hosts.agent_canary import converse, run_agent_canary
from memtier_plugin.hosts.doctor import ask_codex, check_agents, try_agents
from memtier_plugin.hosts.project import EVENTS, launch_command, serves
from memtier_plugin.memory import MemTier
from tests.processes import ROOT, run_memtier

SETTINGS = {
    "model": "opus",
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "notify-send done"}]}],
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "guard"}]}],
    },
}
STATE = {"numStartups": 7, "mcpServers": {"other": {"command": "x"}}, "tip": "größer"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point Claude Code into a folder."""
    top = tmp_path / "claude"
    top.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(top))
    for name in ("HOME", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "user"))
    return top


def put(folder: Path) -> dict[str, bytes]:
    """Write the files as a user has them; return their bytes."""
    (folder / "settings.json").write_text(json.dumps(SETTINGS, indent=4))
    (folder / ".claude.json").write_text(json.dumps(STATE, ensure_ascii=False))
    return files(folder)


def files(folder: Path) -> dict[str, bytes]:
    """Return every file by its name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read(folder: Path, name: str) -> dict[str, Any]:
    """Return a configuration."""
    document: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    return document


def test_what_is_added(folder: Path, home: Path) -> None:
    """The server and the hooks are added with an absolute home and the project; the rest stays."""
    put(folder)
    assert len(install.install_host("claude-code", home, "shop")) == 2
    state, settings = read(folder, ".claude.json"), read(folder, "settings.json")
    scope = [*launch_command(), "--home", str(home), "--project", "shop"]
    server = state["mcpServers"].pop("memtier")
    agent = ["--agent", "claude-code.main"]
    assert [server["command"], *server["args"]] == [*scope, *agent, "mcp"]
    assert server["type"] == "stdio" and state == STATE
    assert (folder / ".claude.json").read_text("utf-8").count("größer") == 1
    hooks = settings["hooks"]
    assert hooks["PreToolUse"] == SETTINGS["hooks"]["PreToolUse"]  # type: ignore[index]
    assert [len(hooks[name]) for name in ("Stop", "UserPromptSubmit", "PostToolUse")] == [2, 1, 1]
    assert hooks["PostToolUse"][0]["matcher"] == "*"
    assert hooks["Stop"][1]["hooks"][0]["command"].endswith("--project shop hook claude-code")


@pytest.mark.parametrize("there", [True, False])
def test_uninstalling(folder: Path, home: Path, there: bool) -> None:
    """Taken back, each byte is as before, also after it was installed twice for two projects."""
    before = put(folder) if there else {}
    install.install_host("claude-code", home, "shop")
    assert install.install_host("claude-code", home, "shop") == []
    install.install_host("claude-code", home, "other")
    assert "shop" not in (folder / "settings.json").read_text()
    install.uninstall_host("claude-code", home)
    assert (files(folder) if folder.exists() else {}) == before


def test_uninstalling_what_changed_since(folder: Path, home: Path) -> None:
    """What the agent and the user wrote since stays; only what was added goes."""
    put(folder)
    install.install_host("claude-code", home, "shop")
    state, settings = read(folder, ".claude.json"), read(folder, "settings.json")
    state["numStartups"] = 8
    settings["hooks"]["Stop"][1]["hooks"].append({"type": "command", "command": "mine"})
    (folder / ".claude.json").write_text(json.dumps(state))
    (folder / "settings.json").write_text(json.dumps(settings))
    install.uninstall_host("claude-code", home)
    assert read(folder, ".claude.json") == {**STATE, "numStartups": 8}
    left = read(folder, "settings.json")["hooks"]
    assert {*left} == {"Stop", "PreToolUse"}
    assert left["Stop"][1]["hooks"] == [{"type": "command", "command": "mine"}]


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": 5}', '{"hooks": []} // mine'])
def test_a_file_that_cannot_be_edited(folder: Path, home: Path, text: str) -> None:
    """Nothing is changed where a file is not what it should be, and the error names it."""
    (folder / "settings.json").write_text(text)
    with pytest.raises(SettingsError, match=r"settings\.json"):
        install.install_host("claude-code", home, "p")
    assert [*files(folder)] == ["settings.json"]


def test_dry_run_and_the_model(folder: Path, home: Path) -> None:
    """A dry run changes nothing; the agent's model is not MemTier's to ask."""
    shown = run_memtier("--home", home, "install", "claude-code", "--dry-run").output
    assert "hook claude-code" in shown and not files(folder)
    with pytest.raises(Unsupported):
        install.plan_changes("claude-code", home, "p", use_host_model=True)


@pytest.mark.parametrize("there", [True, False])
def test_links_stay_links(folder: Path, home: Path, tmp_path: Path, there: bool) -> None:
    """A configuration that is a link into another folder is changed there, and stays a link."""
    dotfiles = tmp_path / "dotfiles"
    before = put(folder)
    folder.rename(dotfiles)
    folder.mkdir()
    if not there:
        (dotfiles / "settings.json").unlink()
        del before["settings.json"]
    for name in ("settings.json", ".claude.json"):
        (folder / name).symlink_to(dotfiles / name)
    install.install_host("claude-code", home, "shop")
    assert (folder / "settings.json").is_symlink() and (folder / ".claude.json").is_symlink()
    assert "memtier" in read(dotfiles, ".claude.json")["mcpServers"]
    assert "Stop" in read(dotfiles, "settings.json")["hooks"]
    install.uninstall_host("claude-code", home)
    assert (folder / "settings.json").is_symlink() and files(dotfiles) == before
    assert {path.name for path in folder.iterdir()} == {"settings.json", ".claude.json"}


def test_what_is_missing_is_said_first(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the MCP SDK nothing is written, and the refusal says what brings it."""
    before = put(folder)
    monkeypatch.setattr("memtier_plugin.hosts.coding_agents.find_spec", lambda name: None)
    for arguments in (("claude-code",), ("claude-code", "--dry-run")):
        refused = run_memtier("--home", home, "install", *arguments, code=1).output
        assert "needs the MCP SDK" in refused and install_command("memtier[mcp]") in refused
    assert files(folder) == before and not home.exists()


def test_a_folder_that_cannot_be_written(folder: Path, home: Path) -> None:
    """Where one file cannot be written none is, and the folder is named."""
    before = put(folder)
    (folder / "settings.json").unlink()
    (folder / "settings.json").symlink_to("/proc/nowhere/settings.json")
    with pytest.raises(SettingsError, match="see /proc"):
        install.install_host("claude-code", home, "shop")
    assert (folder / ".claude.json").read_bytes() == before[".claude.json"]


def test_what_was_cut_off_can_be_taken_back(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to be taken back is on the disk before a host's file is changed."""
    before = put(folder)
    write = install.write_private_file

    def full(path: Path, text: str) -> None:
        if path.name == "settings.json":
            raise LedgerWriteError("No space left on device")
        write(path, text)

    monkeypatch.setattr(install, "write_private_file", full)
    with pytest.raises(LedgerWriteError):
        install.install_host("claude-code", home, "shop")
    assert files(folder) != before
    monkeypatch.undo()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    install.uninstall_host("claude-code", home)
    after = files(folder)
    assert after[".claude.json"] == before[".claude.json"]
    assert json.loads(after["settings.json"]) == SETTINGS and len(after) == 2


def test_the_hosts_of_this_machine(
    folder: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`install` alone lists what is here by command or folder, and what has MemTier."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "no-hermes"))
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", str(tmp_path / "no" / "openclaw.json"))

    def listed() -> dict[str, tuple[str, str | None]]:
        rows = json.loads(run_memtier("--home", home, "install", "--json").stdout)["hosts"]
        return {row["host"]: (row["seen"], row["project"]) for row in rows}

    assert listed() == {"claude-code": (str(folder), None)}
    (programs / "gemini").write_text("#!/bin/sh\n")
    (programs / "gemini").chmod(0o755)
    install.install_host("claude-code", home, "shop")
    assert listed() == {
        "claude-code": (str(folder / "settings.json"), "shop"),
        "gemini": (str(programs / "gemini"), None),
    }
    shown = run_memtier("--home", home, "install").stdout
    assert "memtier install gemini" in shown and "project shop" in shown
    assert not (tmp_path / "user").exists()


def test_comments_stay(tmp_path: Path, home: Path) -> None:
    """A file with comments and trailing commas keeps them, and is read again by `doctor`."""
    path = tmp_path / "user/Code/User/mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text('{\n\t// mine\n\t"servers": {\n\t\t"other": {"command": "x"},\n\t},\n}\n')
    install.install_host("vscode", home, "shop")
    assert (
        "\t// mine" in path.read_text() and path.read_text().count('"other": {"command": "x"}') == 1
    )
    assert coding_agents.read_server("vscode")[-1] == "mcp"
    assert [finding.level for finding in check_agents(home)] == ["ok"]
    path.write_text(path.read_text().replace("mine", "yours"))
    install.uninstall_host("vscode", home)
    left = path.read_text()
    assert "// yours" in left and "memtier" not in left and '"other": {"command": "x"},' in left


FILES = {
    "codex": {
        "config.toml": '# mine\nmodel = "gpt-5"\n\n[mcp_servers.other]\ncommand = "größer"\n',
        "hooks.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]}}',
    },
    "gemini": {".gemini/settings.json": '{"ui": {"theme": "x"}, "mcpServers": {"a": {}}}\n'},
    "cursor": {".cursor/mcp.json": '{"mcpServers": {"other": {"command": "x"}}}'},
    "vscode": {"Code/User/mcp.json": '{"servers": {"other": {"command": "x"}}, "inputs": []}'},
    "windsurf": {".codeium/windsurf/mcp_config.json": '{"mcpServers": {"other": {}}}'},
    "zed": {"zed/settings.json": '{"theme": "One", "context_servers": {"other": {}}}\n'},
    "opencode": {"opencode/opencode.json": '{"$schema": "x", "mcp": {"other": {}}}'},
    "goose": {
        "goose/config.yaml": "# mine\nGOOSE_MODEL: m\nextensions:\n  other:\n    enabled: true\n"
    },
}

PARSERS = {".toml": tomllib.loads, ".json": json.loads, ".yaml": yaml.safe_load}


def write_user_files(host: str, top: Path) -> dict[Path, bytes]:
    """Write the files that a user of an agent may have; return their bytes."""
    for name, text in FILES[host].items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text, "utf-8")
    return {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("text", "former"),
    [
        ("a: 1\nextensions:\n  memtier: {cmd: x}\n", "a: 1\n"),
        ("extensions:\n  memtier: {cmd: x}\n  # mine\n  b: {}", "extensions: {b: {}}"),
        ("extensions: {memtier: {cmd: x}}\na: 1\n", "a: 1\n"),
        ("extensions:\n    memtier:\n        cmd: x\nlater: 1\n", "extensions: {}\n"),
        ("extensions:\n  memtier: {cmd: x}", "extensions:\n  memtier:\n    cmd: y\n"),
    ],
)
def test_goose_is_taken_back(tmp_path: Path, text: str, former: str) -> None:
    """Of Goose's file only our extension goes, however it is written; a former one comes back."""
    path = coding_agents.find_files("goose").servers
    path.parent.mkdir(parents=True)
    path.write_text(text)
    taken = coding_agents.without_memtier(path, former)
    left = yaml.safe_load(taken) or {}
    was = (yaml.safe_load(former).get("extensions") or {}).get("memtier")
    assert (left.get("extensions") or {}).get("memtier") == was
    assert ("# mine" in taken) == ("# mine" in text)
    gone = {"extensions"} - {*yaml.safe_load(former)}
    assert {*left} == {*yaml.safe_load(text)} - gone


@pytest.mark.parametrize("host", FILES)
def test_other_agents(tmp_path: Path, home: Path, host: str) -> None:
    """Each agent gets the server, and hooks if it has any, in its own form; and all comes back."""
    top = tmp_path / "user"
    before = write_user_files(host, top)
    assert {change.path for change in install.install_host(host, home, "shop")} == {*before}
    scope = ["--home", str(home), "--project", "shop"]
    agent = ["--agent", f"{host}.main", "mcp"]
    assert coding_agents.read_server(host) == [*launch_command(), *scope, *agent]
    hooks = coding_agents.read_hooks(host)
    assert {*hooks} == {name for name, kind in EVENTS.get(host, {}).items() if kind != "call"}
    for commands in hooks.values():
        [command] = commands
        assert command.endswith(f"--project shop hook {host}")
    for path, text in before.items():  # what was there is there still
        parse = PARSERS[path.suffix]
        now, then = parse(path.read_text("utf-8")), parse(text.decode())
        for key in {*then} - {"hooks", "mcp_servers", coding_agents.find_files(host).key}:
            assert now[key] == then[key]
        assert "other" not in text.decode() or "other" in path.read_text("utf-8")
    assert install.install_host(host, home, "shop") == []
    install.uninstall_host(host, home)
    assert {path: path.read_bytes() for path in top.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("host", FILES)
def test_reminders_at_calls(tmp_path: Path, home: Path, host: str) -> None:
    """Only who asks for it gets a hook before each call; it stays until it is asked away."""
    write_user_files(host, tmp_path / "user")
    names = [name for name, kind in EVENTS.get(host, {}).items() if kind == "call"]
    if not names:
        with pytest.raises(Unsupported, match=f"{host} has no hook before a tool call"):
            install.install_host(host, home, "shop", call_reminders=True)
        return
    for wanted, there in ((None, False), (True, True), (None, True), (False, False)):
        install.install_host(host, home, "shop", call_reminders=wanted)
        assert {*coding_agents.read_hooks(host)}.issuperset(names) == there


@pytest.mark.parametrize("host", FILES)
def test_other_agents_that_changed_since(tmp_path: Path, home: Path, host: str) -> None:
    """What was written into an agent's files since stays, and ours goes."""
    top = tmp_path / "user"
    before = write_user_files(host, top)
    install.install_host(host, home, "shop")
    for path in before:
        text = path.read_text("utf-8")
        if path.suffix == ".toml":
            path.write_text(f'{text}env = {{X = "1"}}\n\n[later]\nkept = true\n', "utf-8")
        elif path.suffix == ".yaml":  # as Goose writes it again
            path.write_text(yaml.safe_dump({**yaml.safe_load(text), "later": True}))
        else:
            path.write_text(json.dumps({**json.loads(text), "later": True}))
    install.uninstall_host(host, home)
    for path, text in before.items():
        parse = PARSERS[path.suffix]
        later = {"kept": True} if path.suffix == ".toml" else True
        assert parse(path.read_text("utf-8")) == {**parse(text.decode()), "later": later}


@pytest.mark.parametrize(
    "text", ["[", 'mcp_servers = {a = {command = "x"}}\n', "mcp_servers = 5\n"]
)
def test_a_toml_that_cannot_be_edited(tmp_path: Path, home: Path, text: str) -> None:
    """Codex' file stays as it is where a table cannot be added."""
    path = tmp_path / "user" / "config.toml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"config\.toml"):
        install.install_host("codex", home, "p")
    assert path.read_text() == text


def test_the_plugin_for_claude_code(folder: Path, home: Path) -> None:
    """The plugin's manifest has the hooks and the server that `install` writes, and the version."""
    put(folder)
    install.install_host("claude-code", home, "default")
    manifest = json.loads((ROOT / "hooks/claude_code/.claude-plugin/plugin.json").read_text())
    listed = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text())["plugins"]
    assert [(each["name"], each["source"]) for each in listed] == [
        (manifest["name"], "./hooks/claude_code")
    ]
    assert manifest["version"] == memtier_plugin.__version__
    written = json.dumps(coding_agents.read_hooks("claude-code"))
    written = written.replace(shlex.join([*launch_command(), "--home", str(home)]), "memtier")
    groups = {event: group for event, [group] in manifest["hooks"].items()}
    assert {
        event: [hook["command"] for hook in group["hooks"]] for event, group in groups.items()
    } == json.loads(written)
    theirs = read(folder, "settings.json")["hooks"]
    for event, group in groups.items():
        assert group.get("matcher") == theirs[event][-1].get("matcher")
        assert group["hooks"][0]["timeout"] == theirs[event][-1]["hooks"][0]["timeout"]
    server = manifest["mcpServers"]["memtier"]
    mine = [*launch_command(), "--home", str(home)]
    started = coding_agents.read_server("claude-code")
    assert ["memtier", *started[len(mine) :]] == [server["command"], *server["args"]]


@pytest.mark.parametrize("on", [True, False])
def test_the_plugin_beside_the_files(folder: Path, home: Path, on: bool) -> None:
    """Doctor says so where the plugin and `install` both run hooks: everything would come twice."""
    settings = {**SETTINGS, "enabledPlugins": {"memtier@memtier": on, "other@x": True}}
    (folder / "settings.json").write_text(json.dumps(settings))
    install.install_host("claude-code", home, "default")
    twice = [f for f in check_agents(home) if "plugin" in f.what]
    assert [f.level for f in twice] == ["warn"] * on


def test_codex_that_cannot_be_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doctor claims nothing of hooks that Codex was not asked about, and says how to trust them."""
    monkeypatch.setenv("PATH", "/nowhere")
    finding = ask_codex()
    assert finding.level == "warn" and "could not be asked" in finding.what
    assert "/hooks" in finding.remedy
    assert "/hooks" in _next_step({"host": "codex", "done": True}, undo=False, failed=False)


def test_a_program_that_tells_of_itself() -> None:
    """What a program tells unasked is no answer to what it was asked."""
    talks = """
        import json, sys
        for line in sys.stdin:
            asked = json.loads(line)
            if "id" in asked:
                print(json.dumps({"method": "warning", "params": {}}))
                print(json.dumps({"id": asked["id"], "result": asked["params"]}), flush=True)
    """
    with converse([sys.executable, "-c", textwrap.dedent(talks)]) as ask:
        assert [ask(name, {"x": name})["result"] for name in ("initialize", "b")] == [
            {"x": "initialize"},
            {"x": "b"},
        ]


@pytest.mark.slow
@pytest.mark.parametrize("host", FILES)
def test_the_canary_of_others(tmp_path: Path, home: Path, host: str) -> None:
    """Each agent's own file starts a server that finds a line; its hooks, if any, work."""
    write_user_files(host, tmp_path / "user")
    install.install_host(host, home, "shop")
    [finding, *asked] = try_agents(home)
    assert finding.level == "ok" and finding.what.startswith(host), finding
    levels = {each.level for each in asked}  # of Codex itself, which trusts none yet or is not here
    assert levels <= {"warn", "error"} and bool(levels) == (host == "codex")


@pytest.mark.slow
def test_the_canary(folder: Path, home: Path) -> None:
    """The installed command and hooks recall and record; a broken one is named."""
    put(folder)
    install.install_host("claude-code", home, "shop")
    MemTier.open(home, "shop").close()
    proof = run_agent_canary("claude-code", home)
    assert proof.ok, proof
    assert [path.name for path in (home / "projects").iterdir()] == ["shop"]
    state = read(folder, ".claude.json")
    state["mcpServers"]["memtier"]["args"][-1] = "nothing"
    (folder / ".claude.json").write_text(json.dumps(state))
    broken = run_agent_canary("claude-code", home)
    assert not broken.ok and "server" in broken.what


@pytest.mark.parametrize(
    ("host", "installed_for", "project", "is_served"),
    [
        ("claude-code", "default", "shop", True),  # a folder may be bound to it
        ("claude-code", "harbour", "shop", False),
        ("claude-code", "shop", "shop", True),
        ("openclaw", "default", "shop", False),  # it has one project
        ("openclaw", "default", "default", True),
        ("", "default", "default", False),
    ],
)
def test_whom_a_host_serves(host: str, installed_for: str, project: str, is_served: bool) -> None:
    """A coding agent without a project of its own works in each project that a folder has."""
    assert serves({"host": host, "project": installed_for}, project) is is_served
