"""Measure how the code is built: sizes, complexity, and the calls of four journeys.

    python scripts/measure_structure.py [CHECKOUT] [--json] [--lines 15 --seed 1] [--only sizes,...]

The numbers of two checkouts can be compared whatever their layout: everything is found through the
public API, the console script and the file tree.  Whatever has to run runs in child processes with
the virtual environment of the checkout, where there is one.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

PRODUCT: Final = ("memtier_plugin", "hooks", "daemon", "config")
DATA: Final = frozenset({".yaml", ".json", ".toml", ".txt"})  # read as text by the product
PARTS: Final = ("sizes", "journeys", "start", "lines")


# -- sizes -----------------------------------------------------------------------------------------


def python_files(checkout: Path) -> list[Path]:
    """Return the product's modules."""
    return [file for top in PRODUCT for file in sorted((checkout / top).rglob("*.py"))]


def package_of(file: Path, checkout: Path) -> str:
    """Return the package in which a file is counted: the first folder below `memtier_plugin`."""
    top, *inner = file.relative_to(checkout).parts
    return f"{top}.{inner[0]}" if top == "memtier_plugin" and len(inner) > 1 else top


def measure_sizes(checkout: Path, python: str) -> dict[str, Any]:
    """Return lines and modules a package, and what is longest and most complex."""
    packages: dict[str, Counter[str]] = {}
    lengths: list[tuple[int, str]] = []
    totals: Counter[str] = Counter()
    for file in python_files(checkout):
        text = file.read_text("utf-8")
        lines = text.count("\n")
        totals += Counter(
            lines=lines,
            modules=1,
            fmt_skip=text.count("# fmt: skip"),
            any=sum(bool(re.search(r"\bAny\b", line)) for line in text.splitlines()),
        )
        packages.setdefault(package_of(file, checkout), Counter()).update(lines=lines, modules=1)
        where = file.relative_to(checkout).as_posix()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                lengths.append((length, f"{where}:{node.lineno} {node.name}"))
    data = [
        file
        for top in PRODUCT
        for file in (checkout / top).rglob("*")
        if file.suffix in DATA and "package" not in file.name
    ]
    lengths.sort(reverse=True)
    tests = [file.read_text("utf-8") for file in (checkout / "tests").rglob("*.py")]
    return {
        **totals,
        "fmt_skip_in_tests": sum(text.count("# fmt: skip") for text in tests),
        "test_lines": sum(text.count("\n") for text in tests),
        "packages": {name: dict(packages[name]) for name in sorted(packages)},
        "longest_module": max(
            (file.read_text("utf-8").count("\n"), file.relative_to(checkout).as_posix())
            for file in python_files(checkout)
        ),
        "longest_functions": lengths[:5],
        "functions": len(lengths),
        "functions_over_60_lines": sum(length > 60 for length, _ in lengths),
        "most_complex": measure_complexity(checkout, python)[:5],
        "data_files": len(data),
        "data_lines": sum(file.read_bytes().count(b"\n") for file in data),
    }


