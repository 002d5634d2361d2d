"""Settings: precedence, checks, what a workspace may do, and the folders bound to projects."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import Stemmer
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import MemTierError, SettingsError, UnsafePath
from memtier_plugin.core.paths import resolve_home
from memtier_plugin.core.settings.load import (
    bind_workspace,
    flatten_settings,
    load_settings,
    resolve_project,
    setting_sources,
)
from memtier_plugin.core.settings.schema import (
    AgentRights,
    Endpoint,
    Language,
    Settings,
)
from memtier_plugin.core.settings.yaml_file import Key, all_keys, edit_yaml, plugin_sections

ROOT = Path(__file__).parents[2]
DOCUMENTED = (ROOT / "config/memtier.yaml", ROOT / "papers/memtier_papers/settings.yaml")
WORKSPACE_KEYS = ("project", "language", "retrieval.k", "retrieval.token_budget")

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below tmp_path, folders included, and return its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    return write


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Return a workspace: a folder that came with somebody's repository."""
    path = tmp_path / "code" / "shop"
    path.mkdir(parents=True)
    return path


def refusal(*args: Any, **options: Any) -> str:
    """Return the message with which load_settings refuses."""
    with pytest.raises(SettingsError) as caught:
        load_settings(*args, **options)
    return str(caught.value)


def values(key: Key) -> st.SearchStrategy[Any]:
    """Return values that a key takes."""
    if key.limits == "url":
        return st.sampled_from(["http://127.0.0.1:8080/v1", "https://[::1]/v1", "https://a.b"])
    if key.limits == "server":
        return st.sampled_from(["none", "postgresql://a@b/c", "postgresql:///?service=memtier"])
    if key.kind is str:
        return st.text(min_size=1).filter(str.strip)
    if isinstance(key.default, str):
        return st.sampled_from(key.kind.__args__)
    if isinstance(key.default, bool):
        return st.booleans()
    if isinstance(key.default, tuple):
        return st.lists(st.text(min_size=1), max_size=3).map(tuple)
    if isinstance(key.default, int):
        return st.integers(*map(int, key.limits))
    return st.floats(*key.limits)


ONE_VALUED = {
    ".".join(path): key
    for path, key in all_keys().items()
    if key.default is not None and path[0] != "endpoints"  # these come whole, below
}
CHOICES = st.fixed_dictionaries({}, optional={n: values(k) for n, k in ONE_VALUED.items()})
AGENTS = st.dictionaries(st.text(min_size=1), st.builds(AgentRights, read_all=st.booleans()))
ENDPOINTS = st.dictionaries(
    st.text(min_size=1),
    st.builds(
        Endpoint,
        base_url=st.sampled_from(["http://127.0.0.1:8080/v1", "https://[::1]/v1", "https://a.b"]),
        timeout_s=st.floats(0.1, 3600),
        price_per_million_tokens=st.floats(0, 100),
    ),
)


def test_documented_defaults(home: Path, write: Write) -> None:
    """The documented files are valid and hold exactly the defaults of the code."""
    for name, path in zip(("config.yaml", "projects/p/project.yaml"), DOCUMENTED, strict=True):
        write(f"home/{name}", path.read_text("utf-8"))
    assert load_settings(home, "p") == Settings()
    sources = setting_sources(home, "p")
    assert [name for name, sourced in sources.items() if sourced.source == "default"] == []


def test_every_key_is_commented() -> None:
    """Every key that holds a value in a documented file has a comment line right above it."""
    lines = "\n".join(path.read_text("utf-8") for path in DOCUMENTED).splitlines()
    for above, line in pairwise(lines):
        if re.match(r" *\w+: *\S", line):
            assert above.lstrip().startswith("# "), f"no comment above {line!r}"


def test_no_files_no_home(home: Path) -> None:
    """Without any file the defaults hold, and reading them makes no folder."""
    assert load_settings(home, "p") == Settings()
    assert not home.exists()


