"""Which package may import which, held by reading the code."""

from __future__ import annotations

import ast
import gc
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pytest

import memtier_plugin
from tests.processes import run_python

ROOT = Path(__file__).parents[1]
T = TypeVar("T")
PACKAGES = ("hooks", "daemon", "config")
MOST_LINES = 500
VAGUE_NAMES = {"one", "found", "told", "said", "place", "whole"}
MOST_FUNCTION_LINES = 60

# Top down: a package imports from the lines below its own; neighbours on a line do not meet.
ORDER = """
    bench
    papers
    cli
    server mcp web tui frameworks
    hooks
    daemon
    transfer hosts
    views
    async_memory
    pool
    memory
    project
    operations
    lifecycle answering
    facts
    credit
    retrieval ingest
    telemetry
    storage
    providers trust
    text
    core
""".strip().splitlines()
LEVEL = {room: number for number, line in enumerate(reversed(ORDER)) for room in line.split()}

# What ranks, packs, credits, folds, parses and verifies does no I/O and has no clock.
PURE = (
    "text.* trust.confidences trust.external_text trust.escaping trust.origins"
    " papers.mem_t.decomposition papers.mem_t.planning papers.mem_t.tool_calls"
    " facts.extraction.* facts.verification.* facts.evolution facts.filters papers.hmo.formula"
    " papers.hmo.importance papers.hmo.persona papers.true_memory.profiles"
    " facts.summaries.selection papers.tiermem.router_reward credit.outcomes"
    " papers.memtier.uplift papers.mem_t.tree_credit papers.true_memory.gate"
    " papers.true_memory.speech_acts"
    " lifecycle.purge.plan mcp.definitions credit.verdict providers.pricing"
    " providers.prompting retrieval.block retrieval.duplicates"
    " retrieval.judgement retrieval.pasted_text retrieval.query"
    " papers.memtier.scorer papers.true_memory.rerank_fusion papers.tiermem.routing"
    " retrieval.signals storage.index.postings storage.state telemetry.measures"
    " telemetry.prometheus"
    " views.edit_text views.history views.journal"
)
READERS = (  # of threads, of their data files
    "text.tokenizer text.lexicon facts.extraction.llm retrieval.worth"
    " retrieval.signals trust.confidences providers.prompting"
)
IMPURE = frozenset({"io", "os", "pathlib", "random", "socket", "subprocess", "threading", "time"})

# Where each third party is at home; nobody else imports it.
HOMES = {
    "ag2": "frameworks.ag2",
    "agents": "frameworks.openai_agents",
    "anyio": "mcp.*",
    "apscheduler": "daemon.*",
    "apsw": "storage.*",
    "autogen_core": "frameworks.autogen",
    "click": "cli.* papers.memtier.uplift_command papers.true_memory.people_command bench.cli.*",
    "crewai": "frameworks.crewai",
    "google": "frameworks.google_adk",
    "huggingface_hub": "providers.embedding.*",
    "jinja2": "web.*",
    "jsonschema": "mcp.*",
    "langchain": "frameworks.langchain",
    "langchain_core": "frameworks.langchain",
    "langgraph": "frameworks.langchain frameworks.langgraph",
    "llama_index": "frameworks.llama_index",
    "matplotlib": "bench.plot",
    "mcp": "mcp.*",
    "model2vec": "providers.embedding.conversion providers.embedding.static",
    "msgspec": "core.* retrieval.* papers.hmo.tiers bench.router",
    "numpy": "providers.embedding.* storage.index.vectors credit.verdict papers.* bench.*",
    "onnxruntime": "providers.embedding.*",
    "openai": "providers.endpoint papers.memtier.scoring",
    "opentelemetry": "telemetry.otlp",
    "nats": "storage.shared.nats.*",
    "psycopg": "storage.shared.postgres.* bench.scratch",
    "pydantic_ai": "frameworks.pydantic_ai",
    "pluggy": "__init__ core.hookspecs core.plugins",
    "rank_bm25": "papers.memtier.scorer bench.*",
    "regex": "core.lazy_regex",
    "rich": "cli.* papers.memtier.uplift_command papers.true_memory.people_command bench.* tui.*",
    "ruamel": "core.settings.yaml_file",
    "safetensors": "providers.embedding.*",
    "sqlite_vec": "storage.index.vectors",
    "Stemmer": "text.tokenizer bench.baselines",
    "textual": "tui.*",
    "tokenizers": "providers.embedding.*",
    "transformers": "providers.embedding.conversion",
    "starlette": "server.http web.* mcp.server core.asgi",
    "uvicorn": "mcp.* server.http web.app",
    "ulid": "core.formats core.records storage.index.items",
    "xllamacpp": "bench.local_model",
    "yaml": "core.settings.* hosts.* papers.settings_edit bench.code_marks bench.currency_cases "
    "bench.languages bench.peers.run bench.planted bench.silence_prompts",
}

