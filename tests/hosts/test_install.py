"""Which files of a host change when MemTier is installed, and that they come back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from memtier_plugin.core.errors import SettingsError, Unsupported
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.hosts import doctor, install, yaml_settings
from memtier_plugin.hosts.config_files import parse_json
from memtier_plugin.hosts.project import launch_command
from tests.builders import write_config

OPENCLAW = {
    "gateway": {"port": 1},
    "plugins": {
        "allow": ["x"],
        "slots": {"memory": "memory-core"},
        "entries": {"x": {"enabled": True}},
        "load": {"paths": ["/elsewhere"]},
    },
}
HERMES = (
    "# mine\nmodel: {default: x}\nmemory:\n  nudge_interval: 0 # keep\n"
    "  provider: mem0\nother: [1,\n  2]\n"
)


@pytest.fixture(autouse=True)
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point both hosts into a folder."""
    top = tmp_path / "hosts"
    monkeypatch.setenv("HERMES_HOME", str(top / "hermes"))
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", str(top / "openclaw" / "openclaw.json"))
    for name in ("hermes", "openclaw"):
        (top / name).mkdir(parents=True)
    return top


def files(top: Path) -> dict[str, bytes]:
    """Return every file of both hosts, and the folders that are there."""
    return {str(p.relative_to(top)): p.read_bytes() if p.is_file() else b"" for p in top.rglob("*")}


def put(top: Path, openclaw: str | None = None, hermes: str | None = None) -> None:
    """Write the configurations of the hosts."""
    for text, path in (
        (openclaw, top / "openclaw/openclaw.json"),
        (hermes, top / "hermes/config.yaml"),
    ):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_bytes(text.encode())


def plugins(top: Path) -> dict[str, Any]:
    """Return the section of OpenClaw's configuration that install changes."""
    config: dict[str, Any] = json.loads((top / "openclaw/openclaw.json").read_text())["plugins"]
    return config


def provider(top: Path) -> Any:
    """Return Hermes' memory provider."""
    return yaml.safe_load((top / "hermes/config.yaml").read_text())["memory"]["provider"]


def test_openclaw_is_set_up(hosts: Path, home: Path) -> None:
    """The plugin is loaded and allowed, has the slot, and the permission that it needs."""
    put(hosts, json.dumps(OPENCLAW))
    [change] = install.install_host("openclaw", home, "p")
    config = plugins(hosts)
    assert config["allow"] == ["x", "memtier"]
    assert config["slots"]["memory"] == "memtier"
    assert config["load"]["paths"] == ["/elsewhere", str(install.openclaw_plugin_folder())]
    assert config["entries"]["x"] == {"enabled": True}
    entry = config["entries"]["memtier"]
    assert entry["enabled"] is True
    assert entry["hooks"]["allowConversationAccess"] is True
    assert entry["config"] == {
        "command": launch_command(),
        "home": str(home),
        "project": "p",
    }
    assert change.path == hosts / "openclaw/openclaw.json"


@pytest.mark.parametrize("by_path", [True, False])
def test_openclaw_that_loads_the_repository(hosts: Path, home: Path, *, by_path: bool) -> None:
    """Set up where OpenClaw already has this plugin, it does not load a second one."""
    folder = hosts / ("clone" if by_path else "openclaw/extensions/memtier")
    folder.mkdir(parents=True)
    shutil.copy(install.openclaw_plugin_folder() / "openclaw.plugin.json", folder)
    paths = [str(folder), "/elsewhere"] if by_path else ["/elsewhere"]
    before = {"plugins": {"load": {"paths": paths}}}
    put(hosts, json.dumps(before))
    install.install_host("openclaw", home, "p")
    mine = [str(install.openclaw_plugin_folder())] if by_path else []
    assert plugins(hosts)["load"]["paths"] == ["/elsewhere", *mine]
    assert not [f for f in doctor.check_hosts(home) if "second copy" in f.what]
    path = hosts / "openclaw/openclaw.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"new": 1}))
    install.uninstall_host("openclaw", home)
    assert sorted(plugins(hosts)["load"]["paths"]) == sorted(paths)


def test_openclaw_without_an_allow_list(hosts: Path, home: Path) -> None:
    """Where nothing is excluded no list is made: it would exclude everything else."""
    put(hosts)
    install.install_host("openclaw", home, "p")
    assert "allow" not in plugins(hosts)


