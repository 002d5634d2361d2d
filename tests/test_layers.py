"""Who may import whom (design 3), held by reading the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import memtier_plugin

ROOT = Path(__file__).parents[1]
PACKAGES = ("hooks", "daemon", "config")
MOST_LINES = 450

# Bottom up: a module imports from the lines above its own, and from its own family (`index_*`).
# A new module needs a place here: the lowest line where everything it imports is above it.
LAYERS = (
    "errors faults routes",
    "records",
    "home host_records new_runs",
    "hookspecs",
    "lock settings_keys wording yaml_file",
    "clauses endpoint endpoint_* settings telling trust vocabulary",
    "bm25 conflicts dangling escaping embedding embedding_* ledger messages plugins"
    " redaction statements statements_* tokens"
    " hermes_config transcripts",
    "asking attribution backup chat_answers dating erasure exports extraction folding grammar"
    " grammar_* importing importing_* installing limits packing passages prompting ranking spending"
    " timing waits",
    "chat experiences paper phrasing phrasing_* quoting recall_events researching routing"
    " summaries timelines",
    "agreement agreement_* echoes evolution gates",
    "provenance",
    "evolution_chat extraction_chat summaries_chat",
    "index_*",
    "paper_search store",
    "recall_journal",
    "ahead backlog background leftovers",
    "settling",
    "accounting",
    "drafting",
    "browsing consolidation crediting erasing forgetting past recording reembedding retrieval"
    " repeats retracting reverting selecting summarising unread",
    "footprints",
    "paging",
    "escalating",
    "changes probing upkeep",
    "differences health recalling repairing",
    "answering answering_* doctor_hosts explaining knowledge project purging",
    "history retaining",
    "memory",
    "canary_model exporting note_facts opened reimporting",
    "canary",
    "__init__ __main__ bench.* cli cli_* config.* daemon.* demo hooks.* rpc rpc_*",
)
FAMILY = {"demo": "cli", "__main__": "cli"}  # what belongs to another edge than its name says
PURE = (
    "agreement agreement_* asking attribution bm25 chat_answers clauses conflicts dangling dating"
    " echoes erasure escaping evolution experiences extraction folding gates"
    " grammar grammar_* packing paper passages phrasing phrasing_* provenance quoting ranking"
    " recall_events researching routes routing spending statements statements_* summaries"
    " telling timelines timing trust vocabulary wording"
)
IMPURE = frozenset({"io", "os", "pathlib", "random", "socket", "subprocess", "threading", "time"})

# Where each third party is at home; nobody else imports it.
HOMES = {
    "apscheduler": "daemon.*",
    "apsw": "index_* store",
    "click": "cli cli_*",
    "huggingface_hub": "embedding",
    "matplotlib": "bench.plot",
    "numpy": "embedding index_vectors bench.*",
    "openai": "endpoint",
    "pluggy": "__init__ hookspecs plugins",
    "rank_bm25": "paper bench.*",
    "parsedatetime": "timing",
    "regex": "agreement agreement_* dating echoes escaping experiences gates packing passages"
    " phrasing phrasing_* provenance quoting researching routing summaries summaries_*"
    " summaries_chat timelines timing"
    " tokens trust",
    "rich": "cli cli_* demo bench.*",
    "Stemmer": "tokens bench.baselines",
    "tokenizers": "embedding embedding_words",
    "ulid": "index_items records",
    "yaml": "canary hermes_config settings yaml_file bench.languages",
}

FILES = {
    ".".join(path.relative_to(folder).with_suffix("").parts): path
    for folder in (ROOT / "memtier_plugin", ROOT)
    for path in sorted(folder.rglob("*.py"))
    if folder != ROOT or path.relative_to(ROOT).parts[0] in PACKAGES
}


def matches(name: str, patterns: str) -> bool:
    """Tell whether a module is named in a line of patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns.split())


def layer(name: str) -> int:
    """Return the number of the module's layer."""
    for number, names in enumerate(LAYERS):
        if matches(name, names):
            return number
    pytest.fail(f"{name}: give this new module a place in LAYERS of {__file__}")


def family(name: str) -> str:
    """Return what a module is a part of: `index_read` of `index`, `hooks.guard` of `hooks`."""
    return FAMILY.get(name, name.partition(".")[0].partition("_")[0] or name)


@cache
def tree(name: str) -> ast.Module:
    """Return a module's code, read once for all that is asked of it."""
    return ast.parse(FILES[name].read_bytes())