# What hooks never load: libraries of a feature, a background job or a command, and what they bring.
FEATURES = {
    *("apscheduler", "click", "detect_secrets", "huggingface_hub", "jinja2", "joblib", "model2vec"),
    *("openai", "pydantic", "rank_bm25", "requests", "rich", "ruamel.yaml", "sqlite_vec"),
}

# What brings the packages of agent frameworks, which are not installed here.
FRAMEWORKS = {
    "agents": "openai-agents",
    "autogen_core": "autogen-agentchat",
    "google": "google-adk",
    "langchain_core": "langchain",
    "llama_index": "llama-index-core",
    "pydantic_ai": "pydantic-ai-slim",
}

# The seam for other backends: what a caller outside of storage may import from the parts that are
# files and SQLite is values and arithmetic, never what opens, reads or writes them.
BACKENDS = "storage.index.* storage.ledger.*"
VALUES = frozenset(
    {
        *(
            "Candidate",
            "Confirmation",
            "GroupBy",
            "LedgerFile",
            "LineGroup",
            "Match",
            "OverviewReader",
            "Page",
            "RowLengths",
            "ShelvedFact",
            "describe_engine",
            "VectorCoverage",
        ),
        "SessionSpan",
        *(
            "Stored",
            "SHARED",
            "COVERED_SHARE",
            "K1",
            "B",
            "idf",
            "saturation",
            "embed_texts",
            *("settle_events", "to_utf8", "to_utf8_all"),
        ),
    }
)
LEDGER_PATHS = frozenset({"index_path", "iter_ledger_folders", "make_ledger_folder"})

# The packages beside the core, and their names here; none of them is imported by it.
OTHERS = {"memtier_bench": "bench", "memtier_papers": "papers"}
OURS = ("memtier_plugin.", *(f"{package}." for package in OTHERS))
TOPS = ("memtier_plugin", *PACKAGES, *(f"{name}/{package}" for package, name in OTHERS.items()))
TESTS = ("tests", *(f"{name}/tests" for name in OTHERS.values()))

FILES = {
    ".".join(path.relative_to(folder).with_suffix("").parts): path
    for folder, package in (
        (ROOT / "memtier_plugin", ""),
        *((ROOT, package) for package in PACKAGES),
    )
    for path in sorted((folder / package).rglob("*.py"))
} | {
    ".".join((name, *path.relative_to(ROOT / name / package).with_suffix("").parts)): path
    for package, name in OTHERS.items()
    for path in sorted((ROOT / name / package).rglob("*.py"))
}


def matches(name: str, patterns: str) -> bool:
    """Tell whether a module is named in a line of patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns.split())


def room(name: str) -> str:
    """Return the package, or the module of the façade, that a module belongs to."""
    return name.partition(".")[0]


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the code of a file, read once for all that is asked of it."""
    return ast.parse(path.read_bytes())


def tree(name: str) -> ast.Module:
    """Return a module's code."""
    return tree_of(FILES[name])


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a file's code, as `ast.walk` does."""
    return [*ast.walk(tree_of(path))]


def nodes(name: str) -> list[ast.AST]:
    """Return all nodes of a module's code."""
    return nodes_of(FILES[name])