def test_precedence(home: Path, repo: Path, write: Write) -> None:
    """Call > environment > workspace > project > user > defaults, and each place is told."""
    sizes = "retrieval: {{k: {0}, token_budget: 10{0}, candidates: 100{0}}}\n"
    user = write("home/config.yaml", sizes.format(1) + "ledger:\n  tool_result_chars: 500\n")
    own = write("home/projects/p/project.yaml", sizes.format(2))
    theirs = write("code/shop/.memtier.yaml", "\nretrieval: {k: 3, token_budget: 103}\n")
    env = {"MEMTIER_RETRIEVAL__K": "4"}
    sources = setting_sources(home, "p", repo, {"attribution.alpha": 0.5}, env)
    assert sources["attribution.alpha"] == (0.5, "call")
    assert sources["retrieval.k"] == (4, "environment MEMTIER_RETRIEVAL__K")
    assert sources["retrieval.token_budget"] == (103, f"{theirs}:2")
    assert sources["retrieval.candidates"] == (1002, f"{own}:1")
    assert sources["ledger.tool_result_chars"] == (500, f"{user}:3")
    assert sources["language"] == ("english", "default")
    assert load_settings(home, "p", repo, {"retrieval": {"k": 5}}, env).retrieval.k == 5
    assert load_settings(home, "q", None, None, {}).retrieval.k == 1


def test_project_file_of_an_odd_name(home: Path, write: Write) -> None:
    """A project's file is found under the name that the ledgers' folder has."""
    write("home/projects/%41%2Fb/project.yaml", "retrieval: {k: 9}\n")
    assert load_settings(home, "A/b").retrieval.k == 9


def test_provenance_matches_settings(home: Path) -> None:
    """What `config show` lists is what holds."""
    sources = setting_sources(home, "p", None, {"agents": {"a.b": {"read_all": True}}})
    settings = load_settings(home, "p", None, {"agents.a.b.read_all": True})
    assert {name: sourced.value for name, sourced in sources.items()} == flatten_settings(settings)
    assert settings.agents == {"a.b": AgentRights(read_all=True)}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("retreival: {k: 3}\n", 1, "unknown key 'retreival'; did you mean"),
        ("\nretrieval:\n  kk: 3\n", 3, "unknown key 'retrieval.kk'; did you mean 'retrieval.k'?"),
        ("batch: 3\n", 1, "did you mean 'consolidation.batch'?"),
        ("zzzzzz: 3\n", 1, "`memtier config show` lists the keys"),
        ("agents: {a: {write_all: true}}\n", 1, "unknown key 'agents.a.write_all'"),
        ("retrieval: {k: many}\n", 1, "retrieval.k is 'many'; expected a whole number, 1 to 1000"),
        ("retrieval: {k: 0}\n", 1, "retrieval.k is 0;"),
        ("retrieval: {k: 1001}\n", 1, "retrieval.k is 1001;"),
        ("retrieval: {k: true}\n", 1, "retrieval.k is True;"),
        ("retrieval: {k: 8.0}\n", 1, "retrieval.k is 8.0;"),
        ("retrieval: {k: }\n", 1, "retrieval.k is None;"),
        ("retrieval: {k: {a: 1}}\n", 1, "retrieval.k is {'a': 1};"),
        ("retrieval: {token_budget: 15}\n", 1, "16 to 100000"),
        ("retrieval: {weights: {words: -0.1}}\n", 1, "expected a number, 0 to 100"),
        ("retrieval: {weights: {words: .inf}}\n", 1, "words is inf;"),
        ("retrieval: {weights: {words: .nan}}\n", 1, "words is nan;"),
        ("hooks: {prompt_deadline_ms: 0}\n", 1, "prompt_deadline_ms is 0;"),
        ("consolidation: {interval_minutes: 0}\n", 1, "interval_minutes is 0;"),
        ("language: klingon\n", 1, "language is 'klingon'; expected one of none, arabic,"),
        ("redaction: {enabled: 1}\n", 1, "expected true or false"),
        ("redaction: {allow: abc}\n", 1, "expected a list of texts"),
        ("redaction: {allow: [1]}\n", 1, "expected a list of texts"),
        ("retrieval: 3\n", 1, "retrieval must hold keys and values"),
        ("agents: {a: true}\n", 1, "agents.a must hold keys and values"),
        ("- 1\n", 1, "the file must hold keys and values"),
        ("[a]: 1\n", 1, "a key must be a plain word"),
        ("paper: {k: 1}\nlanguage: none\npaper: {k: 2}\n", 3, "is set twice, first at"),
        ("project: p\n", 1, "'project' can be set only in a workspace's .memtier.yaml"),
        ("language: !!python/name:os.system ''\n", 1, "malformed YAML: could not determine"),
        ("language: !!bool maybe\n", 1, "malformed YAML"),
        ("language: 2026-99-99\n", 1, "malformed YAML: month must be in 1..12"),
        ("language: [&a {b: 1}, {<<: [*a, *a]}]\n", 1, "malformed YAML: could not determine"),
        ("language: &a [*a]\n", 1, "malformed YAML: found unconstructable recursive node"),
        ("retrieval: {k: 0x" + "f" * 9000 + "}\n", 1, "retrieval.k is "),
        ("paper: {k: 1}\nretrieval: {k: [1\n", 3, "1: malformed YAML: while parsing a flow"),
        ("a: 1\n---\nb: 1\n", 2, "1: malformed YAML: expected a single document"),
        ("language:\x00 a\n", 1, "10: malformed YAML: special characters are not allowed"),
        ('language: "\\U7FFFFFFF"\n', 1, "1: malformed YAML: "),
        ("[\n" * 10_000, 1, "1: malformed YAML: nested too deeply"),
    ],
)
def test_wrong_file(home: Path, write: Write, text: str, line: int, message: str) -> None:
    """A mistake in a file is named with its file, line, key, value and what would be right."""
    path = write("home/config.yaml", text)
    refused = refusal(home, "p")
    assert refused.startswith(f"{path}:{line}:")
    assert message in refused
    assert len(refused) < 600


