"""Every way in which a host silently does without MemTier is named, with its remedy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memtier_plugin
from memtier_plugin.hosts import install
from memtier_plugin.hosts.coding_agents import find_files, plan_files
from memtier_plugin.hosts.doctor import check_hosts
from memtier_plugin.hosts.project import CODING_AGENTS, EVENTS
from memtier_plugin.hosts.yaml_settings import settings_path
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import (
    MAX_UNRECALLED_RUNS,
    MAX_UNSTORED_TURNS,
    describe_silence,
)

Edit = Callable[[dict[str, Any]], object]

OURS = [sys.executable, "-W", "ignore", "-m", "memtier_plugin"]
# What answers `--version` as the command does, in a tenth of its time.
ANSWERS = [sys.executable, "-S", "-c", f"print('memtier {memtier_plugin.__version__}')"]


@pytest.fixture(autouse=True)
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point both hosts into a folder, and let them start what is of this version."""
    top = tmp_path / "hosts"
    monkeypatch.setenv("HERMES_HOME", str(top / "hermes"))
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", str(top / "openclaw" / "openclaw.json"))
    monkeypatch.delenv("OPENCLAW_STATE_DIR", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(memtier_plugin.__file__).parents[1]))
    monkeypatch.setattr(install, "launch_command", lambda: ANSWERS)
    for name in ("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(top / "user"))
    return top


def levels(home: Path) -> dict[str, list[str]]:
    """Return what was found, by level."""
    by_level: dict[str, list[str]] = {"ok": [], "warn": [], "error": []}
    for finding in check_hosts(home):
        assert finding.level == "ok" or finding.remedy, finding
        by_level[finding.level].append(finding.what)
    return by_level


def edited(hosts: Path, edit: Edit) -> None:
    """Change OpenClaw's configuration."""
    path = hosts / "openclaw/openclaw.json"
    config = json.loads(path.read_text())
    edit(config["plugins"])
    path.write_text(json.dumps(config))


def entry(plugins: dict[str, Any]) -> dict[str, Any]:
    """Return MemTier's entry of OpenClaw's plugins."""
    config: dict[str, Any] = plugins["entries"]["memtier"]
    return config


def test_no_host(home: Path) -> None:
    """Without a host, or with one that never heard of MemTier, there is nothing to say."""
    assert check_hosts(home) == []


def test_another_memory_is_no_fault(hosts: Path, home: Path) -> None:
    """Hosts that have another memory and nothing of ours are left alone."""
    (hosts / "openclaw").mkdir(parents=True)
    (hosts / "openclaw/openclaw.json").write_text('{"plugins": {"slots": {"memory": "x"}}}')
    (hosts / "hermes").mkdir()
    (hosts / "hermes/config.yaml").write_text("memory: {provider: mem0}\n")
    assert check_hosts(home) == []


@pytest.mark.parametrize("host", install.HOSTS)
def test_what_was_installed_is_well(home: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an install doctor finds nothing wrong, and that the command starts."""
    monkeypatch.setattr(install, "launch_command", lambda: OURS)
    install.install_host(host, home, "p")
    by_level = levels(home)
    assert by_level["warn"] == by_level["error"] == []
    assert len(by_level["ok"]) == 1


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda p: p.update(enabled=False), "plugins.enabled is false"),
        (lambda p: p.update(deny=["memtier"]), "plugins.deny names it"),
        (lambda p: p.update(allow=["other"]), "plugins.allow lacks it"),
        (lambda p: entry(p).update(enabled=False), "switched off"),
        (lambda p: p["slots"].update(memory="memory-core"), "memory-core has it"),
        (lambda p: p.pop("slots"), "nothing has it"),
        (lambda p: entry(p).pop("hooks"), "allowConversationAccess is not true"),
        (
            lambda p: entry(p)["hooks"].update(allowPromptInjection=False),
            "allowPromptInjection is false",
        ),
        (lambda p: entry(p)["hooks"].update(timeoutMs=100), "a recall may be cut off"),
        (lambda p: entry(p)["config"].update(colour="red"), "refuses MemTier's configuration"),
        (lambda p: p["load"].update(paths=["/gone/hooks/openclaw"]), "does not exist"),
        (lambda p: p.pop("load"), "names no folder with the plugin"),
        (lambda p: entry(p)["config"].update(command=["/gone/memtier"]), "cannot start"),
        (lambda p: entry(p)["config"].update(command="memtier"), "not a list of strings"),
        (
            lambda p: entry(p)["config"].update(
                command=[sys.executable, "-c", "raise SystemExit('no module')"]
            ),
            "ends with 1: no module",
        ),
        (
            lambda p: entry(p)["config"].update(
                command=[sys.executable, "-c", "print('memtier 0.0.1')"]
            ),
            "the host starts memtier 0.0.1",
        ),
        (lambda p: entry(p)["config"].update(home="/elsewhere"), "writes to the home /elsewhere"),
    ],
)
def test_openclaw_does_without(hosts: Path, home: Path, edit: Edit, says: str) -> None:
    """Each setting by which OpenClaw silently does without MemTier is named."""
    install.install_host("openclaw", home, "p")
    edited(hosts, edit)
    by_level = levels(home)
    assert [what for what in (*by_level["error"], *by_level["warn"]) if says in what], by_level
    assert by_level["ok"] == []


def test_openclaw_takes_every_setting(hosts: Path, home: Path) -> None:
    """Every setting that the plugin's manifest has is one that doctor accepts."""
    manifest = json.loads((install.openclaw_plugin_folder() / "openclaw.plugin.json").read_text())
    values = {"array": [], "string": "x", "boolean": False, "integer": 5000}
    settings = manifest["configSchema"]["properties"].items()
    install.install_host("openclaw", home, "p")
    by_install = ("command", "home", "project")
    given = {name: values[field["type"]] for name, field in settings if name not in by_install}
    edited(hosts, lambda plugins: entry(plugins)["config"].update(given))
    assert {"residents", "tokenFile", "caFile"} <= set(given)
    assert not levels(home)["error"]


def test_openclaw_loads_this_folder(hosts: Path, home: Path) -> None:
    """The repository's folder itself is the plugin, if OpenClaw's configuration names that."""
    root = Path(memtier_plugin.__file__).parents[1]
    install.install_host("openclaw", home, "p")
    edited(hosts, lambda plugins: plugins["load"].update(paths=[str(root)]))
    assert not levels(home)["error"]


def test_copies_of_the_plugin(hosts: Path, home: Path) -> None:
    """A copy of another version, used or lying beside the one that is, is named."""
    install.install_host("openclaw", home, "p")
    copy = hosts / "openclaw/extensions/memtier"
    copy.mkdir(parents=True)
    (copy / "openclaw.plugin.json").write_text('{"version": "0.0.1"}')
    by_level = levels(home)
    assert [what for what in by_level["warn"] if "0.0.1" in what]
    assert [what for what in by_level["warn"] if "a second copy of the plugin" in what]
    edited(hosts, lambda plugins: plugins.pop("load"))
    assert [what for what in levels(home)["error"] if "0.0.1" in what]


def test_a_configuration_that_cannot_be_read(hosts: Path, home: Path) -> None:
    """What cannot be read is told where MemTier is in it, and is none of ours elsewhere."""
    path = hosts / "openclaw/openclaw.json"
    path.parent.mkdir(parents=True)
    path.write_text("{ // mine\n")
    assert check_hosts(home) == []
    path.write_text('{ // mine\n "plugins": {"slots": {"memory": "memtier"}}')
    assert "not checked" in levels(home)["warn"][0]


def hermes_files(hosts: Path) -> tuple[Path, Path, Path]:
    """Return Hermes' configuration, and the plugin's entry and manifest."""
    plugin = hosts / "hermes/plugins/memtier"
    return hosts / "hermes/config.yaml", plugin / "__init__.py", plugin / "plugin.yaml"


@pytest.mark.parametrize(
    ("index", "text", "says"),
    [
        (0, "memory: {provider: mem0}\n", "it is 'mem0'"),
        (0, "memory: {}\n", "there is none"),
        (0, "memory: [1]\n", "expected a mapping"),
        (1, None, "has no plugin"),
        (1, "register = None\n", "does not know the plugin"),
        (
            1,
            "spec_from_file_location(\"memtier_plugin\", '/gone/__init__.py')  "
            "# register_memory_provider\n",
            "code that no longer exists",
        ),
        (2, "name: memtier\nversion: 0.0.1\n", "version 0.0.1"),
        (2, f"kind: standalone\nversion: {memtier_plugin.__version__}\n", "kind 'standalone'"),
    ],
)
def test_hermes_does_without(
    hosts: Path, home: Path, index: int, text: str | None, says: str
) -> None:
    """Each way in which Hermes silently does without MemTier is named."""
    install.install_host("hermes", home, "p")
    path = hermes_files(hosts)[index]
    path.unlink()
    if text is not None:
        path.write_text(text)
    by_level = levels(home)
    assert [what for what in (*by_level["error"], *by_level["warn"]) if says in what], by_level
    assert by_level["ok"] == []


def test_hermes_reaches_nobody(hosts: Path, home: Path) -> None:
    """A command that Hermes cannot start, or no configuration at all, is named."""
    install.install_host("hermes", home, "p")
    config_file = hosts / "hermes/memtier.json"
    config_file.write_text(json.dumps({"command": ["/gone/memtier"], "home": str(home)}))
    assert "cannot start /gone/memtier" in levels(home)["error"][0]
    config_file.unlink()
    assert "uses defaults" in levels(home)["warn"][0]


def test_what_waits_is_told(home: Path) -> None:
    """Runs that wait to be delivered, or were refused, stand in status and doctor."""
    queue = home / "queue"
    queue.mkdir(parents=True, mode=0o700)
    for name in ("1.json", "2.json", "3.json.refused", ".x.new"):
        (queue / name).write_text("{}")
    by_level = levels(home)
    assert "2 runs" in by_level["warn"][0]
    assert "1 runs were refused" in by_level["error"][0]
    with MemTier.open(home, "p") as memory:
        report = memory.status()
    assert report["queue"] == {"waiting": 2, "refused": 1}
    assert len(report["warnings"]) == 2


def test_turns_without_a_run(home: Path) -> None:
    """When turns pass and none is stored, status says so within three, and until one is."""
    with MemTier.open(home, "p", "openclaw.main") as memory:
        for _ in range(MAX_UNSTORED_TURNS):
            assert describe_silence(memory.store, memory.agent_id) is None
            memory.note_hook(memory.agent_id, "before_prompt_build", ok=True)
        assert "3 turns passed and none was stored" in str(
            describe_silence(memory.store, memory.agent_id)
        )
        assert "none was stored" in str(memory.status()["degraded"])
        assert any("none was stored" in finding.what for finding in memory.doctor())
        memory.note_hook(memory.agent_id, "agent_end", ok=True)
        assert memory.status()["degraded"] == []


def test_turns_whose_mark_is_late(home: Path) -> None:
    """A log that has the turns proves that they were stored, whatever the hooks' marks count."""
    with MemTier.open(home, "p", "hermes.default") as memory:
        memory.record([{"role": "user", "content": "The gate is green."}], session_id="before")
        for turn in range(MAX_UNSTORED_TURNS + 2):
            memory.note_hook(memory.agent_id, "before_prompt_build", ok=True)
            memory.record([{"role": "user", "content": f"Turn {turn} it is."}], session_id="now")
        assert describe_silence(memory.store, memory.agent_id) is None
        assert memory.status()["degraded"] == []
        assert not any("none was stored" in finding.what for finding in memory.doctor())


def test_runs_without_a_recall(home: Path) -> None:
    """When runs are stored and none was recalled for, status says so; a few may be such."""
    with MemTier.open(home, "p", "openclaw.main") as memory:
        for _ in range(MAX_UNRECALLED_RUNS):
            assert memory.status()["degraded"] == []
            memory.note_hook(memory.agent_id, "agent_end", ok=True)
        assert "without a recall" in str(memory.status()["degraded"])
        memory.note_hook(memory.agent_id, "before_prompt_build", ok=True)
        assert memory.status()["degraded"] == []


@pytest.mark.parametrize("host", install.HOSTS)
def test_consent_on_one_side_alone(hosts: Path, home: Path, host: str) -> None:
    """A project that waits for a host that offers nothing is named, with the remedy."""
    models(hosts)
    install.install_host(host, home, "p")
    assert levels(home)["warn"] == []
    settings_path(home, "p").parent.mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    settings_path(home, "p").write_text("consolidation: {model: host}\n")
    assert levels(home)["warn"] == [f"{host} does not offer its model: consent is missing there"]
    install.install_host(host, home, "p", use_host_model=True)
    assert (levels(home)["warn"], levels(home)["error"]) == ([], [])
    assert f"{host} offers its model for facts of 'p'" in levels(home)["ok"]


def test_consent_to_another_model(hosts: Path, home: Path) -> None:
    """A model chosen after the consent is refused by OpenClaw, which doctor says."""
    models(hosts)
    install.install_host("openclaw", home, "p", use_host_model=True)
    path = hosts / "openclaw/openclaw.json"
    path.write_text(path.read_text().replace('"primary": "x/large"', '"primary": "x/larger"'))
    [warning] = levels(home)["warn"]
    assert "x/larger: the consent was given for x/large" in warning


def models(hosts: Path) -> None:
    """Give OpenClaw a model."""
    (hosts / "openclaw").mkdir(parents=True)
    config = {"agents": {"defaults": {"model": {"primary": "x/large"}}}}
    (hosts / "openclaw/openclaw.json").write_text(json.dumps(config))


@pytest.mark.parametrize("host", CODING_AGENTS)
def test_a_coding_agent(home: Path, host: str) -> None:
    """An agent that was set up is well; one whose file lost the server, or a hook, is not."""
    install.install_host(host, home, "p")
    by_level = levels(home)
    assert by_level["error"] == by_level["warn"] == []
    assert any(what.startswith(f"{host} has MemTier's tools") for what in by_level["ok"])
    files = find_files(host)
    if files.hooks:
        document = json.loads(files.hooks.read_text())
        event = next(iter(EVENTS[host]))
        del document["hooks"][event]
        files.hooks.write_text(json.dumps(document))
        assert levels(home)["error"] == [f"{host} runs no hook of MemTier at {event}"]
    files.servers.write_text("" if host == "codex" else "{}")
    assert levels(home)["error"] == [f"{host} no longer has MemTier's server"]


@pytest.mark.parametrize("host", CODING_AGENTS)
def test_a_coding_agents_command(home: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is gone, or of another version, is named once for each file that has it."""
    files = len({path for path, _, _ in plan_files(host, ["x"], home, "p")})
    for command, what in (
        (["/nowhere/memtier"], "cannot start /nowhere/memtier"),
        ([sys.executable, "-S", "-c", "print('memtier 0.0.1')"], "the host starts memtier 0.0.1"),
    ):
        monkeypatch.setattr(install, "launch_command", lambda command=command: command)
        install.install_host(host, home, "p")
        assert 1 <= len([error for error in levels(home)["error"] if what in error]) <= files
    other = home.with_name("other")
    assert any("writes to the home" in what for what in levels(other)["warn"])
