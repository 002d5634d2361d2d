"""The documentation is true: its examples give the answers shown, and nothing is left out."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

import memtier_plugin
from memtier_plugin import MemTier, RecallRequest
from memtier_plugin.cli.main import main
from memtier_plugin.core import hookspecs
from memtier_plugin.core.events import PAYLOADS
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.settings.yaml_file import all_keys
from memtier_plugin.server.methods import METHODS
from memtier_plugin.trust.escaping import FENCE
from tests.cases import each_case
from tests.console_examples import (
    DAY,
    Block,
    Example,
    blocks,
    environment,
    examples,
    matches,
    run_page,
)
from tests.loopback import Loopback
from tests.test_layers import ORDER

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in [
        *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
        *sorted((ROOT / "docs").glob("*.md")),
    ]
}
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def in_language(language: str) -> Iterator[tuple[str, Block]]:
    """Yield the fenced blocks of a language, with the page and the number of each as its id."""
    for page, text in PAGES.items():
        for number, block in enumerate(b for b in blocks(text) if b.language == language):
            yield f"{page}:{number}", block


PYTHON = {
    name: block
    for name, block in in_language("python")
    if not name.startswith("docs/frameworks.md")  # tests/frameworks runs these
}
YAML = dict(in_language("yaml"))
_METHODS = PAGES["docs/api.md"].partition("| method | what it does |")[2].partition("**A run**")[0]


@cache
def generator() -> ModuleType:
    """Return scripts/generate_docs.py, which is no package."""
    path = ROOT / "scripts" / "generate_docs.py"
    spec = util.spec_from_file_location("generate_docs", path)
    assert spec and spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hooks() -> Iterator[str]:
    """Yield every hook as `name(argument: type, ...) -> type`."""
    for name, function in vars(hookspecs).items():
        if hasattr(function, f"{hookspecs.ENTRY_POINT_GROUP}_spec"):
            yield name + str(inspect.signature(function)).replace("'", "")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


# -- examples ----------------------------------------------------------------------------------


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a new user's folder, with `memtier` on the path and a home that is not there yet.

    The path is short, as outputs are wrapped at a width.
    """
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "shop"
        folder.mkdir()
        for name, value in environment(folder).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)
        yield folder
        monkeypatch.undo()