def test_empty_sections(home: Path, write: Write) -> None:
    """A section whose keys are all commented out is no mistake, nor is an empty file."""
    write("home/config.yaml", "retrieval:\n  # k: 3\nagents:\n")
    write("home/projects/p/project.yaml", "")
    assert load_settings(home, "p") == Settings()


def test_unreadable_files(home: Path, write: Write) -> None:
    """A binary, huge or special file is refused by name."""
    path = write("home/config.yaml", "")
    path.write_bytes(b"language: english\n\xff\xfe")
    assert refusal(home, "p").startswith(f"{path}:2: not UTF-8 text")
    path.write_bytes(b"#" * 70_000)
    assert "larger than 65536 bytes" in refusal(home, "p")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(MemTierError, match="not a plain file"):
        load_settings(home, "p")
    path.unlink()
    path.mkdir()
    with pytest.raises(MemTierError, match="not a plain file"):
        load_settings(home, "p")


def test_symlink_in_home(home: Path, write: Write) -> None:
    """The home's files are the user's own: a symlink in their place is refused."""
    target = write("elsewhere.yaml", "retrieval: {k: 3}\n")
    home.mkdir()
    (home / "config.yaml").symlink_to(target)
    with pytest.raises(UnsafePath, match=r"config\.yaml is a symlink"):
        load_settings(home, "p")


def test_alias_bomb(home: Path, write: Write) -> None:
    """A few aliases cannot become gigabytes: no part of a file is multiplied by reading it."""
    nest = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 9))
    write("home/config.yaml", f"redaction:\n  allow: &x0 [a]\n{nest}")
    assert "unknown key 'x1'" in refusal(home, "p")
    nest = "[" + ", ".join(f"&x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 9)) + "]"
    write("home/config.yaml", f"language: &x0 [a]\nredaction: {{allow: {nest}}}\n")
    assert "expected one of" in refusal(home, "p")
    write("home/config.yaml", f"redaction: {{allow: [&x0 [a], {nest[1:]}}}\n")
    assert "expected a list of texts" in refusal(home, "p")


