"""Which files of a coding agent change when MemTier is installed, and that they come back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.errors import SettingsError, Unsupported
from memtier_plugin.hosts import coding_agents, install
from memtier_plugin.hosts.agent_canary import run_agent_canary
from memtier_plugin.hosts.agent_doctor import try_agents
from memtier_plugin.hosts.agent_events import EVENTS
from memtier_plugin.hosts.launch import launch_command
from memtier_plugin.memory import MemTier
from tests.processes import run_memtier

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


FILES = {
    "codex": {
        "config.toml": '# mine\nmodel = "gpt-5"\n\n[mcp_servers.other]\ncommand = "größer"\n',
        "hooks.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]}}',
    },
    "gemini": {".gemini/settings.json": '{"ui": {"theme": "x"}, "mcpServers": {"a": {}}}\n'},
    "cursor": {".cursor/mcp.json": '{"mcpServers": {"other": {"command": "x"}}}'},
    "vscode": {"Code/User/mcp.json": '{"servers": {"other": {"command": "x"}}, "inputs": []}'},
}


def write_user_files(host: str, top: Path) -> dict[Path, bytes]:
    """Write the files that a user of an agent may have; return their bytes."""
    for name, text in FILES[host].items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text, "utf-8")
    return {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}


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
    assert {*hooks} == {*EVENTS.get(host, ())}
    for commands in hooks.values():
        [command] = commands
        assert command.endswith(f"--project shop hook {host}")
    for path, text in before.items():  # what was there is there still
        parse = tomllib.loads if path.suffix == ".toml" else json.loads
        now, then = parse(path.read_text("utf-8")), parse(text.decode())
        for key in {*then} - {"hooks", "mcpServers", "mcp_servers", "servers"}:
            assert now[key] == then[key]
        assert "other" not in text.decode() or "other" in path.read_text("utf-8")
    assert install.install_host(host, home, "shop") == []
    install.uninstall_host(host, home)
    assert {path: path.read_bytes() for path in top.rglob("*") if path.is_file()} == before


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
        else:
            path.write_text(json.dumps({**json.loads(text), "later": True}))
    install.uninstall_host(host, home)
    for path, text in before.items():
        parse = tomllib.loads if path.suffix == ".toml" else json.loads
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


@pytest.mark.slow
@pytest.mark.parametrize("host", FILES)
def test_the_canary_of_others(tmp_path: Path, home: Path, host: str) -> None:
    """Each agent's own file starts a server that finds a line; its hooks, if any, work."""
    write_user_files(host, tmp_path / "user")
    install.install_host(host, home, "shop")
    [finding] = try_agents(home)
    assert finding.level == "ok" and finding.what.startswith(host), finding


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