def measure_complexity(checkout: Path, python: str) -> list[tuple[int, str]]:
    """Return the cyclomatic complexity (ruff C901) of each function, the highest first."""
    folders = [top for top in PRODUCT if (checkout / top).is_dir()]
    done = subprocess.run(
        [
            *(python, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "C901"),
            *("--config", "lint.mccabe.max-complexity=1", "--output-format", "json"),
            *folders,
        ],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    complexities = []
    for row in json.loads(done.stdout or "[]"):
        name, value = re.search(r"`(.+?)` is too complex \((\d+)", row["message"]).groups()  # type: ignore[union-attr]
        file = Path(row["filename"]).relative_to(checkout)
        complexities.append((int(value), f"{file}:{row['location']['row']} {name}"))
    return sorted(complexities, reverse=True)


def draw_lines(checkout: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """Return lines of code drawn at random; comments, docstrings and closing brackets are none."""
    rows = [
        (file.relative_to(checkout).as_posix(), number, line)
        for file in python_files(checkout)
        for number, line in code_lines(file)
    ]
    drawn = sorted(random.Random(seed).sample(range(len(rows)), count))
    return [{"file": rows[i][0], "line": rows[i][1], "code": rows[i][2]} for i in drawn]


def code_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a module on which something happens, with their numbers."""
    text = file.read_text("utf-8")
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    with file.open("rb") as raw:
        named = {
            token.start[0]
            for token in tokenize.tokenize(raw.readline)
            if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
        }
    for number, line in enumerate(text.splitlines(), 1):
        if number in named and number not in skipped:
            yield number, line.strip()


# -- start -----------------------------------------------------------------------------------------


def measure_start(checkout: Path, python: str, rounds: int) -> dict[str, Any]:
    """Return the median wall and CPU seconds of cold processes.

    The first process of each kind only fills the disk cache.
    """
    commands = {
        "python": ["-c", "pass"],
        "import memtier_plugin": ["-c", "import memtier_plugin"],
        "from memtier_plugin import MemTier": ["-c", "from memtier_plugin import MemTier"],
        "memtier --version": ["-m", "memtier_plugin", "--version"],
        "memtier --help": ["-m", "memtier_plugin", "--help"],
        "memtier recall --help": ["-m", "memtier_plugin", "recall", "--help"],
    }
    wall: dict[str, list[float]] = {name: [] for name in commands}
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as home:
        environment = child_environment(checkout, Path(home))
        for number in range(rounds + 1):
            for name, arguments in commands.items():
                started, used = time.perf_counter(), children_cpu_seconds()
                subprocess.run(
                    [python, *arguments],
                    env=environment,
                    cwd=home,
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
                if number:
                    wall[name].append(time.perf_counter() - started)
                    cpu[name].append(children_cpu_seconds() - used)
    return {
        name: {"wall": round(median(wall[name]), 4), "cpu": round(median(cpu[name]), 4)}
        for name in commands
    }


def children_cpu_seconds() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def child_environment(checkout: Path, home: Path) -> dict[str, str]:
    """Return the environment of a child that imports the checkout's code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMTIER_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONPATH": str(checkout), "MEMTIER_HOME": str(home), "HOME": str(home)}


# -- journeys --------------------------------------------------------------------------------------


def measure_journeys(checkout: Path, python: str) -> dict[str, Any]:
    """Return the calls of each journey, counted in a child process that runs the checkout."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [python, __file__, str(checkout), "--count-journeys", home],
            env=child_environment(checkout, Path(home)),
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"the journeys failed:\n{done.stderr}")
    counted: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return counted


class CallCounter:
    """Counts the calls of the project's functions in every thread started after `install`."""

    HIDDEN: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})

    def __init__(self, checkout: Path) -> None:
        self._top = f"{checkout.resolve()}{os.sep}"
        self._venv = f"{checkout.resolve()}{os.sep}.venv"
        self._project: dict[str, bool] = {}
        self.counting = False
        self.reset()

    def install(self) -> None:
        """Begin to listen; nothing is counted before `counting` is set."""
        import threading

        threading.setprofile(self._listen)
        sys.setprofile(self._listen)

    def reset(self) -> None:
        """Forget what was counted."""
        self.calls: Counter[tuple[str, str]] = Counter()  # file of the caller, file of the callee
        self.functions: set[tuple[str, str]] = set()
        self.depth = 0

    def _is_project(self, name: str) -> bool:
        is_project = self._project.get(name)
        if is_project is None:
            real = os.path.realpath(name)
            is_project = real.startswith(self._top) and not real.startswith(self._venv)
            self._project[name] = is_project = is_project and "/scripts/" not in real
        return is_project

    def _listen(self, frame: Any, event: str, _argument: object) -> None:
        if not self.counting or event != "call":
            return
        code = frame.f_code
        if not self._is_project(code.co_filename) or code.co_name in self.HIDDEN:
            return
        if code.co_flags & 0x20 and frame.f_lasti > 10:  # a generator that goes on
            return
        caller, depth = frame.f_back, 0
        while caller is not None and not self._is_project(caller.f_code.co_filename):
            caller = caller.f_back
        above = caller
        while above is not None:
            depth += self._is_project(above.f_code.co_filename)
            above = above.f_back
        self.depth = max(self.depth, depth + 1)
        self.calls[caller.f_code.co_filename if caller else "", code.co_filename] += 1
        self.functions.add((code.co_filename, code.co_qualname))

    def report(self) -> dict[str, int]:
        """Return the figures of what was counted."""
        return {
            "modules": len({callee for _, callee in self.calls}),
            "functions": len(self.functions),
            "calls": self.calls.total(),
            "between": sum(n for (a, b), n in self.calls.items() if a != b and a),
            "depth": self.depth,
        }