@pytest.fixture(scope="module", autouse=True)
def _forget_the_code() -> Iterator[None]:
    """Drop the code after the last rule: two million objects slow down each later collection."""
    gc.disable()
    yield
    nodes_of.cache_clear()
    tree_of.cache_clear()
    gc.enable()


def imports_by_name(node: ast.Call) -> bool:
    """Tell whether a call is one of `import_module`."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "import_module"


@cache
def imports(name: str) -> tuple[str, ...]:
    """Return what a module imports: our modules as `FILES` has them, others as `:package`."""
    return tuple(_imports(name))


def _imports(name: str) -> Iterator[str]:
    package = name.rpartition(".")[0]
    for node in nodes(name):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "memtier_plugin." + package if node.level else ""
            base = ".".join(filter(None, (base, node.module)))
            targets = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and imports_by_name(node):
            targets = [
                text.value
                for text in ast.walk(node)
                if isinstance(text, ast.Constant)
                and str(text.value).startswith(("memtier_plugin.", "memtier_bench."))
            ]
        else:
            continue
        for target in targets:
            top, _, inner = target.partition(".")
            if top in OTHERS:
                inner = f"{OTHERS[top]}.{inner}".rstrip(".")
            elif top != "memtier_plugin":
                yield f":{top}"
                continue
            while inner and inner not in FILES and f"{inner}.__init__" not in FILES:
                inner = inner.rpartition(".")[0]
            yield inner or "__init__"


def of_each(things: Iterable[T]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Hold a rule for each of many things in one test, which names all that break it."""

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            broken = []
            for thing in things:
                try:
                    check(thing)
                except AssertionError as error:
                    broken.append(f"{thing}: {error}")
            assert not broken, "\n".join(broken)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


@of_each(FILES)
def test_imports_point_down(name: str) -> None:
    """A module imports from its own package and from those below it, by statement or by string."""
    if room(name) in ("__init__", "__main__", "alias"):
        return
    assert room(name) in LEVEL or room(name) == "config", f"{name}: give its package a place"
    for target in imports(name):
        if target.startswith(":") or room(target) in ("__init__", "config", room(name)):
            continue
        assert LEVEL[room(target)] < LEVEL[room(name)], f"{name} imports {target}, not below it"


def test_no_module_imports_itself_through_others() -> None:
    """Modules form no circle, inside packages neither, nor by imports in functions or for types."""
    sorter = TopologicalSorter(
        {
            name: {t for t in imports(name) if not t.startswith(":")} - {name, "__init__"}
            for name in FILES
        }
    )
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


@of_each([name for name in FILES if name.endswith(".__init__")])
def test_packages_hold_a_docstring_only(name: str) -> None:
    """Importing a package costs nothing, and no name has a second home.

    That of `core`, by which all of MemTier comes, refuses a system without POSIX.
    """
    if room(name) in LEVEL and room(name) not in ("hooks", "daemon"):
        docstring, *more = tree(name).body
        assert isinstance(docstring, ast.Expr) and ast.get_docstring(tree(name))
        assert [type(node) for node in more] == [ast.Try] * (name == "core.__init__")


@of_each(FILES)
def test_third_parties_have_homes(name: str) -> None:
    """Every third party is imported in its one home, and only what HOMES names is imported."""
    for package in {target[1:] for target in imports(name) if target.startswith(":")}:
        if package not in sys.stdlib_module_names:
            assert package in HOMES, f"{name} imports {package}: give it a home in HOMES"
            assert matches(name, HOMES[package]), f"{name} imports {package}; see HOMES"