@pytest.mark.parametrize("started", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", [page for page in PAGES if "```console" in PAGES[page]])
def test_console_examples_give_the_output_shown(page: str, started: bool, reader: Path) -> None:
    """Every command of a page succeeds and prints what the page shows.

    Here they are called, and in the slow tests started as a user does. After a change that is
    meant, `python -m tests.console_examples PAGE` writes the new output into the page.
    """
    done = run_page(PAGES[page], reader, started=started)
    problems = [message for example in done if (message := example.mismatch())]
    assert not problems, "\n\n".join(problems)


def test_every_example_shows_its_output() -> None:
    """No command that is run stands without output, unless it prints none."""
    silent = re.compile(r".*> \S+$|memtier daemon --once")
    for page, block in in_language("console"):
        for example in examples(block):
            shown = any(line.strip() for line in example.expected)
            assert shown or not example.runs or silent.match(example.command), (
                page,
                example.command,
            )


def test_the_quickstarts_answer_right() -> None:
    """The README and the quickstart ask for the port and get the newest one first."""
    for page in ("README.md", "docs/quickstart.md"):
        answers = [
            example
            for block in blocks(PAGES[page])
            if block.language == "console"
            for example in examples(block)
            if "Which port" in example.command and " ask " in example.command
        ]
        assert "port 8443." in answers[0].expected[0]
        assert "port 9100." in answers[-1].expected[0]


@each_case(
    ("expected", "actual", "same"),
    [
        (["a [01M828BE54Q1HX8KNTXYYMFC7Z]"], ["a [01M828BE54Q1HX8KNTXYYMFC70]"], True),
        (["port 8443."], ["port 9100."], False),
        ([f"- {DAY} a"], ["- 2020-01-01 a"], False),
        (["a", "...", "d"], ["a", "b", "c", "d"], True),
        (["a", "..."], ["a"], True),
        (["a ... c"], ["a b c"], True),
        (["a"], ["a", "b"], False),
        ([], ["a"], False),
        (["0 tokens, 18 ms."], ["0 tokens, 5 ms."], True),
        (["1 tokens, 18 ms."], ["0 tokens, 5 ms."], False),
    ],
)
def test_outputs_are_compared_but_for_what_differs_by_nature(
    expected: list[str], actual: list[str], same: bool
) -> None:
    """Ids and milliseconds may differ and `...` stands for anything; an answer may not differ."""
    assert matches(expected, actual) is same


def test_a_failing_command_is_a_mismatch(reader: Path) -> None:
    """An example whose command fails does not pass, whatever the page shows."""
    [example] = run_page("```console\n$ memtier recall x\n...\n```\n", reader)
    assert isinstance(example, Example)
    assert example.mismatch()


@pytest.mark.parametrize("name", PYTHON)
def test_python_examples_run_and_print_what_they_say(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every Python block runs on its own, and prints the comments behind its `print` calls."""
    monkeypatch.chdir(tmp_path)
    code = PYTHON[name].text
    with Loopback() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        exec(compile(code, name, "exec"), {})
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    shown = re.sub(r"\d{4}-\d\d-\d\d", DAY, printed.out).splitlines()
    assert matches(_PRINTED.findall(code), shown), shown


def test_the_agent_loop_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent loop of the documentation is given in a later session what an earlier one said."""
    [agent] = [block.text for block in PYTHON.values() if "OpenAI" in block.text]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with Loopback() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        for _ in range(2):
            exec(compile(agent, "docs/hosts.md", "exec"), {})
        given = [seen["body"]["messages"] for seen in server.requests]
    assert [FENCE in messages[-1]["content"] for messages in given] == [False, False, True, False]
    assert all("pelican" in str(messages) for messages in given[1:])  # later on it is in sight
    assert "pelican" in given[2][-1]["content"].rpartition(FENCE)[2]


@pytest.mark.parametrize("name", YAML)
def test_yaml_examples_are_valid_settings(name: str, home: Path) -> None:
    """Every YAML block is accepted, as the file that its title names or as a project's."""
    block = YAML[name]
    folder = home / "projects" / "p"
    folder.mkdir(parents=True, mode=0o700)
    path = home / "config.yaml" if block.title == "config.yaml" else folder / "project.yaml"
    path.write_text(block.text)
    assert load_settings(home, "p") != Settings()


def test_the_demo_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quickstart shows the demo from its first step to its last line."""
    [demo] = [
        example
        for block in blocks(PAGES["docs/quickstart.md"])
        for example in examples(block)
        if example.command == "memtier demo"
    ]
    monkeypatch.chdir(tmp_path)
    real = CliRunner().invoke(main, ["demo"]).stdout
    steps = re.findall(r"^\d\. .*", real, re.MULTILINE)
    assert [line for line in demo.expected if re.match(r"\d\. ", line)] == steps


# -- completeness ------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["docs/cli.md", "docs/settings.md"])
def test_generated_pages_are_current(page: str) -> None:
    """The pages on commands and settings are what the code says; `make docs` writes them."""
    assert PAGES[page] == generator().PAGES[page]().rstrip() + "\n"


def test_every_command_is_documented() -> None:
    """Every command has its section, with its help and its usage."""
    documented = re.findall(r"^## (.+)$", PAGES["docs/cli.md"], re.MULTILINE)
    assert len(documented) > 40
    assert [words for words, _ in generator().commands(main, "memtier")] == documented


def test_every_setting_says_what_it_means() -> None:
    """Every key of the settings has a meaning in its table."""
    declared = generator().all_keys
    for path in declared():
        assert re.search(
            rf"^\| `{re.escape('.'.join(path))}` \|.*\| [^|]+ \|$",
            PAGES["docs/settings.md"],
            re.MULTILINE,
        ), path


@each_case("method", re.findall(r"[| ]`(\w+\([^`]*\))`(?=[^|]*\|)", _METHODS))
def test_methods_are_documented_with_their_parameters(method: str) -> None:
    """The methods in the API page take the parameters that it names, in their order."""
    name, _, rest = method.rstrip(")").partition("(")
    declared = inspect.signature(getattr(MemTier, name)).parameters.values()
    stars = {inspect.Parameter.VAR_KEYWORD: "**"}
    names = [f"{stars.get(parameter.kind, '')}{parameter.name}" for parameter in declared]
    documented = [text.strip() for text in rest.split(",") if text.strip() not in ("", "*")]
    assert documented == names[1:]


def test_every_option_of_a_recall_is_documented() -> None:
    """Every field of `RecallRequest` has a row in the API page."""
    for field in fields(RecallRequest):
        assert f"\n| `{field.name}` |" in PAGES["docs/api.md"], field.name


def test_every_public_name_is_documented() -> None:
    """Every public name of the package stands in the API page."""
    for name in memtier_plugin.__all__:
        assert re.search(rf"\b{name}\b", PAGES["docs/api.md"]), name


def test_every_hook_is_documented_with_its_signature() -> None:
    """Every hook stands in the API page exactly as it is declared."""
    signatures = list(hooks())
    assert len(signatures) == 36
    for signature in signatures:
        assert f"`{signature}`" in PAGES["docs/api.md"], signature


@each_case("method", METHODS)
def test_every_rpc_method_is_documented(method: str) -> None:
    """Every JSON-RPC method has a row in the API page."""
    assert f"| `{method}` |" in PAGES["docs/api.md"]


@each_case("section", sorted({path[0] for path in all_keys()} - {"project"}))
def test_every_section_of_the_settings_is_documented(section: str) -> None:
    """Every section of the settings stands in the settings page."""
    assert (
        f"\n## {section}\n" in PAGES["docs/settings.md"]
        or f"`{section}`" in (PAGES["docs/settings.md"])
    )


@each_case("kind", PAYLOADS)
def test_every_journal_event_is_documented_with_its_fields(kind: str) -> None:
    """Every kind of event has a row in the page on files, with each of its fields."""
    [row] = re.findall(rf"^\| `{kind}` \|.*$", PAGES["docs/files.md"], re.MULTILINE)
    for field in fields(PAYLOADS[kind]):
        assert f"`{field.name}`" in row


@pytest.mark.parametrize("record", [Entry, Fact])
def test_every_field_of_a_record_is_documented(record: type[Entry | Fact]) -> None:
    """Every field of an entry and of a fact stands in the page on files."""
    for field in fields(record):
        assert re.search(rf"^\|[^|]*`{field.name}`", PAGES["docs/files.md"], re.MULTILINE), (
            field.name
        )


def test_every_room_is_in_the_architecture() -> None:
    """The architecture page has the order of the packages, and a row for each of them."""
    page = PAGES["docs/architecture.md"]
    assert "\n".join(line.strip().replace(" ", " | ") for line in ORDER) in page
    for room in {room for line in ORDER for room in line.split()} - {
        "async_memory",
        "memory",
        "pool",
        "project",
        "services",
    }:
        assert f"| `{room}/` |" in page, room


def test_every_dependency_is_documented() -> None:
    """Every run-time dependency has a row in the architecture page that says what it is for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=~ \[]", requirement)[0]
        assert f"\n| {name} |" in PAGES["docs/architecture.md"], name


def test_make_targets_exist() -> None:
    """Every `make TARGET` of the documentation is a target of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, text in PAGES.items():
        for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", text):
            assert target in targets, f"{page}: make {target}"


# -- form --------------------------------------------------------------------------------------


def test_readme_is_short() -> None:
    """The README has at most 7,000 bytes; the rest has pages of its own."""
    assert len(PAGES["README.md"].encode()) <= 7_000


def test_each_version_has_a_page_in_the_changelog() -> None:
    """A version's section has at most 90 lines of 120 characters; details are in the docs."""
    versions = PAGES["CHANGELOG.md"].split("\n## [")[1:]
    assert versions
    for section in versions:
        lines = section.splitlines()
        assert len(lines) <= 90, lines[0]
        assert max(map(len, lines)) <= 120, lines[0]


@each_case("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Every relative link names a file of the repository, and every anchor a heading there."""
    for target in _LINK.findall(_FENCED.sub("", PAGES[page])):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(path.read_text("utf-8")), f"{page}: {target}"


@each_case("page", sorted({*PAGES} - {"docs/surface.md"}))  # it names former files
def test_modules_that_are_named_exist(page: str) -> None:
    """Every file or package of the project in backticks is there, from the top or the package."""
    for name in re.findall(r"`((?:[\w.]+/)+[\w.-]*|[\w/]+\.py)`", PAGES[page]):
        if name.startswith(("build/", ".venv/")):
            continue  # made, if at all, by another goal
        if (ROOT / name.split("/")[0]).exists() or (ROOT / "memtier_plugin" / name).suffix == ".py":
            paths = [ROOT / name, ROOT / "memtier_plugin" / name]
            assert any(path.exists() for path in paths), f"{page}: {name}"


@each_case("page", PAGES)
def test_pages_name_no_machine(page: str) -> None:
    """No page shows a path of the machine on which it was written."""
    assert not re.search(r"(?<!\w)/(root|tmp|work|Users)/|pytest-", PAGES[page])


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """The site is built strictly, with every page in its navigation and no address fetched."""
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert {path.stem for path in site.glob("*.html")} >= {
        Path(page).stem for page in PAGES if page.startswith("docs/")
    }
    for path in site.glob("*.html"):
        loaded = re.findall(
            r'<(?:script|link)[^>]+(?:src|href)="(https?://[^"]+)"', path.read_text()
        )
        assert not loaded, f"{path.name} loads {loaded}"