def test_workspace_allow_list(home: Path, repo: Path, write: Write) -> None:
    """A workspace sets size, weights and language, and nothing else of all the keys there are."""
    for path in all_keys():
        name = ".".join(path).replace("*", "x")
        allowed = name in WORKSPACE_KEYS or name.startswith("retrieval.weights.")
        text = "1"
        for part in reversed(name.split(".")):
            text = f"{{{part}: {text}}}"
        write("code/shop/.memtier.yaml", text)
        try:
            load_settings(home, "p", repo)
        except SettingsError as error:
            assert ("a workspace file may not set" in str(error)) != allowed
        else:
            assert allowed


def test_workspace_weights_are_capped(home: Path, repo: Path, write: Write) -> None:
    """A workspace cannot make one signal drown the others; the user can."""
    write("code/shop/.memtier.yaml", "retrieval: {weights: {words: 1.0, grams: 1.01}}\n")
    assert "grams is 1.01; expected a number, 0 to 1.0" in refusal(home, "p", repo)
    write("code/shop/.memtier.yaml", "retrieval: {weights: {words: 1.0}}\n")
    write("home/config.yaml", "retrieval: {weights: {grams: 1.01}}\n")
    assert load_settings(home, "p", repo).retrieval.weights.grams == 1.01


def test_workspace_symlink(home: Path, repo: Path, write: Write) -> None:
    """A .memtier.yaml may be a symlink within its folder, never out of it."""
    outside = write("secret.yaml", "retrieval: {k: 3}\n")
    write("code/shop/conf/memtier.yaml", "retrieval: {k: 4}\n")
    link = repo / ".memtier.yaml"
    link.symlink_to(outside)
    assert "is a symlink leading out of its folder" in refusal(home, "p", repo)
    link.unlink()
    link.symlink_to("conf/memtier.yaml")
    assert load_settings(home, "p", repo).retrieval.k == 4
    link.unlink()
    link.symlink_to(link)
    assert "cannot be read" in refusal(home, "p", repo)


def test_workspace_special_file(home: Path, repo: Path) -> None:
    """A pipe in the place of a .memtier.yaml does not make anybody wait."""
    os.mkfifo(repo / ".memtier.yaml")
    assert "is not a plain file" in refusal(home, "p", repo)


def test_workspace_project(home: Path, repo: Path, write: Write) -> None:
    """A workspace names only the project that the user bound to that very folder."""
    path = write("code/shop/.memtier.yaml", "project: bank\n")
    assert refusal(home, "p", repo).startswith(f"{path}:1: this folder asks for the project 'bank'")
    bind_workspace(home, repo.parent / "other", "bank")
    assert "you have not bound it" in refusal(home, "p", repo)
    bind_workspace(home, repo, "shop")
    assert "you have not bound it" in refusal(home, "p", repo)
    bind_workspace(home, repo, "bank")
    assert load_settings(home, "bank", repo) == Settings()
    assert resolve_project(home, repo) == "bank"


def test_below_a_bound_folder(home: Path, repo: Path, write: Write) -> None:
    """A folder below a bound one has its project and, without a file of its own, its settings."""
    write("code/shop/.memtier.yaml", "project: shop\nretrieval: {k: 7}\n")
    (repo / "src" / "deep").mkdir(parents=True)
    bind_workspace(home, repo, "shop")
    assert resolve_project(home, repo / "src" / "deep") == "shop"
    assert load_settings(home, "shop", repo / "src" / "deep").retrieval.k == 7
    write("code/shop/src/.memtier.yaml", "retrieval: {k: 8}\n")
    assert load_settings(home, "shop", repo / "src").retrieval.k == 8


def test_project_for_unbound(home: Path, repo: Path, tmp_path: Path) -> None:
    """An unbound folder's project comes from its real path: same folder same project, no other."""
    assert resolve_project(home, None) == "default"
    name = resolve_project(home, repo)
    assert re.fullmatch(r"shop-[0-9a-f]{8}", name)
    (tmp_path / "link").symlink_to(repo)
    assert resolve_project(home, tmp_path / "link") == name
    assert resolve_project(home, tmp_path / "elsewhere" / "shop") != name
    assert resolve_project(home, Path("/")).startswith("root-")