def test_hermes_is_set_up(hosts: Path, home: Path) -> None:
    """The provider stands in the plugins' folder and is the one chosen; comments stay."""
    put(hosts, hermes=HERMES)
    install.install_host("hermes", home, "p")
    text = (hosts / "hermes/config.yaml").read_text()
    assert provider(hosts) == "memtier"
    assert text == HERMES.replace("mem0", "memtier")
    config = json.loads((hosts / "hermes/memtier.json").read_text())
    assert config == {"command": launch_command(), "home": str(home), "project": "p"}
    entry = (hosts / "hermes/plugins/memtier/__init__.py").read_text()
    assert "register_memory_provider" in entry[:8192]
    commands = (hosts / "hermes/plugins/memtier/cli.py").read_text()
    namespace: dict[str, Any] = {}
    exec(compile(commands, "cli.py", "exec"), namespace)
    assert callable(namespace["register_cli"]) and callable(namespace["memtier_command"])
    assert "kind" not in yaml.safe_load((hosts / "hermes/plugins/memtier/plugin.yaml").read_text())


@pytest.mark.parametrize("host", install.HOSTS)
def test_installing_twice_is_installing_once(hosts: Path, home: Path, host: str) -> None:
    """The second time nothing changes, and taking it back still gives what was before the first."""
    put(hosts, json.dumps(OPENCLAW), HERMES)
    before = files(hosts)
    assert install.install_host(host, home, "p")
    assert install.install_host(host, home, "p") == []
    assert install.plan_changes(host, home, "p") == []
    install.install_host(host, home, "q")
    install.uninstall_host(host, home)
    assert files(hosts) == before


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "allow": st.lists(st.text(), max_size=3),
        "slots": st.dictionaries(st.sampled_from(["memory", "contextEngine"]), st.text()),
        "entries": st.dictionaries(
            st.sampled_from(["memtier", "x"]),
            st.fixed_dictionaries({}, optional={"enabled": st.booleans()}),
        ),
        "load": st.fixed_dictionaries({}, optional={"paths": st.lists(st.text(), max_size=2)}),
        "enabled": st.booleans(),
    },
)


@given(
    other=st.dictionaries(st.text().filter(lambda key: key != "plugins"), JSONS, max_size=3),
    section=st.none() | SECTIONS,
    indent=st.none() | st.integers(0, 4),
)
@example(other={}, section={"load": {"paths": ["~nobody-of-this-name/x"]}}, indent=None)
def test_openclaw_comes_back(
    hosts: Path, home: Path, other: dict[str, Any], section: dict[str, Any] | None, indent: int
) -> None:
    """Whatever the configuration was, taking MemTier out gives the same bytes again."""
    config = other | ({"plugins": section} if section is not None else {})
    put(hosts, json.dumps(config, indent=indent))
    before = files(hosts)
    install.install_host("openclaw", home, "p")
    assert plugins(hosts)["slots"]["memory"] == "memtier"
    install.uninstall_host("openclaw", home)
    assert files(hosts) == before


MEMORY = st.dictionaries(
    st.sampled_from(["provider", "nudge_interval", "memory_enabled"]),
    st.text() | st.integers() | st.booleans(),
)


@given(
    other=st.dictionaries(st.text(min_size=1), JSONS, max_size=3),
    memory=st.none() | MEMORY,
    flow=st.booleans() | st.none(),
)
def test_hermes_comes_back(
    hosts: Path, home: Path, other: dict[str, Any], memory: dict[str, Any] | None, flow: bool | None
) -> None:
    """Whatever the configuration was, taking MemTier out gives the same bytes again."""
    config = other | ({"memory": memory} if memory is not None else {})
    text = yaml.safe_dump(config, default_flow_style=flow, allow_unicode=True)
    config = yaml.safe_load(text)
    put(hosts, hermes=text)
    before = files(hosts)
    try:
        install.install_host("hermes", home, "p")
    except SettingsError:
        assert files(hosts) == before
        return
    after = yaml.safe_load((hosts / "hermes/config.yaml").read_bytes().decode())
    former = config.get("memory") or {}  # a control character is a space to YAML
    assert after == config | {"memory": former | {"provider": "memtier"}}
    install.uninstall_host("hermes", home)
    assert files(hosts) == before


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        HERMES,
        "memory: {}\n",
        "memory:\n",
        "memory: {nudge_interval: 3}\na: 1",
        "x: 1\n",
        "memory: # of the agent\n  nudge_interval: 3\n",
        "memory: {provider: ''}\n",
        "a: 1\r\nmemory:\r\n  nudge_interval: 0\r\n",
    ],
)
def test_forms_of_hermes_configuration(hosts: Path, home: Path, text: str | None) -> None:
    """Every way in which people write the section is understood, and comes back byte for byte."""
    put(hosts, hermes=text)
    before = files(hosts)
    install.install_host("hermes", home, "p")
    assert provider(hosts) == "memtier"
    install.uninstall_host("hermes", home)
    assert files(hosts) == before