TALK: Final = (
    ("My sister's name is Mara and she lives in Ghent.", "Noted, Mara in Ghent."),
    ("The health check listens on port 8443.", "I point the load balancer there."),
    ("I prefer tea to coffee.", "Tea it is."),
    ("We moved the tide service to the server atlas-2 last week.", "Then I deploy to atlas-2."),
    ("My favorite editor is Helix.", "I will keep that in mind."),
    ("Please restart the tide service when it hangs.", "I drain it with pierctl first."),
    ("I never eat walnuts.", "No walnuts, understood."),
)
RUNS: Final = 3  # in the store before anything is counted
QUESTION: Final = "Which port does the health check of the tide service listen on?"


def count_journeys(checkout: Path, home: Path) -> dict[str, Any]:
    """Run each journey warm and return what was counted."""
    import contextlib
    import io
    import threading
    import tomllib
    from importlib import import_module

    counter = CallCounter(checkout)
    counter.install()
    import memtier_plugin
    from memtier_plugin import MemTier, Message, PromptEvent, RunContext, RunEvent, ToolCall

    hook = memtier_plugin.register(object()).hook
    script = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = script["memtier"].partition(":")
    command = getattr(import_module(module), name)
    jobs = import_module("memtier_plugin.daemon.jobs")
    job_run = getattr(jobs, "JobRun", None) or jobs.Run

    def context(number: int) -> RunContext:
        return RunContext(
            agent_id="main",
            session_id=f"session-{number // 4}",
            run_id=f"run-{number}",
            project="p",
            home=str(home),
            workspace=str(home),
        )

    def prompt(number: int) -> None:
        hook.before_prompt_build(event=PromptEvent(prompt=QUESTION), context=context(number))

    def end(number: int, text: str, answer: str) -> None:
        call = ToolCall(name="shell", call_id=f"call-{number}", arguments="pierctl status")
        result = ToolCall(name="shell", call_id=f"call-{number}", ok=True, exit_code=0)
        used = (
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content="healthy", tool=result),
        )
        messages = (
            Message(role="user", content=text),
            *used * (1 + (number == RUNS)),
            Message(role="assistant", content=answer),
        )
        hook.agent_end(event=RunEvent(messages=messages), context=context(number))

    def recall() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            scope = ["--home", str(home), "--project", "p", "--agent", "main"]
            sys.argv = ["memtier", *scope, "recall", QUESTION]
            with contextlib.suppress(SystemExit):
                command()

    def consolidate(project: str) -> None:
        with MemTier.open(home, project, "main") as memory:
            messages = [
                {"role": role, "content": text}
                for pair in TALK
                for role, text in zip(("user", "assistant"), pair, strict=True)
            ]
            memory.record(messages, session_id="s", run_id="r")
            counter.counting = project == "counted"
            run = job_run(threading.Event())
            if hasattr(jobs, "list_jobs"):
                jobs.list_jobs()["consolidation"].run(memory, run)
            else:  # of an earlier checkout
                jobs.JOBS["consolidation"](memory, run)
            counter.counting = False

    def count(journey: Any, *arguments: Any) -> dict[str, int]:
        time.sleep(0.3)  # whatever earlier calls left to do in other threads
        counter.reset()
        counter.counting = True
        journey(*arguments)
        time.sleep(0.3)
        counter.counting = False
        return counter.report()

    calls: dict[str, Any] = {}
    for number, (text, answer) in enumerate(TALK[:RUNS]):
        prompt(number)
        end(number, text, answer)
    calls["hook before_prompt_build"] = count(prompt, RUNS)
    calls["hook agent_end"] = count(end, RUNS, *TALK[RUNS])
    recall()
    calls["memtier recall"] = count(recall)
    consolidate("warm")
    counter.reset()
    consolidate("counted")
    calls["daemon consolidation, 14 entries"] = counter.report()
    return calls


