"""The hook specs, and plugins of third parties: found, used, and kept from doing harm."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pluggy
import pytest
from msgspec import structs

from memtier_plugin.core import hookspecs, plugins
from memtier_plugin.core.installation import install_command
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.settings.yaml_file import all_keys, plugin_sections
from memtier_plugin.core.structs import Record
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.search import Ranker, Search, SearchResult
from tests.builders import say_each, write_config
from tests.processes import child_environment, run_in_fork, run_python

ROOT = Path(__file__).parents[2]

SHADES = """
    from memtier_plugin.core.hookspecs import hookimpl
    from memtier_plugin.core.results import Signal

    class Shades:
        @hookimpl
        def memtier_redact(self, text):
            start = text.find("locker 4711")
            if start >= 0:
                yield start, start + len("locker 4711"), "locker"

        @hookimpl
        def memtier_signals(self, items):
            said = [getattr(item, "content", "") + getattr(item, "text", "") for item in items]
            yield Signal(name="shade", weight=9.0, values=[float("violet" in s) for s in said])

    plugin = Shades()
"""

RUN = """
    import json
    from memtier_plugin.core.plugins import load_errors, manager
    from memtier_plugin.core.results import PromptEvent, RunContext, RunEvent
    from memtier_plugin.core.records import Message

    hook = manager().hook
    def context(run):
        return RunContext(agent_id="test.main", session_id="s", run_id=run, project="p")
    said = ["The harbour flag is green.",
            "The violet pole stands tall beside the old harbour mill.",
            "My bag is in locker 4711."]
    for number, text in enumerate(said):
        messages = (Message(role="user", content=text),)
        hook.agent_end(event=RunEvent(messages=messages), context=context(f"r{number}"))
    event = PromptEvent(prompt="Which harbour flag?")
    answer = hook.before_prompt_build(event=event, context=context("q"))
    print(json.dumps({
        "flag": answer.prepend_context,
        "errors": [[e.plugin, e.hook, e.error, e.count] for e in load_errors()],
    }))
"""


def run(script: str, home: Path, *paths: Path) -> Any:
    """Run a script in a process of its own, with more places to import from."""
    # No floor: what is ranked first is shown, whether or not it answers.
    write_config(home, 'retrieval:\n  k: 1\n  floor: "off"\n')
    environment = child_environment(*paths, MEMTIER_HOME=str(home))
    return json.loads(run_python(script, env=environment, cwd=home))


def ledgers(home: Path) -> str:
    """Return all that the ledgers of a home hold."""
    return "".join(path.read_text() for path in home.rglob("episodic/*/*.jsonl"))


def install(folder: Path, name: str, code: str, attribute: str = "") -> None:
    """Put a distribution with one module and its entry point where Python finds it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[memtier]\n{name} = {name}{attribute}\n")


def test_hooks_are_documented_and_typed() -> None:
    """Every hook has a docstring, and a type for each argument and for what it returns."""
    relay = plugins.manager().hook
    names = [name for name in vars(relay) if not name.startswith("_")]
    assert len(names) == 36
    for name in names:
        spec = getattr(hookspecs, name)
        signature = inspect.signature(spec)
        assert inspect.getdoc(spec), name
        assert signature.return_annotation is not inspect.Signature.empty, name
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, (name, parameter)


def test_shipped_handlers_use_the_public_hooks() -> None:
    """Each host hook has exactly one shipped handler, registered by the name of its module."""
    manager = plugins.manager()
    shipped = (*plugins.HOST_HANDLERS, *plugins.SHIPPED_PLUGINS)
    for name in shipped:
        assert manager.get_plugin(name) is sys.modules[name]
    for hook in ("before_prompt_build", "agent_end", "session_start", "session_end"):
        (handler,) = getattr(manager.hook, hook).get_hookimpls()
        assert handler.plugin_name in shipped


def test_no_plugin_no_search(home: Path) -> None:
    """Without a plugin installed, importlib.metadata (slow to import) is not imported."""
    script = """
        import json, sys
        from memtier_plugin.core.entry_points import find_entry_points
        find_entry_points("a group that nothing installed names")
        print(json.dumps("importlib.metadata" in sys.modules))
    """
    assert run(script, home) is False