def test_a_change_in_between_stays(hosts: Path, home: Path) -> None:
    """What was changed since loses only what install put in; what was there before comes back."""
    put(hosts, json.dumps(OPENCLAW), HERMES)
    for host in install.HOSTS:
        install.install_host(host, home, "p")
    path = hosts / "openclaw/openclaw.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"new": 1}))
    with (hosts / "hermes/config.yaml").open("a") as file:
        file.write("added: 1 # here\n")
    for host in install.HOSTS:
        install.uninstall_host(host, home)
    assert json.loads(path.read_text()) == OPENCLAW | {"new": 1}
    assert (hosts / "hermes/config.yaml").read_text() == f"{HERMES}added: 1 # here\n"
    left = [name for name in files(hosts) if "memtier" in name]
    assert left == []


def test_another_provider_chosen_since(hosts: Path, home: Path) -> None:
    """Who chose another memory after installing keeps that choice."""
    put(hosts, json.dumps(OPENCLAW), HERMES)
    for host in install.HOSTS:
        install.install_host(host, home, "p")
    path, yml = hosts / "openclaw/openclaw.json", hosts / "hermes/config.yaml"
    path.write_text(path.read_text().replace('"memory": "memtier"', '"memory": "other"'))
    yml.write_text(yml.read_text().replace("provider: memtier", "provider: other"))
    for host in install.HOSTS:
        install.uninstall_host(host, home)
    assert plugins(hosts)["slots"]["memory"] == "other"
    assert provider(hosts) == "other"


def test_a_dry_run_changes_nothing(hosts: Path, home: Path) -> None:
    """What would change can be looked at, both ways."""
    put(hosts, json.dumps(OPENCLAW), HERMES)
    before = files(hosts)
    for host in install.HOSTS:
        assert install.plan_changes(host, home, "p")
    assert files(hosts) == before
    install.install_host("hermes", home, "p")
    after = files(hosts)
    assert install.uninstall_host("hermes", home, dry_run=True)
    assert files(hosts) == after


def test_a_copy_stands_beside_what_changes(hosts: Path, home: Path) -> None:
    """The configuration as it was before the first install stands beside it, with its own mode."""
    put(hosts, json.dumps(OPENCLAW))
    path = hosts / "openclaw/openclaw.json"
    path.chmod(0o640)
    install.install_host("openclaw", home, "p")
    install.install_host("openclaw", home, "q")
    copy = path.with_name(f"openclaw.json{install.COPY_SUFFIX}")
    assert json.loads(copy.read_text()) == OPENCLAW
    assert [file.stat().st_mode & 0o777 for file in (path, copy)] == [0o640, 0o640]


def test_the_hosts_own_memory_is_left_alone(hosts: Path, home: Path) -> None:
    """MEMORY.md and its like are never touched, and neither is MemTier's own data."""
    for name in ("openclaw/MEMORY.md", "hermes/memories/MEMORY.md"):
        (hosts / name).parent.mkdir(exist_ok=True)
        (hosts / name).write_text("mine")
    data = home / "projects" / "p" / "episodic"
    data.mkdir(parents=True, mode=0o700)
    for host in install.HOSTS:
        install.install_host(host, home, "p")
        install.uninstall_host(host, home)
    assert (hosts / "openclaw/MEMORY.md").read_text() == "mine"
    assert (hosts / "hermes/memories/MEMORY.md").read_text() == "mine"
    assert data.is_dir()


COMMENTED = """\
// written by hand
{
  gateway: { port: 1 }, // loopback
  "plugins": {
    "allow": ["x"],
    "entries": { 'x': { enabled: true } }, /* mine */
  },
}
"""