# -- the command -----------------------------------------------------------------------------------


def show(report: dict[str, Any]) -> None:
    """Print a report for a person to read."""
    if sizes := report.get("sizes"):
        print(f"{'package':<28}{'modules':>9}{'lines':>9}")
        for name, row in sizes["packages"].items():
            print(f"{name:<28}{row['modules']:>9}{row['lines']:>9,}")
        print(f"{'all':<28}{sizes['modules']:>9}{sizes['lines']:>9,}")
        print(f"data files: {sizes['data_files']} with {sizes['data_lines']:,} lines")
        print(f"tests: {sizes['test_lines']:,} lines")
        print(f"# fmt: skip: {sizes['fmt_skip']}, in tests {sizes['fmt_skip_in_tests']}")
        print(f"lines with Any: {sizes['any']}")
        over = sizes["functions_over_60_lines"]
        print(f"functions: {sizes['functions']:,}, of more than 60 lines: {over}")
        print("longest module: {1}, {0} lines".format(*sizes["longest_module"]))
        for title, rows in (
            ("longest functions", sizes["longest_functions"]),
            ("highest complexity", sizes["most_complex"]),
        ):
            print(f"{title}:", *(f"\n  {value:>4}  {where}" for value, where in rows))
    if journeys := report.get("journeys"):
        names = ("modules", "functions", "calls", "between", "depth")
        print(f"\n{'journey':<36}" + "".join(f"{name:>11}" for name in names))
        for journey, row in journeys.items():
            print(f"{journey:<36}" + "".join(f"{row[name]:>11,}" for name in names))
    if start := report.get("start"):
        print(f"\n{'a cold process, seconds (median)':<40}{'wall':>8}{'CPU':>8}{'- Python':>10}")
        for name, row in start.items():
            beyond = row["cpu"] - start["python"]["cpu"]
            print(f"  {name:<38}{row['wall']:8.3f}{row['cpu']:8.3f}{beyond:10.3f}")
    if lines := report.get("lines"):
        print(f"\n{len(lines)} lines drawn at random")
        for row in lines:
            print(f"  {row['file']}:{row['line']}\n      {row['code']}")


def main() -> None:
    """Measure a checkout and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("checkout", type=Path, nargs="?", default=here, help="[this checkout]")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--lines", type=int, default=15, help="how many lines to draw [15]")
    parser.add_argument("--seed", type=int, default=1, help="of the lines [1]")
    parser.add_argument("--rounds", type=int, default=9, help="cold processes of a kind [9]")
    parser.add_argument("--count-journeys", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    if options.count_journeys:
        print(json.dumps(count_journeys(checkout, options.count_journeys)))
        sys.stdout.flush()
        return
    own = checkout / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    measures = {
        "sizes": lambda: measure_sizes(checkout, python),
        "journeys": lambda: measure_journeys(checkout, python),
        "start": lambda: measure_start(checkout, python, options.rounds),
        "lines": lambda: draw_lines(checkout, options.lines, options.seed),
    }
    report = {name: measures[name]() for name in options.only.split(",")}
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)


if __name__ == "__main__":
    main()