def test_project_for_nearest(home: Path, repo: Path) -> None:
    """The nearest bound folder decides."""
    bind_workspace(home, repo.parent, "all")
    bind_workspace(home, repo, "shop")
    assert resolve_project(home, repo / "src") == "shop"
    assert resolve_project(home, repo.parent / "bank") == "all"
    assert resolve_project(home, repo.parent.parent) not in ("all", "shop")


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# mine\nretrieval:\n  k: 3  # few\n",
        "# mine\nretrieval:\n  k: 3",
        "workspaces:\n# mine\nretrieval: {k: 3}\n",
        "workspaces: {}\n# mine\nretrieval: {k: 3}\n",
        "retrieval: {k: 3}\nworkspaces: {/a: b}  # here\n# mine\n",
        "workspaces:\n  /a: b\n  /c: d\n\n# mine\nretrieval:\n  k: 3\n",
        "workspaces:\n  /a: b\n  /c: d",
    ],
)
def test_bind_keeps_the_rest(home: Path, repo: Path, write: Write, before: str) -> None:
    """Binding a folder changes the `workspaces` block and no other character of the file."""
    path = write("home/config.yaml", before)
    old = yaml.safe_load(before) or {}
    for project in ("one", "two"):
        bind_workspace(home, repo, project)
    after = path.read_text("utf-8")
    bound = (old.get("workspaces") or {}) | {str(repo): "two"}
    assert yaml.safe_load(after) == old | {"workspaces": bound}
    for line in before.splitlines():
        assert line in after or "workspaces" in line
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert after.count("# mine") == before.count("# mine")
    assert [child.name for child in home.iterdir() if child.name[0] != "."] == ["config.yaml"]


@pytest.mark.parametrize(
    "text",
    [
        "a:\n    b:\n        - 1   # one\n        - 2\n\nmemory:\n    turns:   3\n",
        "long: [1,\n    2]\nmemory: {turns: 3}  # mine\nx: 'y'\n",
        "x: >\n  folded\n  text\n\n# about memory\nmemory:\n  turns: 3\n  # after\n\nz:   1\n",
        "memory:\r\n  turns: 3\r\nlist:\r\n- a\r\n- b",
    ],
)
def test_an_edit_leaves_the_other_lines(text: str) -> None:
    """A value is set and taken back; lines without it keep their layout and comments."""

    def set_provider(document: Any) -> None:
        document["memory"]["provider"] = "memtier"

    def remove_provider(document: Any) -> None:
        del document["memory"]["provider"]

    edited = edit_yaml(text, "config.yaml", set_provider)
    assert yaml.safe_load(edited)["memory"] == {"turns": 3, "provider": "memtier"}
    lines = [line for line in text.splitlines() if not line.startswith("memory: {")]
    assert [line for line in lines if line not in edited.splitlines()] == []
    restored = edit_yaml(edited, "config.yaml", remove_provider)
    assert yaml.safe_load(restored) == yaml.safe_load(text)
    assert restored.count("#") == text.count("#")


@pytest.mark.parametrize(
    "before",
    [
        *("{retrieval: {k: 3}}\n", "retrieval: {k: 3}\n...\n", "  language: none\n"),
        *("%YAML 1.1\n---\nretrieval: {k: 3,\n  # few\n  token_budget: 500}\n", "# mine\n"),
    ],
)
def test_bind_in_any_layout(home: Path, repo: Path, write: Write, before: str) -> None:
    """However a file is laid out, a folder is bound in it and every other value stays."""
    path = write("home/config.yaml", before)
    bind_workspace(home, repo, "no")  # what YAML 1.1 takes for false
    after = path.read_text("utf-8")
    expected = (yaml.safe_load(before) or {}) | {"workspaces": {str(repo): "no"}}
    assert yaml.safe_load(after) == expected
    assert after.count("#") == before.count("#")


def test_bind_makes_a_private_home(home: Path, repo: Path) -> None:
    """The first binding makes the home, readable for its owner only."""
    bind_workspace(home, repo, "shop")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    with pytest.raises(SettingsError, match="a project needs a name"):
        bind_workspace(home, repo, "  ")