def test_comments_stay(hosts: Path, home: Path) -> None:
    """A configuration with comments is edited in place; taken back, it is as before.

    Where the user changed it since, what was added goes and the comments stay.
    """
    put(hosts, COMMENTED)
    path = hosts / "openclaw/openclaw.json"
    install.install_host("openclaw", home, "p")
    text = path.read_text()
    for line in COMMENTED.splitlines():
        assert line in text or "allow" in line or "entries" in line, line
    assert "/* mine */" in text
    plugins = parse_json(text)["plugins"]
    assert plugins["allow"] == ["x", "memtier"] and plugins["entries"]["memtier"]["enabled"]
    assert install.install_host("openclaw", home, "p") == []
    install.uninstall_host("openclaw", home)
    assert path.read_text() == COMMENTED
    install.install_host("openclaw", home, "p")
    path.write_text(path.read_text().replace("port: 1 ", "port: 2 "))
    install.uninstall_host("openclaw", home)
    left = path.read_text()
    assert parse_json(left) == parse_json(COMMENTED.replace("port: 1 ", "port: 2 "))
    assert "// written by hand" in left and "// loopback" in left and "/* mine */" in left


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{ // comment\n", "not JSON .*line 2"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "expected an object"),
        ('{"a": ' + "[" * 50_000, "nested too deeply"),
        ('{"plugins": []}', "plugins is"),
        ('{"plugins": {"deny": ["memtier"]}}', "plugins.deny names memtier"),
    ],
)
def test_openclaw_configurations_that_are_refused(
    hosts: Path, home: Path, text: str, says: str
) -> None:
    """What cannot be changed safely is left as it is, and the message has file and remedy."""
    put(hosts, text)
    before = files(hosts)
    with pytest.raises(SettingsError, match=says):
        install.install_host("openclaw", home, "p")
    assert files(hosts) == before


@pytest.mark.parametrize("text", ["memory: [1]\n", "a: [\n", "- 1\n", "memory: &a {x: *a}\n"])
def test_hermes_configurations_that_are_refused(hosts: Path, home: Path, text: str) -> None:
    """What cannot be changed safely is left as it is, and nothing else is either."""
    put(hosts, hermes=text)
    before = files(hosts)
    with pytest.raises(SettingsError, match=r"config\.yaml"):
        install.install_host("hermes", home, "p")
    assert files(hosts) == before


def test_a_plugin_folder_that_is_a_symlink(hosts: Path, home: Path, tmp_path: Path) -> None:
    """Somebody's own checkout, linked as the plugin, is not written into."""
    (hosts / "hermes/plugins").mkdir()
    (hosts / "hermes/plugins/memtier").symlink_to(tmp_path)
    with pytest.raises(SettingsError, match="symlink"):
        install.install_host("hermes", home, "p")


@pytest.mark.timeout(60)
def test_a_configuration_that_is_no_file(hosts: Path, home: Path, tmp_path: Path) -> None:
    """A device or a pipe in the place of a configuration is never read, replaced or removed."""
    put(hosts, json.dumps(OPENCLAW))
    install.install_host("openclaw", home, "p")
    pipe, path = tmp_path / "pipe", hosts / "openclaw/openclaw.json"
    os.mkfifo(pipe)
    path.unlink()
    path.symlink_to(pipe)
    with pytest.raises(SettingsError, match="not a plain file"):
        install.plan_changes("openclaw", home, "q")
    with pytest.raises(SettingsError, match="not a plain file"):
        install.uninstall_host("openclaw", home)
    assert path.is_symlink() and pipe.is_fifo()


def test_another_host(home: Path) -> None:
    """A host that nobody knows is named, with those there are."""
    with pytest.raises(Unsupported, match="openclaw, hermes"):
        install.install_host("other", home, "p")


def test_uninstalling_what_was_never_installed(hosts: Path, home: Path) -> None:
    """There is nothing to take back then, and nothing changes."""
    put(hosts, json.dumps(OPENCLAW), HERMES)
    before = files(hosts)
    for host in install.HOSTS:
        assert install.uninstall_host(host, home) == []
    assert files(hosts) == before


def test_the_shim_is_where_openclaw_is_sent(by: Callable[[str], Path] = Path) -> None:
    """The folder that OpenClaw loads has the plugin's three parts."""
    assert {"index.js", "package.json", "openclaw.plugin.json", "bridge.js"} <= {
        path.name for path in by(str(install.openclaw_plugin_folder())).iterdir()
    }


# -- the host's own model ------------------------------------------------------------------------

MODELS = {"agents": {"defaults": {"model": {"primary": "x/large"}}, "list": [{"model": "x/small"}]}}


def project_model(home: Path) -> Any:
    """Return the model that the project's settings select."""
    return load_settings(home, "p").consolidation.model


def put_models(top: Path) -> None:
    """Write configurations of hosts that have models."""
    put(top, json.dumps(OPENCLAW | MODELS), HERMES)


def consent(top: Path) -> tuple[Any, Any]:
    """Return the consent in OpenClaw's entry, and OpenClaw's own gate."""
    entry = plugins(top)["entries"]["memtier"]
    return entry["config"].get("hostModel"), entry.get("llm")


