"""The real hosts for the tests of this folder, and what is needed to go on after a stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.hosts import LoopbackModel
from tests.runtimes.agents import AGENTS, Codex, CodingAgent, resident
from tests.runtimes.hosts import HUNG, RUNTIMES, Ground, Hermes, Host, OpenClaw

WHOLE = 2  # tests of a coding agent without which it was not tried
DONE = os.environ.get("TEST_MEMTIER_DONE")  # a file of what passed, to go on after a stop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here, and leave out what a run before this one has done."""
    done = set(Path(DONE).read_text().splitlines()) if DONE and Path(DONE).exists() else set()
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.runtime)
            if item.nodeid in done:
                item.add_marker(pytest.mark.skip(reason="done before"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keep what passed."""
    outcome: Any = yield
    report = outcome.get_result()
    if callspec := getattr(item, "callspec", None):
        report.coding_agent = callspec.params.get("coding_agent")
    if DONE and report.when == "call" and report.passed:
        with Path(DONE).open("a") as file:
            file.write(f"{item.nodeid}\n")


# The versions of each coding agent whose tests here passed, with the day of the first time.
VERSIONS = Path(__file__).with_name("versions.json")
_tried: dict[str, list[bool]] = {}


def pytest_runtest_logreport(report: Any) -> None:
    """Collect how the tests of each coding agent went, in workers too."""
    host = getattr(report, "coding_agent", None)
    if host and report.when == "call" and not report.skipped:
        _tried.setdefault(host, []).append(report.passed)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note which versions were tried, where every test of an agent passed."""
    if hasattr(session.config, "workerinput"):
        return
    noted = json.loads(VERSIONS.read_text("utf-8"))
    for host, passed in _tried.items():
        if all(passed) and len(passed) >= WHOLE:
            package = RUNTIMES / host / "node_modules" / AGENTS[host].package / "package.json"
            version = json.loads(package.read_text("utf-8"))["version"]
            noted.setdefault(host, {}).setdefault(version, datetime.now(UTC).date().isoformat())
    VERSIONS.write_text(json.dumps(noted, indent=2, sort_keys=True) + "\n", "utf-8")


_HEAD = ("bad day", "host", "turn", "runs found", "recall ms", "store ms", "no answer")
_days: list[tuple[str, ...]] = []


@pytest.fixture(params=["openclaw", "hermes"])
def host(request: pytest.FixtureRequest) -> Host:
    """Return each of the hosts."""
    each: Host = request.getfixturevalue(request.param)
    return each


@pytest.fixture
def report_day(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return the function that notes a bad day's outcome for the final table."""
    name = request.node.name.removeprefix("test_")

    def note(host: str, *, expected: int, recorded: int, held: Mapping[str, Any]) -> None:
        """Note a day on which each turn completed, or the test would have ended before."""
        marks = [held.get(hook, {}) for hook in ("before_prompt_build", "agent_end")]
        slowest = [str(mark.get("slowest_ms", "")) for mark in marks]
        failed = " + ".join(str(mark.get("failed", 0)) for mark in marks)
        day = name.replace("_", " ")
        _days.append((day, host, "completed", f"{recorded} of {expected}", *slowest, failed))

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table; the milliseconds are those of the slowest call, as `status` has them."""
    rows = [_HEAD, *_days] if _days else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
    if HUNG:
        terminalreporter.write_line(f"node hung at its exit {len(HUNG)} times (nodejs/node#54918)")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """Return a folder with a home and a model; no resident of it outlives the test."""
    with LoopbackModel() as model:
        created = Ground(tmp_path, model)
        yield created
    if pid := created.resident():
        listing = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, check=False
        )
        if str(tmp_path).encode() in listing.stdout:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def openclaw(ground: Ground) -> OpenClaw:
    """Return OpenClaw, set up as `memtier install` does."""
    if not (RUNTIMES / "openclaw" / "node_modules" / ".bin" / "openclaw").exists():
        pytest.skip(f"OpenClaw is not in {RUNTIMES}; `make test-runtimes` puts it there")
    host = OpenClaw(ground)
    host.configure(promptDeadlineMs=14_000)  # a busy machine takes long to start the resident
    return host


@pytest.fixture
def hermes(ground: Ground) -> Hermes:
    """Return Hermes, set up as `memtier install` does."""
    if not (RUNTIMES / "hermes" / "venv" / "bin" / "hermes").exists():
        pytest.skip(f"Hermes is not in {RUNTIMES}; `make test-runtimes` puts it there")
    return Hermes(ground)


@pytest.fixture(params=[*AGENTS])
def coding_agent(request: pytest.FixtureRequest, ground: Ground) -> Iterator[CodingAgent]:
    """Return each coding agent, set up as `memtier install` does, beside a warm resident."""
    kind = AGENTS[request.param]
    if not (RUNTIMES / kind.name / "node_modules" / ".bin" / kind.program).exists():
        pytest.skip(f"{kind.name} is not in {RUNTIMES}; `make test-runtimes` puts it there")
    agent = kind(ground)
    agent.install()
    if isinstance(agent, Codex):
        agent.trust()
    with resident(ground):
        yield agent