# Quotes, breaks and other characters that mean something in YAML 1.1 or 1.2, or to ruamel.yaml
_ODD_NAMES = st.text("ab é'\":#-?[]{}\\\n\t\x85\U0001f600\u2028\udc80", min_size=1)


@given(st.text(min_size=1) | _ODD_NAMES, _ODD_NAMES)
def test_bind_any_name(tmp_path_factory: pytest.TempPathFactory, project: str, name: str) -> None:
    """Any folder can be bound to any project, and reads back as it was."""
    home = tmp_path_factory.mktemp("any") / "home"
    folder = Path("/nowhere") / name
    if not project.strip():
        return
    bind_workspace(home, folder, project)
    bind_workspace(home, Path("/nowhere/else"), "other")
    assert resolve_project(home, folder / "below") == project


def test_environment(home: Path) -> None:
    """MEMTIER_ and the key, dots doubled to underscores; lists are JSON; other names are errors."""
    env = {
        "MEMTIER_HOME": "/x",
        "MEMTIER_PROJECT": "y",
        "MEMTIER_LANGUAGE": "german",
        "MEMTIER_RETRIEVAL__WEIGHTS__WORDS": "2",
        "MEMTIER_REDACTION__ENABLED": "false",
        "MEMTIER_REDACTION__ALLOW": '["a", "b,c"]',
        "PATH": "/bin",
    }
    settings = load_settings(home, "p", env=env)
    assert settings.language == "german"
    assert settings.retrieval.weights.words == 2.0
    assert settings.redaction == dataclasses.replace(
        settings.redaction, enabled=False, allow=("a", "b,c")
    )
    assert refusal(home, "p", env={"MEMTIER_RETRIEVAL__KK": "3"}) == (
        "environment MEMTIER_RETRIEVAL__KK: unknown key; did you mean 'MEMTIER_RETRIEVAL__K'? "
        "`unset MEMTIER_RETRIEVAL__KK` removes it"
    )
    assert refusal(home, "p", env={"MEMTIER_PAPER__K": "x"}).startswith(
        "environment MEMTIER_PAPER__K: paper.k is 'x'; expected a whole number"
    )
    assert "unknown key" in refusal(home, "p", env={"MEMTIER_WORKSPACES": "{}"})


def test_call(home: Path) -> None:
    """A call's mistakes are named like a file's."""
    assert refusal(home, "p", None, {"retrieval.top": 3}).startswith("call: unknown key")
    assert "retrieval must be a mapping, not 3" in refusal(home, "p", None, {"retrieval": 3})
    assert "only in a workspace's" in refusal(home, "p", None, {"project": "x"})
    assert "only in the home's" in refusal(home, "p", None, {"workspaces": {"/a": "b"}})
    assert "retrieval.k is 0" in refusal(home, "p", None, {"retrieval": {"k": 0}})


def test_home_path(tmp_path: Path) -> None:
    """The home given wins over MEMTIER_HOME, which wins over ~/.memtier; all are absolute."""
    assert resolve_home(None, {}) == Path.home() / ".memtier"
    assert resolve_home(None, {"MEMTIER_HOME": ""}) == Path.home() / ".memtier"
    assert resolve_home(None, {"MEMTIER_HOME": str(tmp_path)}) == tmp_path
    assert resolve_home("here", {"MEMTIER_HOME": "/x"}) == Path.cwd() / "here"
    assert resolve_home() == tmp_path / "home"
    for named in ("~nobody-of-that-name/x", "a\0b", os.fsdecode(b"caf\xe9")):
        with pytest.raises(SettingsError, match="is not a valid folder"):
            resolve_home(named)


def test_languages_are_stemmers() -> None:
    """Every language but none has a Snowball stemmer."""
    assert set(Language.__args__) - set(Stemmer.algorithms()) == {"none"}


def test_odd_workspace(home: Path) -> None:
    """A workspace that cannot be a path is refused, not a traceback."""
    for name in ("a\0b", "\ud800"):
        with pytest.raises(SettingsError):
            resolve_project(home, Path(name))