def test_openclaw_s_model_is_permitted_by_name(hosts: Path, home: Path) -> None:
    """OpenClaw's gate names the agents' models, its plugin may ask, and the project selects it."""
    put_models(hosts)
    changes = install.install_host("openclaw", home, "p", use_host_model=True)
    assert consent(hosts) == (True, {"allowedCompletionModels": ["x/large", "x/small"]})
    assert project_model(home) == "host"
    assert {change.path.name for change in changes} == {"openclaw.json", "project.yaml"}


def test_hermes_model_is_permitted(hosts: Path, home: Path) -> None:
    """Hermes lets plugins ask its active model: the consent stands in the plugin's own file."""
    put_models(hosts)
    install.install_host("hermes", home, "p", use_host_model=True)
    assert json.loads((hosts / "hermes/memtier.json").read_text())["host_model"] is True
    assert project_model(home) == "host"


@pytest.mark.parametrize("host", install.HOSTS)
@pytest.mark.parametrize("settings", [None, "", "# mine\nconsolidation: # so\n  batch: 9 # few\n"])
def test_consent_comes_back(hosts: Path, home: Path, host: str, settings: str | None) -> None:
    """Uninstalling gives the same bytes again, of the hosts and of the project's settings."""
    put_models(hosts)
    path = yaml_settings.settings_path(home, "p")
    if settings is not None:
        path.parent.mkdir(mode=0o700, parents=True)
        home.chmod(0o700)
        path.write_text(settings)
    before = files(hosts)
    install.install_host(host, home, "p", use_host_model=True)
    assert install.plan_changes(host, home, "p") == [], "the settings say so, asked again or not"
    install.uninstall_host(host, home)
    assert files(hosts) == before
    assert (path.read_text() if path.exists() else None) == settings


@pytest.mark.parametrize("host", install.HOSTS)
def test_consent_is_taken_back(hosts: Path, home: Path, host: str) -> None:
    """`--no-host-model` closes the host's gate and the project's; the rest stays installed."""
    put_models(hosts)
    install.install_host(host, home, "p")
    before = files(hosts)
    install.install_host(host, home, "p", use_host_model=True)
    install.install_host(host, home, "p", use_host_model=False)
    assert files(hosts) == before
    assert project_model(home) == "none"


def test_consent_for_every_project_is_taken_back_from_one(hosts: Path, home: Path) -> None:
    """Where the user's own settings select the host's model, one project can go without."""
    put_models(hosts)
    write_config(home, "consolidation: {model: host}\n")
    install.install_host("openclaw", home, "p")
    assert consent(hosts)[0] is True, "the user's word stands in the settings"
    install.install_host("openclaw", home, "p", use_host_model=False)
    assert (consent(hosts)[0], project_model(home)) == (None, "none")


def test_settings_changed_since_lose_only_the_model(hosts: Path, home: Path) -> None:
    """What the user wrote into the project's settings after the installation stays."""
    put_models(hosts)
    install.install_host("hermes", home, "p", use_host_model=True)
    path = yaml_settings.settings_path(home, "p")
    path.write_text(path.read_text() + "  batch: 9\n")
    install.uninstall_host("hermes", home)
    assert path.read_text() == "consolidation:\n  batch: 9\n"


def test_no_consent_to_what_has_no_name(hosts: Path, home: Path) -> None:
    """Where OpenClaw names no model nothing is permitted, and nothing changes."""
    put(hosts, json.dumps(OPENCLAW))
    before = files(hosts)
    with pytest.raises(SettingsError, match="names no model"):
        install.install_host("openclaw", home, "p", use_host_model=True)
    assert files(hosts) == before


def test_an_endpoint_is_not_replaced(hosts: Path, home: Path) -> None:
    """A project whose facts an endpoint finds keeps it until its user takes it out."""
    put_models(hosts)
    install.install_host("hermes", home, "p", use_host_model=True)
    path = yaml_settings.settings_path(home, "p")
    path.write_text("consolidation: {model: 'endpoint:local/m'}\n")
    with pytest.raises(SettingsError, match="endpoint:local/m"):
        install.install_host("hermes", home, "p", use_host_model=True)


def test_without_a_word_nothing_is_permitted(hosts: Path, home: Path) -> None:
    """An installation without the option gives no consent; a gate of the user's own stays."""
    own = {"allowedCompletionModels": ["x/mine"]}
    entries = {"entries": {"memtier": {"llm": own}}}
    put(hosts, json.dumps(OPENCLAW | MODELS | {"plugins": entries}))
    install.install_host("openclaw", home, "p")
    assert consent(hosts) == (None, own)
    assert project_model(home) == "none"