@cache
def imports(name: str) -> tuple[str, ...]:
    """Return what a module imports: our modules as `FILES` has them, others as `:package`."""
    return tuple(_imports(name))


def _imports(name: str) -> Iterator[str]:
    package = name.rpartition(".")[0]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "memtier_plugin." + package if node.level else ""
            base = ".".join(filter(None, (base, node.module)))
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            top, _, inner = target.partition(".")
            if top != "memtier_plugin":
                yield f":{top}"
                continue
            while inner and inner not in FILES and f"{inner}.__init__" not in FILES:
                inner = inner.rpartition(".")[0]
            yield inner or "__init__"


@pytest.mark.parametrize("name", FILES)
def test_imports_point_down(name: str) -> None:
    """A module imports from lower layers and its own family only, so no edge imports another."""
    for target in imports(name):
        if target.startswith(":") or target == "__init__" or family(target) == family(name):
            continue
        if layer(target) >= layer(name) and name != "__init__":
            pytest.fail(f"{name} imports {target}, which is not below it")


@pytest.mark.parametrize("name", FILES)
def test_third_parties_have_homes(name: str) -> None:
    """Every third party is imported in its one home, and only what HOMES names is imported."""
    for package in {target[1:] for target in imports(name) if target.startswith(":")}:
        if package not in sys.stdlib_module_names:
            assert package in HOMES, f"{name} imports {package}: give it a home in HOMES"
            assert matches(name, HOMES[package]), f"{name} imports {package}; see HOMES"


def test_third_parties_are_dependencies() -> None:
    """Everything with a home is named in pyproject.toml, or an install would miss it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["bench"]]
    named = {re.split(r"[<>=]", line)[0].lower() for line in lines}
    distributions = packages_distributions()
    for package in HOMES:
        assert named & {name.lower() for name in distributions[package]}, package


@pytest.mark.parametrize("name", [name for name in FILES if matches(name, PURE)])
def test_pure_modules(name: str) -> None:
    """What ranks, packs, credits and folds does no I/O and has no clock."""
    assert not {target[1:] for target in imports(name)} & IMPURE
    for node in ast.walk(tree(name)):
        called = node.func if isinstance(node, ast.Call) else None
        attribute = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        assert attribute not in ("now", "today", "utcnow", "open", "print", "input"), name


@pytest.mark.parametrize("name", FILES)
def test_modules_are_small(name: str) -> None:
    """A module that a person cannot read in one go is split."""
    lines = FILES[name].read_text("utf-8").count("\n")
    assert lines <= MOST_LINES, f"{name} has {lines} lines; split it by noun"


def test_names_are_disjoint() -> None:
    """Nothing in memtier_plugin/ is named as what is mounted there: it would win in a checkout."""
    inside = {path.stem for path in (ROOT / "memtier_plugin").iterdir()}
    assert not inside & set(PACKAGES)


def test_top_level() -> None:
    """No *.py but __init__.py lies at the top: a host would run it (style 3.2)."""
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


def test_no_top_level_packages() -> None:
    """hooks, daemon and config are never imported under their own names, as second copies."""
    for package in PACKAGES:
        module = sys.modules.get(package)
        assert module is None or str(ROOT) not in str(getattr(module, "__path__", ""))


def test_exports() -> None:
    """The public names are sorted, few, and all there."""
    assert memtier_plugin.__all__ == sorted(memtier_plugin.__all__)
    assert len(memtier_plugin.__all__) <= 15
    for name in memtier_plugin.__all__:
        assert callable(getattr(memtier_plugin, name))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = memtier_plugin.Nothing


def test_cold_import() -> None:
    """`import memtier_plugin` and a plugin's `hookimpl` load no third-party module but pluggy."""
    code = "import sys, memtier_plugin; memtier_plugin.hookimpl; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    bare = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"],
                          cwd=ROOT, capture_output=True, check=True)  # fmt: skip
    new = set(found.stdout.decode().split()) - set(bare.stdout.decode().split())
    tops = {name.partition(".")[0] for name in new} - set(sys.stdlib_module_names)
    assert tops == {"memtier_plugin", "pluggy"}


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=lambda p: p.name)
def test_every_test_states_its_rule(path: Path) -> None:
    """Every test has a docstring that says what must hold."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assert ast.get_docstring(node), f"{path.name}: {node.name} states no rule"