@given(CHOICES, AGENTS, ENDPOINTS)
def test_settings_reload(
    tmp_path_factory: pytest.TempPathFactory,
    chosen: dict[str, Any],
    agents: dict[str, Any],
    endpoints: dict[str, Any],
) -> None:
    """What was loaded, dumped as YAML or as dotted keys, loads equal."""
    home = tmp_path_factory.mktemp("reload")
    settings = load_settings(home, "p", None, chosen)
    settings = dataclasses.replace(settings, agents=agents, endpoints=endpoints)
    plain = dataclasses.asdict(settings)
    del plain["plugins"], plain["unserved"]
    for kind, path in plugin_sections():
        section = plain
        for part in path:
            section = section.setdefault(part, {})
        section |= dataclasses.asdict(settings.of(kind))
    plain["redaction"]["allow"] = list(settings.redaction.allow)
    plain["facts"]["single_valued"] = list(settings.facts.single_valued)
    (home / "config.yaml").write_text(yaml.safe_dump(plain), "utf-8")
    assert load_settings(home, "p") == settings
    assert load_settings(home, "q", None, flatten_settings(settings), {}) == settings


YAML_LIKE = st.lists(
    st.sampled_from([*".:-[]{}#&*!|>'\"%@\n\t ", "\n  ", ": ", "- ", "&a ", "*a", "<<", "---\n"])
    | st.sampled_from([part for path in all_keys() for part in path])
    | st.sampled_from(["1", "0.5", "true", "null", "2026-01-01", "0x_", "1:99", "!!int", "!!set"])
    | st.text(max_size=3),
    max_size=25,
).map("".join)


@given(st.text() | YAML_LIKE)
def test_any_file_loads_or_is_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever stands in a file of settings, it loads or raises SettingsError."""
    home = tmp_path_factory.mktemp("any")
    raw = text.encode("utf-8", "surrogatepass")
    (home / "config.yaml").write_bytes(raw)
    (home / ".memtier.yaml").write_bytes(raw)
    for read in (
        lambda: load_settings(home, "p"),
        lambda: load_settings(home / "none", "p", home),
        lambda: resolve_project(home, home),
        lambda: bind_workspace(home, home, "p"),
    ):
        try:
            read()
        except SettingsError as error:
            assert str(home) in str(error)


def test_endpoints_are_the_users(home: Path, repo: Path, write: Write) -> None:
    """Where texts and keys go is set in config.yaml only: by no project, workspace or variable."""
    config = "endpoints:\n  local: {base_url: http://127.0.0.1:8080/v1, key_env: MY_KEY}\n"
    write("home/config.yaml", config)
    settings = load_settings(home, "p")
    assert settings.endpoints["local"].key_env == "MY_KEY"
    assert settings.endpoints["local"].base_url == "http://127.0.0.1:8080/v1"
    write("home/projects/p/project.yaml", config.replace("8080", "6666"))
    assert "project.yaml:2: 'endpoints.local.base_url' can be set only in the home's" in refusal(
        home, "p"
    )
    write("code/shop/.memtier.yaml", config)
    assert "a workspace file may not set 'endpoints.local.base_url'" in refusal(home, "q", repo)
    env = {"MEMTIER_ENDPOINTS__LOCAL__BASE_URL": "http://evil.example/v1"}
    assert "unknown key" in refusal(home, "q", None, None, env)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/v1",
        "localhost:8080",
        "http://",
        "http://me:secret@a/v1",
        "http://a/v1?key=x",
        7,
    ],
)
def test_endpoint_addresses(home: Path, url: object) -> None:
    """An endpoint has an http address that holds no key, and says what is expected instead."""
    text = refusal(home, "p", None, {"endpoints": {"x": {"base_url": url}}})
    assert "expected an address such as https://host/v1, without a key" in text


def test_endpoint_without_address(home: Path, write: Write) -> None:
    """An endpoint without an address is an error that names file, line and what is missing."""
    write("home/config.yaml", "endpoints:\n  local:\n    timeout_s: 3\n")
    assert "config.yaml:3: endpoints.local has no base_url" in refusal(home, "p")