@pytest.mark.slow
def test_plugin_from_its_own_wheel(home: Path, tmp_path: Path) -> None:
    """A plugin installed from a wheel changes ranking and redaction in the hook path."""
    wheel = tmp_path / "shades-1.0-py3-none-any.whl"
    info = "shades-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("shades.py", textwrap.dedent(SHADES))
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: shades\nVersion: 1.0\n")
        archive.writestr(f"{info}/entry_points.txt", "[memtier]\nshades = shades:plugin\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "--disable-pip-version-check", "--target", str(site), str(wheel)], check=True
    )

    without = run(RUN, home)
    with_plugin = run(RUN, tmp_path / "second", site)

    assert "green" in without["flag"] and "violet" not in without["flag"]
    assert "violet" in with_plugin["flag"] and "green" not in with_plugin["flag"]
    assert "4711" in ledgers(home)
    assert "[redacted:locker]" in ledgers(tmp_path / "second")
    assert "4711" not in ledgers(tmp_path / "second")
    assert without["errors"] == with_plugin["errors"] == []


def test_failing_plugins_are_passed_over(home: Path, tmp_path: Path) -> None:
    """Plugins that cannot load, raise or answer nonsense are reported; the others still work."""
    site = tmp_path / "site"
    hookimpl = "from memtier_plugin.core.hookspecs import hookimpl\n"
    raising = """
        from memtier_plugin.core.hookspecs import hookimpl

        @hookimpl(tryfirst=True)
        def before_prompt_build(event, context):
            raise RuntimeError("no prompt for you")

        @hookimpl(tryfirst=True)
        def agent_end(event):
            raise RuntimeError("no end")

        @hookimpl
        def memtier_redact(text):
            yield 0, len(text) + 1, "everything"

        @hookimpl
        def memtier_signals(query, items):
            return ["loud"]
    """
    install(site, "raising", raising)
    install(site, "unloadable", "raise OSError('no such luck')")
    install(site, "misspelt", hookimpl + "@hookimpl\ndef memtier_redacted(text): ...")
    install(site, "demanding", hookimpl + "@hookimpl\ndef agent_end(event, moon): ...")
    install(site, "wrapping", hookimpl + "@hookimpl(wrapper=True)\ndef agent_end(): yield")
    install(site, "shades", SHADES, ":plugin")

    done = run(RUN, home, site)

    assert "violet" in done["flag"] and "[redacted:locker]" in ledgers(home)
    errors = {(plugin, hook): (error, count) for plugin, hook, error, count in done["errors"]}
    assert errors["unloadable", "load"] == ("OSError: no such luck", 1)
    assert "'memtier_redact'" in errors["misspelt", "load"][0]
    assert "moon" in errors["demanding", "load"][0]
    assert "wrapper" in errors["wrapping", "load"][0]
    assert errors["raising", "before_prompt_build"] == ("RuntimeError: no prompt for you", 1)
    assert errors["raising", "agent_end"] == ("RuntimeError: no end", 3)
    assert "outside the text" in errors["raising", "memtier_redact"][0]
    assert "not a Signal" in errors["raising", "memtier_signals"][0]
    assert {plugin for plugin, _ in errors} == {
        "unloadable",
        "misspelt",
        "demanding",
        "wrapping",
        "raising",
    }


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that makes one object the only plugin of this test."""

    def use(plugin: object) -> None:
        manager = pluggy.PluginManager(hookspecs.ENTRY_POINT_GROUP)
        manager.add_hookspecs(hookspecs)
        plugins._register(manager, "only", plugin)
        monkeypatch.setattr(plugins, "_extensions", lambda: manager)
        monkeypatch.setattr(plugins, "_errors", {})
        forget_settings()

    def forget_settings() -> None:
        all_keys.cache_clear()
        plugin_sections.cache_clear()

    yield use
    forget_settings()


class Vectors:
    """An embedder of one dimension."""

    name, dimensions = "ones", 1

    def encode(self, texts: list[str]) -> list[list[float]]:
        """Return a one for each text."""
        return [[1.0] for _ in texts]


@pytest.mark.parametrize(("answer", "good"), [(Vectors(), True), ("vectors", False)])
def test_embedder_is_checked(only: Any, answer: object, good: bool) -> None:
    """A plugin's embedder is used only if it is one; otherwise it is reported."""

    class Plugin:
        @hookspecs.hookimpl
        def memtier_embedder(self) -> object:
            return answer

    only(Plugin())
    assert (plugins.find_embedder() is answer) is good
    assert bool(plugins.load_errors()) is not good


def test_reranker_may_not_invent_hits(only: Any) -> None:
    """A reranker may reorder and leave out; hits that it was not given are refused."""
    hits: list[Any] = [type("AHit", (), {"id": name})() for name in "abc"]

    class Plugin:
        @hookspecs.hookimpl
        def memtier_rerank(self, query: str, hits: list[Any]) -> list[Any]:
            return hits[::-1] if query == "turn" else [*hits, type("AHit", (), {"id": "x"})()]

    only(Plugin())
    assert [hit.id for hit in plugins.rerank_hits("turn", hits, 0.0, Settings())] == ["c", "b", "a"]
    assert plugins.rerank_hits("add", hits, 0.0, Settings()) is hits
    assert [error.hook for error in plugins.load_errors()] == ["memtier_rerank"]


