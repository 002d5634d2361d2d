"""Check this installation: its packages, and that it writes, recalls, locks and serves.

`memtier doctor` checks a project and its hosts; this checks the program alone.  It works in a
temporary home, so that no project is touched.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from memtier_plugin import __version__
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.files import hold_lock
from memtier_plugin.core.residents import stop_resident
from memtier_plugin.hosts.agent_canary import STEP_SECONDS, converse
from memtier_plugin.hosts.project import launch_command
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.background import HealthFinding
from memtier_plugin.storage.index.sqlite import describe_engine

PROJECT: Final = "self-check"
LINE: Final = "The lighthouse keeper's boat is called Pelican."
QUESTION: Final = "What is the lighthouse keeper's boat called?"
IMPORT_SECONDS: Final = 120.0  # importing torch on a busy machine is slow
_AGAIN: Final = "install memtier again"
_NOT_USED: Final = frozenset({"dev", "train"})  # extras for development, not for users
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;.*extra *== *[\"']([\w-]+)[\"'])?")
_TRY_LOCK: Final = """
import sys
from pathlib import Path
from memtier_plugin.core.files import try_acquire_lock
sys.exit(0 if try_acquire_lock(Path(sys.argv[1])) is None else 3)
"""


def check_installation() -> list[HealthFinding]:
    """Run every check in order; each problem found has a remedy."""
    findings = [
        HealthFinding(
            "ok",
            f"memtier {__version__}, Python {platform.python_version()}, {platform.platform()}",
            str(Path(__file__).parents[1]),
        ),
        *_tried(_check_engine, "the index", "install apsw again"),
        *_tried(_check_packages, "the packages", _AGAIN),
    ]
    with tempfile.TemporaryDirectory(prefix="memtier-") as folder:
        home = Path(folder, "home")
        remedy = f"see that {tempfile.gettempdir()} is on a disk with space and POSIX locks"
        findings += _tried(lambda: _check_locks(Path(folder)), "locks between processes", remedy)
        findings += _tried(lambda: _check_memory(home), "a write and a recall", remedy)
        findings += _tried(lambda: _check_resident(home), "the resident", _AGAIN)
        findings += _tried(lambda: _check_daemon(home), "the daemon", _AGAIN)
    return findings


def _tried(
    check: Callable[[], Iterator[HealthFinding]], name: str, remedy: str
) -> list[HealthFinding]:
    """Return a check's findings; an exception becomes a finding."""
    try:
        return [*check()]
    except Exception as error:  # a broken installation may raise anything
        message = f"{name}: {type(error).__name__}: {error}"
        return [HealthFinding("error", message, sys.executable, remedy)]


def _check_engine() -> Iterator[HealthFinding]:
    versions = ", ".join(f"{name} {version}" for name, version in describe_engine().items())
    yield HealthFinding("ok", f"the index: {versions}")


def _check_packages() -> Iterator[HealthFinding]:
    """Yield whether the required packages and those of each extra are importable."""
    try:
        requirements = metadata.requires("memtier") or []
    except metadata.PackageNotFoundError:
        where, remedy = str(Path(__file__).parents[2]), "install it with pip to get the command"
        yield HealthFinding(
            "warn", "memtier runs from a folder without being installed", where, remedy
        )
        return
    by_extra = group_requirements(requirements)
    modules = _modules_by_package()
    absent = []
    for extra, packages in by_extra.items():
        name = f"the extra {extra}" if extra else "the required packages"
        missing = [package for package in packages if _key(package) not in modules]
        if missing and extra:
            absent.append(extra)
        elif missing:
            yield HealthFinding("error", f"missing: {', '.join(missing)}", sys.prefix, _AGAIN)
        else:
            importable = [module for package in packages for module in modules[_key(package)]]
            problem = _import_all(importable)
            message = f"{name}: {problem or ', '.join(packages)}"
            yield HealthFinding(
                "error" if problem else "ok", message, sys.prefix, problem and _AGAIN
            )
    if absent:
        yield HealthFinding("ok", f"extras not installed: {', '.join(absent)}")


