"""What every test gets: a home of its own, a clean environment and no network."""

from __future__ import annotations

import gc
import os
import random
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, settings

from memtier_plugin.core import plugins
from memtier_plugin.core.results import RunContext
from memtier_plugin.core.settings.schema import Hooks, Settings
from memtier_plugin.daemon import child
from memtier_plugin.hooks import host_hooks
from memtier_plugin.pool import memory_pool
from memtier_plugin.providers import endpoint
from memtier_plugin.storage.index import connection
from tests.builders import START
from tests.loopback import Loopback
from tests.processes import PATIENCE, end_residents

pytest_plugins = ["tests.shared.fixtures"]

# Where Python is told to leave no bytecode, each process that a test starts would compile all anew,
# which takes longer than most of them run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Each test has a cache folder of its own, and matplotlib would read all fonts into each.
os.environ.setdefault("MPLCONFIGDIR", str(Path(__file__).parents[1] / ".pytest_cache/matplotlib"))
# Tests' folders lie in memory where there is room: half the time of a store's first write is fsync.
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 * 1024**3:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# The autouse fixture below is per test, not per example; nothing in it depends on the example.
for profile, examples in (("fast", 10), ("thorough", 100)):
    settings.register_profile(
        profile,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
settings.load_profile("fast")  # `make test-slow` asks for the other

SEED = os.environ.get("TEST_MEMTIER_SEED", "1")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_settings_of = memory_pool.settings
_DEADLINES = {
    name: value for name, value in asdict(Hooks()).items() if name.endswith("deadline_ms")
}


def patient_settings(context: RunContext) -> Settings:
    """Return a host's settings with a minute for hooks that have their usual deadlines.

    A machine that is busy with other tests keeps none of a second.
    """
    chosen = _settings_of(context)
    usual = {n: 60_000 for n, ms in _DEADLINES.items() if getattr(chosen.hooks, n) == ms}
    return replace(chosen, hooks=replace(chosen.hooks, **usual))


def pytest_collection_finish() -> None:
    """Leave the thousands of tests out of each collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return three for two cores: tests wait for a third of their time, for processes and disks."""
    return (os.cpu_count() or 1) * 3 // 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Draw what is sampled; give slow tests and real hosts a quarter of an hour."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in families.items():
        [number] = cases[0].get_closest_marker("sampled").args
        drawn = random.Random(f"{SEED} {name}").sample(cases, -(-len(cases) // number))
        for item in cases:
            if item not in drawn:
                item.add_marker(pytest.mark.slow)
    for item in items:
        if item.get_closest_marker("slow") or item.get_closest_marker("runtime"):
            seconds = int(os.environ.get("TEST_MEMTIER_TIMEOUT", 15 * 60))
            item.add_marker(pytest.mark.timeout(seconds))


@pytest.fixture(scope="session", autouse=True)
def _copied_schema() -> Iterator[None]:
    """Copy the schema into each new index from one that was migrated: a tenth of the time."""
    migrate, migrations, lock = connection.migrate, connection.MIGRATIONS, threading.Lock()
    process = os.getpid()  # SQLite connections must not cross a fork
    empty = apsw.Connection(":memory:")
    migrate(empty)

    def copy(index: apsw.Connection) -> None:
        ours = os.getpid() == process and connection.MIGRATIONS is migrations
        if ours and not index.pragma("user_version"):
            with lock:
                if not index.pragma("user_version") and not index.readonly("main"):
                    with index.backup("main", empty, "main") as copying:
                        copying.step()
        migrate(index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "migrate", copy)
        yield


@pytest.fixture(scope="session")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of tests that have none of their own; it is emptied after each."""
    return tmp_path_factory.mktemp("nowhere")


@pytest.fixture(autouse=True)
def isolated(
    request: pytest.FixtureRequest, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Point MemTier and the user's folders into ``tmp_path``, and refuse to leave this machine.

    Most tests do no I/O: to make and remove a folder for each would take longer than they do.
    """
    has_folder = "tmp_path" in request.fixturenames
    tmp_path = request.getfixturevalue("tmp_path") if has_folder else nowhere
    for name in list(os.environ):
        if name.startswith("MEMTIER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MEMTIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in _LOOPBACK:
            pytest.fail(f"a test tried to reach {address!r}; tests stay on this machine")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(plugins, "_errors", {})  # what failed in another test is not told here
    monkeypatch.setattr(memory_pool, "settings", patient_settings)
    monkeypatch.setattr(child, "serves_itself", threading.Event())
    if "daemons" not in request.fixturenames:
        child.serves_itself.set()
    yield
    memory_pool.close()
    end_residents(tmp_path)
    if not has_folder:
        for path in nowhere.iterdir():
            shutil.rmtree(path)


@pytest.fixture
def daemons() -> None:
    """Let each session that begins in this process start its project's daemon, as it does."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return MemTier's home, which does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Return a model server that listens; attempts follow each other without long pauses."""
    monkeypatch.setattr(endpoint, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(endpoint, "_formats", {})  # a port may come again
    with Loopback() as loopback:
        yield loopback


@pytest.fixture
def drained() -> Iterator[None]:
    """Let no hook's work be under way when a test's home is closed."""
    yield
    host_hooks.workers.drain(PATIENCE)


@pytest.fixture(scope="session")
def day() -> Callable[..., datetime]:
    """Return ``day(n, hours=0)``: the moment n days after Monday 2026-01-05, 09:00 UTC."""
    return lambda days=0, **more: START + timedelta(days=days, **more)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files again."""
    parser.addoption("--write-golden", action="store_true", help="write golden lines again")