@of_each([name for name in FILES if room(name) != "storage"])
def test_the_storage_seam(name: str) -> None:
    """Outside of storage nothing touches a connection, the index's file or a path of a ledger."""
    for node in nodes(name):
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").removeprefix("memtier_plugin.")
            names = {alias.name for alias in node.names}
            if matches(module, BACKENDS):
                assert names <= VALUES, f"{name} imports {names - VALUES} from {module}"
            packages = {f"{module}.{each}" for each in names} & {"storage.index", "storage.ledger"}
            assert not packages, f"{name} imports {packages}"
            assert room(name) == "core" or not names & LEDGER_PATHS, f"{name} imports {names}"
        elif isinstance(node, ast.Attribute) and (node.attr == "index" or node.attr[0] == "_"):
            written = ast.unparse(node)
            assert not re.search(r"store\.(index|_\w+)$", written), f"{name} uses {written}"
            assert node.attr not in ("_db", "_connection"), f"{name} uses {written}"


def test_third_parties_are_dependencies() -> None:
    """Everything with a home is named in pyproject.toml, or an install would miss it."""
    lines: list[str] = []
    for folder in (ROOT, *(ROOT / name for name in OTHERS.values())):
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        users = extras.keys() - {"dev", "train"}
        lines += [*project["dependencies"], *(line for extra in users for line in extras[extra])]
    named = {re.split(r"[\[<>=]", line)[0].lower() for line in lines}
    distributions = dict(packages_distributions())
    distributions |= {package: [name] for package, name in FRAMEWORKS.items()}
    for package in HOMES:
        names = distributions.get(package, [package])  # itself, where an extra is not installed
        assert named & {name.lower() for name in names}, package


@of_each([n for n in FILES if matches(n, PURE) and not matches(n, READERS)])
def test_pure_modules(name: str) -> None:
    """What ranks, packs, credits and folds does no I/O and has no clock."""
    assert not {target[1:] for target in imports(name)} & IMPURE
    for node in nodes(name):
        called = node.func if isinstance(node, ast.Call) else None
        attribute = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        assert attribute not in ("now", "today", "utcnow", "open", "print", "input"), name


@of_each(FILES)
def test_modules_are_small(name: str) -> None:
    """A module that a person cannot read in one go is split."""
    lines = FILES[name].read_text("utf-8").count("\n")
    assert lines <= MOST_LINES, f"{name} has {lines} lines; split it by noun"


@of_each(FILES)
def test_functions_are_short(name: str) -> None:
    """A function fits on a screen, but for the one that declares the tables of the index."""
    for node in nodes(name):
        if isinstance(node, ast.FunctionDef) and node.name != "m001_first":
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= MOST_FUNCTION_LINES, f"{name}.{node.name} has {lines} lines"


