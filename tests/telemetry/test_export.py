"""Telemetry: what a collector gets from a real process, and what one that is down changes."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core import plugins
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.telemetry import watch
from memtier_plugin.telemetry.state import WrittenRecords
from tests.processes import child_environment, run_python
from tests.telemetry.collector import running_collector

WORK = """
    import sys
    from memtier_plugin import MemTier
    memory = MemTier.open(sys.argv[1], "shop", "openclaw.main")
    memory.end_run(
        [{"role": "user", "content": "The staging database runs on port 5433."}],
        session_id="s1", run_id="r1",
    )
    memory.recall("Which port does staging use?", session_id="s2", run_id="r2", purpose="inject")
    memory.recall("thanks!", session_id="s2", run_id="r3", purpose="inject")
    memory.end_run(
        [
            {"role": "user", "content": "Which port does staging use?"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c", "function": {"name": "sh", "arguments": "psql -p 5433"}}]},
            {"role": "tool", "tool_call_id": "c", "name": "sh", "content": "ok", "exit_code": 0},
            {"role": "assistant", "content": "The staging database runs on port 5433."},
        ],
        session_id="s2", run_id="r2",
    )
    fact = memory.remember("The office is in Leipzig.")
    memory.consolidate()
    memory.forget(ids=[fact.id])
    memory.unforget([fact.id])
    memory.note_hook("openclaw.main", "before_prompt_build", False, "DeadlinePassed: not done", 9)
    memory.recall("office", session_id="s2", run_id="r4", purpose="inject")
"""
PATIENT = """
    from memtier_plugin.telemetry import watch
    watch.START_SECONDS = watch.EXIT_SECONDS = 60  # a busy machine starts slowly
"""
ON = "telemetry: {enabled: true}\n"
starts_threads_at_exit = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3),
    reason="Python 3.12.0 to 3.12.2 start no thread in an exiting process (CPython gh-113964)",
)


def work(home: Path, endpoint: str, code: str = WORK, **environment: str) -> None:
    """Do a bit of everything in a process of its own, with telemetry on."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(ON, "utf-8")
    (home / "config.yaml").chmod(0o600)
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    run_python(code, home, env=child_environment(**named, **environment))


@starts_threads_at_exit
def test_a_collector_gets_spans_and_metrics(tmp_path: Path) -> None:
    """Each operation is a span by the GenAI conventions, and the metrics add up; no texts."""
    with running_collector() as collector:
        work(
            tmp_path / "home",
            collector.url,
            WORK + PATIENT,
            OTEL_RESOURCE_ATTRIBUTES="deployment=test",
        )
    assert collector.resources[0]["service.name"] == "memtier"
    assert collector.resources[0]["deployment"] == "test"
    searches = collector.spans_of("search_memory")
    assert [s["memtier.recall.label"] for s in searches if "error.type" not in s][1] == "silent"
    first = searches[0]
    assert first["gen_ai.operation.name"] == "search_memory"
    assert first["gen_ai.memory.store.id"] == "shop"
    assert first["gen_ai.agent.id"] == "openclaw.main"
    assert first["gen_ai.conversation.id"] == "s2"
    assert first["gen_ai.memory.record.count"] == 1
    assert first["memtier.recall.tokens"] > 0
    assert [s["error.type"] for s in searches if "error.type" in s] == ["DeadlinePassed"]
    assert {span.name for span in collector.spans} == {
        "search_memory",
        "create_memory",
        "update_memory",
        "delete_memory",
        "consolidate",
    }
    assert all(span.kind == 1 for span in collector.spans)  # internal
    assert all(0 < s.start_time_unix_nano <= s.end_time_unix_nano for s in collector.spans)
    sent = b"".join(span.SerializeToString() for span in collector.spans)
    assert b"staging" not in sent
    assert b"Leipzig" not in sent

    [port, *_] = collector.metrics["memtier.recall.duration"]
    assert [*port.explicit_bounds][0::9] == [0.001, 0.15]
    assert sum(p.count for p in collector.metrics["memtier.recall.duration"]) == 3
    assert collector.metrics["memtier.recall.tokens"][0].as_double + sum(
        p.as_int for p in collector.metrics["memtier.recall.tokens"]
    ) == sum(s.get("memtier.recall.tokens", 0) for s in searches)
    assert sum(p.as_int for p in collector.metrics["memtier.credits"]) == 1
    assert sum(p.as_int for p in collector.metrics["memtier.recall.silence"]) >= 1
    assert collector.metrics["memtier.queue.depth"][0].as_int == 0
    turns = {
        each.value.string_value: point.as_int
        for point in collector.metrics["memtier.turns_since_capture"]
        for each in point.attributes
        if each.key == "gen_ai.agent.id"
    }
    assert turns == {"openclaw.main": 1}


@pytest.mark.slow
@starts_threads_at_exit
def test_a_process_may_end_at_once(tmp_path: Path) -> None:
    """What was written by a process that ended before the exporter had started is exported."""
    code = """
    import sys
    from memtier_plugin import MemTier
    MemTier.open(sys.argv[1], "shop").record([{"role": "user", "content": "a"}], session_id="s")
    """
    with running_collector() as collector:
        work(tmp_path / "home", collector.url, code + PATIENT)
    assert len(collector.spans_of("create_memory")) == 1


@pytest.mark.slow
@starts_threads_at_exit
def test_texts_are_sent_only_when_asked_for(tmp_path: Path) -> None:
    """The standard variable, and nothing else, puts queries and records into spans."""
    with running_collector() as collector:
        capture = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        work(tmp_path / "home", collector.url, WORK + PATIENT, **capture)
    [first, *_] = collector.spans_of("search_memory")
    assert first["gen_ai.memory.query.text"] == "Which port does staging use?"
    assert "5433" in collector.spans_of("create_memory")[0]["gen_ai.memory.records"]


@pytest.mark.slow
def test_a_collector_that_is_down_is_a_line_of_status(tmp_path: Path) -> None:
    """What is recorded and recalled is the same; the process ends, and status says why."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        started = time.monotonic()
        work(tmp_path / "home", f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert time.monotonic() - started < 100
    with MemTier.open(tmp_path / "home", "shop", settings={"telemetry.enabled": True}) as memory:
        status = memory.status()
    assert status["entries"] == 6
    assert [line for line in status["warnings"] if line.startswith("telemetry: ")]
    with MemTier.open(tmp_path / "home", "shop", settings={"telemetry.enabled": False}) as memory:
        assert not [w for w in memory.status()["warnings"] if w.startswith("telemetry: ")]


@pytest.mark.slow
def test_a_slow_collector_holds_up_no_process(tmp_path: Path) -> None:
    """An ending process waits a second for a collector that takes two minutes, no longer."""
    with running_collector(delay=120.0) as collector:
        started = time.monotonic()
        work(tmp_path / "home", collector.url)
        assert time.monotonic() - started < 100


def test_off_imports_nothing(tmp_path: Path) -> None:
    """Without the setting nothing of OpenTelemetry is imported, and no thread is started."""
    ask = """
    import threading
    print([name for name in sys.modules if "opentelemetry" in name or "otlp" in name])
    print([t.name for t in threading.enumerate() if "telemetry" in t.name])
    """
    assert run_python(WORK + ask, tmp_path / "home").split("\n")[:2] == ["[]", "[]"]


def test_a_full_queue_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that writes never waits: what has no room is dropped and counted."""
    monkeypatch.setattr(watch, "MAX_QUEUED", 2)
    settings = load_settings(tmp_path, "p", None, {"telemetry.enabled": True})
    queue = watch.Watch(tmp_path, settings.telemetry)
    for number in range(5):
        queue.add(WrittenRecords("p", [], 1.0, number))
    assert queue._dropped == 3
    queue.close()


def test_a_project_cannot_switch_it_on(tmp_path: Path) -> None:
    """Where telemetry goes is the user's to say, not that of whoever shares a project's folder."""
    folder = tmp_path / "projects" / "shop"
    folder.mkdir(parents=True)
    (folder / "project.yaml").write_text(ON, "utf-8")
    with pytest.raises(SettingsError, match=r"telemetry.enabled.*only in the home's config.yaml"):
        load_settings(tmp_path, "shop")


def test_a_plugin_gets_what_was_written(tmp_path: Path) -> None:
    """The hook `memtier_written` is public: a plugin sees entries, facts and events as written."""
    seen: list[str] = []

    class Plugin:
        @staticmethod
        @plugins.hookspecs.hookimpl
        def memtier_written(project: str, records: object, ms: float) -> None:
            assert project == "shop"
            assert ms >= 0
            seen.extend(type(record).__name__ for record in records)  # type: ignore[attr-defined]

    plugins._register(plugins.manager(), "watcher", Plugin)
    try:
        with MemTier.open(tmp_path / "home", "shop") as memory:
            memory.remember("The office is in Leipzig.")
            memory.recall("office", purpose="inject")
    finally:
        plugins.manager().unregister(name="watcher")
    assert [*dict.fromkeys(seen)] == ["Entry", "Fact", "JournalEvent"]