def group_requirements(requirements: Sequence[str]) -> dict[str, list[str]]:
    """Return the packages that requirements name, by extra; '' for those always required."""
    by_extra: dict[str, list[str]] = {"": []}
    for requirement in requirements:
        if (match := _REQUIREMENT.match(requirement)) and match[2] not in _NOT_USED:
            by_extra.setdefault(match[2] or "", []).append(match[1])
    return by_extra


def _modules_by_package() -> dict[str, list[str]]:
    """Return the importable top-level modules of each installed package."""
    modules: dict[str, list[str]] = {}
    for module, packages in metadata.packages_distributions().items():
        for package in packages if module.isidentifier() and not module.startswith("_") else ():
            modules.setdefault(_key(package), []).append(module)
    return modules


def _key(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _import_all(modules: Sequence[str]) -> str:
    """Import modules in a separate process, as they may crash; return what went wrong."""
    done = _run_python(
        "import importlib, sys; [*map(importlib.import_module, sys.argv[1:])]", *modules
    )
    return (done.stderr.strip().splitlines() or ["it crashed"])[-1] if done.returncode else ""


def _check_locks(folder: Path) -> Iterator[HealthFinding]:
    path = folder / "lock"
    with hold_lock(path, 1.0):
        blocked = _run_python(_TRY_LOCK, path)
    free = _run_python(_TRY_LOCK, path)
    if (blocked.returncode, free.returncode) != (0, 3):
        raise MemTierError(f"they do not hold: {(blocked.stderr + free.stderr).strip()[-300:]}")
    yield HealthFinding("ok", "another process sees this one's lock, and its release")


def _check_memory(home: Path) -> Iterator[HealthFinding]:
    with MemTier.open(home, PROJECT) as memory:
        memory.record([{"role": "user", "content": LINE}], session_id="check")
        recall = memory.recall(QUESTION)
    if LINE not in [hit.item.content for hit in recall.hits if hasattr(hit.item, "content")]:
        raise MemTierError(f"the recall ({recall.label}) does not find what was written")
    level, remedy = ("ok", "") if recall.label == "hybrid" else ("warn", _AGAIN)
    message = f"a line was written and recalled ({recall.label})"
    yield HealthFinding("ok" if level == "ok" else "warn", message, "", remedy)


def _check_resident(home: Path) -> Iterator[HealthFinding]:
    """Let a server recall the line; then start a resident as hosts do, and stop it."""
    run = [*launch_command(), "--home", str(home), "--project", PROJECT]
    with converse([*run, "serve", "--no-socket"]) as ask:
        answer = _result(ask("recall", {"query": QUESTION, "project": PROJECT, "agent": "main"}))
    if LINE not in str(answer):
        raise MemTierError("it does not recall what was written")
    event = {"hook_event_name": "SessionStart", "session_id": "self-check"}
    hook = subprocess.run(
        [*run, "hook", "claude-code"],
        input=json.dumps(event),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * STEP_SECONDS,
    )
    if not stop_resident(home, STEP_SECONDS):
        log = home / "logs" / "resident.log"
        why = log.read_text("utf-8", "replace").strip() if log.exists() else ""
        why = why or hook.stderr.strip() or f"the hook exited with {hook.returncode}"
        raise MemTierError(f"no resident stays: {why[-300:]}")
    yield HealthFinding("ok", "the resident starts, answers, outlives its host, and ends")


def _check_daemon(home: Path) -> Iterator[HealthFinding]:
    command = [*launch_command(), "--home", str(home), "--project", PROJECT, "daemon", "--once"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=2 * STEP_SECONDS
    )
    if done.returncode:
        raise MemTierError(f"it exited with {done.returncode}: {done.stderr.strip()[-300:]}")
    yield HealthFinding("ok", "the daemon starts, does its jobs, and ends")


def _result(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(result := answer.get("result"), Mapping):
        raise MemTierError(str(answer.get("error"))[-300:])
    return result


def _run_python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    package = str(Path(__file__).parents[2])  # it may not be installed
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), package)))
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=IMPORT_SECONDS,
        env={**os.environ, "PYTHONPATH": path},
        cwd=tempfile.gettempdir(),
    )