def test_classes_are_named_once() -> None:
    """A class of the core has a name of its own, but for one that each framework's users import."""
    homes: dict[str, list[str]] = {}
    for name in FILES:
        if name.partition(".")[0] not in ("bench", "papers"):
            for node in ast.parse(FILES[name].read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and node.name != "MemTierMiddleware":
                    homes.setdefault(node.name, []).append(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_names_are_disjoint() -> None:
    """Nothing in memtier_plugin/ is named as what is mounted there: it would win in a checkout."""
    inside = {path.stem for path in (ROOT / "memtier_plugin").iterdir()}
    assert not inside & set(PACKAGES)


def test_top_level() -> None:
    """No *.py lies at the top but what Hermes reads there: it would run any other one, too."""
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["__init__.py", "cli.py"]


def test_no_top_level_packages() -> None:
    """hooks, daemon and config are never imported under their own names, as second copies."""
    for package in PACKAGES:
        module = sys.modules.get(package)
        assert module is None or str(ROOT) not in str(getattr(module, "__path__", ""))


def test_exports() -> None:
    """The public names are sorted, few, and all there."""
    assert memtier_plugin.__all__ == sorted(memtier_plugin.__all__)
    assert len(memtier_plugin.__all__) <= 25
    for name in memtier_plugin.__all__:
        assert callable(getattr(memtier_plugin, name))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = memtier_plugin.Nothing


def test_cold_import() -> None:
    """`import memtier_plugin` and a plugin's `hookimpl` load no third-party module but pluggy."""
    code = "import sys, memtier_plugin; memtier_plugin.hookimpl; print(*sys.modules)"
    bare = run_python("import sys; print(*sys.modules)")
    new = set(run_python(code).split()) - set(bare.split())
    tops = {name.partition(".")[0] for name in new} - set(sys.stdlib_module_names)
    assert tops == {"memtier_plugin", "pluggy"}


@of_each(
    sorted(path for top in ("tests", "bench/tests") for path in (ROOT / top).rglob("test_*.py"))
)
def test_every_test_states_its_rule(path: Path) -> None:
    """Every test has a docstring that says what must hold."""
    body = tree_of(path).body
    classes = [node.body for node in body if isinstance(node, ast.ClassDef)]
    for node in chain(body, *classes):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assert ast.get_docstring(node), f"{path.name}: {node.name} states no rule"


def test_variables_are_named_for_what_they_hold() -> None:
    """No variable or parameter of the code, the scripts or the tests has a name that fits any."""
    tops = (*TOPS, *TESTS, "scripts")
    for path in sorted(path for top in tops for path in (ROOT / top).rglob("*.py")):
        code = nodes_of(path)
        bodies = [node.body for node in code if isinstance(node, ast.ClassDef)]
        fields = {
            id(line.target) for body in bodies for line in body if isinstance(line, ast.AnnAssign)
        }
        for node in code:
            if isinstance(node, ast.arg):
                assert node.arg not in VAGUE_NAMES, f"{path}:{node.lineno}: {node.arg}"
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                vague = node.id in VAGUE_NAMES and id(node) not in fields
                assert not vague, f"{path}:{node.lineno}: {node.id}"


def test_no_nesting_is_too_deep() -> None:
    """Whoever expects text that is no JSON expects JSON that is nested too deeply, too."""
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in nodes_of(path):
                if isinstance(node, ast.Try):
                    caught = " ".join(ast.unparse(h.type) for h in node.handlers if h.type)
                    body = node.body
                elif isinstance(node, ast.With):
                    caught = " ".join(ast.unparse(item.context_expr) for item in node.items)
                    body = node.body
                else:
                    continue
                if "ValueError" in caught and "RecursionError" not in caught:
                    parsed = [n for part in body for n in ast.walk(part) if _is_json_loads(n)]
                    assert not parsed, f"{path}:{node.lineno}: parse_json_text raises ValueError"


def _is_json_loads(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "json.loads"


def test_a_first_recall_loads_little(tmp_path: Path) -> None:
    """Opening a memory and one recall load at most 130 modules of ours, and no asyncio."""
    code = """
        import sys
        from memtier_plugin import MemTier
        with MemTier.open(sys.argv[1], "p") as memory:
            memory.recall("What did we decide about the database?")
        print(*sys.modules)
    """
    loaded = set(run_python(code, tmp_path).split())
    ours = {name for name in loaded if name.startswith("memtier_plugin")}
    assert len(ours) <= 130, sorted(ours)
    assert not loaded & {"asyncio", "nats", "psycopg", "memtier_plugin.facts.service"}


def test_the_hooks_load_no_feature(tmp_path: Path) -> None:
    """A prompt and a run through the hooks load no library of a feature, a job or a command."""
    code = """
        import sys
        from memtier_plugin.core import plugins
        from memtier_plugin.core.records import Message
        from memtier_plugin.core.results import PromptEvent, RunContext, RunEvent
        from memtier_plugin.hooks import host_hooks
        hook = plugins.manager().hook
        where = {"agent_id": "a", "session_id": "s", "project": "p", "home": sys.argv[1]}
        for text in ("The database is PostgreSQL 16.", "Which database do we use?"):
            context = RunContext(**where, run_id=text)
            answer = hook.before_prompt_build(event=PromptEvent(prompt=text), context=context)
            event = RunEvent(messages=(Message(role="user", content=text),))
            hook.agent_end(event=event, context=context)
            host_hooks.workers.drain(60)
        assert not answer or "PostgreSQL" in answer.prepend_context  # late on a busy machine
        print(*sys.modules)
    """
    loaded = set(run_python(code, tmp_path).split())
    assert {"apsw", "numpy"} <= loaded
    assert not loaded & FEATURES