class Reversal(Record, frozen=True, kw_only=True):
    """The settings of a plugin that turns hits around."""

    mode: str = "never"
    only: str = ""


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        (Settings(), 0),
        (Settings().having(Reversal(mode="always")), 1),
        (Settings().having(Reversal(only="b")), 1),
    ],
)
def test_what_settings_turn_off_is_not_called(only: Any, settings: Settings, calls: int) -> None:
    """An implementation is called unless its section has all the values that turn it off."""
    hits: list[Any] = [type("AHit", (), {"id": name})() for name in "ab"]
    called: list[str] = []

    class Plugin:
        @hookspecs.hookimpl
        @hookspecs.off_while(Reversal, mode="never", only="")
        def memtier_rerank(self, query: str, hits: list[Any]) -> list[Any]:
            called.append(query)
            return hits[::-1]

    only(Plugin())
    ordered = plugins.rerank_hits("turn", hits, 0.0, settings)
    assert len(called) == calls
    assert [*ordered] == (hits[::-1] if calls else hits)


class Backwards(Ranker):
    """A ranker that turns the order of words around."""

    merges = False

    def rank(self, search: Search, query: str, stage: str | None) -> SearchResult:
        """Rank what matches by its words, the worst first."""
        result = search.rank_by_signals(query)
        return structs.replace(result, ranked=[*reversed(result.ranked)])


class Reversed(Record, frozen=True, kw_only=True):
    """What `retrieval.profile` may be with the plugin."""

    profile: Literal["recall_first", "rrf"] = "recall_first"


class Profiles:
    """A plugin that has a ranker for one profile."""

    @hookspecs.hookimpl
    def memtier_settings(self) -> dict[type[Record], str]:
        """Let the setting have the profile's name."""
        return {Reversed: "retrieval"}

    @hookspecs.hookimpl
    def memtier_ranker(self, profile: str) -> Ranker | None:
        """Return the ranker of the profile `rrf`."""
        return Backwards() if profile == "rrf" else None


def test_a_profile_is_a_plugins_ranker(only: Any, home: Path) -> None:
    """A recall ranks as the plugin that offers the profile does."""
    only(Profiles())
    lines = ("The harbour flag is green.", "The harbour flag of the old mill is green and wide.")
    orders = []
    for profile in ("recall_first", "rrf"):
        with MemTier.open(home, settings={"retrieval.profile": profile}) as memory:
            say_each(memory, *lines)
            orders.append([hit.text for hit in memory.recall("Is the harbour flag green?").hits])
            assert not any("memtier-papers" in each for each in memory.status()["warnings"])
    assert len(orders[0]) == 2
    assert orders[1] == orders[0][::-1]


@pytest.mark.parametrize(
    "setting",
    [
        {"retrieval.profile": "paper"},
        {"retrieval.search": "tiers"},
    ],
)
def test_a_setting_without_its_package_is_told(
    only: Any, home: Path, setting: dict[str, Any]
) -> None:
    """Status names the package that a setting needs; a recall by another ranker does, too."""
    only(Profiles())
    with MemTier.open(home, settings=setting) as memory:
        say_each(memory, "The harbour flag is green.")
        command = install_command("memtier-papers")
        assert any(command in each for each in memory.status()["warnings"])
        recall = memory.recall("Which flag is green?")
        assert recall.hits
        assert command in recall.label


def test_the_same_failure_is_logged_once(only: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A plugin that fails in the same way again and again is counted, but logged once."""

    class Plugin:
        @hookspecs.hookimpl
        def memtier_extract(self, entries: list[Any]) -> None:
            raise ValueError("again")

    only(Plugin())
    for _ in range(3):
        assert plugins.collect_drafts([]) == []
    assert [record.name for record in caplog.records] == ["memtier"]
    assert plugins.load_errors() == [
        plugins.PluginError("only", "memtier_extract", "ValueError: again", 3)
    ]


def test_a_child_waits_for_no_thread_of_its_parent() -> None:
    """A process that forks while another thread loads plugins leaves its child able to use them."""
    loading, done = threading.Event(), threading.Event()

    def load() -> None:
        with plugins._lock:
            loading.set()
            done.wait()

    thread = threading.Thread(target=load)
    thread.start()
    loading.wait()
    try:
        assert run_in_fork(lambda: plugins.manager() and plugins.load_errors()) == ""
    finally:
        done.set()
        thread.join()
