"""Measure what an installation of MemTier weighs: `make sizes`.

    python scripts/sizes.py

Builds the wheel, installs it into fresh virtual environments, and prints a table in Markdown: of
each dependency the bytes of its own, the bytes that nothing else would bring, the time of its
import, and who imports it when.  Needs the package index that pip is set up for.
"""

from __future__ import annotations

import ast
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("memtier_plugin", "hooks", "daemon")
IMPORTS = 9  # of each library, in processes of their own; the quickest counts
# In the new environment: every distribution with its size, needs and top-level packages.
LIST = """
import json
from importlib.metadata import distributions, packages_distributions
from packaging.requirements import Requirement
tops = packages_distributions()
print(json.dumps({
    d.name.lower().replace("_", "-").replace(".", "-"): {
        "bytes": sum(
            path.stat().st_size for f in d.files or () if (path := d.locate_file(f)).is_file()
        ),
        "needs": [
            r.name.lower().replace("_", "-").replace(".", "-")
            for r in map(Requirement, d.requires or ())
            if r.marker is None or r.marker.evaluate({"extra": ""})
        ],
        "tops": [top for top, names in tops.items() if d.name in names and top.isidentifier()],
    }
    for d in distributions()
}))
"""
TIME = """
import sys, time
began = time.process_time()
__import__(sys.argv[1])
print(1000 * (time.process_time() - began))
"""
# What loads a library first, in the order in which a user meets it.
USES = {
    "import": "",
    "a recall": """
with memtier_plugin.MemTier.open(home, "p") as memory:
    memory.recall("What did we decide about the database?")""",
    "a run": """
with memtier_plugin.MemTier.open(home, "p") as memory:
    memory.end_run([{"role": "user", "content": "The port is 8443."}], session_id="s")""",
    "a consolidation": """
with memtier_plugin.MemTier.open(home, "p") as memory:
    memory.record([{"role": "user", "content": "The port is 8443."}], session_id="s")
    memory.consolidate()""",
    "a command": """
from memtier_plugin.__main__ import run
sys.argv[1:] = ["--home", home, "--project", "p", "log"]
memtier_plugin.MemTier.open(home, "p").close()
try:
    run()
except SystemExit:
    pass""",
}
Distributions = dict[str, dict[str, Any]]


def run(*command: str | Path) -> str:
    """Run a command outside of the checkout; return what it prints."""
    shown = subprocess.run(
        [*map(str, command)], cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False
    )
    if shown.returncode:
        raise SystemExit(f"{command}: {shown.stdout}{shown.stderr}")
    return shown.stdout


def build(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT)
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
    (wheel,) = folder.glob("memtier-*.whl")
    return wheel


def install(wheel: Path, folder: Path, *installer: str | Path) -> tuple[Path, float]:
    """Install the wheel into a new environment; return its Python, and the seconds it took."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    began = time.monotonic()
    if installer:
        run(*installer, "--python", python, wheel)
    else:
        run(python, "-m", "pip", "install", "--quiet", wheel)
    return python, time.monotonic() - began


def closure(names: list[str], installed: Distributions) -> set[str]:
    """Return distributions with all that they need."""
    seen: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name in installed and name not in seen:
            seen.add(name)
            waiting += installed[name]["needs"]
    return seen


def importers(top: str) -> tuple[list[str], bool]:
    """Return the modules that import a package, and whether all do so inside of functions."""
    modules, late = [], True
    pattern = re.compile(rf"(?:import_module|find_spec)\(f?[\"']{top}\b")
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        sites = [node for node in ast.walk(tree) if imports(node, top)]
        if sites or pattern.search(text):
            modules.append(path.relative_to(ROOT).as_posix().removeprefix("memtier_plugin/"))
        late = late and not any(imports(node, top) for node in tree.body)
    return modules, late


def imports(node: ast.AST, top: str) -> bool:
    """Return whether a statement imports a package."""
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] == top for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == top


def import_ms(python: Path, top: str) -> float:
    """Return the CPU milliseconds of an import in a fresh process [minimum]."""
    return min(float(run(python, "-c", TIME, top)) for _ in range(IMPORTS))


def loaded(python: Path, work: Path) -> dict[str, set[str]]:
    """Return the modules that each use loads, in a home with settings."""
    modules = {}
    for use, code in USES.items():
        home = work / use.replace(" ", "-")
        home.mkdir()
        (home / "config.yaml").write_text("retrieval: {k: 8}\n")
        begin = "import sys, memtier_plugin\nhome = sys.argv[1]\n"
        shown = run(python, "-c", f"{begin}{code}\nprint(*sys.modules)", home)
        modules[use] = {*shown.splitlines()[-1].split()}
    return modules


def rows(python: Path, work: Path) -> Iterator[str]:
    """Yield the table's rows, the largest first by what only it brings."""
    run(python, "-m", "pip", "install", "--quiet", "packaging")
    installed: Distributions = json.loads(run(python, "-c", LIST))
    named = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = [re.split(r"[<>=]", line)[0] for line in named]
    direct = {name: re.sub(r"[._]", "-", name.lower()) for name in names}
    every, uses = closure([*direct.values()], installed), loaded(python, work)
    table = []
    for name, key in direct.items():
        only = every - closure([other for other in direct.values() if other != key], installed)
        tops = [top for top in installed[key]["tops"] if not top.startswith("_")]
        top = max(tops, key=lambda each: len(importers(each)[0]))
        module = "ruamel.yaml" if top == "ruamel" else top  # a namespace of several packages
        first = next((use for use, loads in uses.items() if module in loads), "its feature alone")
        own, alone = installed[key]["bytes"], sum(installed[each]["bytes"] for each in only)
        row = f"| {name} | {own / 1e6:.1f} | {alone / 1e6:.1f} | {import_ms(python, module):.0f} "
        table.append((alone, own, f"{row}| {first} | {describe(*importers(top))} |"))
    total = sum(installed[name]["bytes"] for name in every)
    yield f"{len(every)} packages, {total / 1e6:.0f} MB"
    yield ""
    yield "| library | MB | MB that only it brings | import, ms | loaded by | imported by |"
    yield "|---|---|---|---|---|---|"
    yield from (row for *_, row in sorted(table, reverse=True))


def describe(modules: list[str], late: bool) -> str:
    """Describe who imports a package, and whether inside of functions."""
    if not modules:
        return "`memtier-papers` and `memtier-bench` only"
    more = f" and {len(modules) - 1} more" if modules[1:] else ""
    return f"`{modules[0]}`{more}{', in a function' if late else ''}"


def main() -> None:
    """Print the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        wheel = build(work)
        print(f"Python {platform.python_version()}, {platform.platform(terse=True)}")
        print(f"wheel: {wheel.stat().st_size / 1e6:.1f} MB")
        python, seconds = install(wheel, work / "pip")
        print(f"installed by pip in {seconds:.0f} s (its cache as it is)")
        if uv := shutil.which("uv"):
            _, seconds = install(wheel, work / "uv", uv, "pip", "install", "--quiet")
            print(f"installed by uv in {seconds:.0f} s (its cache as it is)")
        print(*rows(python, work), sep="\n")


if __name__ == "__main__":
    main()
